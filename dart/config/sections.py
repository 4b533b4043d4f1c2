"""The sections of the configuration: every key with its default and its meaning.

`dart.config.config` combines, reads and checks them. No heavy library is imported here.
"""

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from dart.config.environment_kinds import KindName
from dart.config.layers import merged
from dart.core.types import SUCCESS_ABOVE

MOST = 10**9
"""Largest number: as seconds it is thirty years, which timers can still count."""

PATH_BYTES_MOST, NAME_BYTES_MOST = 4095, 255
"""Linux's limits of a path and of a name in it."""

Seconds = Annotated[float, Field(gt=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
Processes = Annotated[int, Field(ge=1, le=1000)]
"""Type of a number of actors, threads or GPUs; a run has room for a thousand actors."""

Many = Annotated[int, Field(ge=1, le=10**6)]
"""Type of a number of things that are held in memory."""


class Section(BaseModel):
    """One TOML table. It is frozen, converts no types and refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _fits_the_system(cls, value: Any) -> Any:
        """Refuse text and paths that the operating system does not accept."""
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str | Path) and (why := _why_unfit(one)):
                raise PydanticCustomError("unfit_text", "{why}", {"why": why})
        return value


def _why_unfit(text: str | Path) -> str:
    if "\0" in str(text):
        return "it contains a NUL character"
    if isinstance(text, Path):
        name_bytes = max((len(os.fsencode(part)) for part in text.parts), default=0)
        if len(os.fsencode(text)) > PATH_BYTES_MOST or name_bytes > NAME_BYTES_MOST:
            return f"a path has at most {PATH_BYTES_MOST} bytes, and a name in it {NAME_BYTES_MOST}"
    return ""


class RunSettings(Section):
    """The run as a whole."""

    dir: Annotated[Path, Field(strict=False)] = Path("runs/laptop")
    """Folder that holds everything of this run; relative to the working directory."""
    record: str = ""
    """Where the record is: empty for `store.db` in the folder, or `postgresql://USER@HOST:PORT/DATABASE`, a
    database of its own. Passwords are in ~/.pgpass (PGPASSFILE), PGPASSWORD or a service file, never here."""
    blobs: str = ""
    """Where screenshots, steps and checkpoints are: empty for the folder, or object storage that several
    machines reach: `s3://BUCKET/PREFIX` (any S3, by AWS_ENDPOINT_URL) or `file:///FOLDER` that all share, a
    prefix of its own for each run. Credentials are in the environment or the machine's role, never here."""
    cache_bytes: Annotated[int, Field(ge=10**6)] = 20 * 10**9
    """Largest size of the cache of blobs on each machine, in front of object storage."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of every random choice of the run; scheduling and timing stay random."""
    minutes: Annotated[float, Field(ge=0, le=10**7)] = 20.0
    """Wall-clock budget from start to final table, evaluations included; 0 for none."""


class TasksSettings(Section):
    """The tasks of the training."""

    train: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = (
        "miniwob/click-test-2",
        "miniwob/click-dialog",
        "miniwob/click-tab",
        "miniwob/click-widget",
        "miniwob/focus-text-2",
        "miniwob/enter-text",
        "miniwob/enter-password",
        "miniwob/login-user",
    )
    """Task ids: `miniwob/<page>`, `sites/<site>`, `grounding/<data set>`, `desktop/<task>`,
    `osworld/<application>/<id>` or `simulated/<anything>`. They begin with `environments.kind`."""


class LatencySettings(Section):
    """Waits added to every environment, for measurements with the latency of virtual machines.

    Each wait is lognormal: `median * exp(sigma * z)`, at most the maximum, times `scale`."""

    enabled: bool = False
    """Whether waits are added."""
    scale: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Factor of every wait."""
    reset_median_s: Annotated[float, Field(ge=0, le=MOST)] = 10.0
    """Median wait of a reset."""
    reset_sigma: Annotated[float, Field(ge=0, le=MOST)] = 0.5
    """Spread of the waits of resets."""
    reset_max_s: Seconds = 30.0
    """Longest wait of a reset."""
    step_median_s: Annotated[float, Field(ge=0, le=MOST)] = 2.0
    """Median wait of a step."""
    step_sigma: Annotated[float, Field(ge=0, le=MOST)] = 0.4
    """Spread of the waits of steps."""
    step_max_s: Seconds = 4.0
    """Longest wait of a step."""


Rate = Annotated[float, Field(ge=0, le=1)]


class FaultsSettings(Section):
    """Faults injected into environments, to test that the run survives them. Off unless enabled."""

    enabled: bool = False
    """Whether faults are injected."""
    seed: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Seed of the plan; the same seed gives an environment the same faults at the same operations."""
    crash: Rate = 0.02
    """Share of episodes in which the environment dies."""
    hang: Rate = 0.01
    """Share of episodes in which the environment stops responding."""
    lost_action: Rate = 0.01
    """Share of episodes in which an action never arrives."""
    doubled_action: Rate = 0.01
    """Share of episodes in which an action arrives twice."""
    frozen_frame: Rate = 0.01
    """Share of episodes in which the screenshot stops changing."""
    failed_reset: Rate = 0.02
    """Share of resets that fail."""
    bad_evaluation: Rate = 0.01
    """Share of episodes whose score is not a number."""
    never_ready: Rate = 0.0
    """Share of resets after which the browser or machine starts but never responds."""
    ready_too_early: Rate = 0.0
    """Share of resets after which the machine responds before its window manager runs; must be 0 for
    miniwob."""
    truncated_frame: Rate = 0.0
    """Share of episodes in which half of a screenshot is missing."""
    dirty_reset: Rate = 0.0
    """Share of resets that leave something of another episode behind; must be 0 for miniwob."""
    popup: Rate = 0.0
    """Share of resets with an unexpected window; must be 0 for miniwob."""
    slow_start: Rate = 0.0
    """Share of resets that take a third of their deadline longer."""
    dead_application: Rate = 0.0
    """Share of episodes whose application is stopped; must be 0 for miniwob."""
    dead_window_manager: Rate = 0.0
    """Share of episodes whose window manager dies; must be 0 for miniwob."""


class DesktopSettings(Section):
    """Desktops without a virtual machine: an X server and real applications in a sandbox each."""

    width: Annotated[int, Field(ge=320, le=7680)] = 800
    """Width of the screen in pixels."""
    height: Annotated[int, Field(ge=240, le=4320)] = 600
    """Height of the screen in pixels."""
    memory_mb: Annotated[int, Field(ge=0, le=MOST)] = 1024
    """Limit of the memory of one desktop with everything in it, where the kernel permits one; 0 for none."""
    start_deadline_s: Seconds = 10.0
    """Longest time until a new sandbox responds."""


class OSWorldDockerSettings(Section):
    """Virtual machines in containers of this computer (`provider = "docker"`)."""

    program: str = "docker"
    """Docker's command line client, or a program with the same arguments."""
    image: str = "happysixd/osworld-docker"
    """Image of the container that runs the machine."""
    disk: Annotated[Path, Field(strict=False)] = Path("Ubuntu.qcow2")
    """Disk image with the system, mounted read-only."""
    cpus: Count = 4
    """Number of processors of the machine."""
    ram: str = "4G"
    """Memory of the machine, in the units of QEMU."""
    disk_size: str = "32G"
    """Size of the machine's disk, in the units of QEMU."""


class OSWorldPoolSettings(Section):
    """Virtual machines from a server of DART's environment protocol (`provider = "pool"`)."""

    server: str = "http://127.0.0.1:50003"
    """Address of the server."""
    token_variable: str = "DARTRL_POOL_TOKEN"
    """Environment variable with the token, which is never written to a file."""
    own_token: bool = False
    """Whether only this run uses the token. If so, machines of the token that no environment holds are
    stopped."""


class OSWorldLocalSettings(Section):
    """A guest server in a sandbox of this computer (`provider = "local"`)."""

    server: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Command that serves the guest protocol, with DISPLAY set; `{port}` is replaced by the port."""
    readable: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Folders that the command may read inside the sandbox."""


class OSWorldSettings(Section):
    """Desktops that serve OSWorld's guest protocol: virtual machines, containers or sandboxes."""

    tasks: Annotated[Path, Field(strict=False)] = Path("evaluation_examples/examples")
    """Folder with the published tasks (`<application>/<id>.json`), or a file with a set of them. Task ids are
    `osworld/<application>/<id>`."""
    cache: Annotated[Path, Field(strict=False)] = Path("osworld-cache")
    """Folder for the files that tasks download, as `<task id>/<file name>`."""
    evaluators: Annotated[Path, Field(strict=False)] = Path(".venv-osworld-score")
    """Virtual environment with OSWorld's own evaluators, which `make osworld-score` makes."""
    provider: Literal["addresses", "docker", "pool", "local"] = "addresses"
    """Source of the machines."""
    addresses: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """`host:port` of guest servers, one for each environment; with more ports `host:port:chromium:vlc`."""
    renew: Literal["recreate", "revert", "keep"] = "recreate"
    """How a machine becomes clean before an episode: a new machine, its snapshot, or not at all."""
    revert_command: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Command that reverts a machine of `addresses` to its snapshot; `{address}`, `{host}`, `{port}` and
    `{snapshot}` are replaced."""
    password: str = "password"
    """Password of the guest's user; it replaces `{CLIENT_PASSWORD}` in tasks."""
    width: Annotated[int, Field(ge=320, le=7680)] = 1920
    """Width of the guest's screen in pixels; it replaces `{SCREEN_WIDTH}` in tasks."""
    height: Annotated[int, Field(ge=240, le=4320)] = 1080
    """Height of the guest's screen in pixels; it replaces `{SCREEN_HEIGHT}` in tasks."""
    pause_s: Annotated[float, Field(ge=0, le=MOST)] = 2.0
    """Wait after an action until the screen shows its effect."""
    docker: OSWorldDockerSettings = OSWorldDockerSettings()
    """Containers (`provider = "docker"`)."""
    pool: OSWorldPoolSettings = OSWorldPoolSettings()
    """Machines of a server (`provider = "pool"`)."""
    local: OSWorldLocalSettings = OSWorldLocalSettings()
    """Sandboxes (`provider = "local"`)."""


class SitesSettings(Section):
    """Web applications that are generated from finite state machines (`kind = "sites"`)."""

    width: Annotated[int, Field(ge=480, le=1920)] = 504
    """Width of a page in pixels."""
    height: Annotated[int, Field(ge=380, le=1200)] = 392
    """Height of a page in pixels."""
    look_seed: Annotated[int, Field(ge=-1, lt=2**31)] = -1
    """Seed of the texts and the style of every site; -1 gives each seed of a task its own."""


class ScreenshotsSettings(Section):
    """Recorded screenshots for grounding by reinforcement learning (`kind = "grounding"`)."""

    data: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Data sets in ScreenSpot's format: folders or annotation files, the same ones on every machine.
    `runs/pages` is the task `grounding/pages`. A folder with the folders `train` and `held-out` has its own
    split."""
    held_out_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the screenshots of any other data set that only evaluations show."""
    reward: Literal["hit", "gaussian"] = "hit"
    """What a click is worth in training: 1 in the box and 0 elsewhere, or a Gaussian around the centre of the
    box (GUI-G2). Evaluations always count hits."""


class EnvironmentsSettings(Section):
    """The browsers or desktops, and the deadlines of their calls."""

    count: Processes = 8
    """Number of environment actors, each with a browser or desktop of its own."""
    kind: KindName = "miniwob"
    """Kind of environment: a page in a browser, recorded screenshots, a simulation (`[simulation]`) for
    measurements, a desktop in a sandbox, or a desktop in a virtual machine."""
    park_after_s: Seconds = 1.0
    """Time that an episode waits for an answer before its screen is parked: the clock stands still until the
    answer comes. The episode itself goes on."""
    executable: str = ""
    """Path of a Chromium headless shell; empty for that of Debian's package."""
    reset_deadline_s: Seconds = 20.0
    """Deadline of a reset, which shows a fresh start screen."""
    observe_deadline_s: Seconds = 10.0
    """Deadline of a screenshot."""
    step_deadline_s: Seconds = 10.0
    """Deadline of one action, until the screen shows its effect."""
    evaluate_deadline_s: Seconds = 10.0
    """Deadline of the score of an episode."""
    turn_resumes: Annotated[int, Field(ge=0, le=MOST)] = 0
    """How often an attempt whose browser failed is reset, replayed up to the failed step and goes on there,
    each screenshot compared with the recorded one. Where a screenshot differs, the attempt is spent. 0:
    never. Only for kinds whose screens follow from seed and actions: miniwob, sites and simulated."""
    latency: LatencySettings = LatencySettings()
    """Waits added to every environment."""
    faults: FaultsSettings = FaultsSettings()
    """Faults injected into every environment."""
    desktop: DesktopSettings = DesktopSettings()
    """Desktops in sandboxes."""
    osworld: OSWorldSettings = OSWorldSettings()
    """Desktops that serve OSWorld's guest protocol."""
    sites: SitesSettings = SitesSettings()
    """Web applications of many screens."""
    grounding: ScreenshotsSettings = ScreenshotsSettings()
    """Recorded screenshots."""


class VllmSettings(Section):
    """The vLLM engine of each rollout actor (`rollout.engine = "vllm"`)."""

    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Data type of the weights and of the computation."""
    max_tokens: Count = 8192
    """Largest number of tokens of a prompt, its images and its answer together."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory for weights and caches."""
    cpu_cache_gib: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Size of the key-value cache on machines without a GPU, in GiB."""
    tensor_parallel: Processes = 1
    """Number of GPUs of one engine."""
    eager: bool = False
    """Whether to skip compilation: the engine starts faster and answers more slowly. Without a GPU nothing is
    compiled."""
    health_every_s: Seconds = 10.0
    """Time without an answer after which an engine is asked for one token."""
    health_deadline_s: Seconds = 20.0
    """Deadline of the token of `health_every_s`; an engine that exceeds it is restarted."""


class RolloutSettings(Section):
    """The engines that run the policy."""

    count: Processes = 1
    """Number of rollout actors, each with an engine and a copy of the policy."""
    engine: Literal["transformers", "vllm", "simulated", "oracle"] = "transformers"
    """Library that runs the policy. `simulated` waits instead of computing (`[simulation]`); `oracle` waits
    too and answers with the scripted solutions of the tasks of local desktops."""
    sync: Literal["one_at_a_time", "all_at_once"] = "one_at_a_time"
    """How a new policy version reaches the engines. With all_at_once all engines pause together (the coupled
    way)."""
    sync_share: Annotated[float, Field(gt=0, le=1)] = 0.125
    """Share of the engines that one_at_a_time updates together; at least one engine."""
    weight_update: Literal["swap", "drain"] = "swap"
    """swap: weights change between two batches of an engine (vLLM: also during answers), and waiting requests
    get the new weights; drain: an engine finishes its requests and takes no others before its weights
    change."""
    max_batch: Many = 8
    """Largest number of requests in one forward pass of an engine; vLLM adds requests as soon as it has
    room."""
    threads: Processes = 1
    """CPU threads of each engine."""
    temperature: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Sampling temperature while training."""
    gpus: Annotated[tuple[int | str, ...], Field(strict=False)] = ()
    """GPUs of the engines, as in CUDA_VISIBLE_DEVICES; each engine takes the next vllm.tensor_parallel of
    them. Empty: all GPUs, from the first."""
    answer_deadline_s: Seconds = 60.0
    """Deadline of an answer. After it (at the latest after a fifth of curation.lease_s) the request goes to
    another engine and this one is checked. An engine that computes for longer is restarted (vLLM: after
    load_deadline_s more, because its weights may change meanwhile)."""
    load_deadline_s: Seconds = 60.0
    """Deadline for an engine to read and check a policy version beside its work, and again for it to take the
    version over; an engine that exceeds one of them is restarted with the newest version."""
    vllm: VllmSettings = VllmSettings()
    """Settings of vLLM."""


class ContextSettings(Section):
    """The prompts of a vision-language policy, and the length of its answers."""

    screenshots: Many = 5
    """Number of screenshots in a prompt, the newest included."""
    turns: Annotated[int, Field(ge=0, le=MOST)] = 35
    """Number of past answers in a prompt."""
    answer_tokens: Count = 500
    """Longest answer in tokens."""
    prompt: str = ""
    """Prompt before the instruction: `uitars-1.5` or `uitars-1.5-call-user`, with which UI-TARS-1.5 was
    trained (`dart.policy.uitars.named_prompt`), or a text file, searched for like `training.policy`; empty:
    `dart.policy.uitars.PROMPT`."""
    points: Literal["auto", "image", "screen", "thousandths"] = "auto"
    """Unit of a point's numbers: pixels of the image as the model resizes it, pixels of the screenshot, or
    thousandths of its sides; auto: the unit of the model type (docs/policies.md)."""


class RolloutNumberSettings(Section):
    """Dynamic rollout number: tasks that mostly succeed get fewer rollouts (DART section 3.1)."""

    enabled: bool = False
    """Whether the number depends on the task's success rate; if not, every group has rollouts_per_group."""
    minimum: Annotated[int, Field(ge=2, le=MOST)] = 2
    """Smallest number of rollouts of a group."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Mean reward of its latest rollouts below which a task gets rollouts_per_group."""


class TrajectoryLengthSettings(Section):
    """Dynamic trajectory length: a task's step cap is its longest success so far (DART section 3.1)."""

    enabled: bool = False
    """Whether the cap depends on the task; if not, every episode has step_cap."""
    slack: Annotated[int, Field(ge=0, le=MOST)] = 1
    """Steps added to the longest success."""
    probe_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of groups that run with step_cap anyway, so that longer successes can be found."""


class ExperiencePoolSettings(Section):
    """Demonstrations for groups in which every rollout failed (DART section 3.2)."""

    enabled: bool = False
    """Whether groups that failed get a demonstration."""
    folders: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Folders with a demonstrations.jsonl, relative to the working directory. They are imported when the run
    starts; demonstrations that the pool holds already are skipped."""
    max_uses: Annotated[int, Field(ge=0, le=MOST)] = 0
    """How often one demonstration may be used; 0 for no limit, as in DART's code."""
    without_thought: bool = False
    """Whether to train on actions without a thought although the policy writes thoughts, which it would
    unlearn."""
    self_rolled: bool = False
    """Whether the policy plays the task itself while it sees the actions of a demonstration; a success
    replaces the demonstration. Only vision-language policies can read such a hint."""
    self_rolled_attempts: Count = 4
    """Largest number of guided episodes for one demonstration."""


class HighEntropyStepsSettings(Section):
    """Training on the steps at which the policy was least certain (DART section 3.3)."""

    enabled: bool = False
    """Whether steps with low entropy are left out of the loss."""
    quantile: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Steps below this quantile of their group's step entropies are left out."""


class StepCreditSettings(Section):
    """Which advantage a single step of a trajectory has."""

    method: Literal["trajectory", "gigpo"] = "trajectory"
    """trajectory: that of its trajectory, as in DART. gigpo: in addition, steps of a group with the same
    screenshot are compared by their discounted returns (GiGPO, arXiv 2505.10978); for tasks of several steps
    on screens that do not change by themselves."""
    discount: Annotated[float, Field(gt=0, le=1)] = 0.95
    """gigpo: what a reward is worth a step earlier."""
    weight: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """gigpo: the weight of the comparison of steps beside that of trajectories."""


class TruncatedImportanceSettings(Section):
    """Importance weights that correct for the difference between engine and trainer (DART section 3.4)."""

    enabled: bool = True
    """Whether the policy term is weighted; if not, every weight is 1."""
    cap: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """C: the largest weight."""


class TaskQuarantineSettings(Section):
    """Quarantine of tasks that cost rollouts and teach nothing; they are not played for a while."""

    enabled: bool = True
    """Whether tasks are quarantined."""
    groups_without_success: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Number of groups in a row without a success, demonstrations included, that quarantines their task; 0:
    never."""
    failed_attempts: Count = 20
    """Number of attempts of a task in a row that may end with a fault; the last one quarantines the task."""
    lost_environments: Count = 5
    """Number of environments in a row that may die or hang while they play a task; the last one quarantines
    the task."""
    duration_s: Seconds = 300.0
    """Length of a quarantine, after which one group of the task is tried. Without a success the next
    quarantine lasts twice as long."""


class CurationSettings(Section):
    """Which rollouts are played, and how their groups become batches."""

    rollouts_per_group: Annotated[int, Field(ge=2, le=10**6)] = 8
    """Number of rollouts of one (task, seed), which GRPO compares. With a dynamic number: the largest."""
    step_cap: Many = 10
    """Largest number of environment steps of one episode. With a dynamic cap: the largest."""
    staleness: Annotated[int, Field(ge=0, le=MOST)] = 2
    """K: the age in policy versions of the oldest steps that are trained."""
    over_provision: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """APRIL's alpha: at most this many times groups_per_update groups are in flight or ready. Groups that are
    not done when a batch closes continue and are used later. 0: only the staleness bound limits them."""
    success_above: Annotated[float, Field(ge=0, lt=1)] = SUCCESS_ABOVE
    """A reward above it is a success: for step caps, the experience pool, task quarantine and every
    figure."""
    scheduling: Literal["rollout", "task", "batch"] = "rollout"
    """What an idle environment waits for: nothing, the other rollouts of its group, or the whole batch. batch
    with rollout.sync = "all_at_once" is the coupled loop, task lies between; both are kept for comparison."""
    task_order: Literal["round_robin", "expected_spread"] = "round_robin"
    """Which task gets the next group: the one with the fewest, or each as often as the rewards of its groups
    will probably differ, by its latest episodes."""
    rollout_number: RolloutNumberSettings = RolloutNumberSettings()
    """Number of rollouts of a group."""
    trajectory_length: TrajectoryLengthSettings = TrajectoryLengthSettings()
    """Step cap of an episode."""
    experience_pool: ExperiencePoolSettings = ExperiencePoolSettings()
    """Demonstrations for groups in which every rollout failed."""
    high_entropy: HighEntropyStepsSettings = HighEntropyStepsSettings()
    """Selection of the steps in the loss."""
    step_credit: StepCreditSettings = StepCreditSettings()
    """Advantages of single steps."""
    importance: TruncatedImportanceSettings = TruncatedImportanceSettings()
    """Weights of steps from another version or another engine."""
    task_quarantine: TaskQuarantineSettings = TaskQuarantineSettings()
    """Quarantine of tasks."""
    poll_s: Seconds = 0.2
    """Interval at which an actor without work or without a batch asks again."""
    starved_after_s: Seconds = 60.0
    """Time without a batch, or without work for environments, after which the cause is reported."""
    lease_s: Seconds = 120.0
    """Time for which an environment holds a rollout or an evaluation episode before another one gets it."""
    batch_lease_s: Seconds = 600.0
    """Time for which the trainer may hold a batch before an error is reported."""
    max_attempts: Count = 5
    """Infrastructure failures after which a rollout is dropped; failures of any kind after which an
    evaluation episode is left out of the rates."""
    max_resumes: Annotated[int, Field(ge=0, le=MOST)] = 8
    """How often an episode may be parked and continued before it is played from its start."""


class LoraSettings(Section):
    """Training an adapter beside a frozen vision-language policy instead of every weight; needs peft."""

    rank: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Rank of the adapter; 0: every weight is trained."""
    alpha: Annotated[float, Field(gt=0, le=MOST)] = 32.0
    """The output of the adapter is multiplied by alpha / rank."""
    publish: Literal["adapter", "merged"] = "adapter"
    """What a version is: the adapter, which engines apply to the base policy that they hold; or the weights
    with the adapter merged into them, as large as the base policy."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainingSettings(Section):
    """The optimizer and its loss (DART's step-wise GRPO).

    The defaults are those of DART's job: `lr`, the clip and the KL weight are in its paper (appendix A.4),
    `betas`, `weight_decay` and `max_grad_norm` in its released code. A small policy needs others:
    configs/laptop.toml."""

    policy: Annotated[Path, Field(strict=False)] = Path("configs/base-policy")
    """Folder of the checkpoint to start from. A relative one is looked for beside the file, then beside the
    bundled configurations, then in the working directory. Or a checkpoint on the Hugging Face hub,
    `hf://OWNER/NAME@REVISION`, which `dartrl policy fetch` puts into models/hub."""
    fetch_policy: bool = False
    """Whether `dartrl up` and `dartrl train` fetch a policy on the hub that is not here yet."""
    groups_per_update: Many = 4
    """Number of groups in a batch; all of them have spread in their rewards."""
    updates: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Largest number of updates; 0: only the time budget limits them."""
    actions: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Largest number of environment steps for training, after which running episodes are parked; 0 for no
    limit."""
    lr: Annotated[float, Field(gt=0, le=MOST)] = 1e-6
    """Learning rate of AdamW."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of AdamW's running means of the gradient and of its square."""
    weight_decay: Annotated[float, Field(ge=0, le=MOST)] = 0.1
    """Weight decay of AdamW."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: Annotated[float, Field(gt=0, le=MOST)] = 0.28
    """The probability ratio is clipped above at 1 + clip_high."""
    dual_clip: Annotated[float, Field(gt=1, le=MOST)] = 10.0
    """c: largest probability ratio that counts when the advantage is negative."""
    kl_beta: Annotated[float, Field(ge=0, le=MOST)] = 0.1
    """Weight of the KL divergence to the base policy."""
    pointer_weight: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Weight of a pointer head's supervised loss, on steps with a positive advantage whose element has a
    known box (demonstrations with `box`); 0: none."""
    max_grad_norm: Annotated[float, Field(gt=0, le=MOST)] = 2.0
    """Norm to which larger gradients are scaled down."""
    minibatches: Count = 1
    """Number of optimizer steps per update, each on its share of the batch."""
    warmup_updates: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Updates over which the learning rate rises to `lr`."""
    micro_batch: Count = 32
    """Largest number of step samples in one forward and backward pass."""
    micro_batch_tokens: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Largest number of tokens in one pass, images and padding included; 0: only micro_batch limits it."""
    image_cache_mib: Annotated[int, Field(ge=0, le=MOST)] = 4096
    """Most memory of a rank for screenshots that the image processor has prepared and that the update needs
    again; one of 1920x1080 takes 48 MiB. The small policy has none."""
    ranks: Processes = 1
    """Number of processes that train a vision-language policy together and split its weights (FSDP2): one per
    GPU, or several on the CPU."""
    gpus: Annotated[tuple[int | str, ...], Field(strict=False)] = ()
    """GPUs of the ranks, one each; empty: the GPUs that no engine has, or all if there are none."""
    device: str = "auto"
    """Torch device on which a vision-language policy is trained; auto: the GPU if there is one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision in which a vision-language policy is computed. Several ranks gather weights in it and sum
    gradients in float32."""
    weight_precision: Literal["float32", "bfloat16"] = "float32"
    """Precision in which trained weights, their gradients and AdamW's running means are kept. bfloat16 takes
    half the memory, but loses steps below about 0.2 % of a weight: at lr = 1e-6 nearly all of them
    (docs/performance.md). An adapter stays float32."""
    gradient_checkpointing: bool = False
    """Whether a vision-language policy computes activations twice instead of storing them."""
    lora: LoraSettings = LoraSettings()
    """Training an adapter instead of every weight."""
    threads: Processes = 1
    """CPU threads of the trainer."""
    update_deadline_s: Seconds = 300.0
    """Deadline of an update; a trainer that exceeds it is restarted."""
    checkpoint_deadline_s: Seconds = 120.0
    """Deadline of writing a checkpoint."""
    background_checkpoints: bool = True
    """Whether a checkpoint is written from a copy in main memory while the next update is computed; if not,
    the trainer waits for it. Either way a version is announced when it is durable."""
    learner: Literal["grpo", "simulated", "none"] = "grpo"
    """Kind of learner; `simulated` waits instead of training (`[simulation]`), and `none` is that of a run
    which only measures (`dartrl eval`)."""
    checkpoints_kept: Many = 3
    """Number of newest checkpoints that stay on disk."""


class EvaluationSettings(Section):
    """The evaluation of the policy, on held-out seeds only."""

    seeds_per_task: Many = 50
    """Number of episodes of each task in one evaluation."""
    greedy_seeds_per_task: Annotated[int, Field(ge=0, le=10**6)] = 25
    """How many of a task's seeds_per_task are played once more with the most likely answers (greedily).
    The report shows both rates, because a policy that has only become more certain also has a higher
    sampled rate. 0 for none; none are played at temperature 0."""
    temperature: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """Sampling temperature; 0 for the most likely answer."""
    before: bool = True
    """Measure the policy before training."""
    after: bool = True
    """Measure the policy after training."""
    verifier: str = ""
    """Checkpoint of a verifier that chooses among the proposals of a grounding model in `dartrl ground eval`
    and nowhere else; empty: none. No training rollout uses it: a point that it chose is no sample of the
    policy."""
    verifier_stop_at: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Score from which the verifier looks at no further proposal; GUI-Actor takes 0.95 on ScreenSpot-Pro."""


class GroundingSettings(Section):
    """Training a policy to find elements on screenshots, from boxes (`dartrl ground train`)."""

    data: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Annotation files or folders in ScreenSpot's format to train on."""
    held_out: str = ""
    """Data in ScreenSpot's format that `dartrl align` measures before and after it trains on a site, to show
    what the policy forgets; empty: none."""
    base: str = ""
    """Checkpoint to start from: one with a pointer head, or for head "attention" any of the Qwen-VL family;
    empty: a new small policy."""
    head: Literal["pointer", "attention", "coordinates"] = "pointer"
    """GUI-Actor's pointer head, GUI-AIMA's attention without new weights, or coordinates as the baseline."""
    labels: Literal["overlap", "gaussian"] = "overlap"
    """Target of a patch: whether the box covers any of it, or GUI-AIMA's covered share times a Gaussian."""
    warmup_updates: Annotated[int, Field(ge=0, le=MOST)] = 100
    """Updates of the head and of the rows of new tokens alone, before all weights are trained. A new small
    policy has none, because nothing in it is trained yet."""
    updates: Count = 600
    """Updates of all weights."""
    batch: Many = 16
    """Number of samples of an update."""
    warmup_lr: Annotated[float, Field(gt=0, le=1)] = 1e-3
    """Learning rate of the warm-up."""
    lr: Annotated[float, Field(gt=0, le=1)] = 1.5e-3
    """Largest learning rate afterwards; GUI-Actor takes 5e-6 for a pretrained checkpoint."""
    max_grad_norm: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Limit of the norm of the gradient."""
    seed: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Seed of new weights and of the batches."""


class ExplorationSettings(Section):
    """Exploration of pages: a graph of their screens, found by memory-Q exploration, after GUI-Bee
    (docs/exploration.md). `dartrl explore` explores; in a training run idle environments do, if enabled."""

    enabled: bool = False
    """Whether environments that get no work from the curator explore meanwhile."""
    tasks: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What is explored, one task after another: ids of tasks whose screens are pages. Empty:
    `tasks.train`."""
    seed: Annotated[int, Field(ge=0, lt=1_000_000)] = 0
    """Seed of the start screens, one of those for training."""
    actions: Many = 800
    """Actions for each task after which no walk begins; a reset counts as one."""
    strategy: Literal["memory_q", "least_tried", "random"] = "memory_q"
    """How the next action is chosen."""
    prior: Literal["constant", "model"] = "constant"
    """Value of an action that was never tried: a constant, or raised where the policy would act."""
    prior_samples: Annotated[int, Field(ge=1, le=64)] = 4
    """Answers of the policy for each new screen (`prior = "model"`)."""
    explorers: Processes = 2
    """Number of browsers of `dartrl explore`."""
    max_depth: Many = 8
    """Screens that are so many actions from the start screen are not explored further."""
    lease_s: Seconds = 120.0
    """How long an explorer may hold a screen without a report."""
    lease_actions: Many = 25
    """Actions after which an explorer gives its screen back, so that its environment can do other work."""
    confirm_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the actions that repeats known ones at the end, to see which effects can be relied on."""
    stops_when_flat: bool = True
    """Whether a task counts as explored once 100 actions found less than one new shape in 25."""
    origins: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Origins that may be opened besides that of the start screen, as `https://host:port`. Forms are never
    sent to an address that is not on this machine."""
    texts: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("blue", "paper", "7", "lamp")
    """What is typed into fields."""
    settle_s: Annotated[float, Field(ge=0, le=60)] = 0.1
    """Time between the two looks at a screen that show what changes by itself."""


class SimulationSettings(Section):
    """Simulations of an environment, an engine and a trainer, for measurements of everything around them.

    An episode has a lognormal number of steps; a batch of r requests keeps an engine busy for
    `generate_base_s + r * generate_each_s`; an update takes `update_base_s + samples * update_each_s`."""

    steps_median: Annotated[float, Field(gt=0, le=MOST)] = 8.0
    """Median number of steps of an episode."""
    steps_sigma: Annotated[float, Field(ge=0, le=MOST)] = 0.6
    """Standard deviation of the logarithm of the number of steps."""
    success: Rate = 0.5
    """Share of episodes that succeed."""
    tokens_median: Count = 80
    """Median number of tokens of an answer."""
    generate_base_s: Annotated[float, Field(ge=0, le=MOST)] = 0.1
    """Service time of a batch of requests."""
    generate_each_s: Annotated[float, Field(ge=0, le=MOST)] = 0.01
    """Additional service time for each request of a batch."""
    load_s: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """Time in which an engine reads and checks a policy version; it answers meanwhile."""
    swap_s: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Time for which an engine stands still to take over a version that it has read."""
    update_base_s: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """Time of an update."""
    update_each_s: Annotated[float, Field(ge=0, le=MOST)] = 0.01
    """Additional time for each step sample of an update."""
    checkpoint_s: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Time to write and hash a checkpoint."""


class AlarmsSettings(Section):
    """Alarms for learning: what goes wrong while every process is well (docs/alarms.md).

    A window is `episodes` finished episodes of all tasks; the start of the run is its first two windows. The
    defaults keep a distance to every recorded laptop run, which docs/alarms.md shows."""

    enabled: bool = True
    """Whether the run is watched."""
    off: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of alarms that are never raised."""
    pause: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of alarms that pause the run when they are raised, until `dartrl resume`."""
    episodes: Annotated[int, Field(ge=16, le=10**6)] = 64
    """Number of episodes in a window."""
    entropy_share: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """entropy_collapse: entropy per token of the answers, as a share of that at the start of the run."""
    kl_nats: Annotated[float, Field(gt=0, le=MOST)] = 2.0
    """kl_runaway: KL divergence to the base policy per token. Not watched if training.kl_beta is 0."""
    success_fall: Annotated[float, Field(gt=0, le=1)] = 0.3
    """success_falls: by how much the mean success of the tasks is below its best."""
    mismatch_nats: Annotated[float, Field(gt=0, le=MOST)] = 0.1
    """logprob_mismatch: mean difference per token of the log-probs of engine and trainer for one version."""
    equal_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """equal_rewards: share of the groups in which all rewards are equal."""
    action_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """one_action: share of the steps whose action is the most frequent one, coordinates included."""
    length_factor: Annotated[float, Field(gt=1, le=MOST)] = 2.0
    """length_explodes: tokens of an answer, or steps of an episode of the same task, divided by those at the
    start of the run."""
    gradient_factor: Annotated[float, Field(gt=1, le=MOST)] = 10.0
    """gradients_clipped: norm of the gradient before clipping, divided by training.max_grad_norm."""
    task_fall: Annotated[float, Field(gt=0, le=1)] = 0.85
    """task_unlearned: by which share the success of a task over 96 episodes is below its best."""
    stuck_chance: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    """evaluator_stuck: how likely the latest groups of one and the same reward are, by the 64 before them."""


class TelemetrySettings(Section):
    """Measurements during a run."""

    load_every_s: Seconds = 5.0
    """Interval at which each actor records how busy it was. It is longer if all actors together would do so
    more than 50 times a second."""
    daemon_log_bytes: Annotated[int, Field(ge=65536, le=MOST)] = 4 * 1024 * 1024
    """Size at which the log of `dartrl up --log` and `--detach` is renamed to FILE.1, which replaces an older
    one, and a new log begins."""


class WebSettings(Section):
    """The page that `dartrl up` serves beside the run (docs/web.md)."""

    enabled: bool = True
    """Whether `dartrl up` serves the page. `dartrl web` shows any run at any time."""
    host: str = "127.0.0.1"
    """Address to listen on. Requests from other machines always need the token."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8700
    """Port to listen on; 0 takes a free one, which `dartrl status` shows. The page waits for a port that is
    in use."""
    token_file: str = ""
    """File (mode 0600) with the token that every request needs; created if it does not exist. Empty:
    `web.token` in the run directory, which requests from this machine need only for changes."""
    allow_hosts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further host names that requests may use, such as the name of a proxy."""


class InspectionSettings(Section):
    """How other machines reach a run whose record is on a server (docs/cluster.md). They find address and
    token in the record; for a record in a file, nothing listens."""

    host: str = ""
    """Address to listen on, which other machines can reach. Empty: the one by which this machine reaches the
    server of the record."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port to listen on; 0 takes a free one."""


class TrackingSettings(Section):
    """Figures of every update for TensorBoard and Weights & Biases (docs/tracking.md)."""

    writers: Annotated[tuple[Literal["tensorboard", "wandb"], ...], Field(strict=False)] = ()
    """Programs that receive the figures; needs `pip install 'dartrl[tracking]'`."""
    wandb_mode: Literal["online", "offline"] = "online"
    """online: send figures at once; offline: write files, which `wandb sync` sends later."""
    wandb_project: Annotated[str, Field(min_length=1)] = "dartrl"
    """Project of Weights & Biases."""
    wandb_entity: str = ""
    """User or team of the project; empty: the user who is logged in. The key comes from `wandb login` or
    WANDB_API_KEY, never from this file."""


class BackoffSettings(Section):
    """The wait of a supervisor before it restarts a child."""

    initial_s: Seconds = 0.2
    """Delay before the first restart."""
    factor: Annotated[float, Field(ge=1, le=MOST)] = 2.0
    """Factor by which each further delay is longer than the one before."""
    max_s: Seconds = 10.0
    """Longest delay."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Random share by which a delay may be longer or shorter."""
    reset_after_s: Seconds = 30.0
    """Running time after which a child's next failure uses the first delay again."""


class BudgetSettings(Section):
    """A separate limit for failures of one kind."""

    max_restarts: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Largest number of failures of this kind in any window of max_seconds."""
    max_seconds: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Length of the window of max_restarts; 0: this kind counts together with the others."""


class BudgetsSettings(Section):
    """Budgets by kind of failure."""

    start: BudgetSettings = BudgetSettings()
    """The child ended before it was ready."""
    crash: BudgetSettings = BudgetSettings()
    """The child ended by itself, with an error or an exit code."""
    signal: BudgetSettings = BudgetSettings()
    """A signal from outside ended the child, for instance from the kernel when memory is short."""
    hang: BudgetSettings = BudgetSettings()
    """The child sent no heartbeat and was killed."""


class BreakerSettings(Section):
    """Quarantine of a child that fails too often, instead of ending its whole pool."""

    enabled: bool = False
    """Whether there is quarantine; without it failures spend the pool's max_restarts."""
    max_failures: Annotated[int, Field(ge=0, le=MOST)] = 5
    """Number of failures within within_s; one more quarantines the child."""
    within_s: Seconds = 600.0
    """Length of the window in which failures are counted."""
    open_s: Seconds = 300.0
    """Length of a quarantine, after which the child is started once."""
    healthy_s: Seconds = 60.0
    """Running time after which a child that was quarantined is healthy again; a failure before that
    quarantines it again."""


class RetirementSettings(Section):
    """Replacement of a child before age or use make it fail."""

    max_age_s: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Age at which a child is replaced; 0 for never."""
    max_uses: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Number of uses (episodes of an environment) after which a child is replaced; 0 for never."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Random share by which an age may be longer or shorter, so that a pool is not replaced all at once."""
    warm_spare: bool = False
    """Whether the replacement starts before the old child ends, which needs resources for both."""


class ChildSettings(Section):
    """The supervision of one child, or of each child of a pool."""

    restart: Literal["permanent", "transient", "temporary"] = "permanent"
    """permanent: always restarted; transient: only after a failure; temporary: never."""
    max_restarts: Annotated[int, Field(ge=0, le=MOST)] = 10
    """Largest number of restarts in any window of max_seconds; for a pool, of all its children together."""
    max_seconds: Seconds = 60.0
    """Length of the window of max_restarts."""
    backoff: BackoffSettings = BackoffSettings()
    """Wait before a restart."""
    budgets: BudgetsSettings = BudgetsSettings()
    """Separate limits for kinds of failure."""
    breaker: BreakerSettings = BreakerSettings()
    """Quarantine of a child that fails too often."""
    max_quarantined: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of a pool's children that may be in quarantine. With more, the cause is not in the children, and
    the pool fails."""
    max_failing: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of a pool's children. If more of them fail within a minute, that counts as one event: one child
    is restarted until it stays up, while the others wait. 1: failures are never one event."""
    retirement: RetirementSettings = RetirementSettings()
    """Replacement before age or use make the child fail."""
    start_deadline_s: Seconds = 30.0
    """Longest time from start to ready."""
    hang_deadline_s: Seconds = 8.0
    """Time without a heartbeat, or in one message handler, after which the child is killed and restarted.

    Episodes, generations and updates run outside message handlers and have deadlines of their own."""
    probe_every_s: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Interval at which the child checks whether it can take work (`on_probe`). 0: it makes no check, and can
    take work as soon as it has started."""
    shutdown_s: Annotated[float, Field(ge=0, le=MOST)] = 5.0
    """Time for the child to end by itself before it is killed; 0 kills it at once."""

    def updated(self, different: Mapping[str, Any]) -> "ChildSettings":
        """Return these settings with the values in ``different`` replaced. Raises ValidationError."""
        return ChildSettings.model_validate(merged(self.model_dump(mode="json"), dict(different)))


class RootSettings(Section):
    """The restart limit of the whole tree; when it is exceeded, the run ends."""

    max_restarts: Annotated[int, Field(ge=0, le=MOST)] = 6
    """Largest number of restarts of direct children in any window of max_seconds."""
    max_seconds: Seconds = 120.0
    """Length of the window of max_restarts."""


class SupervisionSettings(Section):
    """The supervision of each child, by its id or by its pool. The tree itself is code (`dart.run.tree`)."""

    root: RootSettings = RootSettings()
    """The root supervisor."""
    store: ChildSettings = ChildSettings(start_deadline_s=20.0)
    """The actor with the durable record."""
    curator: ChildSettings = ChildSettings()
    """The actor with task statistics, leases and groups."""
    rollout_pool: ChildSettings = ChildSettings(start_deadline_s=120.0, hang_deadline_s=20.0)
    """Each rollout actor, `rollout-N`."""
    weight_sync: ChildSettings = ChildSettings()
    """The actor that updates the engines to a new policy version."""
    environment_pool: ChildSettings = ChildSettings(
        max_restarts=20, breaker=BreakerSettings(enabled=True), max_quarantined=0.5
    )
    """Each environment actor, `env-NNN`."""
    exploration: ChildSettings = ChildSettings(restart="transient")
    """The actor that owns the exploration graph."""
    explorer_pool: ChildSettings = ChildSettings(
        max_restarts=20, breaker=BreakerSettings(enabled=True), max_quarantined=0.5
    )
    """Each explorer actor of `dartrl explore`, `explorer-NNN`."""
    trainer: ChildSettings = ChildSettings(
        restart="transient", start_deadline_s=120.0, hang_deadline_s=20.0, shutdown_s=20.0
    )
    """The actor that makes updates."""

    children: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of single children that differ from their pool: `[supervision.children.env-003]`."""

    def child(self, child_id: str) -> ChildSettings:
        """Return the settings of one child: those of its pool, changed by those given for the child alone."""
        limits = self.pool_of(child_id)
        different = self.children.get(child_id)
        return limits if different is None else limits.updated(different)

    def pool_of(self, child_id: str) -> ChildSettings:
        """Return the settings of a child's pool, or of a child without a pool. Raises KeyError."""
        name = next((pool for pattern, pool in POOLS.items() if fnmatch.fnmatch(child_id, pattern)), child_id)
        found = getattr(self, name, None)
        if not isinstance(found, ChildSettings):
            known = sorted(set(type(self).model_fields) - {"root", "children"})
            raise KeyError(f"expected a child id of {known}, got {child_id!r}")
        return found


_MACHINE_POOL: Mapping[str, Any] = {
    "backoff": {"initial_s": 1.0, "max_s": 60.0, "reset_after_s": 120.0},
    "breaker": {"enabled": True, "max_failures": 5, "within_s": 600.0},
    "max_failing": 0.5,
}
"""Supervision of environments in virtual machines. They fail one by one, or together when the computer below
them fails. The sixth failure of a machine within ten minutes quarantines it, and a failure of more than half
of them within a minute counts as one event. Episodes on machines take minutes, so leases are longer. A
virtual machine takes minutes to boot, and its environment fails only after three episodes with up to three
boots each; there the third failure within six hours quarantines it, and half an hour of running, or an
episode, shows that it is healthy."""

MACHINE_DEFAULTS: Mapping[str, dict[str, Any]] = {
    "desktop": {
        "environments": {
            "reset_deadline_s": 60.0,
            "observe_deadline_s": 20.0,
            "step_deadline_s": 30.0,
            "evaluate_deadline_s": 30.0,
        },
        "curation": {"lease_s": 600.0},
        "supervision": {
            "environment_pool": {**_MACHINE_POOL, "retirement": {"max_uses": 500, "max_age_s": 6 * 3600.0}}
        },
    },
    "osworld": {
        "environments": {
            "reset_deadline_s": 600.0,
            "observe_deadline_s": 30.0,
            "step_deadline_s": 100.0,
            "evaluate_deadline_s": 180.0,
        },
        "curation": {"lease_s": 3600.0},
        "supervision": {
            "environment_pool": {
                **_MACHINE_POOL,
                "breaker": {
                    "enabled": True,
                    "max_failures": 2,
                    "within_s": 6 * 3600.0,
                    "open_s": 900.0,
                    "healthy_s": 1800.0,
                },
                "shutdown_s": 60.0,
                "retirement": {"max_uses": 100, "max_age_s": 12 * 3600.0},
            }
        },
    },
}
"""Defaults that differ for a kind of environment; a file or `--set` overrides them."""

POOLS: Mapping[str, str] = {
    "env-*": "environment_pool",
    "rollout-[0-9]*": "rollout_pool",
    "explorer-*": "explorer_pool",
}
"""Pool of a child by the pattern of its id."""
