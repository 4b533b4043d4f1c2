"""Checks that what a run needs is installed, made before anything starts. Each message names a remedy.

The checks import no heavy library.
"""

import json
import os
import re
import resource
import shutil
import socket
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from actors.process import exit_reason_of
from dart.config.bundled import bundled_folder
from dart.config.config import Config
from dart.config.environment_kinds import KINDS, kind_of
from dart.config.gpus import RUN_ON_GPUS, absent_gpu_problems, gpus_here, gpus_of_trainer, shared_gpu_problems
from dart.config.hub import NOTE, fetched_from
from dart.config.published import reads_policy
from dart.config.sections import OSWorldSettings
from dart.core.errors import ConfigurationError, UnavailableError
from dart.environments.browser.cdp import browser_command
from dart.environments.browser.environment import CHROMIUM
from dart.environments.desktop.requirements import missing_for_desktops
from dart.environments.faults import PERMIT_SANDBOX, BrowserMissing, DesktopMissing, PagesMissing
from dart.environments.function_names import why_not_callable
from dart.environments.grounding.data_sets import data_problems
from dart.environments.miniwob.own_pages import page_problems
from dart.environments.miniwob.pages import miniwob_html_dir
from dart.environments.osworld.scoring_environment import EvaluatorsMissing, find_evaluators
from dart.inference.protocol import NO_POINTER_ON_VLLM, NO_SMALL_POLICY_ON_VLLM
from dart.inference.tensor_layout import INDEX, OtherLayout, weight_files
from dart.policy.adapter_files import base_of, why_no_policy
from dart.policy.configuration import is_small_policy
from dart.policy.prompt_spec import prompt_spec_of
from dart.policy.vocabulary import POINTER_KEY
from dart.preflight.planned_layout import parts_of
from dart.store.checkpoints import STATE_FILE, CorruptCheckpoint, list_checkpoints, load_checkpoint

TRAIN_PACKAGES = ("torch", "transformers", "safetensors", "accelerate", "matplotlib")
"""Packages that dartrl's optional dependency group (extra) `train` installs."""

BROWSER_DEADLINE_S = 10.0
SANDBOX_REFUSED = (b"No usable sandbox", b"Failed to move to new namespace")
"""What a browser says that may have no sandbox: by itself, and with the package chromium-sandbox."""

CHROMIUM_VERSION = re.compile(r"\d+(\.\d+){3}")
"""Pattern of the four numbers that every Chromium prints for `--version`, and other programs do not print."""

SAID_CHARACTERS = 200

RESOLVE_S = 5.0
"""Longest time in seconds for resolving the names of all machines together."""

RESOLVERS = 32
HOSTS_SHOWN = 5

GET_WEIGHTS = (
    "copy its *.safetensors files there (save weights of another format as safetensors), or run "
    "'dartrl policy fetch hf://OWNER/NAME@REVISION' and give this address as training.policy"
)

Check = Callable[[Config], Iterator[str]]
"""A check: takes the configuration, and yields a message with a remedy for each missing thing."""


def missing_packages(config: Config) -> Iterator[str]:
    """Yield a message if libraries of the extra `train` are missing, or vLLM is configured and missing."""
    absent = [name for name in TRAIN_PACKAGES if find_spec(name) is None]
    if absent:
        yield f"not installed: {', '.join(absent)}; run 'make setup' or pip install 'dartrl[train]'"
    if config.rollout.engine == "vllm" and find_spec("vllm") is None:
        yield (
            "not installed: vllm, which rollout.engine = 'vllm' needs; with a GPU pip install 'dartrl[vllm]',"
            " without a GPU run scripts/setup-vllm.sh; or --set rollout.engine=transformers"
        )


TRACKERS = {"tensorboard": "tensorboardX", "wandb": "wandb"}
"""The package that each of `tracking.writers` needs; the extra `tracking` installs all of them."""


def missing_trackers(config: Config) -> Iterator[str]:
    """Yield a message for each library that `tracking.writers` needs and that is not installed."""
    for name in config.tracking.writers:
        if find_spec(TRACKERS[name]) is None:
            yield (
                f"tracking.writers names {name!r}, and the package {TRACKERS[name]} is not installed: "
                "pip install 'dartrl[tracking]', or remove the name from tracking.writers"
            )


def missing_browser(config: Config, forwarded: Collection[str] = ()) -> Iterator[str]:
    """Yield a message for each missing thing that the configured kind of environment needs.

    Depending on the kind, this is a module of your own, a browser and its pages, the programs of desktops,
    data sets, or what the provider of OSWorld's machines needs.

    forwarded   names of environment variables that the environments get unless this process has its own value
    """
    if wrong := _wrong_function(config):
        yield wrong
        return
    if config.environments.kind == "grounding":
        yield from data_problems(config)
        return
    if config.environments.kind == "desktop":
        if missing := missing_for_desktops():
            yield str(DesktopMissing(missing))
        return
    if config.environments.kind == "osworld":
        yield from _missing_machines(config.environments.osworld, forwarded)
    if not KINDS[config.environments.kind].is_page:
        return
    executable = config.environments.executable or CHROMIUM
    try:
        browser_version(executable)
    except BrowserMissing as error:
        yield str(error)
    if config.environments.kind == "miniwob":
        try:
            miniwob_html_dir()
            yield from page_problems(config)
        except PagesMissing as error:
            yield str(error)


def _wrong_function(config: Config) -> str:
    """Say what is wrong with the function that makes the environments; "" if nothing is known to be.

    It is not imported, because its module may need a heavy library.
    """
    make = kind_of(config.environments).make
    if not (why := why_not_callable(make)):
        return ""
    place = "environments.make" if config.environments.make else "dart/config/environment_kinds.py"
    return (
        f"{why}: {make} is to make the environments of the kind {config.environments.kind!r}; correct the "
        f"name in {place}, or define the function"
    )


def browser_version(executable: str) -> str:
    """Start a browser to ask for its version, and return what it prints.

    raises    BrowserMissing if the program is missing, is not a Chromium that starts, or may have no sandbox
    """
    if not (Path(executable).is_file() and os.access(executable, os.X_OK)):
        raise BrowserMissing(executable)
    try:
        ran = subprocess.run(
            [executable, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BROWSER_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        why = f"it did not print its version within {BROWSER_DEADLINE_S:g} s"
        raise BrowserMissing(executable, why) from None
    except OSError as error:
        raise BrowserMissing(executable, error.strerror or str(error)) from error
    printed = ran.stdout.strip()
    if ran.returncode == 0 and CHROMIUM_VERSION.search(printed):
        if os.geteuid() != 0 and _lacks_sandbox(executable):  # a browser of root has none
            raise BrowserMissing(executable, "the system refuses its sandbox", PERMIT_SANDBOX)
        return printed
    lines = [*printed.splitlines()[:1], *ran.stderr.strip().splitlines()[-1:]]
    said = f"it said {lines[0][:SAID_CHARACTERS]!r}" if lines else "it said nothing"
    if ran.returncode < 0:
        said += f" and ended: {exit_reason_of(ran.returncode)}"
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        said += "; a Chromium needs more addresses than most limits permit, try `ulimit -v unlimited`"
    raise BrowserMissing(executable, said)


def _lacks_sandbox(executable: str) -> bool:
    """Start a browser as an environment does, with a pipe that is closed, so that it ends at once.

    False also if it does not end within `BROWSER_DEADLINE_S`, because then it has its sandbox.
    """
    with TemporaryDirectory(prefix="dartrl-browser-", ignore_cleanup_errors=True) as profile:
        command = browser_command(executable, Path(profile))
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=BROWSER_DEADLINE_S,
                check=False,
            )
        except (subprocess.TimeoutExpired, FileNotFoundError):  # without setpriv no environment starts
            return False
    return any(words in ended.stderr for words in SANDBOX_REFUSED)


def _missing_machines(osworld: OSWorldSettings, forwarded: Collection[str]) -> Iterator[str]:
    """Yield messages if OSWorld's tasks, evaluators, or what the provider of machines needs are missing."""
    if not osworld.tasks.exists():
        yield f"no tasks in {osworld.tasks}: name the folder with --set environments.osworld.tasks=FOLDER"
    try:
        find_evaluators(osworld.evaluators)
    except EvaluatorsMissing as error:
        yield str(error)
    match osworld.provider:
        case "addresses":
            yield from _unresolved(address.partition(":")[0] for address in osworld.addresses)
        case "docker":
            if shutil.which(osworld.docker.program) is None:
                yield f"no program {osworld.docker.program}: install docker, or choose another provider"
            if not osworld.docker.disk.exists():
                yield f"no disk image {osworld.docker.disk}: set environments.osworld.docker.disk"
        case "pool" if not _is_set(osworld.pool.token_variable, forwarded):
            yield (
                f"the environment variable {osworld.pool.token_variable} is empty: "
                f"set it to your token for the server {osworld.pool.server}"
            )
        case "local":
            if missing := missing_for_desktops(applications=False):
                yield str(DesktopMissing(missing))


def _is_set(variable: str, forwarded: Collection[str]) -> bool:
    return bool(os.environ[variable]) if variable in os.environ else variable in forwarded


def _unresolved(hosts: Iterable[str]) -> Iterator[str]:
    """Yield one message with all hosts whose names cannot be resolved. They are resolved in parallel."""
    threads = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")
    try:
        resolving = {host: threads.submit(socket.getaddrinfo, host, None) for host in sorted(set(hosts))}
        wait(resolving.values(), timeout=RESOLVE_S)
        wrong = [f"{host} ({why})" for host, found in resolving.items() if (why := _why_unresolved(found))]
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    if wrong:
        more = f" and {len(wrong) - HOSTS_SHOWN} more" if len(wrong) > HOSTS_SHOWN else ""
        named = ", ".join(wrong[:HOSTS_SHOWN])
        yield (
            f"environments.osworld.addresses names hosts that have no address: {named}{more}; "
            "correct the names, or repair the name resolution (DNS) of this computer"
        )


def _why_unresolved(found: "Future[Any]") -> str:
    if not found.done():
        return f"the name server did not answer within {RESOLVE_S:g} s"
    error = found.exception()
    return "" if error is None else str(getattr(error, "strerror", None) or error)


def missing_policy(config: Config) -> Iterator[str]:
    """Yield a message if the checkpoint that training starts from is missing or damaged."""
    if not reads_policy(config):
        return
    folder = config.training.policy
    remedy = (
        "name another one with --set training.policy=FOLDER; 'dartrl pretrain' makes that of the laptop job, "
        "'dartrl policy fetch' downloads a vision-language checkpoint"
    )
    on_hub = fetched_from(folder)
    if on_hub is not None and not (folder / NOTE).is_file():
        has_config = (folder / "config.json").is_file()
        what, which = ("weights", "them") if has_config else ("policy checkpoint", "it")
        allowed = ", or allow the start to do so with --set training.fetch_policy=true"
        may = "" if config.training.fetch_policy else allowed
        fetch = f"'dartrl policy fetch {on_hub}' in {folder.parents[2]}"
        yield f"no {what} in {folder}: fetch {which} with {fetch}{may}"
        return
    if (base := base_of(folder)) is not None:
        yield why_no_policy(folder, base)
        return
    if versions := list_checkpoints(folder / "checkpoints"):
        yield f"{folder} is the directory of a run and no checkpoint: name its newest version, {versions[-1]}"
        return
    if not (folder / "config.json").is_file():
        yield f"no policy checkpoint in {folder}: {remedy}{_bundled_policy(folder)}"
        return
    if not _has_weights(folder):
        yield f"the policy checkpoint in {folder} has a config.json and no weights yet: {GET_WEIGHTS}"
        return
    damage = damage_of(folder) if find_spec("safetensors") else None
    if damage:
        yield f"the policy checkpoint in {folder} is damaged: {damage}; {remedy}"


def _bundled_policy(folder: Path) -> str:
    """Say where a bundled policy is that was in `folder` of another installation; "" for any other policy."""
    here = bundled_folder() / folder.name
    is_one = folder.parent.name == here.parent.name and (here / "config.json").is_file()
    return f"; if it came with an installation of dartrl that is gone, it is in {here} now" if is_one else ""


def unreadable_prompt(config: Config) -> Iterator[str]:
    """Yield a message if an engine would read a prompt that `context.prompt` names, and cannot."""
    if config.rollout.engine not in RUN_ON_GPUS:
        return
    try:
        prompt_spec_of(config.context)
    except ConfigurationError as error:
        yield str(error)


def _has_weights(folder: Path) -> bool:
    return (folder / INDEX).exists() or any(folder.glob("*.safetensors"))


def not_for_vllm(config: Config) -> Iterator[str]:
    """Yield a message if the engine is vLLM, which cannot serve the policy: it is small, has a pointer head,
    or reads fewer tokens than `rollout.vllm.max_tokens`."""
    folder, asked = config.training.policy, config.rollout.vllm.max_tokens
    if config.rollout.engine != "vllm":
        return
    if is_small_policy(folder):
        yield f"{folder}: {NO_SMALL_POLICY_ON_VLLM}"
    elif has_pointer(folder):
        yield f"{folder}: {NO_POINTER_ON_VLLM}"
    elif (most := tokens_most(folder)) is not None and asked > most:
        yield (
            f"rollout.vllm.max_tokens is {asked}, but the policy in {folder} reads at most {most} tokens "
            f"(max_position_embeddings in its config.json), and vLLM does not start: set it to {most} or "
            "less, or name a policy for longer texts"
        )


def has_pointer(folder: Path) -> bool:
    """Whether the config.json of a checkpoint names a pointer token. False if config.json is damaged."""
    found = _settings_of(folder)
    return found.get(POINTER_KEY) is not None or "pointer_token_id" in found


def tokens_most(folder: Path) -> int | None:
    """Return the largest number of tokens that vLLM lets a checkpoint read; None if config.json does not say.

    A factor by which the checkpoint's positions are stretched counts in full, so that vLLM may refuse more.
    """
    try:
        text, _ = parts_of(_settings_of(folder), folder)
        stretch = (text.get("rope_scaling") or text.get("rope_parameters") or {}).get("factor") or 1
        return int(text["max_position_embeddings"] * stretch)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):  # of another type or range
        return None


def _settings_of(folder: Path) -> Mapping[str, Any]:
    """Return the config.json of a checkpoint; empty if it is damaged, which another check says."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def absent_gpus(config: Config) -> Iterator[str]:
    """Yield a message for each key that names GPUs which this process cannot use."""
    for keys, text in absent_gpu_problems(config, gpus_here()):
        yield f"{keys[0]} {text}"


def shared_gpus(config: Config) -> Iterator[str]:
    """Yield a message if this machine has too few GPUs for the engines and the trainer of the run."""
    for keys, text in shared_gpu_problems(config, gpus_here()):
        yield f"{keys[0]} {text}"


def missing_gpu_of_trainer(config: Config) -> Iterator[str]:
    """Yield a message if `training.device` wants a GPU for a vision-language policy, and none is here."""
    device = config.training.device
    if not device.startswith("cuda") or not gpus_of_trainer(config) or gpus_here():
        return
    if not is_small_policy(config.training.policy):
        yield (
            f"training.device is {device!r}, and this process can use no GPU: set training.device = 'auto', "
            "or start the run where there is one"
        )


def policy_without_hints(config: Config) -> Iterator[str]:
    """Yield a message if self-rolled demonstrations are enabled, but the small policy takes no hint."""
    pool = config.curation.experience_pool
    if not (pool.enabled and pool.self_rolled):
        return
    if is_small_policy(config.training.policy):
        yield (
            f"the policy in {config.training.policy} cannot read the actions of a demonstration as a hint: "
            "set curation.experience_pool.self_rolled = false, or name a vision-language checkpoint"
        )


def damage_of(folder: Path) -> str | None:
    """Return what is wrong with the files of a checkpoint; None if nothing is. The model is not loaded."""
    from safetensors import SafetensorError, safe_open

    try:
        if not isinstance(json.loads((folder / "config.json").read_text(encoding="utf-8")), dict):
            return "config.json holds no JSON object"
        for file in weight_files(folder):
            with safe_open(file, framework="numpy"):
                pass
        if (folder / STATE_FILE).exists():  # a training checkpoint names the sha256 of all its files
            load_checkpoint(folder)
    except CorruptCheckpoint as corrupt:
        return corrupt.damage
    except RecursionError:
        return "config.json is nested too deep"
    except (ValueError, OSError, SafetensorError, OtherLayout) as error:
        return str(error)
    return None


CHECKS: tuple[Check, ...] = (
    missing_packages,
    missing_browser,
    missing_policy,
    unreadable_prompt,
    policy_without_hints,
    not_for_vllm,
    missing_trackers,
    absent_gpus,
    shared_gpus,
    missing_gpu_of_trainer,
)
"""The checks of everything that a run needs on this machine."""


def require_installation(config: Config, checks: Iterable[Check] = CHECKS) -> None:
    """Check that everything that a run needs is installed.

    raises    UnavailableError with a line for each missing thing; ConfigurationError instead if one of them
              is a prompt or the function that makes environments, because no later start would find it
    """
    found = {check: list(check(config)) for check in checks}
    missing = [problem for problems in found.values() for problem in problems]
    if missing:
        is_misnamed = found.get(unreadable_prompt) or (missing_browser in found and _wrong_function(config))
        error = ConfigurationError if is_misnamed else UnavailableError
        raise error("\n".join(missing))
