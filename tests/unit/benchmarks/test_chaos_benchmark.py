"""The pure parts of the run under faults: its plan, times to recovery, verdicts, arguments."""

import math
import re
import signal
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.board import ActorState, Board
from benchmarks import chaos, chaos_faults, chaos_report
from benchmarks.chaos_faults import (
    CENTRAL,
    DISK_FULL,
    LOCKED,
    SIGNALS,
    Fault,
    Injector,
    Planned,
    is_any,
    plan,
)
from benchmarks.chaos_report import Episode
from benchmarks.chaos_witness import Evidence, healings, witness_lines
from dart.config.sections import FaultsSettings
from dart.core.records import Event
from dart.environments.fault_injection import InjectedFault, Injection
from dart.telemetry.events import PAUSED
from supervision.reports import Offender, SupervisorReport


def of_kind(planned: list[Planned]) -> Counter[tuple[str, str]]:
    return Counter((fault.kind, fault.victim) for fault in planned)


def test_half_an_hour_hits_every_kind_of_actor_in_both_ways_and_the_disk_and_the_database_twice() -> None:
    counts = of_kind(plan(30.0, 0, has_small_disk=True))

    assert {(kind, victim): counts[kind, victim] for kind in SIGNALS for victim in CENTRAL} == {
        (kind, victim): 1 for kind in SIGNALS for victim in CENTRAL
    }
    assert counts["SIGKILL", "env-"] > counts["SIGSTOP", "env-"] > 5
    assert counts["SIGKILL", "rollout-"] >= 2
    assert counts["SIGSTOP", "rollout-"] >= 1
    assert counts[DISK_FULL, ""] == counts[LOCKED, ""] == 2


def test_a_short_run_kills_every_kind_of_actor_and_fills_the_disk() -> None:
    planned = plan(3.0, 0, has_small_disk=True)
    counts = of_kind(planned)

    assert all(counts["SIGKILL", victim] == 1 for victim in CENTRAL)
    assert counts[DISK_FULL, ""] == counts[LOCKED, ""] == 1
    assert all(counts[kind, victim] >= 1 for kind in SIGNALS for victim in ("env-", "rollout-"))
    central = [fault.at_s for fault in planned if fault.victim in CENTRAL]
    assert min(later - earlier for earlier, later in pairwise(central)) >= 20.0


def test_the_plan_is_in_order_ends_in_time_and_is_the_same_for_the_same_seed() -> None:
    planned = plan(10.0, 4, has_small_disk=True)
    assert planned == sorted(planned, key=lambda fault: fault.at_s) == plan(10.0, 4, has_small_disk=True)
    assert planned != plan(10.0, 5, has_small_disk=True)
    assert 0 < planned[0].at_s < planned[-1].at_s < 600.0


def test_without_a_small_disk_only_the_database_is_locked() -> None:
    counts = of_kind(plan(30.0, 0, has_small_disk=False))
    assert counts[DISK_FULL, ""] == 0
    assert counts[LOCKED, ""] == 2


def test_every_planned_signal_has_a_number() -> None:
    assert [signal.Signals[kind] for kind in SIGNALS] == [signal.SIGKILL, signal.SIGSTOP]


@pytest.mark.parametrize(
    ("name", "prefix", "is_one"),
    [
        ("env-003", "env-", True),
        ("rollout-0", "rollout-", True),
        ("rollout_pool", "rollout-", False),
        ("environment_pool", "env-", False),
    ],
)
def test_children_of_a_pool_are_told_from_everybody_else(name: str, prefix: str, is_one: bool) -> None:
    assert is_any(name, prefix) is is_one


EPISODES = [
    Episode("env-000", began_unix_s=90, stored_unix_s=101),
    Episode("env-001", began_unix_s=103, stored_unix_s=108),
    Episode("env-000", began_unix_s=106, stored_unix_s=112),
    Episode("env-001", began_unix_s=110, stored_unix_s=115),
]
COMMITS = [80.0, 99.0, 120.0]


@pytest.mark.parametrize(("waits_from_s", "held_s"), [(3.0, 15.0), (40.0, 40.0), (math.inf, 75.0)])
def test_a_disk_stays_full_until_an_actor_waits_for_room_or_a_minute_more_has_passed(
    waits_from_s: float, held_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board.create(tmp_path / "board")
    slot = board.claim("store", "root")
    board.set_state(slot, ActorState.RUNNING, ready=True, incarnation=1)
    given_back_s: list[float] = []
    now_s = 0.0
    monkeypatch.setattr(chaos_faults, "fill_disk", lambda _: lambda: given_back_s.append(now_s))
    run: Any = SimpleNamespace(directory=tmp_path / "run", paths=SimpleNamespace(board=board.path))
    injector = Injector(run, [Planned(0.0, DISK_FULL)], seed=0)

    for now_s in map(float, range(100)):
        if now_s >= waits_from_s:
            board.set_state(slot, ActorState.RUNNING, ready=False)
        injector.tick(now_s)

    assert given_back_s == [held_s]
    for opened in (board, injector._board):
        opened.close()


def test_a_record_is_not_locked_while_an_actor_still_waits_because_of_the_full_disk_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board.create(tmp_path / "board")
    slot = board.claim("store", "root")
    board.set_state(slot, ActorState.RUNNING, ready=True, incarnation=1)
    monkeypatch.setattr(chaos_faults, "fill_disk", lambda _: lambda: None)
    monkeypatch.setattr(chaos_faults, "lock_database", lambda _: lambda: None)
    run: Any = SimpleNamespace(
        directory=tmp_path / "run", paths=SimpleNamespace(board=board.path, store=tmp_path / "store.db")
    )
    injector = Injector(run, [Planned(0.0, DISK_FULL), Planned(1.0, LOCKED)], seed=0)

    for now_s in map(float, range(40)):
        board.set_state(slot, ActorState.RUNNING, ready=not 3.0 <= now_s < 20.0)
        injector.tick(now_s)

    assert [(one.kind, one.at_s) for one in injector.done] == [(DISK_FULL, 0.0), (LOCKED, 20.0)]
    for opened in (board, injector._board):
        opened.close()


def fault(kind: str, victim: str, **known: Any) -> Fault:
    return Fault(kind=kind, victim=victim, at_s=0.0, unix_s=100.0, **known)


@pytest.mark.parametrize(
    ("struck", "seconds"),
    [
        # It begins an episode that gets stored, after it is back: another's does not count.
        (fault("SIGKILL", "env-000", ready_after_s=2.0), 6.0),
        (fault("SIGKILL", "env-001", ready_after_s=2.0), 3.0),
        (fault("SIGKILL", "env-002", ready_after_s=2.0), None),
        (fault("SIGKILL", "env-000"), None),
        # Anybody's counts, once the supervisor or the store is back.
        (fault("SIGKILL", "store", ready_after_s=1.0), 3.0),
        (fault("SIGSTOP", "environment_pool", ready_after_s=4.0), 6.0),
        (fault("SIGKILL", "trainer", ready_after_s=5.0), 20.0),
        (fault("SIGKILL", "rollout-1", ready_after_s=5.0, served_after_s=5.5), 5.5),
        (fault("SIGKILL", "rollout-1", ready_after_s=5.0), None),
        (fault("SIGKILL", "weight_sync", ready_after_s=1.0, served_after_s=1.1), 1.1),
        # Of a disk the time is told when it was given back.
        (fault(DISK_FULL, ""), 1.0),
    ],
)
def test_recovery_ends_with_real_work(struck: Fault, seconds: float | None) -> None:
    assert chaos_report.recovery_s(struck, EPISODES, COMMITS) == pytest.approx(seconds)


def injection(environment: str, unix_s: float) -> Injection:
    return Injection(
        unix_s=unix_s,
        environment=environment,
        kind=InjectedFault.CRASH,
        task_id="click",
        seed=1,
        number=0,
        rollout_id=5,
        attempt=1,
        fence=1,
    )


def test_recoveries_are_told_by_kind_of_fault_and_of_victim() -> None:
    faults = [
        fault("SIGKILL", "env-000", ready_after_s=2.0),
        fault("SIGKILL", "env-001", ready_after_s=2.0),
        fault("SIGSTOP", "store", ready_after_s=1.0),
    ]
    found = chaos_report.recoveries(
        faults, [injection("env-000", 101.0), injection("env-001", 111.0)], EPISODES, []
    )
    assert found == {"SIGKILL env-N": [6.0, 3.0], "SIGSTOP store": [3.0], "injected crash": [5.0, None]}


def outcome(**changed: Any) -> dict[str, Any]:
    books = {"lost": 0, "doubled": 0, "violations": []}
    sound = {
        "exit_code": 0,
        "is_alone": False,
        "exit_code_beside": 0,
        "hangs": {},
        "never_due": [],
        "audit": books,
        "left_behind": {},
        "faulted_and_stored": [],
        "recovery_s": {"SIGKILL env-N": [1.0]},
        "unhealed": [],
        "never_injected": [],
        "faults": 300,
        "throughput_ratio": 0.9,
    }
    return {**sound, **changed}


def broken(minutes: float = 30.0, **changed: Any) -> list[str]:
    return [
        verdict.what for verdict in chaos_report.verdicts(outcome(**changed), minutes) if not verdict.is_kept
    ]


def test_a_sound_run_breaks_nothing() -> None:
    assert broken() == []


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"exit_code": 75}, "the run under faults finishes"),
        ({"exit_code": None, "hangs": {"under faults": "waits"}}, "the run under faults finishes"),
        ({"exit_code_beside": 75}, "so does the one beside it"),
        ({"exit_code_beside": None, "hangs": {"beside": "waits"}}, "so does the one beside it"),
        ({"never_due": [{"at_s": 3.0, "kind": "SIGSTOP", "victim": "store"}]}, "everything planned was done"),
        ({"audit": {"lost": 1, "doubled": 0, "violations": []}}, "rollouts lost: 0"),
        ({"audit": {"lost": 0, "doubled": 2, "violations": []}}, "rollouts doubled: 0"),
        ({"audit": {"lost": 0, "doubled": 0, "violations": ["gap"]}}, "the record's audit finds nothing"),
        ({"left_behind": {"77": "chromium"}}, "processes left behind: 0"),
        ({"faulted_and_stored": [(5, 1)]}, "faulted attempts stored: 0"),
        ({"recovery_s": {"SIGSTOP store": [None]}}, "every victim serves again"),
        ({"unhealed": ["SIGKILL store: no event"]}, "every fault has its recovery event, and work after it"),
        ({"never_injected": ["hang"]}, "every kind of injected fault happened"),
        ({"faults": 299}, "at least 300 faults"),
        ({"throughput_ratio": 0.84}, "useful throughput at least 85% of the run beside it"),
        ({"throughput_ratio": None}, "useful throughput at least 85% of the run beside it"),
    ],
)
def test_each_promise_can_be_broken(changed: dict[str, Any], what: str) -> None:
    assert broken(**changed) == [what]


def test_a_run_alone_is_not_judged_by_one_beside_it() -> None:
    assert broken(minutes=2.0, is_alone=True, exit_code_beside=None, throughput_ratio=None) == []


def test_a_long_run_alone_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        chaos.parse(["--alone", "--minutes", "20"])
    assert "--alone is for less than 20 minutes" in capsys.readouterr().err


def test_a_short_run_is_not_judged_by_its_throughput_or_number_of_faults() -> None:
    assert broken(minutes=3.0, faults=40, throughput_ratio=0.5) == []


def test_a_short_run_is_judged_by_every_fault_that_was_planned_and_every_one_that_was_done() -> None:
    never_due = [{"at_s": 3.0, "kind": "SIGSTOP", "victim": "store"}]
    assert broken(minutes=3.0, never_due=never_due) == ["everything planned was done"]
    assert broken(minutes=3.0, unhealed=["SIGKILL store: no event"]) == [
        "every fault has its recovery event, and work after it"
    ]


def report(id_: str, incarnation: int, unix_s: float) -> SupervisorReport:
    return SupervisorReport(
        unix_s=unix_s,
        supervisor="root",
        context="child_terminated",
        reason="SIGKILL",
        offender=Offender(id=id_, incarnation=incarnation),
    )


def evidence(*written: SupervisorReport, spent: float = 105.0, pauses: tuple[Event, ...] = ()) -> Evidence:
    return Evidence(reports=written, pauses=pauses, spent={5: (spent,)})


def pause(began_unix_s: float) -> Event:
    data = {"began_unix_s": began_unix_s, "paused_s": 3.0, "reason": "no room"}
    return Event(event_id=1, unix_s=began_unix_s + 3.0, kind=PAUSED, subject="store", data=data)


STORE = fault("SIGKILL", "store", incarnation=4, ready_after_s=1.0)


@pytest.mark.parametrize(
    ("struck", "seen", "missing"),
    [
        (STORE, evidence(report("store", 4, 100.5)), ""),
        (STORE, evidence(report("store", 3, 100.5)), "SIGKILL store: no event"),
        (STORE, evidence(report("store", 4, 90.0)), "SIGKILL store: no event"),
        (STORE, evidence(report("curator", 4, 100.5)), "SIGKILL store: no event"),
        (STORE, evidence(), "SIGKILL store: no event"),
        (STORE, evidence(report("store", 4, 300.0)), "SIGKILL store: 200.0 s"),
        # Its supervisor may have ended, and taken it along, before it was found.
        (
            fault("SIGSTOP", "env-001", incarnation=2, ready_after_s=1.0),
            evidence(report("environment_pool", 1, 101.0)),
            "",
        ),
        (
            fault("SIGKILL", "env-002", incarnation=2, ready_after_s=1.0),
            evidence(report("env-002", 2, 100.1)),
            "SIGKILL env-002: no work after it",
        ),
        (fault(DISK_FULL, "", lasted_s=15.0), evidence(pauses=(pause(95.0),)), ""),
        (fault(DISK_FULL, "", lasted_s=15.0), evidence(pauses=(pause(60.0),)), "disk full: no event"),
    ],
)
def test_a_fault_has_healed_when_the_run_noticed_it_and_worked_again(
    struck: Fault, seen: Evidence, missing: str
) -> None:
    (healing,) = healings([struck], [], seen, EPISODES, COMMITS)
    assert healing.missing == missing
    assert healing.is_healed is (not missing)


def test_a_child_whose_pool_has_an_outage_has_no_report_of_its_own() -> None:
    struck = fault("SIGKILL", "env-001", incarnation=2, ready_after_s=1.0)
    outage = replace(report("env-000", 7, 95.0), supervisor="environment_pool", context="outage")
    (healing,) = healings([struck], [], evidence(outage), EPISODES, COMMITS)
    assert (healing.event, healing.event_s, healing.missing) == ("outage of environment_pool", 0.0, "")


@pytest.mark.parametrize(("given_back_s", "event"), [(108.0, "the next incarnation"), (300.0, "")])
def test_a_report_that_a_full_disk_refused_is_not_missed(given_back_s: float, event: str) -> None:
    struck = fault("SIGKILL", "env-001", incarnation=2, ready_after_s=1.0)
    full = Fault(kind=DISK_FULL, victim="", at_s=0.0, unix_s=given_back_s, lasted_s=15.0)
    found = healings([struck, full], [], evidence(), EPISODES, COMMITS)
    assert next(one for one in found if one.what == "SIGKILL env-001").event == event


def test_a_fault_in_an_episode_has_healed_when_its_attempt_was_spent() -> None:
    struck = injection("env-000", 101.0)
    (healed,), (unhealed,) = (
        healings([], [struck], evidence(spent=spent), EPISODES, []) for spent in (103.0, 90.0)
    )
    assert (healed.missing, healed.event_s) == ("", 2.0)
    assert unhealed.missing == "injected crash in env-000: no event"


def test_the_witness_counts_by_kind_what_was_done_and_what_healed() -> None:
    found = healings(
        [STORE, fault("SIGKILL", "env-000", incarnation=1, ready_after_s=2.0)],
        [],
        evidence(report("store", 4, 100.5)),
        EPISODES,
        COMMITS,
    )
    lines = "\n".join(witness_lines(found))
    assert re.search(r"SIGKILL env-N +0/1 +never", lines)
    assert re.search(r"SIGKILL store +1/1 +0.50 \(0.50\) +3.00 \(3.00\)", lines)


def test_a_kind_of_fault_that_is_configured_and_never_happened_is_named() -> None:
    settings = FaultsSettings(enabled=True)
    silent = chaos.never_injected(settings, [injection("env-000", 101.0)])
    assert "hang" in silent
    assert "crash" not in silent


@pytest.mark.parametrize(
    ("override", "pair"),
    [
        ("environments.count=3", ("environments.count", 3)),
        ("training.lr=1e-3", ("training.lr", 0.001)),
        ("rollout.sync=all_at_once", ("rollout.sync", "all_at_once")),
    ],
)
def test_overrides_are_read_as_toml(override: str, pair: tuple[str, Any]) -> None:
    assert chaos.as_pair(override) == pair


@pytest.mark.parametrize("arguments", [["--minutes", "0.5"], ["--set", "nonsense"]])
def test_arguments_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        chaos.parse(arguments)
