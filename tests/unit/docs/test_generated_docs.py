"""The reference pages say what the code says."""

import runpy
from dataclasses import fields
from pathlib import Path

import pytest

from dart.training.update_report import BATCH_FIGURES, UpdateReport

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "generate_docs.py"
PAGES: dict[Path, str] = runpy.run_path(str(SCRIPT))["pages"]()


@pytest.mark.parametrize("page", list(PAGES), ids=lambda page: page.name)
def test_a_page_is_current(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page], "run: python scripts/generate_docs.py"


def test_every_figure_of_an_update_is_explained() -> None:
    (metrics,) = (text for page, text in PAGES.items() if page.name == "metrics.md")
    figures = [field.name for field in fields(UpdateReport)] + list(BATCH_FIGURES)
    assert [name for name in figures if f"| `{name}` |" not in metrics] == []
