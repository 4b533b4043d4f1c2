"""What a version holds for engines, and what it holds for the trainer, which resumes from it exactly."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dart.core.types import Group
from dart.inference.transformers_engine import TransformersEngine
from dart.policy import written_weights
from dart.policy.adapter_files import ADAPTER_FOLDER, BASE_FILE, OtherBase
from dart.policy.load import CheckpointError, load
from dart.policy.lora import ADAPTER_FILE
from dart.policy.merge_adapter import main, merge
from dart.policy.placement import ModelPlacement
from dart.policy.protocols import UnsupportedCheckpoint
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import (
    Checkpoint,
    CheckpointState,
    CorruptCheckpoint,
    files_of,
    load_checkpoint,
    read_state,
    write_checkpoint,
)
from dart.training.learner import Learner, LearnerConfig
from tests.unit.training.test_vlm_learner import (
    READING,
    all_steps,
    blobs_name,
    held,
    played,
    weights,
)

pytestmark = [
    pytest.mark.slow,
    # peft still asks for the old name
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning"),
]

HALF = LearnerConfig(lr=1e-3, kl_beta=0.0, published_dtype="bfloat16", placement=held())
ADAPTER = LearnerConfig(
    lr=1e-2, kl_beta=0.1, minibatches=2, placement=held(lora_rank=4, publishes_adapter=True)
)


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


@pytest.fixture
def group(tiny_qwen: Path, blobs: FolderBlobs, group_of: Callable[..., Group]) -> Group:
    return played(tiny_qwen, blobs, group_of)


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def trained(learner: Learner) -> dict[str, torch.Tensor]:
    module = learner._policy.module
    return {
        name: weight.detach().clone() for name, weight in module.named_parameters() if weight.requires_grad
    }


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_of(folder))


def test_engines_read_half_the_bytes_and_training_goes_on_from_every_bit(
    tiny_qwen: Path, group: Group, blobs: FolderBlobs, tmp_path: Path
) -> None:
    learner = Learner(tiny_qwen, HALF)
    learner.update([group], blobs)
    folder = learner.save(tmp_path / "one")
    published = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in published.values()} == {torch.bfloat16}
    assert '"dtype": "bfloat16"' in (folder / "config.json").read_text()
    assert bytes_of(folder / "master") > 1.9 * (folder / "model.safetensors").stat().st_size
    resumed = Learner(tiny_qwen, HALF, resume=load_checkpoint(folder))
    assert equal(trained(resumed), trained(learner))
    for one in (learner, resumed):
        one.update([group], blobs)
    assert equal(trained(resumed), trained(learner))


def test_a_version_without_a_weight_of_the_trainer_is_refused_and_not_continued_less_precisely(
    tiny_qwen: Path, tmp_path: Path
) -> None:
    folder = Learner(tiny_qwen, HALF).save(tmp_path / "one")
    file = folder / "master" / "weights.safetensors"
    under_other_names = {name.replace("mlp", "ffn"): tensor for name, tensor in load_file(file).items()}
    save_file(under_other_names, file)
    with pytest.raises(UnsupportedCheckpoint, match=r"lacks \d+ weights .*layers\.0\.mlp.* new run"):
        Learner(tiny_qwen, HALF, resume=Checkpoint(folder=folder, state=read_state(folder)))


def test_an_update_does_not_change_the_version_that_was_copied_before_it(
    tiny_qwen: Path, group: Group, blobs: FolderBlobs, tmp_path: Path
) -> None:
    learner = Learner(tiny_qwen, LearnerConfig(lr=1e-3, kl_beta=0.0, placement=held()))
    learner.update([group], blobs)
    write = learner.copy()
    at_once = write(tmp_path / "at once")
    learner.update([group], blobs)
    later = write(tmp_path / "later")
    hashes = [(path.name, path.read_bytes()) for path in files_of(at_once)]
    assert [(path.name, path.read_bytes()) for path in files_of(later)] == hashes
    assert load_checkpoint(later).state.version == 1


def test_large_weights_are_written_as_several_files_that_engines_load(
    tiny_qwen: Path, blobs: FolderBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_weights, "MOST_FILE_BYTES", 100_000)
    folder = Learner(tiny_qwen, LearnerConfig(kl_beta=0.0, placement=held())).save(tmp_path / "one")
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 1
    assert equal(weights(folder), weights(tiny_qwen))


def test_a_version_of_an_adapter_is_the_adapter_and_engines_apply_it_to_their_base(
    tiny_qwen: Path, group: Group, blobs: FolderBlobs, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    learner = Learner(tiny_qwen, ADAPTER)
    learner.update([group], blobs)
    folder = learner.save(tmp_path / "one")
    assert {path.name for path in files_of(folder) if path.suffix == ".safetensors"} == {
        "adapter_model.safetensors"
    }
    engine = TransformersEngine(
        tiny_qwen, 0, screenshots=blobs, seed=3, prompt_spec=READING, takes_adapters=True
    )
    base = engine._policy
    before = {name: weight.clone() for name, weight in base.module.state_dict().items()}
    engine.load(folder, 1)
    steps = all_steps(group)
    screens = {name: base.codec.screen(name, blobs.read(name)) for name in map(blobs_name, steps)}
    with torch.no_grad():
        expected = learner._policy.score(steps, screens, 1.0).logprobs
        of_base = base.score(steps, screens, 1.0).logprobs
        served = engine._policy.score(steps, screens, 1.0).logprobs
    assert torch.allclose(served, expected, atol=1e-6)
    assert not torch.allclose(served, of_base, atol=1e-4)
    assert equal(dict(base.module.state_dict()), before)
    assert engine.version == 1
    of_version = {id(weight) for weight in engine._policy.module.parameters()}
    assert {id(weight) for weight in base.module.parameters()} <= of_version, "the base is in memory once"
    merge(folder, tmp_path / "merged")
    with torch.no_grad():
        whole = load(tmp_path / "merged", READING, ModelPlacement(device="cpu"))
        assert torch.allclose(whole.score(steps, screens, 1.0).logprobs, expected, atol=1e-4)


def test_training_goes_on_from_an_adapter_as_if_it_had_not_ended(
    tiny_qwen: Path, group: Group, blobs: FolderBlobs, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    learner = Learner(tiny_qwen, ADAPTER)
    learner.update([group], blobs)
    folder = learner.save(tmp_path / "one")
    resumed = Learner(tiny_qwen, ADAPTER, resume=load_checkpoint(folder))
    assert equal(trained(resumed), trained(learner))
    for one in (learner, resumed):
        one.update([group], blobs)
    assert equal(trained(resumed), trained(learner))


def test_an_adapter_of_another_base_is_refused_and_the_old_policy_answers_on(
    tiny_qwen: Path, group: Group, blobs: FolderBlobs, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    other = tmp_path / "other"
    other.mkdir()
    changed = load(tiny_qwen, placement=ModelPlacement(device="cpu"))
    with torch.no_grad():
        next(changed.module.parameters()).add_(1.0)
    changed.save(other)
    folder = Learner(other, ADAPTER).save(tmp_path / "one")
    engine = TransformersEngine(tiny_qwen, 0, screenshots=blobs, prompt_spec=READING, takes_adapters=True)
    with pytest.raises(OtherBase, match=str(other)):
        engine.load(folder, 0)
    assert engine.version == 0


@pytest.mark.parametrize("is_named", [True, False])
def test_a_merged_policy_has_the_precision_of_its_base(
    tiny_qwen: Path, tmp_path: Path, is_named: bool
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    base = tmp_path / "base"
    base.mkdir()
    load(tiny_qwen, placement=ModelPlacement(device="cpu")).save(base, dtype=torch.bfloat16)
    if not is_named:  # at the top, as in the configuration of Qwen3-VL
        described = json.loads((base / "config.json").read_text())
        del described["dtype"]
        (base / "config.json").write_text(json.dumps(described))
    merge(Learner(base, ADAPTER).save(tmp_path / "one"), tmp_path / "merged")
    whole, of_base = (load_file(folder / "model.safetensors") for folder in (tmp_path / "merged", base))
    assert {tensor.dtype for tensor in whole.values()} == {torch.bfloat16}
    assert equal(whole, of_base)  # a new adapter changes nothing
    assert '"dtype": "bfloat16"' in (tmp_path / "merged" / "config.json").read_text()


def test_the_command_that_merges_names_what_is_wrong_before_it_loads_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for out, said in (
        (tmp_path, "exists already; name another one"),
        (tmp_path / "new", "there is no folder"),
    ):
        monkeypatch.setattr("sys.argv", ["merge_adapter", str(tmp_path / "v000001"), str(out)])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert said in capsys.readouterr().err


def test_an_adapter_is_no_policy_and_the_remedy_that_is_said_makes_one(
    tiny_qwen: Path, blobs: FolderBlobs, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    folder = Learner(tiny_qwen, ADAPTER).save(tmp_path / "one")
    with pytest.raises(CheckpointError, match=r"python -m dart\.policy\.merge_adapter .* OUT"):
        load(folder)
    merge(folder, tmp_path / "OUT")
    assert equal(weights(tmp_path / "OUT"), weights(tiny_qwen))  # a new adapter changes nothing
    with pytest.raises(CheckpointError, match="is no adapter"):
        merge(
            write_checkpoint(tmp_path, CheckpointState(version=9, learner={}), lambda _: None), tmp_path / "b"
        )
    with pytest.raises(CheckpointError, match="--base"):
        merge(folder, tmp_path / "c", base=tmp_path / "moved")
    (folder / ADAPTER_FILE).write_bytes(b"damaged")
    with pytest.raises(CorruptCheckpoint, match=f"{ADAPTER_FOLDER}.* is corrupt"):
        merge(folder, tmp_path / "c")
    assert (folder / BASE_FILE).is_file()


def test_a_version_without_the_adapter_that_training_resumes_is_refused_by_the_name_of_the_file(
    tiny_qwen: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the adapter needs peft: pip install 'dartrl[lora]'")
    whole = Learner(tiny_qwen, HALF).save(tmp_path / "one")
    with pytest.raises(CheckpointError, match=str(whole / ADAPTER_FILE)):
        load(tiny_qwen, placement=ADAPTER.placement, resume=whole)
