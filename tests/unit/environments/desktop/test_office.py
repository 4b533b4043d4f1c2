"""Flat OpenDocument files: what was written is read, and what LibreOffice makes of it too."""

from dart.environments.desktop.office import MOST_CELLS, first_row, letter, lines, table

SAVED = b"""<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:spreadsheet><table:table>
<table:table-row table:number-rows-repeated="2"><table:table-cell office:value="1"/>
<table:table-cell table:number-columns-repeated="2"/><table:table-cell office:value="7"/>
<table:table-cell table:number-columns-repeated="16380"/></table:table-row>
<table:table-row table:number-rows-repeated="1048573"><table:table-cell/></table:table-row>
</table:table></office:spreadsheet></office:body></office:document>"""


def test_a_table_has_the_numbers_it_was_given() -> None:
    assert first_row(table([1, 2])) == ["1", "2"]


def test_cells_that_are_said_to_be_repeated_are() -> None:
    assert first_row(SAVED) == ["1", "", "", "7", *[""] * (MOST_CELLS - 4)]


def test_a_letter_has_the_paragraphs_it_was_given() -> None:
    assert lines(letter(["a < b", "c & d"])) == ["a < b", "c & d"]


def test_what_is_no_document_has_nothing_in_it() -> None:
    assert first_row(b"no xml") == []
    assert first_row(letter(["a"])) == []
    assert lines(b"") == []
    assert lines(table([1])) == []
