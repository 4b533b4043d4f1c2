"""The order of the whole suite: the longest files first, so that two workers end at about the same time."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "e2e" not in item.path.parts)
