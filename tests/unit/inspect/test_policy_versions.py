"""Policy versions and checkpoints, as the record, the board and the disk have them."""

from pathlib import Path

from actors.board import ActorState, Board
from dart.core.run_directory import RunPaths
from dart.inspect.policy_versions import read_checkpoints, read_versions
from dart.store.checkpoints import STATE_FILE, checkpoint_name
from dart.telemetry.board_gauges import Gauge
from tests.recorded_run import record_run


def test_a_version_says_which_engines_serve_it_and_whether_its_checkpoint_is_kept(tmp_path: Path) -> None:
    paths = record_run(tmp_path / "run")
    board = Board.create(paths.board)
    for name, version in (("rollout-0", 1), ("rollout-1", 0), ("rollout-2", 1)):
        slot = board.claim(name, "rollout_pool")
        board.set_state(slot, ActorState.RUNNING, ready=1, beat_ns=board.now_ns())
        board.set_gauges(slot, {Gauge.SERVED_VERSION: version})
    board.close()

    base, trained = read_versions(paths)
    assert (base.version, base.served_by, base.is_kept) == (0, ("rollout-1",), True)
    assert (trained.version, trained.served_by, trained.is_kept) == (1, ("rollout-0", "rollout-2"), False)
    assert (dict(base.metrics), trained.metrics["staleness_mean"]) == ({}, 0.5)

    (paths.checkpoints / checkpoint_name(1)).mkdir()
    assert read_versions(paths)[1].is_kept


def test_a_checkpoint_is_complete_with_its_state_alone_and_has_the_size_of_all_its_files(
    tmp_path: Path,
) -> None:
    paths = RunPaths(tmp_path)
    for version, sizes in ((12, {STATE_FILE: 2, "policy/model": 30}), (9, {"policy/model": 5})):
        for name, count in sizes.items():
            file = paths.checkpoints / checkpoint_name(version) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(count))

    found = [(one.version, one.size_bytes, one.is_complete) for one in read_checkpoints(paths)]

    assert found == [(9, 5, False), (12, 32, True)]
