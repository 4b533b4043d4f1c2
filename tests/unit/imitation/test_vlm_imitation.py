"""A vision-language policy learns to answer as demonstrations do."""

import hashlib
import json
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from dart.core.types import GenerateRequest, Step
from dart.imitation import vlm
from dart.imitation.vlm import ImitationConfig, imitate_folder
from dart.inference.transformers_engine import TransformersEngine
from dart.policy.coordinates import CoordinateFrame
from dart.policy.placement import ModelPlacement
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Screen
from dart.store.blobs import FolderBlobs
from dart.testing.trajectories import step_at
from dart.training.demonstration_format import screenshot_path
from tests.pictures import png_of

pytestmark = pytest.mark.slow

READING = PromptSpec(prompt="Say where to click.\n\n")

PLACES = {"left": (40, 60), "right": (120, 150)}
"""Where the red box is on the two screens."""


def demonstrated(folder: Path) -> dict[str, str]:
    """Writes demonstrations of a click on each box; the action by the screenshot's sha256."""
    (folder / "screenshots").mkdir(parents=True)
    answers: dict[str, str] = {}
    lines: list[str] = []
    for seed, (x, y) in enumerate(PLACES.values()):
        screen = Image.new("RGB", (160, 210), "white")
        ImageDraw.Draw(screen).rectangle((x - 12, y - 10, x + 12, y + 10), fill="red")
        png = png_of(screen)
        sha256 = hashlib.sha256(png).hexdigest()
        screenshot_path(folder, sha256).write_bytes(png)
        answers[sha256] = f"click(start_box='({x},{y})')"
        step = {"screenshot_sha256": sha256, "action": answers[sha256]}
        task = {"task_id": "boxes", "seed": seed, "instruction": "Click the box.", "reward": 1.0}
        lines.append(json.dumps({**task, "steps": [step]}))
    (folder / "demonstrations.jsonl").write_text("\n".join(lines))
    return answers


def greedy_answers(policy: Path, folder: Path, answers: dict[str, str]) -> list[str]:
    asked = [
        GenerateRequest(
            screenshot_sha256=sha256,
            instruction="Click the box.",
            history=(),
            temperature=0.0,
        )
        for sha256 in answers
    ]
    blobs = FolderBlobs(folder / "blobs")
    for sha256 in answers:
        blobs.put(screenshot_path(folder, sha256).read_bytes())
    engine = TransformersEngine(policy, 0, screenshots=blobs, prompt_spec=READING)
    return [made.answer for made in engine.generate(asked)]


def test_its_loss_falls_until_it_points_at_what_it_sees(tiny_qwen: Path, tmp_path: Path) -> None:
    folder, said = tmp_path / "demonstrations", list[str]()
    answers = demonstrated(folder)
    config = ImitationConfig(updates=40, batch=2, lr=4e-3, warmup_updates=5)
    placement = ModelPlacement(is_trained=True)
    loss = imitate_folder(folder, tiny_qwen, tmp_path / "out", config, placement, READING, said.append)
    assert loss < 0.2
    assert greedy_answers(tmp_path / "out", folder, answers) == list(answers.values())
    assert said[0] == "imitating 2 steps of 2 episodes"


class CountingPolicy:
    """A policy of one weight that counts the decoded screenshots in memory at each update."""

    def __init__(self, screens: int) -> None:
        self.codec = self
        self.steps = [step_at(0, number=number) for number in range(screens)]
        self.held: list[int] = []
        self._weight = torch.nn.Parameter(torch.zeros(()))
        self._made: list[weakref.ref[Any]] = []

    def screen(self, sha256: str, content: bytes) -> Screen:
        pixels = np.zeros((4, 4, 3), np.uint8)
        self._made.append(weakref.ref(pixels))
        return Screen(
            sha256, pixels, CoordinateFrame(width_px=4, height_px=4, shown_width_px=4, shown_height_px=4)
        )

    def trainable(self) -> list[torch.nn.Parameter]:
        return [self._weight]

    def sort_key(self, step: Step) -> str:
        return step.screenshot_sha256

    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> Any:
        assert set(screens) == {step.screenshot_sha256 for step in steps}
        self.held.append(sum(made() is not None for made in self._made))
        return SimpleNamespace(
            logprobs=self._weight.expand(len(steps), 1), mask=torch.ones(len(steps), 1) > 0
        )

    def save(self, folder: Path) -> None: ...


def test_only_the_newest_screenshots_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = CountingPolicy(screens=40)
    (tmp_path / "screenshots").mkdir()
    for step in policy.steps:
        screenshot_path(tmp_path, step.screenshot_sha256).touch()
    demonstration = SimpleNamespace(task_id="boxes", seed=0, steps=policy.steps)
    monkeypatch.setattr(vlm, "IMAGES_HELD", 8)
    monkeypatch.setattr(vlm, "load", lambda *_: policy)
    monkeypatch.setattr(vlm, "read_demonstrations", lambda *_: (demonstration,))
    config = ImitationConfig(updates=20, batch=4)
    imitate_folder(tmp_path, tmp_path, tmp_path / "out", config, ModelPlacement(), report=lambda _: None)
    assert len(policy.held) == 20
    assert max(policy.held) <= 8 + 4


def test_a_folder_that_exists_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vlm, "imitate_folder", lambda *_: pytest.fail("it began"))
    monkeypatch.setattr("sys.argv", ["vlm", "demonstrations", "policy", str(tmp_path)])
    with pytest.raises(SystemExit):
        vlm.main()
    assert f"{tmp_path} exists already" in capsys.readouterr().err


def test_demonstrations_that_cannot_be_imitated_are_told_without_a_traceback(
    tiny_qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demonstrations.jsonl").touch()
    monkeypatch.setattr("sys.argv", ["vlm", str(tmp_path), str(tiny_qwen), str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        vlm.main()
    assert "demonstrations.jsonl, found none" in capsys.readouterr().err
