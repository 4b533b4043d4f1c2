"""How much of its time budget a run has used, across interruptions."""

import json
import math

from actors.clock import Clock, SystemClock
from dart.config.config import Config
from dart.core.disk_errors import FULL_DISK
from dart.core.errors import DiskError
from dart.core.run_directory import RunPaths
from dart.curation.clock_jumps import JUMP_S

MINUTE_S = 60.0


class TimeBudget:
    """The times of one session: the part of a run from one start to its end.

    The times are kept in a file, which `read_session` reads. The file also has the total time of all
    sessions. The time that a session has used is counted by a clock that cannot be set.
    """

    def __init__(
        self,
        paths: RunPaths,
        config: Config,
        *,
        reserve_s: float,
        used_elsewhere_s: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        """Begin a session: its clock starts at the time that earlier sessions used.

        reserve_s          time kept free at the end of the budget, for the last update and the final
                           evaluation
        used_elsewhere_s   time that all sessions had used when another machine last continued the run
        clock              None: the clock of the machine
        """
        self._path = paths.session
        self._clock = clock or SystemClock()
        self.used_before_s = max(used_s(paths), used_elsewhere_s)
        self.started_unix_s = self._clock.unix_s()
        """Start of the session by the wall clock as it is set now."""
        self._started_boot_s = self._clock.boot_s()
        self._budget_s = config.run.minutes * MINUTE_S
        self._left_s = training_left_s(config, self.used_before_s, reserve_s)
        self.training_ends_boot_s = self._started_boot_s + self._left_s
        self.keep()

    def keep(self) -> None:
        """Write the times into the file. While the disk is full, the file keeps the earlier times.

        raises    OSError if the file cannot be written for another reason, or does not exist yet
        """
        session_s = self._clock.boot_s() - self._started_boot_s
        self._follow_wall_clock(session_s)
        content = {
            "elapsed_s": self.used_before_s + session_s,
            "budget_s": self._budget_s,
            "started_unix_s": self.started_unix_s,
            "used_before_s": self.used_before_s,
            "training_ends_unix_s": self.started_unix_s + self._left_s,
        }
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_text(json.dumps(content))
            temporary.replace(self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if error.errno not in FULL_DISK or not self._path.exists():
                raise

    def _follow_wall_clock(self, session_s: float) -> None:
        """Move the start of the session by as much as the wall clock was set.

        So the start can be compared with the times of episodes that are stored from now on.
        """
        jump_s = self._clock.unix_s() - session_s - self.started_unix_s
        if abs(jump_s) > JUMP_S:
            self.started_unix_s += jump_s


def training_left_s(config: Config, used_before_s: float, reserve_s: float) -> float:
    """Return the seconds of the budget that are left for training; infinity for a run without a time limit.

    reserve_s   time kept free at the end of the budget, for the last update and the final evaluation
    """
    budget_s = config.run.minutes * MINUTE_S
    return max(0.0, budget_s - used_before_s - reserve_s) if budget_s else math.inf


def used_s(paths: RunPaths) -> float:
    """Return the seconds that earlier sessions used; 0 if there were none or their file is damaged."""
    try:
        return read_session(paths)["elapsed_s"]
    except FileNotFoundError:
        return 0.0
    except DiskError:
        import structlog

        structlog.get_logger().warning("session_forgotten", path=str(paths.session))
        return 0.0


SESSION = ("elapsed_s", "budget_s", "started_unix_s", "used_before_s", "training_ends_unix_s")
"""Keys in the file of a session. `training_ends_unix_s` is infinite for a run without a time limit."""


def read_session(paths: RunPaths) -> dict[str, float]:
    """Read the run's times from the file of the session.

    raises    DiskError if the file is damaged, FileNotFoundError before the first session
    """
    path = paths.session
    try:
        return parse_session(path.read_bytes())
    except (ValueError, TypeError, LookupError) as error:
        raise DiskError(
            f"{path} does not say how much time the run has used ({error}): restore a copy of this file; "
            "if you have none, continue with --resume, which writes a new file and counts the time from 0"
        ) from error


def parse_session(content: bytes | str) -> dict[str, float]:
    """Return the run's times from the content of the file. Raises ValueError, TypeError or LookupError."""
    found = json.loads(content)
    session = {name: float(found[name]) for name in SESSION}
    if not all(value >= 0.0 for value in session.values()) or math.inf in list(session.values())[:4]:
        raise ValueError(f"expected finite times of at least 0, got {session}")
    return session
