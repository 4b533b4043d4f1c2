"""Tokens are drawn where the logits are, from a generator that the engine's own one seeds."""

import pytest
import torch

from dart.policy.sampling import generator_on

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_on_the_cpu_the_engines_own_generator_draws() -> None:
    engines = torch.Generator().manual_seed(3)
    assert generator_on(CPU, engines) is engines


def test_on_a_gpu_every_batch_has_a_generator_of_its_own_and_the_same_seed_repeats_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, engines = [], [torch.Generator().manual_seed(3) for _ in range(2)]
    on_cpu = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device: made.append(device) or on_cpu())
    seeds = [[generator_on(GPU, one).initial_seed() for _ in range(3)] for one in engines]
    assert made == [GPU] * 6
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3
