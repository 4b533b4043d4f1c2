"""The functions that judge: each pays for what is right and for nothing else."""

import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dart.environments.osworld import judges_of_documents as documents
from dart.environments.osworld import judges_of_text as texts

TREE = {"type": "directory", "name": "p", "children": [{"name": "a.jpg"}, {"name": "b.jpg"}]}
TIMES = "Local time: x\nUniversal time: x\nRTC time: x\nTime zone: Atlantic/Faroe (WET, {})\n"


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        (texts.exact_match("a", {"expected": "a"}), 1.0),
        (texts.exact_match("a\n", {"expected": "a"}), 0.0),
        (texts.fuzzy_match("abcd", {"expected": "abcd"}), 1.0),
        (texts.fuzzy_match("abcd", {"expected": "abxx"}), 0.5),
        (texts.literal_match(3, "3"), 1.0),
        (texts.literal_match("A", "a"), 0.0),
        (texts.literal_match("A", "a", ignore_case=True), 1.0),
        (texts.literal_match(["a"], ["a"], type="list"), 1.0),
        (texts.literal_match("a", ["a"], type="list"), 0.0),
        (texts.match_in_list("a", {"expected": ["a", "b"]}), 1.0),
        (texts.match_in_list("c", {"expected": ["a", "b"]}), 0.0),
        (texts.is_in_list(["a", "b"], {"expected": "b"}), 1.0),
        (texts.check_include_exclude("abc", {"include": ["a"], "exclude": ["x"]}), 1.0),
        (texts.check_include_exclude("abc", {"include": ["a"], "exclude": ["c"]}), 0.0),
        (texts.is_extension_installed("x.y\n", {"type": "contain", "expected": "x.y"}), 1.0),
        (texts.is_extension_installed("x.y\n", {"type": "not_contain", "expected": "x.y"}), 0.0),
        (texts.check_direct_json_object("{'a': 1, 'b': 2}", {"expected": {"a": 1}}), 1.0),
        (texts.check_direct_json_object({"a": 2}, {"expected": {"a": 1}}), 0.0),
        (
            texts.check_direct_json_object({"a": "xyz"}, {"expect_in_result": True, "expected": {"a": "y"}}),
            1.0,
        ),
        (
            texts.check_direct_json_object(
                {"a": [2, 1]}, {"expected": {"a": [1, 2], "ignore_list_order": True}}
            ),
            1.0,
        ),
        (texts.check_direct_json_object({"a": [2, 1]}, {"expected": {"a": [1, 2]}}), 0.0),
        (texts.is_utc_0(TIMES.format("+0000")), 1.0),
        (texts.is_utc_0(TIMES.format("+0100")), 0.0),
        (texts.check_text_enlarged("1.5\n"), 1.0),
        (texts.check_text_enlarged("1.0\n"), 0.0),
        (texts.check_gnome_favorite_apps("['b', 'a']\n", {"expected": ["a", "b"]}), 1.0),
        (texts.check_moved_jpgs(TREE, {"expected": ["b.jpg", "a.jpg"]}), 1.0),
        (texts.check_moved_jpgs(TREE, {"expected": ["a.jpg"]}), 0.0),
    ],
)
def test_values_are_judged(score: float, wanted: float) -> None:
    assert score == wanted


@pytest.mark.parametrize(
    ("judge", "content", "rules", "wanted"),
    [
        (texts.check_list, "ab\ncd\n", {"expect": ["^a", "d$"], "unexpect": ["x"]}, 1.0),
        (texts.check_list, "ab\ncd\n", {"expect": ["^a"], "unexpect": ["c"]}, 0.0),
        (texts.check_csv, "k,v\na,1\nb,2\n", {"expect": [{"k": "a", "v": "1"}]}, 1.0),
        (texts.check_csv, "k,v\na,1\n", {"unexpect": [{"k": "a"}]}, 0.0),
        (
            texts.check_json,
            '{"a": {"b": 3}}',
            {"expect": [{"key": ["a", "b"], "method": "eq", "ref": 3}]},
            1.0,
        ),
        (texts.check_json, '{"a": {}}', {"expect": [{"key": ["a", "b"], "method": "eq", "ref": 3}]}, 0.0),
        (texts.check_json, '{"a": 1}', {"unexpect": [{"key": ["a"], "method": "ge", "ref": 1}]}, 0.0),
        (texts.check_json_settings, '{"a": 1, "b": 2}', {"expected": {"a": 1}}, 1.0),
        (texts.compare_config, "text", {"expected": "text"}, 1.0),
        (texts.file_contains, "one two", {"expected": ["one", "two"]}, 1.0),
        (texts.file_contains, "one two", {"expected": ["three"]}, 0.0),
    ],
)
def test_files_are_judged_by_rules(
    judge: Callable[..., float], content: str, rules: dict[str, Any], wanted: float, tmp_path: Path
) -> None:
    path = tmp_path / "result"
    path.write_text(content)
    assert judge(path, rules) == wanted


@pytest.mark.parametrize(
    ("judge", "content", "expected", "options", "wanted"),
    [
        (texts.compare_text_file, "A b", "a  b", {}, 0.0),
        (texts.compare_text_file, "A\tb ", "a  b", {"ignore_case": True, "ignore_blanks": True}, 1.0),
        (texts.diff_text_file, "a\nb\n", "a\nc\n", {}, 0.5),
        (texts.compare_csv, "a,b \n", "a,b\n", {}, 0.0),
        (texts.compare_csv, "a,b \n", "a,b\n", {"strict": False}, 1.0),
    ],
)
def test_files_are_judged_by_another_file(
    judge: Callable[..., float],
    content: str,
    expected: str,
    options: dict[str, Any],
    wanted: float,
    tmp_path: Path,
) -> None:
    found, other = tmp_path / "found", tmp_path / "other"
    found.write_text(content)
    other.write_text(expected)
    assert judge(found, other, **options) == wanted


@pytest.mark.parametrize(
    ("value", "rule", "holds"),
    [
        ("Abc", {"method": "re", "ref": "^a"}, False),
        ("Abc", {"method": "re.IGNORECASE", "ref": "^a"}, True),
        (1.004, {"method": "approx:0.01", "ref": 1}, True),
        (1.1, {"method": "approx:0.01", "ref": 1}, False),
        (3, {"method": "in", "ref": [3]}, True),
        (3, {"method": "not_in", "ref": [3]}, False),
        (3, {"method": "lt", "ref": 4}, True),
    ],
)
def test_a_value_matches_by_its_method(value: Any, rule: dict[str, Any], holds: bool) -> None:
    assert texts.matches(value, rule) is holds


def test_an_unknown_method_is_not_taken_for_a_failure() -> None:
    with pytest.raises(NotImplementedError, match="spreadsheet_range"):
        texts.matches(1, {"method": "spreadsheet_range", "ref": 1})


def test_a_database_is_asked_and_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2);")
    assert texts.run_sqlite3(path, {"sql": "SELECT count(*) > 1 FROM t"}) == 1.0
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        texts.run_sqlite3(path, {"sql": "DELETE FROM t"})


def docx(path: Path, *lines: str) -> Path:
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    body = "".join(f"<w:p><w:r><w:t>{line}</w:t></w:r></w:p>" for line in lines)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", f"<w:document {space}><w:body>{body}</w:body></w:document>")
    return path


def test_text_documents_are_compared_by_paragraphs(tmp_path: Path) -> None:
    one, same = docx(tmp_path / "1", "Hello", "World"), docx(tmp_path / "2", "Hello", "World")
    turned = docx(tmp_path / "3", "World", "Hello")
    assert documents.compare_docx_files(one, same) == 1.0
    assert documents.compare_docx_files(one, turned) == 0.0
    assert documents.compare_docx_files(one, turned, ignore_order=True) == 1.0
    assert documents.compare_docx_lines(one, turned) == 1.0
    (tmp_path / "4").write_text("no zip")
    with pytest.raises(ValueError, match="4 is no text document"):
        documents.compare_docx_files(one, tmp_path / "4")


def test_tables_are_compared_by_values(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="tables need openpyxl (make desktop)")

    def table(name: str, *rows: list[Any]) -> Path:
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(tmp_path / name)
        return tmp_path / name

    one, same = table("a.xlsx", [1, "x"], [0.1 + 0.2]), table("b.xlsx", [1, "x"], [0.3])
    other = table("c.xlsx", [2, "x"])
    rules = [{"type": "sheet_data", "sheet_idx0": "RI0", "sheet_idx1": "EI0"}]
    assert documents.compare_table(one, same, rules=rules) == 1.0
    assert documents.compare_table(one, other, rules=rules) == 0.0
    cell = {
        "type": "check_cell",
        "sheet_idx": 0,
        "coordinate": "A1",
        "props": {"value": {"method": "eq", "ref": 1}},
    }
    assert documents.compare_table(one, rules=[cell]) == 1.0
    with pytest.raises(NotImplementedError, match="pivot_table"):
        documents.compare_table(one, same, rules=[{"type": "pivot_table"}])
