"""Refuses replayed frames: each sender incarnation numbers its frames upwards. Memory is bounded."""

SENDERS_KNOWN = 4096
"""The number of sender incarnations whose last number is kept."""


class ReplayGuard:
    """Tells new frames from replayed ones.

    Senders take their numbers from the host's monotonic clock. When more than SENDERS_KNOWN senders have
    written, those that were silent longest share one bound: the highest last number among them. A replayed
    frame is not above it. A new frame is, unless it waited unread while that many other senders wrote after
    it; then it is refused, too.
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
