"""A supervised tree from one function call, for scripts, notebooks and tests.

with supervised(worker("counter", Counter)) as system:
    system.ask("counter", Increment(by=2))
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors.actor import Actor
from actors.board import SLOTS, ActorState
from actors.codec import module_name_of
from actors.errors import ActorDied, ActorError, NotReady
from actors.process import fill_standard_streams
from actors.scratch import scratch_folder
from actors.system import LONGEST_MAIL_DIR_BYTES, ActorSystem, RootSpec
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.errors import InvalidChildSpec, TreeGaveUp, TreeNotStarted
from supervision.supervisor import supervisor_args

ROOT = "root"
STOP_AGAIN_S = 1.0
"""How often a tree is asked to stop until it has ended, in case its root's mailbox was full."""

ROOT_SILENT_S = 10.0
"""A root that gives no sign of life for this long while it stops is killed with its tree."""


def worker(
    id_: str, actor: type[Actor] | str, args: Mapping[str, Any] | None = None, **fields: Any
) -> ChildSpec:
    """A child spec from an actor's class, or from its path `module:Class`.

    A new process imports the class by its module's name. That works for a class in the script that is run as
    well, as long as the script starts its tree below `if __name__ == "__main__"`.
    Raises InvalidChildSpec for a class that is no Actor, or that is not at the top of its module.
    """
    path = actor if isinstance(actor, str) else _path_of(id_, actor)
    return ChildSpec(id=id_, actor=path, args=args or {}, **fields)


def _path_of(id_: str, actor: type[Actor]) -> str:
    if not (isinstance(actor, type) and issubclass(actor, Actor)):
        raise InvalidChildSpec(
            f"child {id_!r}: actor must be a subclass of Actor, or its path 'module:Class', got {actor!r}"
        )
    if "." in actor.__qualname__:
        raise InvalidChildSpec(
            f"child {id_!r}: actor {actor.__qualname__!r} is defined inside a class or function, where a new "
            "process cannot import it; move it to the top of its module"
        )
    return f"{module_name_of(actor)}:{actor.__qualname__}"


@contextmanager
def supervised(
    *children: ChildSpec,
    flags: SupervisorFlags | None = None,
    run_dir: Path | None = None,
    start_deadline_s: float = 60.0,
    print_reports: bool = True,
    rows: int = SLOTS,
) -> Iterator[ActorSystem]:
    """Run children under a root supervisor while the block lasts; no process of theirs outlives it.

    flags             the root's flags; None: Elixir's defaults (one_for_one, 3 restarts in 5 s)
    run_dir           directory for logs, reports and crash files; None: a temporary folder
    start_deadline_s  seconds within which the children must be ready
    print_reports     whether a supervisor also prints to the standard error why a child ended
    rows              rows of the board: the largest number of actors, those of other hosts included

    When the block is left, also by an error or Ctrl-C, children are asked to stop within their `shutdown_s`.
    Raises TreeNotStarted, with the reason, when the children are not ready within start_deadline_s, and
    TreeGaveUp at the end of the block when the tree ended by itself before its work was done.
    """
    fill_standard_streams()  # before anything is opened
    with scratch_folder(LONGEST_MAIL_DIR_BYTES - len("/mail")) as folder:
        home = folder if run_dir is None else run_dir.absolute()
        home.mkdir(parents=True, exist_ok=True)
        (folder / "mail").mkdir()
        root = RootSpec(
            name=ROOT,
            actor="supervision.supervisor:Supervisor",
            args=supervisor_args(flags or SupervisorFlags(), children),
        )
        with ActorSystem(
            home,
            folder / "mail",
            root,
            start_deadline_s=start_deadline_s,
            prints_reports=print_reports,
            rows=rows,
        ) as system:
            _await_ready(system, start_deadline_s)
            yield from _while_it_runs(system)


def _while_it_runs(system: ActorSystem) -> Iterator[ActorSystem]:
    """Run the block, then ask the tree to stop. Raises TreeGaveUp if the tree had ended by itself."""
    try:
        yield system
    except BaseException as error:
        _stop(system)
        if failure := system.failure():
            if isinstance(error, ActorError):
                raise TreeGaveUp(failure) from error
            error.add_note(f"the tree had ended: {failure}")
        raise
    _stop(system)
    if failure := system.failure():
        raise TreeGaveUp(failure)


def _stop(system: ActorSystem) -> None:
    """Ask the tree to stop, and wait until it has; its root kills each child that exceeds its `shutdown_s`.

    Return early if the root gives no sign of life.
    """
    system.stop()
    while not system.wait(STOP_AGAIN_S) and system.root_beat_age_s() < ROOT_SILENT_S:
        system.stop()


def _await_ready(system: ActorSystem, deadline_s: float) -> None:
    try:
        system.await_ready(ROOT, deadline_s=deadline_s)
    except ActorDied as death:
        raise TreeNotStarted(system.failure() or str(death)) from None
    except NotReady:
        waiting = [row.name for row in system.board.rows() if row.state is ActorState.STARTING]
        raise TreeNotStarted(
            f"the actors {waiting} were not ready within {deadline_s:g} s; "
            "read their logs or raise start_deadline_s"
        ) from None
