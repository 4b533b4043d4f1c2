"""The actors in quarantine, read from the board of a run."""

from dataclasses import dataclass
from pathlib import Path

from actors.board import ActorState, rows_of
from dart.core.errors import NotRunningError
from dart.core.run_directory import RunPaths, holder
from dart.run.preconditions import known


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """An actor that failed too often."""

    name: str
    retry_unix_s: float
    """When its supervisor tries to start it again."""
    restarts: int
    last_reason: str


def quarantined(run_dir: Path) -> tuple[Quarantined, ...]:
    """The actors in quarantine, by name. Raises NotRunningError."""
    paths = RunPaths(run_dir)
    if holder(run_dir) is None or not paths.board.exists():
        raise NotRunningError(f"the run in {run_dir} is not running, so no actor is in quarantine")
    rows = known(rows_of(paths.board))
    return tuple(
        Quarantined(
            name=name, retry_unix_s=row.retry_unix_s, restarts=row.restarts, last_reason=row.last_reason
        )
        for name, row in sorted(rows.items())
        if row.state is ActorState.QUARANTINED
    )
