"""A run at one moment as plain data, for the live view, `status`, `tree`, the page and the metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dart.core.records import Conservation, RunPhase
from dart.inference.engine_state import EngineState
from dart.inspect.sidecar_status import Sidecar
from dart.telemetry.liveness import ACTOR_SILENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorRow:
    """One actor, from the vitals board: readable while the actor hangs."""

    name: str
    parent: str
    """Name of its supervisor; empty for the root."""
    state: str
    """starting, running, backoff, quarantined, stopping, stopped or failed: as its supervisor sees it."""
    pid: int
    incarnation: int
    """How many times it was started."""
    ready: bool
    """Whether it reported that it can do its job."""
    beat_age_s: float
    """Since its last sign of life."""
    busy_s: float
    """How long it has been in its current handler; 0 when idle."""
    handler: str
    """What it is doing; empty when idle."""
    messages: int
    restarts: int
    """Number of restarts in all."""
    last_reason: str
    """Why it ended the last time; empty if it never did."""
    restarts_in_window: int = 0
    """Failures in the last `window_s`."""
    window_s: float = 0.0
    """The window of its supervisor's restart budget; 0 for the root, which has no supervisor."""
    age_s: float | None = None
    """Since its process was started; None while there is none."""
    retry_in_s: float | None = None
    """Time until it is started again; None unless it is in backoff or in quarantine."""
    work: str = ""
    """What it does beside its handlers, such as loading a version; empty when nothing."""
    work_s: float = 0.0
    unsent: int = 0
    """Messages it could not send: a full mailbox, or no actor of that name."""
    refused: int = 0
    """Messages it refused to take."""
    last_error: str = ""
    """Last line that an incarnation printed when it crashed."""
    process: str = "alive"
    """What the kernel says: alive, suspended (by SIGSTOP) or gone; its supervisor may not know yet."""
    rss_bytes: int = 0
    """Memory its process holds."""
    cpu_s: float = 0.0
    """Processor time its process has used."""

    @property
    def is_well(self) -> bool:
        """Whether the actor is up and ready, beats, and is not suspended."""
        is_up = self.state == "running" and self.ready and self.process == "alive"
        return is_up and self.beat_age_s <= ACTOR_SILENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task over its most recent training trajectories."""

    task_id: str
    trajectories: int
    """Finished in training so far."""
    recent: int
    """Number of the newest trajectories, from which `success_rate` is computed."""
    success_rate: float | None
    """None before the first trajectory."""
    base_success_rate: float | None = None
    """Of the base policy on held-out seeds; None if it was not measured."""
    rollouts: int = 0
    """N of its next group."""
    step_cap: int = 0
    """Most steps of an episode of its next group."""
    quarantined: str = ""
    """Until when and why it is in quarantine; empty when it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One engine."""

    name: str
    state: str
    """healthy, updating, stale, suspect or dead (`dart.inference.engine_state`)."""
    version: int
    reason: str
    """Why it is not healthy; empty when it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """One run at one moment."""

    run_dir: str
    taken_unix_s: float
    phase: RunPhase
    elapsed_s: float
    budget_s: float
    """Longest time from the start to the final table; 0 for no limit."""
    updates: int = 0
    updates_max: int = 0
    """0 for no limit."""
    policy_version: int = 0
    """Newest version the trainer made."""
    serving_versions: tuple[int, ...] = ()
    """Version of each engine that takes requests."""
    success_rate: float | None = None
    """Over the recent trajectories of all tasks; None before there is one."""
    recent: int = 0
    """Number of those trajectories."""
    trajectories: int = 0
    steps: int = 0
    """Environment steps of all trajectories ever stored."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Trajectories by how they ended."""
    update: Mapping[str, float] = field(default_factory=dict)
    """The figures of the newest update; empty before the first."""
    actions_per_minute: float = 0.0
    """Environment steps over the last minute."""
    staleness_mean: float | None = None
    """Policy versions between sampling and training, over the last batch; None before the first."""
    staleness_p50: float | None = None
    staleness_p95: float | None = None
    staleness_max: int | None = None
    rollouts_mean: float | None = None
    """Mean over tasks of N of the next group."""
    step_cap_mean: float | None = None
    """Mean over tasks of the step cap of the next group."""
    steps_mean: float | None = None
    """Environment steps of a finished episode; None before the first."""
    restarts: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    """Failed attempts by `dart.core.types.FaultKind`."""
    drops: Mapping[str, int] = field(default_factory=dict)
    """Rollouts that were not trained, by reason."""
    pool_size: int = 0
    """Demonstrations of the experience pool that may be used."""
    pool_uses: int = 0
    """How often a demonstration was added to a group."""
    pool_without_thought: int = 0
    """Of those that may be used, how many have actions without the thought that the policy writes."""
    pool_self_rolled: int = 0
    """Of those that may be used, how many the policy played with another demonstration's actions as hints."""
    parkings: int = 0
    """How often an episode was interrupted and kept."""
    parked_now: int = 0
    """Episodes that wait to be taken up again."""
    events: Mapping[str, int] = field(default_factory=dict)
    """Events of the record by kind, without the load."""
    notices: tuple[str, ...] = ()
    """Problems of the whole run: a stall and its cause, a record that takes no writes."""
    sidecars: tuple[Sidecar, ...] = ()
    """Status of the processes beside the tree: the web page, the writers of `tracking`."""
    engines: tuple[EngineRow, ...] = ()
    conservation: Conservation = field(default_factory=Conservation)
    evaluation_done: int = 0
    """Episodes of the evaluation in progress that have ended."""
    evaluation_total: int = 0
    """0 while no evaluation is in progress."""
    tasks: tuple[TaskRow, ...] = ()
    actors: tuple[ActorRow, ...] = ()

    @property
    def well(self) -> int:
        """The number of actors that are up and ready; engines that load a new version count as ready."""
        updating = {engine.name for engine in self.engines if engine.state == EngineState.UPDATING}
        return sum(actor.is_well or actor.name in updating for actor in self.actors)

    @property
    def is_healthy(self) -> bool:
        """Whether every actor is up and ready, every rollout has one fate, and there are no notices.

        Once the work is done, actors end one after the other and need not be up.
        """
        is_well = self.phase is RunPhase.DONE or (bool(self.actors) and self.well == len(self.actors))
        return is_well and self.conservation.holds and not self.notices

    @property
    def health(self) -> str:
        """The state of a healthy run: `healthy`, or `ending` once the work is done."""
        return "ending" if self.phase is RunPhase.DONE else "healthy"
