"""Malformed requests into the control socket of a running run, by the hundred thousand.

Noise, real requests cut short or with one byte changed, maps with keys and values that no request has,
nesting without end, frames over the limit. What is held: every one is refused in words or hung up on; nobody
dies or is restarted; no answer holds the run's key; the main process gains neither memory, descriptors nor
threads; the endpoint answers.

``dartrl up configs/laptop.toml --detach`` and then ``python -m benchmarks.control_fuzz runs/laptop`` prints
what came of 100,000 frames and exits with 1 when something does not hold.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from actors.board import Board
from dart.core.run_directory import RunPaths, holder
from dart.run.control_protocol import (
    MAX_FRAME_BYTES,
    ControlOutcome,
    Drain,
    Malformed,
    Pause,
    Ping,
    RestartActor,
    Scale,
    StopActor,
    decode_answer,
    decode_request,
    encode,
)
from dart.run.control_socket import connect, request

PATIENCE_S = 10.0
GROWTH_KIB = 8192
LAST_CONNECTIONS = 2
"""May still be about to be closed."""

REAL = tuple(
    encode(call)
    for call in (
        Ping(),
        RestartActor(name="env-000"),
        StopActor(name="env-000"),
        Pause(),
        Drain(),
        Scale(environments=9),
    )
)


def malformed(draw: random.Random) -> Iterator[bytes]:
    """Frames without end, none of which is a request."""
    while True:
        frame = _frame(draw)
        try:
            decode_request(frame)
        except Malformed:
            yield frame


def _frame(draw: random.Random) -> bytes:
    real = draw.choice(REAL)
    place = draw.randrange(len(real))
    match draw.randrange(6):
        case 0:
            return draw.randbytes(draw.randrange(1, 300))
        case 1:
            return real[: place + 1]
        case 2:
            return real[:place] + draw.randbytes(1) + real[place + 1 :]
        case 3:
            verb = draw.choice(("ping", "restart", "scale", "exec"))
            return msgspec.msgpack.encode({"do": verb, "environments": draw.choice((0, -1, 10**6, "9", [1]))})
        case 4:
            return b"\x91" * draw.randrange(1, 9000)
        case _:
            return draw.randbytes(draw.choice((MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1, 60_000)))


def fuzz(paths: RunPaths, frames: int, seed: int) -> dict[str, object]:
    """Send so many; what came of them, and what does not hold."""
    process = psutil.Process(holder(paths.root) or 0)
    before, actors = _size(process), _actors(paths)
    key = paths.key.read_bytes()
    outcomes: Counter[str] = Counter()
    for frame, _ in zip(malformed(random.Random(seed)), range(frames), strict=False):
        outcomes[_sent(paths, frame, key)] += 1
    after = _size(process)
    wrong = [name for name in outcomes if name not in (ControlOutcome.REFUSED.value, "hung up on")]
    wrong += [] if _actors(paths) == actors else ["an actor is gone or another"]
    wrong += [] if after[0] - before[0] <= GROWTH_KIB else ["its memory grew"]
    wrong += [] if after[1] <= before[1] + LAST_CONNECTIONS else ["it holds more descriptors"]
    wrong += [] if after[2] == before[2] else ["it holds more threads"]
    answers = request(paths.root, Ping(wait_ms=10_000)).outcome is ControlOutcome.DONE
    wrong += [] if answers else ["it does not answer any more"]
    sizes = dict(zip(("kib", "descriptors", "threads"), zip(before, after, strict=True), strict=True))
    return {"frames": frames, "outcomes": outcomes, "before_after": sizes, "wrong": wrong}


def _sent(paths: RunPaths, frame: bytes, key: bytes) -> str:
    try:
        with connect(paths.control, PATIENCE_S) as connection:
            connection.send(frame)
            answer = connection.recv(1 << 16)
    except ConnectionError:
        return "hung up on"
    if key in answer:
        return "the key was told"
    return decode_answer(answer).outcome.value if answer else "hung up on"


def _size(process: psutil.Process) -> tuple[int, int, int]:
    return process.memory_info().rss // 1024, process.num_fds(), process.num_threads()


def _actors(paths: RunPaths) -> dict[str, tuple[int, str]]:
    board = Board(paths.board)
    found = {row.name: (row.incarnation, row.state.value) for row in board.rows() if row.parent}
    board.close()
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description="Malformed requests into a run's control socket.")
    arguments.add_argument("run_dir", type=Path)
    arguments.add_argument("--frames", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    found = fuzz(RunPaths(chosen.run_dir), chosen.frames, chosen.seed)
    print(json.dumps(found, indent=1))
    sys.exit(1 if found["wrong"] else 0)


if __name__ == "__main__":
    main()
