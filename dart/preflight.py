"""What can be known to be missing before anything is started, each with its remedy."""

import os
from collections.abc import Iterator
from importlib.util import find_spec

from dart.config import Config
from dart.errors import UnavailableError

EXTRA = {
    "torch": "train",
    "transformers": "train",
    "safetensors": "train",
    "matplotlib": "train",
    "vllm": "vllm",
}
"""Which extra of the distribution brings a package."""


def require_installation(config: Config) -> None:
    """See that packages, browser, pages and policy are there, without importing any heavy library.

    raises    UnavailableError with everything that is missing
    """
    missing = [*_missing_packages(config), *_missing_browser(config), *_missing_policy(config)]
    if missing:
        raise UnavailableError("\n".join(missing))


def _missing_packages(config: Config) -> Iterator[str]:
    wanted = [name for name in EXTRA if name != "vllm" or config.rollout.engine == "vllm"]
    absent = [name for name in wanted if find_spec(name) is None]
    for extra in dict.fromkeys(EXTRA[name] for name in absent):
        names = ", ".join(name for name in absent if EXTRA[name] == extra)
        yield f"not installed: {names}; pip install 'dartrl[{extra}]', or make setup"


def _missing_browser(config: Config) -> Iterator[str]:
    from dart.environments.faults import BrowserMissing, PagesMissing
    from dart.environments.miniwob import CHROMIUM, task_ids

    executable = config.environments.executable or CHROMIUM
    if not os.access(executable, os.X_OK):
        yield f"{BrowserMissing(executable)} (environments.executable)"
    try:
        task_ids()
    except PagesMissing as error:
        yield str(error)


def _missing_policy(config: Config) -> Iterator[str]:
    folder = config.training.policy
    if not (folder / "config.json").is_file():
        yield f"no policy checkpoint in {folder}: make one with 'dartrl pretrain', or set training.policy"
