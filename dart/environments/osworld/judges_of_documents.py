"""Functions that judge text documents, by the names OSWorld's tasks call them.

Documents of Word are read with python-docx (the extra `desktop`), those of OpenDocument as what they are, XML
in a zip file. A paragraph is one of the text itself: what stands in tables, frames, headers and footers is
none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dart.environments.osworld.likeness import text_likeness
from dart.environments.osworld.reading import Unreadable, library, office_setting, picture_of, reading, xml_in

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_FO = "{urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0}"

RED, BLUE = (255, 0, 0), (0, 0, 255)
HIGHLIGHT = "#ffff00"
FIELDS = 4
"""Of a line about a train: time, train, station, platform."""

REFERENCES_SURELY_BETTER = 0.01

# ---- the text ----


def compare_docx_files(
    result: Path,
    expected: Path,
    *,
    ignore_blanks: bool = True,
    ignore_case: bool = False,
    ignore_order: bool = False,
    content_only: bool = False,
    fuzzy_match: bool = False,
    delete_empty_lines: bool = False,
) -> float:
    """The same paragraphs; with ``content_only`` or ``fuzzy_match``, how alike they are."""

    def lines_of(path: Path) -> list[str]:
        lines = sorted(paragraphs(path)) if ignore_order else paragraphs(path)
        lines = [line.lower() for line in lines] if ignore_case else lines
        return [line for line in lines if line.strip()] if delete_empty_lines else lines

    found, wanted = lines_of(result), lines_of(expected)
    if content_only or (ignore_blanks and fuzzy_match):
        return text_likeness(_run_together(found), _run_together(wanted))
    if ignore_blanks:
        return float(_run_together(found) == _run_together(wanted))
    if len(found) != len(wanted):
        return 0.0
    if fuzzy_match:
        return _mean([text_likeness(a, b) for a, b in zip(found, wanted, strict=True)])
    return float(found == wanted)


def _run_together(lines: Sequence[str]) -> str:
    return re.sub(r"\s+", " ", "\n".join(lines)).strip()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 1.0


def compare_docx_files_and_ignore_new_lines(
    result: Path, expected: Path, *, ignore_blanks: bool = True
) -> float:
    """The same paragraphs, apart from those that are empty."""
    found, wanted = ([line for line in paragraphs(path) if line] for path in (result, expected))
    if ignore_blanks:
        return float(_run_together(found) == _run_together(wanted))
    return float(found == wanted)


def compare_docx_lines(result: Path, expected: Path) -> float:
    """The same lines in any order."""
    found, wanted = (set(_lines(path)) for path in (result, expected))
    return float(found == wanted)


def compare_init_lines(result: Path, expected: Path) -> float:
    """The same lines as far as the shorter of both goes."""
    return float(all(a == b for a, b in zip(paragraphs(result), paragraphs(expected), strict=False)))


def compare_references(
    result: Path,
    expected: Path,
    *,
    reference_indicator: str = "References",
    reference_base_result: float = 0.5,
) -> float:
    """How alike the lists of references are, from what the task began with (0) to equal (1)."""
    found, wanted = (_after(reference_indicator, paragraphs(path)) for path in (result, expected))
    if found is None or wanted is None:
        return float(found is wanted)
    if len(found) != len(wanted):
        return 0.0
    alike = _mean([text_likeness(a, b) for a, b in zip(found, wanted, strict=True)])
    if alike < reference_base_result + REFERENCES_SURELY_BETTER:
        return 0.0
    return (alike - reference_base_result) / (1 - reference_base_result)


def _after(heading: str, lines: Sequence[str]) -> list[str] | None:
    if heading not in lines:
        return None
    return [line for line in lines[lines.index(heading) + 1 :] if line.strip()]


def compare_unique_train_records(result: Path, expected: Sequence[Path]) -> float:
    """Of the lines of the second file so many as in the first, each train once."""
    lines, gold = _lines(result), _lines(expected[0])
    trains = _trains(lines)
    return float(
        set(lines) <= set(_lines(expected[1]))
        and len(trains) == len(set(trains))
        and set(trains) == set(_trains(gold))
        and len(lines) == len(gold)
    )


def check_no_duplicates(before: Path, result: Path) -> float:
    """Every train of the file before, each once."""
    trains = _trains(paragraphs(result))
    return float(len(trains) == len(set(trains)) and set(trains) == set(_trains(paragraphs(before))))


def _trains(lines: Sequence[str]) -> list[str]:
    return [line.split(",")[1].strip() for line in lines if len(line.split(",")) == FIELDS]


def fuzzy_place_math(result: Path, rules: Mapping[str, Any]) -> float:
    """Three words, and how alike each is to the likest of those expected."""
    words = " ".join(paragraphs(result)).split()
    if len(words) != 3:
        return 0.0
    return _mean([max(text_likeness(word, answer) for answer in rules["expected"]) for word in words])


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in paragraphs(path) if line.strip()]


def paragraphs(path: Path) -> list[str]:
    """The text of each paragraph of a .docx or .odt file. Raises Unreadable for anything else."""
    content = xml_in(path, "content.xml")
    if content is not None:
        return ["".join(_said(paragraph)) for paragraph in content.iter(f"{_TEXT}p")]
    return [paragraph.text for paragraph in document(path).paragraphs]


def _said(paragraph: ElementTree.Element) -> Iterator[str]:
    """What a paragraph says by itself and in its spans."""
    yield paragraph.text or ""
    for part in paragraph:
        if part.tag == f"{_TEXT}span":
            yield part.text or ""
        yield part.tail or ""


def document(path: Path) -> Any:
    """A document of Word. Raises Unreadable."""
    docx = library("docx", "python-docx")
    with reading(path, "text document"):
        return docx.Document(str(path))


# ---- tables and pictures ----


def compare_docx_tables(result: Path, expected: Path) -> float:
    """The same texts in the cells of all tables."""
    return float(_cells(result) == _cells(expected))


def _cells(path: Path) -> list[list[list[str]]]:
    return [
        [[cell.text.strip() for cell in row.cells] for row in table.rows] for table in document(path).tables
    ]


def compare_docx_images(result: Path, expected: Path) -> float:
    """The same pictures, pixel by pixel."""
    return float(_pictures(result) == _pictures(expected))


def _pictures(path: Path) -> list[bytes]:
    blobs = [part.target_part.blob for part in document(path).part.rels.values() if "image" in part.reltype]
    with reading(path, "document with sound pictures"):
        return [picture_of(blob).tobytes() for blob in blobs]


def compare_contains_image(result: Path, expected: Path) -> float:
    """Pictures in the same places of the text."""
    return float(
        all(
            ("graphicData" in a._element.xml) == ("graphicData" in b._element.xml)
            for a, b in _runs_beside(result, expected)
        )
    )


# ---- how it is set ----


def check_tabstops(
    result: Path,
    expected: Path,
    *,
    word_number_split_by_tabstop: int | None = None,
    index: int = 0,
) -> float:
    """The same tab stops, or how near they are in widths of the text; and so many words before one."""
    found, wanted = (
        [one for one in document(path).paragraphs if one.text.strip()] for path in (result, expected)
    )
    if len(found) != len(wanted):
        return 0.0
    if word_number_split_by_tabstop is not None:
        for paragraph in found:
            pieces = paragraph.text.split("\t")
            if index >= len(pieces) or len(pieces[index].split()) != word_number_split_by_tabstop:
                return 0.0
    section = document(expected).sections[0]
    width = section.page_width - section.left_margin - section.right_margin
    apart = [_apart(_stops(a), _stops(b)) for a, b in zip(found, wanted, strict=True)]
    if any(one is None for one in apart):
        return 0.0
    return max(0.0, 1 - _mean([(one or 0) / width for one in apart])) if apart else 1.0


def _stops(paragraph: Any) -> list[tuple[Any, int]]:
    """Alignment and place of those that somebody has set."""
    alignments = library("docx.enum.text", "python-docx").WD_TAB_ALIGNMENT
    return [
        (stop.alignment, stop.position)
        for stop in paragraph.paragraph_format.tab_stops
        if stop.alignment != alignments.CLEAR
        and not (stop.alignment == alignments.LEFT and stop.position == 0)
    ]


def _apart(found: Sequence[tuple[Any, int]], wanted: Sequence[tuple[Any, int]]) -> int | None:
    """The sum of the distances; None when they are not the same stops."""
    if [alignment for alignment, _ in found] != [alignment for alignment, _ in wanted]:
        return None
    return sum(abs(a - b) for (_, a), (_, b) in zip(found, wanted, strict=True))


def compare_line_spacing(result: Path, expected: Path) -> float:
    """The same text with the same line spacing of each paragraph."""
    found, wanted = (
        [one.paragraph_format.line_spacing for one in document(path).paragraphs]
        for path in (result, expected)
    )
    return float(found == wanted and compare_docx_files(result, expected) == 1.0)


def evaluate_spacing(result: Path) -> float:
    """Single, double and one and a half lines in the first three paragraphs."""
    spacings = [one.paragraph_format.line_spacing for one in document(result).paragraphs[:3]]
    return float(spacings == [1.0, 2.0, 1.5])


def is_first_line_centered(result: Path) -> float:
    center = library("docx.enum.text", "python-docx").WD_PARAGRAPH_ALIGNMENT.CENTER
    first = document(result).paragraphs[:1]
    return float(bool(first) and first[0].paragraph_format.alignment == center)


def evaluate_alignment(result: Path) -> float:
    """Of each sentence, the first three words stand before the rest."""
    for paragraph in document(result).paragraphs:
        for sentence in paragraph.text.split("."):
            words = sentence.split()
            head, rest = " ".join(words[:3]), " ".join(words[3:])
            is_short = len(words) < 3
            if not is_short and not (
                head in sentence and rest in sentence and sentence.find(head) < sentence.find(rest)
            ):
                return 0.0
    return 1.0


def contains_page_break(result: Path, rules: Mapping[str, Any] | None = None) -> float:
    """So many page breaks, or at least one."""
    count = sum(
        1
        for run in _runs(document(result))
        for line_break in run._element.iter(f"{_W}br")
        if line_break.get(f"{_W}type") == "page"
    )
    wanted = (rules or {}).get("page_break_count")
    return float(count > 0 and wanted in (None, count))


def has_page_numbers_in_footers(result: Path) -> float:
    """A digit in the first line of every footer."""
    return float(
        all(
            bool(section.footer.paragraphs) and any(map(str.isdigit, section.footer.paragraphs[0].text))
            for section in document(result).sections
        )
    )


def compare_font_names(result: Path, rules: Mapping[str, Any]) -> float:
    """All of the text is set in one font."""
    return float(all(run.font.name == rules["font_name"] for run in _runs(document(result))))


def find_default_font(result: Path, rules: Mapping[str, Any]) -> float:
    """LibreOffice's settings name this font for new documents."""
    font = office_setting(result, "/org.openoffice.Office.Writer/DefaultFont", "Standard")
    return float(font == rules["font_name"])


def compare_subscript_contains(result: Path, expected: Path) -> float:
    """Somewhere in both, in the same place, something is below the line."""
    return float(any(a.font.subscript and b.font.subscript for a, b in _runs_beside(result, expected)))


def compare_insert_equation(result: Path, expected: Path) -> float:
    """The same text, and in both, in the same place, an embedded object."""
    if compare_docx_files(result, expected) != 1.0:
        return 0.0
    tag = f"{_W}object"
    return float(
        any(
            next(a._element.iter(tag), None) is not None and next(b._element.iter(tag), None) is not None
            for a, b in _runs_beside(result, expected)
        )
    )


def evaluate_strike_through_last_paragraph(result: Path, expected: Path) -> float:
    """The same text, its last paragraph struck through."""
    last = document(result).paragraphs[-1:]
    is_struck = bool(last) and all(run.font.strike for run in last[0].runs)
    return float(is_struck and compare_docx_files(result, expected) == 1.0)


def check_italic_font_size_14(result: Path, expected: Path) -> float:
    """The same text, all that is italic in 14 points."""
    italics = [run for run in _runs(document(result)) if run.italic]
    is_large = all(run.font.size is not None and run.font.size.pt == 14 for run in italics)
    return float(is_large and compare_docx_files(result, expected) == 1.0)


def evaluate_conversion(result: Path) -> float:
    """Nothing in it, tables included, is in upper case only."""
    found = document(result)
    return float(not any(run.text.isupper() for run in (*_runs(found), *_runs_in_tables(found))))


def evaluate_colored_words_in_tables(result: Path, expected: Path, *, threshold: float = 3.5) -> float:
    """The same text; in tables, words that begin with a vowel are red and the others blue.

    threshold   the largest difference of colours (CIEDE2000) that is still the same colour
    """
    if compare_docx_files(result, expected) != 1.0:
        return 0.0
    return float(
        all(
            _is_coloured(run.font.color.rgb, RED if run.text[0].lower() in "aeiou" else BLUE, threshold)
            for run in _runs_in_tables(document(result))
            if run.text
        )
    )


def _is_coloured(colour: Sequence[int] | None, wanted: Sequence[int], threshold: float) -> bool:
    from dart.environments.osworld.colours import difference

    return colour is not None and difference(colour, wanted) <= threshold


def compare_highlighted_text(result: Path, expected: Path) -> float:
    """The same words are highlighted."""
    return float(_highlighted(result) == _highlighted(expected))


def _highlighted(path: Path) -> set[str]:
    root = xml_in(path, "word/document.xml")
    if root is None:
        raise Unreadable(path, "text document", "it has no word/document.xml")
    found = set()
    for run in root.iter(f"{_W}r"):
        mark, text = next(run.iter(f"{_W}highlight"), None), next(run.iter(f"{_W}t"), None)
        if mark is not None and mark.get(f"{_W}val") != "none" and text is not None:
            found.add(text.text or "")
    return found


def check_highlighted_words(result: Path, expected: Path) -> float:
    """The same text, and nothing in it highlighted any more (OpenDocument)."""
    root = xml_in(result, "content.xml")
    if root is None or compare_docx_files(result, expected) != 1.0:
        return 0.0
    yellow = {
        style.get(f"{_STYLE}name")
        for style in root.iter(f"{_STYLE}style")
        if any(one.get(f"{_FO}background-color") == HIGHLIGHT for one in style)
    }
    return float(not any(span.get(f"{_TEXT}style-name") in yellow for span in root.iter(f"{_TEXT}span")))


def _runs(found: Any) -> Iterator[Any]:
    for paragraph in found.paragraphs:
        yield from paragraph.runs


def _runs_in_tables(found: Any) -> Iterator[Any]:
    for table in found.tables:
        for row in table.rows:
            for cell in row.cells:
                yield from _runs(cell)


def _runs_beside(result: Path, expected: Path) -> Iterator[tuple[Any, Any]]:
    """Runs of both in the same place, as far as both go."""
    pairs = zip(document(result).paragraphs, document(expected).paragraphs, strict=False)
    for found, wanted in pairs:
        yield from zip(found.runs, wanted.runs, strict=False)
