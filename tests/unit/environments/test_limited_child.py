"""What is not trusted is read in a process that ends: by its answer, its memory or its deadline."""

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest

from dart.environments import limited_child
from dart.environments.limited_child import ChildFailed, in_child
from tests.unit.environments.called_in_children import Odd

MODULE = "tests.unit.environments.called_in_children"


async def called(function: str, *arguments: Any, deadline_s: float = 60.0, **options: Any) -> Any:
    return await in_child(
        f"{MODULE}:{function}", arguments, options, deadline_s=deadline_s, passes_on=(Odd, KeyError)
    )


async def test_values_and_paths_go_there_and_come_back() -> None:
    value = [None, 1.5, "é\ud800", b"\xff", {"a": [Path("/x"), True]}, -(2**63)]
    assert await called("echo", *value, strict=True) == [*value, {"strict": True}]


async def test_a_function_that_takes_more_memory_than_it_may_fails_and_this_process_does_not() -> None:
    assert await called("takes_memory", 10) == 10
    with pytest.raises(ChildFailed, match=r"MemoryError: the call exceeds its limit of 4096 MiB"):
        await called("takes_memory", 5 * 2**30)


async def test_a_function_that_does_not_end_is_killed_at_its_deadline() -> None:
    with pytest.raises(ChildFailed, match=r"did not end within 0\.5 s and was killed"):
        await called("takes_time", deadline_s=0.5)
    assert not _children()


async def test_a_call_that_is_given_up_leaves_no_process() -> None:
    call = asyncio.create_task(called("takes_time"))
    while not _children():  # noqa: ASYNC110 - a process, which sets no event
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not _children()


def _children() -> list[psutil.Process]:
    """Those that run a function; others may still be seen for a moment."""
    name = limited_child.__name__
    return [one for one in psutil.Process().children() if name in _command(one)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("raises", "failed: RuntimeError: <object object"),
        ("crashes", "crashed its process .SIGSEGV."),
        ("not_there", "failed: AttributeError"),
    ],
)
async def test_whatever_a_function_raises_is_told(function: str, says: str) -> None:
    with pytest.raises(ChildFailed, match=says):
        await called(function)


async def test_exceptions_that_are_passed_on_are_raised_as_they_were() -> None:
    with pytest.raises(Odd, match="odd") as raised:
        await called("refuses", Path("/x"))
    assert raised.value.path == Path("/x")


async def test_it_writes_no_files_and_knows_no_variables_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ChildFailed, match="File too large"):
        await called("writes", tmp_path / "file")
    monkeypatch.setenv("DARTRL_POOL_TOKEN", "secret")
    found = await called("surroundings")
    assert set(found["variables"]) <= {*limited_child.ENVIRONMENT, "PATH", "PYTHONPATH", "LC_CTYPE"}


async def test_a_result_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_child, "MOST_RESULT_BYTES", 2**20)
    assert len(await called("large", 2**19)) == 2**19
    with pytest.raises(ChildFailed, match="returned more than 1048576 bytes"):
        await called("large", 2**24)


async def test_what_is_no_plain_value_is_not_sent() -> None:
    with pytest.raises(ChildFailed, match="object is not a plain value; only None, bool"):
        await called("echo", object())
