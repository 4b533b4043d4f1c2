"""What can be read of style.css without a browser, such as contrast by the rules of WCAG 2.2, level AA."""

import re
from itertools import product

import pytest

from dart.web.render import static

TEXT_CONTRAST = 4.5
CONTROL_CONTRAST = 3.0
"""For borders of controls, and for what a chart draws."""

STYLE = static("style.css").decode()
BLOCKS = re.findall(r":root \{(.*?)\n *\}", STYLE, re.DOTALL)
LIGHT, CHANGED = ({**dict(re.findall(r"--([\w-]+): #([0-9a-f]{6});", block))} for block in BLOCKS)
THEMES = {"light": LIGHT, "dark": LIGHT | CHANGED}

TEXTS = [
    *product(("ink", "quiet", "accent"), ("ground", "card", "faint")),
    *product(("warn", "bad"), ("ground", "card")),
    *((tone, f"{tone}-bg") for tone in ("good", "warn", "bad", "rest", "info", "idle")),
    *product(("accent",), ("warn-bg", "bad-bg", "info-bg")),
    ("card", "accent"),
]
PARTS = [
    *product(("control",), ("ground", "card")),
    *((f"c{number}", "card") for number in range(1, 7)),
    ("c1", "edge"),
    ("good", "card"),
]


def luminance(colour: str) -> float:
    shares = (int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4))
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(theme: str, one: str, other: str) -> float:
    low, high = sorted(luminance(THEMES[theme][name]) for name in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_every_text_can_be_read_on_its_ground(theme: str) -> None:
    assert [pair for pair in TEXTS if contrast(theme, *pair) < TEXT_CONTRAST] == []


@pytest.mark.parametrize("theme", THEMES)
def test_controls_and_lines_of_charts_stand_out_from_their_ground(theme: str) -> None:
    assert [pair for pair in PARTS if contrast(theme, *pair) < CONTROL_CONTRAST] == []


def test_a_control_has_the_border_of_controls() -> None:
    rule = STYLE[STYLE.index("button, .button, select, input {") :].partition("}")[0]
    assert "border: 1px solid var(--control)" in rule


def test_no_text_has_a_size_in_pixels_so_that_it_grows_with_the_letters_of_the_browser() -> None:
    rules = [line for line in STYLE.splitlines() if not line.startswith(".graph")]  # a drawing of fixed size
    assert re.findall(r"font(?:-size)?:[^;]*\dpx", "\n".join(rules)) == []


def test_lines_of_one_chart_differ_also_without_colour() -> None:
    dashes = [re.search(rf"\.c{number} \{{[^}}]*--dash: ([^;]+);", STYLE) for number in range(2, 7)]
    assert len({found[1] for found in dashes if found}) == 5
