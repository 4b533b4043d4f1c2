"""Holds frames of sessions that the leader has not announced yet, for a moment and within bounds."""

from collections import deque

EARLY_FRAMES = 256
"""The most frames that are held for one host."""

EARLY_BYTES = 16 * 1024 * 1024
"""The most bytes that are held for all hosts together."""


class EarlyFrames:
    """The frames that are held, by the host that sent them. Not thread-safe."""

    def __init__(self) -> None:
        self._held: dict[str, deque[tuple[float, bytes]]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def hold(self, host: str, data: bytes, now_s: float) -> bool:
        """Keep a frame; False when there is no room for it."""
        held = self._held.get(host, deque())
        if len(held) >= EARLY_FRAMES or self._bytes + len(data) > EARLY_BYTES:
            return False
        held.append((now_s, data))
        self._held[host] = held
        self._bytes += len(data)
        return True

    def take(self, host: str) -> list[bytes]:
        """Return the held frames of a host, in the order they came, and hold them no longer."""
        frames = [data for _, data in self._held.pop(host, ())]
        self._bytes -= sum(map(len, frames))
        return frames

    def drop_older(self, than_s: float) -> int:
        """Drop the frames that came before the moment `than_s`; return their number."""
        dropped = 0
        for host, held in list(self._held.items()):
            while held and held[0][0] < than_s:
                self._bytes -= len(held.popleft()[1])
                dropped += 1
            if not held:
                del self._held[host]
        return dropped
