"""What is left of a run when it has ended, and how it is told."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console

from dart.observe import curve, report
from dart.observe.snapshot import RunSnapshot
from dart.rundir import RunPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a training run ended."""

    snapshot: RunSnapshot
    """The run as it was at its end."""
    report: report.Report
    """Both measurements on held-out seeds; a side is empty if it was not taken."""
    episodes: tuple[curve.Episode, ...]
    """Every finished training episode of the run, resumed parts included."""
    seed: int
    stopped_by: int | None = None
    """The signal that ended it before it was done, if one did."""
    violations: tuple[str, ...] = ()
    """What the check of the run's data found at its end; empty when it is sound."""
    failure: str = ""
    """Why it could not be done, in words with the remedy; empty if it was done."""


def publish(result: TrainResult, console: Console, paths: RunPaths) -> None:
    """Write report and learning curve into the run directory, and show both."""
    report.write_json(result.report, paths.report, about=_about(result))
    curve.write_png(result.episodes, result.report, paths.curve)
    text = curve.render(result.episodes, width=min(console.width, 100))
    if text:
        console.print(text, markup=False, highlight=False)
    if result.report.tasks:
        console.print(report.render(result.report))
    verdict = "sound" if not result.violations else f"DAMAGED ({len(result.violations)} findings)"
    books = f"{result.snapshot.conservation}; data {verdict}; restarts {result.snapshot.restarts}"
    console.print(books, highlight=False)
    told = f"{paths.root}: report.json, curve.png, checkpoints/"
    console.print(told, markup=False, highlight=False, soft_wrap=True)


def _about(result: TrainResult) -> dict[str, Any]:
    snapshot, fates = result.snapshot, result.snapshot.conservation
    return {
        "seed": result.seed,
        "seconds": round(snapshot.elapsed_s, 1),
        "updates": snapshot.updates,
        "policy_version": snapshot.policy_version,
        "trajectories": snapshot.trajectories,
        "restarts": snapshot.restarts,
        "faults": dict(snapshot.faults),
        "issued": fates.issued,
        "trained": fates.trained,
        "dropped": fates.dropped,
        "stored": fates.stored,
        "leased": fates.leased,
        "violations": list(result.violations),
        "completed": result.stopped_by is None and not result.failure,
    }
