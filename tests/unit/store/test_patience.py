"""How long readers wait for a record that is busy. Time is that of a clock that only the test moves."""

from collections.abc import Callable

import pytest

from dart.store.errors import StoreBusy
from dart.store.patience import CONNECT_S, IN_HANDLER, RETRY_S, patiently
from dart.store.postgresql import CONNECTING

SHORTEST_HANG_DEADLINE_S = 8.0


class Waiting:
    """A clock, and work that takes time and raises StoreBusy before it returns "done"."""

    def __init__(self, takes_s: Callable[[int], float], *, busy_times: int = 10**6) -> None:
        self.now_s = 100.0
        self.attempts = 0
        self._takes_s, self._busy_times = takes_s, busy_times

    def patiently(self, wait_s: float) -> str:
        return patiently(self._work, wait_s, clock=lambda: self.now_s, sleep=self._advance)

    def _work(self) -> str:
        self.attempts += 1
        self._advance(self._takes_s(self.attempts))
        if self.attempts <= self._busy_times:
            raise StoreBusy("its server does not answer")
        return "done"

    def _advance(self, seconds: float) -> None:
        self.now_s += seconds


def test_work_is_repeated_until_the_record_is_no_longer_busy() -> None:
    waiting = Waiting(lambda _: 0.0, busy_times=3)
    assert waiting.patiently(5.0) == "done"
    assert waiting.now_s == 100.0 + 3 * RETRY_S


def test_without_patience_there_is_one_attempt() -> None:
    waiting = Waiting(lambda _: 0.0)
    with pytest.raises(StoreBusy):
        waiting.patiently(0.0)
    assert (waiting.attempts, waiting.now_s) == (1, 100.0)


@pytest.mark.parametrize("connect_s", [0.0, 1.0, CONNECT_S])
def test_no_attempt_is_started_that_could_end_after_the_wait(connect_s: float) -> None:
    waiting = Waiting(lambda _: connect_s)
    with pytest.raises(StoreBusy):
        waiting.patiently(IN_HANDLER.open_s)
    assert waiting.attempts > 1
    assert waiting.now_s <= 100.0 + IN_HANDLER.open_s


def test_the_pause_before_an_attempt_counts() -> None:
    waiting = Waiting(lambda _: IN_HANDLER.open_s - CONNECT_S - RETRY_S / 2)
    with pytest.raises(StoreBusy):
        waiting.patiently(IN_HANDLER.open_s)
    assert waiting.attempts == 1


def test_a_handler_that_finds_its_server_lost_ends_before_its_hang_deadline() -> None:
    lost_s = float(str(CONNECTING["tcp_user_timeout"])) / 1000
    waiting = Waiting(lambda attempt: CONNECT_S if attempt > 1 else lost_s + CONNECT_S)
    with pytest.raises(StoreBusy):
        waiting.patiently(IN_HANDLER.read_s)
    assert waiting.now_s < 100.0 + SHORTEST_HANG_DEADLINE_S


def test_a_lost_host_is_noticed_as_soon_by_an_idle_connection_as_by_one_that_sends() -> None:
    idle, interval, count = (
        int(str(CONNECTING[f"keepalives_{name}"])) for name in ("idle", "interval", "count")
    )
    assert (idle + interval * count) * 1000 <= int(str(CONNECTING["tcp_user_timeout"]))
