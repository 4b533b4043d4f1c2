"""`dartrl up` from its own process, with a run that is none."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import Mock

import pytest

from dart import app, preflight
from dart.cli import up
from dart.config import load_config
from dart.errors import TemporaryError


@pytest.fixture
def hangup() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
def test_a_hangup_ends_nothing_while_a_run_starts_or_its_data_are_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def train(*_: Any, **__: Any) -> NoReturn:
        signal.raise_signal(signal.SIGHUP)
        raise TemporaryError("it came so far")

    monkeypatch.setattr(preflight, "require_installation", lambda _: None)
    monkeypatch.setattr(up, "_log", Mock)
    monkeypatch.setattr(app, "train", train)
    config = load_config(None, [f"run.dir={str(tmp_path)!r}"])

    with pytest.raises(TemporaryError, match="it came so far"):
        up._up(config, lambda: config)
