"""What tests and measurements of the vLLM engine need: tiny checkpoints, screenshots, an engine, a tree."""

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from dart.config.config import Config
from dart.core.types import GenerateRequest, Generation, PastStep
from dart.inference.vllm_engine import VllmEngine
from dart.policy.adapter_files import (
    ADAPTER_CONFIG,
    ADAPTER_FOLDER,
    BasePolicy,
    fingerprint,
    write_base,
)
from dart.policy.load import load
from dart.policy.lora import ADAPTER_FILE, LAYERS, WRAPPED
from dart.policy.prompt_spec import prompt_spec_of
from dart.policy.protocols import Screen
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import CheckpointState, write_checkpoint
from dart.store.store import Store
from dart.testing.tiny_families import make_tiny_qwen
from supervision.child_spec import Backoff, ChildSpec
from tests.sampled import recorded

WIDTH_PX, HEIGHT_PX = 160, 210

ADAPTER_NOISE = 0.3

NOISE = 0.05
"""Standard deviation of what a new version's weights differ by: far more than an update, so that it shows."""

ANSWER_TOKENS = 32


def config_with(*, answer_tokens: int = ANSWER_TOKENS, dtype: str = "float32", **rollout: Any) -> Config:
    """A configuration with the vLLM engine. A policy with random weights never ends an answer by itself."""
    vllm = {"max_tokens": 2048, "cpu_cache_gib": 0.5, "dtype": dtype, "health_every_s": 2.0}
    vllm |= rollout.pop("vllm", {})
    return Config.model_validate(
        {"rollout": {"engine": "vllm", "vllm": vllm} | rollout, "context": {"answer_tokens": answer_tokens}}
    )


class Checkpoints:
    """Version 0 and versions after it, each as the trainer would publish it."""

    def __init__(self, folder: Path, *, is_tied: bool = False) -> None:
        """is_tied: the output head is the embedding, as in the smaller checkpoints of the family."""
        self._folder = folder
        self.first = folder / "base"
        make_tiny_qwen(self.first)
        if is_tied:
            tie_head(self.first)
        self._published = 0
        """Each is in a folder of its own, so that tests may publish the same version."""

    def publish(self, version: int) -> Path:
        """Version 0 with other weights."""
        policy = load(self.first)
        torch.manual_seed(version)
        with torch.no_grad():
            for weight in policy.module.parameters():
                weight.add_(NOISE * torch.randn_like(weight))
        self._published += 1
        state = CheckpointState(version=version, learner={})
        return write_checkpoint(self._folder / f"published-{self._published}", state, policy.save)

    def publish_adapter(self, version: int, rank: int = 4) -> tuple[Path, Path]:
        """A version that is an adapter of version 0, as PEFT writes it, and the same as a whole policy."""
        policy = load(self.first)
        draw = torch.Generator().manual_seed(version)
        adapter: dict[str, torch.Tensor] = {}
        for name, layer in policy.module.named_modules():
            if re.fullmatch(LAYERS, name):
                fall = ADAPTER_NOISE * torch.randn(rank, layer.in_features, generator=draw)
                rise = ADAPTER_NOISE * torch.randn(layer.out_features, rank, generator=draw)
                layer.weight.data += rise @ fall  # alpha is the rank
                adapter |= {f"{WRAPPED}{name}.lora_A.weight": fall, f"{WRAPPED}{name}.lora_B.weight": rise}

        def write(folder: Path) -> None:
            (folder / ADAPTER_FOLDER).mkdir()
            save_file(adapter, folder / ADAPTER_FILE, {"format": "pt"})
            settings = {"peft_type": "LORA", "r": rank, "lora_alpha": float(rank), "target_modules": LAYERS}
            (folder / ADAPTER_FOLDER / ADAPTER_CONFIG).write_text(json.dumps(settings))
            write_base(folder, BasePolicy(name=str(self.first), sha256=fingerprint(self.first)))

        self._published += 1
        state = CheckpointState(version=version, learner={})
        parent = self._folder / f"published-{self._published}"
        return write_checkpoint(parent, state, write), write_checkpoint(parent / "whole", state, policy.save)


def tie_head(folder: Path) -> None:
    """Make the output head of a checkpoint its embedding."""
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["lm_head.weight"]
    save_file(weights, file, {"format": "pt"})


class Screens:
    """Screenshots of noise among the blobs of a run."""

    def __init__(self, folder: Path) -> None:
        self.blobs = FolderBlobs(folder)

    def request(self, seed: int, *, temperature: float = 1.0) -> GenerateRequest:
        """The first step of an episode."""
        return GenerateRequest(
            screenshot_sha256=self._screenshot(seed),
            instruction=f"Click on the button with the number {seed}.",
            history=(),
            temperature=temperature,
        )

    def next(self, request: GenerateRequest, answer: Generation, seed: int) -> GenerateRequest:
        """The step after it."""
        past = PastStep(screenshot_sha256=request.screenshot_sha256, token_ids=answer.token_ids)
        return replace(
            request,
            screenshot_sha256=self._screenshot(seed),
            past=(*request.past, past),
            history=(*request.history, answer.answer),
        )

    def _screenshot(self, seed: int) -> str:
        noise = np.random.default_rng(seed).integers(0, 256, (HEIGHT_PX, WIDTH_PX, 3), dtype=np.uint8)
        png = BytesIO()
        Image.fromarray(noise).save(png, "PNG")
        return self.blobs.put(png.getvalue())


@dataclass(frozen=True, slots=True)
class Scores:
    """What an engine recorded of answers, and what transformers computes for the same tokens; in nats."""

    logprobs: torch.Tensor
    expected_logprobs: torch.Tensor
    entropies: torch.Tensor
    expected_entropies: torch.Tensor

    @property
    def differences(self) -> torch.Tensor:
        """Of the log-probs, absolute."""
        return (self.logprobs - self.expected_logprobs).abs()

    @property
    def k3(self) -> float:
        """Estimate of the divergence of the trainer's policy from the engine's (Schulman 2020), in nats."""
        log_ratio = self.expected_logprobs - self.logprobs
        return float((log_ratio.exp() - 1 - log_ratio).mean())


def scores(
    folder: Path,
    shots: Screens,
    requests: Sequence[GenerateRequest],
    answers: Sequence[Generation],
    temperature: float = 1.0,
) -> Scores:
    """What was recorded beside what transformers computes in float32 with the weights of `folder`."""
    policy = load(folder)
    found: list[tuple[torch.Tensor, ...]] = []
    for request, answer in zip(requests, answers, strict=True):
        shown = policy.codec.shown(request)
        screens: dict[str, Screen] = {
            sha256: policy.codec.screen(sha256, shots.blobs.read(sha256)) for sha256 in shown
        }
        with torch.no_grad():
            expected = policy.score([recorded(request, answer)], screens, temperature)
        count = len(answer.token_ids)
        found.append(
            (
                torch.tensor(answer.logprobs),
                expected.logprobs[0, :count],
                torch.tensor(answer.entropies),
                expected.entropies[0, :count],
            )
        )
    return Scores(*(torch.cat(column) for column in zip(*found, strict=True)))


@contextmanager
def engine(
    folder: Path, config: Config, screens: Screens, *, version: int = 0, adapter_rank: int = 0
) -> Iterator[VllmEngine]:
    """An engine in this process, and its processes gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="vllm-") as scratch:
        made = VllmEngine(
            folder,
            version,
            rollout=config.rollout,
            prompt_spec=prompt_spec_of(config.context),
            screenshots=screens.blobs,
            seed=0,
            log=Path(scratch) / "engine.log",
            sockets=Path(scratch) / "sockets",
            adapter_rank=adapter_rank,
        )
        try:
            yield made
        finally:
            made.close()


def rollout_child(config: Config, store: Path, checkpoint: Path) -> ChildSpec:
    """A supervised rollout actor with this engine, as `dart.run.tree` has it; version 0 is in the record."""
    with Store(store) as record:
        record.add_version()
    training = config.training.model_copy(update={"policy": checkpoint})
    config = config.model_copy(update={"training": training})
    return ChildSpec(
        id="rollout-0",
        actor="dart.inference.actor:RolloutActor",
        args={"config": config.model_dump(mode="json"), "store": str(store), "engines": ["rollout-0"]},
        preload=("dart.inference.actor", "dart.inference.vllm_engine"),
        start_deadline_s=600.0,
        hang_deadline_s=60.0,
        backoff=Backoff(initial_s=0.05),
    )
