"""What `dartrl up` logs and tells its service manager, from snapshots."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dart.core.errors import SilentError, TemporaryError
from dart.core.records import RunPhase
from dart.core.run_directory import RunPaths
from dart.inspect.snapshot import RunSnapshot
from dart.run import daemon as daemon_module
from dart.run.control_protocol import ControlAnswer, ControlOutcome, Request
from dart.run.daemon import PROGRESS_EVERY_S, Daemon, status_line
from dart.run.run_record import RunHistory
from tests.unit.inspect.test_live import actor

WELL = ControlAnswer(ControlOutcome.DONE, "root answers")
NOTHING = RunHistory(
    version=0, trajectories=0, leased=0, parked=0, is_batch_open=False, is_held=False, killed=0
)


class Around:
    """A daemon, what it logged and told, and the answers it gets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, run_dir: Path, **environment: str) -> None:
        self.now_s = 0.0
        self.events: list[str] = []
        self.fields: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self.answer: ControlAnswer | SilentError = WELL
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(daemon_module, "notify", lambda **fields: self.told.append(fields))
        monkeypatch.setattr(daemon_module, "request", self.request)
        self.daemon = Daemon(RunPaths(run_dir), self, lambda: self.now_s)

    def request(self, run_dir: Path, call: Request) -> ControlAnswer:
        if isinstance(self.answer, SilentError):
            raise self.answer
        return self.answer

    def info(self, event: str, **fields: Any) -> None:
        self.events.append(event)
        self.fields.append(fields)

    warning = error = info

    def look(self, found: RunSnapshot) -> None:
        """What happens about every second."""
        self.daemon.show(found)
        self.daemon.turn()

    def words(self, name: str) -> list[Any]:
        return [fields[name] for fields in self.told if name in fields]


def snapshot(*, is_ready: bool = True) -> RunSnapshot:
    root = replace(actor("root", parent=""), ready=is_ready)
    return RunSnapshot(
        run_dir="runs/x",
        taken_unix_s=0.0,
        phase=RunPhase.TRAINING,
        elapsed_s=1.0,
        budget_s=0.0,
        actors=(root,),
    )


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Around:
    return Around(monkeypatch, tmp_path, WATCHDOG_USEC="20000000")


def test_it_is_ready_once_when_the_whole_tree_is(around: Around) -> None:
    for is_ready in (False, True, True):
        around.daemon.show(snapshot(is_ready=is_ready))

    assert around.words("READY") == [1]
    assert around.events.count("run_is_up") == 1


def test_the_watchdog_is_fed_only_after_an_answer_and_no_more_often_than_needed(around: Around) -> None:
    for around.now_s in (0.0, 5.0, 10.0):
        around.look(snapshot())
    assert around.words("WATCHDOG") == [1, 1]


def test_while_the_record_is_away_the_watchdog_is_fed_all_the_same(around: Around) -> None:
    around.look(snapshot())
    for around.now_s in (10.0, 20.0):
        around.daemon.turn()

    assert around.words("WATCHDOG") == [1, 1, 1]


def test_a_root_that_does_not_answer_is_told_once_and_again_when_it_does(around: Around) -> None:
    for around.answer in (
        ControlAnswer(ControlOutcome.SILENT, "it hangs"),
        SilentError("nobody"),
        WELL,
        WELL,
    ):
        around.now_s += 10.0
        around.look(snapshot())

    assert around.words("WATCHDOG") == [1, 1]
    assert [event for event in around.events if event.startswith("root_")] == [
        "root_does_not_answer",
        "root_answers_again",
    ]


def test_nobody_is_asked_before_the_tree_is_up(around: Around) -> None:
    around.answer = SilentError("it is starting")
    around.look(snapshot(is_ready=False))

    assert around.events == ["run_stands"]
    assert around.words("EXTEND_TIMEOUT_USEC") == [120_000_000]


def test_how_the_run_stands_is_logged_once_a_minute_and_when_something_changes(around: Around) -> None:
    for around.now_s in (0.0, 1.0, PROGRESS_EVERY_S):
        around.daemon.show(snapshot())
    around.daemon.show(replace(snapshot(), notices=("paused",)))

    assert around.events.count("run_stands") == 3


def test_while_the_record_is_away_the_service_manager_and_the_log_say_so(around: Around) -> None:
    around.look(snapshot())
    for around.now_s in (1.0, 2.0, PROGRESS_EVERY_S + 1.0):
        around.daemon.record_away("its server does not answer")
    around.look(snapshot())

    assert around.words("STATUS")[1] == "waits for its record: its server does not answer"
    assert around.words("STATUS")[-1].startswith("training")
    events = [event for event in around.events if event != "run_is_up"]
    assert events == ["run_stands", "record_away", "record_away", "run_stands"]


def test_a_drain_and_a_reload_are_told(around: Around) -> None:
    around.daemon.stopping(15, 45.0)
    around.daemon.hung_up()

    assert around.words("STOPPING") == [1]
    assert around.words("EXTEND_TIMEOUT_USEC") == [45_000_000]
    assert around.events == ["drain_began", "configuration_read"]


def test_while_the_data_of_an_ended_run_are_checked_no_sign_of_life_is_asked_for(around: Around) -> None:
    around.daemon.ended()

    assert around.words("STOPPING") == [1]
    assert around.words("EXTEND_TIMEOUT_USEC") == [900_000_000]


def test_the_status_line_names_what_is_wrong() -> None:
    line = status_line(replace(snapshot(), updates=7, staleness_mean=1.44, notices=("the disk is full",)))

    assert line == "training · update 7 · 1/1 actors · 0 actions/min · staleness 1.4 · the disk is full"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, "continues from version 0 with 0 trajectories"),
        ({"killed": 12}, "the run was ended by force with 12 actors up; continues"),
        ({"leased": 3}, "; plays 3 interrupted rollouts again"),
        ({"parked": 2}, "; continues 2 parked episodes"),
        ({"is_batch_open": True}, "; the batch that was being trained is trained again"),
        ({"is_held": True}, "; the run is paused until `dartrl resume`"),
    ],
)
def test_what_a_start_finds_is_said_in_words(changed: dict[str, Any], told: str) -> None:
    assert told in replace(NOTHING, **changed).text()


def test_a_daemon_drains_at_a_hangup_only_when_its_terminal_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, around: Around
) -> None:
    def drains(before: bool, now: bool, *, lasts: bool = False) -> bool:
        monkeypatch.setattr(daemon_module, "has_terminal", lambda: before)
        daemon = Daemon(RunPaths(tmp_path), around, outlives_terminal=lasts)
        monkeypatch.setattr(daemon_module, "has_terminal", lambda: now)
        return daemon.hung_up()

    assert drains(True, False)
    assert not drains(True, True), "it is asked to read its configuration anew"
    assert not drains(False, False), "it was started without one"
    assert not drains(True, False, lasts=True), "it was started with nohup"


def test_what_its_processes_say_past_their_logs_is_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, around: Around
) -> None:
    paths = RunPaths(tmp_path)
    paths.logs.mkdir()
    daemon = Daemon(paths, around, output_bytes=100)
    for number in range(100):
        with paths.daemon_output.open("a") as output:
            output.write(f"a warning of a library, number {number}\n")
        daemon.turn()

    kept = sorted(paths.logs.glob("daemon.output*"))
    assert sum(file.stat().st_size for file in kept) <= 300
    assert "number 99" in kept[0].read_text()


def test_machines_that_are_given_back_are_logged_and_the_service_manager_waits(around: Around) -> None:
    around.daemon.giving_back(["machines a of http://pool.test"], 60.0)
    around.daemon.gave_back(0, ["machines a of http://pool.test: status 503: busy"])

    assert around.events == ["giving_back", "gave_back", "may_still_run"]
    assert around.words("EXTEND_TIMEOUT_USEC") == [60_000_000]
    assert around.words("STOPPING") == [], "the run has not started yet"


def test_the_watchdog_is_off_while_a_run_that_ended_by_itself_gives_back_machines(around: Around) -> None:
    around.look(snapshot())
    around.daemon.giving_back(["machines a of http://pool.test"], 60.0)

    assert around.words("STOPPING") == [1]


def test_the_watchdog_is_off_while_a_run_that_failed_stops_the_other_nodes_of_its_cluster(
    around: Around,
) -> None:
    around.look(snapshot())
    around.daemon.__exit__(None, TemporaryError("shards failed"), None)

    assert around.words("STOPPING") == [1]


@pytest.mark.parametrize(
    ("error", "reasons"),
    [
        (None, []),
        (TemporaryError("the tree gave up"), ["the tree gave up"]),
        (KeyboardInterrupt(), ["KeyboardInterrupt"]),
    ],
)
def test_the_end_of_a_run_by_an_error_is_logged_with_its_reason(
    around: Around, error: BaseException | None, reasons: list[str]
) -> None:
    with contextlib.suppress(TemporaryError, KeyboardInterrupt), around.daemon:
        if error is not None:
            raise error

    assert around.events == ["daemon_ended"] * len(reasons)
    assert [fields["reason"] for fields in around.fields] == reasons
    assert around.words("STOPPING") == [], "it never was up"
