"""The run directory of an alignment: a stage is finished at once or not at all."""

from pathlib import Path

import pytest

from dart.alignment.folder import AlignmentFolder, claimed_alignment
from dart.alignment.stages import AlignmentStage
from dart.core.errors import DiskError, RunDirectoryError


def make_twice(folder: AlignmentFolder) -> None:
    with folder.fresh(AlignmentStage.DATA) as place:
        place.mkdir()
        place.mkdir()


def test_a_new_folder_gets_its_name_only_when_all_is_written(tmp_path: Path) -> None:
    folder = AlignmentFolder(tmp_path)

    with pytest.raises(FileExistsError):
        make_twice(folder)
    assert list(tmp_path.iterdir()) == []

    with folder.fresh(AlignmentStage.DATA) as place:
        place.mkdir()
        assert not folder.of(AlignmentStage.DATA).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_what_a_killed_attempt_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    folder = AlignmentFolder(tmp_path)
    for left_over in (tmp_path / ".align.new", tmp_path / "align"):
        left_over.mkdir()
        (left_over / "old").touch()

    with folder.fresh(AlignmentStage.ALIGN) as place:
        place.mkdir()

    assert list(folder.of(AlignmentStage.ALIGN).iterdir()) == []


def test_results_are_those_of_finished_stages_and_one_can_be_withdrawn(tmp_path: Path) -> None:
    folder = AlignmentFolder(tmp_path)
    folder.of(AlignmentStage.DATA).mkdir()
    folder.finish(AlignmentStage.EXPLORE, {"screens": 3})
    assert folder.results() == {AlignmentStage.EXPLORE: {"screens": 3}}

    folder.withdraw(AlignmentStage.EXPLORE)
    assert folder.results() == {}


def test_a_damaged_result_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "explore.json").write_text("{")

    with pytest.raises(DiskError, match=r"explore\.json is damaged: .*delete it, then --resume repeats"):
        AlignmentFolder(tmp_path).results()


def test_an_alignment_begins_in_an_empty_folder_and_is_resumed_where_one_began(tmp_path: Path) -> None:
    root = tmp_path / "new"
    with claimed_alignment(root, resume=False) as folder:
        folder.keep_config("")

    with pytest.raises(RunDirectoryError, match="continue an alignment with --resume"):
        claimed_alignment(root, resume=False).__enter__()
    with claimed_alignment(root, resume=True):
        pass


def test_an_alignment_that_was_killed_as_it_began_can_begin_again(tmp_path: Path) -> None:
    (tmp_path / ".config.toml.new").write_text("[run]\ndir = ")

    with claimed_alignment(tmp_path, resume=False) as folder:
        folder.keep_config("")

    assert list(tmp_path.iterdir()) == [folder.config]


@pytest.mark.parametrize(
    ("made", "resume", "problem"),
    [
        ("a file of someone", False, r"holds files \(a file of someone\) already"),
        ("a file of someone", True, "holds no alignment to resume"),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, made: str, resume: bool, problem: str) -> None:
    (tmp_path / made).touch()

    with pytest.raises(RunDirectoryError, match=problem):
        claimed_alignment(tmp_path, resume=resume).__enter__()


def test_a_file_cannot_be_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(RunDirectoryError, match="is a file"):
        claimed_alignment(tmp_path / "file", resume=False).__enter__()


def test_two_alignments_never_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dart.alignment.folder.ORPHANS_END_S", 0.0)
    with claimed_alignment(tmp_path, resume=False) as folder:
        folder.keep_config("")
        with pytest.raises(RunDirectoryError, match="is taken by another `dartrl align`"):
            claimed_alignment(tmp_path, resume=True).__enter__()
