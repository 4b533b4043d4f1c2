"""Calls of a function in a process of its own, with limits on its memory and its time.

Code that reads untrusted files runs in such a process: a small file of a guest may unpack to a huge one, or
take for ever to read. The child is killed at the deadline, and by the kernel when this process ends. It
receives only the environment variables that it needs, cannot write files, and returns plain values that are
never executed.
"""

import asyncio
import contextlib
import importlib
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack

from actors.process import die_with_parent, exit_reason_of

MOST_MEMORY_BYTES = 4 * 2**30
"""Limit of the address space of a child. Comparing two 4K screenshots takes three quarters of the limit."""

MOST_RESULT_BYTES = 160 * 2**20
READ_BYTES = 2**16
GONE_WITHIN_S = 5.0
"""How long to wait for a killed process to end."""

PATH_TYPE = 1
"""Number of the msgpack extension type for paths."""

ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",  # each thread would take some of the addresses
}


class ChildFailed(Exception):
    """A call in a child process returned no value.

    The message is the rest of a sentence that begins with the function's name."""


async def in_child(
    function: str,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    *,
    deadline_s: float,
    passes_on: Sequence[type[Exception]] = (),
) -> Any:
    """Call ``package.module:function`` in a child process and return its value; tuples come back as lists.

    arguments, options   plain values and paths, like the returned value
    passes_on            exception classes: if the function raises one of them, it is raised here with the
                         same ``args``

    Raises ChildFailed when the call ran out of time or memory, crashed or raised any other exception.
    """
    try:
        request = _packed({"function": function, "arguments": list(arguments), "options": dict(options)})
    except (TypeError, ValueError, OverflowError) as error:
        raise ChildFailed(f"cannot be called in another process: {error}") from error
    process = await _started()
    try:
        async with asyncio.timeout(deadline_s):
            packed = await _exchanged(process, request)
    except TimeoutError:
        raise ChildFailed(f"did not end within {deadline_s:.1f} s and was killed") from None
    finally:
        await _end(process)
    return _value_of(packed, passes_on)


async def _started() -> asyncio.subprocess.Process:
    path = os.pathsep.join(filter(None, sys.path))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-B", "-P", "-m", __name__, str(os.getpid())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**ENVIRONMENT, "PATH": os.defpath, "PYTHONPATH": path},
    )


async def _exchanged(process: asyncio.subprocess.Process, request: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):  # the child ended early; its exit code says why
        process.stdin.write(request)
        await process.stdin.drain()
        process.stdin.close()
    packed = bytearray()
    while part := await process.stdout.read(READ_BYTES):
        packed += part
        if len(packed) > MOST_RESULT_BYTES:
            raise ChildFailed(f"returned more than {MOST_RESULT_BYTES} bytes, the limit of a result")
    await process.wait()
    if process.returncode:
        raise ChildFailed(f"crashed its process ({exit_reason_of(process.returncode)})")
    return bytes(packed)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the child if it still runs, and read its pipe to the end, so that asyncio closes the pipe."""
    assert process.stdout is not None
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GONE_WITHIN_S):
            while await process.stdout.read(READ_BYTES):
                pass
            await process.wait()


def _value_of(packed: bytes, passes_on: Sequence[type[Exception]]) -> Any:
    try:
        found = _unpacked(packed)
        if "value" in found:
            return found["value"]
        raised, arguments, text = found["raised"], found["arguments"], str(found["text"])
    except (KeyError, TypeError, ValueError) as error:
        raise ChildFailed(f"returned a result that cannot be read: {error}") from error
    for kind in passes_on:
        if raised == _name_of(kind):
            raise kind(*arguments)
    raise ChildFailed(f"failed: {text}")


# ---- values between the processes ----


def _packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value, default=_extended, unicode_errors="surrogatepass"))


def _extended(value: Any) -> msgpack.ExtType:
    if isinstance(value, Path):
        return msgpack.ExtType(PATH_TYPE, os.fsencode(value))
    raise TypeError(
        f"{type(value).__name__} is not a plain value; only None, bool, numbers, str, bytes, lists, tables "
        "and paths can be passed between the two processes"
    )


def _unpacked(packed: bytes) -> Any:
    return msgpack.unpackb(packed, ext_hook=_restored, unicode_errors="surrogatepass", strict_map_key=False)


def _restored(kind: int, data: bytes) -> Path:
    if kind != PATH_TYPE:
        raise ValueError(
            f"msgpack extension type {kind} is unknown: only {PATH_TYPE}, a path, passes between processes"
        )
    return Path(os.fsdecode(data))


def _name_of(kind: type[BaseException]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


# ---- inside the child ----


def main(parent_pid: int) -> None:
    """Read one call from stdin and write its result to stdout."""
    die_with_parent(parent_pid)
    limits = {resource.RLIMIT_AS: MOST_MEMORY_BYTES, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))
    results = os.dup(1)
    os.dup2(2, 1)  # keep what a library prints out of the result
    packed = _called(sys.stdin.buffer.read())
    with os.fdopen(results, "wb") as stream:
        stream.write(packed)


def _called(request: bytes) -> bytes:
    """Call the function; return its value or any exception as bytes. Untrusted code runs only in here."""
    try:
        call = _unpacked(request)
        module, _, name = call["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        return _packed({"value": function(*call["arguments"], **call["options"])})
    except MemoryError:
        return _packed_error(MemoryError(f"the call exceeds its limit of {MOST_MEMORY_BYTES // 2**20} MiB"))
    except Exception as error:
        return _packed_error(error)


def _packed_error(error: Exception) -> bytes:
    text = f"{type(error).__name__}: {error}"
    raised = {"raised": _name_of(type(error)), "arguments": list(error.args), "text": text}
    try:
        return _packed(raised)
    except (TypeError, ValueError, OverflowError):
        return _packed(raised | {"arguments": []})


if __name__ == "__main__":
    main(int(sys.argv[1]))
