"""What loading says about a checkpoint that is damaged, and about one that may be whole."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dart.core.errors import DartError, DiskError, TemporaryError
from dart.policy import small_policy
from dart.policy.load import CheckpointError, load, load_codec, model_type, named_errors
from dart.policy.protocols import UnsupportedCheckpoint
from dart.policy.small_policy import save_policy
from dart.policy.tokenizer import train_tokenizer
from tests.tiny_small_policy import tiny_small_policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = train_tokenizer(["Click the button."])
    save_policy(tiny_small_policy(tokenizer), tokenizer, tmp_path)
    return tmp_path


def of_system(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


MEMORY = "free memory of the GPU or of the machine, lower rollout.vllm.memory"
HANDLES = "raise the limit of open files"
REFUSED = "operating system"


@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 130 MiB."), TemporaryError, MEMORY),
        (RuntimeError("CUDA error: out of memory"), TemporaryError, MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 12 bytes"), TemporaryError, MEMORY),
        (MemoryError(), TemporaryError, MEMORY),
        (of_system(errno.ENOMEM), TemporaryError, MEMORY),
        (of_system(errno.EMFILE), TemporaryError, HANDLES),
        (of_system(errno.ENFILE), TemporaryError, HANDLES),
        (RuntimeError("unable to open file <x>: Too many open files (24)"), TemporaryError, HANDLES),
        (of_system(errno.EIO), DiskError, REFUSED),
        (of_system(errno.EACCES), DiskError, REFUSED),
        (of_system(errno.ESTALE), DiskError, REFUSED),
        (caused(OSError("no such processor"), of_system(errno.EMFILE)), TemporaryError, HANDLES),
        (caused(UnsupportedCheckpoint("it lacks x"), of_system(errno.EMFILE)), TemporaryError, HANDLES),
    ],
)
def test_a_shortage_or_a_refusal_of_the_system_is_no_damage_of_the_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[DartError], remedy: str
) -> None:
    def failing(path: Path) -> dict[str, torch.Tensor]:
        raise error

    monkeypatch.setattr(small_policy, "load_file", failing)
    with pytest.raises(kind, match=f"may be whole.*{remedy}") as caught:
        load(folder)
    assert "damaged" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_other_errors_of_loading_are_damage_and_a_model_that_does_not_fit_stays_one(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="damaged: size mismatch"), named_errors(folder):
        raise RuntimeError("size mismatch")
    with pytest.raises(UnsupportedCheckpoint, match="it lacks x"), named_errors(folder):
        raise UnsupportedCheckpoint("it lacks x")


@pytest.mark.parametrize("content", ["[]", '"gui_policy"', "3", "null"])
def test_a_configuration_that_is_no_json_object_is_damage(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    for reading in (load, load_codec, model_type):
        with pytest.raises(CheckpointError, match=r"damaged: expected a JSON object in config\.json, got"):
            reading(folder)


def prefixed(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"module.{name}": weight for name, weight in weights.items()}


def without_a_layer(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: weight for name, weight in weights.items() if "layers.1.mlp" not in name}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (prefixed, r"lack \d+ weights .* lm_head\.weight, and hold \d+ of other names, such as module"),
        (without_a_layer, r"lack 3 weights of its model, such as model\.language_model\.layers\.1\.mlp"),
    ],
)
def test_weights_that_a_checkpoint_lacks_are_named_and_not_drawn_at_random(
    tiny_qwen: Path,
    tmp_path: Path,
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    said: str,
) -> None:
    policy = shutil.copytree(tiny_qwen, tmp_path / "policy")
    file = policy / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=f"{policy} is damaged: its files {said}"):
        load(policy)
