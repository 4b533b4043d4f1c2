"""The order of the whole suite: the longest files first, so that two workers end at about the same time.
And what many tests start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "e2e" not in item.path.parts)


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint with the layout of Qwen2.5-VL."""
    from dart.policy.tiny_qwen import make_tiny_qwen

    folder = tmp_path_factory.mktemp("tiny") / "qwen"
    make_tiny_qwen(folder)
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch computes on one thread: the test workers share the processors, and small tensors gain nothing."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
