"""What an update of a vision-language policy costs on this machine, beside what its matrix products could do.

    python -m benchmarks.trainer                                   # the tiny layout: seconds, on a laptop
    python -m benchmarks.trainer --layout 3b --precision bfloat16 --checkpointing
    python -m benchmarks.trainer --layout 7b --precision bfloat16 --checkpointing --lora 64

Random weights in the layout of Qwen2.5-VL and full HD screenshots; no checkpoint is needed, no engine, no
environment. Two groups of two rollouts, the steps of each shown the screenshots before them, as in a run. The
first update is not counted.

seconds        of an update: median, least and most
cpu s          processor time of an update, and the part of it for decoding and preparing screenshots
prepared       screenshots that went through the image processor in an update
tokens/s       of prompts, screenshots and answers
peak GiB       of the GPU, or of this process where there is none
TFLOP/s        of the model's matrix products, from its shapes: 6 for each weight and token (4 where the
               weights stand still), attention and the vision tower included, recomputed activations not
share          of what one large matrix product reaches on the same device, measured before

Prints a table and writes OUT as JSON.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig, AutoModelForImageTextToText, Qwen2_5_VLConfig

from benchmarks.actors import machine
from benchmarks.trainer_compare import Counts
from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest, Group, Outcome, PastStep, Step, Trajectory
from dart.policy.load import ModelPlacement, device_of
from dart.policy.prompt_spec import PromptSpec
from dart.policy.vlm_codec import load_vlm_codec
from dart.store.blobs import FolderBlobs
from dart.testing.tiny_families import make_tiny_qwen
from dart.training.learner import Learner, LearnerConfig

OUT = Path(__file__).parent / "out" / "trainer.json"

ANSWER_TOKENS = 120
"""Of a thought and an action; UI-TARS's are about as long."""

VOCABULARY = 151_936

VISION = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
"""Of every published Qwen2.5-VL (its config.json)."""

SHAPE = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)

LAYOUTS = {
    "tiny": (),
    "0.5b": (896, 4864, 24, 14, 2),
    "3b": (2048, 11008, 36, 16, 2),
    "7b": (3584, 18944, 28, 28, 4),
}
"""Of the language model: Qwen2.5-0.5B, and Qwen2.5-VL in its two smaller sizes."""

Figures = dict[str, Any]


def make_layout(name: str, folder: Path) -> None:
    """A checkpoint of this layout with random weights, in bfloat16 where it is large."""
    make_tiny_qwen(folder)
    if name == "tiny":
        return
    described = AutoConfig.from_pretrained(folder, trust_remote_code=False).to_dict()
    text = dict(zip(SHAPE, LAYOUTS[name], strict=True))
    half = text["hidden_size"] // text["num_attention_heads"] // 2
    turned = half * 3 // 8
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [half - 2 * turned, turned, turned]}
    more = {"vocab_size": VOCABULARY, "max_position_embeddings": 32768, "rope_parameters": rope}
    described["text_config"] |= {**text, **more}
    del described["text_config"]["layer_types"]  # one for each layer: made anew
    described["vision_config"] |= {**VISION, "out_hidden_size": text["hidden_size"]}
    config = Qwen2_5_VLConfig.from_dict(described)
    with device_of("auto"):
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)


# ---- what is trained on ----


class Episodes:
    """Rollouts that nobody sampled: answers of random tokens to screenshots of noise."""

    def __init__(
        self, policy: Path, folder: Path, size: tuple[int, int], screenshots: int, seed: int = 0
    ) -> None:
        self.blobs = FolderBlobs(folder)
        self._codec = load_vlm_codec(policy, PromptSpec(context=ContextSettings(screenshots=screenshots)))
        self._size = size
        self._draw = np.random.default_rng(seed)

    def group(self, number: int, steps: int) -> Group:
        """One rollout that succeeded, and one that did not."""
        trajectories = tuple(self._trajectory(number, reward, steps) for reward in (1.0, 0.0))
        return Group(group_id=number, task_id="made/noise", seed=number, trajectories=trajectories)

    def _trajectory(self, number: int, reward: float, steps: int) -> Trajectory:
        made: list[Step] = []
        past: list[PastStep] = []
        for _ in range(steps):
            made.append(self._step(tuple(past)))
            sha256 = made[-1].screenshot_sha256
            past.append(PastStep(screenshot_sha256=sha256, token_ids=made[-1].token_ids))
        return Trajectory(
            rollout_id=2 * number + int(reward),
            group_id=number,
            task_id="made/noise",
            seed=number,
            environment="nobody",
            instruction="",
            outcome=Outcome.FINISHED,
            reward=reward,
            steps=tuple(made),
            started_unix_s=0.0,
            duration_s=0.0,
        )

    def _step(self, past: tuple[PastStep, ...]) -> Step:
        width, height = self._size
        noise = self._draw.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        png = BytesIO()
        Image.fromarray(noise).resize(self._size).save(png, "PNG")
        sha256 = self.blobs.put(png.getvalue())
        request = GenerateRequest(
            screenshot_sha256=sha256,
            instruction="Write the name into the field and save the document.",
            history=("wait()",) * len(past),
            temperature=1.0,
            past=past,
        )
        shown = self._codec.shown(request)
        prompt = self._codec.prompt(request, [self._codec.screen(one, self.blobs.read(one)) for one in shown])
        answer = self._draw.integers(10, 256, ANSWER_TOKENS - 1).tolist()
        return Step(
            screenshot_sha256=sha256,
            prompt_ids=prompt.token_ids,
            token_ids=(*answer, self._codec.end_ids[0]),
            logprobs=(),
            entropies=(),
            answer="",
            policy_version=0,
            observe_ms=0.0,
            generate_ms=0.0,
            act_ms=0.0,
            images=prompt.images,
        )


# ---- measuring ----


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
    """Wait until the device has done what it was told."""
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


def measure(options: argparse.Namespace, folder: Path) -> Figures:
    """All updates."""
    device = device_of("auto")
    ceiling = ceiling_tflops(device, options.precision)
    policy = folder / "policy"
    make_layout(options.layout, policy)
    episodes = Episodes(policy, folder / "blobs", (options.width, options.height), options.screenshots)
    groups = [episodes.group(number, options.steps) for number in range(2)]
    placement = ModelPlacement(
        is_trained=True,
        precision=options.precision,
        gradient_checkpointing=options.checkpointing,
        lora_rank=options.lora,
    )
    config = LearnerConfig(
        kl_beta=0.0,
        micro_batch_tokens=options.pass_tokens,
        placement=placement,
        threads=torch.get_num_threads(),
    )
    counts = Counts()
    counts.watch()
    learner = Learner(policy, config)
    steps = [step for group in groups for one in group.trajectories for step in one.steps]
    learner.update(groups, episodes.blobs)
    counts.clear()
    seconds = []
    began_cpu_s = time.process_time()
    for _ in range(options.updates):
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
    return {**figures(options, device, ceiling, learner, steps, seconds), **each}


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
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "processor",
        "steps": len(steps),
        "tokens": tokens,
        "longest_step_tokens": max(policy.token_count(step) for step in steps),
        "update_s_median": median_s,
        "update_s_least": min(seconds),
        "update_s_most": max(seconds),
        "tokens_per_s": tokens / median_s,
        "peak_gib": peak_bytes(device) / 2**30,
        "model_tflops": reached,
        "product_tflops": ceiling,
        "share": reached / ceiling,
    }


def peak_bytes(device: torch.device) -> int:
    """Most memory that was held at a time."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


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
    parser.add_argument("--steps", type=int, default=4, help="of each of the four rollouts")
    parser.add_argument("--screenshots", type=int, default=2, help="in a prompt, at most")
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--pass-tokens", type=int, default=16384, help="at most in one pass")
    parser.add_argument("--updates", type=int, default=3, help="that are measured")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, write."""
    options = parse()
    with tempfile.TemporaryDirectory(prefix="trainer-") as folder:
        found = measure(options, Path(folder))
    table = Table(show_header=False, title="an update of a vision-language policy")
    for name, value in found.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    Console().print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
