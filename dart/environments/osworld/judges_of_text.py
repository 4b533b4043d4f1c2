"""Functions that judge texts, JSON, CSV and other plain values, by the names OSWorld's tasks call them.

Pure but for reading the files they are given. Each takes the result, mostly the expected value, and the
task's options, and returns a score in [0, 1]; what makes no sense raises.
"""

import ast
import csv
import difflib
import json
import operator
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

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


def exact_match(result: Any, rules: Rules) -> float:
    return float(result == rules["expected"])


def compare_answer(result: Any, rules: Rules) -> float:
    return float(result == rules["expected"])


def fuzzy_match(result: str, rules: Rules) -> float:
    """How alike two texts are."""
    return difflib.SequenceMatcher(a=result, b=rules["expected"], autojunk=False).ratio()


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
    """Every expected key has its value; with ``expect_in_result`` it only has to be contained."""
    if isinstance(result, str):
        result = json.loads(result.strip().replace("'", '"'))
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
        return found is not None and all(one in found for one in wanted)
    return found is not None and wanted in found


def check_list(result: Path, rules: Rules) -> float:
    """Every ``expect`` pattern is found in some line of a file, and no ``unexpect`` pattern in any."""
    lines = _text(result).splitlines()

    def is_found(pattern: str) -> bool:
        return any(re.search(pattern, line) for line in lines)

    has_all = all(is_found(pattern) for pattern in rules.get("expect", ()))
    return float(has_all and not any(is_found(pattern) for pattern in rules.get("unexpect", ())))


def check_csv(result: Path, rules: Rules) -> float:
    """Every ``expect`` record is some row of a table, and no ``unexpect`` record is one."""
    rows = list(csv.DictReader(_text(result).splitlines()))

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
    lines: Iterable[str] = _text(path).splitlines()
    if not strict:
        lines = (line.strip() for line in lines if line.strip())
    return [line.lower() for line in lines] if options.get("ignore_case") else list(lines)


def check_json(result: Path, rules: Rules) -> float:
    """Values at ``key`` (a path of keys) match by ``method`` and ``ref``; those unexpected do not."""
    data = json.loads(_text(result))

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


def matches(value: Any, rule: Rules) -> bool:
    """By ``method``: ``eq`` and its kin, ``re`` with flags (``re.IGNORECASE``), ``approx:0.01``, ``in``."""
    method, ref = str(rule["method"]), rule.get("ref")
    if method in COMPARISONS:
        return bool(COMPARISONS[method](value, ref))
    name, _, rest = method.partition(".")
    if name == "re":
        flags = re.NOFLAG
        for flag in filter(None, rest.split(".")):
            flags |= re.RegexFlag[flag]
        return re.search(str(ref), str(value), flags) is not None
    if method.startswith("approx:"):
        return abs(float(value) - float(ref or 0)) <= float(method.partition(":")[2])
    if method in ("in", "not_in"):
        return (value in (ref or ())) == (method == "in")
    raise NotImplementedError(f"the method {method!r}")


def check_json_settings(result: Path, rules: Rules) -> float:
    """A file of settings has these values."""
    data = json.loads(_text(result))
    return float(all(data.get(key) == value for key, value in rules["expected"].items()))


def compare_text_file(
    result: Path, expected: Path, *, ignore_blanks: bool = False, ignore_case: bool = False
) -> float:
    def read(path: Path) -> str:
        text = _text(path)
        if ignore_blanks:
            text = re.sub(r"\s+", " ", re.sub(r"[\t\n]", " ", text).strip())
        return text.lower() if ignore_case else text

    return float(read(result) == read(expected))


def diff_text_file(result: Path, expected: Path) -> float:
    """How alike two files are, by lines."""
    a, b = _text(result).splitlines(), _text(expected).splitlines()
    return difflib.SequenceMatcher(a=a, b=b).ratio()


def compare_config(result: Path, rules: Rules) -> float:
    return float(_text(result) == rules["expected"])


def file_contains(result: Path, rules: Rules) -> float:
    text = _text(result)
    return float(all(wanted in text for wanted in rules["expected"]))


def run_sqlite3(result: Path, rules: Rules) -> float:
    """The first value a query on a database gives."""
    with closing(sqlite3.connect(f"file:{result}?mode=ro", uri=True)) as connection:
        row = connection.execute(rules["sql"]).fetchone()
    return min(1.0, float(row[0] or 0)) if row else 0.0


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


def _text(path: Path) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")
