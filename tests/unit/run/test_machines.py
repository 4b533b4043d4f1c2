"""Machines that environments have left are given back before a start, and after the end, however it comes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.errors import SystemStartFailed
from dart.config.config import Config, load_config
from dart.core.errors import TemporaryError
from dart.core.run_directory import RunPaths, claimed
from dart.environments.osworld import give_back as give_back_module
from dart.run import app, evaluation
from dart.run.listener import RunListener
from dart.run.machines import give_back_of_ended, given_back
from tests.fake_pool import TOKEN, FakePool, of_osworld, remember, served
from tests.unit.run.test_refused_start import SIMULATED


@pytest.fixture
def pool() -> FakePool:
    return FakePool()


@pytest.fixture
def config(tmp_path: Path, pool: FakePool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """The configuration of a run on the machines of a real server."""
    monkeypatch.setenv("DARTRL_POOL_TOKEN", TOKEN)
    monkeypatch.setattr(give_back_module, "GIVE_BACK_S", give_back_module.STOP_RETRY_S)
    simulated = load_config(None, [*SIMULATED, f'run.dir="{tmp_path / "run"}"'])
    with served(pool) as address:
        yield of_osworld("provider=pool", f"pool.server={address}", config=simulated)


def leave(root: Path, pool: FakePool, emulator: str) -> None:
    """Leave a machine, as an environment that is killed does."""
    root.mkdir(exist_ok=True)
    pool.running[emulator] = 1
    remember(root, emulator_ids=[emulator])


class Counting(RunListener):
    """Keeps what was given back."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int, Sequence[str]]] = []

    def gave_back(self, count: int, left: Sequence[str]) -> None:
        self.calls.append((count, left))


def test_what_an_earlier_start_and_this_one_have_left_is_given_back_also_after_an_error(
    tmp_path: Path, config: Config, pool: FakePool
) -> None:
    listener = Counting()
    leave(tmp_path, pool, "of the earlier start")
    with (  # noqa: PT012  # the machine is left in the block that fails
        pytest.raises(TemporaryError),
        given_back(config, RunPaths(tmp_path), listener),
    ):
        assert pool.running == {}
        leave(tmp_path, pool, "of this start")
        raise TemporaryError("the root supervisor hangs")
    assert pool.running == {}
    assert listener.calls == [(1, []), (1, [])]


def test_a_run_that_leaves_nothing_waits_for_nothing(tmp_path: Path, config: Config) -> None:
    listener = Counting()
    with given_back(config, RunPaths(tmp_path), listener):
        pass
    assert listener.calls == []


def test_a_run_whose_actors_fail_gives_back_what_they_have_left(
    tmp_path: Path, config: Config, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        leave(tmp_path / "run", pool, "left")
        raise SystemStartFailed("the machine may be overloaded")

    monkeypatch.setattr(app, "ActorSystem", fail)
    with pytest.raises(TemporaryError, match="overloaded"):
        app.train(config)
    assert pool.running == {}


def test_machines_that_cannot_be_given_back_are_printed_with_the_command_that_tries_again(
    tmp_path: Path, config: Config, pool: FakePool, capsys: pytest.CaptureFixture[str]
) -> None:
    pool.refused_stops = float("inf")
    leave(tmp_path, pool, "a")
    with given_back(config, RunPaths(tmp_path), RunListener()):
        said = capsys.readouterr().err
    server = config.environments.osworld.pool.server
    assert said == (
        f"giving back machines a of {server}; this takes at most 60 s\n"
        "gave back 0 machines\n"
        f"may still run: machines a of {server}: status 503: busy; try again with `dartrl down --run-dir "
        f"{tmp_path}`\n"
    )


def test_a_run_that_runs_keeps_its_machines(tmp_path: Path, config: Config, pool: FakePool) -> None:
    root = tmp_path / "run"
    with claimed(root, resume=False, config_toml=config.to_toml()):
        leave(root, pool, "held")
        assert give_back_of_ended(RunPaths(root), RunListener()).count == 0
        assert list(pool.running) == ["held"]
    assert give_back_of_ended(RunPaths(root), RunListener()).count == 1
    assert pool.running == {}


@pytest.mark.parametrize("is_left", [False, True])
def test_an_evaluation_keeps_its_temporary_directory_if_only_that_names_machines_that_may_run(
    config: Config, pool: FakePool, monkeypatch: pytest.MonkeyPatch, *, is_left: bool
) -> None:
    folders: list[Path] = []

    def measure(measured: Config, **_: Any) -> str:
        folders.append(measured.run.dir)
        if is_left:
            leave(measured.run.dir, pool, "left")
        return "measured"

    monkeypatch.setattr(evaluation, "measure", measure)
    assert evaluation.evaluate(config, config.training.policy) == "measured"  # type: ignore[comparison-overlap]
    (folder,) = folders
    assert (folder / "machines" / "env-000.json").exists() is is_left
    assert folder.parent.exists() is is_left
