"""The trainer of a run that only measures: it holds no model and ends when the run is over."""

from actors.actor import Actor
from actors.errors import AskError, MailboxFull
from dart.core import messages as m

PAUSE_S = 0.2


class NoTrainingActor(Actor):
    """Takes the place of the trainer actor, but trains nothing; ends normally when the curator says that the
    run is over."""

    def on_start(self) -> None:
        self.after(0.0, self._wait_until_over)

    async def _wait_until_over(self) -> None:
        while not self.is_stopping:
            try:
                reply = await self.ask("curator", m.BatchRequest(), deadline_s=20.0)
            except (AskError, MailboxFull) as error:
                self.log.info("no_curator", reason=str(error))
                await self.sleep(PAUSE_S)
                continue
            if isinstance(reply, m.RunOver):
                self.stop()
                return
            assert isinstance(reply, m.NoWorkYet), f"a run that only measures got the batch {reply!r}"
            await self.sleep(reply.retry_after_s)
