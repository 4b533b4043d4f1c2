"""What several tests of commands need."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def hangup() -> Iterator[None]:
    """Restores the handler of SIGHUP, which `dartrl up` replaces in its process."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)
