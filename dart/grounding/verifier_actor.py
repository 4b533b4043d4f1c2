"""The verifier as an actor of its own, with a queue that is bounded.

Receives   Verify (an evaluation)
Waits for  its own worker thread, which runs the model; the mailbox stays answerable meanwhile
Dies when  a query overruns its deadline, or its checkpoint cannot be loaded
On restart it loads its checkpoint again and has an empty queue; evaluations ask again

The verifier takes part in evaluations only. If it chose the points of a training rollout, the rollout would
not be a sample of the policy, and its log-probs would belong to no distribution.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors import Actor, Future, Sender, message, receives
from dart.core.screenspot import GroundingDataError
from dart.grounding.verification import choose

if TYPE_CHECKING:
    from dart.grounding.verifier import Verifier

NAME = "verifier"

QUEUE_MOST = 8
"""Largest number of waiting queries; a further query gets the answer VerifierBusy."""

TURN_AWAY_S = 0.5

START_DEADLINE_S = 600.0
"""Deadline of the verifier's start, which imports torch and loads a checkpoint."""

QUERY_DEADLINE_S = 300.0
"""Deadline of one query: up to forty candidates, each one pass of the model."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Choose among candidates for an instruction. Answered by Chosen, VerifierBusy or CannotVerify."""

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
class VerifierBusy:
    """The queue is full: ask again after `retry_after_s` seconds."""

    retry_after_s: float
    waiting: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class CannotVerify:
    """The query itself is wrong; asking again will not help."""

    reason: str


@dataclass(slots=True)
class WaitingQuery:
    """A query in the queue."""

    query: Verify
    answer: Future[Any] = field(default_factory=Future)


class VerifierActor(Actor):
    """Answers one query at a time, in their order. args: `checkpoint`, and `queue_most` if not QUEUE_MOST."""

    async def on_start(self) -> None:
        folder = Path(self.args["checkpoint"])
        self._most = int(self.args.get("queue_most", QUEUE_MOST))
        self._waiting: deque[WaitingQuery] = deque()
        self._is_serving = False
        self._verifier: Verifier = await self.in_thread(
            lambda: self._load(folder), name="load", deadline_s=START_DEADLINE_S
        )

    def _load(self, folder: Path) -> "Verifier":
        from dart.grounding.verifier import load_verifier

        return load_verifier(folder)

    @receives(Verify)
    async def verify(self, query: Verify, sender: Sender) -> Chosen | VerifierBusy | CannotVerify:
        """Queue a query and return its answer; return VerifierBusy when the queue is full."""
        if not query.xs or len(query.xs) != len(query.ys):
            return CannotVerify(
                reason=f"expected as many xs as ys, and at least one, got {len(query.xs)} and {len(query.ys)}"
            )
        if len(self._waiting) >= self._most:
            return VerifierBusy(retry_after_s=TURN_AWAY_S, waiting=len(self._waiting))
        one = WaitingQuery(query)
        self._waiting.append(one)
        if not self._is_serving:
            self.run(self._serve())
        answer: Chosen | CannotVerify = await one.answer
        return answer

    async def _serve(self) -> None:
        self._is_serving = True
        while self._waiting:
            one = self._waiting.popleft()
            query = one.query
            answer = await self.in_thread(
                lambda query=query: answered(self._verifier, query),  # type: ignore[misc]
                name="verify",
                deadline_s=QUERY_DEADLINE_S,
            )
            one.answer.succeed(answer)
        self._is_serving = False


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
