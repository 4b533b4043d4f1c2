"""A curator that gives one lease and an engine that gives written answers, to play one episode with."""

from typing import Any

import psutil

from actors.actor import Actor, Sender, receives
from dart.core import messages as m
from dart.core.types import Generation, RolloutLease

SILENCE_S = 600.0


class OneLeaseCurator(Actor):
    """Gives out the lease once. args: `lease`, its fields."""

    def on_start(self) -> None:
        self._lease: RolloutLease | None = RolloutLease(**self.args["lease"])

    @receives(m.WorkRequest)
    def next_work(self, call: m.WorkRequest, sender: Sender) -> Any:
        lease, self._lease = self._lease, None
        return lease or m.NoWorkYet(retry_after_s=0.2, reason="that was all")

    @receives(m.RolloutStored)
    @receives(m.RolloutParked)
    @receives(m.RolloutFailed)
    def hear(self, call: Any, sender: Sender) -> None:
        """The test looks at the record."""


class WrittenEngine(Actor):
    """Answers the step that comes next; its board row counts the requests as uses.

    args   answers; silent_from: the step from which on it says nothing; version
    """

    @receives(m.Generate)
    async def generate(self, call: m.Generate, sender: Sender) -> Generation:
        number = len(call.request.history)
        self.used()
        if number >= self.args["silent_from"]:
            await self.sleep(SILENCE_S)
        version = self.args["version"]
        return Generation(
            prompt_ids=(1, 2, 3),
            token_ids=(100 * version + number, 2),
            logprobs=(-0.5, -0.25),
            entropies=(0.5, 0.25),
            answer=self.args["answers"][number],
            policy_version=version,
        )


class KillingEngine(WrittenEngine):
    """Kills the browser of env-000 before it answers for the first time the step with this number.

    args   those of WrittenEngine; kill_at: the number of the step, from 0
    """

    def on_start(self) -> None:
        self._has_killed = False

    @receives(m.Generate)
    async def generate(self, call: m.Generate, sender: Sender) -> Generation:
        if len(call.request.history) == self.args["kill_at"] and not self._has_killed:
            self._has_killed = True
            browser_of(self.board.get(self.board.find("env-000"), "pid")).kill()
        return await super().generate(call, sender)


def browser_of(pid: int) -> psutil.Process:
    """The browser that an environment actor started, without its helpers."""
    children = psutil.Process(pid).children(recursive=True)
    return next(
        child for child in children if "chrom" in child.name() and "--type=" not in " ".join(child.cmdline())
    )
