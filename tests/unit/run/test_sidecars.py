"""Processes beside a run: started, started again each time later, told about, ended. None is real."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dart.config.config import load_config
from dart.core.messages import RecordEvents
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import (
    Sidecar,
    beat,
    last_beat_unix_s,
    read_sidecar,
    remove_sidecar,
    write_sidecar,
)
from dart.run import sidecars
from dart.run.sidecars import HANG_DEADLINE_S, POLLS_EVERY_S, SidecarSupervisor, sidecar_spec, sidecar_specs
from dart.telemetry.events import SIDECAR_UP

PAGE = sidecar_spec("web", "dart.web.__main__", shutdown_s=3.0)


class Process:
    """What Popen gives, without a process."""

    def __init__(self, command: list[str], **_: Any) -> None:
        self.command = command
        self.returncode: int | None = None
        self.signals: list[int] = []
        self.ends_when_told = True

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self.signals.append(signal.SIGTERM)
        if self.ends_when_told:
            self.returncode = -signal.SIGTERM

    def kill(self) -> None:
        self.signals.append(signal.SIGKILL)
        self.returncode = -signal.SIGKILL


class World:
    """A run with one process beside it, and a clock moved by hand."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self.now_s = 100.0
        self.started: list[Process] = []
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.recorded: list[tuple[str, bool, str]] = []
        self.log = self
        self.beside = SidecarSupervisor(paths, [PAGE], self, lambda: self.now_s, self.sleep)

    def start(self, command: list[str], **options: Any) -> Process:
        self.started.append(Process(command, **options))
        return self.started[-1]

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    warning = info

    def tell(self, to: str, content: RecordEvents) -> bool:
        for event in content.events:
            self.recorded.append((event.subject, event.kind == SIDECAR_UP, str(event.data["text"])))
        return to == "store"

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def look_after(self, seconds: float) -> None:
        self.sleep(seconds)
        self.beside.poll()

    def look_every_second(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.look_after(1.0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    paths = RunPaths(tmp_path)
    paths.logs.mkdir()
    world = World(paths)
    monkeypatch.setattr(sidecars.subprocess, "Popen", world.start)
    return world


@pytest.mark.parametrize(
    ("overrides", "serves_page", "names"),
    [
        ((), True, ["web"]),
        ((), False, []),
        (("web.enabled=false",), True, []),
        (("tracking.writers=['tensorboard']",), False, ["tracking"]),
        (
            ("run.record=postgresql://me@db.example/runs", "run.blobs=s3://bucket/prefix"),
            False,
            ["inspection"],
        ),
    ],
)
def test_a_run_has_the_sidecars_that_its_configuration_asks_for(
    overrides: tuple[str, ...], serves_page: bool, names: list[str]
) -> None:
    config = load_config(None, ["web.enabled=true", *overrides])
    assert [spec.id for spec in sidecar_specs(config, serves_page=serves_page)] == names


def test_it_is_started_for_this_run_and_bound_to_this_process(world: World) -> None:
    world.beside.poll()
    world.beside.poll()

    (process,) = world.started
    assert process.command[1:] == ["-m", "dart.web.__main__", str(world.paths.root), str(os.getpid())]


def test_what_it_says_of_itself_is_told_once(world: World) -> None:
    world.beside.poll()
    write_sidecar(world.paths, Sidecar(name="web", is_well=True, text="http://127.0.0.1:8700/"))
    for _ in range(3):
        world.beside.poll()

    assert world.recorded == [("web", True, "http://127.0.0.1:8700/")]
    assert world.lines == [("sidecar_up", {"subject": "web", "text": "http://127.0.0.1:8700/"})]


def test_one_that_ends_is_started_again_each_time_later_and_says_why(world: World) -> None:
    world.beside.poll()
    waits = []
    for _ in range(7):
        (world.paths.logs / "web.stderr").write_text("Traceback\nthe token file is open to others\n")
        world.started[-1].returncode = 1
        world.beside.poll()
        down = read_sidecar(world.paths, "web")
        assert down is not None
        assert "the token file is open" in down.text
        count, waited_s = len(world.started), 0.0
        while len(world.started) == count:
            world.look_after(0.5)
            waited_s += 0.5
        waits.append(waited_s)

    assert waits == [1.0, 3.0, 9.0, 27.0, 81.0, 243.0, 300.0]
    assert world.recorded[0] == (
        "web",
        False,
        "ended with exit code 1: the token file is open to others; it is started again in 1 s",
    )


def test_one_that_ran_for_long_is_started_again_soon(world: World) -> None:
    world.beside.poll()
    for _ in range(4):
        world.look_after(1000.0)
        world.started[-1].returncode = -signal.SIGKILL
        world.beside.poll()
        world.look_after(1.0)

    assert len(world.started) == 5
    assert {text for _, _, text in world.recorded} == {"ended by SIGKILL; it is started again in 1 s"}


def test_one_that_shows_no_sign_of_life_is_killed(world: World) -> None:
    world.beside.poll()
    write_sidecar(world.paths, Sidecar(name="web", is_well=True, text="here"))
    world.beside.poll()
    assert world.started[0].returncode is None

    world.look_every_second(HANG_DEADLINE_S + 1.0)

    assert world.started[0].signals == [signal.SIGKILL]
    world.beside.poll()
    name, is_well, text = world.recorded[-1]
    assert (name, is_well) == ("web", False)
    assert text.startswith("killed: no sign of life for ")


def test_the_reason_of_a_kill_is_not_that_of_the_next_end(world: World) -> None:
    world.beside.poll()
    write_sidecar(world.paths, Sidecar(name="web", is_well=True, text="here"))
    world.look_every_second(HANG_DEADLINE_S + 6.0)
    assert len(world.started) == 2
    world.started[-1].returncode = 3
    world.beside.poll()

    assert world.recorded[-1][2].startswith("ended with exit code 3; ")


def test_one_that_is_started_again_and_takes_long_to_start_is_not_killed(world: World) -> None:
    world.beside.poll()
    world.started[-1].returncode = 3
    world.look_every_second(2.0)
    assert len(world.started) == 2
    world.look_every_second(2 * HANG_DEADLINE_S)

    assert [process.signals for process in world.started] == [[], []]


def test_a_step_of_the_clock_that_dates_its_signs_of_life_kills_none(world: World) -> None:
    world.beside.poll()
    write_sidecar(world.paths, Sidecar(name="web", is_well=True, text="here"))
    for beat_unix_s in (0.0, 4e9, 0.0):
        os.utime(world.paths.root / "web.json", (beat_unix_s, beat_unix_s))
        world.look_every_second(HANG_DEADLINE_S - 1.0)

    assert world.started[0].signals == []


def test_a_launcher_that_was_suspended_kills_only_what_stays_silent_afterwards(world: World) -> None:
    world.beside.poll()
    write_sidecar(world.paths, Sidecar(name="web", is_well=True, text="here"))
    world.look_every_second(3.0)

    world.look_after(10 * HANG_DEADLINE_S)
    world.look_every_second(HANG_DEADLINE_S - 3.0)
    assert world.started[0].signals == []

    world.look_every_second(3.0)
    assert world.started[0].signals == [signal.SIGKILL]


def test_a_launcher_whose_every_look_is_late_finds_one_that_hangs(world: World) -> None:
    world.beside.poll()
    write_sidecar(world.paths, Sidecar(name="web", is_well=True, text="here"))
    for _ in range(8):
        world.look_after(POLLS_EVERY_S + 5.0)
    assert world.started[0].signals == [signal.SIGKILL]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGRTMIN + 1])
def test_one_that_was_ended_by_any_signal_is_started_again(world: World, number: int) -> None:
    world.beside.poll()
    world.started[-1].returncode = -number
    world.beside.poll()

    assert world.recorded[-1][2].startswith("ended by ")


def test_one_that_cannot_be_started_does_not_end_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Process:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(sidecars.subprocess, "Popen", refuse)

    world.beside.poll()

    assert world.recorded == [
        ("web", False, "could not be started: no more processes; it is started again in 1 s")
    ]


@pytest.mark.parametrize(
    ("ends_when_told", "signals"), [(True, [signal.SIGTERM]), (False, [signal.SIGTERM, signal.SIGKILL])]
)
def test_at_the_end_of_the_run_it_is_told_to_end_and_then_killed(
    world: World, ends_when_told: bool, signals: list[int]
) -> None:
    with world.beside:
        world.beside.poll()
        world.started[0].ends_when_told = ends_when_told
        write_sidecar(world.paths, Sidecar(name="web", is_well=True, text="here"))

    assert world.started[0].signals == signals
    assert not (world.paths.root / "web.json").exists()
    assert world.recorded == [], "the end of a sidecar with its run is no event"


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.unlink(),
        lambda file: file.write_text(""),
        lambda file: file.write_text("[]"),
        lambda file: file.write_text('{"pid": 1}'),
        lambda file: file.write_text(file.read_text().replace(f'"pid": {os.getpid()}', '"pid": 1')),
        lambda file: file.write_text(file.read_text().replace('"start_ticks": ', '"start_ticks": 1')),
    ],
)
def test_what_one_said_holds_only_while_that_very_process_runs(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    paths, here = RunPaths(tmp_path), Sidecar(name="web", is_well=True, text="here")
    write_sidecar(paths, here)
    assert read_sidecar(paths, "web") == here

    damage(tmp_path / "web.json")

    assert read_sidecar(paths, "web") is None


def test_a_sign_of_life_counts_from_the_first_word_on(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    assert last_beat_unix_s(paths, "web") is None
    write_sidecar(paths, Sidecar(name="web", is_well=True, text="here"))
    os.utime(tmp_path / "web.json", (1000.0, 1000.0))
    assert last_beat_unix_s(paths, "web") == 1000.0

    beat(paths, "web")
    now = last_beat_unix_s(paths, "web")
    assert now is not None
    assert now > 1000.0
    remove_sidecar(paths, "web")
    remove_sidecar(paths, "web")
