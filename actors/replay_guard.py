"""Which frames were there before: a number per sender incarnation that only grows, in bounded memory."""

SENDERS_KNOWN = 4096
"""Sender incarnations of which the last number is known exactly; there are 1024 names on a board."""


class ReplayGuard:
    """Tells a frame that was there before from one that is new.

    Senders take their numbers from the host's monotonic clock. Of a sender that was silent for longer than
    SENDERS_KNOWN others, only a bound is kept that all such senders share: the highest last number among
    them. Whoever has not written for so long is long past it; a frame from before it is refused.
    """

    def __init__(self, senders_known: int = SENDERS_KNOWN) -> None:
        self._senders_known = senders_known
        self._last: dict[tuple[str, int], int] = {}
        self._floor = 0

    def is_new(self, sender: str, incarnation: int, sequence: int) -> bool:
        """True once for every number, and only for numbers above the last one of that sender incarnation."""
        key = sender, incarnation
        last = self._last.pop(key, self._floor)
        self._last[key] = max(last, sequence)  # put back at the end: the front was silent longest
        if len(self._last) > self._senders_known:
            silent_longest = next(iter(self._last))
            self._floor = max(self._floor, self._last.pop(silent_longest))
        return sequence > last
