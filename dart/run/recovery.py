"""What a resumed run finds of its earlier part: how that ended, and what is left to do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from actors.board import LIVING, rows_of
from actors.orphans import Orphan
from dart.core.run_directory import RunPaths
from dart.curation.actor import is_work_paused
from dart.store.reader import StoreReader


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """The state that the earlier part of a run left."""

    version: int
    """The newest policy version, from which training continues."""
    trajectories: int
    leased: int
    """Rollouts that were being played: their leases are revoked and they are played again."""
    parked: int
    """Episodes that continue where they were interrupted."""
    is_batch_open: bool
    """Whether a batch was being trained; it is trained again, from the same version."""
    is_held: bool
    """Whether an operator paused the run."""
    killed: int
    """Actors that were up when the run was killed; 0 when the run ended by itself."""
    leftovers: tuple[Orphan, ...] = ()
    """Processes of the earlier part that still ran, and were killed."""

    def with_leftovers(self, leftovers: Sequence[Orphan]) -> "RunHistory":
        return replace(self, leftovers=tuple(leftovers))

    def in_words(self) -> str:
        """A line for the operator."""
        parts = [f"goes on from version {self.version} with {self.trajectories} trajectories"]
        if self.killed:
            parts.insert(0, f"the run was ended by force while {self.killed} actors were up")
        if self.leftovers:
            names = ", ".join(f"{one.name} (process {one.pid})" for one in self.leftovers)
            parts.append(f"ended what was left over: {names}")
        if self.leased:
            parts.append(f"{self.leased} rollouts that were being played are played again")
        if self.parked:
            parts.append(f"{self.parked} parked episodes are taken up")
        if self.is_batch_open:
            parts.append("the batch that was being trained is trained again")
        if self.is_held:
            parts.append("it is paused until `dartrl resume`")
        return "; ".join(parts)


def look_back(paths: RunPaths) -> RunHistory:
    """Read the state that the earlier part left. Call it before a new start replaces the board."""
    with StoreReader(paths.store) as store:
        newest, books = store.latest_version(), store.conservation()
        _, parked = store.parkings()
        return RunHistory(
            version=newest.version if newest is not None else 0,
            trajectories=store.totals().trajectories,
            leased=max(0, books.leased - parked),
            parked=parked,
            is_batch_open=store.open_batch() is not None,
            is_held=is_work_paused(store),
            killed=_still_up_on(paths),
        )


def _still_up_on(paths: RunPaths) -> int:
    """The actors that are up on the board: a system that ends by itself leaves none, a killed one all."""
    return sum(row.state in LIVING for row in rows_of(paths.board) if row.parent)
