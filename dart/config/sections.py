"""The sections of the configuration: every key with its default and its meaning.

`dart.config.config` combines, reads and checks them. No heavy library is imported here.
"""

import fnmatch
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from dart.config.environment_kinds import KindName
from dart.config.layers import merged
from dart.core.types import ACTORS_MOST, SUCCESS_ABOVE
from dart.core.utf8 import is_utf8

MOST = 10**9
"""Largest value of most numbers. In seconds it is thirty years, which timers can still count."""

PATH_BYTES_MOST, NAME_BYTES_MOST = 4095, 255
"""Linux's limits, in bytes, of the length of a path and of each name in it."""

Seconds = Annotated[float, Field(gt=0, le=MOST)]
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$")]
Count = Annotated[int, Field(ge=1, le=MOST)]
Processes = Annotated[int, Field(ge=1, le=ACTORS_MOST)]
"""Type of a number of actors, threads or GPUs. A run has room for a thousand actors."""

Many = Annotated[int, Field(ge=1, le=10**6)]
"""Type of a number of things that a process holds in memory, such as requests or samples."""


WEB_ORIGIN = re.compile(r"https?://([\w.-]+|\[[\da-f:]+\])(:\d+)?", re.ASCII | re.IGNORECASE)
"""Pattern of a web origin: scheme and host, and the port if it is not the default one."""


class Section(BaseModel):
    """One TOML table. It is frozen, converts no types and refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _fits_the_system(cls, value: Any) -> Any:
        """Refuse text and paths that the operating system does not accept."""
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str | Path) and (why := why_unfit(one)):
                raise PydanticCustomError("unfit_text", "{why}", {"why": why})
        return value


def why_unfit(text: str | Path) -> str:
    """Return why a configuration file or the operating system cannot have this text; empty if both can."""
    if "\0" in str(text):
        return "it contains a NUL character"
    if not is_utf8(str(text)):
        return "it is not UTF-8 text (choose another name)"
    if isinstance(text, Path):
        name_bytes = max((len(os.fsencode(part)) for part in text.parts), default=0)
        if len(os.fsencode(text)) > PATH_BYTES_MOST or name_bytes > NAME_BYTES_MOST:
            return f"a path has at most {PATH_BYTES_MOST} bytes, and a name in it {NAME_BYTES_MOST}"
    return ""


class RunSettings(Section):
    """The run as a whole."""

    dir: Annotated[Path, Field(strict=False)] = Path("runs/laptop")
    """Run directory: the folder for all files of this run, relative to the working directory."""
    record: str = ""
    """Where the record is. Empty: `store.db` in the run directory. Else
    `postgresql://USER@HOST:PORT/DATABASE`, a database for this run alone. Put its password into ~/.pgpass
    (PGPASSFILE), PGPASSWORD or a service file, never here."""
    blobs: str = ""
    """Where screenshots, steps and checkpoints are. Empty: in the run directory. Else a place that several
    machines reach, with a prefix or folder for this run alone: `s3://BUCKET/PREFIX` (AWS_ENDPOINT_URL selects
    another S3 server) or `file:///FOLDER`. Credentials are in the environment or the machine's role, never
    here."""
    cache_bytes: Annotated[int, Field(ge=10**6)] = 20 * 10**9
    """Largest size in bytes of the cache on each machine that holds blobs of object storage."""
    screenshots_kept_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """Days after which a screenshot is deleted that no later step shows and that can no longer be trained or
    played: of trained and dropped groups, of evaluations, and of demonstrations out of use. 0: never. Steps,
    answers and rewards stay. Set it from the beginning of a run whose blobs are in object storage."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of every random choice of the run; scheduling and timing stay random."""
    minutes: Annotated[float, Field(ge=0, le=10**7)] = 20.0
    """Time budget of the whole run in minutes of wall-clock time, evaluations included; 0: no limit. No
    update begins after it, but an evaluation is always played to its end."""


class TasksSettings(Section):
    """The tasks of a run."""

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
    `osworld/<application>/<id>`, `simulated/<anything>` or `own/<anything>`. They begin with
    `environments.kind`. `dartrl tasks available` lists them."""


class LatencySettings(Section):
    """Waits added to every environment, for measurements with the latency of virtual machines.

    Each wait is drawn from a lognormal distribution, `median * exp(sigma * z)` with z standard normal,
    limited to the maximum and then multiplied by `scale`."""

    enabled: bool = False
    """Whether waits are added."""
    scale: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Factor by which every wait is multiplied, also the longest ones."""
    reset_median_s: Annotated[float, Field(ge=0, le=MOST)] = 10.0
    """Median wait before a reset."""
    reset_sigma: Annotated[float, Field(ge=0, le=MOST)] = 0.5
    """Sigma of the waits of resets: the standard deviation of their logarithm."""
    reset_max_s: Seconds = 30.0
    """Longest wait of a reset."""
    step_median_s: Annotated[float, Field(ge=0, le=MOST)] = 2.0
    """Median wait before a step."""
    step_sigma: Annotated[float, Field(ge=0, le=MOST)] = 0.4
    """Sigma of the waits of steps: the standard deviation of their logarithm."""
    step_max_s: Seconds = 4.0
    """Longest wait of a step."""


Rate = Annotated[float, Field(ge=0, le=1)]


class FaultsSettings(Section):
    """Faults injected into environments, to test that the run survives them. Off unless enabled."""

    enabled: bool = False
    """Whether faults are injected."""
    seed: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Seed from which the faults are drawn; with the same seed an environment has the same faults at the same
    operations."""
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
    miniwob and sites."""
    truncated_frame: Rate = 0.0
    """Share of episodes in which half of a screenshot is missing."""
    dirty_reset: Rate = 0.0
    """Share of resets that leave something of another episode behind; must be 0 for miniwob and sites."""
    popup: Rate = 0.0
    """Share of resets after which an unexpected window is open; must be 0 for miniwob and sites."""
    slow_start: Rate = 0.0
    """Share of resets that take longer, by a third of the reset deadline."""
    dead_application: Rate = 0.0
    """Share of episodes whose application is stopped; must be 0 for miniwob and sites."""
    dead_window_manager: Rate = 0.0
    """Share of episodes whose window manager dies; must be 0 for miniwob and sites."""


class DesktopSettings(Section):
    """Desktops without a virtual machine; each is a sandbox with an X server and real applications."""

    width: Annotated[int, Field(ge=320, le=7680)] = 800
    """Width of the screen in pixels."""
    height: Annotated[int, Field(ge=240, le=4320)] = 600
    """Height of the screen in pixels."""
    memory_mb: Annotated[int, Field(ge=0, le=MOST)] = 1024
    """Memory limit in MiB of one desktop with all its programs, if the kernel permits such a limit; 0: no
    limit."""
    start_deadline_s: Seconds = 10.0
    """Longest time until a new sandbox responds."""


class OSWorldDockerSettings(Section):
    """Virtual machines in containers on this computer (`provider = "docker"`)."""

    program: str = "docker"
    """Docker's command line client, or a program with the same arguments."""
    image: str = "happysixd/osworld-docker"
    """Image of the container that runs the machine."""
    disk: Annotated[Path, Field(strict=False)] = Path("Ubuntu.qcow2")
    """Disk image with the operating system of the machine; it is mounted read-only."""
    cpus: Count = 4
    """Number of processors of the machine."""
    ram: str = "4G"
    """Memory of the machine, in the units of QEMU."""
    disk_size: str = "32G"
    """Size of the machine's disk, in the units of QEMU."""


class OSWorldPoolSettings(Section):
    """Virtual machines that a server lends by DART's environment protocol (`provider = "pool"`)."""

    server: str = "http://127.0.0.1:50003"
    """Address of the server, as `http://HOST:PORT`."""
    token_variable: str = "DARTRL_POOL_TOKEN"
    """Name of the environment variable with the server's token. The token is never written to a file."""
    own_token: bool = False
    """Whether only this run uses the token. If so, the run stops machines of the token that none of its
    environments holds: when the server lends no more, or has not answered a start. In a cluster all
    environments must then be on one node."""


class OSWorldLocalSettings(Section):
    """A guest server in a sandbox on this computer (`provider = "local"`)."""

    server: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Command that serves OSWorld's guest protocol; it runs with DISPLAY set, and `{port}` is replaced by the
    port."""
    readable: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Folders that the command may read inside the sandbox."""


class OSWorldSettings(Section):
    """Desktops that serve OSWorld's guest protocol: virtual machines, containers or sandboxes."""

    tasks: Annotated[Path, Field(strict=False)] = Path("evaluation_examples/examples")
    """Folder with the published tasks (`<application>/<id>.json`), or a file that lists some of them. Task
    ids are `osworld/<application>/<id>`."""
    cache: Annotated[Path, Field(strict=False)] = Path("osworld-cache")
    """Folder for the files that tasks download, as `<task id>/<file name>`."""
    evaluators: Annotated[Path, Field(strict=False)] = Path(".venv-osworld-score")
    """Python environment with OSWorld's own evaluators; `make osworld-score` makes it."""
    provider: Literal["addresses", "docker", "pool", "local"] = "addresses"
    """Where the machines come from: the list `addresses`, containers, a server that lends machines, or local
    sandboxes."""
    addresses: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Addresses of guest servers, one for each environment: `host:port`, or `host:port:chromium:vlc` to give
    the ports of Chromium and VLC, too."""
    renew: Literal["recreate", "revert", "keep"] = "recreate"
    """How a machine is made clean before an episode. recreate: by a new machine; revert: by its snapshot
    (`revert_command`); keep: not at all."""
    revert_command: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Command that reverts a machine of `addresses` to its snapshot; `{address}`, `{host}`, `{port}` and
    `{snapshot}` are replaced."""
    network_hosts: Annotated[tuple[HostName, ...], Field(strict=False)] = (
        *("www.google.com", "www.wikipedia.org", "www.baidu.com"),
    )
    """Hosts of the web. Before a task that opens pages of the web, a machine must reach one of these hosts or
    of those pages. Empty: not checked."""
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
    """Seed of the texts and the style of every site; -1: they follow from the seed of the task."""


class MiniWobSettings(Section):
    """Pages in a browser (`kind = "miniwob"`)."""

    pages: str = ""
    """Folder with HTML pages of your own in MiniWoB++'s form, the same on every machine: its `shop.html` is
    the task `miniwob/shop`. Empty: none."""


class OwnEnvironmentSettings(Section):
    """Environments of your own (`kind = "own"`)."""

    content_follows_from_seed: bool = True
    """Whether a seed determines the content of a task's start screen. If not, a demonstration joins groups of
    any seed."""
    can_replay: bool = False
    """Whether the same seed and actions give the same screenshots, byte for byte. Then an episode that was
    stopped is replayed and goes on where it was, and `turn_resumes` may be above 0."""


class ScreenshotsSettings(Section):
    """Recorded screenshots for grounding by reinforcement learning (`kind = "grounding"`)."""

    data: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Data sets in ScreenSpot's format: folders or annotation files, the same ones on every machine.
    `runs/pages` is the task `grounding/pages`. A folder that contains the folders `train` and `held-out` is
    split into training and evaluation by them."""
    held_out_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the screenshots that only evaluations show, for data sets without the folders `train` and
    `held-out`."""
    reward: Literal["hit", "gaussian"] = "hit"
    """Reward of a click in training. hit: 1 in the box and 0 elsewhere; gaussian: a Gaussian around the
    centre of the box (GUI-G2). Evaluations always count hits."""


class EnvironmentsSettings(Section):
    """The browsers or desktops, and the deadlines of their calls. The environments keep the deadlines; a call
    that lasts longer than `curation.lease_s` ends the process of its environment."""

    count: Processes = 8
    """Number of environment actors, each with a browser or desktop of its own."""
    kind: KindName = "miniwob"
    """Kind of environment: a page in a browser, recorded screenshots, a simulation (`[simulation]`) for
    measurements, a desktop in a sandbox, a desktop in a virtual machine, or one of your own (`make`)."""
    make: str = ""
    """Function of your own that makes each environment, as `FILE.py:FUNCTION` or `MODULE:FUNCTION`, the same
    on every machine. `kind = "own"` needs it; with another kind it takes the place of the kind's own, for
    instance to wrap it with another reward. Empty: the kind's own."""
    park_after_s: Seconds = 1.0
    """Time that an episode waits for an answer before its screen is parked: the clock of the screen stands
    still until the answer arrives. The episode then goes on."""
    executable: str = ""
    """Path of a Chromium headless shell; empty: the one of Debian's package."""
    reset_deadline_s: Seconds = 20.0
    """Deadline of a reset, which prepares a fresh start screen."""
    observe_deadline_s: Seconds = 10.0
    """Deadline of a screenshot."""
    step_deadline_s: Seconds = 10.0
    """Deadline of one action, until the screen shows its effect. The longest time that typing may take is
    added: 0.02 s for each key in a web page, 0.05 s on a desktop, 0.04 s for each character in OSWorld.
    OSWorld also adds 1 s for each pasted text and 0.2 s for each other input."""
    evaluate_deadline_s: Seconds = 10.0
    """Deadline of scoring an episode. Evaluations of OSWorld need at least 172 s, because their getters wait
    twice 60 s for a page."""
    turn_resumes: Annotated[int, Field(ge=0, le=MOST)] = 0
    """How often an attempt may go on after its environment failed; 0: never. The environment is reset, and
    the actions up to the failed step are replayed. If a screenshot then differs from the recorded one, the
    attempt is spent. Only for kinds whose screens follow from seed and actions: miniwob, sites, simulated,
    and own with `own.can_replay`."""
    latency: LatencySettings = LatencySettings()
    """Waits added to every environment."""
    faults: FaultsSettings = FaultsSettings()
    """Faults injected into every environment."""
    desktop: DesktopSettings = DesktopSettings()
    """Desktops in sandboxes."""
    osworld: OSWorldSettings = OSWorldSettings()
    """Desktops that serve OSWorld's guest protocol."""
    miniwob: MiniWobSettings = MiniWobSettings()
    """Pages in a browser."""
    sites: SitesSettings = SitesSettings()
    """Web applications of many screens."""
    grounding: ScreenshotsSettings = ScreenshotsSettings()
    """Recorded screenshots."""
    own: OwnEnvironmentSettings = OwnEnvironmentSettings()
    """Environments of your own."""


class VllmSettings(Section):
    """The vLLM engine of each rollout actor (`rollout.engine = "vllm"`)."""

    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Data type of the weights and of the computation."""
    max_tokens: Count = 8192
    """Largest number of tokens of a prompt, its images and its answer together. It must be greater than
    context.answer_tokens."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory that vLLM reserves for weights and caches."""
    cpu_cache_gib: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Size of the key-value cache on machines without a GPU, in GiB."""
    tensor_parallel: Processes = 1
    """Number of GPUs of one engine."""
    eager: bool = False
    """Whether to skip compilation: the engine starts faster and answers more slowly. Without a GPU nothing is
    compiled."""
    health_every_s: Seconds = 10.0
    """Time without an answer after which an engine is asked for one token, to check that it works."""
    health_deadline_s: Seconds = 20.0
    """Deadline of the token that `health_every_s` asks for; an engine that exceeds it is restarted."""


class RolloutSettings(Section):
    """The engines that run the policy."""

    count: Processes = 1
    """Number of rollout actors, each with an engine and a copy of the policy."""
    engine: Literal["transformers", "vllm", "simulated", "oracle"] = "transformers"
    """Library that runs the policy. `simulated` runs none and only waits as `[simulation]` says; `oracle`
    waits as well, and answers with the scripted solutions of the tasks of local desktops."""
    sync: Literal["one_at_a_time", "all_at_once"] = "one_at_a_time"
    """How a new policy version reaches the engines. one_at_a_time: a share of them (`sync_share`) takes it
    while the others answer; all_at_once: all engines pause together, as in a coupled loop."""
    sync_share: Annotated[float, Field(gt=0, le=1)] = 0.125
    """Share of the engines that take a new version together with sync = "one_at_a_time"; at least one engine
    does."""
    weight_update: Literal["swap", "drain"] = "swap"
    """When an engine takes new weights. swap: between two batches (vLLM: also during answers), so that
    waiting requests are answered with the new weights; drain: after it has answered its requests, and it
    takes no others before."""
    max_batch: Many = 8
    """Largest number of requests in one forward pass of an engine. vLLM adds a request to running ones as
    soon as there is room; other engines begin a new batch when the last one is done."""
    threads: Processes = 1
    """CPU threads of each engine."""
    temperature: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Sampling temperature while training."""
    gpus: Annotated[tuple[int | str, ...], Field(strict=False)] = ()
    """GPUs of the engines, as in CUDA_VISIBLE_DEVICES; each engine takes the next vllm.tensor_parallel of
    them. Empty: all GPUs, from the first."""
    answer_deadline_s: Seconds = 60.0
    """Deadline of an answer. After it, or after a fifth of curation.lease_s if that is less, the environment
    asks another engine, and the late engine is checked. An engine whose computation takes longer than this
    deadline is restarted (vLLM: than this plus load_deadline_s, because its weights may change
    meanwhile)."""
    load_deadline_s: Seconds = 60.0
    """Deadline for an engine to read and check a policy version while it answers, and again to start using
    that version. An engine that exceeds either is restarted with the newest version."""
    vllm: VllmSettings = VllmSettings()
    """Settings of vLLM."""


class ContextSettings(Section):
    """The prompts of a vision-language policy, and the length of its answers."""

    screenshots: Many = 5
    """Largest number of screenshots in a prompt, the newest included."""
    turns: Annotated[int, Field(ge=0, le=MOST)] = 35
    """Largest number of past answers in a prompt. They have together at most 8,000 tokens, because a message
    has at most 64 KiB; older answers are left out, with their screenshots."""
    answer_tokens: Annotated[int, Field(ge=1, le=2500)] = 500
    """Longest answer in tokens. An answer travels in one message of at most 64 KiB, with 23 bytes for each
    token, and with its prompt."""
    prompt: str = ""
    """Prompt before the instruction: `uitars-1.5` or `uitars-1.5-call-user`, with which UI-TARS-1.5 was
    trained (`dart.policy.uitars.named_prompt`), or the path of a text file, which is looked up in the same
    folders as `training.policy`. Empty: `dart.policy.uitars.PROMPT`."""
    points: Literal["auto", "image", "screen", "thousandths"] = "auto"
    """Unit of the coordinates that the policy writes. image: pixels of the image as the model resizes it;
    screen: pixels of the screenshot; thousandths: thousandths of the screenshot's sides; auto: the unit of
    the model type (docs/policies.md)."""


class RolloutNumberSettings(Section):
    """Dynamic rollout number: tasks that mostly succeed get fewer rollouts (DART section 3.1)."""

    enabled: bool = False
    """Whether a group's number of rollouts depends on the task's success rate; if not, it is
    rollouts_per_group."""
    minimum: Annotated[int, Field(ge=2, le=MOST)] = 2
    """Smallest number of rollouts of a group."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.6
    """A task whose latest rollouts have a mean reward below this gets rollouts_per_group; above it, the
    number falls as the mean reward rises."""


class TrajectoryLengthSettings(Section):
    """Dynamic trajectory length: a task's step cap is its longest success so far (DART section 3.1)."""

    enabled: bool = False
    """Whether the step cap depends on the task; if not, it is curation.step_cap for every episode."""
    slack: Annotated[int, Field(ge=0, le=MOST)] = 1
    """Number of steps that the cap allows beyond the task's longest success."""
    probe_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of a task's groups that are played with curation.step_cap instead, so that longer successes can
    be found."""


class ExperiencePoolSettings(Section):
    """Demonstrations for groups in which every rollout failed (DART section 3.2)."""

    enabled: bool = False
    """Whether a group in which every rollout failed gets a demonstration."""
    folders: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Folders with a demonstrations.jsonl. A relative path is looked up as `training.policy` is. When the run
    starts it imports the demonstrations of its tasks that the pool does not hold yet."""
    max_uses: Annotated[int, Field(ge=0, le=MOST)] = 0
    """How many groups may get the same demonstration; 0: no limit, as in DART's code."""
    without_thought: bool = False
    """Whether demonstrations without thoughts are used for a policy that writes thoughts. Such a policy may
    then unlearn to write them."""
    self_rolled: bool = False
    """Whether the policy plays guided episodes, in which its prompt contains the actions of a demonstration.
    Such an episode replaces the demonstration if it succeeds. Only for vision-language policies."""
    self_rolled_attempts: Count = 4
    """Largest number of guided episodes for one demonstration."""


class HighEntropyStepsSettings(Section):
    """Training on the steps at which the policy was least certain (DART section 3.3)."""

    enabled: bool = False
    """Whether steps with low entropy are left out of the loss."""
    quantile: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Steps below this quantile of their group's step entropies are left out."""


class StepCreditSettings(Section):
    """How the advantage of a single step of a trajectory is computed."""

    method: Literal["trajectory", "gigpo"] = "trajectory"
    """trajectory: each step has the advantage of its trajectory, as in DART. gigpo: in addition, steps of a
    group with the same screenshot are compared by their discounted returns (GiGPO, arXiv 2505.10978), and a
    group of equal successes is trained if their lengths differ. gigpo suits tasks of several steps on screens
    that do not change by themselves."""
    discount: Annotated[float, Field(gt=0, le=1)] = 0.95
    """gigpo: discount factor per step."""
    weight: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """gigpo: weight of the advantage from comparing steps; the advantage of the trajectory has weight 1."""


class FailurePenaltySettings(Section):
    """Training on rollouts that failed with their only step, in groups without a success (after LENS,
    arXiv 2510.08696)."""

    enabled: bool = False
    """Whether such a group is trained instead of dropped: the answer of each such rollout becomes less
    likely, by more if more rollouts of the group gave it."""
    weight: Annotated[float, Field(gt=0, le=MOST)] = 0.5
    """Factor of the penalty: with N rollouts of which k gave an answer, its advantage is
    -weight * k / (N + 1 - k)."""


class TruncatedImportanceSettings(Section):
    """Truncated importance weights, which correct for the difference between the policy of the engine that
    sampled a step and the trainer's policy (DART section 3.4)."""

    enabled: bool = True
    """Whether the policy term of the loss is weighted; if not, every weight is 1."""
    cap: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """C in DART: the largest importance weight. Larger weights are set to it."""


class TaskQuarantineSettings(Section):
    """Quarantine of tasks that cost rollouts and teach nothing; they are not played for a while."""

    enabled: bool = True
    """Whether tasks are quarantined."""
    groups_without_success: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Number of groups in a row without a success after which their task is quarantined; 0: never. A
    demonstration that was added to a group counts as a success."""
    failed_attempts: Count = 20
    """Number of attempts in a row that end with a fault after which their task is quarantined."""
    lost_environments: Count = 5
    """Number of environments in a row that die or hang while they play a task after which the task is
    quarantined."""
    duration_s: Seconds = 300.0
    """Length of a task's first quarantine. After it, one group of the task is tried; if the group has no
    success, a new quarantine begins that lasts twice as long."""


class CurationSettings(Section):
    """Which rollouts are played, and how their groups become batches."""

    rollouts_per_group: Annotated[int, Field(ge=2, le=10**6)] = 8
    """Number of rollouts of a group, which GRPO compares. With rollout_number.enabled: the largest number."""
    step_cap: Many = 10
    """Largest number of environment steps of one episode. With trajectory_length.enabled: the largest cap of
    any task."""
    staleness: Annotated[int, Field(ge=0, le=MOST)] = 2
    """K: largest staleness, in policy versions, of a step that is trained."""
    over_provision: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Over-provisioning, APRIL's alpha: at most alpha times training.groups_per_update groups are being
    played or wait to be trained. Groups that are not complete when the trainer takes a batch go on and are
    trained later. 0: only the staleness bound limits the number of groups."""
    success_above: Annotated[float, Field(ge=0, lt=1)] = SUCCESS_ABOVE
    """An episode with a reward above this value is a success. This holds for step caps, the experience pool,
    task quarantine and all success rates that are shown."""
    scheduling: Literal["rollout", "task", "batch"] = "rollout"
    """What an idle environment waits for. rollout: for nothing; task: for the other rollouts of its group;
    batch: for the whole batch, which with rollout.sync = "all_at_once" is the coupled loop. task and batch
    are kept for comparison."""
    task_order: Literal["round_robin", "expected_spread"] = "round_robin"
    """Which task gets the next group. round_robin: the task with the fewest groups; expected_spread: each
    task in proportion to the probability that the rewards of its next group differ, estimated from its latest
    episodes."""
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
    failure_penalty: FailurePenaltySettings = FailurePenaltySettings()
    """Training on rollouts that failed with their only step, in groups without a success."""
    importance: TruncatedImportanceSettings = TruncatedImportanceSettings()
    """Weights of steps from another version or another engine."""
    task_quarantine: TaskQuarantineSettings = TaskQuarantineSettings()
    """Quarantine of tasks."""
    poll_s: Seconds = 0.2
    """Interval at which an environment without work, or a trainer without a batch, asks the curator again."""
    starved_after_s: Seconds = 60.0
    """Time without a batch, or without work for environments, after which the cause is reported. Without work
    it is a fifth of training.update_deadline_s if that is longer and no part is at fault."""
    lease_s: Seconds = 120.0
    """Time within which an environment must finish a rollout or an evaluation episode. After it, another
    environment gets the rollout or the episode; up to ten minutes later if a full disk or the object storage
    keeps the first one from storing what it played. It must be longer than environments.reset_deadline_s."""
    batch_lease_s: Seconds = 600.0
    """Time for which the trainer may hold a batch before an error is reported. It must be longer than
    training.update_deadline_s and training.checkpoint_deadline_s together."""
    max_attempts: Count = 5
    """Number of failed attempts after which a rollout is dropped, or an evaluation episode is left out of the
    rates. A fault of the task itself drops a rollout at once."""
    max_resumes: Annotated[int, Field(ge=0, le=MOST)] = 8
    """How often an episode may be parked and continued before it is played from its start."""


class LoraSettings(Section):
    """Training a LoRA adapter on a frozen vision-language policy instead of all weights; needs the library
    peft."""

    rank: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Rank of the adapter; 0: no adapter, all weights are trained."""
    alpha: Annotated[float, Field(gt=0, le=MOST)] = 32.0
    """The output of the adapter is multiplied by alpha / rank."""
    publish: Literal["adapter", "merged"] = "adapter"
    """What is published as a policy version. adapter: only the adapter, which engines apply to the base
    policy that they hold; merged: all weights with the adapter merged into them, as large as the base
    policy."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainingSettings(Section):
    """The optimizer and its loss (DART's step-wise GRPO).

    The defaults are those of DART's job: `lr`, the clip and the KL weight are in its paper (appendix A.4),
    `betas`, `weight_decay` and `max_grad_norm` in its released code. A small policy needs others:
    configs/laptop.toml."""

    policy: Annotated[Path, Field(strict=False)] = Path("configs/base-policy")
    """Folder of the checkpoint to start from. A relative path is looked up beside the configuration file,
    then beside the folder of the bundled configurations, then in the working directory. Or the address of a
    checkpoint on the Hugging Face hub, `hf://OWNER/NAME@REVISION`, which `dartrl policy fetch` puts into
    models/hub."""
    fetch_policy: bool = False
    """Whether `dartrl up` and `dartrl train` fetch a policy from the hub if it is not on this machine yet."""
    groups_per_update: Many = 4
    """Number of groups in a batch; all of them have spread in their rewards."""
    updates: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Largest number of updates; 0: no limit but run.minutes and training.actions."""
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
    """c of dual-clip PPO: with a negative advantage, a larger probability ratio counts as c."""
    kl_beta: Annotated[float, Field(ge=0, le=MOST)] = 0.1
    """Weight of the KL divergence to the base policy."""
    click_unit: Literal["point", "element"] = "point"
    """The action whose probability the objective uses for a click. point: a click on the drawn point.
    element: a click on any point of the clicked element, if the page reports the box of the element; this
    needs a policy whose points are bins or patches."""
    pointer_weight: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Weight of the supervised loss of a pointer head; 0: none. The loss is computed on steps with a positive
    advantage whose element has a known box: clicks in web pages, and demonstrations with `box`."""
    max_grad_norm: Annotated[float, Field(gt=0, le=MOST)] = 2.0
    """Largest norm of the gradient; a gradient with a larger norm is scaled down to it."""
    minibatches: Count = 1
    """Number of optimizer steps per update. Each uses one of so many parts of the batch."""
    warmup_updates: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Number of updates over which the learning rate rises to `lr`."""
    micro_batch: Count = 32
    """Largest number of step samples in one forward and backward pass."""
    micro_batch_tokens: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Largest number of tokens in one pass, images and padding included; 0: only micro_batch limits it."""
    image_cache_mib: Annotated[int, Field(ge=0, le=MOST)] = 4096
    """Largest size in MiB of each rank's cache of screenshots that the image processor has prepared and that
    the update needs again. A screenshot of 1920x1080 takes 48 MiB. The small policy keeps none."""
    ranks: Processes = 1
    """Number of processes that train a vision-language policy together and split its weights (FSDP2): one per
    GPU, or several on the CPU."""
    gpus: Annotated[tuple[int | str, ...], Field(strict=False)] = ()
    """GPUs of the ranks, one for each. Empty: the last GPUs that no engine has, or any GPUs if the engines
    have all of them."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$")] = "auto"
    """Torch device on which a vision-language policy is trained: cpu, cuda or cuda:N; auto: the GPU if there
    is one. N counts the GPUs of the trainer from 0; training.gpus chooses them. With several ranks each has a
    GPU of its own, or all are on the CPU (cpu)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision in which a vision-language policy is computed. If there are several ranks, they gather
    weights in this precision and sum gradients in float32."""
    weight_precision: Literal["float32", "bfloat16"] = "float32"
    """Precision in which trained weights, their gradients and AdamW's running means are kept. bfloat16 takes
    half the memory, but changes below about 0.2 % of a weight are lost: at lr = 1e-6 nearly all of them
    (docs/performance.md). An adapter is always kept in float32."""
    gradient_checkpointing: bool = False
    """Whether a vision-language policy computes activations again in the backward pass instead of storing
    them, which saves memory and takes longer."""
    lora: LoraSettings = LoraSettings()
    """Training an adapter instead of every weight."""
    threads: Processes = 1
    """CPU threads of the trainer."""
    update_deadline_s: Seconds = 300.0
    """Deadline of an update; a trainer that exceeds it is restarted and gets the same batch again. Set it to
    five or more times what an update takes."""
    checkpoint_deadline_s: Seconds = 120.0
    """Deadline of writing a checkpoint; a trainer that exceeds it is restarted, too."""
    background_checkpoints: bool = True
    """Whether a checkpoint is written from a copy in main memory while the next update is computed; if not,
    the trainer waits until it is written. In both cases engines get a version only when its checkpoint is
    durable."""
    learner: Literal["grpo", "simulated", "none"] = "grpo"
    """Kind of learner. `simulated` waits instead of training (`[simulation]`); `none` is for runs that only
    measure a policy (`dartrl eval`)."""
    checkpoints_kept: Many = 3
    """Number of newest checkpoints that are kept."""


class EvaluationSettings(Section):
    """The evaluation of the policy, on held-out seeds only."""

    seeds_per_task: Many = 50
    """Number of episodes of each task in one evaluation."""
    greedy_seeds_per_task: Annotated[int, Field(ge=0, le=10**6)] = 25
    """Number of a task's seeds that are played once more with the most likely answers (greedily); 0: none.
    The report shows both rates, because a policy that has only become more certain also has a higher sampled
    rate. With temperature 0 all episodes are greedy, and no seed is played twice."""
    temperature: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """Sampling temperature of evaluations; 0: the most likely answers."""
    before: bool = True
    """Whether the policy is measured before training."""
    after: bool = True
    """Whether the policy is measured after training, unless no update was made and it was measured before."""
    verifier: str = ""
    """Checkpoint of a verifier that chooses among the candidate points of a grounding model; empty: none.
    Only `dartrl ground eval` uses it. Training never does, because a point that a verifier chose is not a
    sample of the policy."""
    verifier_stop_at: Annotated[float, Field(gt=0, le=1)] = 0.8
    """The verifier stops at the first candidate whose score is at least this value; GUI-Actor uses 0.95 on
    ScreenSpot-Pro."""


class GroundingSettings(Section):
    """Training a policy to find elements on screenshots, from boxes (`dartrl ground train`)."""

    data: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Annotation files or folders in ScreenSpot's format to train on."""
    held_out: str = ""
    """Data in ScreenSpot's format that `dartrl align` measures before and after it trains on a site, to show
    what the policy forgets; empty: none."""
    base: str = ""
    """Checkpoint to start from: one with a pointer head or, for `head = "attention"`, any checkpoint of the
    Qwen-VL family; empty: a new small policy."""
    head: Literal["pointer", "attention", "coordinates"] = "pointer"
    """How the model points. pointer: GUI-Actor's pointer head; attention: GUI-AIMA's attention head, which
    has no weights of its own; coordinates: written coordinates, as a baseline."""
    labels: Literal["overlap", "gaussian"] = "overlap"
    """Target of a patch. overlap: 1 if the box covers any part of the patch, else 0; gaussian: GUI-AIMA's,
    the covered share of the patch times a Gaussian."""
    warmup_updates: Annotated[int, Field(ge=0, le=MOST)] = 100
    """Number of updates of the warm-up, which trains only the head and the rows of new tokens. A new
    small policy has no warm-up, because none of its weights are trained yet."""
    updates: Count = 600
    """Number of updates of all weights, after the warm-up."""
    batch: Many = 16
    """Number of samples in one update."""
    warmup_lr: Annotated[float, Field(gt=0, le=1)] = 1e-3
    """Learning rate of the warm-up."""
    lr: Annotated[float, Field(gt=0, le=1)] = 1.5e-3
    """Largest learning rate after the warm-up; GUI-Actor uses 5e-6 for a pretrained checkpoint."""
    max_grad_norm: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Largest norm of the gradient; a gradient with a larger norm is scaled down to it."""
    seed: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Seed of new weights and of the batches."""


class ExplorationSettings(Section):
    """Exploration of pages, which finds a graph of their screens (docs/exploration.md). `dartrl explore`
    explores; in a training run, idle environments explore if `enabled` is true."""

    enabled: bool = False
    """Whether environments of a training run explore while the curator has no work for them and the run is
    not paused."""
    tasks: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Ids of the tasks whose screens are explored, one task after another; the screens must be pages in a
    browser. Empty: the tasks of `tasks.train`."""
    seed: Annotated[int, Field(ge=0, lt=1_000_000)] = 0
    """Seed of the start screens; it is one of the training seeds."""
    actions: Many = 800
    """Number of actions for each task, resets included. When they are used up, no explorer gets another
    screen of the task."""
    strategy: Literal["memory_q", "least_tried", "random"] = "memory_q"
    """How the next action is chosen: by memory-Q exploration, by the number of earlier tries, or at
    random."""
    prior: Literal["constant", "model"] = "constant"
    """Value of an action that was never tried. constant: the same for every action; model: higher for actions
    that the policy itself answers on this screen."""
    prior_samples: Annotated[int, Field(ge=1, le=64)] = 4
    """Number of answers that the policy gives on each new screen with `prior = "model"`."""
    prior_context_bytes: Annotated[int, Field(ge=0, le=8192)] = 0
    """Largest size, in UTF-8, of the text that tells the policy with `prior = "model"` which actions of the
    screen are left and what came of those that were tried; 0: no text. 2000 hold nearly every such text. The
    small policy has not learned to read it; 400 fit its prompt in any case."""
    explorers: Processes = 2
    """Number of browsers of `dartrl explore`."""
    max_depth: Many = 8
    """No action is tried on screens that are this many actions or more away from the start screen."""
    lease_s: Seconds = 120.0
    """Time for which an explorer may hold a screen without a report; then another explorer may get it. It
    must be longer than a reset or an action may take, with the two screenshots after it."""
    lease_actions: Many = 25
    """Number of actions, besides the way to its screen, after which an explorer gives the screen back, so
    that its environment can do other work."""
    confirm_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of a task's actions, the last ones, that repeat known actions, to find out whether these have the
    same effect each time."""
    stops_when_flat: bool = True
    """Whether new actions of a task end when exploration finds little: when the last 100 actions found less
    than one new shape of screens per 25 actions."""
    origins: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Web origins (`https://host:port`) that may be opened besides the origin of the start screen. The
    browser of an explorer refuses requests to all others. Forms are never sent to an address that is not on
    this machine."""
    texts: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("blue", "paper", "7", "lamp")
    """Texts that explorers type into fields."""
    settle_s: Annotated[float, Field(ge=0, le=60)] = 0.1
    """Time between two screenshots of the same screen. What differs between them changes by itself."""

    @field_validator("origins")
    @classmethod
    def _are_web_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for one in origins:
            if not WEB_ORIGIN.fullmatch(one):
                why = f"{one!r} is not an origin of the web: write https://host or https://host:port"
                raise PydanticCustomError("no_origin", "{why}", {"why": why})
        return origins


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
    """Time that an engine takes for a batch of requests, whatever the number of requests."""
    generate_each_s: Annotated[float, Field(ge=0, le=MOST)] = 0.01
    """Additional time for each request of a batch."""
    load_s: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """Time that an engine takes to read and check a policy version while it answers."""
    swap_s: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Time for which an engine answers nothing while it takes over a version that it has read."""
    update_base_s: Annotated[float, Field(ge=0, le=MOST)] = 1.0
    """Time of an update, whatever the number of its step samples."""
    update_each_s: Annotated[float, Field(ge=0, le=MOST)] = 0.01
    """Additional time for each step sample of an update."""
    checkpoint_s: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Time to write and hash a checkpoint."""


class AlarmsSettings(Section):
    """Alarms for learning, which goes wrong although every process is healthy (docs/alarms.md).

    Episodes are measured in windows of `episodes` finished episodes of all tasks. The start of a run is its
    first two windows. The text of each threshold begins with the name of its alarm. The alarm is raised when
    several measurements in a row reach the threshold; docs/alarms.md says how many, and how far from the
    defaults recorded laptop runs stay."""

    enabled: bool = True
    """Whether the curator measures the run for alarms."""
    off: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of alarms that are never raised."""
    pause: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of alarms that pause the run when they are raised, until `dartrl resume`."""
    episodes: Annotated[int, Field(ge=16, le=10**6)] = 64
    """Number of episodes in a window."""
    entropy_share: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """entropy_collapse is raised at or below this value: the entropy per token of the answers, divided by the
    entropy at the start of the run."""
    kl_nats: Annotated[float, Field(gt=0, le=MOST)] = 2.0
    """kl_runaway is raised at or above this value: the KL divergence to the base policy, in nats per token.
    It is not measured if training.kl_beta is 0."""
    success_fall: Annotated[float, Field(gt=0, le=1)] = 0.3
    """success_falls is raised at or above this value: the best mean success rate of the tasks so far, minus
    the present one."""
    mismatch_nats: Annotated[float, Field(gt=0, le=MOST)] = 0.1
    """logprob_mismatch is raised at or above this value: the mean difference between the log-probs of engine
    and trainer for the same version, in nats per token."""
    equal_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """equal_rewards is raised at or above this value: the share of the groups of a window in which all
    rewards are equal. Groups in which a task succeeds that the run has solved count as others."""
    action_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """one_action is raised at or above this value: the share of the steps of a window that have the most
    frequent action. Actions with other coordinates are other actions."""
    length_factor: Annotated[float, Field(gt=1, le=MOST)] = 2.0
    """length_explodes is raised at or above this value: the number of tokens of an answer, or of steps of an
    episode of the same task, divided by that number at the start of the run."""
    gradient_factor: Annotated[float, Field(gt=1, le=MOST)] = 10.0
    """gradients_clipped is raised at or above this value: the norm of the gradient before clipping, divided
    by training.max_grad_norm."""
    task_fall: Annotated[float, Field(gt=0, le=1)] = 0.85
    """task_unlearned is raised at or above this value: the share of its best success rate that a task has
    lost, over its last 96 episodes (1: it has no success any more)."""
    stuck_chance: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    """evaluator_stuck is raised at or below this value: the probability that all rewards of the latest groups
    are the same value, estimated from the 64 groups before them."""


class TelemetrySettings(Section):
    """Measurements during a run."""

    load_every_s: Seconds = 5.0
    """Interval at which each actor records how busy it was. The interval is longer in a run with so many
    actors that all together would record more than 50 times a second."""
    daemon_log_bytes: Annotated[int, Field(ge=65536, le=MOST)] = 4 * 1024 * 1024
    """Size in bytes at which the log of `dartrl up --log` and `--detach` is renamed to FILE.1 and a new log
    begins. An older FILE.1 is replaced."""


class WebSettings(Section):
    """The page that `dartrl up` serves beside the run (docs/web.md)."""

    enabled: bool = True
    """Whether `dartrl up` serves the page. `dartrl web` shows any run at any time."""
    host: str = "127.0.0.1"
    """Address to listen on. Requests from other machines always need the access token."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8700
    """Port to listen on; 0: a free port, which `dartrl status` shows. If the port is in use, the page waits
    until it is free."""
    token_file: str = ""
    """File (mode 0600) with the access token that every request needs; it is created if it does not exist.
    Empty: `web.token` in the run directory; requests from this machine then need the token only for
    changes."""
    allow_hosts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further names in the Host header that requests may have, such as the name of a proxy."""


class InspectionSettings(Section):
    """How other machines reach a run whose record is on a server (docs/cluster.md). They find the address and
    the access token in the record. A run whose record is a file does not listen."""

    host: str = ""
    """Address of this machine to listen on; other machines must be able to reach it. Empty: the address from
    which this machine connects to the server of the record."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port to listen on; 0: a free port."""


class TrackingSettings(Section):
    """Figures of every update for TensorBoard and Weights & Biases (docs/tracking.md)."""

    writers: Annotated[tuple[Literal["tensorboard", "wandb"], ...], Field(strict=False)] = ()
    """The programs that get the figures. They need `pip install 'dartrl[tracking]'`."""
    wandb_mode: Literal["online", "offline"] = "online"
    """online: send figures at once; offline: write files, which `wandb sync` sends later."""
    wandb_project: Annotated[str, Field(min_length=1)] = "dartrl"
    """Name of the project in Weights & Biases."""
    wandb_entity: str = ""
    """User or team of the project; empty: the user who is logged in. The key comes from `wandb login` or
    WANDB_API_KEY, never from this file."""


class BackoffSettings(Section):
    """The wait of a supervisor before it restarts a child."""

    initial_s: Seconds = 0.2
    """Delay before the first restart."""
    factor: Annotated[float, Field(ge=1, le=MOST)] = 2.0
    """Factor by which each delay is longer than the delay before it."""
    max_s: Seconds = 10.0
    """Longest delay."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Largest share by which a delay is randomly lengthened or shortened."""
    reset_after_s: Seconds = 30.0
    """Running time after which a child's next failure uses the first delay again."""


class BudgetSettings(Section):
    """A separate restart limit for failures of one kind."""

    max_restarts: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Largest number of failures of this kind in any window of max_seconds."""
    max_seconds: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Length of the window of max_restarts; 0: no separate limit, failures of this kind count with the
    others."""


class BudgetsSettings(Section):
    """Separate restart limits for the kinds of failure."""

    start: BudgetSettings = BudgetSettings()
    """The child ended before it was ready."""
    crash: BudgetSettings = BudgetSettings()
    """The child ended by itself, with an error or an exit code."""
    signal: BudgetSettings = BudgetSettings()
    """A signal from outside ended the child, for instance from the kernel when memory is short."""
    hang: BudgetSettings = BudgetSettings()
    """The child sent no heartbeat and was killed."""
    overdue: BudgetSettings = BudgetSettings()
    """The child ended because its work, such as an update or a load, exceeded the deadline of this work."""


class PreemptionSettings(Section):
    """Limit of announced preemptions: a SIGTERM to the child's process says that it will be taken away.

    The child is stopped in order, within shutdown_s, and started again. That is no failure.
    """

    max_restarts: Annotated[int, Field(ge=0, le=MOST)] = 10
    """Largest number of preemptions of a child in any window of max_seconds. With more, the child is
    quarantined or, without a breaker, its pool fails."""
    max_seconds: Seconds = 600.0
    """Length of the window of max_restarts."""


class BreakerSettings(Section):
    """Quarantine of a child that fails too often, instead of ending its whole pool."""

    enabled: bool = False
    """Whether children are quarantined. If not, their failures count against the pool's max_restarts."""
    max_failures: Annotated[int, Field(ge=0, le=MOST)] = 5
    """Number of failures that a child may have in any window of within_s; one more quarantines the child."""
    within_s: Seconds = 600.0
    """Length of the window in which failures are counted."""
    open_s: Seconds = 300.0
    """Length of a quarantine. After it, the child is started once as a trial."""
    healthy_s: Seconds = 60.0
    """Running time after which a child that was quarantined counts as healthy; a failure before that
    quarantines the child again."""


class RetirementSettings(Section):
    """Replacement of a child before age or use make it fail."""

    max_age_s: Annotated[float, Field(ge=0, le=MOST)] = 0.0
    """Age at which a child is replaced; 0 for never."""
    max_uses: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Number of uses (episodes of an environment, leases of an explorer) after which a child is replaced; 0
    for never. Other actors count no uses and cannot have it."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Largest share by which a child's max_age_s is randomly lengthened or shortened, so that the children of
    a pool are not all replaced at once."""

    @model_validator(mode="before")
    @classmethod
    def _without_former_key(cls, given: Any) -> Any:
        """Leave out `warm_spare = false`, which the configuration of every run of an earlier version has."""
        if isinstance(given, dict) and given.get("warm_spare") is False:
            return {key: value for key, value in given.items() if key != "warm_spare"}
        return given


class ChildSettings(Section):
    """The supervision of one child, or of each child of a pool."""

    restart: Literal["permanent", "transient"] = "permanent"
    """permanent: always restarted; transient: only after a failure. The default of each child is the only
    value that it takes; a run file need not have this key."""
    max_restarts: Annotated[int, Field(ge=0, le=MOST)] = 10
    """Largest number of restarts in any window of max_seconds; for a pool, of all its children together."""
    max_seconds: Seconds = 60.0
    """Length of the window of max_restarts."""
    backoff: BackoffSettings = BackoffSettings()
    """Wait before a restart."""
    budgets: BudgetsSettings = BudgetsSettings()
    """Separate limits for kinds of failure."""
    preemptions: PreemptionSettings = PreemptionSettings()
    """Limit of announced preemptions."""
    breaker: BreakerSettings = BreakerSettings()
    """Quarantine of a child that fails too often."""
    max_quarantined: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of a pool's children that may be in quarantine. With more, the cause is not in the children, and
    the pool fails."""
    max_failing: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of a pool's children. If more of them than this fail within a minute, the failures count as one
    outage: one child is restarted until it stays up, while the others wait. 1: there are no outages."""
    retirement: RetirementSettings = RetirementSettings()
    """Replacement before age or use make the child fail."""
    start_deadline_s: Seconds = 30.0
    """Longest time from start to ready."""
    hang_deadline_s: Seconds = 8.0
    """Time without a heartbeat, or in one message handler, after which the child is killed and restarted.

    Episodes, answers and updates are computed outside message handlers and have deadlines of their own."""
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
    """Largest number of restarts of direct children in any window of max_seconds. On a cluster the same limit
    holds for failures of all shards together (docs/cluster.md)."""
    max_seconds: Seconds = 120.0
    """Length of the window of max_restarts."""


class SupervisionSettings(Section):
    """The supervision of each child, by its id or by its pool. The tree itself is code (`dart.run.tree`)."""

    root: RootSettings = RootSettings()
    """The root supervisor."""
    store: ChildSettings = ChildSettings(start_deadline_s=20.0)
    """The actor `store`, which writes the record."""
    curator: ChildSettings = ChildSettings()
    """The actor `curator`, which decides what is played and what is trained."""
    rollout_pool: ChildSettings = ChildSettings(start_deadline_s=120.0, hang_deadline_s=20.0)
    """Each rollout actor, `rollout-N`."""
    weight_sync: ChildSettings = ChildSettings()
    """The actor `weight_sync`, which takes new policy versions to the engines."""
    environment_pool: ChildSettings = ChildSettings(
        max_restarts=20, breaker=BreakerSettings(enabled=True), max_quarantined=0.5
    )
    """Each environment actor, `env-NNN`."""
    exploration: ChildSettings = ChildSettings(restart="transient")
    """The actor `exploration`, which owns the exploration graph."""
    explorer_pool: ChildSettings = ChildSettings(
        max_restarts=20, breaker=BreakerSettings(enabled=True), max_quarantined=0.5
    )
    """Each explorer actor of `dartrl explore`, `explorer-NNN`."""
    trainer: ChildSettings = ChildSettings(
        restart="transient",
        start_deadline_s=120.0,
        hang_deadline_s=20.0,
        shutdown_s=20.0,
        budgets=BudgetsSettings(overdue=BudgetSettings(max_restarts=2, max_seconds=86400.0)),
    )
    """The actor `trainer`, which makes updates. An update that overruns its deadline is repeated on the same
    batch, so the third overrun within a day ends the run."""

    children: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of single children of a pool that differ from those of the pool, by child id, as in
    `[supervision.children.env-003]`."""

    def child(self, child_id: str) -> ChildSettings:
        """Return the settings of one child: those of its pool, changed by those given for the child alone."""
        limits = self.pool_of(child_id)
        different = self.children.get(child_id)
        return limits if different is None else limits.updated(different)

    def pool_of(self, child_id: str) -> ChildSettings:
        """Return the settings of the pool of a child, or those of the child itself if it is in no pool.

        Raises KeyError if no pool and no child has this id.
        """
        found = getattr(self, pool_name(child_id), None)
        if not isinstance(found, ChildSettings):
            known = sorted(set(type(self).model_fields) - {"root", "children"})
            raise KeyError(f"expected a child id of {known}, got {child_id!r}")
        return found


_MACHINE_POOL: Mapping[str, Any] = {
    "backoff": {"initial_s": 1.0, "max_s": 60.0, "reset_after_s": 120.0},
    "breaker": {"enabled": True, "max_failures": 5, "within_s": 600.0, "healthy_s": 600.0},
    "max_failing": 0.5,
}
"""Supervision of environments that are desktops or virtual machines.

Such environments fail one by one, or together when the computer below them fails. The sixth failure of one
within ten minutes quarantines it. If more than half of them fail within a minute, this counts as one outage.
`healthy_s` is longer than an environment whose resets all hang takes to fail (`dart.config.failing_time`).

For OSWorld `MACHINE_DEFAULTS` changes some of these values, because a virtual machine takes minutes to boot,
and its environment fails only after three episodes with up to two boots each. The third failure within six
hours quarantines it. After a quarantine it is healthy again after two hours of running. An outage ends with
the first episode."""

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
                    "healthy_s": 7200.0,
                },
                "shutdown_s": 60.0,
                "retirement": {"max_uses": 100, "max_age_s": 12 * 3600.0},
            }
        },
    },
}
"""Defaults that differ for a kind of environment, by kind. A file or `--set` overrides them. Leases are
longer, because episodes on desktops and virtual machines take minutes."""

POOLS: Mapping[str, str] = {
    "env-*": "environment_pool",
    "rollout-[0-9]*": "rollout_pool",
    "explorer-*": "explorer_pool",
}
"""For each pattern of child ids (as in `fnmatch`), the pool that has these children."""


def pool_name(child_id: str) -> str:
    """Return the name of a child's pool, or the id itself of a child that is in no pool."""
    return next((pool for pattern, pool in POOLS.items() if fnmatch.fnmatch(child_id, pattern)), child_id)
