"""Functions that judge office documents, by the names OSWorld's tasks call them.

Text documents are read as what they are, XML in a zip file. Tables need openpyxl (the extra `desktop`).
"""

import difflib
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dart.environments.osworld.judges_of_text import matches

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_ODF = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"

DIGITS = 4
"""Numbers of tables are compared after rounding to this many."""


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
    found, wanted = (paragraphs(path) for path in (result, expected))
    if ignore_order:
        found, wanted = sorted(found), sorted(wanted)
    if delete_empty_lines:
        found, wanted = ([line for line in lines if line.strip()] for lines in (found, wanted))
    a, b = ("\n".join(lines) for lines in (found, wanted))
    if ignore_blanks or content_only:
        a, b = (re.sub(r"\s+", " ", text).strip() for text in (a, b))
    if ignore_case:
        a, b = a.lower(), b.lower()
    if content_only or fuzzy_match:
        return difflib.SequenceMatcher(a=a, b=b, autojunk=False).ratio()
    return float(a == b)


def compare_docx_lines(result: Path, expected: Path) -> float:
    """The same lines in any order."""
    found, wanted = ([line.strip() for line in paragraphs(path)] for path in (result, expected))
    return float(set(found) == set(wanted))


def paragraphs(path: Path) -> list[str]:
    """The text of each paragraph of a .docx or .odt file. Raises ValueError for anything else."""
    try:
        with zipfile.ZipFile(path) as archive:
            if "word/document.xml" in archive.namelist():
                root = ElementTree.fromstring(archive.read("word/document.xml"))
                return ["".join(run.text or "" for run in p.iter(f"{_W}t")) for p in root.iter(f"{_W}p")]
            root = ElementTree.fromstring(archive.read("content.xml"))
            return ["".join(p.itertext()) for p in root.iter(f"{_ODF}p")]
    except (zipfile.BadZipFile, KeyError, ElementTree.ParseError) as error:
        raise ValueError(f"{path.name} is no text document: {error}") from error


def compare_table(result: Path, expected: Path | None = None, *, rules: Sequence[Mapping[str, Any]]) -> float:
    """Every rule holds: ``sheet_data`` (the same values) or ``check_cell`` (one value)."""
    books = {"R": _book(result)} | ({} if expected is None else {"E": _book(expected)})
    return float(all(_holds(rule, books) for rule in rules))


def _holds(rule: Mapping[str, Any], books: Mapping[str, Any]) -> bool:
    match rule["type"]:
        case "sheet_data":
            found, wanted = _sheet(books, rule["sheet_idx0"], "R"), _sheet(books, rule["sheet_idx1"], "E")
            return _values(found) == _values(wanted)
        case "check_cell":
            sheet = _sheet(books, rule["sheet_idx"], "R")
            value = sheet[rule["coordinate"]].value
            return all(matches(value, one) for one in _conditions(rule["props"]))
        case other:
            raise NotImplementedError(f"rules of type {other!r} for tables")


def _conditions(props: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if set(props) != {"value"}:
        raise NotImplementedError(f"properties {sorted(props)} of cells")
    return [props["value"]]


def _book(path: Path) -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise NotImplementedError("tables need openpyxl: run `make desktop`") from error
    return openpyxl.load_workbook(path, data_only=True)


def _sheet(books: Mapping[str, Any], index: int | str, default: str) -> Any:
    """By number, or as ``RI0``, ``EI0`` (result's, expected's first) or ``RNname``."""
    if isinstance(index, int):
        return books[default].worksheets[index]
    book, kind, which = books[index[0]], index[1], index[2:]
    return book.worksheets[int(which)] if kind == "I" else book[which]


def _values(sheet: Any) -> list[list[Any]]:
    """Of every cell up to the last that has one."""
    rows = [[_rounded(value) for value in row] for row in sheet.iter_rows(values_only=True)]
    trimmed = [_without_end(row) for row in rows]
    while trimmed and not trimmed[-1]:
        trimmed.pop()
    return trimmed


def _without_end(row: list[Any]) -> list[Any]:
    while row and row[-1] is None:
        row = row[:-1]
    return row


def _rounded(value: Any) -> Any:
    return round(value, DIGITS) if isinstance(value, float) else value
