"""The sections of the configuration: every key with its default and what it means.

Put together, read and checked by `dart.config.config`. No heavy library is imported here.
"""

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from dart.config.layers import Layer, merge
from dart.core.types import SUCCESS_ABOVE

MOST = 10**9
"""No number is larger: so many seconds are thirty years, and a timer can still count them."""

PATH_BYTES_MOST, NAME_BYTES_MOST = 4095, 255
"""What Linux takes for a path, and for a name in it."""

Seconds = Annotated[float, Field(gt=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
Processes = Annotated[int, Field(ge=1, le=1000)]
"""Of actors, threads and GPUs: a run has room for a thousand actors."""

Many = Annotated[int, Field(ge=1, le=10**6)]
"""Of what is held in memory."""


class Section(BaseModel):
    """One TOML table: frozen, strict about types, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _fits_the_system(cls, value: Any) -> Any:
        """Text and paths that no call of the operating system takes are refused where they are written."""
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str | Path) and (why := _why_unfit(one)):
                raise PydanticCustomError("unfit_text", "{why}", {"why": why})
        return value


def _why_unfit(text: str | Path) -> str:
    if "\0" in str(text):
        return "it holds a NUL character"
    if isinstance(text, Path):
        name_bytes = max((len(os.fsencode(part)) for part in text.parts), default=0)
        if len(os.fsencode(text)) > PATH_BYTES_MOST or name_bytes > NAME_BYTES_MOST:
            return f"a path has at most {PATH_BYTES_MOST} bytes, and a name in it {NAME_BYTES_MOST}"
    return ""


class RunSettings(Section):
    """The run as a whole."""

    dir: Annotated[Path, Field(strict=False)] = Path("runs/laptop")
    """Folder that holds everything of this run; relative to the working directory."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of every random choice that is not the machine's."""
    minutes: Annotated[float, Field(ge=0, le=10**7)] = 20.0
    """Wall-clock budget from start to final table, evaluations included; 0 for none."""


class TasksSettings(Section):
    """What is trained."""

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
    """Task ids: `miniwob/<page>`, `desktop/<task>`, `osworld/<application>/<id>` or `simulated/<anything>`,
    as the kind of environment is."""


class LatencySettings(Section):
    """Heavy-tailed waits added to an environment, to measure with the latencies of virtual machines.

    Each wait is lognormal: `median * exp(sigma * z)`, cut at the maximum, times `scale`."""

    enabled: bool = False
    """Whether waits are added."""
    scale: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Every wait is multiplied by this."""
    reset_median_s: Annotated[float, Field(ge=0, le=MOST)] = 10.0
    """Median of a reset."""
    reset_sigma: Annotated[float, Field(ge=0, le=MOST)] = 0.5
    """Spread of resets."""
    reset_max_s: Seconds = 30.0
    """No reset waits longer."""
    step_median_s: Annotated[float, Field(ge=0, le=MOST)] = 2.0
    """Median of a step."""
    step_sigma: Annotated[float, Field(ge=0, le=MOST)] = 0.4
    """Spread of steps."""
    step_max_s: Seconds = 4.0
    """No step waits longer."""


Rate = Annotated[float, Field(ge=0, le=1)]


class FaultsSettings(Section):
    """Faults injected into environments, to see that the run outlives them. Never on by itself."""

    enabled: bool = False
    """Whether faults are injected."""
    seed: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Seed of the plan: the same environment has the same faults at the same operations."""
    crash: Rate = 0.02
    """Share of episodes in which the environment dies."""
    hang: Rate = 0.01
    """Share of episodes in which it stops answering."""
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
    """Share of resets whose screen starts and never answers."""
    ready_too_early: Rate = 0.0
    """Share of resets whose screen answers before there is a window manager; not of pages in a browser."""
    truncated_frame: Rate = 0.0
    """Share of episodes in which half of a screenshot is missing."""
    dirty_reset: Rate = 0.0
    """Share of resets that leave something of another episode behind; not of pages in a browser."""
    popup: Rate = 0.0
    """Share of resets with a window nobody asked for; not of pages in a browser."""
    slow_start: Rate = 0.0
    """Share of resets that take longer, by a third of their deadline."""
    dead_application: Rate = 0.0
    """Share of episodes whose application stands still; not of pages in a browser."""
    dead_window_manager: Rate = 0.0
    """Share of episodes whose window manager dies; not of pages in a browser."""


class DesktopSettings(Section):
    """Desktops without a virtual machine: an X server and real applications in a sandbox each."""

    width: Annotated[int, Field(ge=320, le=7680)] = 800
    """Width of the screen in pixels."""
    height: Annotated[int, Field(ge=240, le=4320)] = 600
    """Height of the screen in pixels."""
    memory_mb: Annotated[int, Field(ge=0, le=MOST)] = 1024
    """Most memory of one desktop with everything in it, where the kernel lets us set a limit; 0 for none."""
    start_deadline_s: Seconds = 10.0
    """Longest a sandbox may take until it answers."""


class OSWorldDockerSettings(Section):
    """Virtual machines in containers of this computer (`provider = "docker"`)."""

    program: str = "docker"
    """The command line client, or one that takes the same arguments."""
    image: str = "happysixd/osworld-docker"
    """Image whose container runs the machine."""
    disk: Annotated[Path, Field(strict=False)] = Path("Ubuntu.qcow2")
    """Disk image with the system, mounted read-only."""
    cpus: Count = 4
    """Processors of the machine."""
    ram: str = "4G"
    """Memory of the machine."""
    disk_size: str = "32G"
    """What the machine may write."""


class OSWorldPoolSettings(Section):
    """Virtual machines lent by a server of DART's environment protocol (`provider = "pool"`)."""

    server: str = "http://127.0.0.1:50003"
    """Address of the server."""
    token_variable: str = "DARTRL_POOL_TOKEN"
    """Environment variable that holds the token. It is written nowhere."""
    own_token: bool = False
    """Nobody else uses the token: machines of it that no environment of this run holds are given back."""


class OSWorldLocalSettings(Section):
    """A guest server in a sandbox of this computer (`provider = "local"`)."""

    server: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Command that serves the guest protocol; `{port}` becomes the port, DISPLAY is set."""
    readable: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Folders the command needs, readable inside."""


class OSWorldSettings(Section):
    """Desktops in virtual machines that serve OSWorld's guest protocol."""

    tasks: Annotated[Path, Field(strict=False)] = Path("evaluation_examples/examples")
    """Folder with the tasks as published (`<application>/<id>.json`), or a set of them; each is played as
    `osworld/<application>/<id>`."""
    cache: Annotated[Path, Field(strict=False)] = Path("osworld-cache")
    """Folder with files that tasks would fetch from the network, by `<task id>/<file name>`."""
    provider: Literal["addresses", "docker", "pool", "local"] = "addresses"
    """Where machines come from."""
    addresses: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """`host:port` of guest servers, one for each environment; other ports as `host:port:chromium:vlc`."""
    renew: Literal["recreate", "revert", "keep"] = "recreate"
    """How a machine becomes clean before an episode: a new one; its snapshot; not at all."""
    revert_command: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Command that brings a machine of `addresses` back; `{address}`, `{host}`, `{port}` and `{snapshot}` are
    filled in."""
    password: str = "password"
    """Of the guest's user; `{CLIENT_PASSWORD}` in tasks."""
    width: Annotated[int, Field(ge=320, le=7680)] = 1920
    """Width of the guest's screen in pixels; `{SCREEN_WIDTH}` in tasks."""
    height: Annotated[int, Field(ge=240, le=4320)] = 1080
    """Height of the guest's screen in pixels; `{SCREEN_HEIGHT}` in tasks."""
    pause_s: Annotated[float, Field(ge=0, le=MOST)] = 2.0
    """Wait after an action, until the screen shows what it did."""
    docker: OSWorldDockerSettings = OSWorldDockerSettings()
    """Containers."""
    pool: OSWorldPoolSettings = OSWorldPoolSettings()
    """Machines of a server."""
    local: OSWorldLocalSettings = OSWorldLocalSettings()
    """Sandboxes."""


class EnvironmentsSettings(Section):
    """The browsers or desktops, and how long each of their answers may take."""

    count: Processes = 8
    """Environment actors, each with a browser or desktop of its own."""
    kind: Literal["miniwob", "simulated", "desktop", "osworld"] = "miniwob"
    """What an environment is: a page in a browser, a model of one (`[simulation]`) for measurements, a
    desktop in a sandbox, or a desktop in a virtual machine."""
    park_after_s: Seconds = 1.0
    """An episode that waits this long for an answer is parked: the clock of its page stands still."""
    executable: str = ""
    """Path of a Chromium headless shell; empty for Debian's."""
    reset_deadline_s: Seconds = 20.0
    """Longest a fresh start screen may take."""
    observe_deadline_s: Seconds = 10.0
    """Longest a screenshot may take."""
    step_deadline_s: Seconds = 10.0
    """Longest one action may take, until the screen shows its effect."""
    evaluate_deadline_s: Seconds = 10.0
    """Longest the score of an episode may take."""
    latency: LatencySettings = LatencySettings()
    """Waits added to every environment."""
    faults: FaultsSettings = FaultsSettings()
    """Faults injected into every environment."""
    desktop: DesktopSettings = DesktopSettings()
    """Desktops in sandboxes."""
    osworld: OSWorldSettings = OSWorldSettings()
    """Desktops in virtual machines."""


class VllmSettings(Section):
    """The vLLM engine of each rollout actor (`rollout.engine = "vllm"`)."""

    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Type of the weights and of the arithmetic."""
    max_tokens: Count = 8192
    """Most tokens of a prompt, its images included, and its answer together."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory for weights and caches."""
    cpu_cache_gib: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Memory of the key-value cache where there is no GPU, in GiB."""
    tensor_parallel: Processes = 1
    """GPUs of one engine."""
    eager: bool = False
    """Whether nothing is compiled before the first answer: a quicker start, slower answers. Without a GPU
    nothing ever is."""
    health_every_s: Seconds = 10.0
    """An engine that answered nobody for this long is asked for one token."""
    health_deadline_s: Seconds = 20.0
    """Longest one token may take; an engine that takes longer is ended and started again."""


class RolloutSettings(Section):
    """The engines that answer for the policy."""

    count: Processes = 1
    """Rollout actors, each with an engine and a copy of the policy."""
    engine: Literal["transformers", "vllm", "simulated", "oracle"] = "transformers"
    """Library that runs the policy; `simulated` only waits as long as one would (`[simulation]`), `oracle`
    waits so too and answers with the scripted solutions of the tasks of local desktops."""
    sync: Literal["one_at_a_time", "all_at_once"] = "one_at_a_time"
    """How a new policy version goes through the engines; all at once is the coupled way: all stall."""
    sync_share: Annotated[float, Field(gt=0, le=1)] = 0.125
    """One at a time means at most this share of the engines at a time, and at least one."""
    weight_update: Literal["swap", "drain"] = "swap"
    """swap: weights change between two batches of an engine (vLLM: in the middle of answers), waiting
    requests are answered by the new ones; drain: an engine takes no requests and answers those it has before
    its weights change."""
    max_batch: Many = 8
    """Most requests an engine answers in one forward pass; vLLM takes each as soon as there is room."""
    threads: Processes = 1
    """CPU threads of each engine."""
    temperature: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Sampling temperature while training."""
    gpus: Annotated[tuple[int | str, ...], Field(strict=False)] = ()
    """GPUs of the engines, as CUDA_VISIBLE_DEVICES names them, vllm.tensor_parallel for each in turn; none
    named: all there are, from the first."""
    answer_deadline_s: Seconds = 60.0
    """Longest an answer may take. Who asked asks another engine then (after a fifth of curation.lease_s at
    the latest) and this one has to prove itself; one that computes for so long is started again (vLLM: for
    load_deadline_s more, as weights may change under it)."""
    load_deadline_s: Seconds = 60.0
    """Longest a policy version may take to be checked, loaded and proven by a token; an engine that takes
    longer is ended and started again with the newest."""
    vllm: VllmSettings = VllmSettings()
    """What only vLLM needs."""


class ContextSettings(Section):
    """What a vision-language policy is shown of an episode, and how long it may answer."""

    screenshots: Many = 5
    """Screenshots in a prompt, the newest included."""
    turns: Annotated[int, Field(ge=0, le=MOST)] = 35
    """Past answers in a prompt."""
    answer_tokens: Count = 500
    """An answer is cut after so many tokens."""
    prompt: str = ""
    """Text file with what the policy is told before the instruction, looked for as `training.policy` is;
    empty: `dart.policy.uitars.PROMPT`."""
    points: Literal["auto", "image", "screen", "thousandths"] = "auto"
    """What the numbers of a point count: pixels of the image in the size the model looks at, pixels of the
    screenshot, or thousandths of its sides; auto: what the model type was taught (docs/policies.md)."""


class RolloutNumberSettings(Section):
    """Dynamic rollout number: tasks that mostly succeed get fewer rollouts (DART section 3.1)."""

    enabled: bool = False
    """Whether the number follows the task's success; else every group has rollouts_per_group."""
    minimum: Annotated[int, Field(ge=2, le=MOST)] = 2
    """Fewest rollouts of a group."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Below this success over its latest rollouts a task has rollouts_per_group."""


class TrajectoryLengthSettings(Section):
    """Dynamic trajectory length: a task's step cap is its longest success so far (DART section 3.1)."""

    enabled: bool = False
    """Whether the cap follows the task; else every episode has step_cap."""
    slack: Annotated[int, Field(ge=0, le=MOST)] = 1
    """Steps added to the longest success."""
    probe_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of groups that run at step_cap all the same, so that longer successes can still be found."""


class ExperiencePoolSettings(Section):
    """Successes from elsewhere, for groups in which every rollout failed (DART section 3.2)."""

    enabled: bool = False
    """Whether groups that failed get a demonstration."""
    folders: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Folders with a demonstrations.jsonl, relative to the working directory, imported when the run starts;
    what the pool holds already is not added again."""
    max_uses: Annotated[int, Field(ge=0, le=MOST)] = 16
    """How often one demonstration may be used; 0 for no limit."""
    without_thought: bool = False
    """Whether actions without a thought are trained on though the policy writes one before each action: it
    would learn to leave it out."""
    self_rolled: bool = False
    """Whether the policy plays the task itself under the actions of a demonstration. A success takes that
    demonstration's place. For policies that read a hint: the vision-language ones."""
    self_rolled_attempts: Count = 4
    """How many such episodes one demonstration may cost."""


class HighEntropyStepsSettings(Section):
    """Training on the steps at which the policy was least certain (DART section 3.3)."""

    enabled: bool = False
    """Whether the steps of lowest entropy are left out of the loss."""
    quantile: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Steps below this quantile of their group's step entropies are left out."""


class TruncatedImportanceSettings(Section):
    """Weights that make up for the difference between engine and trainer (DART section 3.4)."""

    enabled: bool = True
    """Whether the policy term is weighted; else every weight is 1."""
    cap: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """C: no weight is larger."""


class TaskQuarantineSettings(Section):
    """Tasks that cost rollouts and teach nothing are left alone for a while, with a reason."""

    enabled: bool = True
    """Whether tasks are quarantined."""
    groups_without_success: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Groups in a row without a success, the pool included, after which a task is quarantined; 0: never."""
    failed_attempts: Count = 20
    """Attempts in a row that ended by a fault after which a task is quarantined."""
    lost_environments: Count = 5
    """Environments that died or hung in a row while playing a task, after which it is quarantined."""
    duration_s: Seconds = 300.0
    """How long the quarantine lasts before one group is tried; each time in a row twice as long."""


class CurationSettings(Section):
    """Which rollouts are played, and what becomes of them."""

    rollouts_per_group: Annotated[int, Field(ge=2, le=10**6)] = 8
    """Rollouts of one (task, seed); GRPO compares within them. The largest number where it is dynamic."""
    step_cap: Many = 10
    """Most environment steps of one episode. The largest cap where it is dynamic."""
    staleness: Annotated[int, Field(ge=0, le=MOST)] = 2
    """K: no step is trained whose policy version is older than this many versions."""
    over_provision: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """APRIL's alpha: groups in flight or ready are at most this many times groups_per_update; what is not
    done when a batch closes is carried on, never thrown away. 0: only the staleness bound limits them."""
    success_above: Annotated[float, Field(ge=0, lt=1)] = SUCCESS_ABOVE
    """A reward above it is a success: for step caps, the experience pool, the rest of tasks, and in every
    figure."""
    scheduling: Literal["rollout", "task", "batch"] = "rollout"
    """What an idle environment waits for: nothing; the other rollouts of its group; the whole batch. The last
    two are the coupled ways, kept for comparison."""
    rollout_number: RolloutNumberSettings = RolloutNumberSettings()
    """How many rollouts a group has."""
    trajectory_length: TrajectoryLengthSettings = TrajectoryLengthSettings()
    """How long an episode may be."""
    experience_pool: ExperiencePoolSettings = ExperiencePoolSettings()
    """What is done for groups in which every rollout failed."""
    high_entropy: HighEntropyStepsSettings = HighEntropyStepsSettings()
    """Which steps are trained."""
    importance: TruncatedImportanceSettings = TruncatedImportanceSettings()
    """How steps of another version or another engine are weighted."""
    task_quarantine: TaskQuarantineSettings = TaskQuarantineSettings()
    """Which tasks rest."""
    poll_s: Seconds = 0.2
    """Whoever has to wait for work or for a batch asks again after this long."""
    starved_after_s: Seconds = 60.0
    """A trainer without a batch, or environments without work, for this long is told with its cause."""
    lease_s: Seconds = 120.0
    """How long an environment may hold a rollout or an episode of an evaluation before it is given to
    another."""
    batch_lease_s: Seconds = 600.0
    """How long the trainer may hold a batch before that is told as a fault."""
    max_attempts: Count = 5
    """Infrastructure failures a rollout may meet before it is dropped; failures of any kind that an episode
    of an evaluation may meet before it is left out of the rates."""
    max_resumes: Annotated[int, Field(ge=0, le=MOST)] = 8
    """How often an episode may be parked and taken up again before it is played anew."""


class LoraSettings(Section):
    """Training an adapter beside a frozen vision-language policy instead of every weight; needs peft."""

    rank: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Rank of the adapter; 0: every weight is trained."""
    alpha: Annotated[float, Field(gt=0, le=MOST)] = 32.0
    """The adapter counts by alpha / rank."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainingSettings(Section):
    """The optimizer and its loss (DART's step-wise GRPO)."""

    policy: Annotated[Path, Field(strict=False)] = Path("configs/base-policy")
    """Folder of the checkpoint to start from. A relative one is looked for beside the file, then beside the
    bundled configurations, then in the working directory."""
    groups_per_update: Many = 4
    """Groups with spread in their rewards that make one batch."""
    updates: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Most optimizer updates; 0 for no limit but the time budget."""
    actions: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Most environment steps played for training; 0 for no limit. What is in flight then is parked."""
    lr: Annotated[float, Field(gt=0, le=MOST)] = 3e-4
    """Learning rate of AdamW."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of AdamW's running means of the gradient and of its square."""
    weight_decay: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Weight decay of AdamW."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: Annotated[float, Field(gt=0, le=MOST)] = 0.28
    """The probability ratio is clipped above at 1 + clip_high."""
    dual_clip: Annotated[float, Field(gt=1, le=MOST)] = 10.0
    """c: where the advantage is negative the probability ratio counts at most this."""
    kl_beta: Annotated[float, Field(ge=0, le=MOST)] = 0.1
    """Weight of the KL divergence to the policy training started from."""
    max_grad_norm: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Gradients are scaled down to this norm."""
    minibatches: Count = 1
    """Optimizer steps per update, each on its share of the batch."""
    warmup_updates: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Updates over which the learning rate rises to `lr`."""
    micro_batch: Count = 32
    """Most step samples in one forward and backward pass."""
    micro_batch_tokens: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Most tokens in one pass, images and padding included; 0: only micro_batch limits it."""
    ranks: Processes = 1
    """Processes that train a vision-language policy together, its weights split among them (FSDP2): one for
    each GPU, or on the CPU."""
    gpus: Annotated[tuple[int | str, ...], Field(strict=False)] = ()
    """GPUs of the ranks, one for each; none named: those that no engine has, or else all."""
    device: str = "auto"
    """Where a vision-language policy is trained, as torch names it; auto: the GPU where there is one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What a vision-language policy is computed in; weights that are trained stay float32."""
    gradient_checkpointing: bool = False
    """Whether a vision-language policy computes activations twice instead of keeping them."""
    lora: LoraSettings = LoraSettings()
    """Training an adapter instead of every weight."""
    threads: Processes = 1
    """CPU threads of the trainer."""
    update_deadline_s: Seconds = 300.0
    """Longest an update may take; a trainer that takes longer is ended and started again."""
    checkpoint_deadline_s: Seconds = 120.0
    """Longest a checkpoint may take to be written."""
    learner: Literal["grpo", "simulated"] = "grpo"
    """What makes an update; `simulated` only waits as long as one would (`[simulation]`)."""
    checkpoints_kept: Many = 3
    """Newest checkpoints that stay on disk."""


class EvaluationSettings(Section):
    """How the policy is measured, on held-out seeds only."""

    seeds_per_task: Many = 50
    """Episodes of each task in one evaluation."""
    greedy_seeds_per_task: Annotated[int, Field(ge=0, le=10**6)] = 25
    """Of these, how many are played once more with the most likely answers (greedily). The report shows both
    rates: training may raise the sampled one by certainty alone. 0 for none, and none at temperature 0."""
    temperature: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """Sampling temperature; 0 for the most likely answer."""
    before: bool = True
    """Measure the policy before training."""
    after: bool = True
    """Measure the policy after training."""


class SimulationSettings(Section):
    """Models of an environment, an engine and a trainer, for measurements of everything around them.

    An episode has a lognormal number of steps; a batch of r requests keeps an engine busy for
    `generate_base_s + r * generate_each_s`; an update takes `update_base_s + samples * update_each_s`."""

    steps_median: Annotated[float, Field(gt=0, le=MOST)] = 8.0
    """Median number of steps of an episode."""
    steps_sigma: Annotated[float, Field(ge=0, le=MOST)] = 0.6
    """Spread of the number of steps."""
    success: Rate = 0.5
    """Share of episodes that succeed."""
    tokens_median: Count = 80
    """Tokens of an answer."""
    generate_base_s: Annotated[float, Field(ge=0, le=MOST)] = 0.1
    """Service time of any batch of requests."""
    generate_each_s: Annotated[float, Field(ge=0, le=MOST)] = 0.01
    """Service time for each request of a batch."""
    load_s: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """Time to load a policy version."""
    update_base_s: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """Time of any update."""
    update_each_s: Annotated[float, Field(ge=0, le=MOST)] = 0.01
    """Time for each step sample of an update."""


class TelemetrySettings(Section):
    """What is measured while a run goes on."""

    load_every_s: Seconds = 5.0
    """How often each actor records how busy it was."""
    daemon_log_bytes: Annotated[int, Field(ge=65536, le=MOST)] = 4 * 1024 * 1024
    """Of the log that `dartrl up --log` and `--detach` write: at this size it becomes FILE.1, in the place of
    an older one, and is begun anew."""


class WebSettings(Section):
    """The page that `dartrl up` serves beside the run (docs/web.md)."""

    enabled: bool = True
    """Whether `dartrl up` serves it; `dartrl web` shows any run at any time."""
    host: str = "127.0.0.1"
    """Address to listen at; beyond this machine everybody is asked for the token."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8700
    """Port to listen at; 0 takes a free one, which `dartrl status` tells; one that is taken is waited for."""
    token_file: str = ""
    """File with a token that everybody is asked for (mode 0600); made where there is none. Empty: `web.token`
    in the run directory, which on this machine only those are asked for who change something."""
    allow_hosts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further names the page may be asked under, such as that of a proxy before it."""


class TrackingSettings(Section):
    """Figures of every update for TensorBoard and Weights & Biases (docs/tracking.md)."""

    writers: Annotated[tuple[Literal["tensorboard", "wandb"], ...], Field(strict=False)] = ()
    """Who gets them: `tensorboard`, `wandb`, both or nobody; needs `pip install 'dartrl[tracking]'`."""
    wandb_mode: Literal["online", "offline"] = "online"
    """offline: written to files, and sent when somebody runs `wandb sync`."""
    wandb_project: Annotated[str, Field(min_length=1)] = "dartrl"
    """Project of Weights & Biases."""
    wandb_entity: str = ""
    """Its user or team; empty for that of whoever is logged in. The key is never here: `wandb login`, or
    WANDB_API_KEY."""


class BackoffSettings(Section):
    """How long a supervisor waits before it starts a child again."""

    initial_s: Seconds = 0.2
    """Delay before the first restart."""
    factor: Annotated[float, Field(ge=1, le=MOST)] = 2.0
    """Each further delay is this many times the one before."""
    max_s: Seconds = 10.0
    """Longest delay."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Random share by which a delay may be longer or shorter."""
    reset_after_s: Seconds = 30.0
    """A child that ran this long starts again at the first delay."""


class BudgetSettings(Section):
    """Failures of one kind that a child may have, counted for themselves."""

    max_restarts: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Most failures of this kind in any window of max_seconds."""
    max_seconds: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Length of that window; 0: this kind counts with the others."""


class BudgetsSettings(Section):
    """Budgets by kind of failure."""

    start: BudgetSettings = BudgetSettings()
    """It ended before it was ready."""
    crash: BudgetSettings = BudgetSettings()
    """It ended by itself: an error, an exit code."""
    signal: BudgetSettings = BudgetSettings()
    """Something outside ended it, the kernel when memory is short among others."""
    hang: BudgetSettings = BudgetSettings()
    """It gave no sign of life and was killed."""


class BreakerSettings(Section):
    """Quarantine of a child that fails too often, instead of ending its whole pool."""

    enabled: bool = False
    """Whether there is quarantine; without it failures spend the pool's max_restarts."""
    max_failures: Annotated[int, Field(ge=0, le=MOST)] = 5
    """More failures than this within within_s open it: the child is left alone."""
    within_s: Seconds = 600.0
    """Length of the window in which failures are counted."""
    open_s: Seconds = 300.0
    """How long a child is left alone before it is tried once more."""
    healthy_s: Seconds = 60.0
    """A child that ran this long after that is healthy again; a failure before opens it anew."""


class RetirementSettings(Section):
    """Replacement of a child before age or use make it fail."""

    max_age_s: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Replaced after running this long; 0 for never."""
    max_uses: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Replaced after this many uses (episodes of an environment); 0 for never."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Random share by which an age may be longer or shorter, so that a pool does not retire in step."""
    warm_spare: bool = False
    """Start the replacement first, retire the old one when it is ready; needs room for both."""


class ChildSettings(Section):
    """How one child, or each child of a pool, is supervised."""

    restart: Literal["permanent", "transient", "temporary"] = "permanent"
    """permanent: always started again; transient: only after a failure; temporary: never."""
    max_restarts: Annotated[int, Field(ge=0, le=MOST)] = 10
    """Most restarts in any window of max_seconds; of a pool: of all its children together."""
    max_seconds: Seconds = 60.0
    """Length of that window."""
    backoff: BackoffSettings = BackoffSettings()
    """Waiting before a restart."""
    budgets: BudgetsSettings = BudgetsSettings()
    """Kinds of failure that are counted for themselves."""
    breaker: BreakerSettings = BreakerSettings()
    """Quarantine of a flaky child."""
    max_quarantined: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of a pool that may be in quarantine; beyond it the fault is not theirs and the pool gives up."""
    max_failing: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of a pool beyond which failures within a minute are one event with one cause: one child is tried
    until it holds, the others wait. 1: never."""
    retirement: RetirementSettings = RetirementSettings()
    """Replacement before age or use make it fail."""
    start_deadline_s: Seconds = 30.0
    """Longest from start to ready."""
    hang_deadline_s: Seconds = 8.0
    """Without a beat, or in one message handler for this long, it is killed and started again.

    Episodes, generates and updates run beside the mailbox: they have deadlines of their own."""
    probe_every_s: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """How often it is asked whether it can take work (`on_probe`); 0: it can as soon as it has started."""
    shutdown_s: Annotated[float, Field(ge=0, le=MOST)] = 5.0
    """Time to end by itself before it is killed; 0 kills at once."""


class RootSettings(Section):
    """The budget of the whole tree: spent, the run ends."""

    max_restarts: Annotated[int, Field(ge=0, le=MOST)] = 6
    """Most restarts of direct children in any window of max_seconds."""
    max_seconds: Seconds = 120.0
    """Length of that window."""


class SupervisionSettings(Section):
    """Limits by child id, or by pool for each of its children. The tree itself is code (`dart.run.tree`)."""

    root: RootSettings = RootSettings()
    """The root supervisor."""
    store: ChildSettings = ChildSettings(start_deadline_s=20.0)
    """The durable record."""
    curator: ChildSettings = ChildSettings()
    """Task statistics, leases, groups."""
    rollout_pool: ChildSettings = ChildSettings(start_deadline_s=120.0, hang_deadline_s=20.0)
    """Each `rollout-N`."""
    weight_sync: ChildSettings = ChildSettings()
    """Rolls a new policy version through the engines."""
    environment_pool: ChildSettings = ChildSettings(
        max_restarts=20, breaker=BreakerSettings(enabled=True), max_quarantined=0.5
    )
    """Each `env-NNN`."""
    trainer: ChildSettings = ChildSettings(
        restart="transient", start_deadline_s=120.0, hang_deadline_s=20.0, shutdown_s=20.0
    )
    """The optimizer."""

    children: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """What is different for one child of a pool: `[supervision.children.env-003]`, keys as in its pool."""

    def child(self, child_id: str) -> ChildSettings:
        """The limits of one child by its id: `env-003` through its pool and what is different for it."""
        limits = self._pool_of(child_id)
        different = self.children.get(child_id)
        return limits if different is None else ChildSettings.model_validate(child_over(limits, different))

    def _pool_of(self, child_id: str) -> ChildSettings:
        name = next((pool for pattern, pool in POOLS.items() if fnmatch.fnmatch(child_id, pattern)), child_id)
        found = getattr(self, name, None)
        if not isinstance(found, ChildSettings):
            known = sorted(set(type(self).model_fields) - {"root", "children"})
            raise KeyError(f"expected a child id of {known}, got {child_id!r}")
        return found


def child_over(limits: ChildSettings, different: Mapping[str, Any]) -> Mapping[str, Any]:
    merged, _ = merge([Layer("pool", limits.model_dump(mode="json")), Layer("child", dict(different))])
    return merged


_MACHINE_POOL: Mapping[str, Any] = {
    "backoff": {"initial_s": 1.0, "max_s": 60.0, "reset_after_s": 120.0},
    "breaker": {"enabled": True, "max_failures": 5, "within_s": 600.0},
    "max_failing": 0.5,
}
"""Machines fail for reasons of their own, and together when what they run on fails: the sixth failure within
ten minutes is quarantine, and a failure of over half of them within a minute is one event. Episodes on them
take minutes, so leases do. A virtual machine boots for minutes, three times an episode and three episodes
before its environment fails: there the third failure within six hours is quarantine, and it takes half an
hour of running, or an episode, to show that one is well."""

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
"""What is different by default where environments are of this kind; a file or `--set` has the last word."""

POOLS: Mapping[str, str] = {"env-*": "environment_pool", "rollout-[0-9]*": "rollout_pool"}
"""Which pool's limits hold for a child, by the pattern of its id."""
