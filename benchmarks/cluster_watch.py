"""What a benchmark sees of a run on a cluster: the boards of its nodes, and its record by SQL of its own."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from actors.board import ActorState, Board, Vitals
from actors.bridge import LATE_GAUGE
from actors.link import machine_row
from dart.core.run_directory import RunPaths
from dart.environments.policy_client import takes_requests
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.load_meter import LOAD
from supervision.host_messages import BRIDGE, PLACED

POOLS = ("environment_pool-", "rollout_pool-")
ENGINE, ENVIRONMENT = "rollout-", "env-"

HELD = (
    "SELECT environment, rollout_id, fence FROM rollouts WHERE state = 'leased' AND environment IS NOT NULL"
)
STORED_SINCE = "SELECT rollout_id, fence FROM trajectories WHERE stored_unix_s > %s"
ANSWERED = """
    SELECT (data::json ->> 'requests')::float FROM events WHERE kind = %s AND subject = %s
    ORDER BY event_id DESC LIMIT 1
"""
FENCED = "SELECT coalesce(sum(value), 0) FROM counters WHERE name IN ('fenced', 'fenced_commits')"

Lease = tuple[int, int]
"""The id of a rollout and the fence of its lease."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process for ever: pids come back."""

    pid: int
    began_unix_s: float

    @property
    def lives(self) -> bool:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            return process.create_time() == self.began_unix_s and process.status() != psutil.STATUS_ZOMBIE
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a node carries."""

    incarnations: Mapping[str, int]
    """Of its shards and the actors below them, by name."""
    processes: frozenset[Process] = field(default=frozenset(), repr=False)

    @property
    def engines(self) -> list[str]:
        return sorted(name for name in self.incarnations if name.startswith(ENGINE))

    @property
    def environments(self) -> list[str]:
        return sorted(name for name in self.incarnations if name.startswith(ENVIRONMENT))


class Watch:
    """Looks into the run of a cluster whose nodes share this machine's files. Asks no actor."""

    def __init__(self, run: RunPaths, nodes: Path, record: str) -> None:
        self._nodes = nodes
        self._board = Board(run.board)
        self._record = psycopg.connect(record, autocommit=True)
        self._boards: dict[str, Board] = {}

    def close(self) -> None:
        self.forget_boards()
        self._board.close()
        self._record.close()

    # ---- the control node's board ----

    def row(self, name: str) -> Vitals | None:
        return _row(self._board, name)

    def losses(self, node: str) -> int:
        """How often the run lost a node of this name."""
        row = self.row(machine_row(node))
        return 0 if row is None else row.restarts

    def is_there(self, node: str) -> bool:
        """Whether a node is connected and gets work."""
        row = self.row(machine_row(node))
        return row is not None and row.state is ActorState.RUNNING and row.ready

    def late_frames(self) -> int:
        """Frames of lost nodes that the control node has refused."""
        row = self.row(BRIDGE)
        return 0 if row is None else row.gauges[LATE_GAUGE]

    def children_of(self, parent: str) -> list[Vitals]:
        return [
            row for row in self._board.rows() if row.parent == parent and row.state is not ActorState.FREE
        ]

    def carried_by(self, node: str) -> Carried:
        """The shards of a node and the actors below them, with all their processes."""
        shards = [row for row in self.children_of(machine_row(node)) if row.name.startswith(POOLS)]
        rows = [row for shard in shards if _is_up(shard) for row in (shard, *self.children_of(shard.name))]
        processes = frozenset(self._processes_placed_on(node)) if rows else frozenset[Process]()
        return Carried(incarnations={row.name: row.incarnation for row in rows}, processes=processes)

    def is_replaced(self, lost: Carried) -> bool:
        """Whether all that was lost is up again, under higher numbers."""
        rows = {name: self.row(name) for name in lost.incarnations}
        return all(
            row is not None and row.incarnation > lost.incarnations[name] and _is_up(row) and row.ready
            for name, row in rows.items()
        )

    def why_not_up(self, shards: int) -> str:
        """Why the run is not as it is when nothing happens; empty if it is.

        shards   the number of its shards
        """
        up = [row for row in self._board.rows() if row.name.startswith(POOLS) and _is_up(row)]
        if len(up) < shards:
            return f"{len(up)} of {shards} shards are up"
        for row in (child for shard in up for child in self.children_of(shard.name)):
            if not _is_up(row) or (row.beat_age_s or 0.0) > 10.0:
                return (
                    f"{row.name} is {row.state}, {row.last_reason or 'ready' if row.ready else 'not ready'}"
                )
        return ""

    # ---- other boards ----

    def routable_on(self, engines: Mapping[str, int], nodes: list[str]) -> list[str]:
        """Where requests would be sent to one of these incarnations of engines: `engine on node`."""
        boards = {"the control node": self._board, **{node: self._board_of(node) for node in nodes}}
        return [
            f"{engine} on {where}"
            for where, board in boards.items()
            for engine, incarnation in engines.items()
            if (row := _row(board, engine)) and row.incarnation == incarnation and takes_requests(row)
        ]

    def is_stale_everywhere(self, engine: str, nodes: list[str]) -> bool:
        """Whether every board shows that an engine serves an older version than is required."""
        boards = [self._board, *(self._board_of(node) for node in nodes)]
        return all(_is_stale(board, engine) for board in boards)

    def folder_of(self, node: str) -> Path:
        """The node's part of the run directory."""
        (folder,) = self._nodes.glob(f"*/{node}")
        return folder

    def forget_boards(self) -> None:
        """Close the boards of nodes: a node that is lost makes a new one."""
        for board in self._boards.values():
            board.close()
        self._boards.clear()

    def _board_of(self, node: str) -> Board:
        if node not in self._boards:
            self._boards[node] = Board(RunPaths(self.folder_of(node)).board)
        return self._boards[node]

    def _processes_placed_on(self, node: str) -> Iterator[Process]:
        rows = {row.name: row for row in self._board_of(node).rows() if not row.route}
        for row in rows.values():
            if row.parent == PLACED and _is_up(row):
                yield from _process_tree(row.pid)

    # ---- the record ----

    def leases(self) -> dict[str, Lease]:
        """The leases that environments hold now, by environment."""
        held = self._record.execute(HELD).fetchall()
        return {environment: (rollout, fence) for environment, rollout, fence in held}

    def stored_since(self, unix_s: float) -> set[Lease]:
        """The leases under which trajectories were stored since a moment."""
        return {(rollout, fence) for rollout, fence in self._record.execute(STORED_SINCE, (unix_s,))}

    def fenced(self) -> int:
        """Late reports that the store has refused."""
        return self._one(FENCED)

    def answered(self, engine: str) -> int:
        """Requests that the present incarnation of an engine has answered, as it recorded last."""
        return self._one(ANSWERED, LOAD, engine)

    def _one(self, query: str, *values: str) -> int:
        row = self._record.execute(query, values).fetchone()
        return 0 if row is None else int(row[0] or 0)


def _row(board: Board, name: str) -> Vitals | None:
    slot = board.find(name)
    return None if slot is None else board.vitals(slot)


def _is_up(row: Vitals) -> bool:
    return row.state is ActorState.RUNNING


def _is_stale(board: Board, engine: str) -> bool:
    served, required = _row(board, engine), _row(board, "weight_sync")
    if served is None or required is None:
        return False
    return served.gauges[Gauge.SERVED_VERSION] < required.gauges[Gauge.REQUIRED_VERSION]


def _process_tree(pid: int) -> Iterator[Process]:
    """A process and all below it."""
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                yield Process(process.pid, process.create_time())


def wait_for(holds: Callable[[], bool], deadline_s: float) -> float | None:
    """Seconds until something holds; None if it does not within the deadline."""
    began_s = time.monotonic()
    while not holds():
        if time.monotonic() - began_s > deadline_s:
            return None
        time.sleep(0.1)
    return time.monotonic() - began_s
