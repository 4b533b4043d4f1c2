"""Importing demonstrations: what they become, and what is said about bad files."""

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dart.policy.checkpoint import load_codec, save_policy
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import new_policy
from dart.policy.tokenizer import train_tokenizer
from dart.store.reader import StoreReader
from dart.training.demonstrations import BadDemonstrations, import_demonstrations, main, read_demonstrations
from dart.types import Demonstration

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
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "stem_channels": (4, 4, 4, 8),
        "pointer_size": 8,
    }
    save_policy(new_policy(GuiPolicyConfig(vocab_size=len(tokenizer), **sizes), seed=0), tokenizer, folder)
    return folder


def png(width: int = 160, shade: int = 0) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (width, 210), (shade, 0, 0)).save(content, "PNG")
    return content.getvalue()


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
            "steps": [{"screenshot_sha256": sha256, "action": action, "target": None} for action in actions],
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
    assert first.answer == codec.decode_answer(first.token_ids, INSTRUCTION)
    assert first.prompt_ids == tuple(codec.encode_prompt(INSTRUCTION, []))
    assert second.prompt_ids == tuple(codec.encode_prompt(INSTRUCTION, [first.answer]))
    assert second.token_ids == tuple(codec.encode_answer("type(content='ada')", INSTRUCTION))
    assert not any(step.has_behaviour or step.entropies for step in found.steps)


def test_importing_twice_adds_once_and_the_run_needs_the_folder_no_more(
    write: Write, policy: Path, tmp_path: Path
) -> None:
    folder, pool, blobs = write({}, {"seed": 8, "origin": "a person"}), ListPool(), tmp_path / "blobs"
    assert import_demonstrations(pool, folder, policy, blobs) == (2, 0)
    assert import_demonstrations(pool, folder, policy, blobs) == (0, 2)
    assert [one.origin for one in pool.held] == ["oracle", "a person"]
    name = pool.held[0].steps[0].screenshot_sha256
    assert (blobs / name[:2] / f"{name}.png").read_bytes() == png()


STEP = {"screenshot_sha256": hashlib.sha256(png()).hexdigest(), "action": "finished()"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reward": 0.0}, r"reward: .*greater than 0"),
        ({"reward": 1.5}, r"reward: .*less than or equal to 1"),
        ({"seed": "seven"}, r"seed: .*integer"),
        ({"seed": 1_000_003}, r"seed 1000003 of miniwob/enter-text is kept for evaluation"),
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
        import_demonstrations(pool, write({}, change), policy, tmp_path / "blobs")
    assert pool.held == []


def test_a_line_that_is_no_json_is_named(write: Write, policy: Path) -> None:
    folder = write({})
    with (folder / "demonstrations.jsonl").open("a") as lines:
        lines.write('\n{"task_id": \n')
    with pytest.raises(BadDemonstrations, match=r"line 3: the line: Invalid JSON"):
        read_demonstrations(folder, load_codec(policy))


@pytest.mark.parametrize("screenshot", [png(width=640), b"no picture"])
def test_screenshots_of_another_frame_are_refused(write: Write, policy: Path, screenshot: bytes) -> None:
    with pytest.raises(BadDemonstrations, match=r"line 1: expected a (PNG )?screenshot"):
        read_demonstrations(write({}, screenshot=screenshot), load_codec(policy))


def test_a_screenshot_that_was_changed_is_refused(write: Write, policy: Path) -> None:
    folder = write({})
    (path,) = (folder / "screenshots").iterdir()
    path.write_bytes(png(shade=9))
    with pytest.raises(BadDemonstrations, match="is not what its name says"):
        read_demonstrations(folder, load_codec(policy))


def test_a_folder_without_demonstrations_is_named_with_the_remedy(tmp_path: Path, policy: Path) -> None:
    with pytest.raises(BadDemonstrations, match=r"demonstrations\.jsonl cannot be read: .*--out FOLDER"):
        read_demonstrations(tmp_path, load_codec(policy))


def test_the_command_fills_the_record_and_tells_what_is_wrong_as_data(
    write: Write,
    policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write({}, {"seed": 8})
    before = read_demonstrations(folder, load_codec(policy))
    argv = ["import", *map(str, (tmp_path / "store.db", tmp_path / "blobs", policy, folder))]
    monkeypatch.setattr("sys.argv", argv)
    main()
    main()
    (folder / "demonstrations.jsonl").write_text("{}")
    main()
    first, again, failed = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first, again) == ({"added": 2, "known": 0}, {"added": 0, "known": 2})
    assert "line 1: task_id: Field required" in failed["failed"]
    assert failed["disk"] is False
    with StoreReader(tmp_path / "store.db") as store:
        assert [(one.task_id, one.num_steps) for one in store.demonstrations()] == [
            ("miniwob/enter-text", 2)
        ] * 2
        assert store.demonstration(1).steps == before[0].steps
