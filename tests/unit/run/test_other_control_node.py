"""A run directory without a lock is not the one that the control node of the record locked."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.run import other_control_node
from dart.store.control_node import ControlNode
from tests.control_node import NODE


def test_a_copied_run_directory_without_a_lock_starts_if_the_control_node_of_the_record_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.model_validate({"run": {"dir": str(tmp_path), "record": "postgresql://db.example/run_7"}})
    node = replace(NODE, seen_unix_s=time.time() - 2 * other_control_node.SILENT_S)
    looked: list[object] = []

    def read_control_node(address: object) -> ControlNode:
        looked.append(address)
        return node

    monkeypatch.setattr(other_control_node, "read_control_node", read_control_node)
    other_control_node.refuse_running_elsewhere(config, RunPaths(tmp_path))
    assert len(looked) == 1, "the control node was silent for long enough"
