"""The board read while somebody writes: a reader must never see a number that nobody wrote."""

import os
import signal
from pathlib import Path

from actors.board import ActorState, Board, Heartbeat

READS = 60_000


def test_no_number_is_ever_seen_half_written(tmp_path: Path) -> None:
    """Packing zeroes a field before it fills it: a reader took a busy actor for one that never beat."""
    board = Board.create(tmp_path / "board")
    slot = board.claim("a", "root")
    pulse = Heartbeat(board, slot)
    pulse.busy("something")
    board.set_state(slot, ActorState.RUNNING, incarnation=7, started_unix_s=1.5)
    writer = os.fork()
    if writer == 0:
        while True:
            pulse.busy("something")
            pulse.idle()
            board.set_state(slot, ActorState.RUNNING, incarnation=7, started_unix_s=1.5)
    try:
        seen = {
            (board.get(slot, "beat_ns") > 0, board.state(slot), board.get(slot, "incarnation"))
            for _ in range(READS)
        }
        floats = {board.get(slot, "started_unix_s") for _ in range(READS)}
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        board.close()
    assert seen == {(True, ActorState.RUNNING, 7)}
    assert floats == {1.5}
