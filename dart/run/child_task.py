"""Do work in a separate Python process.

The main process of a run forks, so it must not use libraries that start threads, such as clients of object
storage. Work that needs them runs in a process of its own.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from actors.process import die_with_parent
from dart.core.errors import TemporaryError
from dart.core.module_command import module_command
from dart.training.distributed_learner import CommandFailure

T = TypeVar("T")

DEADLINE_S = 3600.0
"""Default time limit for the work. It is long enough to fetch a checkpoint of many gigabytes."""

STORAGE_REMEDY = "check that the object storage of run.blobs answers, then start the command again"


class ChildTaskEnded(RuntimeError):
    """The separate process ended without a result: it was killed, or has a defect."""


def in_fresh_process(
    work: Callable[[], T], *, deadline_s: float = DEADLINE_S, remedy: str = STORAGE_REMEDY
) -> T:
    """Do `work` in a separate process, and return its result or raise its error.

    The work and its result must be picklable. Signals of the terminal, such as Ctrl-C, do not reach the
    process.

    deadline_s   seconds after which the process is killed
    remedy       what the operator can do if the deadline passes; part of the error's message

    Raises TemporaryError if the work takes longer than `deadline_s`, and ChildTaskEnded if the process ends
    without a result.
    """
    task = pickle.dumps(work)
    name = getattr(work, "func", work).__name__  # arguments may be a whole configuration
    try:
        ended = subprocess.run(
            (*module_command("dart.run.child_task"), str(os.getpid())),
            input=task,
            stdout=subprocess.PIPE,
            check=False,
            timeout=deadline_s,
            start_new_session=True,  # Ctrl-C is for the process that asks, which ends this one
        )
    except subprocess.TimeoutExpired as error:
        raise TemporaryError(f"{name} was not done within {deadline_s:g} s: {remedy}") from error
    if ended.returncode:
        raise ChildTaskEnded(f"the process that was started for {name} ended with code {ended.returncode}")
    result: Any = pickle.loads(ended.stdout)
    if isinstance(result, CommandFailure):
        raise result.error()
    done: T = result
    return done


def main() -> None:
    """Read pickled work from standard input, do it, and write its result or error to standard output."""
    die_with_parent(int(sys.argv[1]))
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no result
    work: Callable[[], Any] = pickle.load(sys.stdin.buffer)
    try:
        result = work()
    except Exception as error:  # it is raised again in the process that asked
        result = CommandFailure.of(error)
    with output:
        pickle.dump(result, output)


if __name__ == "__main__":
    main()
