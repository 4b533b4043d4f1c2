"""The verifier as an actor of its own.

Receives   Verify (an evaluation)
Waits for  its own worker thread, which runs the model; the mailbox stays answerable meanwhile
Dies when  a query overruns its deadline, or its checkpoint cannot be loaded
On restart it loads its checkpoint again; evaluations ask again

The verifier takes part in evaluations only. If it chose the points of a training rollout, the rollout would
not be a sample of the policy, and its log-probs would belong to no distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from actors import Actor, Lock, Sender, message, receives
from dart.core.screenspot import GroundingDataError
from dart.grounding.verification import choose

if TYPE_CHECKING:
    from dart.grounding.verifier import Verifier

NAME = "verifier"

START_DEADLINE_S = 600.0
"""Deadline of the verifier's start, which imports torch and loads a checkpoint."""

QUERY_DEADLINE_S = 300.0
"""Deadline of one query: up to forty candidates, each one pass of the model."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Choose among candidates for an instruction. Answered by Chosen or CannotVerify."""

    answer_within_s = 2 * QUERY_DEADLINE_S

    image: str
    """Path of the screenshot."""
    instruction: str
    xs: tuple[float, ...]
    """x of each candidate in fractions of the screen's width, the most likely candidate first. `ys` has the y
    of the same candidates, in fractions of the height."""
    ys: tuple[float, ...]
    stop_at: float
    """The first candidate with at least this score is chosen."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A verifier's choice; the fields are those of `dart.grounding.verification.Verified`."""

    index: int
    score: float
    scored: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class CannotVerify:
    """The query itself is wrong; asking again will not help."""

    reason: str


class VerifierActor(Actor):
    """Answers one query at a time, in their order. args: `checkpoint`."""

    async def on_start(self) -> None:
        folder = Path(self.args["checkpoint"])
        self._lock = Lock()
        self._verifier: Verifier = await self.in_thread(
            lambda: self._load(folder), name="load", deadline_s=START_DEADLINE_S
        )

    def _load(self, folder: Path) -> "Verifier":
        from dart.grounding.verifier import load_verifier

        return load_verifier(folder)

    @receives(Verify)
    async def verify(self, query: Verify, sender: Sender) -> Chosen | CannotVerify:
        """Return the answer to a query, after those that came before it."""
        async with self._lock:
            return await self.in_thread(
                lambda: answered(self._verifier, query), name="verify", deadline_s=QUERY_DEADLINE_S
            )


def answered(verifier: "Verifier", query: Verify) -> Chosen | CannotVerify:
    """Return a verifier's answer to a query; CannotVerify when its screenshot cannot be used."""
    from dart.grounding.data import pixels_of

    try:
        image = pixels_of(Path(query.image))
    except GroundingDataError as error:
        return CannotVerify(reason=str(error))
    points: Sequence[tuple[float, float]] = list(zip(query.xs, query.ys, strict=True))
    found = choose(points, lambda point: verifier.score(image, query.instruction, point), query.stop_at)
    return Chosen(index=found.index, score=found.score, scored=found.scored)
