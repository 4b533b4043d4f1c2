"""How much of its time budget a run has used, across interruptions."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

from dart.config.config import Config
from dart.core.errors import DiskError
from dart.core.run_directory import RunPaths
from dart.store.blobs import NO_ROOM

MINUTE_S = 60.0


def session_file(paths: RunPaths) -> Path:
    """Where a session keeps its times."""
    return paths.root / "session.json"


@dataclass(slots=True)
class TimeBudget:
    """One session of a run, from a start to an end. Its file holds the time of all sessions together."""

    path: Path
    started_unix_s: float
    used_before_s: float
    budget_s: float
    training_ends_unix_s: float

    @classmethod
    def begin(cls, paths: RunPaths, config: Config, *, reserve_s: float) -> "TimeBudget":
        """Start the clock at the time that earlier sessions used."""
        path = session_file(paths)
        used_s = _used_s(path)
        now_s = time.time()
        budget_s = config.run.minutes * MINUTE_S
        ends_s = now_s + max(0.0, budget_s - used_s - reserve_s) if budget_s else float("inf")
        session = cls(path, now_s, used_s, budget_s, ends_s)
        session.keep()
        return session

    def elapsed_s(self) -> float:
        """Seconds the run has run, all sessions together."""
        return self.used_before_s + time.time() - self.started_unix_s

    def keep(self) -> None:
        """Write the file, whole. On a full disk the older file stays, and the run waits for room."""
        content = {
            "elapsed_s": self.elapsed_s(),
            "budget_s": self.budget_s,
            "started_unix_s": self.started_unix_s,
            "used_before_s": self.used_before_s,
            "training_ends_unix_s": self.training_ends_unix_s,
        }
        temporary = self.path.with_suffix(".new")
        try:
            temporary.write_text(json.dumps(content))
            temporary.replace(self.path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if error.errno not in NO_ROOM or not self.path.exists():
                raise


def _used_s(path: Path) -> float:
    """Seconds that earlier sessions used; 0 where there are none, or a power failure damaged the file."""
    try:
        used_s = float(json.loads(path.read_bytes())["elapsed_s"])
        if not 0.0 <= used_s < math.inf:
            raise ValueError(f"a run has used a time of at least 0 s, got {used_s}")
        return used_s
    except FileNotFoundError:
        return 0.0
    except (ValueError, TypeError, LookupError):
        import structlog

        structlog.get_logger().warning("session_forgotten", path=str(path))
        return 0.0


SESSION = ("elapsed_s", "budget_s", "started_unix_s", "used_before_s", "training_ends_unix_s")
"""Keys in the file of a session; without a time limit the end of training is infinite."""


def read_session(paths: RunPaths) -> dict[str, float]:
    """Read the run's times from the file of the session. Raises DiskError where it is damaged."""
    path = session_file(paths)
    try:
        found = json.loads(path.read_bytes())
        session = {name: float(found[name]) for name in SESSION}
        if any(map(math.isnan, session.values())) or math.inf in [abs(session[name]) for name in SESSION[:4]]:
            raise ValueError(f"not all of it are times: {session}")
        return session
    except (ValueError, TypeError, LookupError) as error:
        raise DiskError(
            f"{path} does not say how much time the run has used ({error}): restore a copy of it; "
            "--resume writes it anew and counts the time from 0"
        ) from error
