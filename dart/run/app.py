"""Start a run, watch it and read its result when it has ended. Its supervision tree is in `dart.run.tree`."""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from actors.board import ActorState, Vitals
from actors.errors import SystemStartFailed
from actors.system import ActorSystem, RootSpec
from dart.config.config import Config
from dart.core.errors import (
    ConfigurationError,
    DartError,
    DiskError,
    RunDirectoryError,
    TemporaryError,
    UnavailableError,
)
from dart.core.run_directory import RunDirectory, RunPaths, claimed, keep_config
from dart.curation.run_phases import RunPlan
from dart.inspect.evaluation_scores import final_report
from dart.inspect.exit_reports import newest_failure
from dart.inspect.health import ROOT_SILENT_S
from dart.inspect.learning_curve import training_episodes
from dart.inspect.result import TrainResult, staleness_of, why_nothing_was_played
from dart.inspect.snapshot_reader import SnapshotReader
from dart.inspect.time_budget import TimeBudget
from dart.inspect.utilisation import sizes_in
from dart.policy.protocols import UnsupportedCheckpoint
from dart.run.control_endpoint import ControlEndpoint
from dart.run.definition import RunDefinition
from dart.run.folder_import import fill_pool
from dart.run.listener import RunListener
from dart.run.machines import given_back
from dart.run.other_control_node import used_elsewhere_s
from dart.run.run_record import (
    begin_record,
    checked_data,
    look_back,
    note_end_of_run,
    prepare_record,
    refuse_without_record,
)
from dart.run.sidecars import SidecarSupervisor, sidecar_specs
from dart.run.signal_counter import SignalCounter
from dart.run.site import OneMachine, RunSite
from dart.run.tree import environment_names
from dart.store.errors import StoreBusy, StoreTakenOver, StoreUnavailable
from dart.store.integrity import by_gravity, listed
from dart.store.sqlite import fold_log
from dart.store.store import Store
from dart.store.write_ahead_log import keep_damaged_log
from dart.telemetry.events import POOLS_SIZED

SNAPSHOT_S = 1.0
"""Seconds between two snapshots that the main process passes to the listener of a run."""

EVALUATION_S_PER_EPISODE = 0.07
"""Seconds kept free at the end of the time budget for each episode of the final evaluation. The laptop job
plays the 600 episodes of its final evaluation in about 40 s."""

LAST_UPDATE_S = 20.0
"""Seconds kept free at the end of the time budget for the last update."""

UNUSABLE = (UnsupportedCheckpoint.__name__, "CheckpointError")
"""Names of the errors of a checkpoint that no further try can load. The class of the second one,
`dart.policy.load.CheckpointError`, is not imported, because its module imports torch."""

WRONG = f"{ConfigurationError.__name__}: "
"""The text before the message in the reason of an actor that found its configuration wrong."""

TRIED_AGAIN = frozenset({ActorState.BACKOFF, ActorState.QUARANTINED, ActorState.STARTING})
"""States of an actor that has ended and that its supervisor starts again."""

CONTINUE = "nothing that was stored is lost, continue with --resume"
"""What to do after a failure of a run whose directory is kept."""


def train(
    config: Config,
    *,
    resume: bool = False,
    listener: RunListener | None = None,
    reread: Callable[[], Config] | None = None,
    site: RunSite | None = None,
    remedy: str = CONTINUE,
    is_locked: bool = False,
) -> TrainResult:
    """Run a training job to its end: base evaluation, training, final evaluation.

    resume     continue the run that is in the run directory
    listener   gets callbacks as the run progresses; None for no callbacks
    reread     reads the configuration again when the run is reloaded; None: the configuration never changes
    site       the machines that carry the run; None: this machine
    remedy     what to do after a failure; error messages end with it
    is_locked  whether the caller holds the lock of the run directory (`dart.core.run_directory.locked`)

    A first SIGINT or SIGTERM drains the run, and the result names the signal. A second signal ends the run at
    once, also while the data are checked and the report is written. In each case no process is left behind,
    and what was stored is kept.

    Raises RunDirectoryError if the run directory cannot be used; DiskError, also as StoreUnavailable and
    RecordDamaged, if data cannot be read or written; TemporaryError if the actors cannot be started, a
    restart budget is spent or the root supervisor hangs; UnavailableError if engines cannot load the
    checkpoint, or the run was trained with another adapter than the configured one; ConfigurationError if no
    environment can be made.
    """
    listener = listener or RunListener()
    site = site or OneMachine()
    with (
        own_directory(config, resume=resume, remedy=remedy, is_locked=is_locked) as directory,
        ExitStack() as until_concluded,
    ):
        paths = directory.paths
        resumed_at = prepare_record(config, paths, listener.log)
        found = look_back(paths) if resume else None
        until_concluded.callback(note_end_of_run, paths)
        if config.curation.experience_pool.enabled:
            fill_pool(config, paths)
        epoch = take_over_record(config, paths)
        session = begin_session(config, paths)
        definition = _definition(config, paths, epoch, session, reread, site)
        site.prepare(paths)
        emitter = MainProcess(listener.log, lambda to, content: system.tell(to, content))
        specs = sidecar_specs(config, serves_page=listener.serves_page)
        with (  # the tree ends before the sidecars, which write what it has left
            given_back(config, paths, listener),
            SidecarSupervisor(paths, specs, emitter) as sidecars,
            ActorSystem(
                paths.root, directory.mail, definition.tree_of(config), prints_reports=False, rows=site.rows
            ) as system,
            ControlEndpoint(paths, directory.mail, definition, emitter) as endpoint,
            SnapshotReader(paths, definition.as_started) as reader,
        ):
            if found is not None:
                listener.found(replace(found, leftovers=tuple(system.reaped)))
            signals = until_concluded.enter_context(SignalCounter(paths, listener))
            stopped_by, is_drained = watch(
                system,
                session,
                paths,
                signals,
                listener,
                show=lambda: listener.show(reader.read()),
                stop=lambda: site.stop(system),
                stop_deadline_s=lambda: site.stop_deadline_s(definition.config),
                polls=(
                    sidecars.poll,
                    endpoint.poll,
                    site.poll,
                    lambda: refuse_wrong_configuration(
                        system.board.rows(), environment_names(definition.config), paths
                    ),
                ),
                remedy=remedy,
            )
        signals.ends_at_once = True
        listener.ended()
        result = _conclude(paths, config, session, resumed_at)
        if stopped_by:
            result = replace(result, stopped_by=stopped_by, is_drained=is_drained)
        elif not result.failure:
            result = replace(result, failure=why_nothing_was_played(result.snapshot, result.report, paths))
        listener.concluded(result)
        return result


def _definition(
    config: Config,
    paths: RunPaths,
    epoch: int,
    session: TimeBudget,
    reread: Callable[[], Config] | None,
    site: RunSite,
) -> RunDefinition:
    def tree_of(one: Config) -> RootSpec:
        args = {
            "config": one.model_dump(mode="json"),
            "store": str(paths.record),
            "epoch": epoch,
            "training_ends_boot_s": session.training_ends_boot_s,
        }
        return site.tree_of(one, args)

    return RunDefinition(
        config=config, tree_of=tree_of, reread=reread, keep=lambda one: keep_config(paths, one.to_toml())
    )


def take_over_record(config: Config, paths: RunPaths) -> int:
    """Become the writer of the record, and note how many environments and engines the run has now.

    Returns the epoch in which this start of the run writes. Processes of an earlier epoch that still run
    cannot write any more.
    """
    sizes = sizes_in(config)
    with Store(paths.record, create=False) as store:
        newest = store.newest_event(POOLS_SIZED)
        if newest is None or newest.data != sizes:
            store.record_event(POOLS_SIZED, "root", sizes)
        return store.epoch


def begin_session(config: Config, paths: RunPaths) -> TimeBudget:
    """Begin a session after the time that the run used in this directory, or on another machine if more."""
    return TimeBudget(
        paths, config, reserve_s=final_reserve_s(config), used_elsewhere_s=used_elsewhere_s(paths)
    )


def final_reserve_s(config: Config) -> float:
    """Return how many seconds of the budget to keep free for the last update and the final evaluation."""
    if not config.evaluation.after:
        return LAST_UPDATE_S
    plan = RunPlan(config=config, training_ends_s=math.inf)
    return LAST_UPDATE_S + EVALUATION_S_PER_EPISODE * len(plan.episodes)


@dataclass(frozen=True, slots=True)
class MainProcess:
    """Emits the events of the main process: into a log, and by a message to the store."""

    log: Any
    tell: Callable[[str, Any], bool]


def watch(
    system: ActorSystem,
    session: TimeBudget,
    paths: RunPaths,
    signals: SignalCounter,
    listener: RunListener,
    *,
    show: Callable[[], None],
    stop: Callable[[], bool],
    stop_deadline_s: Callable[[], float],
    polls: Sequence[Callable[[], None]] = (),
    remedy: str,
) -> tuple[int, bool]:
    """Show the progress of a run until the root supervisor ends.

    The first signal drains, the second one ends the run at once. Returns the number of the last signal, or 0
    if there was none, and whether all actors ended by themselves within `stop_deadline_s` and before a second
    signal. Raises DiskError, RunDirectoryError, TemporaryError or UnavailableError if the run fails, and what
    a poll raises.

    show              shows the progress, about every second; may raise StoreBusy while the record is away
    stop              begins to end the tree; called about every second until it returns True
    stop_deadline_s   how many seconds all actors have to end by themselves, asked at the first signal
    remedy            what to do after a failure; error messages end with it
    """
    stop_by_s = math.inf
    is_drained, is_stopping = True, False
    while not system.wait(SNAPSHOT_S):
        session.keep()
        refuse_hung_root(system.root_beat_age_s(), remedy)
        for poll in polls:
            poll()
        try:
            show()
        except StoreBusy as busy:  # its server is away, for which the actors wait
            listener.record_away(str(busy))
        listener.turn()
        signals.handle_hangup()
        if signals.count and stop_by_s == math.inf:
            deadline_s = stop_deadline_s()
            stop_by_s = time.monotonic() + deadline_s
            listener.stopping(signals.last, deadline_s)
        if signals.count and not is_stopping:
            is_stopping = stop()
        if signals.count > 1 or time.monotonic() > stop_by_s:
            is_drained = False
            break
    session.keep()
    has_failed = is_drained and system.failure()  # a signal may come while a tree stops that has given up
    if has_failed or not signals.count:
        refuse_early_end(system.verdict(), paths, remedy)
    return signals.last, is_drained


@contextlib.contextmanager
def own_directory(
    config: Config, *, resume: bool, remedy: str, is_locked: bool = False
) -> Iterator[RunDirectory]:
    """Hold the run directory of a run while the block lasts, and check or make its record.

    is_locked   whether the caller holds the lock already (`dart.core.run_directory.locked`)

    Raises RunDirectoryError if the directory cannot be used or the block fails after it was deleted, and
    TemporaryError, which ends with `remedy`, if an actor system cannot start in the block.
    """
    with claimed(
        config.run.dir,
        resume=resume,
        config_toml=config.to_toml(),
        make_record=partial(refuse_without_record if resume else begin_record, config),
        is_locked=is_locked,
    ) as directory:
        paths = directory.paths
        try:
            yield directory
        except (OSError, DartError, SystemStartFailed) as error:
            if not paths.lock.exists():
                raise RunDirectoryError(
                    f"the run directory {paths.root} was deleted or moved while the run used it, and the run "
                    "has ended; begin a new run, or continue this one where it was moved to, with --run-dir"
                ) from error
            if isinstance(error, SystemStartFailed):
                raise TemporaryError(f"{error}; {remedy}") from error
            raise


def refuse_hung_root(beat_age_s: float, remedy: str) -> None:
    """Raise TemporaryError if the root supervisor hangs, because nothing supervises the run then."""
    if beat_age_s > ROOT_SILENT_S:
        raise TemporaryError(f"the root supervisor gave no sign of life for {beat_age_s:.0f} s; {remedy}")


def refuse_wrong_configuration(rows: Iterable[Vitals], names: Collection[str], paths: RunPaths) -> None:
    """Raise ConfigurationError if each of these actors ended because of one, before they are tried again.

    While one of them works, the error may be that of one machine, such as a file that it lacks.

    rows    the rows of the board
    names   the names of all environments, or of all explorers
    """
    whys = [
        row.last_reason
        for row in rows
        if row.state in TRIED_AGAIN and WRONG in row.last_reason and row.name in names
    ]
    if len(whys) == len(names):
        raise _wrong_configuration(paths, whys[0])


def _wrong_configuration(paths: RunPaths, why: str) -> ConfigurationError:
    """Return the error with which an actor ended, in full if its supervisor has reported it.

    why   why the actor ended, cut to the length that the board holds
    """
    whole = newest_failure(paths.root, ConfigurationError.__name__)
    return ConfigurationError(whole or why.partition(WRONG)[2])


def refuse_early_end(verdict: str, paths: RunPaths, remedy: str) -> None:
    """Raise an error unless the root supervisor ended because the run is over.

    verdict   why the root supervisor ended, cut to the length that the board holds; empty if it was killed
    raises    RunDirectoryError if another process took over the record, UnavailableError if engines cannot
              load the checkpoint, ConfigurationError if actors failed because of one, DiskError if data could
              not be read or written, TemporaryError in all other cases
    """
    if verdict.startswith("done"):
        return
    why = verdict or "the root supervisor was killed"
    if StoreTakenOver.__name__ in why:
        raise RunDirectoryError(why)
    for unusable in UNUSABLE:
        if unusable in why:
            raise UnavailableError(newest_failure(paths.root, unusable) or why)
    if WRONG in why:
        raise _wrong_configuration(paths, why)
    what = f"{why}; {remedy}"
    if any(
        error in what
        for error in (
            "StoreUnavailable",
            "BlobsUnavailable",
            "CheckpointNotWritten",
            "CorruptCheckpoint",
            "OSError",
        )
    ):
        raise DiskError(what)
    raise TemporaryError(what)


def _conclude(paths: RunPaths, config: Config, session: TimeBudget, resumed_at: int) -> TrainResult:
    """Check the data of a run that has ended, and read its result from the record.

    resumed_at   newest policy version when this start of the run began; only later versions are checked for
                 steps that were too stale
    """
    damage, lost_screenshots = by_gravity(checked_data(config, paths, resumed_at))
    if isinstance(record := paths.record, Path):
        with contextlib.suppress(StoreUnavailable, OSError):  # a full disk: the log stays beside the record
            keep_damaged_log(record)
            fold_log(record)
    with SnapshotReader(paths, config) as reader:
        return TrainResult(
            snapshot=reader.read(),
            report=final_report(reader.store, config),
            episodes=tuple(training_episodes(reader.store, config, session)),
            seed=config.run.seed,
            staleness=staleness_of(version.metrics for version in reader.store.versions()),
            violations=tuple(map(str, damage)),
            lost_screenshots=tuple(map(str, lost_screenshots)),
            failure=f"the data of the run is damaged:\n{listed(damage)}" if damage else "",
        )
