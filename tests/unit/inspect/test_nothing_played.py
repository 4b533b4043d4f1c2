"""A run that played nothing failed, and says why."""

from dataclasses import replace
from pathlib import Path

import pytest

from dart.core.records import RunPhase
from dart.core.run_directory import RunPaths
from dart.core.statistics import Score
from dart.core.types import FaultKind
from dart.inspect.report import EvaluationResult, RunReport, SuccessReport
from dart.inspect.result import why_nothing_was_played
from dart.inspect.snapshot import RunSnapshot
from dart.store.store import Store
from dart.telemetry.events import EVALUATION_FAILED
from supervision import reports
from supervision.reports import Offender, SupervisorReport

NOTHING = RunSnapshot(run_dir="r", taken_unix_s=0.0, phase=RunPhase.DONE, elapsed_s=60.0, budget_s=60.0)
NO_SCORES = RunReport(sampled=SuccessReport(), greedy=SuccessReport())


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    paths = RunPaths(tmp_path)
    with Store(paths.store) as store:
        store.add_version()
    return paths


def test_a_run_that_played_or_measured_anything_is_none_of_these(paths: RunPaths) -> None:
    assert why_nothing_was_played(replace(NOTHING, trajectories=1), NO_SCORES, paths) == ""
    scored = replace(
        NO_SCORES, sampled=SuccessReport(EvaluationResult({"t": Score(successes=0, episodes=1)}))
    )
    assert why_nothing_was_played(NOTHING, scored, paths) == ""


def test_the_last_attempt_that_failed_is_the_reason(paths: RunPaths) -> None:
    with Store(paths.store) as store:
        group = store.open_group("miniwob/click-test-2", 1, 1, 4, 0)
        lease = store.lease_rollout(group, "env-001", 9999.0)
        store.release_rollout(
            lease.rollout_id, lease.fence, FaultKind.INFRASTRUCTURE, "the browser died\n(exit code 3)", 3
        )
    why = why_nothing_was_played(replace(NOTHING, faults={"infrastructure": 40}), NO_SCORES, paths)
    assert why.startswith(
        "no episode was played: 40 attempts failed, the last one of env-001 (infrastructure)"
    )
    assert "the browser died⏎(exit code 3)" in why


def test_without_a_rollout_the_last_failure_of_an_evaluation_is_the_reason(paths: RunPaths) -> None:
    asked = {"phase": "before", "version": 0, "seed": 1, "is_greedy": False, "is_left_out": False}
    with Store(paths.store) as store:
        for attempts, kind, detail in (
            (1, "policy", "the first"),
            (2, "policy", "the prompt\nis too long"),
            (0, "interrupted", "the run ended"),
        ):
            told = {**asked, "kind": kind, "detail": detail, "attempts": attempts}
            store.record_event(EVALUATION_FAILED, "miniwob/click-test-2", told)

    assert why_nothing_was_played(NOTHING, NO_SCORES, paths) == (
        "no episode was played: evaluation episodes failed, the last one of miniwob/click-test-2 (policy): "
        "the prompt⏎is too long; repair the cause before the next start"
    )


def test_without_an_attempt_the_last_death_is_the_reason(paths: RunPaths) -> None:
    offender = Offender(id="env-000", incarnation=1, pid=7, restart="permanent", shutdown_s=5.0)
    death = SupervisorReport(
        unix_s=1.0,
        supervisor="environment_pool",
        context="child_terminated",
        reason="BrowserDied: gone",
        offender=offender,
    )
    reports.append(paths.root, death)
    why = why_nothing_was_played(NOTHING, NO_SCORES, paths)
    assert why.startswith("no episode was played: env-000 failed, BrowserDied: gone; repair the cause")


def test_without_any_failure_the_time_was_too_short(paths: RunPaths) -> None:
    assert "--set run.minutes=N" in why_nothing_was_played(NOTHING, NO_SCORES, paths)
