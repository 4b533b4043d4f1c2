"""Every benchmark in its shortest form, two at a time: does each still start, measure and print?

    python -m benchmarks.shortest                      # all that this machine has the parts for
    python -m benchmarks.shortest --only fuzz soak     # these
    python -m benchmarks.shortest --jobs 1             # one after the other

A benchmark fails when it ends with another code than 0, prints no figure, or is not done after its deadline.
The shortest forms judge what is right or wrong and print what is fast or slow: a busy machine proves nothing
about speed, so two may share it. What is not run, as local desktops where there are none, is named.

Exit code 1 when a benchmark failed.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.live_commands import await_training
from benchmarks.runs import training
from dart.environments.desktop.requirements import missing_for_desktops

REPOSITORY = Path(__file__).resolve().parent.parent
SMOKE = REPOSITORY / "configs" / "smoke.toml"
DEADLINE_S = 420.0
STOP_S = 30.0
FINISHED, LIVE, OUT = "{finished}", "{live}", "{out}"
"""In arguments: a run that has ended, a daemon that trains, a folder for what the benchmark writes."""


@dataclass(frozen=True, slots=True)
class Form:
    """The shortest form of one benchmark."""

    arguments: tuple[str, ...] = ()
    needs: str = ""
    """What the machine must have, if anything: `desktop`, `osworld-score`."""
    run_by: str = ""
    """What runs its short form already."""
    apart: str = ""
    """How it is run, where its shortest form takes ten minutes."""


def _form(arguments: str, needs: str = "") -> Form:
    return Form(tuple(arguments.split()), needs)


FORMS = {
    "ablation": _form("--quick --out {out}"),
    "actors": _form("--quick --peers ours plain_thespian zeromq pipe --out {out}/actors.json"),
    "adapter_run": Form(apart="python -m benchmarks.adapter_run"),
    "alarms": _form("--quick --out {out}/alarms.json"),
    "alignment": _form("--quick --out {out}/alignment.json"),
    "blobs": _form("--rounds 1 --count 4"),
    "browser_flags": _form("--quick --out {out}/browser_flags.json"),
    "chaos": Form(run_by="tests/e2e/test_chaos.py"),
    "cluster": Form(run_by="make test-losses"),
    "command_line": _form("--quick"),
    "control_fuzz": _form("{live} --frames 2000"),
    "corruptions": _form("--count 4 --out {out}/corruptions.json"),
    "curator_scale": _form("--seeds 1 --sizes 400 800 --out {out}/curator_scale.json"),
    "decoupling": _form("--quick --cell latencies --arm batch+all_at_once rollout+one_at_a_time --out {out}"),
    "desktops": _form("--minutes 2 --desktops 1 --out {out}/desktops.json", needs="desktop"),
    "engine_prefixes": _form("--quick --out {out}/engine_prefixes.json"),
    "environments": _form("--quick"),
    "evaluation_bias": _form("--quick --out {out}/bias.json"),
    "exploration": _form("--quick --out {out}/exploration.json"),
    "fuzz": _form("--frames 5000 --out {out}/fuzz.json"),
    "grounding": _form("--quick --out {out}/grounding.json"),
    "hard_job": Form(run_by="benchmarks.ablation"),
    "hosts": _form("--rounds 1 --round-trips 30 --burst 10"),
    "interleavings": _form("--rounds 1"),
    "laptop_seeds": _form("--quick --seeds 0 --out {out}"),
    "live_commands": _form("--quick --looks 1 --out {out}/live.json"),
    "longevity": _form("--minutes 0.5 --every 2 --config configs/smoke.toml --out {out}/longevity"),
    "miniwob_restarts": _form("--quick --out {out}/miniwob_restarts.json"),
    "minibatch_noise": _form(
        "{finished} --policies base=configs/base-policy:1 --seeds 5 --updates 1 --out {out}/noise.json"
    ),
    "one_gpu": _form("--updates 4 --set training.groups_per_update=1 --out {out}/one_gpu.json"),
    "osworld_corpus": Form(run_by="benchmarks.osworld_evaluators"),
    "osworld_evaluators": _form("--every 200", needs="osworld-score"),
    "process_start": _form("--times 1 --out {out}/process_start.json"),
    "recovery": _form("--kills 1 --out {out}/recovery.json"),
    "record": _form("--databases sqlite --rollouts 32 --rounds 1 --out {out}/record.json"),
    "scrape": _form("--quick"),
    "simulation": _form("--quick --out {out}"),
    "soak": _form("--restarts 500 --children 5 --out {out}/soak.json"),
    "step_credit": _form("--quick --out {out}/step_credit"),
    "stops_live": _form("--quick --out {out}/stops.json"),
    "trainer": _form("--updates 1 --parts --width 320 --height 240 --out {out}/trainer.json"),
    "trainer_compare": _form("--quick --arms small --out {out}/trainer_compare.json"),
    "turn_resume": _form("--quick --out {out}/turn_resume.json"),
    "vllm_engine": Form(run_by="make test-vllm"),
    "vllm_loop": Form(apart="make test-vllm-loop"),
    "web_fuzz": _form("--run-dir {finished} --requests 1000"),
    "weight_versions": _form("--quick --out {out}/weight_versions.json"),
}
"""Every benchmark that can be started; one that is missing here fails a test."""


def left_out(form: Form) -> str:
    """Why a benchmark is not started here; empty when it is."""
    if form.run_by:
        return f"{form.run_by} runs it"
    if form.needs == "desktop" and (lacking := missing_for_desktops()):
        return f"NOT RUN: not installed (make desktop): {', '.join(lacking)}"
    if form.needs == "osworld-score" and not (REPOSITORY / ".venv-osworld-score").exists():
        return "NOT RUN: OSWorld's evaluators are not installed; make osworld-score"
    if form.apart:
        return f"NOT RUN: it takes ten minutes; {form.apart}"
    return ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one benchmark came to."""

    name: str
    seconds: float
    failure: str
    """Empty when it measured."""


def judged(code: int | None, output: str) -> str:
    """Why a benchmark that ended like this failed; empty when it did not. None: it ran into its deadline."""
    if code is None:
        return f"not done after {DEADLINE_S:g} s"
    if code:
        return f"exit code {code}"
    return "" if re.search(r"\d", output) else "it printed no figure"


def run_form(name: str, form: Form, places: dict[str, str], log: Path) -> Outcome:
    """Run one benchmark to its end or its deadline."""
    arguments = [_placed(one, places) for one in form.arguments]
    began_s = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{name}", *arguments],
            # Two may share the machine: threads of torch that wait for one another would keep it busy.
            cwd=REPOSITORY, env={"OMP_NUM_THREADS": "1", **os.environ},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        code = _wait(process)
    failure = judged(code, log.read_text(errors="replace"))
    return Outcome(name, time.monotonic() - began_s, failure)


def _placed(argument: str, places: dict[str, str]) -> str:
    for placeholder, place in places.items():
        argument = argument.replace(placeholder, place)
    return argument


def _wait(process: "subprocess.Popen[bytes]") -> int | None:
    """The exit code; None when it had to be ended, first in words."""
    try:
        return process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return None


# ---- the runs that some of them look at ----


def finished_run(folder: Path) -> str:
    """Train the smoke job to its end. Raises CalledProcessError."""
    directory = folder / "finished"
    command = [sys.executable, "-m", "dart", "train", str(SMOKE), "--run-dir", str(directory)]
    with (folder / "finished.log").open("wb") as log:
        subprocess.run(
            command, cwd=REPOSITORY, check=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL, stdout=log
        )
    return str(directory)


@contextmanager
def live_run(folder: Path) -> Iterator[str]:
    """A daemon that trains as long as the block lasts."""
    overrides = {"run.minutes": 30.0, "training.updates": 0, "evaluation.before": False, "web.enabled": False}
    with training(SMOKE, folder / "live", overrides, verb="up") as run:
        await_training(run)
        yield str(run.directory)


def run_one(name: str, folder: Path) -> Outcome:
    """Run one benchmark, beside the runs that it looks at; its log is `folder/NAME.log`."""
    form = FORMS[name]
    out = folder / name
    out.mkdir()
    places = {OUT: str(out)}
    with ExitStack() as around:
        if FINISHED in form.arguments:
            places[FINISHED] = finished_run(out)
        if LIVE in form.arguments:
            places[LIVE] = around.enter_context(live_run(out))
        return run_form(name, form, places, folder / f"{name}.log")


def run_all(names: Sequence[str], folder: Path, jobs: int = 1) -> Iterator[Outcome]:
    """Run every named benchmark, `jobs` at a time; yield each outcome as soon as it is there."""
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(run_one, name, folder) for name in names]):
            outcome = done.result()
            if outcome.failure:
                print((folder / f"{outcome.name}.log").read_text(errors="replace")[-4000:], flush=True)
            yield outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(FORMS), default=list(FORMS), metavar="NAME")
    parser.add_argument("--jobs", type=int, choices=range(1, 9), default=2, help="how many run at a time")
    options = parser.parse_args(arguments)
    lacking = {name: reason for name in options.only if (reason := left_out(FORMS[name]))}
    there = [name for name in options.only if name not in lacking]
    failed = []
    with tempfile.TemporaryDirectory(prefix="shortest-", dir="/tmp", ignore_cleanup_errors=True) as name:
        for outcome in run_all(there, Path(name), options.jobs):
            print(f"{outcome.name:16} {outcome.seconds:6.1f} s  {outcome.failure or 'measured'}", flush=True)
            failed += [outcome.name] if outcome.failure else []
    for name, reason in lacking.items():
        print(f"benchmarks.{name}: {reason}")
    print(
        f"{len(there) - len(failed)} of {len(there)} benchmarks measured; "
        f"failed: {', '.join(failed) or 'none'}"
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
