"""The examples in the documentation are those in `examples/`, and print what the pages say."""

from pathlib import Path

import pytest

from scripts.fill_examples import PAGES, filled


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_its_examples_are_and_print(page: Path) -> None:
    text = page.read_text()

    assert filled(text) == text, "run: python -m scripts.fill_examples"
