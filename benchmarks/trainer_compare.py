"""What an update costs with the trainer as it is and as it was at another commit, side by side.

    python -m benchmarks.trainer_compare --against main                    # both policies, three seeds
    python -m benchmarks.trainer_compare --against main --run runs/laptop  # small policy: batches of a run
    python -m benchmarks.trainer_compare --quick                           # against HEAD, one seed, seconds

The other commit is unpacked into a temporary folder; each measurement is a process of its own, in which
`dart` is that one or this one, and both take turns. Both train the base policy of the other commit, because
an older commit cannot read the one of today.

vlm          a tiny Qwen2.5-VL on screenshots of 480x270, a sixteenth of full HD, with five of them in a
             prompt and a KL term
ranks        the same with two ranks, whose processor time alone is seen
small        the policy of the laptop job with the job's settings, on made-up groups that share their first
             screen, or on batches of a run
whole        the same with one optimizer step, so that the samples of a step are the same on both sides

cpu_s        processor time of one update, of all threads and ranks: not wall time, so other work on the
             machine counts little. The first update of a process is not counted
images_s     the part of it in the image processor and in decoding
prepared     images that went through the image processor
decoded      screenshots
scored       answers that went through a model, forward: policy, policy before the update, base policy
prefixes     prefixes that the small policy computed for them

Prints the ratios before / now, with the least and the most over the seeds, and how far loss and gradient norm
are apart, and writes OUT as JSON.
"""

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
OUT = Path(__file__).parent / "out" / "trainer_compare.json"
BASE_POLICY = Path("configs", "base-policy")
UNPACKED = ("actors", "dart", "supervision", str(BASE_POLICY))
DEADLINE_S = 3600.0

VLM_SIZE = (480, 270)
VLM_SCREENSHOTS = 5
OPTIMIZER: dict[str, Any] = {"weight_decay": 0.0, "max_grad_norm": 1.0}
"""Named, because the defaults of both sides may differ."""

LAPTOP: dict[str, Any] = {
    "minibatches": 4,
    "betas": (0.9, 0.99),
    "kl_beta": 0.0,
    "lr": 3e-4,
    **OPTIMIZER,
}
"""What `configs/laptop.toml` says about an update."""

ARMS = ("vlm", "ranks", "small", "whole")

COUNTED = ("cpu_s", "images_s", "prepared", "decoded", "scored", "prefixes")

Figures = dict[str, Any]


# ---- in the process of one measurement: `dart` is the one that is measured ----


class Counts:
    """What a learner did, counted around its functions."""

    def __init__(self) -> None:
        self._depth = 0
        self.clear()

    def clear(self) -> None:
        """Begin to count again."""
        self.images_s = 0.0
        self.prepared = self.decoded = self.scored = self.prefixes = 0

    @contextmanager
    def image_work(self) -> Iterator[None]:
        """Count the time of the block, unless it is within another one."""
        began_s, self._depth = time.thread_time(), self._depth + 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.images_s += time.thread_time() - began_s

    def watch(self) -> None:
        """Wrap the functions that prepare images, decode screenshots and compute prefixes."""
        from dart.policy import modeling
        from dart.policy.codec import PromptCodec
        from dart.policy.small_policy import SmallPolicy
        from dart.policy.vlm import VisionLanguagePolicy
        from dart.policy.vlm_codec import VisionLanguageCodec
        from dart.policy.vlm_images import ImageEncoder

        for codec in (PromptCodec, VisionLanguageCodec):
            self._around(codec, "screen", lambda *_: ("decoded", 1), is_image_work=True)
        self._around(
            ImageEncoder,
            "_process",
            lambda pictures, tensors, *_: ("prepared", len(pictures) if tensors == "pt" else 0),
            is_image_work=True,
        )
        for policy in (SmallPolicy, VisionLanguagePolicy):
            self._around(policy, "score", lambda steps, *_: ("scored", len(steps)))
        self._around(small_model(modeling), "_first_pass", lambda ids, *_: ("prefixes", len(ids)))

    def _around(
        self, kind: Any, name: str, count: Callable[..., tuple[str, int]], *, is_image_work: bool = False
    ) -> None:
        inner = getattr(kind, name)

        def outer(this: Any, *given: Any, **named: Any) -> Any:
            counter, number = count(*given, *named.values())
            setattr(self, counter, getattr(self, counter) + number)
            if not is_image_work:
                return inner(this, *given, **named)
            with self.image_work():
                return inner(this, *given, **named)

        setattr(kind, name, outer)


def small_model(modeling: Any) -> Any:
    """Return the class of the small policy's model; commits before 6137ce81 have another name for it.

    modeling   `dart.policy.modeling` of the side that is measured
    """
    names = ("GuiPolicyModel", "GuiPolicyForImageTextToText")
    return next(getattr(modeling, name) for name in names if hasattr(modeling, name))


def measure(options: argparse.Namespace) -> Figures:
    """Measure the updates of one arm with one seed."""
    import torch

    torch.manual_seed(options.seed)
    counts = Counts()
    counts.watch()
    with tempfile.TemporaryDirectory(prefix="trainer-") as folder:
        if options.arm in ("small", "whole"):
            return measure_small(options, Path(folder), counts)
        return measure_vlm(options, Path(folder), counts)


def measure_vlm(options: argparse.Namespace, folder: Path, counts: Counts) -> Figures:
    """Measure a tiny vision-language policy, alone or with two ranks."""
    from benchmarks.noise_episodes import Episodes
    from dart.config.sections import ContextSettings
    from dart.testing.tiny_families import make_tiny_qwen
    from dart.training.learner import Learner, LearnerConfig, ModelPlacement

    policy = folder / "policy"
    make_tiny_qwen(policy)
    size = (160, 90) if options.quick else VLM_SIZE
    context = ContextSettings(screenshots=VLM_SCREENSHOTS)
    episodes = Episodes(policy, folder / "blobs", size, context, seed=options.seed)
    groups = [episodes.group(number, 3 if options.quick else 5) for number in range(2)]
    if options.arm == "ranks":
        return measure_ranks(policy, groups, episodes.blobs, folder)
    config = LearnerConfig(
        kl_beta=0.1,
        micro_batch_tokens=4096,
        placement=ModelPlacement(is_trained=True),
        seed=options.seed,
        **OPTIMIZER,
    )
    return measured(Learner(policy, config), [groups], episodes.blobs, counts)


def measure_ranks(policy: Path, groups: Sequence[Any], blobs: Any, folder: Path) -> Figures:
    """Measure two ranks as processes; only their processor time is seen from here."""
    import psutil

    from dart.config.config import load_config
    from dart.training.distributed_learner import DistributedLearner

    given = {"policy": f"'{policy}'", "kl_beta": 0.1, "micro_batch_tokens": 4096, "ranks": 2}
    config = load_config(None, [f"training.{key}={value}" for key, value in given.items()])

    def cpu_s(torchrun: int) -> float:
        ranks = psutil.Process(torchrun).children()
        return sum(sum(rank.cpu_times()[:2]) for rank in ranks)

    with closing(DistributedLearner(config, None, folder / "ranks.log", folder)) as learner:
        learner.update(groups, blobs)
        began_s = cpu_s(learner._torchrun.pid)
        report: Any = learner.update(groups, blobs)
        spent_s = cpu_s(learner._torchrun.pid) - began_s
    return {"cpu_s": spent_s, "loss": report.loss, "grad_norm": report.grad_norm}


def measure_small(options: argparse.Namespace, folder: Path, counts: Counts) -> Figures:
    """Measure the small policy with the settings of the laptop job."""
    from dart.store.blobs import FolderBlobs
    from dart.training.learner import Learner, LearnerConfig

    if options.run is None:
        blobs = FolderBlobs(folder / "blobs")
        batches = [made_up_batch(options.policy, blobs, options.seed, 2 if options.quick else 16)]
    else:
        blobs = FolderBlobs(options.run / "blobs")
        batches = batches_of(options.run)
    changed = {"minibatches": 1} if options.arm == "whole" else {}
    learner = Learner(options.policy, LearnerConfig(**{**LAPTOP, **changed}, seed=options.seed))
    return measured(learner, batches, blobs, counts)


def measured(learner: Any, batches: Sequence[Sequence[Any]], blobs: Any, counts: Counts) -> Figures:
    """Make an update of each batch, after one of the first batch, and return the means."""
    learner.update(batches[0], blobs)
    counts.clear()
    began_s = time.process_time()
    reports = [learner.update(groups, blobs) for groups in batches]
    spent_s = time.process_time() - began_s
    found = {"cpu_s": spent_s, **{name: getattr(counts, name) for name in COUNTED[1:]}}
    found |= {"distinct": sum(report.prefixes for report in reports)}
    found |= {"samples": sum(report.samples for report in reports)}
    per_update = {name: value / len(reports) for name, value in found.items()}
    return {**per_update, "loss": reports[0].loss, "grad_norm": reports[0].grad_norm}


def made_up_batch(policy: Path, blobs: Any, seed: int, groups: int) -> list[Any]:
    """Make groups of eight rollouts of one to three steps that see the same first screen, then their own."""
    from PIL import Image

    from benchmarks.noise_episodes import TASK, trajectory_of
    from dart.core.types import GenerateRequest, Group
    from dart.policy.load import load_codec
    from dart.testing.trajectories import step_at

    draw = np.random.default_rng(seed)
    codec = load_codec(policy)

    def screen() -> str:
        png = BytesIO()
        noise = draw.integers(0, 256, (21, 16, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((160, 210), Image.Resampling.NEAREST).save(png, "PNG")
        return str(blobs.put(png.getvalue()))

    def step(sha256: str, history: tuple[str, ...]) -> Any:
        asked = GenerateRequest(
            screenshot_sha256=sha256, instruction="Click the button.", history=history, temperature=1.0
        )
        prompt = codec.prompt(asked, [codec.screen(sha256, blobs.read(sha256))])
        tokens = (*draw.integers(300, 320, int(draw.integers(3, 8))).tolist(), codec.end_ids[0])
        behaviour = tuple(-draw.random(len(tokens)))
        return replace(
            step_at(0),
            screenshot_sha256=sha256,
            prompt_ids=prompt.token_ids,
            token_ids=tokens,
            logprobs=behaviour,
            entropies=tuple(-one for one in behaviour),
        )

    def group(number: int) -> Any:
        first = screen()
        played = []
        for rollout in range(8):
            shown = [first, *(screen() for _ in range(int(draw.integers(0, 3))))]
            steps = tuple(step(sha256, ("wait()",) * place) for place, sha256 in enumerate(shown))
            played.append(trajectory_of(8 * number + rollout, number, float(rollout % 2), steps))
        return Group(group_id=number, task_id=TASK, seed=number, trajectories=tuple(played))

    return [group(number) for number in range(groups)]


def batches_of(run: Path, most: int = 3) -> list[Any]:
    """Read the first trained batches of a run."""
    from dart.core.record_address import parse_record_address
    from dart.store.reader import StoreReader

    with closing(sqlite3.connect(f"file:{run}/store.db?mode=ro", uri=True)) as record:
        rows = record.execute(
            "SELECT batch_id, group_id FROM groups WHERE batch_id IN "
            "(SELECT batch_id FROM batches WHERE version IS NOT NULL ORDER BY batch_id LIMIT ?) "
            "ORDER BY batch_id, group_id",
            (most,),
        ).fetchall()
    numbers: dict[int, list[int]] = {}
    for batch, group in rows:
        numbers.setdefault(batch, []).append(group)
    with StoreReader(parse_record_address(str(run / "store.db"))) as reader:
        return [list(reader.groups_to_trajectories(groups)) for groups in numbers.values()]


# ---- both sides ----


@contextmanager
def unpacked(commit: str) -> Iterator[Path]:
    """Unpack the packages and the base policy of a commit of this repository into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="trainer-before-") as folder:
        made = subprocess.run(
            ["git", "archive", commit, *UNPACKED], cwd=REPOSITORY, capture_output=True, check=False
        )
        if made.returncode:
            raise SystemExit(
                f"git archive {commit} failed: {made.stderr.decode().strip()}; name a commit of this "
                "repository with --against"
            )
        with tarfile.open(fileobj=BytesIO(made.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def ask(place: Path, arm: str, seed: int, options: argparse.Namespace) -> Figures:
    """Measure an arm in a process of its own, with `dart` from `place`."""
    arguments = ["--arm", arm, "--seed", str(seed)]
    for name in ("run", "policy"):
        if getattr(options, name) is not None:
            arguments += [f"--{name}", str(getattr(options, name).resolve())]
    if options.quick:
        arguments.append("--quick")
    with tempfile.TemporaryDirectory(prefix="trainer-cwd-") as elsewhere:
        made = subprocess.run(
            [sys.executable, "-m", "benchmarks.trainer_compare", *arguments],
            cwd=elsewhere,
            env={**os.environ, "PYTHONPATH": f"{place}:{REPOSITORY}", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    if made.returncode:
        raise SystemExit(f"{arm} with {place} failed:\n{made.stderr[-2000:]}")
    found: Figures = json.loads(made.stdout.splitlines()[-1])
    return found


def compare(options: argparse.Namespace) -> list[Figures]:
    """Measure every arm with every seed on both sides, in turns."""
    found = []
    with unpacked(options.against) as before:
        options.policy = options.policy or before / BASE_POLICY
        for seed in range(options.seeds):
            for arm in options.arms:
                sides = [("before", before), ("now", REPOSITORY)]
                row: Figures = {"arm": arm, "seed": seed}
                for side, place in sides if seed % 2 == 0 else reversed(sides):
                    row[side] = ask(place, arm, seed, options)
                found.append(row)
                print(f"{arm}, seed {seed}: {ratios(row)}", flush=True)
    return found


def ratios(row: Figures) -> Figures:
    """Return before / now of what is counted, and how far the losses are apart."""
    before, now = row["before"], row["now"]
    found = {name: round(before[name] / now[name], 3) for name in COUNTED if now.get(name)}
    return found | {f"{name}_apart": abs(before[name] - now[name]) for name in ("loss", "grad_norm")}


def summary(rows: Sequence[Figures]) -> Figures:
    """Return for each arm the median, least and most of each ratio, and the medians of both sides."""
    found: Figures = {}
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]
        every = [ratios(row) for row in mine]
        found[arm] = {
            name: {
                "ratio": statistics.median(one[name] for one in every),
                "least": min(one[name] for one in every),
                "most": max(one[name] for one in every),
                **{side: statistics.median(row[side][name] for row in mine) for side in ("before", "now")},
            }
            for name in every[0]
            if name in COUNTED
        }
        found[arm]["apart"] = {
            name: max(one[f"{name}_apart"] for one in every) for name in ("loss", "grad_norm")
        }
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", default="HEAD", metavar="COMMIT", help="the trainer as it was")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["vlm", "small", "whole"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--run", type=Path, help="run directory of the laptop job: its batches are trained")
    parser.add_argument("--policy", type=Path, help="base policy of --run, if it is not that of COMMIT")
    parser.add_argument("--quick", action="store_true", help="one seed, small batches")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, write."""
    options = parse()
    if options.arm is not None:
        print(json.dumps(measure(options)))
        return 0
    if options.quick:
        options.seeds = 1
    rows = compare(options)
    found = summary(rows)
    table = Table("policy", "what", "before", "now", "before / now", title="one update")
    for arm, figures in found.items():
        for name, one in figures.items():
            if name != "apart":
                spread = f"{one['ratio']:.2f} ({one['least']:.2f} to {one['most']:.2f})"
                table.add_row(arm, name, f"{one['before']:.4g}", f"{one['now']:.4g}", spread)
    Console().print(table)
    from benchmarks.actors import machine

    options.out.parent.mkdir(parents=True, exist_ok=True)
    written = {"machine": machine(), "against": options.against, "summary": found, "rows": rows}
    options.out.write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
