"""Functions that tests call in processes of their own."""

import ctypes
import os
import resource
import time
from pathlib import Path
from typing import Any


class Odd(ValueError):
    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path, why)
        self.path = path


def echo(*values: Any, **options: Any) -> Any:
    print("no answer")
    return [*values, options]


def takes_memory(size: int) -> int:
    return len(b"x" * size)


def takes_time() -> None:
    time.sleep(60)


def refuses(path: Path) -> None:
    raise Odd(path, "odd")


def raises() -> None:
    raise RuntimeError(object())


def crashes() -> None:
    ctypes.string_at(0)


def writes(path: Path) -> None:
    path.write_text("written by a guest's file")


def surroundings() -> dict[str, Any]:
    return {"variables": sorted(os.environ), "pid": os.getpid(), "core": resource.RLIMIT_CORE}


def large(size: int) -> bytes:
    return b"x" * size
