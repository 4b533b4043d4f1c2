"""What an engine's workers read against what the trainer published."""

import hashlib
from pathlib import Path

import pytest

from dart.inference.version_check import refuse_other_bytes, verify_policy
from dart.store.checkpoints import (
    CheckpointState,
    CorruptCheckpoint,
    published_hashes,
    write_checkpoint,
)

WEIGHTS = b"weights"
READ = {"model.safetensors": hashlib.sha256(WEIGHTS).hexdigest()}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(WEIGHTS)
        (folder / "optimizer.pt").write_bytes(b"moments")
        (folder / "optimizer").mkdir()
        (folder / "optimizer" / "__0_0.distcp").write_bytes(b"a share of them")

    return write_checkpoint(tmp_path, CheckpointState(version=3, learner={}), write)


def test_what_was_published_is_taken_from_every_worker(published: Path) -> None:
    refuse_other_bytes(published, published_hashes(published), [READ, READ])


def test_a_worker_that_read_other_bytes_is_found_among_those_that_did_not(published: Path) -> None:
    with pytest.raises(CorruptCheckpoint, match="got 00"):
        refuse_other_bytes(published, published_hashes(published), [READ, {"model.safetensors": "00"}])


def test_a_plain_folder_has_no_hashes_to_compare_with(tmp_path: Path) -> None:
    refuse_other_bytes(tmp_path, published_hashes(tmp_path), [READ])


@pytest.mark.parametrize("name", ["optimizer.pt", "optimizer/__0_0.distcp"])
def test_an_engine_does_not_read_what_only_the_trainer_needs(published: Path, name: str) -> None:
    (published / name).unlink()
    verify_policy(published, 3)


def test_weights_that_are_not_what_was_published_are_refused(published: Path) -> None:
    (published / "model.safetensors").write_bytes(b"others")
    with pytest.raises(CorruptCheckpoint, match=r"model\.safetensors"):
        verify_policy(published, 3)
