"""Whether a run that is started again has nothing to do."""

import json
from collections.abc import Iterator
from contextlib import suppress

from dart.config.config import Config
from dart.core.records import EvaluationPhase, RunPhase
from dart.core.run_directory import RunPaths
from dart.curation.run_phases import RunPlan, phase_now
from dart.inspect.evaluation_scores import still_missing
from dart.inspect.time_budget import MINUTE_S, training_left_s, used_s
from dart.run.app import final_reserve_s
from dart.store.errors import StoreError
from dart.store.integrity import damage_of
from dart.store.reader import StoreReader


def why_finished(config: Config, paths: RunPaths) -> str:
    """Say which limits a run has reached that is finished and has its report, and how to go on.

    Returns "" for a run with work left. It does so too if its record cannot be read, because the start that
    follows says why, and if its newest checkpoint is damaged.

    config   the configuration with which the run would be continued
    """
    with suppress(StoreError), StoreReader(paths.record_at(config.run.record)) as store:
        newest = store.latest_version()
        if newest is None or _reported_version(paths) != newest.version:
            return ""
        if damage_of(newest.version, paths):
            return ""  # the start continues from the newest whole checkpoint
        actions, used = store.totals().steps, used_s(paths)
        left_s = training_left_s(config, used, final_reserve_s(config))
        plan = RunPlan(config=config, training_ends_s=left_s)
        phase = phase_now(
            plan,
            updates=newest.version,
            actions=actions,
            now_s=0.0,
            missing_before=still_missing(store, plan, EvaluationPhase.BEFORE),
            missing_after=still_missing(store, plan, EvaluationPhase.AFTER),
        )
        reached = dict(_reached(config, newest.version, actions, used, left_s))
        if phase is RunPhase.DONE and reached:
            more = " ".join(f"--set {key}=N" for key in reached)
            return (
                f"the run in {paths.root} is done, and nothing was started: {', '.join(reached.values())}. "
                f"To train on, add {more} to the command; for a new run, name another directory with "
                f"--run-dir; to look at this one, use `dartrl web {paths.option}`"
            )
    return ""


def _reported_version(paths: RunPaths) -> int | None:
    """Return the version that the report of a completed run is about; None without such a report."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        report = json.loads(paths.report.read_bytes())
        return int(report["policy_version"]) if report["completed"] else None
    return None


def _reached(
    config: Config, updates: int, actions: int, used: float, left_s: float
) -> Iterator[tuple[str, str]]:
    """Yield (key, text) for each limit of the training that the run has reached."""
    training = config.training
    if 0 < training.updates <= updates:
        yield "training.updates", f"{updates} of {training.updates} updates"
    if 0 < training.actions <= actions:
        yield "training.actions", f"{actions} of {training.actions} actions"
    if left_s <= 0.0:
        yield "run.minutes", f"{used / MINUTE_S:.1f} of {config.run.minutes:g} minutes"
