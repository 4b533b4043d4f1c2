"""What the pages name is there: other pages and their sections, files, modules and what modules define."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dart.config.sections import SupervisionSettings
from tests.unit.docs.pages import PAGES, ROOT, backticked, name_of, prose

TOP = (
    "actors",
    "supervision",
    "dart",
    "benchmarks",
    "configs",
    "contrib",
    "docs",
    "examples",
    "scripts",
    "tests",
)

WRITTEN_BY_PROGRAMS = ("benchmarks/out",)
"""Not in the repository: benchmarks write there."""

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(rf"(?:{'|'.join(TOP)}|\.ci)(?:/[\w.*@<>{{}}-]+)*/?")
_MODULE = re.compile(r"(?:actors|supervision|dart|benchmarks|examples|scripts|tests)(?:\.\w+)+")
_FILE_NAME = re.compile(r"\w+\.(?:py|js)")
_RUN_BY_PYTHON = re.compile(r"python -m ([\w.]+)")

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@every_page
def test_a_link_leads_to_a_page_and_a_section_that_are_there(page: Path) -> None:
    assert [link for link in relative_links(page) if not leads_somewhere(page, link)] == []


@every_page
def test_a_path_that_a_page_names_is_there(page: Path) -> None:
    paths = [text.rstrip("/") for text in backticked(page) if "/" in text and _PATH.fullmatch(text)]
    assert [path for path in paths if not path.startswith(WRITTEN_BY_PROGRAMS) and not is_there(path)] == []


@every_page
def test_a_file_name_without_a_folder_is_that_of_some_file(page: Path) -> None:
    names = [text for text in backticked(page) if _FILE_NAME.fullmatch(text)]
    assert [name for name in names if name not in file_names()] == []


@every_page
def test_a_module_that_a_page_names_is_there_and_defines_what_the_page_says(page: Path) -> None:
    names = [text for text in backticked(page) if _MODULE.fullmatch(text) and not is_configuration_key(text)]
    assert [name for name in names if not is_defined(name)] == []


@every_page
def test_a_module_that_a_page_runs_is_there(page: Path) -> None:
    modules = [found[1] for found in _RUN_BY_PYTHON.finditer(page.read_text(encoding="utf-8"))]
    ours = [module for module in modules if module.partition(".")[0] in TOP]
    assert [module for module in ours if not is_defined(module)] == []


def relative_links(page: Path) -> list[str]:
    return [
        link for link in _LINK.findall(prose(page)) if "://" not in link and not link.startswith("mailto:")
    ]


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, section = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not section or section in sections(target))


@cache
def sections(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def is_there(path: str) -> bool:
    """A file or folder; `<name>` and `*` stand for any text."""
    return any(ROOT.glob(re.sub(r"<\w+>", "*", path)))


@cache
def file_names() -> frozenset[str]:
    return frozenset(path.name for folder in TOP for path in (ROOT / folder).rglob("*") if path.is_file())


def is_configuration_key(name: str) -> bool:
    """`supervision` is a package and a section of the configuration."""
    package, first, *_ = name.split(".")
    return package == "supervision" and first in SupervisionSettings.model_fields


def is_defined(name: str) -> bool:
    """A module, or something that a module defines at its top level, or an attribute of that."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:length])
        for file in (module.with_suffix(".py"), module / "__init__.py"):
            if file.exists():
                return length == len(parts) or parts[length] in defined_in(file)
    return ROOT.joinpath(*parts).is_dir()


@cache
def defined_in(file: Path) -> frozenset[str]:
    return frozenset(_names_of(ast.parse(file.read_text(encoding="utf-8"))))


def _names_of(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
