"""What the shell offers when Tab is pressed: names of actors and tasks of the run the command is about.

Read from the board and the configuration of the run without asking an actor. Names that take longer than
`COMPLETION_S` to read are not offered.
"""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread

import typer

from dart.cli.options import chosen

COMPLETION_S = 0.3
"""A shell that does not answer to Tab for longer feels broken."""


def actors(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the actors on the board."""
    return _beginning(incomplete, lambda: _actors_of(_run_dir(context)))


def tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of the run's tasks."""
    return _beginning(incomplete, lambda: _tasks_of(_run_dir(context)))


def _actors_of(run_dir: Path) -> list[str]:
    from dart.inspect.actor_table import read_actors

    return [actor.name for actor in read_actors(run_dir)]


def _tasks_of(run_dir: Path) -> list[str]:
    from dart.inspect.actor_table import written_config

    found: list[str] = written_config(run_dir)["tasks"]["train"]
    return found


def _run_dir(context: typer.Context) -> Path:
    named = context.params.get("run_dir")
    return chosen(Path(named) if named else None)


def _beginning(incomplete: str, names: Callable[[], Iterable[str]]) -> list[str]:
    return [name for name in in_time(names) if name.startswith(incomplete)]


def in_time(names: Callable[[], Iterable[str]], limit_s: float = COMPLETION_S) -> list[str]:
    """What `names` returns, or nothing when it fails or takes too long: Tab is no place for errors."""
    found: list[str] = []

    def read() -> None:
        with contextlib.suppress(Exception):
            found.extend(names())

    reader = Thread(target=read, daemon=True)
    reader.start()
    reader.join(limit_s)
    return list(found)
