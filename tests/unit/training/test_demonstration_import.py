"""Importing demonstrations: what they become, and what is said about bad files."""

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.core.types import Demonstration
from dart.policy.prompt_spec import PromptSpec
from dart.policy.small_policy import load_codec, save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vlm_codec import VisionLanguageCodec, load_vlm_codec
from dart.run.folder_import import import_folders
from dart.store.blobs import FolderBlobs
from dart.store.errors import StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.training import demonstration_format
from dart.training.demonstration_format import BadDemonstrations
from dart.training.demonstration_import import import_demonstrations, read_demonstrations
from tests.pictures import png_of
from tests.tiny_small_policy import tiny_small_policy

INSTRUCTION = 'Enter "ada" into the field and press Submit.'


class ListPool:
    """A pool in memory: knows content by equality."""

    def __init__(self) -> None:
        self.held: list[Demonstration] = []

    def add_demonstrations(self, demonstrations: Sequence[Demonstration]) -> int:
        new = [one for one in demonstrations if one not in self.held]
        self.held += new
        return len(new)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = train_tokenizer([INSTRUCTION])
    save_policy(tiny_small_policy(tokenizer), tokenizer, folder)
    return folder


def png(width: int = 160, shade: int = 0) -> bytes:
    return png_of(Image.new("RGB", (width, 210), (shade, 0, 0)))


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write(episode, …)`: a folder of these episodes, each a change of a good one, and its screenshots."""

    def written(*changes: dict[str, Any], screenshot: bytes = png()) -> Path:
        folder = tmp_path / "demonstrations"
        (folder / "screenshots").mkdir(parents=True)
        sha256 = hashlib.sha256(screenshot).hexdigest()
        (folder / "screenshots" / f"{sha256}.png").write_bytes(screenshot)
        actions = ["click(start_box='(80,112)')", "type(content='ada')"]
        good = {
            "task_id": "miniwob/enter-text",
            "seed": 7,
            "instruction": INSTRUCTION,
            "reward": 1.0,
            "steps": [{"screenshot_sha256": sha256, "action": action} for action in actions],
        }
        lines = [json.dumps(good | change) for change in changes]
        (folder / "demonstrations.jsonl").write_text("\n".join(lines) + "\n")
        return folder

    return written


def test_a_demonstration_has_the_tokens_the_engine_would_have_sampled(write: Write, policy: Path) -> None:
    codec = load_codec(policy)
    (found,) = read_demonstrations(write({}), codec)
    first, second = found.steps
    assert (found.task_id, found.seed, found.origin, found.reward) == ("miniwob/enter-text", 7, "oracle", 1.0)
    assert first.answer == codec.decode_action(first.token_ids, INSTRUCTION)
    assert first.prompt_ids == tuple(codec.encode_prompt(INSTRUCTION, []))
    assert second.prompt_ids == tuple(codec.encode_prompt(INSTRUCTION, [first.answer]))
    assert second.token_ids == tuple(codec.encode_answer("type(content='ada')", INSTRUCTION))
    assert not any(step.has_behaviour or step.entropies for step in found.steps)


def test_importing_twice_adds_once_and_the_run_needs_the_folder_no_more(
    write: Write, policy: Path, tmp_path: Path
) -> None:
    folder, pool, blobs = write({}, {"seed": 8, "origin": "a person"}), ListPool(), FolderBlobs(tmp_path)
    assert import_demonstrations(pool.add_demonstrations, folder, policy, blobs) == (2, 0)
    assert import_demonstrations(pool.add_demonstrations, folder, policy, blobs) == (0, 2)
    assert [one.origin for one in pool.held] == ["oracle", "a person"]
    name = pool.held[0].steps[0].screenshot_sha256
    assert blobs.read(name) == png()


STEP = {"screenshot_sha256": hashlib.sha256(png()).hexdigest(), "action": "finished()"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reward": 0.0}, r"reward: .*greater than 0"),
        ({"reward": 1.5}, r"reward: .*less than or equal to 1"),
        ({"seed": "seven"}, r"seed: .*integer"),
        ({"seed": 1_000_003}, r"seed 1000003 of miniwob/enter-text is reserved for evaluation"),
        ({"steps": []}, r"steps: .*at least 1 item"),
        ({"steps": [STEP, {**STEP, "action": "dance()"}]}, r"dance"),
        ({"steps": [{**STEP, "screenshot_sha256": "../../etc/passwd"}]}, r"steps\.0\.screenshot_sha256: "),
        ({"steps": [{**STEP, "screenshot_sha256": "0" * 64}]}, r"screenshot .*0000\.png cannot be read"),
        ({"instruction": None}, r"instruction: .*string"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_number_and_nothing_is_added(
    write: Write, policy: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    pool = ListPool()
    with pytest.raises(
        BadDemonstrations, match=rf"demonstrations\.jsonl, line 2: .*{said}.*nothing was added"
    ):
        import_demonstrations(
            pool.add_demonstrations, write({}, change), policy, FolderBlobs(tmp_path / "blobs")
        )
    assert pool.held == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sed": 3}, r"sed: unknown key; did you mean seed\?"),
        (
            {"steps": [{**STEP, "log_probs": [-0.1]}]},
            r"steps\.0\.log_probs: unknown key; did you mean logprobs\?",
        ),
        ({"steps": [{**STEP, "thought": "I see it."}]}, r"steps\.0\.thought: unknown key; .*into .answer"),
        ({"seed": 1_000_000_000}, r"expected a training seed from 0 to 999999, got seed 1000000000 of"),
        ({"seed": 2**63}, r"expected a training seed from 0 to 999999, got seed"),
        ({"seed": 10**300}, r"expected a training seed from 0 to 999999, got seed"),
        ({"seed": -1}, r"seed: "),
        ({"instruction": "word " * 10_000}, r"instruction: .*at most 32000 characters"),
        ({"task_id": "t" * 300}, r"task_id: .*at most 200 characters"),
        ({"task_id": "a\0b"}, r"task_id: "),
        ({"origin": "\x1b[31m"}, r"origin: "),
        (
            {"steps": [{**STEP, "action": f"type(content='{'a' * 40_000}')"}]},
            r"steps\.0\.action: .*at most 32000",
        ),
        ({"steps": [STEP] * 1_001}, r"steps: .*at most 1000 items"),
        (
            {"steps": [{**STEP, "answer": "finished()"}]},
            r"steps\.0: .*exactly one of action, answer and token_ids",
        ),
        ({"steps": [{"screenshot_sha256": STEP["screenshot_sha256"]}]}, r"steps\.0: .*exactly one of"),
        ({"steps": [{**STEP, "logprobs": [-0.1]}]}, r"steps\.0: .*logprobs belong to token_ids"),
    ],
)
def test_what_no_line_may_hold_is_refused_with_its_key(
    write: Write, policy: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadDemonstrations, match=rf"(?s)line 1: {said}.*nothing was added"):
        read_demonstrations(write(change), load_codec(policy))


def sampled(policy: Path, **changes: Any) -> dict[str, Any]:
    """One step as another run of this policy recorded it."""
    token_ids = load_codec(policy).encode_answer("click(start_box='(80,112)')", INSTRUCTION)
    step = {"token_ids": token_ids, "logprobs": [-0.5] * len(token_ids)} | changes
    return {"steps": [{"screenshot_sha256": STEP["screenshot_sha256"], **step}]}


def test_token_ids_and_log_probs_come_in_as_they_were_sampled(write: Write, policy: Path) -> None:
    codec = load_codec(policy)
    change = sampled(policy)
    (found,) = read_demonstrations(write(change), codec)
    (step,) = found.steps
    assert list(step.token_ids) == change["steps"][0]["token_ids"]
    assert step.logprobs == (-0.5,) * len(step.token_ids)
    assert step.entropies == ()
    assert step.answer == codec.decode_action(step.token_ids, INSTRUCTION)


def test_a_raw_answer_of_the_small_policy_is_its_action(write: Write, policy: Path) -> None:
    change = {"steps": [{**STEP, "action": None, "answer": "click(start_box='(80,112)')"}]}
    (found,) = read_demonstrations(write(change), load_codec(policy))
    assert found.steps[0].token_ids == tuple(
        load_codec(policy).encode_answer("click(start_box='(80,112)')", INSTRUCTION)
    )
    assert not found.lacks_thought  # it has none to say


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"logprobs": [-0.5]}, "expected one log-prob for each"),
        ({"logprobs": None, "token_ids": [10**7]}, r"token id 10000000 .*vocabulary"),
        ({"logprobs": None, "token_ids": [10**30]}, "token_ids"),
        ({"logprobs": None, "token_ids": [-1]}, "token_ids"),
        ({"logprobs": None, "token_ids": [5, 6, 7]}, "expected one of the actions"),
        ({"logprobs": None, "token_ids": [5] * 20_000}, "at most 16384 items"),
        ({"logprobs": [0.5, 0.5, 0.5, 0.5]}, r"logprobs\.0: .*less than or equal to 0"),
    ],
)
def test_tokens_that_this_policy_cannot_have_said_are_refused(
    write: Write, policy: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadDemonstrations, match=rf"(?s)line 1: .*{said}"):
        read_demonstrations(write(sampled(policy, **change)), load_codec(policy))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"instruction": "word " * 700}, "at most 512 text tokens"),
        ({"steps": [{**STEP, "action": f"type(content='{'wxyz ' * 300}')"}]}, "answers of at most 512"),
        (
            {"steps": [*[{**STEP, "action": f"type(content='{'q' * 300}')"}] * 2, STEP]},
            "512 tokens from the step counter on",
        ),
    ],
)
def test_an_episode_that_is_too_long_for_the_small_policy_is_refused_with_its_line(
    write: Write, policy: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadDemonstrations, match=f"line 2: .*{said}.*nothing was added"):
        read_demonstrations(write({}, change), load_codec(policy))


def test_a_vision_language_policy_takes_longer_episodes(write: Write, thinking: VisionLanguageCodec) -> None:
    (found,) = read_demonstrations(write({"instruction": "word " * 700}), thinking)
    assert len(found.steps[0].prompt_ids) > 700


def test_a_file_that_is_not_utf_8_is_named_with_its_line(write: Write, policy: Path) -> None:
    folder = write({})
    with (folder / "demonstrations.jsonl").open("ab") as lines:
        lines.write(b"\xff\xfe{}\n")
    with pytest.raises(BadDemonstrations, match=r"line 2: .*UTF-8"):
        read_demonstrations(folder, load_codec(policy))


def test_a_line_longer_than_any_episode_is_refused_unread(
    write: Write, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demonstration_format, "MOST_LINE_BYTES", 2_000)
    folder = write({}, {"instruction": "word " * 1_000})
    with pytest.raises(BadDemonstrations, match=r"line 2: the line has more than 2000 bytes"):
        read_demonstrations(folder, load_codec(policy))


def bomb(width_px: int, height_px: int) -> bytes:
    """A PNG whose header says so many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width_px, height_px, 1, 0, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_a_screenshot_that_would_fill_the_memory_is_refused_by_its_header(write: Write, policy: Path) -> None:
    with pytest.raises(
        BadDemonstrations, match=r"line 1: expected a PNG screenshot .* 50000x50000 pixels; at most"
    ):
        read_demonstrations(write({}, screenshot=bomb(50_000, 50_000)), load_codec(policy))


def test_a_screenshot_of_too_many_bytes_is_refused(
    write: Write, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demonstration_format, "MOST_SCREENSHOT_BYTES", 100)
    with pytest.raises(BadDemonstrations, match=r"line 1: screenshot .* has more than 100 bytes"):
        read_demonstrations(write({}), load_codec(policy))


def test_what_is_no_plain_file_is_not_waited_for(write: Write, policy: Path) -> None:
    folder = write({})
    (path,) = (folder / "screenshots").iterdir()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BadDemonstrations, match=r"line 1: screenshot .* is not a regular file"):
        read_demonstrations(folder, load_codec(policy))


# ---- a policy that thinks ----


THOUGHT = "Thought: I see the button.\nAction: click(start_box='(84,112)')"


@pytest.fixture(scope="module")
def thinking(tiny_qwen: Path) -> VisionLanguageCodec:
    return load_vlm_codec(tiny_qwen, PromptSpec())


def test_a_raw_answer_keeps_its_thought_and_an_action_has_none(
    write: Write, thinking: VisionLanguageCodec
) -> None:
    said = {"steps": [{**STEP, "action": None, "answer": THOUGHT}]}
    acted = {"steps": [STEP]}
    whole, bare = read_demonstrations(write(said, acted), thinking)
    assert (whole.lacks_thought, bare.lacks_thought) == (False, True)
    text = thinking.tokenizer.decode(whole.steps[0].token_ids)
    assert text == f"{THOUGHT}{thinking.tokenizer.decode(thinking.end_ids[-1:])}"
    assert whole.steps[0].token_ids[-1] in thinking.end_ids


@pytest.mark.parametrize("special", ["<|im_end|>", "<|image_pad|>"])
def test_no_end_and_no_picture_hides_in_a_raw_answer(
    write: Write, thinking: VisionLanguageCodec, special: str
) -> None:
    hidden = {"steps": [{**STEP, "action": None, "answer": f"Thought: {special}\nAction: wait()"}]}
    with pytest.raises(BadDemonstrations, match=r"line 2: .*special token"):
        read_demonstrations(write({}, hidden), thinking)


@pytest.mark.parametrize("special", ["<|image_pad|>", "<|vision_start|>"])
def test_no_picture_hides_in_the_tokens_of_an_answer(
    write: Write, thinking: VisionLanguageCodec, special: str
) -> None:
    text = f"Thought: {special}\nAction: wait()"
    token_ids = [*thinking.tokenizer.encode(text, add_special_tokens=False), thinking.end_ids[0]]
    hidden = {"steps": [{**STEP, "action": None, "token_ids": token_ids}]}
    with pytest.raises(BadDemonstrations, match=r"line 2: token id \d+ stands for images"):
        read_demonstrations(write({}, hidden), thinking)


def test_a_line_that_is_no_json_is_named(write: Write, policy: Path) -> None:
    folder = write({})
    with (folder / "demonstrations.jsonl").open("a") as lines:
        lines.write('\n{"task_id": \n')
    with pytest.raises(BadDemonstrations, match=r"line 3: the line: Invalid JSON"):
        read_demonstrations(folder, load_codec(policy))


def test_a_demonstration_on_a_larger_screen_keeps_its_points_in_pixels_of_that_screen(
    write: Write, policy: Path
) -> None:
    large, click = png(width=640), "click(start_box='(600,112)')"
    shown = {"screenshot_sha256": hashlib.sha256(large).hexdigest()}
    change = {"steps": [{**shown, "action": click}, {**shown, "action": "wait()"}]}
    codec = load_codec(policy)
    ((first, second),) = (one.steps for one in read_demonstrations(write(change, screenshot=large), codec))
    assert first.answer == "click(start_box='(600,114)')"
    assert list(first.token_ids) == codec.encode_answer("click(start_box='(150,112)')", INSTRUCTION)
    assert list(second.prompt_ids) == codec.encode_prompt(INSTRUCTION, ["click(start_box='(150,112)')"])


def test_a_screenshot_that_is_no_picture_is_refused(write: Write, policy: Path) -> None:
    with pytest.raises(BadDemonstrations, match="line 1: expected a PNG screenshot"):
        read_demonstrations(write({}, screenshot=b"no picture"), load_codec(policy))


def test_a_screenshot_that_was_changed_is_refused(write: Write, policy: Path) -> None:
    folder = write({})
    (path,) = (folder / "screenshots").iterdir()
    path.write_bytes(png(shade=9))
    with pytest.raises(BadDemonstrations, match="does not match its name"):
        read_demonstrations(folder, load_codec(policy))


def test_a_folder_without_demonstrations_is_named_with_the_remedy(tmp_path: Path, policy: Path) -> None:
    with pytest.raises(BadDemonstrations, match=r"demonstrations\.jsonl cannot be read: .*--out FOLDER"):
        read_demonstrations(tmp_path, load_codec(policy))


def test_a_file_without_episodes_is_refused_with_the_remedy(write: Write, policy: Path) -> None:
    folder = write({})
    (folder / "demonstrations.jsonl").write_text("\n")
    with pytest.raises(BadDemonstrations, match=r"demonstrations\.jsonl, found none; .*--out FOLDER"):
        read_demonstrations(folder, load_codec(policy))


def run_with(policy: Path, *folders: Path) -> Config:
    return Config.model_validate(
        {
            "tasks": {"train": ["miniwob/enter-text"]},
            "training": {"policy": policy},
            "curation": {"experience_pool": {"folders": folders}},
        }
    )


def test_folders_fill_a_record_and_what_is_wrong_is_raised(
    write: Write, policy: Path, tmp_path: Path
) -> None:
    folder = write({}, {"seed": 8})
    before = read_demonstrations(folder, load_codec(policy))
    fill = partial(import_folders, run_with(policy, folder, folder), RunPaths(tmp_path))
    with pytest.raises(StoreUnavailable, match=r"store\.db does not exist"):
        fill()
    Store(tmp_path / "store.db").close()
    fill()
    fill()
    (folder / "demonstrations.jsonl").write_text("{}")
    with pytest.raises(BadDemonstrations, match="line 1: task_id: Field required"):
        fill()
    (folder / "demonstrations.jsonl").unlink()  # as if the folder was moved
    with pytest.raises(BadDemonstrations, match=rf"cannot be read.*; or take {folder} out of .*folders: the"):
        fill()
    with StoreReader(tmp_path / "store.db") as store:
        assert [(one.task_id, one.num_steps) for one in store.demonstrations()] == [
            ("miniwob/enter-text", 2)
        ] * 2
        assert store.demonstration(1).steps == before[0].steps


def test_a_start_imports_the_demonstrations_of_its_tasks_only(
    write: Write, policy: Path, tmp_path: Path
) -> None:
    folder = write({}, {"task_id": "miniwob/click-tab"})
    Store(tmp_path / "store.db").close()
    import_folders(run_with(policy, folder), RunPaths(tmp_path))
    with StoreReader(tmp_path / "store.db") as store:
        assert [one.task_id for one in store.demonstrations()] == ["miniwob/enter-text"]


def test_a_start_does_not_bring_back_what_was_dropped(write: Write, policy: Path, tmp_path: Path) -> None:
    record = tmp_path / "store.db"
    folder = write({}, {"seed": 8})
    fill = partial(import_folders, run_with(policy, folder), RunPaths(tmp_path))
    Store(record).close()
    fill()
    with Store(record) as store:
        store.drop_demonstration(1)
    fill()
    with StoreReader(record) as reader:
        assert [one.dropped for one in reader.demonstrations()] == [True, False]


def test_the_box_of_a_steps_element_is_kept_and_one_off_the_screen_is_refused(
    write: Write, policy: Path, tmp_path: Path
) -> None:
    sha256 = hashlib.sha256(png()).hexdigest()
    step = {"screenshot_sha256": sha256, "action": "click(start_box='(80,112)')"}
    (found,) = read_demonstrations(
        write({"steps": [step | {"box": [70, 100, 90.5, 120]}, step]}), load_codec(policy)
    )
    assert [one.box for one in found.steps] == [(70.0, 100.0, 90.5, 120.0), None]
    (tmp_path / "demonstrations").rename(tmp_path / "first")
    with pytest.raises(BadDemonstrations, match="inside the screenshot of 160x210 pixels"):
        list(read_demonstrations(write({"steps": [step | {"box": [150, 0, 170, 9]}]}), load_codec(policy)))
