"""The run of `dartrl explore`: the store, the owner of the exploration graph and the explorers, below a root.

An exploration has a run directory, a record, signals and a supervision tree like every run. So `dartrl tree`,
`dartrl status` and the page show it, and `--resume` continues it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from actors.system import ActorSystem
from dart.config.config import Config
from dart.config.environment_kinds import KINDS
from dart.core.errors import DartError, UsageError
from dart.core.run_directory import RunPaths
from dart.exploration.follower import GraphFollower
from dart.exploration.planning import frontier
from dart.inspect.time_budget import TimeBudget
from dart.run.app import own_directory, refuse_wrong_configuration, take_over_record, watch
from dart.run.listener import RunListener
from dart.run.run_record import prepare_record
from dart.run.signal_counter import SignalCounter
from dart.run.site import drain_s
from dart.run.tree import exploration_children, explorer_names, root_of
from dart.store.reader import StoreReader
from dart.telemetry.events import PRIOR_CONTEXT_REFUSED

CONTINUE = "what was explored is kept, continue with --resume"
"""What to do after a failure of an exploration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorationProgress:
    """How far the exploration of one task has come."""

    task_id: str
    actions: int
    most_actions: int
    screens: int
    shapes: int
    open_screens: int
    """Number of screens with candidates that were never tried: the frontier."""
    edges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorationResult:
    """How an exploration ended."""

    progress: tuple[ExplorationProgress, ...]
    stopped_by: int
    """Number of the signal that ended the exploration; 0 if it ended by itself."""
    contexts_refused: int = 0
    """Number of times since the run began that an engine refused the text about a screen
    (`exploration.prior_context_bytes`)."""


def progress_line(progress: Sequence[ExplorationProgress]) -> str:
    """Describe in one line the first task that has actions left; the last task if none has."""
    one = next((one for one in progress if one.actions < one.most_actions), progress[-1])
    return (
        f"{one.task_id}: action {one.actions} of {one.most_actions}, {one.screens} screens, "
        f"{one.shapes} shapes, {one.open_screens} to expand"
    )


class ProgressLines:
    """Prints the progress of an exploration as lines. A line that has not changed is not printed again."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last = ""

    def __call__(self, progress: Sequence[ExplorationProgress]) -> None:
        line = progress_line(progress)
        if line != self._last:
            self._last = line
            self._say(line)


class ExplorationView:
    """Reads the progress of all tasks from the record."""

    def __init__(self, config: Config, reader: StoreReader) -> None:
        self._settings = config.exploration
        tasks = config.exploration.tasks or config.tasks.train
        self._followers = {
            task_id: GraphFollower(reader, task_id, config.exploration.seed) for task_id in tasks
        }

    def read(self) -> tuple[ExplorationProgress, ...]:
        """Return the present progress of each task."""
        return tuple(self._of(task_id, follower) for task_id, follower in self._followers.items())

    def _of(self, task_id: str, follower: GraphFollower) -> ExplorationProgress:
        follower.follow()
        graph = follower.graph
        return ExplorationProgress(
            task_id=task_id,
            actions=graph.actions,
            most_actions=self._settings.actions,
            screens=len(graph.nodes),
            shapes=len(graph.shapes),
            open_screens=len(frontier(graph, (), self._settings.max_depth)),
            edges=sum(1 for _ in graph.edges()),
        )


def explore(
    config: Config,
    *,
    resume: bool = False,
    show: Callable[[tuple[ExplorationProgress, ...]], None] = lambda _: None,
) -> ExplorationResult:
    """Explore the tasks of `exploration.tasks`; return when all are explored or a signal has ended the run.

    A first signal, or the end of the terminal, drains: explorers complete their present action. A second
    signal ends the run at once.

    resume   continue the exploration in the run directory
    show     called about every second with the progress of each task

    Raises UsageError if the screens of the environments are not web pages; RunDirectoryError if the run
    directory cannot be used; DiskError if data cannot be read or written; TemporaryError if the actors cannot
    be started, a restart budget is spent or the root supervisor hangs; UnavailableError if engines cannot
    load the checkpoint; DartError if the exploration of a task found no screen.
    """
    refuse_without_pages(config)
    with own_directory(config, resume=resume, remedy=CONTINUE) as directory:
        paths = directory.paths
        prepare_record(config, paths)
        session = TimeBudget(paths, config, reserve_s=0.0)
        args = {
            "config": config.model_dump(mode="json"),
            "store": str(paths.record),
            "epoch": take_over_record(config, paths),
        }
        root = root_of(config, exploration_children(config, args))
        listener, names = RunListener(), explorer_names(config)
        with (
            ActorSystem(paths.root, directory.mail, root, prints_reports=False) as system,
            SignalCounter(paths, listener) as signals,
            StoreReader(paths.record) as reader,
        ):
            view = ExplorationView(config, reader)
            watch(
                system,
                session,
                paths,
                signals,
                listener,
                show=lambda: show(view.read()),
                stop=partial(_stop, system),
                stop_deadline_s=partial(drain_s, config, names),
                polls=(lambda: refuse_wrong_configuration(system.board.rows(), names, paths),),
                remedy=CONTINUE,
            )
            progress = view.read()
            show(progress)
            refused = reader.event_counts([PRIOR_CONTEXT_REFUSED]).of_kind.get(PRIOR_CONTEXT_REFUSED, 0)
        _refuse_empty(progress, paths, signals.count)
        return ExplorationResult(progress=progress, stopped_by=signals.last, contexts_refused=refused)


def refuse_without_pages(config: Config) -> None:
    """Raise UsageError if the screens of the configured kind of environment are not web pages."""
    kind = config.environments.kind
    if not KINDS[kind].is_page:
        pages = ", ".join(name for name, one in KINDS.items() if one.is_page)
        raise UsageError(
            f"environments of kind {kind!r} cannot be explored: their screens are not web pages; "
            f"name a task of one of {pages}"
        )


def _stop(system: ActorSystem) -> bool:
    """Ask the tree to end by itself, children first; return True."""
    system.stop()
    return True


def _refuse_empty(progress: tuple[ExplorationProgress, ...], paths: RunPaths, signals: int) -> None:
    """Raise DartError if no screen was found for some task, unless a signal ended the exploration.

    signals   number of signals that the run received
    """
    empty = [one.task_id for one in progress if not one.screens]
    if empty and not signals:
        raise DartError(
            f"the exploration graph of {', '.join(empty)} is empty: its start screen could not be shown. "
            f"The reason is in {paths.logs / 'explorer-000.jsonl'}; check that the site answers, then "
            f"continue with --resume {paths.option}"
        )
