"""The GPUs of engines that come and go: one holder each, freed when its process ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from dart.core.errors import UnavailableError
from dart.inference import gpu_leases
from dart.inference.gpu_leases import publish_gpus, take_gpus

TAKE = "import sys; from pathlib import Path; from dart.inference.gpu_leases import take_gpus;"


def taken_by_another(folder: Path, count: int) -> "subprocess.Popen[str]":
    program = f"{TAKE} print(*take_gpus(Path(sys.argv[1]), {count}), flush=True); sys.stdin.read()"
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_no_gpu_has_two_holders_and_those_of_a_killed_process_are_free_again(tmp_path: Path) -> None:
    publish_gpus(tmp_path, ("0", "1", "4"))
    first, second = taken_by_another(tmp_path, 2), None
    try:
        assert first.stdout is not None
        assert first.stdout.readline().split() == ["0", "1"]
        second = taken_by_another(tmp_path, 2)
        first.kill()
        assert second.stdout is not None
        assert len(second.stdout.readline().split()) == 2
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.communicate()


def test_too_few_free_gpus_are_named_and_none_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_gpus(tmp_path, ("0",))
    monkeypatch.setattr(gpu_leases, "WAIT_S", 0.0)
    with pytest.raises(UnavailableError, match=r"needs 2 GPUs, .* engines of this node may have 0"):
        take_gpus(tmp_path, 2)
    assert take_gpus(tmp_path, 1) == ("0",)
