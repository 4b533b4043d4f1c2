"""What a sandbox answers takes a bounded part of this computer."""

import asyncio
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dart.environments.desktop.memory import MemoryLimit
from dart.environments.desktop.sandbox_client import DesktopMachine
from dart.environments.faults import MachineDied


async def test_an_answer_that_says_it_is_huge_is_not_waited_for(tmp_path: Path) -> None:
    answers, killed = asyncio.StreamReader(), []
    answers.feed_data(struct.pack(">I", 2**32 - 1) + b"x" * 100)
    process: Any = SimpleNamespace(
        stdin=SimpleNamespace(write=lambda data: None),
        stdout=answers,
        returncode=None,
        kill=lambda: killed.append(True),
    )
    machine = DesktopMachine("the desktop", tmp_path, process, MemoryLimit("the desktop", 0))
    with pytest.raises(MachineDied, match="its response of 4294967295 bytes exceeds"):
        await machine.call("screenshot", deadline_s=5.0)
    assert killed
    assert machine.is_over
