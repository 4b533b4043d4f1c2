"""Invariant ask-ends, whatever becomes of the asked, in whatever order: every ask ends by its deadline."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.actor import Actor, Sender, Stop, receives
from actors.asks import LIVENESS_CHECK_S
from actors.codec import message
from actors.errors import AskError, MailboxFull
from actors.future import Future
from actors.testing import InMemorySystem
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.supervisor import Supervisor, supervisor_args
from tests.examples import examples

NAMES = ("a", "b", "c")
DEADLINE_S = 3.0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Answered by itself after a while, on the way asking others if there are any."""

    after_s: float
    via: tuple[str, ...] = ()


class Oracle(Actor):
    @receives(Question)
    async def answer(self, call: Question, sender: Sender) -> Question:
        await self.sleep(call.after_s)
        if call.via:
            try:
                await self.ask(
                    call.via[0], Question(after_s=call.after_s, via=call.via[1:]), deadline_s=DEADLINE_S
                )
            except (AskError, MailboxFull):
                return Question(after_s=-1.0)
        return call


names = st.sampled_from(NAMES)
events = st.one_of(
    st.tuples(st.just("ask"), names, st.sampled_from((0.0, 0.5, 9.0)), st.lists(names, max_size=2)),
    st.tuples(st.just("kill"), names),
    st.tuples(st.just("exit"), names),
    st.tuples(st.just("stop"), names),
    st.tuples(st.just("hang"), names),
    st.tuples(st.just("resume"), names),
    st.tuples(st.just("wait"), st.sampled_from((0.0, 0.1, 1.0, 5.0))),
)


def happens(bench: InMemorySystem, event: tuple[object, ...], asked: list[Future[object]]) -> None:
    match event:
        case ("ask", str(name), float(after_s), list(via)):
            asked.append(bench.ask(name, Question(after_s=after_s, via=tuple(via)), deadline_s=DEADLINE_S))
        case ("wait", float(seconds)):
            bench.advance(seconds)
        case ("stop", str(name)):
            bench.tell(name, Stop())
        case (str(what), str(name)) if bench.is_alive(name):
            {
                "kill": bench.kill,
                "exit": lambda n: bench.exit(n, 7),
                "hang": bench.hang,
                "resume": bench.resume,
            }[what](name)


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32), story=st.lists(events, min_size=1, max_size=15))
def test_every_ask_ends_by_its_deadline_whatever_becomes_of_the_asked(
    seed: int, story: list[tuple[object, ...]]
) -> None:
    children = tuple(
        ChildSpec(id=name, actor=f"{__name__}:Oracle", hang_deadline_s=1.0, shutdown_s=1.0) for name in NAMES
    )
    flags = SupervisorFlags(ordered=False, max_restarts=1000)
    with (
        tempfile.TemporaryDirectory() as folder,
        InMemorySystem(Path(folder), seed=seed, live_children=True) as bench,
    ):
        bench.start(Supervisor, "sup", supervisor_args(flags, children))
        bench.advance(0.5)
        asked: list[Future[object]] = []
        for event in story:
            happens(bench, event, asked)
        bench.advance(DEADLINE_S + 2 * LIVENESS_CHECK_S)
        assert [ask for ask in asked if not ask.is_done] == []
