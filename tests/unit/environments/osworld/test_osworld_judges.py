"""The functions that judge: each pays for what is right and for nothing else."""

import datetime
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dart.environments.osworld import judges_of_text as texts
from dart.environments.osworld.reading import Unreadable

AMONG = {"expect_in_result": True}
TREE = {"type": "directory", "name": "p", "children": [{"name": "a.jpg"}, {"name": "b.jpg"}]}
STYLED = "<html><style>body {{ background-image: url('{}') }}</style><p>text</p></html>"
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
        (texts.check_direct_json_object({"a": "xyz"}, AMONG | {"expected": {"a": "y"}}), 1.0),
        (texts.check_direct_json_object({"a": "y"}, AMONG | {"expected": {"a": ["x", "y"]}}), 1.0),
        (texts.check_direct_json_object({"a": ["q", "y"]}, AMONG | {"expected": {"a": ["x", "y"]}}), 1.0),
        (texts.check_direct_json_object({"a": ["q"]}, AMONG | {"expected": {"a": ["x", "y"]}}), 0.0),
        (texts.check_direct_json_object({}, AMONG | {"expected": {"a": "y"}}), 0.0),
        (texts.is_in_vm_clickboard({"expected": ["a", "b"]}, "b a"), 1.0),
        (texts.is_in_vm_clickboard({"expected": "c"}, "b a"), 0.0),
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
        (texts.check_json_keybindings, '// mine\n[{"key": "a"}]', {"expected": {"key": "a"}}, 1.0),
        (texts.check_json_keybindings, '[{"key": "b"}]', {"expected": {"key": "a"}}, 0.0),
        (texts.check_json_keybindings, "no JSON", {"expected": {"key": "a"}}, 0.0),
        (texts.check_line_number, "at 12:00:01\nno\nat 23:59:60\n", {"expected": "2"}, 1.0),
        (texts.check_line_number, "at 24:00:01\n", {"expected": "1"}, 0.0),
        (texts.check_html_background_image, STYLED.format("a.png"), {"value": "a.png"}, 1.0),
        (texts.check_html_background_image, STYLED.format("b.png"), {"value": "a.png"}, 0.0),
        (texts.check_html_background_image, "<p>background-image: url('a.png')</p>", {"value": "a.png"}, 0.0),
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
        (texts.compare_result_files, "about 12.5 m", "12.5", {}, 1.0),
        (texts.compare_result_files, "12.50001", "12.5", {}, 1.0),
        (texts.compare_result_files, "12.6", "12.5", {}, 0.0),
        (texts.compare_result_files, "word", "word\n", {}, 1.0),
        (texts.compare_python_pure_text, "#!/x\n\nif a:\n\tb  \n", "if a:\n    b\n", {}, 1.0),
        (texts.compare_python_pure_text, "```\nif a:\n    b\n```", "if a:\n    b\n", {}, 0.0),
        (texts.is_included_all_json_objects, '{"a": 1}', '{"a": 1, "b": 2}', {}, 1.0),
        (texts.is_included_all_json_objects, '{"a": 1, "c": 3}', '{"a": 1, "b": 2}', {}, 0.0),
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
        (None, {"method": "lt", "ref": 4}, False),
        (None, {"method": "re", "ref": "None"}, False),
        ("x", {"method": "approx:1", "ref": 4}, False),
        (2, {"method": "range.te", "ref": [0, 2]}, True),
        (0, {"method": "range.te", "ref": [0, 2]}, False),
        ('"a,b"', {"method": "str_list_eq", "ref": ["a", "b"]}, True),
        ("b,a", {"method": "str_list_eq", "ref": ["a", "b"]}, False),
        ("b,a", {"method": "str_set_eq", "ref": ["a", "b"]}, True),
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
    with pytest.raises(Unreadable, match="not authorized"):
        texts.run_sqlite3(path, {"sql": "DELETE FROM t"})
    path.write_text("no database at all, whatever its name is" * 9)
    with pytest.raises(Unreadable, match="db is no SQLite database"):
        texts.run_sqlite3(path, {"sql": "SELECT count(*) FROM t"})


def test_settings_in_yaml_are_judged_as_those_in_json(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="no PyYAML here")
    path = tmp_path / "settings.yaml"
    path.write_text("a:\n  b: 3\n")
    rules = {"expect": [{"key": ["a", "b"], "method": "eq", "ref": 3}]}
    assert texts.check_json(path, rules, is_yaml=True) == 1.0
    path.write_text("a: [")
    with pytest.raises(Unreadable, match=r"settings\.yaml is no YAML file"):
        texts.check_json(path, rules, is_yaml=True)


def test_a_time_is_near_also_across_midnight(tmp_path: Path) -> None:
    now, path = datetime.datetime.now(), tmp_path / "speed.csv"
    for minutes, score in ((2, 1.0), (90, 0.0)):
        then = now - datetime.timedelta(minutes=minutes)
        path.write_text(f"server,time\nx,2026-01-01 {then:%H:%M}\n")
        assert texts.compare_time_in_speedtest_results(path, "15") == score


def test_a_terminal_shows_what_a_file_has(tmp_path: Path) -> None:
    path = tmp_path / "ls.txt"
    path.write_text("a b")
    assert texts.compare_terminal_and_txt(path, "a b") == 1.0
    assert texts.compare_terminal_and_txt(path, "a  b") == 0.0


def test_archives_are_compared_by_their_members(tmp_path: Path) -> None:
    def archive(name: str, **members: str) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            for member, text in members.items():
                file.writestr(member, text)
        return tmp_path / name

    one = archive("1.zip", a="x", b="y")
    assert texts.compare_zip_files(one, archive("2.zip", b="y", a="x")) == 1.0
    assert texts.compare_zip_files(one, archive("3.zip", a="x", b="z")) == 0.0
    assert texts.compare_zip_files(one, archive("4.zip", a="x")) == 0.0
    (tmp_path / "5.zip").write_bytes(one.read_bytes()[:40])
    with pytest.raises(Unreadable, match=r"5\.zip is no zip file"):
        texts.compare_zip_files(tmp_path / "5.zip", one)
