"""A LoRA job in small: four engines and four ranks, one of each killed, and what a version costs.

    python -m benchmarks.adapter_run                           # both arms; half an hour on two cores
    python -m benchmarks.adapter_run --engines 1 --ranks 1 --updates 2 --arm after     # to see that it works

A tiny checkpoint in the layout of Qwen2.5-VL that was taught to say one action, simulated environments with
real screenshots, real engines (transformers), real ranks under torchrun, all processes on this machine's
cores. After the second version a rank and then an engine are killed with SIGKILL.

before   a version is the merged weights, and the trainer waits for its checkpoint
after    a version is the adapter, written beside the next update

Of each arm: bytes of a version and of what an engine reads of it; seconds a version that the trainer waits,
and writes; seconds that an engine reads and checks a version beside its answers, and that it stands still.
Before engines prepared beside their answers, the first of these was a pause, too. The record must hold no
lost and no doubled rollout, and the run must end by itself.

Prints a table and writes OUT as JSON. Exit code 1 when something was lost or did not come back.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from actors.board import Board
from benchmarks import runs
from benchmarks.actors import machine
from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest, Step
from dart.environments.simulated import INSTRUCTION, screenshot_of
from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Screen
from dart.store.checkpoints import TRAINERS_PARTS, files_of, list_checkpoints
from dart.store.errors import StoreUnavailable
from dart.store.reader import StoreReader
from dart.testing.tiny_families import make_tiny_qwen

CONFIG = runs.REPOSITORY / "configs" / "decoupling.toml"
OUT = Path(__file__).parent / "out" / "adapter_run.json"

ARMS: Mapping[str, Mapping[str, Any]] = {
    "before": {"training.lora.publish": "merged", "training.background_checkpoints": False},
    "after": {"training.lora.publish": "adapter", "training.background_checkpoints": True},
}

ACTION = "click(start_box='(80,105)')"
ANSWER_TOKENS = 24
LESSONS, LESSON_SCREENS = 120, 3

POLICY = "policy"
"""Name of the folder with the policy that was taught."""

ON_CPU = ModelPlacement(device="cpu", is_trained=True)

DEADLINE_S = 3000.0
"""Of an arm, on cores that many processes share."""

Figures = dict[str, Any]


def settings(options: argparse.Namespace, policy: Path, arm: str) -> dict[str, Any]:
    """What is set over configs/decoupling.toml."""
    return {
        **ARMS[arm],
        "run.minutes": DEADLINE_S / 60,
        "environments.count": 8,
        "rollout.engine": "transformers",
        "rollout.count": options.engines,
        "rollout.answer_deadline_s": 300.0,
        "rollout.load_deadline_s": 300.0,
        "context.answer_tokens": ANSWER_TOKENS,
        "context.screenshots": 1,
        "curation.rollouts_per_group": 4,
        "curation.lease_s": 1800.0,
        "curation.batch_lease_s": 3600.0,
        "simulation.steps_median": 2.0,
        "training.policy": str(policy),
        "training.learner": "grpo",
        "training.ranks": options.ranks,
        "training.updates": options.updates,
        "training.lora.rank": 8,
        "training.kl_beta": 0.0,
        "training.lr": 1e-5,
        "training.update_deadline_s": 1200.0,
        "training.checkpoint_deadline_s": 600.0,
        "supervision.rollout_pool.start_deadline_s": 900.0,
        "supervision.trainer.start_deadline_s": 1200.0,
        "web.port": 0,
    }


# ---- a policy that says an action ----


def taught(
    folder: Path,
    make: Callable[[Path], None] = make_tiny_qwen,
    placement: ModelPlacement = ON_CPU,
    lr: float = 3e-3,
) -> Path:
    """A checkpoint that answers every screen of the simulated environments with one action.

    make        writes the checkpoint that is taught into a folder
    placement   where and in which precision it is taught
    """
    base, out = folder / "base", folder / POLICY
    make(base)
    spec = PromptSpec(context=ContextSettings(screenshots=1, answer_tokens=ANSWER_TOKENS))
    policy = load(base, spec, placement)
    optimizer = torch.optim.AdamW(policy.trainable(), lr=lr)
    for lesson in range(LESSONS):
        steps, screens = zip(
            *(_shown(policy, lesson, number) for number in range(LESSON_SCREENS)), strict=True
        )
        scores = policy.score(steps, {screen.sha256: screen for screen in screens}, 1.0)
        loss = -scores.logprobs[scores.mask].mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.trainable(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"taught: {float(loss.detach()):.4f} nats a token", file=sys.stderr, flush=True)
    out.mkdir()
    policy.save(out)
    return out


def _shown(policy: Any, lesson: int, number: int) -> tuple[Step, Screen]:
    """A screen with the answer that is taught."""
    name = f"{lesson}-{number}"
    screen: Screen = policy.codec.screen(name, screenshot_of(f"simulated/{number}", lesson, 0))
    request = GenerateRequest(screenshot_sha256=name, instruction=INSTRUCTION, history=(), temperature=1.0)
    prompt = policy.codec.prompt(request, [screen])
    return (
        Step(
            screenshot_sha256=name,
            prompt_ids=prompt.token_ids,
            token_ids=tuple(policy.codec.encode_action(ACTION, INSTRUCTION, screen.frame)),
            logprobs=(),
            entropies=(),
            answer=ACTION,
            policy_version=0,
            observe_ms=0.0,
            generate_ms=0.0,
            act_ms=0.0,
            images=prompt.images,
        ),
        screen,
    )


# ---- one arm ----


def measure(options: argparse.Namespace, policy: Path, arm: str, folder: Path) -> Figures:
    """Run one arm and kill what is to be killed."""
    wanted = settings(options, policy, arm)
    with runs.training(CONFIG, folder / arm, wanted) as run:
        began_s = time.monotonic()
        until(lambda: newest(run) >= 1, run, "the first version")
        killed = []
        if options.ranks > 1:
            killed.append(kill(rank_of(run), "a rank"))
            until(lambda: newest(run) >= 2, run, "a version after the rank was killed")
        if options.engines > 1:
            name = f"rollout-{options.engines - 1}"
            killed.append(kill(pid_of(run, name), name))
        until(lambda: run.is_over, run, "the end")
        found = figures(run, killed)
        found["seconds"] = time.monotonic() - began_s
        found["exit_code"] = run.process.returncode
        return found


def until(holds: Callable[[], bool], run: runs.Run, what: str) -> None:
    """Wait. Raises TimeoutError with the run's last words."""
    give_up_s = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > give_up_s or (run.is_over and what != "the end"):
            raise TimeoutError(f"{what} did not come: {run.last_words()}")
        time.sleep(0.2)


def newest(run: runs.Run) -> int:
    """The newest version in the record; -1 before there is one."""
    if not run.paths.store.exists():
        return -1
    try:
        with StoreReader(run.paths.store) as reader:
            version = reader.latest_version()
    except StoreUnavailable:  # it is being made
        return -1
    return -1 if version is None else version.version


def rank_of(run: runs.Run) -> int:
    """The process of one rank."""
    lines = runs.marked_processes(run.mark)
    return max(
        pid
        for pid, line in lines.items()
        if "dart.training.rank_main" in line and "torch.distributed.run" not in line
    )


def pid_of(run: runs.Run, name: str) -> int:
    """The process of an actor."""
    board = Board(run.paths.board)
    slot = board.find(name)
    assert slot is not None, f"{name} is not on the board"
    pid = board.vitals(slot).pid
    board.close()
    return pid


def kill(pid: int, what: str) -> str:
    os.kill(pid, signal.SIGKILL)
    print(f"killed {what}, process {pid}", file=sys.stderr, flush=True)
    return what


def figures(run: runs.Run, killed: Sequence[str]) -> Figures:
    """What the record and the files of a run say that has ended."""
    versions = newest(run)
    totals = load_totals(run)
    folder = list_checkpoints(run.paths.checkpoints)[-1]
    sizes = {path.relative_to(folder): path.stat().st_size for path in files_of(folder)}
    loads = max(1.0, totals.get("engines loads", 0.0))
    return {
        "versions": versions,
        "killed": list(killed),
        "version_bytes": sum(sizes.values()),
        "read_bytes": sum(size for name, size in sizes.items() if name.parts[0] not in TRAINERS_PARTS),
        "trainer_waits_s": totals.get("trainer blocked_s", 0.0) / versions,
        "trainer_writes_s": totals.get("trainer writing_s", 0.0) / versions,
        "engine_reads_s": totals.get("engines load_s", 0.0) / loads,
        "engine_stands_still_s": totals.get("engines swap_s", 0.0) / loads,
        "audit": runs.audit(run.paths.store),
    }


def load_totals(run: runs.Run) -> dict[str, float]:
    """What the actors counted, of all their processes: `trainer blocked_s`, `engines requests` and so on."""
    last: dict[str, Mapping[str, Any]] = {}
    totals: Counter[str] = Counter()
    for event in runs.load_events(run.paths.store):
        before = last.get(event.subject)
        if before is not None and float(event.data["wall_s"]) < float(before["wall_s"]):
            totals.update(_named(event.subject, before))  # another process has its name by now
        last[event.subject] = event.data
    for subject, data in last.items():
        totals.update(_named(subject, data))
    return totals


def _named(subject: str, data: Mapping[str, Any]) -> dict[str, float]:
    kind = "engines" if subject.startswith("rollout-") else subject
    return {f"{kind} {name}": float(value) for name, value in data.items() if isinstance(value, int | float)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--arm", nargs="+", choices=tuple(ARMS), default=list(ARMS))
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, write."""
    options = parse()
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="adapters-", dir="/tmp") as scratch:
        policy = taught(Path(scratch))
        for arm in options.arm:
            found[arm] = measure(options, policy, arm, Path(scratch))
    table = Table("", *found, title=f"{options.engines} engines, {options.ranks} ranks")
    for name in next(iter(found.values())):
        cells = [one[name] for one in found.values()]
        table.add_row(name, *(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells))
    Console(width=160).print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), "arms": found}, indent=1) + "\n")
    return int(any(not is_sound(one) for one in found.values()))


def is_sound(found: Figures) -> bool:
    """Whether nothing was lost, and the run ended as it should."""
    audit = found["audit"]
    return not (found["exit_code"] or audit["lost"] or audit["doubled"] or audit["violations"])


if __name__ == "__main__":
    sys.exit(main())
