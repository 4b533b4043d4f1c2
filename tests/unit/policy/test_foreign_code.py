"""A checkpoint is data: code that lies in its folder never runs, and nobody is asked whether it may."""

import ast
import builtins
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from dart.core.errors import DartError
from dart.policy import load

REPOSITORY = Path(__file__).resolve().parents[3]
CODE = """
import builtins
builtins.foreign_code_ran = True
"""
CLASSES = (
    "AutoConfig",
    "AutoModelForImageTextToText",
    "AutoTokenizer",
    "AutoProcessor",
    "AutoImageProcessor",
)
NAMED_IN = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
LOADERS: dict[str, Callable[[Path], object]] = {
    "a codec": load.load_codec,
    "a policy": lambda folder: load.load(folder),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What somebody at the keyboard, who says yes to everything, is asked."""
    questions: list[str] = []

    def yes(question: object = "") -> str:
        questions.append(str(question))
        return "y"

    monkeypatch.setattr(builtins, "input", yes)
    return questions


def with_code(original: Path, folder: Path, **changes: str) -> Path:
    """A copy whose every file says that its classes are in a module of the folder."""
    shutil.copytree(original, folder)
    (folder / "evil.py").write_text(CODE)
    for name in NAMED_IN:
        file = folder / name
        told = json.loads(file.read_text()) if file.exists() else {}
        told["auto_map"] = {
            one: ["evil.Evil", "evil.Evil"] if "Token" in one else "evil.Evil" for one in CLASSES
        }
        file.write_text(json.dumps(told | (changes if name == "config.json" else {})))
    return folder


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("model_type", ["", "evil"])
@pytest.mark.parametrize("family", ["small", "qwen2_5_vl"])
def test_code_in_a_checkpoint_never_runs_and_nobody_is_asked(
    loader: str,
    model_type: str,
    family: str,
    asked: list[str],
    tmp_path: Path,
    tiny_checkpoint: Callable[[str], Path],
) -> None:
    original = REPOSITORY / "configs/base-policy" if family == "small" else tiny_checkpoint(family)
    changes = {"model_type": model_type} if model_type else {}
    folder = with_code(original, tmp_path / "policy", **changes)
    refused = ""
    try:
        LOADERS[loader](folder)
    except (DartError, ImportError) as error:  # ImportError: not every family has the small policy's parts
        refused = str(error)
    assert "trust_remote_code" not in refused, "a remedy that nobody here has"
    assert asked == []
    assert not hasattr(builtins, "foreign_code_ran")


def test_weights_that_are_a_pickle_are_not_read(tmp_path: Path, tiny_qwen: Path) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(tiny_qwen, folder)
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(DartError, match="safetensors"):
        LOADERS["a policy"](folder)


LOADING = {"from_pretrained", "AsyncEngineArgs"}


def calls_that_load(file: Path) -> Iterator[tuple[str, dict[str | None, object]]]:
    """Each call that loads a checkpoint, as it is written, and its literal keywords."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in LOADING:
            keywords = {one.arg: getattr(one.value, "value", None) for one in node.keywords}
            yield ast.unparse(node.func), keywords


def test_every_call_that_loads_a_checkpoint_says_that_it_trusts_no_code() -> None:
    found = [(file, *call) for file in (REPOSITORY / "dart").rglob("*.py") for call in calls_that_load(file)]
    assert len(found) >= 5
    for file, function, keywords in found:
        assert keywords.get("trust_remote_code") is False, f"{file}: {function}"
        if "Model" in function:
            assert keywords.get("use_safetensors") is True, f"{file}: {function}"
