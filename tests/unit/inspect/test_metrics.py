"""The metrics of a run: declared once, exposed as declared, used by the dashboard."""

import json
import math
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families

from actors.board import ActorState, Board
from dart.cli.web import address_of
from dart.core.records import Conservation, RunPhase
from dart.core.run_directory import RunPaths, claimed
from dart.core.types import FaultKind, Outcome
from dart.curation.groups import DropReason
from dart.inspect.health import liveness_problems, readiness_problems
from dart.inspect.metrics import METRICS, STATES, MetricKind, exposition
from dart.inspect.snapshot import ActorRow, EngineRow, RunSnapshot, TaskRow
from dart.telemetry.events import ALARM, USER_VISIBLE

DASHBOARD = Path(__file__).resolve().parents[3] / "contrib" / "grafana" / "dartrl.json"

ENV = ActorRow(
    name='env-"0"\\\n',
    parent="environment_pool",
    state="running",
    pid=7,
    incarnation=1,
    ready=True,
    beat_age_s=0.5,
    busy_s=2.5,
    handler="Reset",
    messages=5,
    restarts=3,
    last_reason="",
    rss_bytes=1024,
    cpu_s=1.5,
)
STORE = replace(
    ENV, name="store", ready=False, beat_age_s=0.125, busy_s=0.0, restarts=1, rss_bytes=0, cpu_s=0.0
)
RUN = RunSnapshot(
    run_dir="r",
    taken_unix_s=0.0,
    phase=RunPhase.TRAINING,
    elapsed_s=192.0,
    budget_s=1200.0,
    updates=12,
    policy_version=13,
    success_rate=0.25,
    trajectories=512,
    steps=2048,
    outcomes={"terminated": 500, "parse_error": 14},
    update={"loss": -0.5, "entropy": 1.25},
    staleness_mean=0.8,
    staleness_p50=0.6,
    staleness_p95=1.75,
    staleness_max=7,
    faults={"infrastructure": 21},
    drops={"no_spread": 19},
    pool_size=22,
    pool_uses=23,
    parkings=24,
    parked_now=25,
    events={"restart": 26},
    notices=("the disk is full", "the trainer waits"),
    alarms={"kl_runaway": True, "entropy_collapse": False},
    engines=(
        EngineRow(name="rollout-0", state="updating", version=11, reason=""),
        EngineRow(name="rollout-1", state="stale", version=9, reason="it loads no version"),
    ),
    tasks=(
        TaskRow(task_id="t/a", trajectories=30, recent=16, success_rate=0.5, rollouts=4, step_cap=5),
        TaskRow(task_id="t/b", trajectories=0, recent=0, success_rate=None, quarantined="until 12:00"),
    ),
    actors=(ENV, STORE),
    conservation=Conservation(issued=114, trained=40, dropped=35, stored=33, leased=6),
)
"""A run whose figures are all different, so that none can stand in for another one."""


def exposed(run: RunSnapshot) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(exposition(run))
        for sample in family.samples
    }


def test_every_metric_is_its_figure_of_the_snapshot() -> None:
    env = ENV.name
    expected: dict[str, Any] = {
        "run_healthy": 0,
        "run_elapsed_seconds": 192,
        "run_budget_seconds": 1200,
        "run_phase": {"training": 1},
        "notices": 2,
        "alarm": {"kl_runaway": 1, "entropy_collapse": 0},
        "updates_total": 12,
        "policy_version": 13,
        "engine_policy_version": {"rollout-0": 11, "rollout-1": 9},
        "engine_healthy": {"rollout-0": 1, "rollout-1": 0},
        "success_ratio": 0.25,
        "task_success_ratio": {"t/a": 0.5},
        "task_rollouts": {"t/a": 4, "t/b": 0},
        "task_step_cap_steps": {"t/a": 5, "t/b": 0},
        "tasks_quarantined": 1,
        "update_figure": {"loss": -0.5, "entropy": 1.25},
        "staleness_versions": {"mean": 0.8, "p50": 0.6, "p95": 1.75, "max": 7},
        "trajectories_total": 512,
        "environment_steps_total": 2048,
        "outcomes_total": dict.fromkeys(Outcome, 0) | {"terminated": 500, "parse_error": 14},
        "faults_total": dict.fromkeys(FaultKind, 0) | {"infrastructure": 21},
        "dropped_rollouts_total": dict.fromkeys(DropReason, 0) | {"no_spread": 19},
        "rollouts": {"leased": 6, "stored": 33, "trained": 40, "dropped": 35},
        "issued_rollouts_total": 114,
        "conservation_holds": 1,
        "parkings_total": 24,
        "parked_episodes": 25,
        "pool_demonstrations": 22,
        "pool_uses_total": 23,
        "events_total": dict.fromkeys(USER_VISIBLE, 0) | {"restart": 26},
        "actors": dict.fromkeys(STATES, 0) | {"running": 2},
        "actor_well": {env: 1, "store": 0},
        "actor_restarts_total": {env: 3, "store": 1},
        "actor_busy_seconds": {env: 2.5, "store": 0},
        "actor_beat_age_seconds": {env: 0.5, "store": 0.125},
        "actor_memory_bytes": {env: 1024},
        "actor_cpu_seconds_total": {env: 1.5},
    }
    found: dict[str, Any] = {}
    for (name, labels), number in exposed(RUN).items():
        metric = name.removeprefix("dartrl_")
        found[metric] = found.get(metric, {}) | {labels[0]: number} if labels else number

    assert found == expected


def test_the_series_of_every_known_fault_outcome_drop_and_event_begins_at_0() -> None:
    fresh = exposed(replace(RUN, faults={}, outcomes={}, drops={}, events={}))

    for name, label in (
        ("faults", FaultKind.SYSTEM),
        ("outcomes", Outcome.STEP_CAP),
        ("dropped_rollouts", DropReason.STALE),
        ("events", ALARM),
    ):
        assert fresh[f"dartrl_{name}_total", (label,)] == 0


def test_a_run_is_healthy_only_while_it_runs_and_its_main_process_is_well() -> None:
    well = replace(RUN, actors=(ENV,), notices=())

    assert exposed(well)["dartrl_run_healthy", ()] == 1
    assert exposed(replace(well, is_running=False))["dartrl_run_healthy", ()] == 0
    assert exposed(replace(well, main_is="suspended"))["dartrl_run_healthy", ()] == 0


def test_a_figure_that_is_no_number_is_still_readable() -> None:
    found = exposed(replace(RUN, update={"loss": math.nan, "kl": math.inf, "ratio": -math.inf}))

    assert math.isnan(found["dartrl_update_figure", ("loss",)])
    assert found["dartrl_update_figure", ("kl",)] == math.inf
    assert found["dartrl_update_figure", ("ratio",)] == -math.inf


def test_what_is_not_known_yet_has_no_sample() -> None:
    fresh = RunSnapshot(run_dir="r", taken_unix_s=0, phase=RunPhase.TRAINING, elapsed_s=0, budget_s=0)

    names = {name for name, _ in exposed(fresh)}

    assert "dartrl_success_ratio" not in names
    assert "dartrl_staleness_versions" not in names
    assert "dartrl_updates_total" in names


def test_every_metric_has_a_unique_name_a_meaning_and_labels_that_are_explained() -> None:
    names = [metric.exposed for metric in METRICS]

    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"dartrl_[a-z]+(_[a-z]+)*", metric.name), metric.name
        assert metric.about.endswith("."), metric.name
        assert all(metric.labels.values()), metric.name
        assert len(metric.labels) == isinstance(metric.read(RUN), Mapping), metric.name


def test_every_declared_metric_is_exposed_with_its_kind_and_meaning() -> None:
    families = {family.name: family for family in text_string_to_metric_families(exposition(RUN))}

    assert families.keys() == {metric.name for metric in METRICS}
    for metric in METRICS:
        assert families[metric.name].type == metric.kind
        assert families[metric.name].documentation == metric.about


def queries() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def test_every_query_of_the_dashboard_names_metrics_and_labels_that_exist() -> None:
    known = {metric.exposed: metric for metric in METRICS}
    labels = {label for metric in METRICS for label in metric.labels}

    assert len(queries()) > 10
    for query in queries():
        named = re.findall(r"dartrl_\w+", query)
        assert named, query
        assert set(named) <= known.keys(), query
        for chosen in re.findall(r"(\w+)=~?\"", query):
            assert chosen in labels | {"instance"}, query


def test_a_counter_is_only_looked_at_as_a_rate_in_the_dashboard() -> None:
    for metric in METRICS:
        for query in queries():
            if metric.kind is MetricKind.COUNTER and metric.exposed in query:
                assert re.search(rf"(rate|increase)\({metric.exposed}", query), query


# ---- health ----


@pytest.fixture
def board(tmp_path: Path) -> Board:
    (tmp_path / "config.toml").write_text("")
    return Board.create(tmp_path / "board")


def show(board: Board, name: str, parent: str = "root", **fields: object) -> None:
    state = {"ready": 1, "beat_ns": board.now_ns(), **fields}
    board.set_state(board.claim(name, parent), ActorState.RUNNING, **state)


def test_a_run_that_does_not_run_is_neither_alive_nor_ready(tmp_path: Path) -> None:
    for find in (liveness_problems, readiness_problems):
        (problem,) = find(RunPaths(tmp_path))
        assert "there is no run in" in problem


def test_alive_is_a_root_that_beats_and_ready_needs_store_engine_and_environment(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml="") as held:
        board = Board.create(held.paths.board)
        show(board, "root", "launcher")
        started = readiness_problems(held.paths)
        for name in ("store", "rollout-0", "env-000"):
            show(board, name)
        both = liveness_problems(held.paths) + readiness_problems(held.paths)
        show(board, "root", "launcher", beat_ns=board.now_ns() - 30 * 10**9)
        silent = liveness_problems(held.paths)
        board.close()

    assert started == [
        "the store takes no writes",
        "no engine serves a policy",
        "no environment is up",
    ]
    assert both == []
    assert silent == ["the root supervisor gave no sign of life for 30 s"]


@pytest.mark.parametrize(
    ("shown", "ready"),
    [
        ({"work": "load"}, True),
        ({"work": "generate"}, True),
        ({"work": "load", "beat_ns": 1}, False),
        ({"work": "probe"}, False),
        ({}, False),
    ],
)
def test_the_only_engine_of_a_run_may_take_a_version_over_while_it_gives_signs_of_life(
    tmp_path: Path, shown: dict[str, object], ready: bool
) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml="") as held:
        board = Board.create(held.paths.board)
        show(board, "root", "launcher")
        for name in ("store", "env-000"):
            show(board, name)
        show(board, "rollout-0", **{"ready": 0, "work_since_ns": board.now_ns(), **shown})
        found = readiness_problems(held.paths)
        board.close()

    assert found == ([] if ready else ["no engine serves a policy"])


def test_a_run_whose_main_process_stands_still_or_is_gone_is_not_alive(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml="") as held:
        Board.create(held.paths.board).close()
        with subprocess.Popen(["sleep", "60"]) as main:
            main.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, main.pid, os.WSTOPPED)
            held.paths.lock.write_text(f"{main.pid}\n")
            suspended = liveness_problems(held.paths)
            main.kill()
        gone = liveness_problems(held.paths)

    assert suspended == [f"the main process {main.pid} is suspended"]
    assert gone == [f"the main process {main.pid} is gone"]


def test_an_address_has_a_host_and_a_port() -> None:
    assert address_of("0.0.0.0:9109") == ("0.0.0.0", 9109)
    assert address_of(":9109") == ("127.0.0.1", 9109)


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:²"])
def test_what_is_no_address_is_a_wrong_option(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected HOST:PORT such as"):
        address_of(text)
