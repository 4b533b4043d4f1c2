"""How the trainer reaches its ranks, and the message about a rank that ended, for logs as torchrun writes
them."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dart.config.config import Config
from dart.training import distributed_learner
from dart.training.distributed_learner import (
    KEY_VARIABLE,
    LOG_TAIL_CHARACTERS,
    DistributedLearner,
    RankDied,
)

LINES = "  File torch/distributed/run.py, line 1032, in main\n" * 60
ELASTIC = "1128 08:41:42.326000 6769 torch/distributed/elastic/multiprocessing/api.py"
REPORT = f"""\
W{ELASTIC}:1028] Sending process 6781 closing signal SIGTERM
E{ELASTIC}:1002] failed (exitcode: 1) local_rank: 1 (pid: 6782) of binary: /home/user/.venv/bin/python
Traceback (most recent call last):
{LINES}
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
"""
FAILURE = "RuntimeError: CUDA error: an illegal memory access was encountered"

RANK = f"""
import os, sys
from multiprocessing.connection import Listener
with Listener(sys.argv[2], authkey=bytes.fromhex(os.environ["{KEY_VARIABLE}"])) as listener:
    trainer, to_write = listener.accept(), listener.accept()
trainer.send(7)
trainer.poll(None)
"""
"""A program in place of the ranks: its policy has version 7."""


@pytest.fixture
def mail_dir() -> Iterator[Path]:
    """A folder with a short path, as that for the sockets of a run is."""
    with tempfile.TemporaryDirectory(prefix="mail-", dir="/tmp") as folder:
        yield Path(folder)


def test_what_the_ranks_meet_in_is_private_and_exists_until_they_end(
    tmp_path: Path, mail_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed_learner, "_torchrun", lambda *_: [sys.executable, "-c", RANK])
    with closing(DistributedLearner(Config(), None, tmp_path / "log", mail_dir)) as learner:
        assert learner.version == 7
        (folder,) = mail_dir.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(mail_dir.iterdir()) == []


def test_the_next_trainer_removes_what_a_killed_one_has_left_and_nothing_else(
    tmp_path: Path, mail_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ranks-killed", "engine-3"):
        (mail_dir / name).mkdir()
    monkeypatch.setattr(distributed_learner, "_torchrun", lambda *_: [sys.executable, "-c", RANK])
    with closing(DistributedLearner(Config(), None, tmp_path / "log", mail_dir)):
        assert "ranks-killed" not in {path.name for path in mail_dir.iterdir()}
    assert [path.name for path in mail_dir.iterdir()] == ["engine-3"]


def said_of(log: str, tmp_path: Path, *, before: str = "") -> str:
    """The message about a rank that wrote this, in a file with the logs of earlier ranks."""
    path = tmp_path / "ranks.log"
    path.write_text(before + log)
    return str(RankDied(1, path, len(before)))


def test_the_message_about_a_dead_rank_quotes_its_error_and_not_the_report_of_torchrun(
    tmp_path: Path,
) -> None:
    said = said_of(f"loading the policy\n{FAILURE}\n{REPORT}", tmp_path)
    assert f"loading the policy\n{FAILURE}\nE1128" in said
    assert "failed (exitcode: 1) local_rank: 1" in said
    assert "closing signal" not in said
    assert "run.py" not in said


def test_the_message_about_a_dead_rank_quotes_the_end_of_a_long_log_of_these_ranks_only(
    tmp_path: Path,
) -> None:
    said = said_of(f"{LINES * 10}{FAILURE}\n{REPORT}", tmp_path, before=f"earlier\n{REPORT}")
    assert FAILURE in said
    assert len(said) < LOG_TAIL_CHARACTERS + 500
    assert "earlier" not in said_of(FAILURE, tmp_path, before=f"earlier\n{REPORT}")
