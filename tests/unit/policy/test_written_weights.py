"""Weights that several processes write are one checkpoint, as transformers reads it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dart.inference.tensor_layout import INDEX, layout_of, refuse_other_layout, weight_files
from dart.policy import written_weights
from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.policy.written_weights import join_shares, write_model, write_share
from dart.testing.tiny_families import FAMILIES
from dart.training.weight_shares import writers_of

pytestmark = pytest.mark.slow

ON_CPU = ModelPlacement(device="cpu")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_shares_of_three_writers_are_the_checkpoint_that_one_writes(
    tiny_checkpoint: Callable[[str], Path], family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_weights, "MOST_FILE_BYTES", 200_000)
    source = tiny_checkpoint(family)
    policy = load(source, placement=ON_CPU)
    held = policy.module.state_dict()
    sizes = {name: weight.numel() for name, weight in held.items()}
    pointers = [weight.data_ptr() for weight in held.values()]
    tied = [name for name, weight in held.items() if pointers.count(weight.data_ptr()) > 1]
    writers = writers_of(sizes, 3, tied)
    shares = [{name: held[name] for name in held if writers[name] == number} for number in range(3)]

    policy.save(tmp_path, shares[0], torch.float32)
    for number in (1, 2):
        write_share(policy.module, tmp_path, number, shares[number], torch.float32)
    join_shares(tmp_path)

    refuse_other_layout(layout_of(source), tmp_path)
    files = [path.name for path in weight_files(tmp_path)]
    assert files == [f"model-{n:05d}-of-{len(files):05d}.safetensors" for n in range(1, len(files) + 1)]
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == files
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"]["total_size"] == 4 * sum(
        held[name].numel() for name in held if name not in tied[1:]
    )
    again = load(tmp_path, placement=ON_CPU).module.state_dict()
    assert again.keys() == held.keys()
    assert all(torch.equal(again[name], held[name]) for name in held)


def test_weights_of_one_writer_are_left_as_they_are(tiny_qwen: Path, tmp_path: Path) -> None:
    write_model(load(tiny_qwen, placement=ON_CPU).module, tmp_path)
    join_shares(tmp_path)
    assert [path.name for path in tmp_path.glob("*.safetensors*")] == ["model.safetensors"]
