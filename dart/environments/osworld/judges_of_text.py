"""Functions that judge texts, JSON, CSV and other plain values, by the names OSWorld's tasks call them.

Pure but for reading the files they are given. Each takes the result, mostly the expected value, and the
task's options, and returns a score in [0, 1]; what makes no sense raises.
"""

import ast
import csv
import datetime
import difflib
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from dart.environments.osworld.likeness import text_likeness
from dart.environments.osworld.reading import json_of, library, members_of, reading, rows_of, text_of

Rules = Mapping[str, Any]

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

UTC_LINE = 3
"""Of timedatectl's output: the line of the time zone."""

CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)")
NUMBERS_AGREE = 1e-4
MINUTES_OF_DAY = 24 * 60
HEAD_LINES = 3
"""So many lines at the top of a Python file may say what it is: ``#!``, ``# coding``."""


def exact_match(result: Any, rules: Rules) -> float:
    return float(result == rules["expected"])


def compare_answer(result: Any, rules: Rules) -> float:
    return float(result == rules["expected"])


def fuzzy_match(result: str, rules: Rules) -> float:
    """How alike two texts are."""
    return text_likeness(result, rules["expected"])


def literal_match(result: Any, expected: Any, *, type: str = "str", ignore_case: bool = False) -> float:
    """The same as text, or as a list of texts."""

    def said(value: Any) -> str:
        return str(value).lower() if ignore_case else str(value)

    if type == "str":
        return float(said(result) == said(expected))
    if type == "list":
        if not isinstance(result, list | tuple) or not isinstance(expected, list | tuple):
            return 0.0
        return float([said(one) for one in result] == [said(one) for one in expected])
    raise NotImplementedError(f"literals of type {type!r}")


def match_in_list(result: Any, rules: Rules) -> float:
    """The result is one of those expected."""
    return float(result in rules["expected"])


def is_in_list(result: Sequence[Any], rules: Rules) -> float:
    """What is expected is in the result."""
    return float(rules["expected"] in result)


def check_include_exclude(result: str, rules: Rules) -> float:
    has_all = all(text in result for text in rules.get("include", ()))
    return float(has_all and not any(text in result for text in rules.get("exclude", ())))


def is_extension_installed(result: str, rules: Rules) -> float:
    is_there = rules["expected"] in result
    if rules["type"] not in ("contain", "not_contain"):
        raise NotImplementedError(f"rules of type {rules['type']!r}")
    return float(is_there == (rules["type"] == "contain"))


def check_direct_json_object(result: Any, rules: Rules) -> float:
    """Every expected key has its value; with ``expect_in_result`` the value only has to contain it, and of
    several that are expected one is enough."""
    if isinstance(result, str):
        result = json.loads(result.strip().replace("'", '"'))
    if result is None:
        return 0.0
    expected, is_contained = rules["expected"], rules.get("expect_in_result", False)
    return float(
        all(
            _contains(result.get(key), value) if is_contained else _same(result.get(key), value, expected)
            for key, value in expected.items()
            if key != "ignore_list_order"
        )
    )


def _same(found: Any, wanted: Any, expected: Rules) -> bool:
    if expected.get("ignore_list_order") and isinstance(found, list) and isinstance(wanted, list):
        return bool(sorted(found) == sorted(wanted))
    return bool(found == wanted)


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return found in wanted if isinstance(found, str) else any(one in (found or ()) for one in wanted)
    return isinstance(wanted, str) and found is not None and wanted in found


def check_list(result: Path, rules: Rules) -> float:
    """Every ``expect`` pattern is found in some line of a file, and no ``unexpect`` pattern in any."""
    lines = text_of(result).splitlines()

    def is_found(pattern: str) -> bool:
        return any(re.search(pattern, line) for line in lines)

    has_all = all(is_found(pattern) for pattern in rules.get("expect", ()))
    return float(has_all and not any(is_found(pattern) for pattern in rules.get("unexpect", ())))


def check_csv(result: Path, rules: Rules) -> float:
    """Every ``expect`` record is some row of a table, and no ``unexpect`` record is one."""
    rows = list(csv.DictReader(text_of(result).splitlines()))

    def is_there(record: Rules) -> bool:
        return any(all(row.get(key) == value for key, value in record.items()) for row in rows)

    has_all = all(is_there(record) for record in rules.get("expect", ()))
    return float(has_all and not any(is_there(record) for record in rules.get("unexpect", ())))


def compare_csv(
    result: Path, expected: Path | Sequence[Path], *, strict: bool = True, **options: Any
) -> float:
    """The same lines; not strictly, apart from spaces at their ends."""
    wanted = [expected] if isinstance(expected, Path) else expected
    return float(any(_lines(result, strict, options) == _lines(one, strict, options) for one in wanted))


def _lines(path: Path, strict: bool, options: Rules) -> list[str]:
    lines: Iterable[str] = text_of(path).splitlines()
    if not strict:
        lines = (line.strip() for line in lines if line.strip())
    return [line.lower() for line in lines] if options.get("ignore_case") else list(lines)


def check_json(result: Path, rules: Rules, *, is_yaml: bool = False) -> float:
    """Values at ``key`` (a path of keys) match by ``method`` and ``ref``; those unexpected do not."""
    data = _yaml(result) if is_yaml else json_of(result)

    def holds(rule: Rules) -> bool:
        value = data
        for key in rule["key"]:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return False
        return matches(value, rule)

    has_all = all(holds(rule) for rule in rules.get("expect", ()))
    return float(has_all and not any(holds(rule) for rule in rules.get("unexpect", ())))


def _yaml(path: Path) -> Any:
    yaml = library("yaml", "PyYAML")
    with reading(path, "YAML file"):
        return yaml.safe_load(text_of(path))


def matches(value: Any, rule: Rules) -> bool:
    """By ``method``: ``eq`` and its kin, ``re`` with flags (``re.IGNORECASE``), ``approx:0.01``, ``in``,
    ``range.te`` (above the first of ``ref``, at most the second; ``t`` excludes), ``str_list_eq`` and
    ``str_set_eq`` (a text of values between commas).

    A value that cannot be compared, because there is none or it is of another kind, does not match.
    """
    method, ref = str(rule["method"]), rule.get("ref")
    try:
        return _matches(value, method, ref)
    except TypeError:
        return False


def _matches(value: Any, method: str, ref: Any) -> bool:
    name, _, rest = method.partition(".")
    if method in COMPARISONS:
        return bool(COMPARISONS[method](value, ref))
    if name == "re":
        flags = re.NOFLAG
        for flag in filter(None, rest.split(".")):
            flags |= re.RegexFlag[flag]
        return value is not None and re.search(str(ref), str(value), flags) is not None
    if method.startswith("approx:"):
        number = _number(value)
        return number is not None and abs(number - float(ref)) <= float(method.partition(":")[2])
    if name == "range" and len(rest) == 2:
        below, above = COMPARISONS["l" + rest[0]], COMPARISONS["l" + rest[1]]
        return below(ref[0], value) and above(value, ref[1])
    if method in ("str_list_eq", "str_set_eq"):
        kind = list if method == "str_list_eq" else set
        return bool(kind(str(value).strip("\"'").split(",")) == kind(ref))
    if method in ("in", "not_in"):
        return (value in (ref or ())) == (method == "in")
    raise NotImplementedError(f"the method {method!r}")


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def check_json_settings(result: Path, rules: Rules) -> float:
    """A file of settings has these values."""
    data = json_of(result)
    return float(all(key in data and data[key] == value for key, value in rules["expected"].items()))


def check_json_keybindings(result: Path, rules: Rules) -> float:
    """A list of key bindings, below a comment in the first line or not, has this one."""
    text = text_of(result)
    for candidate in (text, text.partition("\n")[2]):
        try:
            bindings = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(bindings, list):
            return float(rules["expected"] in bindings)
    return 0.0


def compare_text_file(
    result: Path, expected: Path, *, ignore_blanks: bool = False, ignore_case: bool = False
) -> float:
    def read(path: Path) -> str:
        text = text_of(path)
        if ignore_blanks:
            text = re.sub(r"\s+", " ", re.sub(r"[\t\n]", " ", text).strip())
        return text.lower() if ignore_case else text

    return float(read(result) == read(expected))


def diff_text_file(result: Path, expected: Path) -> float:
    """How alike two files are, by lines."""
    a, b = text_of(result).splitlines(), text_of(expected).splitlines()
    return difflib.SequenceMatcher(a=a, b=b).ratio()


def compare_config(result: Path, rules: Rules) -> float:
    return float(text_of(result) == rules["expected"])


def file_contains(result: Path, rules: Rules) -> float:
    text = text_of(result)
    return float(all(wanted in text for wanted in rules["expected"]))


def run_sqlite3(result: Path, rules: Rules) -> float:
    """The first value a query on a database gives."""
    rows = rows_of(result, rules["sql"])
    return min(1.0, float(rows[0][0] or 0)) if rows else 0.0


def is_utc_0(result: str) -> float:
    """timedatectl's output says a zone without an offset."""
    return float(result.split("\n")[UTC_LINE].endswith("+0000)"))


def check_text_enlarged(result: str) -> float:
    return float(float(result) > 1.0)


def check_gnome_favorite_apps(result: str, rules: Rules) -> float:
    found = ast.literal_eval(result.strip())
    return float(sorted(found) == sorted(rules["expected"]))


def check_moved_jpgs(result: Rules, rules: Rules) -> float:
    names = [node["name"] for node in result["children"]]
    return float(sorted(names) == sorted(rules["expected"]))


def is_in_vm_clickboard(wanted: Rules, output: str) -> float:
    """All that is wanted is in what a command printed, by which the clipboard was read."""
    texts = wanted["expected"]
    return float(all(text in output for text in (texts if isinstance(texts, list) else [texts])))


def is_included_all_json_objects(wanted: Path, found: Path) -> float:
    """Every key of the one file has the same value in the other."""
    expected, data = json_of(wanted), json_of(found)
    return float(all(key in data and data[key] == value for key, value in expected.items()))


def check_line_number(result: Path, rules: Rules) -> float:
    """So many lines have a time of day."""
    count = sum(1 for line in text_of(result).splitlines() if CLOCK.search(line))
    return float(count == int(rules["expected"]))


def compare_terminal_and_txt(result: Path, output: str) -> float:
    """A file has exactly what the terminal shows."""
    return float(bool(output) and text_of(result) == output)


def compare_time_in_speedtest_results(result: Path, minutes: str | int) -> float:
    """The time in the second column of the second row is less than so many minutes from now."""
    written = text_of(result).splitlines()[1].split(",")[1].strip()[-len("00:00") :]
    then, now = datetime.datetime.strptime(written, "%H:%M"), datetime.datetime.now()
    apart = abs(then.hour * 60 + then.minute - now.hour * 60 - now.minute)
    return float(min(apart, MINUTES_OF_DAY - apart) < int(minutes))


def compare_result_files(result: Path, expected: Path) -> float:
    """The same text; where a number is expected, the text has it or is about it."""
    found, wanted = text_of(result).strip(), text_of(expected).strip()
    number = _number(wanted)
    if number is None:
        return float(found == wanted)
    if wanted in found:
        return 1.0
    said = _number(found)
    return float(said is not None and abs(said - number) < NUMBERS_AGREE)


def compare_python_pure_text(result: Path, expected: Path) -> float:
    """The same program, apart from empty lines, spaces at ends of lines and what a file says of itself."""
    return float(_program(text_of(result)) == _program(text_of(expected)))


def _program(text: str) -> list[str]:
    lines = text.splitlines()
    while lines and len(text.splitlines()) - len(lines) < HEAD_LINES and _is_head(lines[0].strip()):
        lines.pop(0)
    return [line.expandtabs(4).rstrip() for line in lines if line.strip()]


def _is_head(line: str) -> bool:
    return line.startswith(("#!", "# -*- coding:", "# coding:", "# coding="))


class _Styles(HTMLParser):
    """The text of a page's style elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._is_inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_inside = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = False

    def handle_data(self, data: str) -> None:
        if self._is_inside:
            self.found.append(data)


def check_html_background_image(result: Path, rules: Rules) -> float:
    """A page's style shows this picture behind it."""
    styles = _Styles()
    styles.feed(text_of(result))
    wanted = f"background-image: url('{rules['value']}')"
    return float(any(wanted in style for style in styles.found))


def compare_zip_files(result: Path, expected: Path) -> float:
    """The same members with the same content; PDF files are compared by their text."""
    found, wanted = members_of(result), members_of(expected)
    if found.keys() != wanted.keys():
        return 0.0
    return float(all(_same_member(name, found[name], wanted[name]) for name in found))


def _same_member(name: str, found: bytes, wanted: bytes) -> bool:
    if not name.lower().endswith(".pdf"):
        return found == wanted
    from dart.environments.osworld.judges_of_pdf import same_text

    return same_text(found, wanted)
