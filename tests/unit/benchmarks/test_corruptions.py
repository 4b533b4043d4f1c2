"""The benchmark of corruptions damages what it says, and calls nothing harmless that is not."""

from pathlib import Path

import pytest

from benchmarks import corruptions
from benchmarks.corruptions import Corruption, Verdict
from dart.core.run_directory import RunPaths
from dart.store.checkpoints import CheckpointState, write_checkpoint
from tests.recorded_run import record_run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    paths = record_run(tmp_path_factory.mktemp("recorded") / "run")
    write_checkpoint(
        paths.checkpoints,
        CheckpointState(version=1, learner={}),
        lambda folder: (folder / "weights").write_bytes(b"1234") and None,
    )
    return paths


def flipped(paths: RunPaths, path: Path, content: bytes) -> Corruption:
    """The lowest bit of the first byte of `content` in a file."""
    place = 8 * path.read_bytes().index(content)
    return Corruption(
        number=0, area="record", kind="flipped bit", file=str(path.relative_to(paths.root)), place=place
    )


def test_the_same_seed_draws_the_same_corruptions(recorded: RunPaths) -> None:
    drawn = list(corruptions.drawn(recorded, 40, seed=1))
    assert drawn == list(corruptions.drawn(recorded, 40, seed=1))
    assert drawn != list(corruptions.drawn(recorded, 40, seed=2))
    assert {one.area for one in drawn} == {"record", "screenshot", "steps", "checkpoint"}


def test_a_flipped_bit_is_named_leaves_the_original_alone_and_deletes_nothing(
    recorded: RunPaths, tmp_path: Path
) -> None:
    steps = next(path for path in recorded.blobs.rglob("*.steps") if b"click(start_box" in path.read_bytes())
    before = steps.read_bytes()
    verdict = corruptions.judge(recorded, flipped(recorded, steps, b"click(start_box"), tmp_path)
    assert (verdict.fate, verdict.tracebacks, verdict.lost) == ("named", (), ())
    assert f"packed steps RUN/{steps.relative_to(recorded.root)} has" in verdict.because
    assert steps.read_bytes() == before
    assert list(tmp_path.iterdir()) == []


def test_a_bit_that_no_row_depends_on_is_harmless(recorded: RunPaths) -> None:
    """The version of SQLite that wrote the file last, in its header."""
    change = Corruption(number=0, area="record", kind="flipped bit", file="store.db", place=8 * 99)
    paths = RunPaths(recorded.root.parent / "harmless")
    corruptions.copy(recorded, paths)
    corruptions.apply(change, paths.root)
    assert corruptions.named_or_harmless(recorded, paths, change)[0] == "harmless"


def test_a_file_that_is_missing_without_a_word_of_the_check_is_not_harmless(recorded: RunPaths) -> None:
    weights = Corruption(
        number=0, area="checkpoint", kind="missing file", file="checkpoints/v000001/weights", place=0
    )
    assert corruptions.why_harmless(recorded, recorded, weights) == ""


SOMETHING = Corruption(number=0, area="record", kind="cut end", file="store.db", place=7)


@pytest.mark.parametrize(
    ("verdict", "is_good"),
    [
        (Verdict(corruption=SOMETHING, fate="named", because=""), True),
        (Verdict(corruption=SOMETHING, fate="harmless", because=""), True),
        (Verdict(corruption=SOMETHING, fate="UNNAMED", because=""), False),
        (Verdict(corruption=SOMETHING, fate="named", because="", tracebacks=("dartrl tree",)), False),
        (Verdict(corruption=SOMETHING, fate="named", because="", lost=("store.db",)), False),
    ],
)
def test_only_what_is_named_or_harmless_explained_and_kept_is_good(verdict: Verdict, is_good: bool) -> None:
    assert verdict.is_good is is_good
