"""Makes the corpus of `benchmarks.osworld_evaluators`, and calls OSWorld's metrics on it directly.

It runs under the Python of the environment with the evaluators, and imports nothing of this project::

    .venv-osworld-score/bin/python benchmarks/osworld_corpus.py make FOLDER
    .venv-osworld-score/bin/python benchmarks/osworld_corpus.py call FOLDER RESULTS [PACKAGES]

For each function there are pools of values: files of one kind that differ in one way each, damaged and
missing ones included, rules and options. A case is one combination. ``call`` writes a score, or what was
raised, for each case; PACKAGES is another folder with ``desktop_env``, such as a newer version.
"""

import copy
import itertools
import json
import math
import random
import signal
import sqlite3
import sys
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

MISSING = {"missing": True}
CASES = "cases.json"
CASE_PROCESSOR_S = 20
OPTIONAL = ("acoustid", "borb", "easyocr", "fastdtw", "fitz", "librosa", "playwright", "pydrive")

LINES = ["Alpha beta gamma", "delta 12, epsilon", "", "Zeta: eta", "theta iota kappa"]


class Pools:
    """Writes the files of the corpus; each pool maps the name of a variant to a value of a case."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, name: str, content: str | bytes | Callable[[str], object]) -> dict[str, Any]:
        path = self._folder / name
        if callable(content):
            content(str(path))
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return {"file": name}

    def damaged(self, ending: str, like: dict[str, Any]) -> list[dict[str, Any]]:
        """A file that is cut off, an empty one, one of other bytes, and none."""
        whole = (self._folder / like["file"]).read_bytes()
        parts = {"cut": whole[: len(whole) // 2], "empty": b"", "noise": bytes(range(256)) * 3}
        return [*(self.file(f"{name}.{ending}", part) for name, part in parts.items()), MISSING]

    def texts(self, ending: str = "txt", lines: Sequence[str] = LINES) -> list[dict[str, Any]]:
        text = "\n".join(lines) + "\n"
        variants: dict[str, str | bytes] = {
            "same": text,
            "copy": text,
            "case": text.upper(),
            "blanks": text.replace(" ", "  "),
            "crlf": text.replace("\n", "\r\n"),
            "no-end": text.rstrip("\n"),
            "lines": text.replace("\n", "\n\n"),
            "order": "\n".join(reversed(lines)),
            "less": "\n".join(lines[:2]),
            "other": "nothing of it\n",
            "latin": (text + "é").encode("latin-1"),
            "bom": b"\xef\xbb\xbf" + text.encode(),
        }
        made = [self.file(f"{ending}-{name}.{ending}", content) for name, content in variants.items()]
        return [*made, *self.damaged(ending, made[0])]


def pairs(pool: Sequence[Any], bases: int = 3) -> Iterator[tuple[Any, Any]]:
    """Every value with the first ones, both ways; what is expected is always there."""
    for value, base in itertools.product(pool, pool[:bases]):
        yield value, base
    for value in pool[bases:]:
        if value is not MISSING:
            yield pool[0], value


# ---- documents ----


def documents(pools: Pools) -> list[dict[str, Any]]:
    import docx
    from docx.enum.text import WD_ALIGN_PARAGRAPH, WD_COLOR_INDEX, WD_TAB_ALIGNMENT
    from docx.shared import Inches, Pt, RGBColor
    from PIL import Image

    picture = pools.file("inner.png", lambda path: Image.new("RGB", (20, 20), (200, 10, 10)).save(path))
    inner = str(pools._folder / picture["file"])

    def made(
        name: str, change: Callable[[Any], object] | None, lines: Sequence[str] = LINES
    ) -> dict[str, Any]:
        document = docx.Document()
        for line in lines:
            document.add_paragraph(line)
        if change:
            change(document)
        return pools.file(f"document-{name}.docx", document.save)

    def runs(change: Callable[[Any], object]) -> Callable[[Any], object]:
        return lambda document: [change(run) for one in document.paragraphs for run in one.runs]

    def paragraphs(change: Callable[[Any], object]) -> Callable[[Any], object]:
        return lambda document: [change(one) for one in document.paragraphs]

    def table(words: Sequence[str], colour: Any = None) -> Callable[[Any], object]:
        def add(document: Any) -> None:
            cells = document.add_table(rows=1, cols=len(words)).rows[0].cells
            for cell, word in zip(cells, words, strict=True):
                cell.text = word
                for run in cell.paragraphs[0].runs:
                    run.font.color.rgb = colour(word) if colour else None

        return add

    def colour_of(word: str) -> Any:
        return RGBColor(255, 0, 0) if word[0].lower() in "aeiou" else RGBColor(0, 0, 255)

    def italic(run: Any) -> None:
        run.italic, run.font.size = True, Pt(14)

    def strike(document: Any) -> None:
        for run in document.paragraphs[-1].runs:
            run.font.strike = True

    references = ["Text", "References", "[1] A. Author. Title of it. 2001", "[2] B. Writer. More. 2002"]
    changes: dict[str, tuple[Callable[[Any], object] | None, Sequence[str]]] = {
        "same": (None, LINES),
        "references": (None, references),
        "table": (table(["apple", "pear", "Orange"], colour_of), LINES),
        "copy": (None, LINES),
        "case": (None, [line.lower() for line in LINES]),
        "blanks": (None, [line.replace(" ", "  ") for line in LINES]),
        "lines": (None, [one for line in LINES for one in (line, "")]),
        "order": (None, LINES[::-1]),
        "typo": (None, [LINES[0] + "x", *LINES[1:]]),
        "less": (None, LINES[:2]),
        "none": (None, []),
        "references-typo": (None, [line.replace("Title", "Titel") for line in references]),
        "table-words": (table(["apple", "plum", "Orange"], colour_of), LINES),
        "table-red": (table(["apple", "pear", "Orange"], lambda _: RGBColor(255, 0, 0)), LINES),
        "picture": (lambda document: document.add_picture(inner, width=Inches(1)), LINES),
        "breaks": (lambda document: [document.add_page_break() for _ in range(2)], LINES),
        "font": (runs(lambda run: setattr(run.font, "name", "Times New Roman")), LINES),
        "italic": (runs(italic), LINES),
        "strike": (strike, LINES),
        "centred": (paragraphs(lambda one: setattr(one, "alignment", WD_ALIGN_PARAGRAPH.CENTER)), LINES),
        "spacing": (paragraphs(lambda one: setattr(one.paragraph_format, "line_spacing", 2.0)), LINES),
        "tabs": (
            paragraphs(
                lambda one: one.paragraph_format.tab_stops.add_tab_stop(Inches(2), WD_TAB_ALIGNMENT.RIGHT)
            ),
            ["one two three\tfour five", "a b c\td e"],
        ),
        "footer": (lambda d: setattr(d.sections[0].footer.paragraphs[0], "text", "Page 1"), LINES),
        "subscript": (lambda d: setattr(d.paragraphs[0].add_run("2").font, "subscript", True), LINES),
        "marked": (runs(lambda run: setattr(run.font, "highlight_color", WD_COLOR_INDEX.YELLOW)), LINES),
        "trains": (None, ["08:00,T1,Rome,1", "09:00,T2,Rome,2", "08:00,T1,Rome,1"]),
    }
    found = [made(name, change, lines) for name, (change, lines) in changes.items()]
    return [*found, *pools.damaged("docx", found[0])]


def open_documents(pools: Pools) -> list[dict[str, Any]]:
    from odf.opendocument import OpenDocumentText
    from odf.style import Style, TextProperties
    from odf.text import P, Span

    def made(name: str, lines: Sequence[str], marked: int | None) -> dict[str, Any]:
        document = OpenDocumentText()
        style = Style(name="T1", family="text")
        style.addElement(TextProperties(backgroundcolor="#ffff00"))
        document.automaticstyles.addElement(style)
        for index, line in enumerate(lines):
            paragraph = P() if index == marked else P(text=line)
            if index == marked:
                paragraph.addElement(Span(stylename=style, text=line))
            document.text.addElement(paragraph)
        return pools.file(f"open-{name}.odt", document.save)

    kinds = {"same": (LINES, None), "copy": (LINES, None), "marked": (LINES, 1), "order": (LINES[::-1], None)}
    found = [made(name, *kind) for name, kind in kinds.items()]
    return [*found, *pools.damaged("odt", found[0])]


def document_cases(pools: Pools) -> Iterator[tuple[Any, ...]]:
    pool, odts = documents(pools), open_documents(pools)
    for options in (
        {},
        {"ignore_blanks": False},
        {"ignore_case": True},
        {"ignore_order": True},
        {"content_only": True},
        {"fuzzy_match": True},
        {"delete_empty_lines": True},
        {"ignore_blanks": False, "fuzzy_match": True},
        {"ignore_blanks": True, "ignore_case": True, "ignore_order": True},
    ):
        for result, expected in [*pairs(pool), *pairs(odts, 2), (pool[0], odts[0]), (odts[0], pool[0])]:
            yield "compare_docx_files", result, expected, options
    for options in ({}, {"content_only": True, "reference_base_result": 0.93}, {"reference_threshold": 0.5}):
        for result, expected in pairs(pool):
            yield "compare_references", result, expected, options
    for function in (
        *("compare_docx_tables", "compare_docx_images", "compare_line_spacing", "compare_insert_equation"),
        *("compare_subscript_contains", "compare_contains_image", "evaluate_colored_words_in_tables"),
        *("evaluate_strike_through_last_paragraph", "check_italic_font_size_14", "check_no_duplicates"),
        *("compare_docx_lines", "compare_docx_files_and_ignore_new_lines", "compare_highlighted_text"),
        *("compare_init_lines", "compare_unique_train_records"),
    ):
        for result, expected in pairs(pool):
            yield function, result, expected, {}
    for options in ({"word_number_split_by_tabstop": 3, "index": 0}, {}):
        for result, expected in pairs(pool):
            yield "check_tabstops", result, expected, options
    for result, expected in pairs(odts):
        yield "check_highlighted_words", result, expected, {}
    for result in pool:
        for count in (0, 2, 5):
            yield "contains_page_break", result, {"rule": {"page_break_count": count}}, {}
        for name in ("Times New Roman", "Arial"):
            yield "compare_font_names", result, {"rule": {"font_name": name}}, {}
        for words in (["Alpha beta gamma"], ["Alpha beta", "zeta"]):
            yield "fuzzy_place_math", result, {"rule": {"expected": words}}, {}
        for function in (
            *("has_page_numbers_in_footers", "is_first_line_centered", "evaluate_conversion"),
            *("evaluate_spacing", "evaluate_alignment"),
        ):
            yield function, result, None, {}


# ---- presentations ----


def presentations(pools: Pools) -> list[dict[str, Any]]:
    from pptx import Presentation
    from pptx.dml.color import RGBColor
    from pptx.enum.text import PP_ALIGN
    from pptx.util import Inches, Pt

    def made(name: str, change: Callable[[Any], object] | None = None, slides: int = 2) -> dict[str, Any]:
        presentation = Presentation()
        for number in range(slides):
            slide = presentation.slides.add_slide(presentation.slide_layouts[1])
            slide.shapes.title.text = f"Title {number}"
            slide.placeholders[1].text = "First line\nSecond line"
        if change:
            change(presentation)
        return pools.file(f"slides-{name}.pptx", presentation.save)

    def run_of(presentation: Any) -> Any:
        return presentation.slides[0].placeholders[1].text_frame.paragraphs[0].runs[0]

    def on_font(**values: Any) -> Callable[[Any], object]:
        return lambda presentation: [setattr(run_of(presentation).font, *one) for one in values.items()]

    def title(**values: Any) -> Callable[[Any], object]:
        return lambda presentation: [
            setattr(presentation.slides[0].shapes.title, *one) for one in values.items()
        ]

    def red(presentation: Any) -> None:
        run_of(presentation).font.color.rgb = RGBColor(255, 0, 0)

    def filled(presentation: Any) -> None:
        for slide in presentation.slides:
            slide.background.fill.solid()
            slide.background.fill.fore_color.rgb = RGBColor(0, 0, 255)

    def portrait(presentation: Any) -> None:
        presentation.slide_width, presentation.slide_height = Inches(7.5), Inches(10)

    def table(presentation: Any) -> None:
        shape = presentation.slides[1].shapes.add_table(2, 2, Inches(1), Inches(4), Inches(4), Inches(1))
        shape.table.cell(0, 0).text = "cell"

    def notes(presentation: Any) -> None:
        presentation.slides[0].notes_slide.notes_text_frame.text = "a note"

    def centred(presentation: Any) -> None:
        presentation.slides[0].placeholders[1].text_frame.paragraphs[0].alignment = PP_ALIGN.CENTER

    def line(presentation: Any) -> None:
        presentation.slides[0].placeholders[1].text_frame.paragraphs[0].runs[0].text = "Another line"

    def picture(presentation: Any) -> None:
        presentation.slides[0].shapes.add_picture(
            str(pools._folder / "inner.png"), 0, 0, Inches(2), Inches(2)
        )

    found = [
        made("same"),
        made("table", table),
        made("picture", picture),
        made("copy"),
        made("line", line),
        made("more", slides=3),
        made("none", slides=0),
        made("bold", on_font(bold=True)),
        made("italic", on_font(italic=True)),
        made("underline", on_font(underline=True)),
        made("size", on_font(size=Pt(30))),
        made("font", on_font(name="Arial")),
        made("red", red),
        made("filled", filled),
        made("centred", centred),
        made("notes", notes),
        made("moved", title(top=Inches(5))),
        made("moved-a-little", title(left=Inches(0.5))),
        made("wide", title(width=Inches(2))),
        made("portrait", portrait),
    ]
    return [*found, *pools.damaged("pptx", found[0])]


def presentation_cases(pools: Pools) -> Iterator[tuple[Any, ...]]:
    pool = presentations(pools)
    switches = (
        *("examine_number_of_slides", "examine_shape", "examine_text", "examine_indent", "examine_font_name"),
        *("examine_font_size", "examine_font_bold", "examine_font_italic", "examine_color_rgb"),
        *("examine_font_underline", "examine_strike_through", "examine_alignment", "examine_bullets"),
        *("examine_background_color", "examine_note"),
    )
    turned_on = (
        *("examine_title_bottom_position", "examine_table_bottom_position", "examine_right_position"),
        *("examine_top_position", "examine_shape_for_shift_size", "examine_image_size"),
        "examine_modify_height",
    )
    every = [
        {},
        *({name: False} for name in switches),
        *({name: True, "examine_shape": False} for name in turned_on),
    ]
    for options in every:
        for result, expected in pairs(pool, 2):
            yield "compare_pptx_files", result, expected, options
    for result, expected in pairs(pool):
        yield "check_image_stretch_and_center", result, expected, {}
    for result in pool:
        for colour in ("red", "blue", "black"):
            yield "check_page_number_colors", result, {"rule": {"color": colour}}, {}
        yield "check_slide_orientation_Portrait", result, None, {}
        yield "check_slide_numbers_color", result, None, {}
        for kind in ("dissolve", "none"):
            yield "check_transition", result, {"rule": {"slide_idx": 0, "transition_type": kind}}, {}
        for rgb in ([0, 0, 255], [255, 0, 0]):
            rules = {"rgb": rgb, "original_rgb": [255, 255, 255]}
            yield "evaluate_presentation_fill_to_rgb_distance", result, {"rule": rules}, {}
        rules = {"slide_index_s": [0], "shape_index_s": [0], "paragraph_index_s": [0]}
        yield "check_strikethrough", result, {"rule": rules}, {}
    for tree in ('<a><document-frame name="Slides View"/></a>', "<a/>", "", "<a"):
        yield "check_left_panel", {"rule": tree}, None, {}


# ---- tables ----


def tables(pools: Pools) -> list[dict[str, Any]]:
    from openpyxl import Workbook
    from openpyxl.chart import BarChart, Reference
    from openpyxl.styles import Font, PatternFill
    from openpyxl.worksheet.datavalidation import DataValidation

    def made(name: str, change: Callable[[Any], object] | None = None) -> dict[str, Any]:
        book = Workbook()
        sheet = book.active
        sheet.title = "Sheet1"
        for row in (["Name", "Value", "City"], ["a", 1, "Rome"], ["b", 2.5, "Bern"], ["c", None, "Oslo"]):
            sheet.append(row)
        second = book.create_sheet("Sheet2")
        second.append(["x", 10])
        if change:
            change(book)
        return pools.file(f"table-{name}.xlsx", book.save)

    def cell(address: str, value: Any) -> Callable[[Any], object]:
        return lambda book: setattr(book.active[address], "value", value)

    def chart(book: Any) -> None:
        bars = BarChart()
        bars.title = "Values"
        bars.add_data(Reference(book.active, min_col=2, min_row=1, max_row=4), titles_from_data=True)
        book.active.add_chart(bars, "F2")

    def styled(book: Any) -> None:
        book.active["A1"].font = Font(bold=True, color="FF0000")
        book.active["A1"].fill = PatternFill("solid", fgColor="FFFF00")

    def validated(book: Any) -> None:
        rule = DataValidation(type="list", formula1='"a,b"')
        book.active.add_data_validation(rule)
        rule.add("D2")

    def hidden(book: Any) -> None:
        book.active.row_dimensions[3].hidden = True

    found = [
        made("same"),
        made("chart", chart),
        made("copy"),
        made("value", cell("B2", 2)),
        made("near", cell("B2", 1.0000001)),
        made("case", cell("C2", "ROME")),
        made("blank", cell("C2", " Rome ")),
        made("formula", cell("B4", "=SUM(B2:B3)")),
        made("more", lambda book: book.active.append(["d", 4, "Riga"])),
        made("name", lambda book: setattr(book.active, "title", "Other")),
        made("order", lambda book: book.move_sheet("Sheet2", -1)),
        made("alone", lambda book: book.remove(book["Sheet2"])),
        made("styled", styled),
        made("frozen", lambda book: setattr(book.active, "freeze_panes", "B2")),
        made("zoomed", lambda book: setattr(book.active.sheet_view, "zoomScale", 150)),
        made("filtered", lambda book: setattr(book.active.auto_filter, "ref", "A1:C4")),
        made("validated", validated),
        made("hidden", hidden),
    ]
    return [*found, *pools.damaged("xlsx", found[0])]


def table_cases(pools: Pools) -> Iterator[tuple[Any, ...]]:
    pool = tables(pools)
    sheets = {"sheet_idx0": 0, "sheet_idx1": "EI0"}
    fuzzy = [
        {"range": ["A1:C4"], "type": "exact_match"},
        {"range": ["C2:C4"], "type": "fuzzy_match", "threshold": 80},
    ]
    for rule in (
        {"type": "sheet_name"},
        {"type": "sheet_data", **sheets},
        {"type": "sheet_data", **sheets, "precision": 2},
        {"type": "sheet_data", "sheet_idx0": "RNSheet1", "sheet_idx1": "ENSheet1"},
        {"type": "sheet_data", "sheet_idx0": 1, "sheet_idx1": "EI1"},
        {"type": "sheet_print", **sheets},
        {"type": "sheet_fuzzy", "sheet_idx0": "RI0", "sheet_idx1": "EI0", "rules": fuzzy},
        {"type": "sparkline", **sheets},
        {"type": "chart", **sheets, "chart_props": ["type", "title"]},
        {"type": "style", **sheets, "props": ["font_bold", "font_color", "bgcolor"]},
        {"type": "freeze", **sheets},
        {"type": "zoom", "sheet_idx": 0, "method": "eq", "ref": 150},
        {
            "type": "data_validation",
            "sheet_idx": 0,
            "dv_props": [{"ranges": {"method": "spreadsheet_range", "ref": ["D2"]}}],
        },
        {"type": "row_props", **sheets, "props": ["hidden"]},
        {"type": "col_props", **sheets, "props": ["width"]},
        {"type": "filter", **sheets},
        {"type": "pivot_table", **sheets, "pivot_props": ["col_fields"]},
        {
            "type": "check_cell",
            "sheet_idx": 0,
            "coordinate": "B2",
            "props": {"value": {"method": "eq", "ref": 1}},
        },
    ):
        for result, expected in pairs(pool):
            yield "compare_table", result, expected, {"rules": [rule]}
    csvs = pools.texts("csv", ["a,b,c", "1,2,3", "4,5,x y"])
    for options in ({}, {"strict": False}, {"ignore_case": True}):
        for result, expected in pairs(csvs):
            yield "compare_csv", result, expected, options
    for result in csvs:
        for rules in (
            {"expect": [{"a": "1"}]},
            {"unexpect": [{"a": "4"}]},
            {"expect": [{"a": "9"}], "unexpect": []},
        ):
            yield "check_csv", result, {"rule": rules}, {}
    for result in pool:
        for cities in (["Rome", "Bern", "Oslo"], [["Rome", "x"], "Bern", "Oslo"], ["Oslo"]):
            yield "compare_conference_city_in_order", result, {"rule": {"expected": cities}}, {}


# ---- pictures ----


def pictures(pools: Pools) -> list[dict[str, Any]]:
    from PIL import Image, ImageDraw, ImageEnhance, ImageOps

    base = Image.new("RGB", (96, 72), (225, 225, 225))
    drawn = ImageDraw.Draw(base)
    drawn.ellipse((12, 10, 50, 48), fill=(190, 40, 60))
    drawn.rectangle((60, 18, 88, 64), fill=(30, 90, 170))
    triangle = Image.new("RGB", (80, 80), "white")
    ImageDraw.Draw(triangle).polygon([(40, 25), (25, 55), (55, 55)], fill=(255, 255, 0))
    corner = Image.new("RGB", (80, 80), "white")
    ImageDraw.Draw(corner).polygon([(12, 0), (0, 25), (25, 25)], fill=(255, 255, 0))
    clear = Image.new("RGBA", (96, 72), (0, 0, 0, 0))
    clear.paste(base.resize((48, 36)).convert("RGBA"), (20, 20))
    written = Image.new("RGB", (96, 72), "white")
    ImageDraw.Draw(written).text((2, 30), "text", fill="black")
    made = {
        "same.png": base,
        "triangle.png": triangle,
        "copy.png": base,
        "same.jpg": base,
        "mirror.png": ImageOps.mirror(base),
        "dark.png": ImageEnhance.Brightness(base).enhance(0.6),
        "bright.png": ImageEnhance.Brightness(base).enhance(1.3),
        "strong.png": ImageEnhance.Color(base).enhance(1.9),
        "contrast.png": ImageEnhance.Contrast(base).enhance(1.6),
        "sharp.png": ImageEnhance.Sharpness(base).enhance(3.0),
        "palette.png": base.convert("P", palette=Image.Palette.ADAPTIVE, colors=16),
        "grey.png": base.convert("L"),
        "alpha.png": base.convert("RGBA"),
        "large.png": base.resize((192, 144)),
        "tiny.png": base.resize((5, 5)),
        "green.png": Image.new("RGB", (96, 72), (10, 200, 20)),
        "corner.png": corner,
        "clear.png": clear,
        "text.png": written,
    }
    found = [pools.file(name, picture.save) for name, picture in made.items()]
    return [*found, *pools.damaged("png", found[0])]


def picture_cases(pools: Pools) -> Iterator[tuple[Any, ...]]:
    pool = pictures(pools)
    for function in (
        *("compare_images", "compare_image_list", "check_structure_sim", "check_structure_sim_resized"),
        *("check_file_exists_and_structure_sim", "check_image_mirror", "check_palette_and_structure_sim"),
        *("check_brightness_decrease_and_structure_sim", "decrease_brightness", "increase_saturation"),
        *("check_saturation_increase_and_structure_sim", "check_contrast_increase_and_structure_sim"),
        *("check_sharper", "check_green_background"),
    ):
        for result, expected in pairs(pool, 2):
            if result is not MISSING or function != "check_image_mirror":
                yield function, result, expected, {}
    for result in pool:
        for options in ({"reference_base_result": 0.54}, {"reference_base_result": 0.11}):
            yield "compare_images", result, pool[0], options
        for rules in (
            {"height": 72},
            {"height": 72, "width": 96},
            {"height": 36, "ignore_transparent": True},
        ):
            yield "check_image_size", result, {"rule": rules}, {}
        yield "check_image_file_size", result, {"rule": {"max_size": 600}}, {}
        yield "check_triangle_position", result, None, {}
        yield "check_textbox_on_leftside", result, None, {}


# ---- texts and settings ----


def text_cases(pools: Pools) -> Iterator[tuple[Any, ...]]:
    texts, pages = (
        pools.texts(),
        pools.texts("html", ["<html><body>", "<p class='a'>Alpha</p>", "</body></html>"]),
    )
    programs = pools.texts("py", ["def f(x):", "    return x + 1  # more", "", "print(f(2))"])
    for options in (
        {},
        {"ignore_blanks": True},
        {"ignore_case": True},
        {"ignore_blanks": True, "ignore_case": True},
    ):
        for pool in (texts, pages, programs):
            for result, expected in pairs(pool):
                yield "compare_text_file", result, expected, options
    for function in ("diff_text_file", "compare_python_pure_text", "compare_result_files"):
        for pool in (texts, programs):
            for result, expected in pairs(pool):
                yield function, result, expected, {}
    for options in ({}, {"ignore_sdnum": True}):
        for result, expected in pairs(pages):
            yield "compare_htmls", result, expected, options
    for result in texts:
        for word in (["Alpha"], ["Alpha", "Zeta"], ["none"]):
            yield "file_contains", result, {"rule": {"expected": word}}, {}
            yield "check_list", result, {"rule": {"expect": word}}, {}
            yield "check_list", result, {"rule": {"unexpect": word}}, {}
        for count in ("5", "1"):
            yield "check_line_number", result, {"rule": {"expected": count}}, {}
        yield "compare_config", result, {"rule": {"expected": "\n".join(LINES) + "\n"}}, {}
        yield "compare_terminal_and_txt", result, {"rule": "\n".join(LINES)}, {}
    values = [
        "true",
        "true\n",
        "Alpha",
        "alpha ",
        "",
        "Alpha,beta",
        "['a.desktop', 'b.desktop']",
        "1.25",
        "é",
    ]
    for text, expected in itertools.product([*values, None, 3, ["true"]], values):
        for function in ("exact_match", "match_in_list", "is_in_list", "fuzzy_match", "compare_answer"):
            rules = [expected, "x"] if function in ("match_in_list", "fuzzy_match") else expected
            yield function, {"rule": text}, {"rule": {"expected": rules}}, {}
        for kind in ("contain", "not_contain"):
            yield "is_extension_installed", {"rule": text}, {"rule": {"type": kind, "expected": expected}}, {}
        yield "literal_match", {"rule": text}, {"rule": expected}, {"type": "str"}
        yield "literal_match", {"rule": text}, {"rule": expected}, {"type": "str", "ignore_case": True}
        yield "literal_match", {"rule": [text]}, {"rule": [expected]}, {"type": "list", "ignore_case": True}
        yield "check_include_exclude", {"rule": text}, {"rule": {"include": [expected], "exclude": ["x"]}}, {}
        yield "check_include_exclude", {"rule": text}, {"rule": {"include": [], "exclude": [expected]}}, {}
        yield "is_in_vm_clickboard", {"rule": {"expected": expected}}, {"rule": text}, {}
        yield (
            "check_gnome_favorite_apps",
            {"rule": text},
            {"rule": {"expected": ["a.desktop", "b.desktop"]}},
            {},
        )
        yield "check_text_enlarged", {"rule": text}, None, {}
    clock = "Local\nUniversal\nRTC\n   Time zone: {}"
    for zone in ("UTC (UTC, +0000)", "Europe/Rome (CET, +0100)"):
        yield "is_utc_0", {"rule": clock.format(zone)}, None, {}
    for names in ([], ["a.jpg"], ["a.jpg", "b.jpg"], ["a.jpg", "a.jpg"]):
        tree = {"children": [{"name": name} for name in names]}
        yield "check_moved_jpgs", {"rule": tree}, {"rule": {"expected": ["a.jpg", "b.jpg"]}}, {}


def structured_cases(pools: Pools) -> Iterator[tuple[Any, ...]]:
    data = {"a": {"b": 1, "c": [1, 2]}, "name": "x", "on": True}
    jsons = [
        pools.file(f"json-{name}.json", content)
        for name, content in {
            "same": json.dumps(data),
            "indented": json.dumps(data, indent=2),
            "other": json.dumps(data | {"name": "y"}),
            "more": json.dumps(data | {"z": None}),
            "list": json.dumps([{"key": "ctrl+j", "command": "focus"}, {"key": "k"}]),
            "comments": '// first\n{"name": "x", /* c */ "on": true}\n',
            "yaml": "a:\n  b: 1\nname: x\n",
            "text": "no json",
        }.items()
    ]
    jsons += pools.damaged("json", jsons[0])
    for result in jsons:
        for expected in ({"name": "x"}, {"name": "x", "on": True}, {"a": {"b": 1}}, {"folders": []}):
            yield "check_json_settings", result, {"rule": {"expected": expected}}, {}
        for expected in ({"key": "ctrl+j", "command": "focus"}, {"key": "none"}):
            yield "check_json_keybindings", result, {"rule": {"expected": expected}}, {}
        for key, method, ref in (
            (["name"], "eq", "x"),
            (["a", "b"], "ge", 1),
            (["a", "b"], "lt", 1),
            (["name"], "re", "[xy]"),
        ):
            for options in ({}, {"is_yaml": True}):
                yield (
                    "check_json",
                    result,
                    {"rule": {"expect": [{"key": key, "method": method, "ref": ref}]}},
                    options,
                )
                yield (
                    "check_json",
                    result,
                    {"rule": {"unexpect": [{"key": key, "method": method, "ref": ref}]}},
                    options,
                )
    for result, rules in itertools.product(
        ({"a": "x", "b": "1"}, {"a": "X"}, {}, None, {"a": ["x", "y"]}, []),
        (
            {"expected": {"a": "x"}},
            {"expected": {"a": "x", "b": "1"}},
            {"expected": {"a": "x|y"}, "expect_in_result": True},
            {"expected": {"a": ["x", "z"]}, "expect_in_result": True},
            {"expected": {}},
        ),
    ):
        yield "check_direct_json_object", {"rule": result}, {"rule": rules}, {}
    tree = '<a><b attr="1">text</b><c xmlns:st="uri:deskat:state.at-spi.gnome.org" st:focused="true"/></a>'
    for text, rule in itertools.product(
        (tree, "<a/>", "", "<a"),
        (
            {"xpath": "//b"},
            {"xpath": "//none"},
            {"selectors": ["a b"], "text": "text"},
            {"xpath": "//b", "text": "other"},
            {},
        ),
    ):
        yield "check_accessibility_tree", {"rule": text}, {"rule": [rule]}, {}

    def database(path: str) -> None:
        with sqlite3.connect(path) as connection:
            connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1), (2);")

    bases = [pools.file("base.sqlite", database)]
    for result in [*bases, *pools.damaged("sqlite", bases[0])]:
        for sql in ("SELECT count(*) > 1 FROM t", "SELECT 0", "SELECT nothing FROM nowhere"):
            yield "run_sqlite3", result, {"rule": {"sql": sql}}, {}


def setting_cases(pools: Pools) -> Iterator[tuple[Any, ...]]:
    vlc = (
        "[qt]\nqt-bgcone={}\nqt-max-volume={}\n#qt-minimal-view=0\n"
        "global-key-play-pause={}\ninput-record-path={}\n"
    )
    values = [(0, 200, "F1", "/home/user/Desktop"), (1, 125, "", "/tmp"), ("x", "y", "z", "")]
    files = [pools.file(f"vlc-{index}.rc", vlc.format(*one)) for index, one in enumerate(values)]
    files.append(pools.file("vlc-plain.rc", "#qt-bgcone=1\n#one-instance-when-started-from-file=1\n"))
    files.append(
        pools.file(
            "vlc-set.rc",
            "one-instance-when-started-from-file=0\nqt-minimal-view=1\nqt-slider-colours=1;2;3\n",
        )
    )
    checks = {
        "check_qt_bgcone": [{"expected_qt_bgcone": one} for one in (0, 1, "0")],
        "check_qt_max_volume": [{"expected_qt_max_volume": one} for one in (200, 125)],
        "check_qt_minimal_view": [{"expected_qt_minimal_view": one} for one in (0, 1)],
        "check_global_key_play_pause": [{"expected_global_key_play_pause": one} for one in (0, 1)],
        "check_one_instance_when_started_from_file": [
            {"expected_one_instance_when_started_from_file": one} for one in (0, 1)
        ],
        "check_qt_slider_colours": [
            {"type": "blackish"},
            {"type": "match", "expected_qt_slider_colours": "1;2;3"},
        ],
        "is_vlc_recordings_folder": [{"recording_file_path": one} for one in ("/home/user/Desktop", "/tmp")],
    }
    for function, rules in checks.items():
        for result, rule in itertools.product([*files, *pools.damaged("rc", files[0])], rules):
            yield function, result, {"rule": rule}, {}
    gimp = [
        pools.file(f"gimp-{index}.rc", text)
        for index, text in enumerate(('(theme "Dark")\n(undo-levels 100)\n', "# none\n", '(theme "Light")\n'))
    ]
    for result, (key, value) in itertools.product(
        [*gimp, MISSING], (("theme", '"Dark"'), ("undo-levels", "100"), ("x", "y"))
    ):
        yield "check_config_status", result, {"rule": {"type": "key-value", "key": key, "value": value}}, {}
    item = (
        '<oor:items xmlns:oor="http://openoffice.org/2001/registry"><item oor:path="{}">'
        '<prop oor:name="{}"><value>{}</value></prop></item></oor:items>'
    )
    settings = [
        ("/org.openoffice.Office.Impress/Misc/Start", "EnablePresenterScreen", "false"),
        ("/org.openoffice.Office.Common/Save/Document", "AutoSaveTimeIntervall", "3"),
        ("/org.openoffice.Office.Writer/DefaultFont", "Standard", "Times New Roman"),
        ("/org.openoffice.Setup/L10N", "ooSetupSystemLocale", "de-DE"),
    ]
    xcus = [pools.file(f"office-{index}.xcu", item.format(*one)) for index, one in enumerate(settings)]
    for result in [*xcus, *pools.damaged("xcu", xcus[0])]:
        yield "check_presenter_console_disable", result, None, {}
        for minutes in (3, 10):
            yield "check_auto_saving_time", result, {"rule": {"minutes": minutes}}, {}
        for font in ("Times New Roman", "Arial"):
            yield "find_default_font", result, {"rule": {"font_name": font}}, {}
        yield "check_libre_locale", result, {"rule": {"locale_set": ["de-*"]}}, {}
    prefs = [
        pools.file(f"prefs-{index}.js", text)
        for index, text in enumerate(
            (
                'user_pref("a.b", true);\nuser_pref("n", 3);\nuser_pref("s", "dark-x");\n',
                "// nothing\n",
                'user_pref("a.b", false);\n',
            )
        )
    ]
    for result in [*prefs, *pools.damaged("js", prefs[0])]:
        for kind, key, method, ref in itertools.product(
            ("expect", "unexpect"), ("a.b", "s"), ("eq", "re"), (True, "dark")
        ):
            if method == "re" and ref is True:
                continue
            yield (
                "check_thunderbird_prefs",
                result,
                {"rule": {kind: {key: {"method": method, "ref": ref}}}},
                {},
            )
    filters = (
        'version="9"\nlogging="no"\nname="f"\nenabled="yes"\ntype="17"\n'
        'action="Move to folder"\nactionValue="x"\ncondition="AND (subject,contains,a)"\n'
    )
    dats = [
        pools.file("filters.dat", filters),
        pools.file("filters-other.dat", filters.replace("Move", "Copy")),
    ]
    for result in [*dats, *pools.damaged("dat", dats[0])]:
        for action in ("Move to folder", "Forward"):
            yield (
                "check_thunderbird_filter",
                result,
                {"rule": {"expect": [{"enabled": "yes", "action": action}]}},
                {},
            )
    mails = pools.texts("mail", ["FROM - Mon", "X-Mozilla-Status: 0001", "Subject: a", "", "text"])
    for result, expected in pairs(mails):
        yield "check_thunderbird_folder", result, expected, {"remove_deleted": True}
    status = (
        "<root><state>{}</state><information><category name='meta'><info name='filename'>{}</info>"
        "</category></information></root>"
    )
    playing = [
        pools.file(f"status-{index}.xml", status.format(*one))
        for index, one in enumerate((("playing", "a.mp4"), ("paused", "a.mp4"), ("playing", "b.mp4")))
    ]
    for result in [*playing, *pools.damaged("xml", playing[0])]:
        for rule in (
            {"type": "file_name", "file_name": "a.mp4"},
            {"type": "url", "url": "https://x.example/a.mp4"},
        ):
            yield "is_vlc_playing", result, {"rule": rule}, {}
    for window, screen in itertools.product(
        ({"width": 8, "height": 6}, {"width": 4, "height": 6}, None), repeat=2
    ):
        yield "is_vlc_fullscreen", {"rule": window}, {"rule": screen}, {}


def archive_cases(pools: Pools) -> Iterator[tuple[Any, ...]]:
    def zipped(members: dict[str, str]) -> Callable[[str], None]:
        def write(path: str) -> None:
            with zipfile.ZipFile(path, "w") as archive:
                for name, text in members.items():
                    archive.writestr(zipfile.ZipInfo(name), text)

        return write

    contents = ({"a": "1", "b/c": "2"}, {"a": "1", "b/c": "2"}, {"a": "1", "b/c": "3"}, {"a": "1"}, {})
    zips = [pools.file(f"zip-{index}.zip", zipped(one)) for index, one in enumerate(contents)]
    for result, expected in pairs([*zips, *pools.damaged("zip", zips[0])]):
        yield "compare_zip_files", result, expected, {}
    book = {"toc.ncx": "<ncx><navMap/></ncx>", "content.opf": "<package/>", "a.html": "<p>Alpha  beta</p>"}
    books = [book, book, book | {"a.html": "<p>Alpha</p>"}, {"a.html": "<p/>"}]
    epubs = [pools.file(f"book-{index}.epub", zipped(one)) for index, one in enumerate(books)]
    for result, expected in pairs([*epubs, *pools.damaged("epub", epubs[0])]):
        yield "compare_epub", result, expected, {}

    def pdf(pages: int) -> Callable[[str], None]:
        from pypdf import PdfWriter

        def write(path: str) -> None:
            writer = PdfWriter()
            for _ in range(pages):
                writer.add_blank_page(100, 100)
            writer.write(path)

        return write

    pdfs = [pools.file(f"pages-{pages}.pdf", pdf(pages)) for pages in (1, 2, 5)]
    for result, relation, count in itertools.product(
        [*pdfs, *pools.damaged("pdf", pdfs[0])], ("eq", "le", "gt"), (1, 2)
    ):
        yield "check_pdf_pages", result, {"rule": {"relation": relation, "ref_value": count}}, {}

    def song(title: str) -> Callable[[str], None]:
        from mutagen.easyid3 import EasyID3

        def write(path: str) -> None:
            tags = EasyID3()
            tags["title"] = title
            tags.save(path)

        return write

    songs = [pools.file(f"song-{title}.mp3", song(title)) for title in ("One", "Two")]
    for result, title in itertools.product([*songs, *pools.damaged("mp3", songs[0])], ("One", "Three")):
        yield "check_mp3_meta", result, {"rule": {"title": {"method": "eq", "ref": title}}}, {}


def browser_cases(pools: Pools) -> Iterator[tuple[Any, ...]]:
    addresses = [
        *(
            "https://www.example.org/a?b=1",
            "http://example.org/a?b=1",
            "https://example.org/a/",
            "example.com",
        ),
        *(
            "https://EXAMPLE.org",
            "chrome://settings",
            "",
            "https://a.example.co.uk/x#y",
            "https://example.net/a",
        ),
    ]
    for url, other in itertools.product(addresses, addresses):
        for function in ("is_expected_active_tab", "is_expected_active_tab_approximate"):
            for tab in ({"url": url, "title": "t"}, url):
                yield function, {"rule": tab}, {"rule": {"type": "url", "url": other}}, {}
        yield (
            "is_expected_tabs",
            {"rule": [{"url": url, "title": "t"}]},
            {"rule": {"type": "url", "urls": [other]}},
            {},
        )
        yield "is_expected_url_pattern_match", {"rule": url}, {"rule": {"expected": [other or "x"]}}, {}
        rules = {"expect": {"pattern": "example[.]org/a"}}
        yield "is_expected_search_query", {"rule": {"url": url + other}}, {"rule": rules}, {}
        yield (
            "is_cookie_deleted",
            {"rule": [["x", url]]},
            {"rule": {"type": "domains", "domains": [other]}},
            {},
        )
        yield (
            "check_history_deleted",
            {"rule": [[url, "t", 1]]},
            {"rule": {"type": "keywords", "keywords": [other or "x"]}},
            {},
        )
    folder = {
        "type": "folder",
        "name": "Favorites",
        "children": [{"type": "url", "name": "a", "url": "https://a.example"}],
    }
    for children in ([folder], folder["children"], [], [folder, folder]):
        marks = {"bookmark_bar": {"children": children}}
        for rules in (
            {"type": "bookmark_bar_folders_names", "names": ["Favorites"]},
            {"type": "bookmark_bar_websites_urls", "urls": ["https://a.example"]},
            {"type": "liked_authors_websites_urls", "names": ["Favorites"], "urls": ["https://a.example"]},
        ):
            yield "is_expected_bookmarks", {"rule": marks}, {"rule": rules}, {}
    for found, names in itertools.product(([], ["a"], ["a", "b"], ["b", "a"]), (["a"], ["a", "b"], [])):
        yield "check_enabled_experiments", {"rule": found}, {"rule": {"type": "names", "names": names}}, {}
        yield "is_expected_installed_extensions", {"rule": found}, {"rule": {"expected": names}}, {}
        yield "is_in_list", {"rule": found}, {"rule": {"expected": "a"}}, {}
    for size, least in itertools.product((10, 16, 20), (12, 16)):
        sizes = {"default_font_size": size}
        yield "check_font_size", {"rule": sizes}, {"rule": {"type": "range", "min": least, "max": 99}}, {}
        yield "check_font_size", {"rule": sizes}, {"rule": {"type": "value", "value": least}}, {}
    starter = "[Desktop Entry]\nName=App\nExec=/opt/app --x\n"
    for text, rules in itertools.product(
        (starter, starter.replace("\n", "\r\n"), starter.rstrip(), "", starter.replace("Exec", " Exec")),
        (
            {"type": "name", "name": "App"},
            {"type": "exec", "exec": "/opt/app --x"},
            {"type": "id", "id": "a.desktop"},
        ),
    ):
        yield "is_shortcut_on_desktop", {"rule": {"a.desktop": text}}, {"rule": rules}, {}
    for content in ("The Song", "", "Other"):
        yield "is_added_to_steam_cart", {"rule": {"content": content}}, {"rule": {"items": ["The Song"]}}, {}


FAMILIES = (
    *(document_cases, presentation_cases, table_cases, picture_cases, text_cases, structured_cases),
    *(setting_cases, archive_cases, browser_cases),
)


def make(folder: Path) -> None:
    """Write the files and ``cases.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    random.seed(0)
    cases = []
    for family in FAMILIES:
        for function, result, expected, options in family(Pools(folder)):
            case = {"function": function, "result": result, "options": options}
            cases.append(case if expected is None else case | {"expected": expected})
    (folder / CASES).write_text(json.dumps(cases))
    print(f"{len(cases)} cases of {len({case['function'] for case in cases})} functions in {folder}")


def call(folder: Path, results: Path, packages: Path | None) -> None:
    """Call the metric of each case directly, and write what it returns or raises."""
    warnings.simplefilter("ignore")
    if packages:
        sys.path.insert(0, str(packages))
    for name in OPTIONAL:
        _stand_in(name)
    from desktop_env.evaluators import metrics

    signal.signal(signal.SIGPROF, _late)
    found = [_called(metrics, case, folder) for case in json.loads((folder / CASES).read_text())]
    results.write_text(json.dumps(found))


def _called(metrics: Any, case: dict[str, Any], folder: Path) -> Any:
    signal.setitimer(signal.ITIMER_PROF, CASE_PROCESSOR_S)
    try:
        arguments = [_value(case[key], folder) for key in ("result", "expected") if key in case]
        score = float(getattr(metrics, case["function"])(*arguments, **copy.deepcopy(case["options"])))
        return "nan" if math.isnan(score) else score
    except BaseException as error:
        return f"raises {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _value(value: dict[str, Any], folder: Path) -> Any:
    if "file" in value:
        return str(folder / value["file"])
    return copy.deepcopy(value.get("rule"))


def _late(*_: Any) -> None:
    raise TimeoutError(f"took more than {CASE_PROCESSOR_S} s of the processor")


def _stand_in(name: str) -> None:
    """Let a library that is not installed be imported."""
    try:
        __import__(name)
    except ImportError:
        parents = {"borb": ["pdf"], "playwright": ["sync_api"], "pydrive": ["auth", "drive"]}
        for module in (name, *(f"{name}.{part}" for part in parents.get(name, ()))):
            made = types.ModuleType(module)
            made.__path__ = []
            made.__getattr__ = lambda _: None  # type: ignore[method-assign]
            sys.modules[module] = made


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        call(Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)
