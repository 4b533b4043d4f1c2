"""Tables and texts for LibreOffice as single XML files (flat OpenDocument): writing and reading. Pure.

LibreOffice asks no question about formats when it opens or saves such a file, and no library is needed to
read it.
"""

from collections.abc import Sequence
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
_TABLE = "urn:oasis:names:tc:opendocument:xmlns:table:1.0"
_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"

MOST_CELLS = 50
"""Largest number of cells of a row that are read; repeated cells beyond it are empty."""

PROFILE = ".config/libreoffice/4/user/registrymodifications.xcu"
"""LibreOffice's settings, below the home."""

QUIET = b"""<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry" xmlns:xs="http://www.w3.org/2001/XMLSchema"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<item oor:path="/org.openoffice.Office.Common/Misc"><prop oor:name="ShowTipOfTheDay" oor:op="fuse">
<value>false</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Misc"><prop oor:name="FirstRun" oor:op="fuse">
<value>false</value></prop></item>
<item oor:path="/org.openoffice.Setup/Product"><prop oor:name="ooSetupLastVersion" oor:op="fuse">
<value>99.9</value></prop></item>
<item oor:path="/org.openoffice.Setup/Product"><prop oor:name="LastTimeGetInvolvedShown" oor:op="fuse">
<value>4000000000</value></prop></item>
<item oor:path="/org.openoffice.Setup/Product"><prop oor:name="LastTimeDonateShown" oor:op="fuse">
<value>4000000000</value></prop></item>
</oor:items>
"""
"""Settings that suppress the tip of the day and the news of a release."""


def table(row: Sequence[int]) -> bytes:
    """Return a spreadsheet file with these numbers in its first row."""
    cells = "".join(
        f'<table:table-cell office:value-type="float" office:value="{value}"><text:p>{value}</text:p>'
        "</table:table-cell>"
        for value in row
    )
    rows = f"<table:table-row>{cells}</table:table-row>"
    body = f'<office:spreadsheet><table:table table:name="Sheet1">{rows}</table:table></office:spreadsheet>'
    return _document("spreadsheet", body)


def letter(paragraphs: Sequence[str]) -> bytes:
    """Return a text document with these paragraphs."""
    lines = "".join(f"<text:p>{escape(line)}</text:p>" for line in paragraphs)
    return _document("text", f"<office:text>{lines}</office:text>")


def _document(kind: str, body: str) -> bytes:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document xmlns:office="{_OFFICE}" '
        f'xmlns:table="{_TABLE}" xmlns:text="{_TEXT}" office:version="1.3" '
        f'office:mimetype="application/vnd.oasis.opendocument.{kind}">'
        f"<office:body>{body}</office:body></office:document>"
    ).encode()


def first_row(content: bytes) -> list[str]:
    """Return the values in the first row of the first sheet of a file; an empty cell is an empty text.

    Returns no values when the content of the file is not a spreadsheet.
    """
    root = _parsed(content)
    row = None if root is None else root.find(f".//{{{_TABLE}}}table-row")
    found: list[str] = []
    for cell in () if row is None else row:
        times = int(cell.get(f"{{{_TABLE}}}number-columns-repeated", "1"))
        value = cell.get(f"{{{_OFFICE}}}value", "".join(cell.itertext()))
        found += [value] * min(times, MOST_CELLS - len(found))
    return found


def lines(content: bytes) -> list[str]:
    """Return the paragraphs of a text document; none when the content of the file is not a text document."""
    root = _parsed(content)
    body = None if root is None else root.find(f"{{{_OFFICE}}}body/{{{_OFFICE}}}text")
    return [] if body is None else ["".join(one.itertext()) for one in body.iter(f"{{{_TEXT}}}p")]


def _parsed(content: bytes) -> ElementTree.Element | None:
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError:
        return None
