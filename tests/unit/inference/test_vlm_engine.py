"""Vision-language checkpoints behind the engine: what it records is what the trainer computes, whatever the
family."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dart.config.sections import ContextSettings
from dart.core.errors import UnavailableError
from dart.core.types import GenerateRequest, PastStep
from dart.inference.transformers_engine import TransformersEngine
from dart.policy.base import Policy
from dart.policy.load import CheckpointError, load
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Codec, ForeignPrompt, Screen
from dart.store.blobs import FolderBlobs
from dart.testing.tiny_families import FAMILIES
from tests.pictures import png_of
from tests.sampled import recorded

pytestmark = pytest.mark.slow

READING = PromptSpec(context=ContextSettings(screenshots=3, turns=4, answer_tokens=6))

SIZES = ((160, 210), (210, 160), (300, 90))
"""Width and height in pixels of the screens of an episode, one after the other."""

MOST_DIFFERENCE_NATS = 2e-5
"""Between sampling and scoring in float32, for every single token."""


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def checkpoint(request: pytest.FixtureRequest, tiny_checkpoint: Callable[[str], Path]) -> Path:
    return tiny_checkpoint(request.param)


@pytest.fixture(scope="module")
def policy(checkpoint: Path) -> Policy:
    return load(checkpoint, READING)


@pytest.fixture(scope="module")
def engine(checkpoint: Path, blobs: FolderBlobs) -> TransformersEngine:
    return TransformersEngine(checkpoint, 0, screenshots=blobs, seed=3, prompt_spec=READING)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> FolderBlobs:
    return FolderBlobs(tmp_path_factory.mktemp("blobs"))


def screenshot(blobs: FolderBlobs, seed: int) -> str:
    """The sha256 of a screen of noise."""
    noise = np.random.default_rng(seed).integers(0, 256, (8, 6, 3), dtype=np.uint8)
    shown = Image.fromarray(noise).resize(SIZES[seed % len(SIZES)], Image.Resampling.NEAREST)
    return blobs.put(png_of(shown))


def request(
    blobs: FolderBlobs, steps: int, *, temperature: float = 1.0, instruction: str = "Click it."
) -> GenerateRequest:
    past = [
        PastStep(screenshot_sha256=screenshot(blobs, number), token_ids=(30 + number, 40, 2))
        for number in range(steps)
    ]
    return GenerateRequest(
        screenshot_sha256=screenshot(blobs, 100 + steps),
        instruction=instruction,
        history=("wait()",) * steps,
        temperature=temperature,
        past=tuple(past),
    )


def screens_of(asked: list[GenerateRequest], codec: Codec, blobs: FolderBlobs) -> dict[str, Screen]:
    shown = {sha256 for one in asked for sha256 in codec.shown(one)}
    return {sha256: codec.screen(sha256, blobs.read(sha256)) for sha256 in shown}


def test_sampling_and_scoring_agree_whoever_shares_the_batch(
    engine: TransformersEngine, policy: Policy, blobs: FolderBlobs
) -> None:
    asked = [request(blobs, 0), request(blobs, 5), request(blobs, 2, temperature=1.0)]
    made = engine.generate(asked)
    assert [len(one.images) for one in made] == [1, 3, 3]
    steps = [recorded(one, answer) for one, answer in zip(asked, made, strict=True)]
    screens = screens_of(asked, policy.codec, blobs)
    with torch.no_grad():
        together = policy.score(steps, screens, 1.0)
        alone = [policy.score([step], screens, 1.0) for step in steps]
    for row, step in enumerate(steps):
        length = len(step.token_ids)
        policy.check_prompt(step, screens)
        for scored in (together.logprobs[row, :length], alone[row].logprobs[0]):
            assert step.logprobs == pytest.approx(scored.tolist(), abs=MOST_DIFFERENCE_NATS)
        entropies = together.entropies[row, :length].tolist()
        assert step.entropies == pytest.approx(entropies, abs=MOST_DIFFERENCE_NATS)
        assert not together.mask[row, length:].any()


def test_an_answer_under_a_hint_is_recorded_with_the_prompt_of_one_who_got_none(
    engine: TransformersEngine, policy: Policy, blobs: FolderBlobs
) -> None:
    plain = request(blobs, 2)
    hinted = dataclasses.replace(plain, hint=("click(start_box='(40,60)')", "finished()"))
    (made,) = engine.generate([hinted])
    step = recorded(hinted, made)
    screens = screens_of([plain], policy.codec, blobs)
    shown = [screens[one] for one in policy.codec.shown(plain)]
    assert made.prompt_ids == policy.codec.prompt(plain, shown).token_ids
    policy.check_prompt(step, screens)
    seen = dataclasses.replace(step, prompt_ids=policy.codec.prompt(hinted, shown).token_ids)
    assert len(seen.prompt_ids) > len(step.prompt_ids)
    with torch.no_grad():
        as_sampled = policy.score([seen], screens, 1.0).logprobs[0].tolist()
        as_trained = policy.score([step], screens, 1.0).logprobs[0].tolist()
    assert step.logprobs == pytest.approx(as_sampled, abs=MOST_DIFFERENCE_NATS)
    assert step.logprobs != pytest.approx(as_trained, abs=MOST_DIFFERENCE_NATS)


def test_each_request_has_its_own_temperature_and_the_seed_decides(
    tiny_qwen: Path, blobs: FolderBlobs
) -> None:
    asked = [request(blobs, 1, temperature=0.0), request(blobs, 1), request(blobs, 1)]
    first, again, other = (
        TransformersEngine(tiny_qwen, 0, screenshots=blobs, seed=seed, prompt_spec=READING).generate(asked)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first[0] == other[0]
    assert first[1:] != other[1:]
    assert set(first[0].logprobs) == {0.0}
    assert len(first[0].token_ids) <= 6


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.5},
        {"suppress_tokens": list(range(40))},
        {"min_new_tokens": 6, "no_repeat_ngram_size": 1},
        {"do_sample": False, "top_p": 0.5},
    ],
    ids=["penalty", "suppressed tokens", "least length", "a share for greedy answers"],
)
def test_generation_settings_of_the_checkpoint_change_no_answer_and_are_saved_as_they_are(
    tiny_qwen: Path, blobs: FolderBlobs, tmp_path: Path, settings: dict[str, Any]
) -> None:
    other = shutil.copytree(tiny_qwen, tmp_path / "other")
    file = other / "generation_config.json"
    written = json.loads(file.read_text()) | settings
    file.write_text(json.dumps(written))
    asked = [request(blobs, 0), request(blobs, 2), request(blobs, 1, temperature=0.0)]
    plain, changed = (
        TransformersEngine(folder, 0, screenshots=blobs, seed=3, prompt_spec=READING)
        for folder in (tiny_qwen, other)
    )
    assert changed.generate(asked) == plain.generate(asked)
    saved = tmp_path / "saved"
    saved.mkdir()
    changed._policy.save(saved)
    assert (saved / "generation_config.json").read_bytes() == file.read_bytes()


def test_pictures_are_looked_at_in_their_order(
    engine: TransformersEngine, policy: Policy, blobs: FolderBlobs
) -> None:
    asked = [request(blobs, 2)]
    made = engine.generate(asked)[0]
    step = recorded(asked[0], made)
    screens = screens_of(asked, policy.codec, blobs)
    first, second, last = step.images
    swapped = dataclasses.replace(step, images=(second, first, last))
    with torch.no_grad():
        one, other = (policy.score([each], screens, 1.0).logprobs for each in (step, swapped))
    assert not torch.allclose(one, other, atol=1e-5)


def test_a_step_that_is_not_of_this_policy_is_refused(
    engine: TransformersEngine, policy: Policy, blobs: FolderBlobs
) -> None:
    asked = [request(blobs, 1)]
    made = engine.generate(asked)[0]
    step = recorded(asked[0], made)
    screens = screens_of(asked, policy.codec, blobs)
    tokens = step.images[0].tokens
    other_count = dataclasses.replace(step.images[0], tokens=tokens + 1)
    for change, said in (
        (
            {"images": (other_count, step.images[1])},
            f"had {tokens + 1} image tokens .* the trainer.s processor makes {tokens}",
        ),
        ({"images": step.images[:1]}, "placeholders of its prompt do not match its 1 images"),
        ({"images": step.images[::-1]}, "the last image of its prompt is not the step.s screenshot"),
    ):
        with pytest.raises(ForeignPrompt, match=said):
            policy.check_prompt(dataclasses.replace(step, **change), screens)


def test_what_is_saved_is_loaded_by_engines_with_the_files_it_came_with(
    checkpoint: Path, engine: TransformersEngine, policy: Policy, blobs: FolderBlobs, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    policy.save(saved)
    for name in ("preprocessor_config.json", "tokenizer.json", "chat_template.jinja"):
        assert (saved / name).read_bytes() == (checkpoint / name).read_bytes()
    asked = [request(blobs, 1, temperature=0.0)]
    again = TransformersEngine(saved, 0, screenshots=blobs, prompt_spec=READING)
    assert engine.generate(asked) == again.generate(asked)


def test_a_model_of_another_kind_is_named(tmp_path: Path) -> None:
    for kind in ("bert", "of_tomorrow", "florence2"):
        (tmp_path / "config.json").write_text(f'{{"model_type": "{kind}"}}')
        with pytest.raises(UnavailableError, match=f"model of type '{kind}', .*; a policy "):
            load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="names no model_type"):
        load(tmp_path)
