"""A whole LoRA job on one GPU: engine and trainer side by side, each killed once, and what it takes.

    python -m benchmarks.one_gpu                                    # the tiny layout, on a laptop's cores
    python -m benchmarks.one_gpu --layout 3b                        # on a GPU; the engine is transformers
    python -m benchmarks.one_gpu --layout 3b --engine vllm          # in an environment that has vLLM

configs/one-gpu-miniwob.toml with random weights in the layout of Qwen2.5-VL that have learned to say one
action, and with simulated environments in place of browsers: they show real screenshots of MiniWoB++'s size
and wait for nothing, so engine and trainer are always busy. SIGKILL ends the engine after the
first version, and the trainer after the second.

update s        of an update, as the trainer reports it
answers/s       of the engine while it was busy
trainer_waits_s, trainer_writes_s
                seconds a version that the trainer waits for it, and in which it is written
engine_reads_s, engine_stands_still_s
                seconds a version that an engine reads and checks it, and answers nothing for it
back s          from a kill until the actor takes work again
on the GPU      most memory of each process, as the driver says, beside what `dartrl up --dry-run` says

Prints a table and writes OUT as JSON. Exit code 1 when something was lost or did not come back.
"""

import argparse
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from actors.board import Board
from actors.errors import ActorError
from benchmarks import adapter_run, runs
from benchmarks.actors import machine
from benchmarks.adapter_run import POLICY, is_sound, kill, newest, pid_of, taught, until
from benchmarks.chaos_faults import is_up
from benchmarks.qwen_layouts import LAYOUTS, make_layout
from dart.config.config import Config, load_config
from dart.config.gpus import assign_gpus, gpus_here
from dart.policy.placement import ModelPlacement
from dart.preflight.gpu_memory import counted, gpu_bytes_here, on_gpus
from dart.store.reader import StoreReader

CONFIG = runs.REPOSITORY / "configs" / "one-gpu-miniwob.toml"
OUT = Path(__file__).parent / "out" / "one_gpu.json"
KILLED = ("rollout-0", "trainer")
LEAST_UPDATES = 4
SAMPLE_S = 0.25
MIB = 2**20

Figures = dict[str, Any]


def settings(options: argparse.Namespace, policy: Path, has_gpu: bool) -> dict[str, Any]:
    """What is set over configs/one-gpu-miniwob.toml."""
    without_gpu = {
        "rollout.gpus": [],
        "training.gpus": [],
        "training.precision": "float32",
        "rollout.vllm.dtype": "float32",
    }
    return {
        "run.minutes": adapter_run.DEADLINE_S / 60,
        "tasks.train": [f"simulated/{number}" for number in range(4)],
        "environments.kind": "simulated",
        "rollout.engine": options.engine,
        "context.screenshots": 1,
        "context.answer_tokens": adapter_run.ANSWER_TOKENS,
        "simulation.steps_median": 3.0,
        "curation.rollouts_per_group": 4,
        "training.policy": str(policy),
        "training.updates": options.updates,
        "evaluation.before": False,
        "evaluation.after": False,
        "telemetry.load_every_s": 1.0,
        "web.port": 0,
        **({} if has_gpu else without_gpu),
        **dict(options.set),
    }


def taught_apart(layout: str, folder: Path) -> Path:
    """A policy of this layout that says one action, made in a process that leaves the GPU free."""
    apart = get_context("spawn").Process(target=teach, args=(layout, folder), daemon=True)
    apart.start()
    apart.join(adapter_run.DEADLINE_S)
    if apart.exitcode != 0:
        raise RuntimeError(
            f"no policy of layout {layout} after {adapter_run.DEADLINE_S:g} s at most: the process that "
            f"teaches it has the exit code {apart.exitcode}; its output is above"
        )
    return folder / POLICY


def teach(layout: str, folder: Path) -> None:
    """Make the policy in the folder `POLICY` below `folder`."""
    precision = "float32" if layout == "tiny" else "bfloat16"
    placement = ModelPlacement(is_trained=True, precision=precision, weight_precision=precision)
    lr = 3e-3 if layout == "tiny" else 3e-4
    taught(folder, functools.partial(make_layout, layout), placement, lr)


def measure(options: argparse.Namespace, folder: Path) -> Figures:
    """Teach a policy, run the job, kill engine and trainer."""
    has_gpu = bool(gpus_here())
    policy = taught_apart(options.layout, folder)
    wanted = settings(options, policy, has_gpu)
    with runs.training(CONFIG, folder / "run", wanted) as run, driver_memory(run) as memory:
        back_s = {}
        for version, name in enumerate(KILLED, start=1):
            until(lambda least=version: newest(run) >= least, run, f"version {version}")
            back_s[name] = killed(run, name)
        until(lambda: run.is_over, run, "the end")
        found = adapter_run.figures(run, KILLED)
        found["exit_code"] = run.process.returncode
        with StoreReader(run.paths.store) as reader:
            updates = [version.metrics for version in reader.versions() if version.version > 0]
        config = load_config(CONFIG, [f"{key}={runs.toml_value(value)}" for key, value in wanted.items()])
    return {
        "layout": options.layout,
        "engine": options.engine,
        **found,
        "update_s": statistics.median(update["seconds"] for update in updates),
        **rates(run),
        "back_s": back_s,
        "gpu_mib": dict(memory),
        "planned_mib": planned_mib(config) if has_gpu else {},
    }


def killed(run: runs.Run, name: str) -> float:
    """Kill an actor; returns the seconds until a new one takes work."""
    before = pid_of(run, name)
    kill(before, name)
    began_s = time.monotonic()
    board = Board(run.paths.board)

    def is_back() -> bool:
        slot = board.find(name)
        row = None if slot is None else board.vitals(slot)
        return row is not None and row.pid not in (0, before) and is_up(row)

    until(is_back, run, f"a new {name}")
    board.close()
    return time.monotonic() - began_s


def rates(run: runs.Run) -> Figures:
    """Answers and tokens of the engine over the seconds in which it had a request."""
    totals = adapter_run.load_totals(run)
    busy_s = totals["engines busy_s"]
    return {
        "answers_per_s": totals["engines requests"] / busy_s,
        "answer_tokens_per_s": totals["engines tokens"] / busy_s,
    }


# ---- memory of the GPU ----


@contextmanager
def driver_memory(run: runs.Run) -> Iterator[Mapping[str, int]]:
    """Most MiB on the GPU by process, as the driver says while the block lasts; empty without a GPU."""
    found: dict[str, int] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            # No sample while the driver is late or the board is being made.
            with suppress(subprocess.TimeoutExpired, ActorError):
                for name, used_mib in in_use(run).items():
                    found[name] = max(found.get(name, 0), used_mib)

    thread = threading.Thread(target=watch, daemon=True)
    if gpus_here():
        thread.start()
    try:
        yield found
    finally:
        over.set()
        if thread.is_alive():
            thread.join()


def in_use(run: runs.Run) -> Counter[str]:
    """MiB on the GPU now, by actor, and of all processes together."""
    found = Counter({"all": sum(numbers(line)[0] for line in ask_driver("--query-gpu=memory.used"))})
    for line in ask_driver("--query-compute-apps=pid,used_memory"):
        pid, used_mib = numbers(line)
        found[owner(run, pid)] += used_mib
    return found


def numbers(line: str) -> list[int]:
    """The numbers of a line of the driver; 0 for what it does not know."""
    return [int(cell) if cell.strip().isdigit() else 0 for cell in line.split(",")]


def ask_driver(query: str) -> list[str]:
    """Lines of nvidia-smi."""
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=10.0, check=False)
    return [line for line in answer.stdout.splitlines() if line.strip()]


def owner(run: runs.Run, pid: int) -> str:
    """The actor whose process this is, or is below."""
    try:
        family = [pid, *(parent.pid for parent in psutil.Process(pid).parents())]
    except psutil.NoSuchProcess:
        return "others"
    if not run.paths.board.exists():
        return "others"
    board = Board(run.paths.board)
    actors = {board.vitals(slot).pid: name for name in KILLED if (slot := board.find(name)) is not None}
    board.close()
    return next((actors[one] for one in family if one in actors), "others")


def planned_mib(config: Config) -> dict[str, int]:
    """What a dry run says of each process on this GPU."""
    gpu_bytes = gpu_bytes_here()
    plan = on_gpus(config, *counted(config), assign_gpus(config, gpus_here()), gpu_bytes)
    return {one.name: one.total_bytes // MIB for holders in plan.values() for one in holders}


def setting(text: str) -> tuple[str, Any]:
    """A key of the configuration, and its value in TOML."""
    key, _, value = text.partition("=")
    return key, tomllib.loads(f"value = {value}")["value"]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layout", choices=LAYOUTS, default="tiny")
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--updates", type=int, default=6, help=f"at least {LEAST_UPDATES}")
    parser.add_argument(
        "--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="over the configuration"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.updates < LEAST_UPDATES:
        parser.error(f"--updates must be at least {LEAST_UPDATES}, so that the run goes on after both kills")
    return options


def main() -> int:
    """Measure, print, write."""
    options = parse()
    with tempfile.TemporaryDirectory(prefix="one-gpu-", dir="/tmp") as scratch:
        found = measure(options, Path(scratch))
    table = Table(show_header=False, title="a LoRA job on one GPU")
    for name, value in found.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    Console(width=160).print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
    return int(not is_sound(found))


if __name__ == "__main__":
    sys.exit(main())
