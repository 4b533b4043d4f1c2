"""The reference pages say what the code says."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "generate_docs.py"
PAGES: dict[Path, str] = runpy.run_path(str(SCRIPT))["pages"]()


@pytest.mark.parametrize("page", list(PAGES), ids=lambda page: page.name)
def test_a_page_is_current(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page], "run: python scripts/generate_docs.py"
