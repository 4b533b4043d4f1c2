"""One name, one thing: no public class name is defined by two modules."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("actors", "supervision", "dart")


def modules() -> list[Path]:
    paths = (path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted(paths)


def public_classes(source: str) -> set[str]:
    """Names of the classes at the top level of a module that do not begin with an underscore."""
    names = (node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    return {name for name in names if not name.startswith("_")}


def shared_names(sources: dict[str, str]) -> dict[str, list[str]]:
    """Class name to the modules that define it, for names with more than one."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, source in sources.items():
        for name in public_classes(source):
            found[name].append(module)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def test_no_public_class_name_is_defined_twice() -> None:
    assert shared_names({str(path): (ROOT / path).read_text() for path in modules()}) == {}


@pytest.mark.parametrize(
    ("other", "shared"), [("class Lease: ...", {"Lease": ["a", "b"]}), ("class _Lease: ...", {})]
)
def test_a_name_in_two_modules_is_found_unless_it_is_private(
    other: str, shared: dict[str, list[str]]
) -> None:
    assert shared_names({"a": "class Lease: ...", "b": other}) == shared


def test_the_packages_are_read() -> None:
    assert len(modules()) > 200
