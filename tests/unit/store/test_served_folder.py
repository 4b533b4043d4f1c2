"""Folders that all processes of a machine share: they stay while they are used, and are made once."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dart.store.checkpoints import CorruptCheckpoint
from dart.store.published_checkpoints import PublishedCheckpoints
from dart.store.served_folder import ServedFolders


def filled(made: list[str]) -> Callable[[Path], None]:
    """Returns what fills a folder with a file, and notes in `made` that it did."""

    def fill(folder: Path) -> None:
        folder.mkdir()
        (folder / "weights").write_text(folder.name)
        made.append(folder.name)

    return fill


def test_a_folder_is_made_once_for_all_that_use_it(tmp_path: Path) -> None:
    made: list[str] = []
    first, second = ServedFolders(tmp_path), ServedFolders(tmp_path)
    assert first.hold("v1", filled(made)) == second.hold("v1", filled(made))
    first.hold("v1", filled(made))
    assert len(made) == 1


def test_a_folder_goes_when_nobody_uses_it_any_longer(tmp_path: Path) -> None:
    first, second = ServedFolders(tmp_path), ServedFolders(tmp_path)
    v1 = first.hold("v1", filled([]))
    second.hold("v1", filled([]))
    second.hold("v2", filled([]))
    assert v1.is_dir(), "the first still uses it"
    first.hold("v2", filled([]))
    assert not v1.exists()


@pytest.mark.timeout(30)
def test_a_folder_that_was_deleted_from_outside_is_made_again(tmp_path: Path) -> None:
    made: list[str] = []
    folders = ServedFolders(tmp_path)
    folder = folders.hold("v1", filled(made))
    (folder / "weights").unlink()
    folder.rmdir()
    assert (folders.hold("v1", filled(made)) / "weights").exists()
    assert len(made) == 2


def test_a_damaged_folder_is_made_again_unless_another_process_uses_it(tmp_path: Path) -> None:
    made: list[str] = []
    first, second = ServedFolders(tmp_path), ServedFolders(tmp_path)
    folder = first.hold("v1", filled(made))
    second.hold("v1", filled(made))
    (folder / "weights").write_text("damaged")

    first.discard(folder)
    assert folder.is_dir(), "the second still uses it"
    second.discard(folder)

    assert (first.hold("v1", filled(made)) / "weights").read_text() == ".v1.tmp"
    assert len(made) == 2


def test_a_published_version_that_is_damaged_on_this_machine_is_fetched_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    filled([])(source)
    engine = PublishedCheckpoints(
        (tmp_path / "shared").as_uri(), tmp_path / "checkpoints", tmp_path / "cache" / "policies"
    )
    for version in (0, 1):
        engine.publish(version, source)
    for find in (engine.base, lambda: engine.policy(1)):
        folder = find()
        (folder / "weights").write_text("damaged")
        engine.discard(folder)
        assert (find() / "weights").read_text() == "source"

    engine.discard(source)
    assert source.is_dir(), "it is no folder of the cache"


def test_a_base_policy_stays_while_engines_of_the_machine_load_other_versions(tmp_path: Path) -> None:
    def engine() -> PublishedCheckpoints:
        return PublishedCheckpoints(
            (tmp_path / "shared").as_uri(), tmp_path / "checkpoints", tmp_path / "cache" / "policies"
        )

    source = tmp_path / "source"
    filled([])(source)
    first, second = engine(), engine()
    for version in (0, 1, 2):
        first.publish(version, source)
    first.policy(1)
    base = first.base()
    assert second.base() == base
    second.policy(2)
    assert (base / "weights").exists()
    assert (first.base() / "weights").exists()


@pytest.mark.parametrize("name", ["../../../outside/weights", "{root}/outside/weights", "a//b", ""])
def test_a_manifest_whose_files_lie_elsewhere_is_damaged_and_nothing_is_made_there(
    tmp_path: Path, name: str
) -> None:
    filled([])(tmp_path / "source")
    shared = tmp_path / "shared"
    engine = PublishedCheckpoints(shared.as_uri(), tmp_path / "checkpoints", tmp_path / "cache" / "policies")
    engine.publish(1, tmp_path / "source")
    (manifest,) = shared.rglob("manifest.json")
    elsewhere = json.dumps(name.format(root=tmp_path))
    manifest.write_text(manifest.read_text().replace('"weights"', elsewhere))

    with pytest.raises(CorruptCheckpoint, match="is no path within the folder of a version"):
        engine.policy(1)
    assert not (tmp_path / "outside").exists()
