import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dart.core.exploration import Effect
from dart.core.types import GenerateRequest
from dart.exploration.model_prior import INSTRUCTION as EXPLORE
from dart.exploration.prior_context import context_of
from dart.inference.prompts import Prompts
from dart.inference.protocol import Unanswerable
from dart.inference.transformers_engine import TransformersEngine
from dart.policy.codec import frame_at_size, load_pixels
from dart.policy.load import CheckpointError
from dart.policy.sampling import answer_scores, teacher_forced
from dart.policy.small_policy import SmallPolicy, load_codec, save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import CheckpointState, CorruptCheckpoint, write_checkpoint
from tests.tiny_small_policy import noise_png, tiny_small_policy
from tests.unit.exploration.screens import click

INSTRUCTION = "Click the button."


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two policies of a few thousand parameters, as the checkpoints of versions 0 and 1."""
    tokenizer = train_tokenizer([INSTRUCTION])
    parent = tmp_path_factory.mktemp("checkpoints")

    def checkpoint(version: int) -> Path:
        state = CheckpointState(version=version, learner={})
        policy = tiny_small_policy(tokenizer, version)
        return write_checkpoint(parent, state, lambda folder: save_policy(policy, tokenizer, folder))

    return checkpoint(0), checkpoint(1)


def request(
    folder: Path, seed: int = 0, *, history: tuple[str, ...] = (), temperature: float = 1.0, width: int = 160
) -> GenerateRequest:
    return GenerateRequest(
        screenshot_sha256=FolderBlobs(folder).put(noise_png(seed, width)),
        instruction=INSTRUCTION,
        history=history,
        temperature=temperature,
    )


def test_what_an_engine_records_is_what_the_trainer_computes(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    engine = TransformersEngine(folders[1], 1, seed=5, screenshots=FolderBlobs(tmp_path))
    requests = [request(tmp_path, 0), request(tmp_path, 1, history=("click(start_box='(5,5)')",))]
    generations = engine.generate(requests)
    policy = SmallPolicy(folders[1])
    codec = policy.codec
    for asked, made in zip(requests, generations, strict=True):
        assert list(made.prompt_ids) == codec.encode_prompt(INSTRUCTION, asked.history)
        pixels = torch.from_numpy(load_pixels(FolderBlobs(tmp_path).read(asked.screenshot_sha256))).unsqueeze(
            0
        )
        with torch.no_grad():
            out, targets, mask = teacher_forced(policy.module, [made.prompt_ids], [made.token_ids], pixels)
        scores = answer_scores(out.logits, targets, mask, 1.0)
        assert made.logprobs == pytest.approx(scores.logprobs[0].tolist(), abs=1e-4)
        assert made.entropies == pytest.approx(scores.entropies[0].tolist(), abs=1e-4)
        assert made.policy_version == 1
        assert made.answer == codec.decode_action(made.token_ids, INSTRUCTION)


def test_each_request_has_its_own_temperature(folders: tuple[Path, Path], tmp_path: Path) -> None:
    engine = TransformersEngine(folders[0], 0, seed=1, screenshots=FolderBlobs(tmp_path))
    greedy, warm = request(tmp_path, temperature=0.0), request(tmp_path, temperature=1.0)
    answers = engine.generate([greedy, warm, greedy])
    assert answers[0] == answers[2]
    assert set(answers[0].logprobs) == {0.0}
    assert all(logprob < 0 for logprob in answers[1].logprobs)


def test_the_seed_decides_the_draws(folders: tuple[Path, Path], tmp_path: Path) -> None:
    asked = [request(tmp_path, seed) for seed in range(4)]
    blobs = FolderBlobs(tmp_path)
    drawn = [
        TransformersEngine(folders[0], 0, seed=seed, screenshots=blobs).generate(asked) for seed in (7, 7, 8)
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_a_loaded_version_answers_from_then_on(folders: tuple[Path, Path], tmp_path: Path) -> None:
    engine = TransformersEngine(folders[0], 0, screenshots=FolderBlobs(tmp_path))
    asked = [request(tmp_path, temperature=0.0)]
    old = engine.generate(asked)[0]
    engine.load(folders[1], 1)
    new = engine.generate(asked)[0]
    assert (old.policy_version, new.policy_version, engine.version) == (0, 1, 1)
    assert old.token_ids != new.token_ids


def test_a_checkpoint_that_cannot_be_loaded_leaves_the_old_policy(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    engine = TransformersEngine(folders[1], 1, screenshots=FolderBlobs(tmp_path))
    asked = [request(tmp_path, temperature=0.0)]
    before = engine.generate(asked)
    damaged = tmp_path / "v000001"
    shutil.copytree(folders[1], damaged)
    weights = damaged / "model.safetensors"
    written = weights.read_bytes()
    weights.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    with pytest.raises(CorruptCheckpoint, match="nothing"):
        engine.load(tmp_path / "nowhere", 2)
    with pytest.raises(CorruptCheckpoint, match=r"model.safetensors.*sha256"):
        engine.load(damaged, 1)
    with pytest.raises(CorruptCheckpoint, match="version 2"):
        engine.load(folders[1], 2)
    assert engine.version == 1
    assert engine.generate(asked) == before


def test_training_may_start_from_a_plain_policy_folder_and_from_a_checkpoint_of_another_run(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    plain = tmp_path / "base-policy"
    shutil.copytree(folders[1], plain)
    assert TransformersEngine(plain, 0, screenshots=FolderBlobs(tmp_path)).version == 0
    (plain / "state.json").unlink()
    assert TransformersEngine(plain, 0, screenshots=FolderBlobs(tmp_path)).version == 0
    with pytest.raises(CheckpointError):
        TransformersEngine(tmp_path / "nowhere", 0, screenshots=FolderBlobs(tmp_path))


def test_no_requests_give_no_answers(folders: tuple[Path, Path], tmp_path: Path) -> None:
    assert TransformersEngine(folders[0], 0, screenshots=FolderBlobs(tmp_path)).generate([]) == []


def test_a_screenshot_that_is_not_what_its_hash_says_is_refused(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    engine = TransformersEngine(folders[0], 0, screenshots=FolderBlobs(tmp_path))
    asked = request(tmp_path)
    path = FolderBlobs(tmp_path).path(asked.screenshot_sha256)
    path.write_bytes(b"something else")
    with pytest.raises(Unanswerable, match=f"{asked.screenshot_sha256}.png has 14 bytes with sha256"):
        engine.generate([asked])
    path.unlink()
    with pytest.raises(Unanswerable, match="is missing"):
        engine.generate([asked])


def test_an_answer_to_a_screenshot_of_another_size_has_pixels_of_that_screenshot(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    engine = TransformersEngine(folders[0], 0, screenshots=FolderBlobs(tmp_path))
    wide = request(tmp_path, history=("click(start_box='(900,100)')",), width=1600)
    (made,) = engine.generate([wide])
    codec = load_codec(folders[0])
    assert list(made.prompt_ids) == codec.encode_prompt(INSTRUCTION, ("click(start_box='(90,100)')",))
    assert made.answer == codec.decode_action(made.token_ids, INSTRUCTION, frame_at_size(1600, 210))


def test_a_screenshot_that_is_no_image_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    engine = TransformersEngine(folders[0], 0, screenshots=FolderBlobs(tmp_path))
    asked = replace(request(tmp_path), screenshot_sha256=FolderBlobs(tmp_path).put(b"no image"))
    with pytest.raises(Unanswerable, match="expected a PNG screenshot, got 8 bytes"):
        engine.generate([asked])


def test_screens_seen_again_are_not_read_again(folders: tuple[Path, Path], tmp_path: Path) -> None:
    prompts = Prompts(load_codec(folders[0]), FolderBlobs(tmp_path), capacity=2)
    first, second, third = (request(tmp_path, seed) for seed in range(3))
    seen = prompts.pending(first).screens[0]
    FolderBlobs(tmp_path).path(first.screenshot_sha256).unlink()
    assert prompts.pending(first).screens[0] is seen
    prompts.pending(second)
    prompts.pending(third)
    with pytest.raises(Unanswerable, match="is missing"):
        prompts.pending(first)


def test_a_prompt_that_is_too_long_is_refused_and_the_engine_goes_on(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    engine = TransformersEngine(folders[0], 0, seed=1, screenshots=FolderBlobs(tmp_path))
    fits = request(tmp_path)
    with pytest.raises(Unanswerable, match="at most 512 text tokens"):
        engine.generate([fits, replace(fits, instruction="注文 " * 400)])
    assert len(engine.generate([fits])) == 1


@pytest.mark.parametrize("length", [500, 512, 513])
def test_long_answers_of_the_past_are_answered_or_refused_and_the_engine_goes_on(
    folders: tuple[Path, Path], tmp_path: Path, length: int
) -> None:
    engine = TransformersEngine(folders[0], 0, seed=1, screenshots=FolderBlobs(tmp_path))
    fits = request(tmp_path)
    asked = replace(fits, history=(f"type(content='{'q' * (length - 3)}')",))
    codec = load_codec(folders[0])
    without = len(codec.encode_prompt(INSTRUCTION, ("wait()",)))
    assert len(codec.encode_prompt(INSTRUCTION, asked.history)) - without == length - 3
    for _ in range(4):  # one answer may end before it reaches the last positions
        if length <= 512:
            engine.generate([asked])
        else:
            with pytest.raises(Unanswerable, match="512 tokens from the step counter on"):
                engine.generate([asked])
    assert len(engine.generate([fits])) == 1


def test_four_hundred_bytes_of_context_fit_the_small_policy_whatever_they_say(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    names = [f"{index}注文履歴" for index in range(30)]
    context = context_of([click(name) for name in names], [(click("注"), Effect.NO_CHANGE)], 400)
    assert len(context.text.encode()) > 350
    engine = TransformersEngine(folders[0], 0, seed=1, screenshots=FolderBlobs(tmp_path))
    engine.generate([replace(request(tmp_path), instruction=EXPLORE + context.text)])
    engine.generate([replace(request(tmp_path), instruction=EXPLORE + "\x7f" * 400)])
