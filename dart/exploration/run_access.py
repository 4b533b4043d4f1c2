"""Gives an explorer access to its run, through its actor: to the owner of the graph, blobs and engines."""

from collections.abc import Awaitable
from typing import TypeVar

from actors.actor import Actor
from actors.errors import AskError, MailboxFull
from dart.config.config import Config
from dart.core import messages as m
from dart.core.exploration import LeaseEnd, PageScreen
from dart.core.types import GenerateRequest
from dart.environments.call_watch import CallWatch
from dart.environments.policy_client import NoEngineAnswered, PolicyClient, RequestRejected
from dart.exploration.model_prior import INSTRUCTION, ModelPrior
from dart.exploration.prior_context import PriorContext
from dart.store.disk_wait import put_blob
from dart.store.run_blobs import run_blobs
from dart.telemetry.emit import Data, emit
from dart.telemetry.events import PRIOR_CONTEXT_REFUSED

T = TypeVar("T")

OWNER = "exploration"

ASK_DEADLINE_S = 30.0
"""Deadline in seconds of a request to the owner. The owner writes to the record before it answers, and
answers one explorer after the other."""

REPORT_PATIENCE_S = 120.0
"""Time in seconds for which a report is repeated while the owner does not answer."""

RETRY_S = 0.5


class OwnerAway(Exception):
    """The owner of the graph did not answer for `REPORT_PATIENCE_S`."""


class ActorRunAccess:
    """`RunAccess` of an explorer, implemented with messages of its actor.

    watch   notices a call of the environment that does not return; the actor checks it
    """

    def __init__(self, actor: Actor, config: Config, prior: ModelPrior, watch: CallWatch) -> None:
        self._actor, self._config, self._prior, self._watch = actor, config, prior, watch
        self._screenshots = run_blobs(config.run, actor.identity.run_dir).screenshots
        self._policy = PolicyClient(actor, config)

    async def lease(
        self, task_id: str, seed: int, at: int | None
    ) -> m.ExplorationLease | m.NoWorkYet | m.ExplorationOver:
        """Ask the owner for a lease; return NoWorkYet if the owner does not answer."""
        request = m.ExploreRequest(
            explorer=self._actor.identity.name,
            incarnation=self._actor.identity.incarnation,
            task_id=task_id,
            seed=seed,
            at=at,
        )
        try:
            reply: m.ExplorationLease | m.NoWorkYet | m.ExplorationOver = await self._actor.ask(
                OWNER, request, deadline_s=ASK_DEADLINE_S
            )
        except (AskError, MailboxFull) as error:
            return m.NoWorkYet(retry_after_s=RETRY_S, reason=str(error))
        return reply

    async def report(self, report: m.ExploredReport) -> m.ExploredReply:
        """Send a report to the owner, again and again until it is recorded, and return the reply.

        Raises OwnerAway after `REPORT_PATIENCE_S` without an answer; NoWorkYet counts as an answer.
        """
        gives_up_s = self._actor.clock.monotonic_s() + REPORT_PATIENCE_S
        while True:
            try:
                reply = await self._actor.ask(OWNER, report, deadline_s=ASK_DEADLINE_S)
                gives_up_s = self._actor.clock.monotonic_s() + REPORT_PATIENCE_S
            except (AskError, MailboxFull) as error:
                reply = m.NoWorkYet(retry_after_s=RETRY_S, reason=str(error))
            if isinstance(reply, m.ExploredReply):
                return reply
            if self._actor.clock.monotonic_s() >= gives_up_s:
                raise OwnerAway(
                    "the owner of the exploration graph did not answer for "
                    f"{REPORT_PATIENCE_S:g} s: {reply.reason}"
                )
            await self._actor.sleep(reply.retry_after_s)

    def give_back(self, fence: int, why: LeaseEnd) -> None:
        """Tell the owner that a lease has ended. If the message is lost, the lease ends at its deadline."""
        self._actor.tell(OWNER, m.GiveBackLease(fence=fence, why=why))

    async def keep_screenshot(self, png: bytes) -> None:
        """Store a screenshot as a blob. Waits while the disk is full."""
        await put_blob(self._actor, self._screenshots, "screenshots", png)

    async def know_prior(self, screen_id: int, screen: PageScreen, context: PriorContext) -> None:
        """Ask the policy for its answers on a screen and set the priors of the screen, if this is due.

        If the engine refuses the context, for instance because the prompt is too long, the policy is asked
        without it. If no engine answers, the priors stay as they are.
        """
        if not self._prior.is_due(screen_id, context.tried):
            return
        answers, refusal = await self._answers(screen_id, screen, context.text)
        if refusal and context.text:
            size = len(context.text.encode())
            data: Data = {"screen": screen_id, "bytes": size, "reason": refusal}
            emit(self._actor, PRIOR_CONTEXT_REFUSED, self._actor.identity.name, data)
            answers, refusal = await self._answers(screen_id, screen, "")
        if refusal:
            self._actor.log.warning("no_prior", screen=screen_id, reason=refusal)
        self._prior.learn(screen_id, answers, screen, context.tried)

    async def _answers(self, screen_id: int, screen: PageScreen, context: str) -> tuple[list[str], str]:
        """Return the policy's answers on a screen, and why an engine refused the request; empty if none did.

        context   text that follows the instruction
        """
        request = GenerateRequest(
            screenshot_sha256=screen.screenshot_sha256,
            instruction=INSTRUCTION + context,
            history=(),
            temperature=self._config.rollout.temperature,
        )
        asked = [self._policy.answer(request) for _ in range(self._config.exploration.prior_samples)]
        answers: list[str] = []
        refusal = ""
        for one in asked:
            try:
                answers.append((await one).answer)
            except RequestRejected as error:
                refusal = str(error)
            except NoEngineAnswered as error:
                self._actor.log.warning("no_prior", screen=screen_id, reason=str(error))
        return answers, refusal

    async def in_environment(self, call: str, work: Awaitable[T]) -> T:
        """Run a coroutine of the environment in the asyncio loop of the actor, and return its result.

        call   name of the method that is called, which the error of a call that does not return names
        Raises InfrastructureFault for a TimeoutError.
        """
        with self._watch.during(call):
            return await self._actor.in_loop(work)  # type: ignore[arg-type]

    async def pause(self, seconds: float) -> None:
        """Wait for a number of seconds of the actor's clock."""
        await self._actor.sleep(seconds)

    def still_working(self) -> None:
        """Show on the board that a long computation makes progress."""
        self._actor.still_working()
