"""What `status`, `tree` and `top` say of a suspended and of a restarting environment is true."""

import json
from pathlib import Path

import pytest

from tests.real_command import run_module

DEADLINE_S = 400.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(450)]


def test_what_is_told_of_a_suspended_and_a_restarting_environment_is_true(tmp_path: Path) -> None:
    out = tmp_path / "live.json"
    words = ("--quick", "--hangs-only", "--looks", "1", "--out", out)
    ended = run_module("benchmarks.live_commands", *words, deadline_s=DEADLINE_S)

    assert out.exists(), ended.stdout[-2000:] + ended.stderr[-2000:]
    found = json.loads(out.read_text())
    assert found["not_true"] == []
    assert {one["name"] for one in found["while_somebody_hangs"]} >= {"status", "tree, all suspended", "top"}
