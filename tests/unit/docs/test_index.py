"""Every page is found from the index of the documentation."""

import re
from pathlib import Path

from tests.unit.docs.pages import ROOT

DOCS = ROOT / "docs"
IN_A_FOLDER = {"decisions"}
"""Linked as a whole."""


def linked(page: Path) -> set[Path]:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_the_index_links_every_page() -> None:
    pages = {page for page in DOCS.rglob("*.md") if page.parent.name not in IN_A_FOLDER} - {DOCS / "index.md"}
    assert sorted(str(page) for page in pages - linked(DOCS / "index.md")) == []
    assert {DOCS / folder for folder in IN_A_FOLDER} <= linked(DOCS / "index.md")


def test_the_readme_links_the_index_and_every_kind_of_documentation() -> None:
    assert DOCS / "index.md" in linked(ROOT / "README.md")
    assert {"how-to", "reference"} <= {page.parent.name for page in linked(ROOT / "README.md")}
