"""The supervision tree of a run, and how a run starts and ends.

root                     rest_for_one: a child that fails restarts the children after it, which depend on it
├─ store                 the durable record
├─ curator               task difficulty, leases, batches, phases
├─ rollout_pool          one_for_one: rollout-0 …, one engine each
├─ weight_sync           updates the engines to a new version, one at a time
├─ environment_pool      one_for_one: env-000 …, one browser each
└─ trainer               transient, significant: when it has ended, the run is over
"""

import contextlib
import math
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from actors.system import ActorSystem, RootSpec
from dart.config.config import Config
from dart.config.sections import ChildSettings, ExperiencePoolSettings, TrackingSettings
from dart.core.errors import DartError, DiskError, TemporaryError
from dart.core.run_directory import RunPaths, claimed, keep_config, reserve
from dart.curation.settings import plan_of
from dart.inspect import signals as taken
from dart.inspect.evaluation_scores import final_report
from dart.inspect.learning_curve import training_episodes
from dart.inspect.nothing_played import why_nothing_was_played
from dart.inspect.pool_sizes import sizes_in
from dart.inspect.report import RunReport
from dart.inspect.result import TrainResult, staleness_of
from dart.inspect.sidecar_status import TRACKING, WEB
from dart.inspect.snapshot_reader import SnapshotReader
from dart.inspect.time_budget import TimeBudget
from dart.run.control_endpoint import ControlEndpoint
from dart.run.definition import RunDefinition
from dart.run.listener import RunListener
from dart.run.main_supervisor import MainProcess, MainSupervisor
from dart.run.recovery import look_back
from dart.run.run_record import begin_record, prepare_record, refuse_without_record
from dart.run.sidecars import SidecarProcess, sidecar_spec
from dart.run.terminal import leave_terminal
from dart.store.errors import StoreUnavailable
from dart.store.integrity import check, told
from dart.store.reader import StoreReader
from dart.store.sqlite import fold_log
from dart.store.store import Store
from dart.telemetry.events import POOLS_SIZED
from dart.training.demonstration_loading import fill_pool
from supervision.child_spec import (
    AutoShutdown,
    Backoff,
    Breaker,
    Budget,
    ChildSpec,
    Failure,
    Restart,
    Retirement,
    Strategy,
    SupervisorFlags,
)
from supervision.supervisor import supervisor_args, supervisor_spec

SNAPSHOT_S = 1.0
"""How often the listener of a run gets a snapshot."""

STOP_DEADLINE_S = 45.0
"""After a first Ctrl-C: the time for all actors to end by themselves, children first."""

ROOT_HANG_DEADLINE_S = 20.0
"""The root beats four times a second; without a beat for this long it is suspended or hangs."""

EVALUATION_S_PER_EPISODE = 0.15
LAST_UPDATE_S = 20.0
"""Time kept free at the end of the budget for the last update; the final evaluation adds its own."""

ENGINE_MODULES = {
    "transformers": "dart.inference.transformers_engine",
    "vllm": "dart.inference.vllm_engine",
    "simulated": "dart.inference.simulated_engine",
    "oracle": "dart.inference.oracle_engine",
}
"""The supervisor of the engines imports these once, so a restarted engine need not import torch again."""

NO_TRAINING_MINUTES = 1e-3
"""A time budget that is spent before training begins."""


# ---- the tree ----


def children(config: Config, run: Mapping[str, Any]) -> tuple[ChildSpec, ...]:
    """The children of the root, in start order; they stop in reverse order.

    run   arguments of every actor: the resolved configuration, the path of the record, when training ends
    """
    rollouts = tuple(f"rollout-{index}" for index in range(config.rollout.count))
    environments = tuple(f"env-{index:03d}" for index in range(config.environments.count))
    args = {**run, "workers": list(rollouts)}

    def worker(id_: str, actor: str, **spec: Any) -> ChildSpec:
        limits = {"preload": (actor.partition(":")[0],)} | limits_of(config.supervision.child(id_)) | spec
        return ChildSpec(id=id_, actor=actor, args=args, **limits)

    def pool(id_: str, names: tuple[str, ...], actor: str, **spec: Any) -> ChildSpec:
        limits = getattr(config.supervision, id_)
        flags = SupervisorFlags(
            max_restarts=limits.max_restarts,
            max_seconds=limits.max_seconds,
            max_quarantined=limits.max_quarantined,
            max_failing=limits.max_failing,
            ordered=False,
        )
        return supervisor_spec(id_, flags, tuple(worker(name, actor, **spec) for name in names))

    return (
        worker("store", "dart.store.actor:StoreActor"),
        worker("curator", "dart.curation.actor:CuratorActor"),
        pool(
            "rollout_pool",
            rollouts,
            "dart.inference.actor:RolloutActor",
            preload=("dart.inference.actor", ENGINE_MODULES[config.rollout.engine]),
        ),
        worker("weight_sync", "dart.inference.weight_sync:WeightSyncActor"),
        pool("environment_pool", environments, "dart.environments.actor:EnvironmentActor"),
        worker("trainer", "dart.training.actor:TrainerActor", restart=Restart.TRANSIENT, significant=True),
    )


def limits_of(child: ChildSettings) -> dict[str, Any]:
    """The limits of a child from the configuration, as fields of its child spec."""
    budgets = {
        Failure(kind): Budget(**budget.model_dump()) for kind, budget in child.budgets if budget.max_seconds
    }
    breaker = Breaker(**child.breaker.model_dump(exclude={"enabled"})) if child.breaker.enabled else None
    retirement = child.retirement.model_dump() | {"max_age_s": child.retirement.max_age_s or math.inf}
    return {
        "restart": Restart(child.restart),
        "start_deadline_s": child.start_deadline_s,
        "hang_deadline_s": child.hang_deadline_s,
        "probe_every_s": child.probe_every_s,
        "shutdown_s": child.shutdown_s,
        "backoff": Backoff(**child.backoff.model_dump()),
        "budgets": budgets,
        "breaker": breaker,
        "retirement": Retirement(**retirement),
    }


def root_spec(config: Config, run: Mapping[str, Any]) -> RootSpec:
    """The root supervisor and the tree below it."""
    limits = config.supervision.root
    flags = SupervisorFlags(
        strategy=Strategy.REST_FOR_ONE,
        max_restarts=limits.max_restarts,
        max_seconds=limits.max_seconds,
        auto_shutdown=AutoShutdown.ANY_SIGNIFICANT,
    )
    args = supervisor_args(flags, children(config, run))
    return RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)


# ---- a run ----


def train(
    config: Config,
    *,
    resume: bool = False,
    listener: RunListener | None = None,
    reread: Callable[[], Config] | None = None,
) -> TrainResult:
    """Run the main job to its end: base evaluation, training, final evaluation.

    reread   reads the configuration again on SIGHUP; None: it never changes

    A first signal drains the run, and the result names the signal. A second one ends the run at once, also
    while the data are checked and the report is written. No process is left, and what was stored stays.
    Raises RunDirectoryError, DiskError, or TemporaryError when a restart budget is spent.
    """
    listener = listener or RunListener()
    with (
        claimed(
            config.run.dir,
            resume=resume,
            config_toml=config.to_toml(),
            make_record=refuse_without_record if resume else partial(begin_record, config),
        ) as directory,
        ExitStack() as until_concluded,
    ):
        paths = directory.paths
        resumed_at = prepare_record(config, paths)
        found = look_back(paths) if resume else None
        fill_experience_pool(config, paths)
        note_sizes(config, paths)
        session = TimeBudget.begin(paths, config, reserve_s=final_reserve_s(config))
        run = {
            "config": config.model_dump(mode="json"),
            "store": str(paths.store),
            "training_ends_unix_s": session.training_ends_unix_s,
        }
        definition = RunDefinition(
            config=config,
            tree_of=lambda other: root_spec(other, run | {"config": other.model_dump(mode="json")}),
            reread=reread,
            keep=lambda other: keep_config(paths, other.to_toml()),
        )

        def tell(to: str, content: Any) -> bool:
            return system.tell(to, content)

        emitter = MainProcess(listener.log, tell)
        start = partial(SidecarProcess, paths)
        with (  # the tree ends before the sidecars, which write what it has left
            MainSupervisor(paths, sidecar_specs(config, listener), start, emitter) as sidecars,
            ActorSystem(paths.root, directory.mail, root_spec(config, run), prints_reports=False) as system,
            ControlEndpoint(paths, directory.mail, definition, emitter) as endpoint,
        ):
            reserve(paths.board)
            if found is not None:
                listener.found(found.with_leftovers(system.reaped))
            signals = until_concluded.enter_context(_Signals(paths, listener))
            pollers = sidecars, endpoint
            ending = _watch(system, session, paths, config, listener, pollers, signals)
        signals.nothing_is_left_to_drain()
        listener.ended()
        result = _conclude(paths, config, session, ending, resumed_at)
        listener.concluded(result)
        return result


def sidecar_specs(config: Config, listener: RunListener) -> Iterator[ChildSpec]:
    """The sidecars of a run."""
    if config.web.enabled and listener.serves_page:
        yield sidecar_spec(WEB, "dart.web.__main__", shutdown_s=3.0)
    if config.tracking.writers:
        yield sidecar_spec(TRACKING, "dart.tracking.__main__", shutdown_s=30.0)


def evaluate(config: Config, checkpoint: Path, *, listener: RunListener | None = None) -> RunReport:
    """Evaluate a checkpoint on held-out seeds, in a run that ends before it trains.

    Raises as `train` does, and DartError when no episode could be played or the data are damaged.
    """
    with tempfile.TemporaryDirectory(prefix="dartrl-eval-") as folder:
        measuring = config.model_copy(
            update={
                "run": config.run.model_copy(
                    update={"dir": Path(folder) / "run", "minutes": NO_TRAINING_MINUTES}
                ),
                "training": config.training.model_copy(update={"policy": checkpoint}),
                "curation": config.curation.model_copy(update={"experience_pool": ExperiencePoolSettings()}),
                "tracking": TrackingSettings(),
                "evaluation": config.evaluation.model_copy(update={"before": True, "after": False}),
            }
        )
        result = train(measuring, listener=listener)
        if result.failure:
            raise DartError(result.failure)
        return result.report


def note_sizes(config: Config, paths: RunPaths) -> None:
    """Record how many environments and engines the run has now, if the numbers have changed."""
    sizes = sizes_in(config)
    with StoreReader(paths.store) as reader:
        newest = reader.newest_event(POOLS_SIZED)
    if newest is None or newest.data != sizes:
        with Store(paths.store, create=False) as store:
            store.record_event(POOLS_SIZED, "root", sizes)


def fill_experience_pool(config: Config, paths: RunPaths) -> None:
    """Import the folders of demonstrations that are new. Raises UnavailableError, DiskError."""
    pool = config.curation.experience_pool
    if pool.enabled:
        fill_pool(pool.folders, config.training.policy, paths, config.context)


def final_reserve_s(config: Config) -> float:
    """Seconds to keep free at the end of the time budget."""
    if not config.evaluation.after:
        return LAST_UPDATE_S
    return LAST_UPDATE_S + EVALUATION_S_PER_EPISODE * len(plan_of(config, math.inf).episodes)


@dataclass(frozen=True, slots=True)
class _Ending:
    """How the tree of a run ended."""

    stopped_by: int | None = None
    """The signal that ended it, if one did."""
    is_drained: bool = False
    """All actors ended by themselves after the signal, in time."""


def _watch(
    system: ActorSystem,
    session: TimeBudget,
    paths: RunPaths,
    config: Config,
    listener: RunListener,
    pollers: tuple[MainSupervisor, ControlEndpoint],
    signals: "_Signals",
) -> _Ending:
    """Pass snapshots to the listener until the root ends.

    The first signal drains, the second ends at once. Raises DiskError or TemporaryError when the run fails.
    """
    stop_by_s = math.inf
    is_drained = True
    with SnapshotReader(paths, config, system.board) as reader:
        while not system.wait(SNAPSHOT_S):
            session.keep()
            _refuse_hung_root(system.root_beat_age_s())
            for poller in pollers:
                poller.look()
            listener.show(reader.read())
            signals.mind_hangup()
            if signals.count and stop_by_s == math.inf:
                stop_by_s = time.monotonic() + STOP_DEADLINE_S
                system.stop()
                listener.stopping(signals.last)
            if signals.count > 1 or time.monotonic() > stop_by_s:
                is_drained = False
                break
        session.keep()
    if signals.count:
        return _Ending(signals.last, is_drained)
    _refuse_early_end(system.verdict())
    return _Ending()


def _refuse_hung_root(beat_age_s: float) -> None:
    """Raise TemporaryError when the root hangs: it supervises nothing, so the run has to end."""
    if beat_age_s > ROOT_HANG_DEADLINE_S:
        raise TemporaryError(
            f"the root supervisor gave no sign of life for {beat_age_s:.0f} s; "
            "nothing that was stored is lost, continue with --resume"
        )


def _refuse_early_end(verdict: str) -> None:
    """Raise DiskError or TemporaryError unless the root ended because the run is over."""
    if verdict.startswith("done"):
        return
    why = verdict or "the root supervisor was killed"
    what = f"{why}; nothing that was stored is lost, continue with --resume"
    if any(
        error in what
        for error in ("StoreUnavailable", "CheckpointNotWritten", "CorruptCheckpoint", "OSError")
    ):
        raise DiskError(what)
    raise TemporaryError(what)


def _conclude(
    paths: RunPaths, config: Config, session: TimeBudget, ending: _Ending, resumed_at: int
) -> TrainResult:
    """Read the result of the run from the record, and check the record."""
    findings = check(paths, config, fresh_since=resumed_at)
    with contextlib.suppress(StoreUnavailable):  # a full disk: the write-ahead log stays beside the record
        fold_log(paths.store)
    with SnapshotReader(paths, config) as reader:
        snapshot, scores = reader.read(), final_report(reader.store, config)
        damage = f"the data of the run is damaged:\n{told(findings)}" if findings else ""
        unplayed = "" if ending.stopped_by else why_nothing_was_played(snapshot, scores, paths)
        return TrainResult(
            snapshot=snapshot,
            report=scores,
            episodes=tuple(training_episodes(reader.store, config, session)),
            seed=config.run.seed,
            stopped_by=ending.stopped_by,
            is_drained=ending.is_drained,
            staleness=staleness_of(version.metrics for version in reader.store.versions()),
            violations=tuple(map(str, findings)),
            failure=damage or unplayed,
        )


class _Signals:
    """Counts SIGINT and SIGTERM while a run lasts: the first drains, the second ends at once.

    When nothing is left to drain, the first changes nothing and the second ends this process. The listener
    decides whether SIGHUP drains, too, or rereads the configuration; a SIGHUP that was ignored before
    (`nohup`) stays ignored. Other processes can read what was received (`dart.inspect.signals`).
    """

    def __init__(self, paths: RunPaths, listener: RunListener) -> None:
        self.count = 0
        self.last = 0
        self._paths, self._listener = paths, listener
        self._has_hung_up = False
        self._ends_at_once = False
        self._handlers = {signal.SIGINT: self._note, signal.SIGTERM: self._note}
        if listener.takes_hangups or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._handlers[signal.SIGHUP] = self._note_hangup
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Signals":
        taken.forget(self._paths)
        for number, handler in self._handlers.items():
            self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        taken.forget(self._paths)

    def nothing_is_left_to_drain(self) -> None:
        """The tree has ended: from now on a second signal ends this process."""
        self._ends_at_once = True

    def mind_hangup(self) -> None:
        """Handle a SIGHUP received since the last call. A terminal that closes may send several."""
        has_hung_up, self._has_hung_up = self._has_hung_up, False
        if not has_hung_up:
            return
        if not self._listener.drains_at_hangup():
            self._listener.hung_up()
        elif not self.count:
            self._note(signal.SIGHUP, None)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.count, self.last = self.count + 1, number
        taken.note(self._paths, number, time.time())
        if self._ends_at_once and self.count > 1:
            raise SystemExit(128 + number)

    def _note_hangup(self, number: int, _: FrameType | None) -> None:
        self._has_hung_up = True
        leave_terminal()  # at once: the next write to it would fail
