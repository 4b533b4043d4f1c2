"""The trainer is compared with commits in which the small policy's model and files were other ones."""

import argparse
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import trainer_compare
from benchmarks.trainer_compare import COUNTED, Figures, compare, parse, small_model


@pytest.mark.parametrize("name", ["GuiPolicyModel", "GuiPolicyForImageTextToText"])
def test_the_model_of_the_small_policy_is_found_by_the_name_that_it_has_on_the_measured_side(
    name: str,
) -> None:
    modeling = ModuleType("dart.policy.modeling")
    model = type(name, (), {})
    setattr(modeling, name, model)

    assert small_model(modeling) is model


@pytest.mark.parametrize("given", [None, Path("runs/policy")])
def test_both_sides_train_the_base_policy_of_the_other_commit_unless_one_is_named(
    given: Path | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    used = []

    def ask(place: Path, arm: str, seed: int, options: argparse.Namespace) -> Figures:
        used.append(options.policy)
        return dict.fromkeys((*COUNTED, "loss", "grad_norm"), 1.0)

    monkeypatch.setattr(trainer_compare, "unpacked", lambda commit: nullcontext(tmp_path))
    monkeypatch.setattr(trainer_compare, "ask", ask)
    compare(parse(["--arms", "small", "--seeds", "1", *(["--policy", str(given)] if given else [])]))

    assert used == [given or tmp_path / "configs" / "base-policy"] * 2
