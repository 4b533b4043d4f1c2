"""ZeroMQ alone: two forked processes, unix sockets, no names, no signatures, no decoding."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import zmq

from benchmarks.peers import protocol

REASONS = dict.fromkeys(("restart", "hang", "idle"), "ZeroMQ carries messages; it starts no processes")


def _child(endpoint: str) -> None:
    """Answers texts and paths; counts items until one is empty."""
    socket = zmq.Context().socket(zmq.PAIR)
    socket.connect(endpoint)
    handled = 0
    while True:
        kind, content = (frame := socket.recv())[:1], frame[1:]
        if kind == b"i":
            handled += 1
        elif kind == b"n":
            socket.send(str(handled).encode())
        elif kind == b"p":
            socket.send(str(len(Path(content.decode()).read_bytes())).encode())
        else:
            socket.send(frame)


def messages(params: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"ipc://{folder}/pair"
        child = os.fork()
        if not child:
            _child(endpoint)
        socket = zmq.Context().socket(zmq.PAIR)
        socket.bind(endpoint)
        both = (os.getpid(), child)
        return (
            _round_trips(socket, both, params["round_trips"])
            | _stream(socket, both, params["stream"])
            | _references(socket, params["references"])
        )


def _round_trips(socket: "zmq.Socket[bytes]", both: tuple[int, int], count: int) -> dict[str, Any]:
    payload, times_us = b"t" + protocol.PAYLOAD.encode(), []
    for _ in range(100):
        socket.send(payload)
        socket.recv()
    cpu_s = protocol.cpu_s(both)
    for _ in range(count):
        began_ns = time.perf_counter_ns()
        socket.send(payload)
        socket.recv()
        times_us.append((time.perf_counter_ns() - began_ns) / 1000)
    used_s = protocol.cpu_s(both) - cpu_s
    return {"round_trip_us": times_us, "round_trip_cpu_us": 1e6 * used_s / (2 * count)}


def _stream(socket: "zmq.Socket[bytes]", both: tuple[int, int], count: int) -> dict[str, Any]:
    payload = b"i" + protocol.PAYLOAD.encode()
    cpu_s, began_s = protocol.cpu_s(both), time.perf_counter()
    for _ in range(count):
        socket.send(payload)
    socket.send(b"n")
    handled = int(socket.recv())
    seconds = time.perf_counter() - began_s
    if handled != count:
        raise RuntimeError(f"{handled} of {count} messages were handled")
    return {"stream_per_s": count / seconds, "stream_cpu_us": 1e6 * (protocol.cpu_s(both) - cpu_s) / count}


def _references(socket: "zmq.Socket[bytes]", count: int) -> dict[str, Any]:
    blob, times_us = os.urandom(protocol.BLOB_BYTES), []
    for n in range(count):
        began_ns = time.perf_counter_ns()
        path = protocol.SHARED_MEMORY / f"benchmark-{os.getpid()}-{n}"
        path.write_bytes(blob)
        socket.send(b"p" + str(path).encode())
        socket.recv()
        times_us.append((time.perf_counter_ns() - began_ns) / 1000)
        path.unlink()
    return {"reference_us": times_us}


if __name__ == "__main__":
    protocol.serve({"messages": messages}, REASONS, lambda: f"pyzmq {zmq.__version__}")
