"""Text from pages and policies, printed so that it cannot control the terminal.

A page's instruction, a policy's answer and an error that quotes them may hold anything: an escape sequence in
one of them could clear the screen, set a title or hide a line from the reader.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_CONTROL = {code: 0x2400 + code for code in range(0x20) if code != ord("\n")} | {0x7F: 0x2421}
"""The visible character for each control character except the line break, from Unicode's Control Pictures."""

_UNSEEN = (*range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Code points of eight-bit control characters, and of characters that end a line or change its direction."""

_SHOWN = _CONTROL | dict.fromkeys((*_UNSEEN, *range(0xD800, 0xE000)), 0xFFFD)


def printable(text: str) -> str:
    """Return the text with a visible character in place of every control character; line breaks stay."""
    return text if text.isprintable() else text.translate(_SHOWN)


def one_line(text: str) -> str:
    """Return the printable text on one line, with ⏎ for each line break."""
    return printable(text).replace("\n", "⏎")


class Printable:
    """Wraps something that rich draws, so that its text is `printable`."""

    def __init__(self, drawn: "RenderableType") -> None:
        self._drawn = drawn

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        for segment in console.render(self._drawn, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
