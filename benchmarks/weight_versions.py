"""What a new version costs the trainer, the disk and an engine, in each way to publish it.

    python -m benchmarks.weight_versions                # 60 M parameters: 240 MB in float32, some minutes
    python -m benchmarks.weight_versions --quick        # the tiny layout, one round, to see that it works

Random weights in the layout of Qwen2.5-VL; real updates on screenshots of noise, real checkpoints, the
transformers engine. Ways are measured in turns, round by round.

ways           float32: every weight, as the trainer has it; bfloat16: as vLLM reads it, the trainer's beside
               it; merged: LoRA, the adapter in the weights; adapter: LoRA, the adapter alone
written        bytes of a version, the optimizer's state included
read           bytes of it that an engine reads
stands still   the trainer: until it may begin its next update; waiting: it writes and hashes the version;
               copying: it copies what is written, and a thread writes it
beside         seconds of writing beside the next update
update         seconds of an update beside which a version is written, over one that is alone
pause          the engine: from its last answer of the old version until it may answer with the new one;
               loading: it reads, checks and proves the version in between; swapping: that is done beside its
               answers
prepared       seconds of reading, checking and proving beside the answers
gap            longest wait between two answers meanwhile, over the mean answer

Prints a table, ratios to float32, and writes OUT as JSON.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig, AutoModelForImageTextToText, Qwen2_5_VLConfig

from benchmarks.actors import machine
from benchmarks.noise_episodes import Episodes
from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest
from dart.inference.transformers_engine import TransformersEngine
from dart.policy.placement import ModelPlacement
from dart.policy.prompt_spec import PromptSpec
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import TRAINERS_PARTS, files_of
from dart.testing.tiny_families import make_tiny_qwen
from dart.training.learner import Learner, LearnerConfig

OUT = Path(__file__).parent / "out" / "weight_versions.json"

SIZE = (320, 240)
STEPS = 1
"""Of each of the two rollouts of an update."""

ANSWER_TOKENS = 8

TEXT = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 20_000,
}
"""Of the language model: 60 million parameters with its two embeddings."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to publish a version."""

    name: str
    lora_rank: int = 0
    publishes_adapter: bool = False
    published_dtype: str = "float32"


WAYS = (
    Way("float32"),
    Way("bfloat16", published_dtype="bfloat16"),
    Way("merged", lora_rank=16, published_dtype="bfloat16"),
    Way("adapter", lora_rank=16, publishes_adapter=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one way cost in one round."""

    written_bytes: int
    read_bytes: int
    waiting_s: float
    copying_s: float
    beside_s: float
    update_beside_over_alone: float
    loading_pause_s: float
    swapping_pause_s: float
    prepared_s: float
    gap_over_answer: float


def make_enlarged(folder: Path) -> None:
    """The tiny layout with a larger language model."""
    make_tiny_qwen(folder)
    described = AutoConfig.from_pretrained(folder, trust_remote_code=False).to_dict()
    half = TEXT["hidden_size"] // TEXT["num_attention_heads"] // 2
    turned = half * 3 // 8
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [half - 2 * turned, turned, turned]}
    described["text_config"] |= {**TEXT, "rope_parameters": rope}
    del described["text_config"]["layer_types"]  # one for each layer: made anew
    described["vision_config"]["out_hidden_size"] = TEXT["hidden_size"]
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(Qwen2_5_VLConfig.from_dict(described))
    model.save_pretrained(folder)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result of work, and how long it took in seconds."""
    began_s = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began_s


class Bench:
    """A policy, its learner and an engine, for one way."""

    def __init__(self, way: Way, policy: Path, folder: Path, threads: int) -> None:
        self._folder = folder
        self._policy = policy
        self._spec = PromptSpec(context=ContextSettings(screenshots=2, answer_tokens=ANSWER_TOKENS))
        self._way = way
        episodes = Episodes(policy, folder / "blobs", SIZE, self._spec.context)
        self._blobs = FolderBlobs(folder / "blobs")
        self._groups = [episodes.group(0, STEPS)]
        placement = ModelPlacement(
            device="cpu",
            is_trained=True,
            lora_rank=way.lora_rank,
            publishes_adapter=way.publishes_adapter,
        )
        config = LearnerConfig(
            kl_beta=0.0, placement=placement, published_dtype=way.published_dtype, threads=threads
        )
        self._learner = Learner(policy, config)
        first = self._groups[0].trajectories[0].steps[0]
        self._request = GenerateRequest(
            screenshot_sha256=first.screenshot_sha256, instruction="Save.", history=(), temperature=1.0
        )

    def measure(self) -> Figures:
        """One round: the trainer writes a version twice, waiting and beside an update; an engine loads it."""
        self._update()
        _, alone_s = timed(self._update)
        _, waiting_s = timed(lambda: self._learner.save(self._folder / "waiting"))
        write, copying_s = timed(self._learner.copy)
        written: list[tuple[Path, float]] = []
        writer = threading.Thread(
            target=lambda: written.append(timed(lambda: write(self._folder / "copied")))
        )
        writer.start()
        _, beside_s = timed(self._update)
        writer.join()
        [(folder, writing_s)] = written
        version = int(folder.name[1:])
        sizes = {path.relative_to(folder): path.stat().st_size for path in files_of(folder)}
        pause_s = self._loading_pause_s(folder, version)
        swap_s, prepared_s, gap = self._swapping(folder, version)
        return Figures(
            written_bytes=sum(sizes.values()),
            read_bytes=sum(size for name, size in sizes.items() if name.parts[0] not in TRAINERS_PARTS),
            waiting_s=waiting_s,
            copying_s=copying_s,
            beside_s=writing_s,
            update_beside_over_alone=beside_s / alone_s,
            loading_pause_s=pause_s,
            swapping_pause_s=swap_s,
            prepared_s=prepared_s,
            gap_over_answer=gap,
        )

    def _update(self) -> None:
        self._learner.update(self._groups, self._blobs)

    def _engine(self) -> TransformersEngine:
        return TransformersEngine(
            self._policy,
            0,
            screenshots=self._blobs,
            prompt_spec=self._spec,
            takes_adapters=self._way.publishes_adapter,
        )

    def _loading_pause_s(self, folder: Path, version: int) -> float:
        """As it was: the engine answers nothing while it loads a version and proves it."""
        engine = self._engine()
        engine.generate([self._request])

        def load() -> None:
            engine.load(folder, version)
            engine.prove(self._request)

        return timed(load)[1]

    def _swapping(self, folder: Path, version: int) -> tuple[float, float, float]:
        """The pause, the seconds of preparing, and the longest answer meanwhile over the mean one before."""
        engine = self._engine()
        alone = [timed(lambda: engine.generate([self._request]))[1] for _ in range(5)]
        found: list[Any] = []
        preparing = threading.Thread(
            target=lambda: found.append(timed(lambda: engine.prepare(folder, version, self._request)))
        )
        preparing.start()
        meanwhile = [0.0]
        while preparing.is_alive():
            meanwhile.append(timed(lambda: engine.generate([self._request]))[1])
        [(swap, prepared_s)] = found
        _, swap_s = timed(swap)
        assert engine.prove(self._request) == version
        return swap_s, prepared_s, max(meanwhile) / statistics.mean(alone[1:])


def medians(rounds: Sequence[Figures]) -> dict[str, float]:
    """The median of each figure."""
    columns = [asdict(one) for one in rounds]
    return {name: statistics.median(column[name] for column in columns) for name in columns[0]}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the tiny layout, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of the trainer")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


def shown(found: dict[str, dict[str, float]]) -> Table:
    """All ways side by side, each with its ratio to the first."""
    table = Table(title="a new version, medians (to float32)")
    table.add_column("")
    first = found[WAYS[0].name]
    for name in found:
        table.add_column(name, justify="right")
    for figure in first:
        row = [figure]
        for values in found.values():
            ratio = f" ({values[figure] / first[figure]:.2f}x)" if first[figure] else ""
            row.append(f"{values[figure]:,.4g}{ratio}")
        table.add_row(*row)
    return table


def main() -> int:
    """Measure, print, write."""
    options = parse()
    rounds: dict[str, list[Figures]] = {way.name: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="versions-") as scratch:
        policy = Path(scratch) / "policy"
        (make_tiny_qwen if options.quick else make_enlarged)(policy)
        for number in range(1 if options.quick else options.rounds):
            for way in WAYS:
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    rounds[way.name].append(Bench(way, policy, Path(folder), options.threads).measure())
                print(f"round {number}, {way.name}", file=sys.stderr, flush=True)
        weights = sum(path.stat().st_size for path in policy.glob("*.safetensors"))
    found = {name: medians(measured) for name, measured in rounds.items()}
    Console(width=160).print(shown(found))
    print(f"weights of the policy in float32: {weights / 1e6:,.0f} MB")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    every = {name: [asdict(one) for one in measured] for name, measured in rounds.items()}
    whole = {"machine": machine(), "weights_bytes": weights, "medians": found, "rounds": every}
    options.out.write_text(json.dumps(whole, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
