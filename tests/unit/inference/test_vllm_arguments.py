"""The arguments with which vLLM is started on a GPU. Neither vLLM nor a GPU is needed."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

from dart.config.bundled import bundled_folder
from dart.config.config import load_config
from dart.inference.vllm_passes import PASS_TOKENS
from dart.policy.prompt_spec import PromptSpec

MODULES = (
    *("vllm", "vllm.exceptions", "vllm.lora.request", "vllm.outputs", "vllm.platforms"),
    *("vllm.sampling_params", "vllm.v1.engine.async_llm", "vllm.v1.engine.exceptions"),
)
"""Modules of vLLM that the engine imports."""


@pytest.fixture
def vllm_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The engine's module as on a machine with GPUs, with stand-ins for vLLM's modules."""
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    spec = importlib.util.find_spec("dart.inference.vllm_engine")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    with patch.dict(os.environ):  # the module sets variables for vLLM
        spec.loader.exec_module(module)
        module.AsyncEngineArgs = SimpleNamespace
        module.current_platform.is_cpu = lambda: False
        yield module


@pytest.mark.parametrize(
    ("overrides", "tokens"),
    [([], PASS_TOKENS), (["rollout.max_batch=1", "rollout.vllm.max_tokens=2048"], 2 * 2048)],
)
def test_a_pass_on_a_gpu_has_no_more_tokens_than_the_requests_of_a_full_batch_and_the_probe(
    vllm_engine: Any, tmp_path: Path, overrides: list[str], tokens: int
) -> None:
    config = load_config(bundled_folder() / "one-gpu-miniwob.toml", overrides)
    args = vllm_engine.engine_args(tmp_path, config.rollout, PromptSpec(context=config.context), seed=1)
    assert args.max_num_batched_tokens == tokens


def test_a_pass_on_a_cpu_has_as_many_tokens_as_vllm_chooses(vllm_engine: Any, tmp_path: Path) -> None:
    vllm_engine.current_platform.is_cpu = lambda: True
    config = load_config(None, [])
    args = vllm_engine.engine_args(tmp_path, config.rollout, PromptSpec(context=config.context), seed=1)
    assert args.max_num_batched_tokens is None
