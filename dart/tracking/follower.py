"""Follows the record of a run, update by update, and remembers which updates each writer has.

The figures of an update describe the update itself, and the run since the previous update:

    update/…        the metrics that the trainer recorded: loss, kl, entropy and others
    staleness/…     mean, p50, p95 and max over the steps of the update, and the bound, in policy versions
    curve/success   share of successes among the newest episodes, at most 100, before the update
    utilisation/…   share of time in which environments were in an episode, engines answered, and the trainer
                    was in an update
    throughput/…    episodes and environment steps that were stored, per minute

The time in which the run was stopped, because it was continued later, counts for neither of the last two.

The figures follow from the record alone, so they are the same whenever the record is read. The exception is
the utilisation of old updates: it is a mean over the time between the load events that the store has kept
(`dart.store.event_retention`).
"""

import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import structlog

from dart.config.config import Config
from dart.core.records import Version
from dart.core.run_directory import write_atomically
from dart.inspect.learning_curve import WINDOW
from dart.inspect.utilisation import ACTIVITIES, TimeWindow, sizes_of, spent, total, worked
from dart.store.browse_queries import RunBrowser
from dart.store.event_retention import TIERS
from dart.telemetry.events import POOLS_SIZED
from dart.telemetry.load_interval import load_every_s
from dart.telemetry.load_meter import LOAD
from dart.tracking.writers import Point, TrackingWriter

STALENESS = "staleness_"
MINUTE_S = 60.0
AT_ONCE = 100
"""Largest number of updates that are read and written together."""


class Position:
    """Keeps in the file `path` the newest policy version that each writer has written and flushed.

    The file is read when the object is made. If it does not exist or is damaged, it is written anew, and no
    writer has anything: each gets all updates again. The same holds if the file names a version after
    `newest`, the newest one in the record: an older record was put back. Raises OSError.
    """

    def __init__(self, path: Path, newest: float = math.inf) -> None:
        self._path = path
        run_id, self._versions = _known(path, newest)
        self.run_id: str = run_id or secrets.token_hex(4)
        """Id of the run in Weights & Biases: random, and the same at each start of the sidecar."""
        if not run_id:
            self.keep({})

    def of(self, writer: str) -> int:
        """Return the newest policy version that a writer has; 0 if it has none."""
        return self._versions.get(writer, 0)

    def keep(self, versions: Mapping[str, int]) -> None:
        """Set the newest policy version of these writers, and write the file. Raises OSError."""
        self._versions |= versions
        content = json.dumps({"run_id": self.run_id, "versions": self._versions})
        write_atomically(self._path, content.encode(), 0o600)


def _known(path: Path, newest: float) -> tuple[str, dict[str, int]]:
    """Read the id of the run and the version of each writer from the file of a `Position`.

    Both are empty if the file does not exist, is damaged, or is ahead of the record. The last two are logged.
    """
    try:
        known = json.loads(path.read_bytes())
        versions = dict(known.get("versions", {}).items())
        if not all(isinstance(version, int) for version in versions.values()):
            raise TypeError(f"expected whole numbers as versions, got {versions}")
        if max(versions.values(), default=0) > newest:
            raise ValueError(f"the record ends at version {newest}, got {versions}")
        return str(known.get("run_id", "")), versions
    except FileNotFoundError:
        return "", {}
    except (ValueError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}; all updates are written again"
        structlog.get_logger().warning("position_forgotten", path=str(path), reason=reason)
        return "", {}


class TrackingFollower:
    """Writes each update as a point to each writer that does not have it yet."""

    def __init__(
        self,
        store: RunBrowser,
        config: Config,
        writers: Mapping[str, TrackingWriter],
        position: Position,
        now_unix_s: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._config, self._writers, self._position = store, config, writers, position
        self._now_unix_s = now_unix_s
        self._success_above = config.curation.success_above
        self._settle_s = 2 * load_every_s(config)
        """Seconds after an update until every actor has recorded its load up to the update."""

    def catch_up(self, *, is_over: bool = False) -> int:
        """Write all settled updates that some writer does not have; return their number.

        An update is settled once every actor has had time to record its load up to the update.

        is_over   whether the run has ended, so that every update is settled
        """
        count = 0
        while points := list(self._next(is_over=is_over)):
            for name, writer in self._writers.items():
                for one in points:
                    if one.version > self._position.of(name):
                        writer.write(one)
                writer.flush()
            newest = points[-1].version
            self._position.keep({name: max(newest, self._position.of(name)) for name in self._writers})
            count += len(points)
        return count

    def _next(self, *, is_over: bool) -> Iterator[Point]:
        """Yield the oldest settled updates that some writer does not have, as points."""
        known = min(self._position.of(name) for name in self._writers)
        made = self._store.versions(known, AT_ONCE + 1)
        for before, version in pairwise(made):
            is_settled = self._now_unix_s() - version.created_unix_s > self._settle_s
            if not (is_settled or is_over):
                return
            yield self._point(before, version)

    def _point(self, before: Version, version: Version) -> Point:
        figures = dict(map(_named, version.metrics.items()))
        ends = version.created_unix_s
        after_ends = math.nextafter(ends, math.inf)
        successes, episodes = self._store.success_within(0.0, after_ends, WINDOW, self._success_above)
        if episodes:
            figures["curve/success"] = successes / episodes
        if ends > before.created_unix_s:
            window = TimeWindow(begins_unix_s=before.created_unix_s, ends_unix_s=ends)
            figures |= self._over_time(window)
        return Point(version=version.version, unix_s=ends, figures=figures)

    def _over_time(self, window: TimeWindow) -> dict[str, float]:
        """Return the figures of a window that are divided by the time in which the run worked."""
        begins, ends = window.begins_unix_s, window.ends_unix_s
        sizes = sizes_of(self._store.find_events(kinds=(POOLS_SIZED,)), self._config)
        actors = sum(one.most() for one in sizes.values())
        margin_s = self._margin_s(begins)
        load = self._store.sampled_events(LOAD, begins - margin_s, ends + margin_s, actors)
        parts = worked(load.events, window, load.apart_s)
        counted = spent(load.events, window, load.apart_s)
        figures = {
            f"utilisation/{kind}": total(counted, prefix, activity)
            / sum(sizes[kind].mean(one.begins_unix_s, one.ends_unix_s) * one.seconds for one in parts)
            for kind, (prefix, activity) in ACTIVITIES.items()
        }
        return figures | self._throughput(window, sum(one.seconds for one in parts))

    def _margin_s(self, begins_unix_s: float) -> float:
        """Return how long before and after a window each actor has a load event.

        Of old load events the store keeps one per interval, so two of them are up to two intervals apart.
        """
        age_s = self._now_unix_s() - begins_unix_s
        gaps_s = (2 * keep_every_s for old_s, keep_every_s in TIERS if age_s + keep_every_s > old_s)
        return max([self._settle_s, *gaps_s])

    def _throughput(self, window: TimeWindow, worked_s: float) -> dict[str, float]:
        """Return what was stored in a window, per minute of the `worked_s` in which the run worked."""
        begins, ends = window.begins_unix_s, window.ends_unix_s
        played = self._store.played_over_time(begins, ends, window.seconds, self._success_above).values()
        per_minute = MINUTE_S / worked_s
        return {
            "throughput/episodes_per_minute": per_minute * sum(episodes for episodes, _, _ in played),
            "throughput/steps_per_minute": per_minute * sum(steps for _, _, steps in played),
        }


def _named(metric: tuple[str, float]) -> tuple[str, float]:
    name, value = metric
    is_staleness = name.startswith(STALENESS)
    return f"staleness/{name.removeprefix(STALENESS)}" if is_staleness else f"update/{name}", value
