"""The laptop job with a tiny Qwen2.5-VL policy on vLLM while parts of it are killed: what is lost?

    make test-vllm-loop                                # sets up the environment for it; 10 minutes
    python -m benchmarks.vllm_loop --minutes 3         # in an environment that has vLLM

A checkpoint with the layout of Qwen2.5-VL and random weights learns from demonstrations of real pages to say
actions. From there `dartrl train` with the pages and the browsers of configs/laptop.toml trains it by reward,
with `rollout.engine = "vllm"`. Meanwhile, in turn, the rollout actor, an environment, vLLM's worker and the
trainer are killed with SIGKILL, and vLLM's engine core is stopped with SIGSTOP.

What has to hold is found out from the record: the run finishes, every rollout that was ever issued has one
fate, the updates were given as many trajectories as are trained, every victim served again, there were
updates, no process is left behind, and the log-probs of the engine are the trainer's.

It prints a table; the same goes to OUT as JSON. Exit code 0 when all of that holds. Ctrl-C drains the run.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import chaos_report as report
from benchmarks import runs
from benchmarks.actors import BROKEN_OFF
from benchmarks.chaos import NotStarted, await_training, training_ends_unix_s
from benchmarks.chaos_faults import Injector, Planned
from benchmarks.chaos_report import Verdict
from dart.config.config import load_config
from dart.environments.browser.demonstrations import collect
from dart.environments.miniwob.demonstrations import MINIWOB
from dart.imitation.vlm import ImitationConfig, imitate_folder
from dart.policy.placement import ModelPlacement
from dart.store.reader import StoreReader
from dart.testing.tiny_families import make_tiny_qwen

CONFIG = runs.REPOSITORY / "configs" / "laptop.toml"
OUT = Path(__file__).parent / "results" / "vllm_loop.json"

EPISODES = 24
"""Demonstrations of each task."""

IMITATION = ImitationConfig(updates=240, lr=2e-3)

START_DEADLINE_S = 600.0
REST_S = 60.0
"""At the end of training nothing is done to the run, so that the last victim, an engine, can serve again."""

OVERTIME_S = 180.0

MOST_MISMATCH_NATS = 1e-3
"""Of a token's log-prob on the engine and in the trainer, both in float32: the mean of every update."""

IN_TURN = (
    ("SIGKILL", "rollout-", ""),
    ("SIGKILL", "env-", ""),
    ("SIGKILL", "rollout-", "VLLM::Worker"),
    ("SIGKILL", "trainer", ""),
    ("SIGSTOP", "rollout-", "VLLM::EngineCore"),
    ("SIGSTOP", "env-", ""),
)

SETTINGS: Mapping[str, Any] = {
    "environments.count": 4,
    "rollout.engine": "vllm",
    "rollout.max_batch": 8,
    "rollout.vllm.max_tokens": 4096,
    "rollout.vllm.cpu_cache_gib": 0.5,
    "rollout.vllm.dtype": "float32",
    "rollout.vllm.health_every_s": 5.0,
    "context.answer_tokens": 32,
    "training.groups_per_update": 2,
    "training.minibatches": 1,
    "training.lr": 1e-4,
    "training.micro_batch_tokens": 4096,
    "curation.step_cap": 4,
    "evaluation.before": False,
    "evaluation.after": False,
    "web.port": 0,
    "supervision.rollout_pool.start_deadline_s": 300.0,
}


def plan(seconds: float, every_s: float) -> list[Planned]:
    """One thing after the other, in turn."""
    moments = range(1, int((seconds - REST_S) / every_s) + 1)
    return [Planned(number * every_s, *IN_TURN[(number - 1) % len(IN_TURN)]) for number in moments]


def imitated(folder: Path) -> Path:
    """A tiny checkpoint that says actions on the job's pages."""
    demonstrations, base, policy = folder / "demonstrations", folder / "tiny", folder / "imitated"
    demonstrations.mkdir()
    tasks = load_config(CONFIG).tasks.train
    kept = collect(MINIWOB, tasks, EPISODES, demonstrations, environments=2)
    print(f"{sum(kept.values())} demonstrations of {len(kept)} tasks", flush=True)
    make_tiny_qwen(base)
    imitate_folder(demonstrations, base, policy, IMITATION, ModelPlacement(is_trained=True))
    return policy


def measure(minutes: float, every_s: float, seed: int, folder: Path) -> dict[str, Any]:
    """The run from start to end, and everything found. Raises NotStarted."""
    told = {**SETTINGS, "run.minutes": minutes, "run.seed": seed, "training.policy": str(imitated(folder))}
    with runs.training(CONFIG, folder / "run", told) as run:
        await_training([run], START_DEADLINE_S)
        begins_unix_s = time.time()
        ends_unix_s = training_ends_unix_s(run)
        injector = Injector(run, plan(ends_unix_s - begins_unix_s, every_s), seed)
        while not run.is_over and time.time() < ends_unix_s + OVERTIME_S:
            if time.time() < ends_unix_s - REST_S:
                injector.tick(time.time() - begins_unix_s)
            else:
                injector.watch()
            time.sleep(0.1)
        return outcome_of(run, injector, (ends_unix_s - begins_unix_s) / 60.0)


def outcome_of(run: runs.Run, injector: Injector, minutes: float) -> dict[str, Any]:
    """What the run shows when it has ended."""
    store = run.paths.store
    with StoreReader(store) as reader:
        updates = [version.metrics for version in reader.versions() if version.version > 0]
        trajectories = reader.totals().trajectories
    return {
        "hangs": not run.is_over,
        "exit_code": run.process.returncode,
        "last_words": run.last_words() if run.process.returncode else "",
        "minutes": minutes,
        "updates": len(updates),
        "trajectories": trajectories,
        "mismatch_nats": [
            one["mismatch_engine"] for one in updates if one.get("mismatch_engine") is not None
        ],
        "mean_rewards": [one["mean_reward"] for one in updates],
        "audit": runs.audit(store, load_config(run.paths.config).curation.staleness),
        "left_behind": {str(pid): command for pid, command in run.left_behind().items()},
        "recovery_s": report.recoveries(
            injector.done, [], report.episodes_of(store), runs.commit_times(store)
        ),
        "signals": [asdict(fault) for fault in injector.done],
    }


def verdicts(outcome: Mapping[str, Any]) -> list[Verdict]:
    """Everything that must hold."""
    books, left, code = outcome["audit"], outcome["left_behind"], outcome["exit_code"]
    never_back = [kind for kind, times in outcome["recovery_s"].items() if None in times]
    worst_nats = max(outcome["mismatch_nats"], default=None)
    wrong = [f"lost {books['lost']}, doubled {books['doubled']}"] * bool(books["lost"] or books["doubled"])
    return [
        Verdict(
            what="the run finishes",
            found="it hangs" if outcome["hangs"] else f"exit code {code}",
            is_kept=code == 0,
        ),
        Verdict(what="there were updates", found=str(outcome["updates"]), is_kept=outcome["updates"] > 0),
        Verdict(
            what="nothing lost or doubled, the record's audit finds nothing",
            found="; ".join([*wrong, *books["violations"]]) or "nothing",
            is_kept=not wrong and not books["violations"],
        ),
        Verdict(
            what="every victim serves again", found=", ".join(never_back) or "yes", is_kept=not never_back
        ),
        Verdict(what="processes left behind: 0", found=str(list(left.values()) or 0), is_kept=not left),
        Verdict(
            what=f"log-probs of engine and trainer differ by {MOST_MISMATCH_NATS:g} nats in the mean at most",
            found="nobody compared any" if worst_nats is None else f"{worst_nats:.1g} at most",
            is_kept=worst_nats is not None and worst_nats <= MOST_MISMATCH_NATS,
        ),
    ]


def table(outcome: Mapping[str, Any], judged: Sequence[Verdict]) -> str:
    """For people."""
    lines = report.recovery_lines(len(outcome["signals"]), outcome["minutes"], outcome["recovery_s"])
    lines.append(f"{outcome['trajectories']} trajectories, {outcome['updates']} updates")
    return "\n".join([*lines, report.books_line(outcome["audit"]), *report.verdict_lines(judged)])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of training, its start included")
    parser.add_argument("--every", type=float, default=45.0, metavar="SECONDS", help="between two signals")
    parser.add_argument("--seed", type=int, default=0, help="of the run and of who is hit")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


def main() -> int:
    """Run, print, write; 1 when something is broken."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with tempfile.TemporaryDirectory(prefix="vllm-loop-", dir="/tmp", ignore_cleanup_errors=True) as name:
        try:
            outcome = measure(options.minutes, options.every, options.seed, Path(name))
        except KeyboardInterrupt:
            print("broken off; the run was drained", file=sys.stderr)
            return BROKEN_OFF
        except NotStarted as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    judged = verdicts(outcome)
    print(table(outcome, judged))
    return report.conclude("vllm_loop", options.seed, outcome, judged, options.out)


if __name__ == "__main__":
    sys.exit(main())
