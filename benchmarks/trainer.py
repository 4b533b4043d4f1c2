"""What an update of a vision-language policy costs on this machine, beside what its matrix products could do.

    python -m benchmarks.trainer                                   # the tiny layout: seconds, on a laptop
    python -m benchmarks.trainer --layout 3b --precision bfloat16 --checkpointing
    python -m benchmarks.trainer --layout 7b --precision bfloat16 --checkpointing --lora 64
    torchrun --nproc-per-node=4 -m benchmarks.trainer --layout 7b --precision bfloat16 --checkpointing

Random weights in the layout of Qwen2.5-VL and full HD screenshots; no checkpoint is needed, no engine, no
environment. Two groups of two rollouts, the steps of each shown the screenshots before them, as in a run. The
first update is not counted. Under torchrun every process is a rank of one trainer, as with `training.ranks`;
the figures are then those of rank 0, and `tokens` are those of all ranks.

seconds        of an update: median, least and most
cpu s          processor time of an update, and the part of it for decoding and preparing screenshots
prepared       screenshots that went through the image processor in an update
tokens/s       of prompts, screenshots and answers
peak GiB       allocated on the GPU, or of this process where there is none
device GiB     of the GPU that all processes have after the updates, libraries and reserves included
estimated GiB  what `dartrl up --dry-run` says beforehand of this trainer on its GPU
copied s       in which a version is copied: the trainer stands still
written s      in which the copy is written and hashed, beside the next update; and the bytes
with --parts   seconds of one more update: decoding, image processor, vision tower, language model (the last
               two forward), backward with what is computed again, optimizer
TFLOP/s        of the model's matrix products, from its shapes: 6 for each weight and token (4 where the
               weights stand still), attention and the vision tower included, recomputed activations and
               the pass of a reference policy not
share          of what one large matrix product reaches on the same device, measured before

Prints a table and writes OUT as JSON.
"""

import argparse
import functools
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.actors import machine
from benchmarks.noise_episodes import ANSWER_TOKENS, Episodes
from benchmarks.qwen_layouts import LAYOUTS, make_layout
from benchmarks.trainer_compare import Counts
from dart.config.config import Config
from dart.config.gpus import GpuAssignment
from dart.config.sections import ContextSettings, LoraSettings, RolloutSettings, TrainingSettings
from dart.core.types import Group, Step
from dart.policy.placement import DTYPES, device_of
from dart.preflight.gpu_memory import counted, on_gpus
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import files_of, write_checkpoint
from dart.training.distributed import ProcessGroup, join_ranks
from dart.training.learner import Learner, LearnerConfig
from dart.training.learner_factory import learner_config
from dart.training.rank_checkpoints import write_together
from dart.training.rank_group import RankGroup

OUT = Path(__file__).parent / "out" / "trainer.json"

Figures = dict[str, Any]


def ceiling_tflops(device: torch.device, precision: str) -> float:
    """What one large matrix product reaches, the best of several."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    size = 8192 if device.type == "cuda" else 2048
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    times = []
    for _ in range(8):
        synchronize(device)
        began_s = time.perf_counter()
        left @ right
        synchronize(device)
        times.append(time.perf_counter() - began_s)
    return 2 * size**3 / min(times) / 1e12


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def flops_of(policy: Any, steps: Sequence[Step], *, is_adapter: bool) -> float:
    """Of the matrix products of one pass forward and backward over these steps."""
    config = policy.module.config
    text, vision = config.text_config, config.vision_config
    each = 4 if is_adapter else 6
    tower = sum(weight.numel() for name, weight in policy.module.named_parameters() if ".visual." in name)
    head = text.vocab_size * text.hidden_size
    body = sum(weight.numel() for weight in policy.module.parameters()) - tower - 2 * head
    total = 0.0
    for step in steps:
        tokens = policy.token_count(step)
        patches = sum(image.tokens for image in step.images) * vision.spatial_merge_size**2
        attention = 2 * text.num_hidden_layers * text.hidden_size * tokens / 2  # causal: half of the square
        total += each * (body + attention) * tokens + each * head * len(step.token_ids)
        total += (2 if is_adapter else 6) * tower * patches
    return total


def config_of(options: argparse.Namespace, policy: Path, ranks: int) -> Config:
    """The configuration of a run that trains so."""
    return Config(
        rollout=RolloutSettings(engine="vllm"),
        context=ContextSettings(screenshots=options.screenshots, answer_tokens=ANSWER_TOKENS),
        training=TrainingSettings(
            policy=policy,
            kl_beta=options.kl_beta,
            micro_batch=options.samples,
            micro_batch_tokens=options.pass_tokens,
            precision=options.precision,
            gradient_checkpointing=options.checkpointing,
            lora=LoraSettings(rank=options.lora),
            threads=torch.get_num_threads(),
            ranks=ranks,
        ),
    )


def measure(options: argparse.Namespace, folder: Path, device: torch.device, ranks: RankGroup) -> Figures:
    """All updates, and one version."""
    policy = folder / "policy"
    if ranks.index == 0:
        make_layout(options.layout, policy)
    ranks.gather([])  # the others wait for the policy
    ceiling = ceiling_tflops(device, options.precision)
    config = config_of(options, policy, ranks.count)
    episodes = Episodes(
        policy, folder / f"blobs-{ranks.index}", (options.width, options.height), config.context
    )
    groups = [episodes.group(number, options.steps) for number in range(2)]
    counts = Counts()
    counts.watch()
    forget_peak(device)
    learner = Learner(policy, on_device(learner_config(config), device), ranks=ranks)
    steps = [step for group in groups for one in group.trajectories for step in one.steps]
    say(ranks, f"the policy is loaded; {len(steps)} steps in an update")
    learner.update(groups, episodes.blobs)
    counts.clear()
    seconds: list[float] = []
    began_cpu_s = time.process_time()
    for number in range(options.updates):
        say(ranks, f"update {number + 1} of {options.updates}")
        began_s = time.perf_counter()
        learner.update(groups, episodes.blobs)
        synchronize(device)
        seconds.append(time.perf_counter() - began_s)
    found = {
        "update_cpu_s": time.process_time() - began_cpu_s,
        "images_cpu_s": counts.images_s,
        "images_prepared": counts.prepared,
        "images_decoded": counts.decoded,
    }
    each = {name: value / options.updates for name, value in found.items()}
    return {
        **figures(options, device, ceiling, learner, steps, seconds),
        **each,
        "estimated_gib": estimated_bytes(config) / 2**30,
        **version_figures(learner, ranks, folder / "versions"),
        **(seconds_of_parts(learner, groups, episodes.blobs, device) if options.parts else {}),
    }


def seconds_of_parts(
    learner: Learner, groups: Sequence[Group], blobs: FolderBlobs, device: torch.device
) -> Figures:
    """Seconds of the parts of one more update; the device is waited for before and after each of them."""
    found: dict[str, float] = {}
    policy = learner._policy
    with ExitStack() as stack:
        for name, owner, method in (
            ("decode_s", policy.codec, "screen"),
            ("images_s", policy.codec.image_encoder, "inputs"),
            ("vision_s", part_of(policy.module, "visual"), "forward"),
            ("language_s", part_of(policy.module, "language_model"), "forward"),
            ("backward_s", torch.Tensor, "backward"),
            ("optimizer_s", learner, "_step"),
        ):
            stack.enter_context(clocked(owner, method, functools.partial(add, found, name), device))
        learner.update(groups, blobs)
    return found


def part_of(module: torch.nn.Module, name: str) -> torch.nn.Module:
    """The first module of this name."""
    return next(one for path, one in module.named_modules() if path.rpartition(".")[2] == name)


def add(found: dict[str, float], name: str, seconds: float) -> None:
    found[name] = found.get(name, 0.0) + seconds


@contextmanager
def clocked(owner: Any, method: str, took: Callable[[float], None], device: torch.device) -> Iterator[None]:
    """Within the block, tell how long each call of a method took."""
    inner = getattr(owner, method)

    def timed(*given: Any, **named: Any) -> Any:
        synchronize(device)
        began_s = time.perf_counter()
        try:
            return inner(*given, **named)
        finally:
            synchronize(device)
            took(time.perf_counter() - began_s)

    setattr(owner, method, timed)
    try:
        yield
    finally:
        setattr(owner, method, inner)


def say(ranks: RankGroup, text: str) -> None:
    """Print the progress of the measurement, with the time."""
    if ranks.index == 0:
        print(f"{time.strftime('%X')} {text}", file=sys.stderr, flush=True)


def on_device(config: LearnerConfig, device: torch.device) -> LearnerConfig:
    """The same on the GPU of this rank."""
    return replace(config, placement=replace(config.placement, device=str(device)))


def estimated_bytes(config: Config) -> int:
    """What a dry run says of the memory of one rank on its GPU."""
    gpus = tuple(str(number) for number in range(config.training.ranks))
    assignment = GpuAssignment(engines=(), trainer=gpus)
    return on_gpus(config, *counted(config), assignment, gpu_bytes=None)[gpus[0]][0].total_bytes


def version_figures(learner: Learner, ranks: RankGroup, parent: Path) -> Figures:
    """Copy the current version and write the copy, as after each update of a run."""
    parent.mkdir(exist_ok=True)
    began_s = time.perf_counter()
    state, files = learner.state(), learner.copy_files()
    copied_s = time.perf_counter()
    if isinstance(ranks, ProcessGroup):
        folder = write_together(ranks, parent, state, files)
    else:
        folder = write_checkpoint(parent, state, files.write)
    written_s = time.perf_counter()
    sizes = [] if folder is None else [path.stat().st_size for path in files_of(folder)]
    return {
        "version_bytes": sum(sizes),
        "copied_s": copied_s - began_s,
        "written_s": written_s - copied_s,
    }


def figures(
    options: argparse.Namespace,
    device: torch.device,
    ceiling: float,
    learner: Learner,
    steps: Sequence[Step],
    seconds: Sequence[float],
) -> Figures:
    """What was found."""
    policy = learner._policy
    tokens = sum(policy.token_count(step) for step in steps)
    median_s = statistics.median(seconds)
    reached = flops_of(policy, steps, is_adapter=options.lora > 0) / median_s / 1e12
    return {
        "layout": options.layout,
        "parameters": sum(weight.numel() for weight in policy.module.parameters()),
        "precision": options.precision,
        "lora_rank": options.lora,
        "gradient_checkpointing": options.checkpointing,
        "ranks": learner._ranks.count,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "processor",
        "steps": len(steps),
        "tokens": tokens,
        "longest_step_tokens": max(policy.token_count(step) for step in steps),
        "update_s_median": median_s,
        "update_s_least": min(seconds),
        "update_s_most": max(seconds),
        "tokens_per_s": tokens / median_s,
        "peak_gib": peak_bytes(device) / 2**30,
        "device_gib": device_bytes(device) / 2**30,
        "model_tflops": reached,
        "product_tflops": ceiling,
        "share": reached / ceiling / learner._ranks.count,
    }


def forget_peak(device: torch.device) -> None:
    """Free what making the layout and the matrix product left on the GPU, and count its peak anew."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Most memory that was held at a time."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def device_bytes(device: torch.device) -> int:
    """Memory of the GPU that all processes have; 0 without one."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layout", choices=LAYOUTS, default="tiny")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--lora", type=int, default=0, metavar="RANK", help="train an adapter; 0: all weights"
    )
    parser.add_argument("--checkpointing", action="store_true", help="compute activations twice")
    parser.add_argument(
        "--kl-beta", type=float, default=0.0, help="above 0: the reference policy passes over all steps, too"
    )
    parser.add_argument("--steps", type=int, default=4, help="of each of the four rollouts")
    parser.add_argument("--screenshots", type=int, default=2, help="in a prompt, at most")
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--pass-tokens", type=int, default=16384, help="at most in one pass")
    parser.add_argument("--samples", type=int, default=32, help="at most in one pass")
    parser.add_argument("--updates", type=int, default=3, help="that are measured")
    parser.add_argument("--parts", action="store_true", help="the seconds of its parts, of one more update")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, write."""
    options = parse()
    device, ranks = device_of("auto"), RankGroup()
    if "LOCAL_RANK" in os.environ:
        device = join_ranks("auto")
        ranks = ProcessGroup(device, compute=DTYPES[options.precision])
    with tempfile.TemporaryDirectory(prefix="trainer-") as own:
        folder = Path(ranks.gather([own])[0])
        found = measure(options, folder, device, ranks)
        ranks.gather([])  # all ranks have read what is in the folder of rank 0
    if ranks.index > 0:
        return 0
    table = Table(show_header=False, title="an update of a vision-language policy")
    for name, value in found.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    Console().print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
