"""What the hard job (configs/hard.toml) starts from: `python -m benchmarks.hard_job [--out runs/hard-job]`.

    policy/           a policy that imitated scripted successes in some of the job's tasks, and stopped early
    demonstrations/   for the experience pool: successes of the scripted oracles in all of its tasks

Both come from training seeds, the two from different ones. The same command makes the same policy as long as
the libraries are the same. What is there already is kept.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CONFIG = REPOSITORY / "configs" / "hard.toml"
HARD_JOB = REPOSITORY / "runs" / "hard-job"

IMITATED = {"click-tab": 0.3, "focus-text-2": 3.0, "enter-text": 1.0, "click-widget": 3.0}
"""Tasks the policy saw, and how much more often than their size says. What click-test-2 wants it can guess
from them; login-user and enter-password it never solves."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much the policy imitates, and how many demonstrations the experience pool has."""

    imitated_episodes: int = 140
    """Of each imitated task."""
    updates: int = 100
    pool_episodes: int = 20
    """Of each task of the job."""


QUICK = Size(imitated_episodes=4, updates=2, pool_episodes=1)
"""Enough to see that all of it works."""

FIRST_POOL_SEED = 10_000
"""Index of the pool's first training seed; imitation uses those from 0 on."""

BROWSERS = 2


def prepare(out: Path, size: Size) -> None:
    """Make what is missing in `out`; each of the two appears whole or not at all."""
    from dart.config.config import load_config

    tasks = load_config(CONFIG).tasks.train
    _once(out / "demonstrations", lambda folder: _collect(tasks, size.pool_episodes, FIRST_POOL_SEED, folder))
    _once(out / "policy", lambda folder: _imitate(folder, size))


def _once(folder: Path, make: Callable[[Path], None]) -> None:
    if folder.exists():
        return
    print(f"making {folder}", flush=True)
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    make(unfinished)
    unfinished.rename(folder)


def _collect(tasks: Sequence[str], episodes: int, first_seed: int, folder: Path) -> None:
    from dart.environments.browser.demonstrations import collect
    from dart.environments.miniwob.demonstrations import MINIWOB

    collect(MINIWOB, tasks, episodes, folder, first=first_seed, environments=BROWSERS)


def _imitate(folder: Path, size: Size) -> None:
    from dart.imitation.pretrain import PretrainConfig, pretrain
    from dart.policy.small_policy import save_policy

    weights = tuple((f"miniwob/{page}", weight) for page, weight in IMITATED.items())
    config = PretrainConfig(
        episodes=tuple((task, size.imitated_episodes) for task, _ in weights),
        emphasis=weights,
        updates=size.updates,
    )
    with tempfile.TemporaryDirectory(prefix="dartrl-hard-") as seen:
        _collect([task for task, _ in weights], size.imitated_episodes, 0, Path(seen))
        model, tokenizer = pretrain(config, Path(seen), lambda line: print(line, flush=True))
    save_policy(model, tokenizer, folder)


def main() -> None:
    """Make both."""
    parser = argparse.ArgumentParser(
        description="Makes the policy and the demonstrations of configs/hard.toml."
    )
    parser.add_argument("--out", type=Path, default=HARD_JOB)
    prepare(parser.parse_args().out, Size())


if __name__ == "__main__":
    main()
