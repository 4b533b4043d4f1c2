"""A run at one moment as plain data, for the live view, `status`, `tree`, the page and the metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from dart.core.records import Conservation, RunPhase
from dart.inference.engine_state import EngineState
from dart.inspect.sidecar_status import Sidecar
from dart.inspect.success_windows import SuccessWindow
from dart.telemetry.liveness import ACTOR_SILENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorRow:
    """One actor as the board, the kernel and its supervisor's reports show it, also while the actor hangs."""

    name: str
    parent: str
    """Name of the actor's supervisor; empty for the root."""
    state: str
    """starting, running, backoff, quarantined, stopping, stopped or failed, as the supervisor sees it."""
    pid: int
    incarnation: int
    """Number of the actor's present process; each start of the run counts from 1."""
    ready: bool
    """Whether the actor reported that it can do its job."""
    beat_age_s: float | None
    """Time since the actor's last sign of life; None before its first."""
    busy_s: float
    """How long the actor has been in its current handler; 0 when idle or without a process."""
    handler: str
    """Name of the handler that the actor is in; empty when idle."""
    messages: int
    restarts: int
    """Number of restarts since the last start of the run; each start counts from 0."""
    last_reason: str
    """Why the actor ended the last time; empty if it never ended."""
    restarts_in_window: int = 0
    """Number of the actor's failures in the last `window_s` seconds, since the last start of the run."""
    window_s: float = 0.0
    """Window of its supervisor's restart budget, in seconds; 0 for the root, which has no supervisor."""
    age_s: float | None = None
    """Time since the actor's process was started; None while there is no process."""
    retry_in_s: float | None = None
    """Time until the actor is started again. None unless it is in backoff or in quarantine, and None while an
    outage of its pool holds it back."""
    work: str = ""
    """What the actor does outside its handlers, such as loading a version; empty if it does nothing there."""
    work_s: float = 0.0
    unsent: int = 0
    """Number of messages that the actor could not send: the mailbox was full, or the receiver unknown."""
    refused: int = 0
    """Messages to the actor that it refused."""
    last_error: str = ""
    """Last line that an incarnation of the actor printed when it crashed; empty if none crashed."""
    process: str = "alive"
    """State of its process in the kernel: alive, suspended (by SIGSTOP) or gone."""
    rss_bytes: int = 0
    """Resident memory of the actor's process."""
    cpu_s: float = 0.0
    """Processor time that the actor's process has used."""

    @property
    def is_silent(self) -> bool:
        """Whether the actor runs, but its last sign of life is older than `ACTOR_SILENT_S`."""
        return self.state == "running" and (self.beat_age_s or 0.0) > ACTOR_SILENT_S

    @property
    def is_well(self) -> bool:
        """Whether the actor is up and ready, beats, and is not suspended."""
        is_up = self.state == "running" and self.ready and self.process == "alive"
        return is_up and not self.is_silent


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task over its most recent training trajectories."""

    task_id: str
    trajectories: int
    """Number of trajectories of the task finished in training so far."""
    recent: int
    """Number of newest trajectories from which `success_rate` is computed."""
    success_rate: float | None
    """Share of successes, 0 to 1, among the newest trajectories; None before the first trajectory."""
    base_success_rate: float | None = None
    """Success rate of the base policy on held-out seeds; None if it was not measured."""
    rollouts: int = 0
    """N: number of rollouts of the task's next group."""
    step_cap: int = 0
    """Largest number of steps of an episode of the task's next group."""
    quarantined: str = ""
    """Until when and why the task is in quarantine; empty if it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One engine, and the policy version that it serves."""

    name: str
    state: str
    """State of the engine: healthy, updating, stale, suspect or dead (`dart.inference.engine_state`)."""
    version: int
    reason: str
    """Why the engine is not healthy; empty if it is."""


def updating(engines: Iterable[EngineRow]) -> frozenset[str]:
    """Return the names of the engines that load a new version.

    Their actors are not ready, but count as well, because requests only wait for them.
    """
    return frozenset(engine.name for engine in engines if engine.state == EngineState.UPDATING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """One run at one moment."""

    run_dir: str
    taken_unix_s: float
    is_running: bool = True
    """Whether a main process holds the lock of the run."""
    main_is: str = ""
    """What is wrong with the main process: `suspended`, `gone` or `unreachable`; empty if it is well."""
    phase: RunPhase
    elapsed_s: float
    budget_s: float
    """Longest time that the run may take, from its start to the final table; 0 for no limit."""
    used_before_s: float = 0.0
    """How long the run had run when it was continued the last time; 0 for its first start."""
    updates: int = 0
    updates_max: int = 0
    """Number of updates after which training ends; 0 for no limit."""
    policy_version: int = 0
    """Newest policy version that the trainer made."""
    serving_versions: tuple[int, ...] = ()
    """Policy version of each engine that takes requests."""
    success_rate: float | None = None
    """Share of successes, 0 to 1, among the newest trajectories of all tasks; None before the first one."""
    recent: int = 0
    """Number of trajectories over which `success_rate` is computed."""
    base_success_rate: float | None = None
    """Mean over tasks of the base policy's success on held-out seeds; None unless every task was measured."""
    final_success_rate: float | None = None
    """The same of the newest version, from the evaluation after training; None before the run is done."""
    final_verdict: str = ""
    """Whether these two rates differ (`dart.inspect.report.ChangeVerdict`); empty if not compared."""
    success_windows: tuple[SuccessWindow, ...] = ()
    """Success of training episodes in windows of the run's time, the oldest first."""
    trajectories: int = 0
    steps: int = 0
    """Environment steps of all trajectories ever stored."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Number of trajectories by `dart.core.types.Outcome`."""
    update: Mapping[str, float] = field(default_factory=dict)
    """The figures of the newest update; empty before the first update."""
    actions_per_minute: float = 0.0
    """Number of environment steps in the last minute."""
    staleness_mean: float | None = None
    """Mean staleness of the steps of the last batch, in policy versions; None before the first batch."""
    staleness_p50: float | None = None
    staleness_p95: float | None = None
    staleness_max: int | None = None
    rollouts_mean: float | None = None
    """Mean over tasks of N, the number of rollouts of the next group."""
    step_cap_mean: float | None = None
    """Mean over tasks of the step cap of the next group."""
    steps_mean: float | None = None
    """Mean number of environment steps of a finished episode; None before the first episode."""
    restarts: int = 0
    """Number of restarts of actors since the last start of the run, as `ActorRow.restarts`."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """Number of failed attempts by `dart.core.types.FaultKind`."""
    drops: Mapping[str, int] = field(default_factory=dict)
    """Number of rollouts that were dropped, by reason."""
    pool_size: int = 0
    """Number of demonstrations in the experience pool that are in use."""
    pool_uses: int = 0
    """How often a demonstration was added to a group."""
    pool_without_thought: int = 0
    """Number of demonstrations in use whose answers lack the thought that the policy writes."""
    pool_self_rolled: int = 0
    """Number of demonstrations in use that are self-rolled (docs/glossary.md, *demonstration*)."""
    parkings: int = 0
    """How often an episode was parked."""
    parked_now: int = 0
    """Number of parked episodes that wait to be continued."""
    events: Mapping[str, int] = field(default_factory=dict)
    """Number of events in the record by kind; events `load` are left out."""
    notices: tuple[str, ...] = ()
    """Texts about problems of the whole run, such as a stall and its cause, or a full disk."""
    alarms: Mapping[str, bool] = field(default_factory=dict)
    """Whether each alarm for learning is raised, by its name."""
    sidecars: tuple[Sidecar, ...] = ()
    """Status of the sidecars: the page, the tracking writers and the endpoints."""
    engines: tuple[EngineRow, ...] = ()
    conservation: Conservation = field(default_factory=Conservation)
    evaluation_done: int = 0
    """Number of ended episodes of the evaluation in progress."""
    evaluation_total: int = 0
    """Number of episodes planned for the evaluation in progress; 0 if there is none."""
    tasks: tuple[TaskRow, ...] = ()
    actors: tuple[ActorRow, ...] = ()

    @property
    def well(self) -> int:
        """The number of actors that are up and ready; engines that load a new version count as ready."""
        loading = updating(self.engines)
        return sum(actor.is_well or actor.name in loading for actor in self.actors)

    @property
    def is_healthy(self) -> bool:
        """Whether the run is running and well.

        Its main process works, every actor is up and ready, every rollout has one fate, and there are no
        notices. Once the work is done, actors end one after the other and need not be up.
        """
        if not self.is_running or self.main_is:
            return False
        is_well = self.phase is RunPhase.DONE or (bool(self.actors) and self.well == len(self.actors))
        return is_well and self.conservation.holds and not self.notices

    @property
    def health(self) -> str:
        """The word to show for a run that is running.

        `healthy`; `ending` once all work is done; `starting` if only first starts of actors are waited for;
        `degraded` otherwise.
        """
        if self.is_healthy:
            return "ending" if self.phase is RunPhase.DONE else "healthy"
        is_in_order = self.is_running and not self.main_is and not self.notices and self.conservation.holds
        return "starting" if is_in_order and all(map(_starts_first, self.unwell)) else "degraded"

    @property
    def unwell(self) -> list[ActorRow]:
        """The actors that are not well, but for a root that only waits until all have started."""
        return [one for one in self.actors if not (one.is_well or _is_root_of_start(one))]


def _is_root_of_start(actor: ActorRow) -> bool:
    return not actor.parent and replace(actor, ready=True).is_well


def _starts_first(actor: ActorRow) -> bool:
    """Whether an actor starts for the first time, or waits in `backoff` for the start of those before it."""
    return actor.state in ("starting", "backoff") and not actor.restarts and not actor.last_reason
