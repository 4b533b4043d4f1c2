"""What runs leave on a node, and who may delete it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.scratch import held
from dart.cluster.node_facts import NodeProbe, Roles
from dart.cluster.node_folder import idle_folders, node_folder, remove_idle_caches, run_id_of
from dart.cluster.plan import ClusterNode

OWN, EARLIER, RUNNING = (Path(f"/runs/{name}") for name in ("own", "earlier", "running"))
PARTS = ("cache/blobs", "cache/policies", "logs", "reports")


def folder_of(run_dir: Path, node_dir: Path, node: str = "b") -> Path:
    """The folder of a run on a node, with files of 100 bytes in all its parts."""
    folder = node_folder(ClusterNode(name=node), run_dir, node_dir)
    for part in PARTS:
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / "file").write_bytes(b"x" * 100)
    (folder / "config.toml").touch()
    return folder


def parts_of(folder: Path) -> list[str]:
    return sorted(str(file.parent.relative_to(folder)) for file in folder.rglob("file"))


@contextmanager
def on_a_node(node_dir: Path) -> Iterator[tuple[Path, Path, Path]]:
    """The folders of a run that starts, of an earlier one and of one that runs."""
    own, earlier, running = (folder_of(run_dir, node_dir) for run_dir in (OWN, EARLIER, RUNNING))
    with ExitStack() as locks:
        locks.enter_context(held(own))
        locks.enter_context(held(running))
        yield own, earlier, running


def test_a_start_removes_the_caches_of_earlier_runs_and_nothing_else(tmp_path: Path) -> None:
    with on_a_node(tmp_path) as (own, earlier, running):
        remove_idle_caches(own)
        assert parts_of(earlier) == ["logs", "reports"]
        assert parts_of(own) == parts_of(running) == sorted(PARTS)


def test_a_start_leaves_the_other_nodes_of_its_run_alone(tmp_path: Path) -> None:
    other = folder_of(OWN, tmp_path, "c")
    remove_idle_caches(folder_of(OWN, tmp_path))
    assert parts_of(other) == sorted(PARTS)


def test_a_start_leaves_the_folders_of_other_nodes_on_shared_storage_alone(tmp_path: Path) -> None:
    other = folder_of(EARLIER, tmp_path, "c")
    remove_idle_caches(folder_of(OWN, tmp_path))
    assert parts_of(other) == sorted(PARTS)


@pytest.mark.parametrize("name", ["thesis", "0123456789ab"])
def test_a_start_leaves_folders_of_other_programs_alone(tmp_path: Path, name: str) -> None:
    foreign = tmp_path / name / "b" / "cache"
    foreign.mkdir(parents=True)
    remove_idle_caches(folder_of(OWN, tmp_path))
    assert foreign.exists()


def test_a_folder_is_idle_when_its_run_has_ended(tmp_path: Path) -> None:
    with on_a_node(tmp_path) as (own, earlier, _):
        assert idle_folders(own) == [earlier]


def test_room_that_a_start_makes_counts_as_free_and_the_folders_are_named_if_it_does_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    folder = tmp_path / run_id_of(OWN) / "b"
    earlier = folder_of(EARLIER, tmp_path)

    fits = NodeProbe().facts("b", Roles(disk_bytes=300), str(folder))
    assert (fits.lacking_bytes, fits.idle_folders) == (0, ())
    lacks = NodeProbe().facts("b", Roles(disk_bytes=301), str(folder))
    assert (lacks.lacking_bytes, lacks.idle_folders) == (1, (str(earlier),))
