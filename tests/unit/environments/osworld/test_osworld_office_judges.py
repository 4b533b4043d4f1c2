"""Documents, tables, presentations and PDF files: right ones, near misses and damaged ones."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dart.environments.osworld import judges_of_documents as documents
from dart.environments.osworld import judges_of_pdf as pdfs
from dart.environments.osworld import judges_of_slides as slides
from dart.environments.osworld import judges_of_tables as tables
from dart.environments.osworld.reading import Unreadable

pytestmark = pytest.mark.slow

docx = pytest.importorskip("docx", reason="needs python-docx (make desktop)")
pptx = pytest.importorskip("pptx", reason="needs python-pptx (make desktop)")
openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl (make desktop)")
pypdf = pytest.importorskip("pypdf", reason="needs pypdf (make desktop)")

Change = Callable[[Any], None]


# ---- text documents ----


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """A document with these paragraphs, changed by a function."""

    def made(name: str, *lines: str, change: Change | None = None) -> Path:
        document = docx.Document()
        for line in lines:
            document.add_paragraph(line)
        if change is not None:
            change(document)
        document.save(str(tmp_path / name))
        return tmp_path / name

    return made


def odt(path: Path, *lines: str, styles: str = "") -> Path:
    spaces = " ".join(
        f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for short, name in {
            "office": "office",
            "text": "text",
            "style": "style",
            "fo": "xsl-fo-compatible",
        }.items()
    )
    body = "".join(f"<text:p>{line}</text:p>" for line in lines)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "content.xml", f"<office:document-content {spaces}>{styles}{body}</office:document-content>"
        )
    return path


def test_documents_are_compared_by_paragraphs(write: Callable[..., Path], tmp_path: Path) -> None:
    one, same = write("1.docx", "Hello", "World"), write("2.docx", "Hello", "World")
    turned, near = write("3.docx", "World", "Hello"), write("4.docx", "Hello", "Word")
    compare = documents.compare_docx_files
    assert (compare(one, same), compare(one, turned), compare(one, near)) == (1.0, 0.0, 0.0)
    assert compare(one, turned, ignore_order=True) == 1.0
    assert (
        compare(one, write("5.docx", "hello", "", "world"), ignore_case=True, delete_empty_lines=True) == 1.0
    )
    assert compare(one, near, content_only=True) == pytest.approx(20 / 21)
    assert compare(one, near, ignore_blanks=False, fuzzy_match=True) == pytest.approx((1 + 8 / 9) / 2)
    assert documents.compare_docx_lines(one, turned) == 1.0
    assert documents.compare_init_lines(one, write("6.docx", "Hello", "World", "more")) == 1.0
    assert (
        documents.compare_docx_files_and_ignore_new_lines(one, write("7.docx", "Hello", "", "World")) == 1.0
    )
    open_one = odt(tmp_path / "8.odt", "Hello", "<text:span>Wor</text:span>ld")
    assert compare(open_one, odt(tmp_path / "9.odt", "Hello", "World")) == 1.0


def test_a_document_that_is_damaged_or_none_is_unreadable(write: Callable[..., Path], tmp_path: Path) -> None:
    good = write("good.docx", "Hello")
    for name, content in (
        ("text.docx", b"no zip"),
        ("half.docx", good.read_bytes()[:900]),
        ("empty.docx", b""),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Unreadable, match=name):
            documents.compare_docx_files(tmp_path / name, good)


def test_references_count_by_how_much_better_than_the_beginning_they_are(write: Callable[..., Path]) -> None:
    wanted = write("1.docx", "text", "References", "abcd", "efgh")
    assert documents.compare_references(write("2.docx", "other", "References", "abcd", "efgh"), wanted) == 1.0
    half = write("3.docx", "References", "abcd", "exxh")
    assert documents.compare_references(half, wanted) == pytest.approx(0.5)
    assert documents.compare_references(write("4.docx", "References", "abcd"), wanted) == 0.0
    assert documents.compare_references(write("5.docx", "abcd"), wanted) == 0.0


def test_trains_are_kept_once_each(write: Callable[..., Path]) -> None:
    lines = ("1:00, a, x, 1", "2:00, b, x, 1", "3:00, a, y, 2")
    before, gold = write("before.docx", *lines), write("gold.docx", *lines[:2])
    judge = documents.compare_unique_train_records
    assert judge(write("1.docx", lines[1], lines[2]), [gold, before]) == 1.0
    assert judge(write("2.docx", *lines), [gold, before]) == 0.0
    assert judge(write("3.docx", lines[0], "2:00, b, invented, 1"), [gold, before]) == 0.0
    assert documents.check_no_duplicates(before, gold) == 1.0
    assert documents.check_no_duplicates(before, before) == 0.0


def _runs(document: Any) -> Any:
    return [run for paragraph in document.paragraphs for run in paragraph.runs]


def spaced(*factors: float) -> Change:
    def change(document: Any) -> None:
        for paragraph, factor in zip(document.paragraphs, factors, strict=True):
            paragraph.paragraph_format.line_spacing = factor

    return change


def test_line_spacing_is_compared_and_checked(write: Callable[..., Path]) -> None:
    right = write("1.docx", "a", "b", "c", change=spaced(1.0, 2.0, 1.5))
    wrong = write("2.docx", "a", "b", "c", change=spaced(1.0, 1.5, 2.0))
    assert (documents.evaluate_spacing(right), documents.evaluate_spacing(wrong)) == (1.0, 0.0)
    assert documents.compare_line_spacing(right, right) == 1.0
    assert documents.compare_line_spacing(right, wrong) == 0.0
    assert (
        documents.compare_line_spacing(right, write("3.docx", "a", "b", "x", change=spaced(1.0, 2.0, 1.5)))
        == 0.0
    )


def test_how_text_is_set_is_seen(write: Callable[..., Path]) -> None:
    def centered(document: Any) -> None:
        document.paragraphs[0].alignment = 1

    def styled(document: Any) -> None:
        first, last = _runs(document)
        first.font.name, last.font.name = "Arial", "Arial"
        first.font.italic, first.font.size = True, docx.shared.Pt(14)
        first.font.subscript = True
        last.font.strike = True

    plain, set_ = write("1.docx", "One", "two"), write("2.docx", "One", "two", change=styled)
    assert documents.is_first_line_centered(write("3.docx", "One", change=centered)) == 1.0
    assert documents.is_first_line_centered(plain) == 0.0
    assert documents.compare_font_names(set_, {"font_name": "Arial"}) == 1.0
    assert documents.compare_font_names(plain, {"font_name": "Arial"}) == 0.0
    assert documents.check_italic_font_size_14(set_, plain) == 1.0
    assert documents.compare_subscript_contains(set_, set_) == 1.0
    assert documents.compare_subscript_contains(set_, plain) == 0.0
    assert documents.evaluate_strike_through_last_paragraph(set_, plain) == 1.0
    assert documents.evaluate_strike_through_last_paragraph(plain, plain) == 0.0
    assert documents.evaluate_conversion(write("4.docx", "One", "two")) == 1.0
    assert documents.evaluate_conversion(write("5.docx", "ONE", "two")) == 0.0
    assert documents.evaluate_alignment(plain) == 1.0


def test_italics_in_another_size_are_wrong(write: Callable[..., Path]) -> None:
    def small(document: Any) -> None:
        _runs(document)[0].font.italic = True

    assert (
        documents.check_italic_font_size_14(write("1.docx", "a", change=small), write("2.docx", "a")) == 0.0
    )


def test_page_breaks_and_page_numbers_are_counted(write: Callable[..., Path]) -> None:
    def broken(document: Any) -> None:
        document.paragraphs[0].runs[0].add_break(docx.enum.text.WD_BREAK.PAGE)

    def numbered(document: Any) -> None:
        document.sections[0].footer.paragraphs[0].text = "page 1"

    one, plain = write("1.docx", "a", change=broken), write("2.docx", "a")
    assert documents.contains_page_break(one) == 1.0
    assert documents.contains_page_break(one, {"page_break_count": 1}) == 1.0
    assert documents.contains_page_break(one, {"page_break_count": 2}) == 0.0
    assert documents.contains_page_break(plain) == 0.0
    assert documents.has_page_numbers_in_footers(write("3.docx", "a", change=numbered)) == 1.0
    assert documents.has_page_numbers_in_footers(plain) == 0.0


def stopped(*inches: float) -> Change:
    def change(document: Any) -> None:
        for paragraph in document.paragraphs:
            for place in inches:
                paragraph.paragraph_format.tab_stops.add_tab_stop(
                    docx.shared.Inches(place), docx.enum.text.WD_TAB_ALIGNMENT.RIGHT
                )

    return change


def test_tab_stops_count_by_how_near_they_are(write: Callable[..., Path]) -> None:
    wanted = write("1.docx", "a b c\td", change=stopped(3.0))
    near, none = write("2.docx", "a b c\td", change=stopped(3.6)), write("3.docx", "a b c\td")
    assert documents.check_tabstops(wanted, wanted, word_number_split_by_tabstop=3) == 1.0
    assert documents.check_tabstops(near, wanted) == pytest.approx(0.9)
    assert documents.check_tabstops(none, wanted) == 0.0
    assert documents.check_tabstops(write("4.docx", "a b\tc d", change=stopped(3.0)), wanted) == 1.0
    assert documents.check_tabstops(wanted, wanted, word_number_split_by_tabstop=2) == 0.0


def coloured(*colours: tuple[int, int, int]) -> Change:
    def change(document: Any) -> None:
        table = document.add_table(rows=1, cols=2)
        for cell, word, colour in zip(table.rows[0].cells, ("apple", "Bear"), colours, strict=True):
            run = cell.paragraphs[0].add_run(word)
            run.font.color.rgb = docx.shared.RGBColor(*colour)

    return change


def test_tables_in_documents_are_compared_and_their_colours_seen(write: Callable[..., Path]) -> None:
    right = write("1.docx", "x", change=coloured((255, 0, 0), (0, 0, 255)))
    nearly = write("2.docx", "x", change=coloured((250, 2, 2), (0, 0, 255)))
    wrong = write("3.docx", "x", change=coloured((0, 0, 255), (0, 0, 255)))
    judge = documents.evaluate_colored_words_in_tables
    assert (judge(right, right), judge(nearly, right), judge(wrong, right)) == (1.0, 1.0, 0.0)
    assert documents.compare_docx_tables(right, wrong) == 1.0
    assert documents.compare_docx_tables(right, write("4.docx", "x")) == 0.0


def test_colours_differ_as_much_as_the_published_examples_say() -> None:
    from dart.environments.osworld.colours import _difference

    assert _difference((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485)) == pytest.approx(2.0425, abs=1e-4)
    assert _difference((50.0, 2.5, 0.0), (73.0, 25.0, -18.0)) == pytest.approx(27.1492, abs=1e-4)
    assert _difference((6.7747, -0.2908, -2.4247), (5.8714, -0.0985, -2.2286)) == pytest.approx(
        0.6377, abs=1e-4
    )


def test_pictures_in_documents_are_compared(write: Callable[..., Path]) -> None:
    from PIL import Image

    def shows(colour: str) -> Change:
        file = io.BytesIO()
        Image.new("RGB", (8, 8), colour).save(file, "PNG")
        return lambda document: document.paragraphs[0].runs[0].add_picture(io.BytesIO(file.getvalue()))

    red, blue = write("1.docx", "a", change=shows("red")), write("2.docx", "a", change=shows("blue"))
    plain = write("3.docx", "a")
    assert documents.compare_docx_images(red, red) == 1.0
    assert documents.compare_docx_images(red, blue) == 0.0
    assert documents.compare_contains_image(red, blue) == 1.0
    assert documents.compare_contains_image(plain, blue) == 0.0
    assert documents.compare_insert_equation(red, red) == 0.0


def test_highlighted_words_are_seen(write: Callable[..., Path], tmp_path: Path) -> None:
    def marked(document: Any) -> None:
        _runs(document)[0].font.highlight_color = docx.enum.text.WD_COLOR_INDEX.YELLOW

    one, plain = write("1.docx", "a", "b", change=marked), write("2.docx", "a", "b")
    assert documents.compare_highlighted_text(one, one) == 1.0
    assert documents.compare_highlighted_text(one, plain) == 0.0
    style = (
        '<style:style style:name="T1"><style:text-properties fo:background-color="{}"/></style:style>'
        '<style:style style:name="T2"><style:text-properties fo:background-color="#ffffff"/></style:style>'
    )
    line = '<text:span text:style-name="T1">word</text:span>'
    yellow = odt(tmp_path / "1.odt", line, styles=style.format("#ffff00"))
    cleared = odt(tmp_path / "2.odt", line, styles=style.format("transparent"))
    assert documents.check_highlighted_words(yellow, cleared) == 0.0
    assert documents.check_highlighted_words(cleared, yellow) == 1.0


def test_words_are_matched_to_the_likest_answer(write: Callable[..., Path]) -> None:
    rules = {"expected": ["alpha", "beta", "gamma"]}
    assert documents.fuzzy_place_math(write("1.docx", "alpha beta", "gamma"), rules) == 1.0
    assert documents.fuzzy_place_math(write("2.docx", "alpha beta gamm"), rules) == pytest.approx(
        (2 + 8 / 9) / 3
    )
    assert documents.fuzzy_place_math(write("3.docx", "alpha beta"), rules) == 0.0


# ---- tables ----


@pytest.fixture
def book(tmp_path: Path) -> Callable[..., Path]:
    def made(name: str, *rows: list[Any], change: Change | None = None) -> Path:
        workbook = openpyxl.Workbook()
        workbook.active.title = "Sheet1"
        for row in rows:
            workbook.active.append(row)
        if change is not None:
            change(workbook)
        workbook.save(tmp_path / name)
        return tmp_path / name

    return made


def holds(found: Path, wanted: Path | None, type_: str, **rule: Any) -> float:
    sheets = {"sheet_idx0": "RI0", "sheet_idx1": "EI0"} if wanted is not None else {"sheet_idx": 0}
    return tables.compare_table(found, wanted, rules=[{"type": type_, **sheets, **rule}])


def test_sheets_are_compared_by_values(book: Callable[..., Path]) -> None:
    one, same = book("a.xlsx", [1, "x"], [0.1 + 0.2]), book("b.xlsx", [1, "x"], [0.3, None])
    assert holds(one, same, "sheet_data") == 1.0
    assert holds(one, book("c.xlsx", [2, "x"]), "sheet_data") == 0.0
    assert holds(one, book("d.xlsx", [1, "x"], [0.301]), "sheet_data") == 0.0
    assert holds(one, book("e.xlsx", [1, "x"], [0.301]), "sheet_data", precision=2) == 1.0
    assert holds(one, book("f.xlsx", [True, "x"], [0.3]), "sheet_data") == 0.0
    assert holds(one, same, "sheet_data", sheet_idx0="RNnone") == 0.0
    assert holds(one, same, "sheet_name") == 1.0
    with pytest.raises(NotImplementedError, match="rules of type 'colour'"):
        holds(one, same, "colour")


def test_a_cell_is_held_against_rules(book: Callable[..., Path]) -> None:
    def styled(workbook: Any) -> None:
        cell = workbook.active["A1"]
        cell.font = openpyxl.styles.Font(bold=True, color="FFFF0000", name="Arial")
        cell.fill = openpyxl.styles.PatternFill("solid", fgColor="FF00FF00")
        workbook.active.merge_cells("B2:C2")

    def cell(place: str, **props: Any) -> float:
        rules = {name: {"method": "eq", "ref": value} for name, value in props.items()}
        return holds(one, None, "check_cell", coordinate=place, props=rules)

    one = book("a.xlsx", [1, "x"], ["y", "z", None], change=styled)
    assert (
        cell("A1", value=1, font_bold=True, font_color="FFFF0000", font_name="Arial", bgcolor="FF00FF00")
        == 1.0
    )
    assert cell("A1", value=2) == 0.0
    assert cell("B1", font_bold=True) == 0.0
    assert (cell("C2", merge=True), cell("B2", merge=True)) == (1.0, 0.0)
    assert cell("B1", value="x", hyperlink="") == 1.0
    with pytest.raises(NotImplementedError, match="the style 'shadow'"):
        cell("A1", shadow=1)


def test_styles_widths_panes_and_zoom_are_compared(book: Callable[..., Path]) -> None:
    def changed(workbook: Any) -> None:
        sheet = workbook.active
        sheet["A1"].number_format = "0.00"
        sheet.column_dimensions["A"].width = 30
        sheet.row_dimensions[1].hidden = True
        sheet.freeze_panes = "B2"
        sheet.sheet_view.zoomScale = 260

    one, plain = book("a.xlsx", [1, "x"], change=changed), book("b.xlsx", [1, "x"])
    for type_, props in (
        ("style", {"props": ["number_format"]}),
        ("col_props", {"props": ["width"]}),
        ("row_props", {"props": ["hidden"]}),
        ("freeze", {}),
    ):
        assert holds(one, one, type_, **props) == 1.0, type_
        assert holds(one, plain, type_, **props) == 0.0, type_
    assert holds(one, None, "zoom", method="ge", ref=260) == 1.0
    assert holds(plain, None, "zoom", method="eq", ref=100) == 1.0


def test_what_conditions_make_of_cells_is_not_guessed(book: Callable[..., Path]) -> None:
    def conditional(workbook: Any) -> None:
        rule = openpyxl.formatting.rule.FormulaRule(formula=["A1>0"], font=openpyxl.styles.Font(bold=True))
        workbook.active.conditional_formatting.add("A1:A2", rule)

    plain, one = book("a.xlsx", [1]), book("b.xlsx", [1], change=conditional)
    assert holds(one, plain, "style", props=["font_bold"]) == 0.0
    with pytest.raises(NotImplementedError, match="depend on conditions"):
        holds(plain, one, "style", props=["font_bold"])


def charted(title: str, kind: str = "BarChart") -> Change:
    def change(workbook: Any) -> None:
        sheet, chart = workbook.active, getattr(openpyxl.chart, kind)()
        chart.add_data(
            openpyxl.chart.Reference(sheet, min_col=2, min_row=1, max_row=3), titles_from_data=True
        )
        chart.set_categories(openpyxl.chart.Reference(sheet, min_col=1, min_row=2, max_row=3))
        chart.title = title
        sheet.add_chart(chart, "E5")

    return change


def test_charts_are_compared_by_what_they_show_and_how(book: Callable[..., Path]) -> None:
    rows = (["k", "v"], ["a", 1], ["b", 2])
    bars = book("a.xlsx", *rows, change=charted("Sales"))
    props = {"chart_props": ["type", "title", "direction", "legend", "anchor", "width", "height", "xtitle"]}
    assert holds(bars, book("b.xlsx", *rows, change=charted("Sales")), "chart", **props) == 1.0
    assert holds(bars, book("c.xlsx", *rows, change=charted("Costs")), "chart", **props) == 0.0
    lines = book("d.xlsx", *rows, change=charted("Sales", "LineChart"))
    assert holds(bars, lines, "chart", chart_props=["type"]) == 0.0
    assert holds(bars, lines, "chart", chart_props=["title"]) == 1.0
    assert holds(bars, book("e.xlsx", *rows), "chart") == 0.0


def test_filters_and_validations_are_compared(book: Callable[..., Path]) -> None:
    def filtered(*values: str) -> Change:
        def change(workbook: Any) -> None:
            workbook.active.auto_filter.ref = "A1:B3"
            workbook.active.auto_filter.add_filter_column(0, list(values))
            workbook.active.auto_filter.add_sort_condition("B2:B3")

        return change

    def validated(workbook: Any) -> None:
        rule = openpyxl.worksheet.datavalidation.DataValidation(type="list", formula1='"Pass,Fail"')
        rule.add("D2:D9")
        workbook.active.add_data_validation(rule)

    one = book("a.xlsx", ["k"], change=filtered("x", "y"))
    assert holds(one, book("b.xlsx", ["k"], change=filtered("y", "x")), "filter") == 1.0
    assert holds(one, book("c.xlsx", ["k"], change=filtered("x")), "filter") == 0.0
    props = {
        "type": {"method": "eq", "ref": "list"},
        "formula1": {"method": "str_set_eq", "ref": ["Fail", "Pass"]},
        "ranges": {"method": "spreadsheet_range", "ref": ["D2:D9", "D1:D99"]},
    }
    valid = book("d.xlsx", ["k"], change=validated)
    assert holds(valid, None, "data_validation", dv_props=[props]) == 1.0
    assert holds(book("e.xlsx", ["k"]), None, "data_validation", dv_props=[props]) == 0.0
    narrow = props | {"ranges": {"method": "spreadsheet_range", "ref": ["D1:D9", "D1:D99"]}}
    assert holds(valid, None, "data_validation", dv_props=[narrow]) == 0.0


def test_cells_are_matched_loosely(book: Callable[..., Path]) -> None:
    wanted = book("a.xlsx", ["12 Main Road", "Tel. 5"], ["x", 7])
    found = book("b.xlsx", ["12 Main Rd ", "tel 5"], ["xyz", 7.0])

    def fuzzy(*rules: dict[str, Any]) -> float:
        return holds(found, wanted, "sheet_fuzzy", rules=list(rules))

    roads = {"range": ["A1"], "type": "exact_match", "normalization": [["Rd", "Road"]], "trim_trailings": " "}
    assert fuzzy(roads) == 1.0
    assert fuzzy({"range": ["B1"], "type": "exact_match", "ignore_case": True, "ignore_chars": ". "}) == 1.0
    assert fuzzy({"range": ["B1"], "type": "exact_match"}) == 0.0
    assert fuzzy({"range": ["A2:B2"], "type": "includes"}) == 1.0
    assert fuzzy({"range": ["A2"], "type": "included_by"}) == 0.0
    assert fuzzy({"range": ["A1:B1"], "type": "fuzzy_match", "threshold": 70}) == 1.0
    assert fuzzy({"range": ["A1"], "type": "fuzzy_match", "threshold": 99}) == 0.0


def test_sheets_are_compared_as_they_are_shown(book: Callable[..., Path], tmp_path: Path) -> None:
    found, wanted = book("a.xlsx", [1]), book("gold.xlsx", [1])
    (tmp_path / "a-Sheet1.csv").write_text("1.0 M\nX\n\n")
    (tmp_path / "gold-Sheet1.csv").write_text("1.0 m\nx\n")
    assert holds(found, wanted, "sheet_print", ignore_case=True) == 1.0
    assert holds(found, wanted, "sheet_print") == 0.0
    (tmp_path / "a-Sheet1.csv").unlink()
    with pytest.raises(Unreadable, match=r"a-Sheet1\.csv is no sheet as it is shown"):
        holds(found, wanted, "sheet_print")


def test_sparklines_are_found_in_the_file_itself(book: Callable[..., Path], tmp_path: Path) -> None:
    def with_line(name: str, cells: str) -> Path:
        plain, path = book("plain.xlsx", [1, 2]), tmp_path / name
        spaces = 'xmlns:x14="http://schemas.microsoft.com/office/spreadsheetml/2009/9/main"'
        line = f'<x14:sparkline xmlns:xm="http://schemas.microsoft.com/office/excel/2006/main"><xm:f>{cells}</xm:f><xm:sqref>C1</xm:sqref></x14:sparkline>'
        with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w") as new:
            for member in old.namelist():
                content = old.read(member).decode()
                ext = f'<extLst><ext {spaces} uri="u">{line}</ext></extLst></worksheet>'
                new.writestr(member, content.replace("</worksheet>", ext))
        return path

    one = with_line("a.xlsx", "Sheet1!A1:B1")
    assert holds(one, with_line("b.xlsx", "Sheet1!A1:B1"), "sparkline") == 1.0
    assert holds(one, with_line("c.xlsx", "Sheet1!A1:A1"), "sparkline") == 0.0
    assert holds(book("d.xlsx", [1, 2]), one, "sparkline") == 0.0


def test_cities_are_named_in_order(book: Callable[..., Path]) -> None:
    found = book("a.xlsx", ["", "", "head"], ["", "", "in Vienna"], ["", "", "Rio"])
    assert tables.compare_conference_city_in_order(found, {"expected": ["Vienna", ["Rio", "Lima"]]}) == 1.0
    assert tables.compare_conference_city_in_order(found, {"expected": ["Rio", "Vienna"]}) == 0.0
    assert tables.last_row(found) == ["None", "None", "Rio"] or tables.last_row(found)[-1] == "Rio"


def test_a_workbook_that_is_damaged_is_unreadable(book: Callable[..., Path], tmp_path: Path) -> None:
    good = book("good.xlsx", [1])
    for name, content in (("half.xlsx", good.read_bytes()[:2000]), ("text.xlsx", b"a,b")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Unreadable, match=f"{name} is no workbook"):
            holds(tmp_path / name, good, "sheet_data")


# ---- presentations ----


@pytest.fixture
def show(tmp_path: Path) -> Callable[..., Path]:
    """A presentation of two slides, a title and a box on each, changed by a function."""

    def made(name: str, change: Change | None = None) -> Path:
        presentation = pptx.Presentation()
        for number in (1, 2):
            slide = presentation.slides.add_slide(presentation.slide_layouts[5])
            slide.shapes.title.text_frame.text = f"Title {number}"
            box = slide.shapes.add_textbox(914400, 914400, 1828800, 914400)
            box.text_frame.text = "first"
            box.text_frame.add_paragraph().text = "second"
        if change is not None:
            change(presentation)
        presentation.save(str(tmp_path / name))
        return tmp_path / name

    return made


def _box(presentation: Any, slide: int = 0) -> Any:
    return presentation.slides[slide].shapes[1]


def _font(presentation: Any) -> Any:
    return _box(presentation).text_frame.paragraphs[0].runs[0].font


def _set(of: Callable[[Any], Any], name: str, value: Any) -> Change:
    return lambda presentation: setattr(of(presentation), name, value)


def _red(presentation: Any) -> None:
    _font(presentation).color.rgb = pptx.dml.color.RGBColor(255, 0, 0)


def _blue_background(presentation: Any) -> None:
    for slide in presentation.slides:
        slide.background.fill.solid()
        slide.background.fill.fore_color.rgb = pptx.dml.color.RGBColor(0, 0, 255)


def _note(presentation: Any) -> None:
    presentation.slides[0].notes_slide.notes_text_frame.text = "say this"


def _strike(presentation: Any) -> None:
    _font(presentation)._element.set("strike", "sngStrike")


def _bullet(presentation: Any) -> None:
    how = _box(presentation).text_frame.paragraphs[0]._p.get_or_add_pPr()
    how.append(
        how.makeelement("{http://schemas.openxmlformats.org/drawingml/2006/main}buChar", {"char": "•"})
    )


def _more(presentation: Any) -> None:
    presentation.slides.add_slide(presentation.slide_layouts[6])


def _paragraph(presentation: Any) -> Any:
    return _box(presentation).text_frame.paragraphs[0]


@pytest.mark.parametrize(
    ("option", "change"),
    [
        ("examine_number_of_slides", _more),
        ("examine_shape", _set(_box, "left", 1828800)),
        ("examine_text", _set(lambda p: _paragraph(p).runs[0], "text", "fir5t")),
        ("examine_indent", _set(_paragraph, "level", 1)),
        ("examine_font_name", _set(_font, "name", "Arial")),
        ("examine_font_size", _set(_font, "size", 120000)),
        ("examine_font_bold", _set(_font, "bold", True)),
        ("examine_font_italic", _set(_font, "italic", True)),
        ("examine_font_underline", _set(_font, "underline", True)),
        ("examine_strike_through", _strike),
        ("examine_alignment", _set(_paragraph, "alignment", 2)),
        ("examine_bullets", _bullet),
        ("examine_background_color", _blue_background),
        ("examine_note", _note),
    ],
)
def test_whatever_is_looked_at_has_to_be_the_same(
    show: Callable[..., Path], option: str, change: Change
) -> None:
    plain, changed = show("1.pptx"), show("2.pptx", change)
    assert slides.compare_pptx_files(changed, changed) == 1.0
    assert slides.compare_pptx_files(changed, plain) == 0.0
    without = {option: False}
    if option in ("examine_text", "examine_indent"):  # bullets have the text and the level too
        without["examine_bullets"] = False
    assert slides.compare_pptx_files(changed, plain, **without) == 1.0


def test_presentations_are_the_same_in_what_makes_no_difference(show: Callable[..., Path]) -> None:
    plain = show("1.pptx")
    for name, change in {
        "bold": _set(_font, "bold", False),
        "left": _set(_paragraph, "alignment", 1),
        "near": _set(_box, "left", 914400 + 4000),
        "theme": _set(_font, "underline", False),
    }.items():
        assert slides.compare_pptx_files(show(f"{name}.pptx", change), plain) == 1.0, name
    with pytest.raises(NotImplementedError, match="examine_smell"):
        slides.compare_pptx_files(plain, plain, examine_smell=True)


def test_colours_of_text_are_compared_where_both_have_one(show: Callable[..., Path]) -> None:
    def green(presentation: Any) -> None:
        _font(presentation).color.rgb = pptx.dml.color.RGBColor(0, 255, 0)

    red = show("1.pptx", _red)
    assert slides.compare_pptx_files(red, show("2.pptx", green)) == 0.0
    assert slides.compare_pptx_files(red, show("3.pptx", green), examine_color_rgb=False) == 1.0


def _table(word: str, *, bold: bool = False) -> Change:
    def change(presentation: Any) -> None:
        frame = presentation.slides[0].shapes.add_table(2, 2, 0, 0, 914400, 914400)
        run = frame.table.cell(0, 0).text_frame.paragraphs[0].add_run()
        run.text, run.font.bold = word, bold

    return change


def test_tables_on_slides_are_compared_by_how_they_are_set(show: Callable[..., Path]) -> None:
    plain = show("1.pptx", _table("x"))
    assert slides.compare_pptx_files(show("2.pptx", _table("x")), plain) == 1.0
    assert slides.compare_pptx_files(show("3.pptx", _table("x", bold=True)), plain) == 0.0
    assert slides.compare_pptx_files(show("4.pptx"), plain) == 0.0


def _grouped(alignment: int) -> Change:
    def change(presentation: Any) -> None:
        group = presentation.slides[0].shapes.add_group_shape()
        box = group.shapes.add_textbox(0, 0, 914400, 914400)
        box.text_frame.text = "inside"
        box.text_frame.paragraphs[0].alignment = alignment

    return change


def test_texts_in_groups_are_compared(show: Callable[..., Path]) -> None:
    one = show("1.pptx", _grouped(1))
    assert slides.compare_pptx_files(one, show("2.pptx", _grouped(1))) == 1.0
    assert slides.compare_pptx_files(one, show("3.pptx", _grouped(2))) == 0.0
    assert slides.compare_pptx_files(one, show("4.pptx", _grouped(2)), examine_alignment=False) == 1.0


def _picture(left: int, top: int, width: int, height: int, slide: int = 1) -> Change:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(file, "PNG")

    def change(presentation: Any) -> None:
        shapes = presentation.slides[slide].shapes
        shapes.add_picture(io.BytesIO(file.getvalue()), left, top, width, height)

    return change


def test_things_that_were_to_be_moved_are(show: Callable[..., Path]) -> None:
    before = show("1.pptx", _picture(914400, 2743200, 914400, 914400))
    right = show("2.pptx", _picture(4572000, 2743200, 914400, 914400))
    up = show("3.pptx", _picture(914400, 914400, 914400, 914400))
    grown = show("4.pptx", _picture(914400, 2743200, 914400, 1371600))
    compare = slides.compare_pptx_files
    assert compare(right, before, examine_shape=False, examine_right_position=True) == 1.0
    assert compare(up, before, examine_shape=False, examine_right_position=True) == 0.0
    assert compare(up, before, examine_shape=False, examine_top_position=True) == 1.0
    assert compare(right, before, examine_shape=False, examine_top_position=True) == 0.0
    assert compare(grown, before, examine_shape=False, examine_modify_height=True) == 0.0
    assert compare(right, before, examine_shape=False, examine_modify_height=True) == 1.0
    assert compare(right, before, examine_shape=False, examine_image_size=True) == 1.0
    assert compare(grown, before, examine_shape=False, examine_image_size=True) == 0.0
    assert compare(right, before, examine_shape=False, examine_shape_for_shift_size=True) == 0.0


def test_a_picture_fills_the_slide(show: Callable[..., Path]) -> None:
    before = show("1.pptx", _picture(0, 0, 914400, 914400, slide=0))
    filled = show("2.pptx", _picture(0, 0, 9144000, 6858000, slide=0))
    assert slides.check_image_stretch_and_center(filled, before) == 1.0
    assert slides.check_image_stretch_and_center(before, before) == 0.0
    assert slides.check_image_stretch_and_center(show("3.pptx"), before) == 0.0


def test_backgrounds_count_by_how_near_they_are(show: Callable[..., Path]) -> None:
    judge, blue = slides.evaluate_presentation_fill_to_rgb_distance, {"rgb": [0, 0, 255]}
    assert judge(show("1.pptx", _blue_background), blue) == 1.0
    assert judge(show("2.pptx"), blue) == 0.0
    assert judge(show("1.pptx", _blue_background), {"rgb": [0, 0, 0]}) == pytest.approx(1 - 3**-0.5)
    assert judge(show("1.pptx", _blue_background), blue | {"original_rgb": [0, 0, 255]}) == 0.0


def test_other_questions_about_presentations(show: Callable[..., Path], tmp_path: Path) -> None:
    def portrait(presentation: Any) -> None:
        presentation.slide_width, presentation.slide_height = 6858000, 9144000

    plain, struck = show("1.pptx"), show("2.pptx", _strike)
    place = {"slide_index_s": [0], "shape_index_s": [1], "paragraph_index_s": [0]}
    assert slides.check_strikethrough(struck, place) == 1.0
    assert slides.check_strikethrough(plain, place) == 0.0
    assert slides.check_strikethrough(struck, place | {"shape_index_s": [7]}) == 0.0
    assert slides.check_slide_orientation_Portrait(show("3.pptx", portrait)) == 1.0
    assert slides.check_slide_orientation_Portrait(plain) == 0.0
    rules = {"slide_idx": 0, "transition_type": "dissolve"}
    assert slides.check_transition(plain, rules) == 0.0
    moving = tmp_path / "4.pptx"
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(moving, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member == "ppt/slides/slide1.xml":
                content = content.replace(b"</p:sld>", b"<p:transition><p:dissolve/></p:transition></p:sld>")
            new.writestr(member, content)
    assert slides.check_transition(moving, rules) == 1.0
    assert slides.check_transition(moving, rules | {"transition_type": "wipe"}) == 0.0
    assert slides.check_transition(moving, rules | {"slide_idx": 9}) == 0.0


def test_a_presentation_that_is_damaged_is_unreadable(show: Callable[..., Path], tmp_path: Path) -> None:
    good = show("good.pptx")
    for name, content in (("half.pptx", good.read_bytes()[:5000]), ("text.pptx", b"slides")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Unreadable, match=f"{name} is no presentation"):
            slides.compare_pptx_files(tmp_path / name, good)


# ---- PDF ----


def pdf(path: Path, *pages: str) -> Path:
    """A PDF file that says these texts, written by hand."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        resources = f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * n} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] {resources} >>")
        stream = f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    path.write_bytes(
        body
        + f"{head}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF".encode()
    )
    return path


def test_pdf_files_are_compared_by_pages_and_text(tmp_path: Path) -> None:
    one, near = (
        pdf(tmp_path / "1.pdf", "hello world", "page two"),
        pdf(tmp_path / "2.pdf", "hello word", "page two"),
    )
    assert pdfs.check_pdf_pages(one, {"relation": "eq", "ref_value": 2}) == 1.0
    assert pdfs.check_pdf_pages(one, {"relation": "lt", "ref_value": 2}) == 0.0
    assert pdfs.compare_pdfs(one, one) == 1.0
    assert 0.9 < pdfs.compare_pdfs(one, near) < 1.0
    assert pdfs.compare_pdfs([one, near], [one, one]) == pytest.approx((1 + pdfs.compare_pdfs(near, one)) / 2)
    wanted = tmp_path / "gold.json"
    wanted.write_text('{"a": "hello", "b": "two"}')
    assert pdfs.is_gold_text_included_in_pdf(one, wanted) == 1.0
    wanted.write_text('{"a": "three"}')
    assert pdfs.is_gold_text_included_in_pdf(one, wanted) == 0.0
    assert pdfs.same_text(one.read_bytes(), near.read_bytes())
    (tmp_path / "3.pdf").write_bytes(b"no pdf")
    with pytest.raises(Unreadable, match=r"3\.pdf is no PDF file"):
        pdfs.check_pdf_pages(tmp_path / "3.pdf", {"relation": "eq", "ref_value": 2})


def test_pictures_in_pdf_files_look_the_same(tmp_path: Path) -> None:
    from PIL import Image, ImageDraw

    def drawn(name: str, *shapes: tuple[int, int, int, int], quality: int = 90) -> Path:
        image = Image.new("RGB", (120, 80), "white")
        for place in shapes:
            ImageDraw.Draw(image).rectangle(place, fill="navy")
        image.save(tmp_path / name, "PDF", quality=quality)
        return tmp_path / name

    wanted = drawn("1.pdf", (10, 10, 50, 40), (70, 30, 110, 70))
    assert (
        pdfs.compare_pdf_images(drawn("2.pdf", (10, 10, 50, 40), (70, 30, 110, 70), quality=40), wanted)
        == 1.0
    )
    assert pdfs.compare_pdf_images(drawn("3.pdf", (60, 5, 115, 20)), wanted) == 0.0
    assert pdfs.compare_pdf_images(pdf(tmp_path / "4.pdf", "no picture"), wanted) == 0.0
    assert pdfs.compare_pdf_images(tmp_path / "4.pdf", tmp_path / "4.pdf") == 1.0


# ---- settings of the office ----


def test_settings_of_the_office_are_read_from_its_registry(tmp_path: Path) -> None:
    path = tmp_path / "registrymodifications.xcu"

    def settings(item: str, name: str, value: str) -> Path:
        path.write_text(
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<oor:items xmlns:oor="http://openoffice.org/2001/registry">'
            f'<item oor:path="{item}"><prop oor:name="{name}"><value>{value}</value></prop></item>'
            "</oor:items>"
        )
        return path

    saving = settings("/org.openoffice.Office.Common/Save/Document", "AutoSaveTimeIntervall", "3")
    assert slides.check_auto_saving_time(saving, {"minutes": 3}) == 1.0
    assert slides.check_auto_saving_time(saving, {"minutes": 5}) == 0.0
    assert slides.check_presenter_console_disable(saving) == 0.0
    screen = settings("/org.openoffice.Office.Impress/Misc/Start", "EnablePresenterScreen", "false")
    assert slides.check_presenter_console_disable(screen) == 1.0
    font = settings("/org.openoffice.Office.Writer/DefaultFont", "Standard", "Times New Roman")
    assert documents.find_default_font(font, {"font_name": "Times New Roman"}) == 1.0
    assert documents.find_default_font(font, {"font_name": "Arial"}) == 0.0
    path.write_text("<oor:items")
    with pytest.raises(Unreadable, match=r"registrymodifications\.xcu is no XML file"):
        slides.check_auto_saving_time(path, {"minutes": 3})
