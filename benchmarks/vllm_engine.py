"""The vLLM engine on this machine, with a tiny checkpoint: parity, throughput, updates under load, recovery.

    make test-vllm                       # sets up the environment for it, tests, then measures
    python -m benchmarks.vllm_engine     # in an environment that has vLLM

parity       log-probs and entropies as the engine recorded them beside transformers in float32
throughput   answers with one screenshot each, by how many are under way
update       new weights while eight answers are under way all the time: check and read beside the answers,
             then the swap, in which the engine answers nothing; requests lost
recovery     from a SIGKILL of the rollout actor, or of its worker, to the next answer

Writes RESULTS/vllm.json. Ends with 1 when a log-prob is off by more than its bound or a request is lost.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.actors import machine
from benchmarks.vllm_scene import Checkpoints, Screens, config_with, engine, rollout_child, scores
from dart.config.config import Config
from dart.core import messages as m
from dart.core.types import GenerateRequest
from dart.inference.vllm_engine import VllmEngine
from tests.fault.actors_under_test import Running, eventually, pool, started

RESULTS = Path(__file__).parent / "results"

BOUNDS_NATS = {"float32": 1e-3, "bfloat16": 0.05}
"""Most mean difference of a log-prob from transformers in float32."""

ANSWERS = 32
IN_FLIGHT = (1, 8)
UPDATES = 5
NAME = "rollout-0"
UP_WITHIN_S = 900.0

Figures = dict[str, Any]


def parity(made: VllmEngine, checkpoints: Checkpoints, screens: Screens, dtype: str) -> Figures:
    """At temperature 1, a few under way at a time."""
    requests = [screens.request(seed) for seed in range(ANSWERS)]
    with ThreadPoolExecutor(max(IN_FLIGHT)) as threads:
        answers = list(threads.map(lambda request: made.generate([request])[0], requests))
    found = scores(checkpoints.first, screens, requests, answers)
    ratios = (found.expected_logprobs - found.logprobs).exp()
    return {
        "dtype": dtype,
        "tokens": len(found.logprobs),
        "mean_nats": float(found.differences.mean()),
        "max_nats": float(found.differences.max()),
        "k3_nats": found.k3,
        "ratio_min": float(ratios.min()),
        "ratio_max": float(ratios.max()),
        "entropy_max_nats": float((found.entropies - found.expected_entropies).abs().max()),
        "bound_mean_nats": BOUNDS_NATS[dtype],
    }


def throughput(made: VllmEngine, screens: Screens, in_flight: int) -> Figures:
    """Fresh screenshots, so that nothing of an answer is in a cache."""
    requests = [screens.request(1000 * in_flight + seed) for seed in range(8 * in_flight)]
    with ThreadPoolExecutor(in_flight) as threads:
        began_s = time.perf_counter()
        answers = list(threads.map(lambda request: made.generate([request])[0], requests))
        took_s = time.perf_counter() - began_s
    return {
        "in_flight": in_flight,
        "answers_per_s": len(answers) / took_s,
        "tokens_per_s": sum(len(answer.token_ids) for answer in answers) / took_s,
    }


def update_under_load(made: VllmEngine, checkpoints: Checkpoints, screens: Screens) -> Figures:
    """Eight askers without a pause, five versions one after the other."""
    folders = [checkpoints.publish(version) for version in range(1, UPDATES + 1)]
    is_over = False
    asked = 0

    def ask(seed: int) -> list[tuple[float, int]]:
        nonlocal asked
        found = []
        while not is_over:
            asked += 1
            began_s = time.perf_counter()
            [answer] = made.generate([screens.request(seed)])
            found.append((time.perf_counter() - began_s, len(answer.spans)))
        return found

    with ThreadPoolExecutor(max(IN_FLIGHT)) as threads:
        askers = [threads.submit(ask, 5000 + number) for number in range(max(IN_FLIGHT))]
        prepared_s, swapped_s = [], []
        for version, folder in enumerate(folders, start=1):
            time.sleep(1.0)
            began_s = time.perf_counter()
            swap = made.prepare(folder, version)
            read_s = time.perf_counter()
            swap()
            prepared_s.append(read_s - began_s)
            swapped_s.append(time.perf_counter() - read_s)
        time.sleep(1.0)
        is_over = True
        answered = [answer for asker in askers for answer in asker.result()]
    return {
        "updates": UPDATES,
        "requests": asked,
        "lost": asked - len(answered),
        "of_several_versions": sum(spans > 1 for _, spans in answered),
        "prepare_ms_median": statistics.median(prepared_s) * 1000,
        "swap_ms_median": statistics.median(swapped_s) * 1000,
        "swap_ms_max": max(swapped_s) * 1000,
        "slowest_answer_s": max(took_s for took_s, _ in answered),
    }


def recovery(folder: Path, checkpoints: Checkpoints, screens: Screens, config: Config) -> list[Figures]:
    """A rollout actor below its supervisor: killed, then its worker."""
    child = rollout_child(config, folder / "record.db", checkpoints.first)
    with started(pool("rollout_pool", child)) as processes:
        await_answer(processes, screens, incarnation=1)
        return [
            recovered(processes, screens, "rollout actor", lambda: processes.kill(NAME)),
            recovered(processes, screens, "vLLM worker", lambda: kill_worker(processes)),
        ]


def recovered(processes: Running, screens: Screens, victim: str, kill: Callable[[], Any]) -> Figures:
    incarnation = processes.row(NAME).incarnation
    began_s = time.perf_counter()
    kill()
    await_answer(processes, screens, incarnation + 1)
    return {"killed": victim, "back_after_s": time.perf_counter() - began_s}


def await_answer(processes: Running, screens: Screens, incarnation: int) -> None:
    eventually(
        lambda: processes.is_up(NAME) and processes.row(NAME).incarnation >= incarnation,
        f"{NAME} is up",
        processes.explain,
        UP_WITHIN_S,
    )
    request: GenerateRequest = screens.request(0)
    processes.system.ask(NAME, m.Generate(request=request), deadline_s=60.0)


def kill_worker(processes: Running) -> None:
    import psutil

    below = psutil.Process(processes.pid(NAME)).children(recursive=True)
    next(process for process in below if "VLLM::Worker" in " ".join(process.cmdline())).kill()


def measure(folder: Path, *, is_eager: bool) -> Figures:
    """Everything, one after the other."""
    vllm = {"eager": is_eager}
    checkpoints, screens = Checkpoints(folder), Screens(folder / "blobs")
    with engine(checkpoints.first, config_with(dtype="bfloat16", vllm=vllm), screens) as made:
        rounded = parity(made, checkpoints, screens, "bfloat16")
    with engine(checkpoints.first, config_with(vllm=vllm), screens) as made:
        exact = parity(made, checkpoints, screens, "float32")
        throughputs = [throughput(made, screens, count) for count in IN_FLIGHT]
        update = update_under_load(made, checkpoints, screens)
    return {
        "machine": machine(),
        "parity": [rounded, exact],
        "throughput": throughputs,
        "update": [update],
        "recovery": recovery(folder, checkpoints, screens, config_with(vllm=vllm)),
    }


def show(figures: Figures) -> None:
    """A table for each part: a line for each figure, a column for each case."""
    console = Console()
    for part in ("parity", "throughput", "update", "recovery"):
        cases = figures[part]
        table = Table(title=part, show_header=False)
        for name in cases[0]:
            values = (case[name] for case in cases)
            table.add_row(name, *(f"{one:.4g}" if isinstance(one, float) else str(one) for one in values))
        console.print(table)


def problems(figures: Figures) -> list[str]:
    """What is not as it must be."""
    off = [
        f"log-probs in {row['dtype']} are off by {row['mean_nats']:.2g} nats on average, "
        f"the bound is {row['bound_mean_nats']:g}"
        for row in figures["parity"]
        if row["mean_nats"] > row["bound_mean_nats"]
    ]
    return off + [
        f"{row['lost']} requests were lost during updates" for row in figures["update"] if row["lost"]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="RESULTS")
    parser.add_argument("--eager", action="store_true", help="compile nothing: engines on a GPU start faster")
    options = parser.parse_args()
    out = options.out
    with tempfile.TemporaryDirectory(prefix="vllm-") as folder:
        figures = measure(Path(folder), is_eager=options.eager)
    show(figures)
    (out / "vllm.json").write_text(json.dumps(figures, indent=1) + "\n")
    for problem in problems(figures):
        print(f"vllm_engine: {problem}", file=sys.stderr)
    return 1 if problems(figures) else 0


if __name__ == "__main__":
    sys.exit(main())
