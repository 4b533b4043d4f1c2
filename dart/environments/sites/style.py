"""How a site looks: palette, layout, fonts and the shapes of its elements, drawn from a seed. Pure."""

import random
from dataclasses import dataclass
from pathlib import Path

STYLE_SHEET = (Path(__file__).parent / "style.css").read_text()

FONTS = (
    "'DejaVu Sans', Verdana, sans-serif",
    "'DejaVu Sans Condensed', 'DejaVu Sans', Arial, sans-serif",
    "'DejaVu Serif', Georgia, serif",
    "'Liberation Sans', Arial, Helvetica, sans-serif",
    "'Liberation Serif', 'Times New Roman', serif",
    "'DejaVu Sans Mono', monospace",
)
"""CSS font families with fallbacks. A machine that lacks a font uses the next one of the same entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """The choices that decide how every page of a site looks."""

    hue: int
    """Hue of the accent colour in degrees."""
    second_hue: int
    saturation: int
    is_dark: bool
    font: str
    font_px: int
    navigation: str
    """Place of the navigation: `top`, `left` or `right`."""
    links: str
    """Look of the navigation: `plain`, `pills`, `underline` or `boxes`."""
    header: str
    """Look of the header: `accent`, `plain` or `shade`."""
    listing: str
    """Look of listings: `rows`, `cards` or `table`."""
    button: str
    """Look of buttons: `solid`, `outline` or `soft`."""
    check_box: str
    """Look of check boxes: `box` or `switch`."""
    tabs: str
    """Look of tabs: `line`, `boxes` or `pills`."""
    radius_px: int
    is_upper: bool
    """Whether the labels of buttons and tabs are in capitals."""


def style_of(seed: int, site: str) -> Style:
    """Return the look of a site for a seed."""
    choose = random.Random(f"style of {site}/{seed}")
    hue = choose.randrange(0, 360, 12)
    return Style(
        hue=hue,
        second_hue=(hue + choose.choice((40, 150, 180, 210))) % 360,
        saturation=choose.choice((35, 55, 75)),
        is_dark=choose.random() < 0.25,
        font=choose.choice(FONTS),
        font_px=choose.choice((12, 13)),
        navigation=choose.choice(("top", "top", "left", "right")),
        links=choose.choice(("plain", "pills", "underline", "boxes")),
        header=choose.choice(("accent", "plain", "shade")),
        listing=choose.choice(("rows", "cards", "table")),
        button=choose.choice(("solid", "outline", "soft")),
        check_box=choose.choice(("box", "switch")),
        tabs=choose.choice(("line", "boxes", "pills")),
        radius_px=choose.choice((0, 3, 6, 12)),
        is_upper=choose.random() < 0.2,
    )


def css_of(style: Style) -> str:
    """Return the style sheet of all pages of a site."""
    return _variables(style) + STYLE_SHEET


def classes_of(style: Style) -> str:
    """Return the CSS classes of the page's body, which choose the look of each kind of element."""
    looks = [
        f"navigation-{style.navigation}",
        f"links-{style.links}",
        f"header-{style.header}",
        f"listing-{style.listing}",
        f"button-{style.button}",
        f"check-box-{style.check_box}",
        f"tabs-{style.tabs}",
    ]
    return " ".join([*looks, "upper"] if style.is_upper else looks)


def _variables(style: Style) -> str:
    saturation = style.saturation
    light, dark = (12, 92) if style.is_dark else (98, 16)
    step = 1 if style.is_dark else -1
    colours = {
        "page": f"hsl({style.hue} 15% {light + (0 if style.is_dark else -3)}%)",
        "paper": f"hsl({style.hue} 15% {light + 4 * (1 if style.is_dark else 0)}%)",
        "shade": f"hsl({style.hue} {saturation // 2}% {light + step * 9 + (6 if style.is_dark else 0)}%)",
        "line": f"hsl({style.hue} 12% {light + step * 20 + (2 if style.is_dark else 0)}%)",
        "ink": f"hsl({style.hue} 20% {dark}%)",
        "faint": f"hsl({style.hue} 8% {60 if style.is_dark else 42}%)",
        "accent": f"hsl({style.hue} {saturation}% {62 if style.is_dark else 34}%)",
        "on-accent": f"hsl({style.hue} 20% {10 if style.is_dark else 99}%)",
        "second": f"hsl({style.second_hue} {saturation}% {66 if style.is_dark else 32}%)",
    }
    sizes = {"radius": f"{style.radius_px}px", "font": style.font, "size": f"{style.font_px}px"}
    return ":root {" + "".join(f"--{name}: {value}; " for name, value in (colours | sizes).items()) + "}"
