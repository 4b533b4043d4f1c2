"""A base policy, made as `dartrl pretrain` makes it: data, training and model card, with a real browser."""

from dataclasses import replace
from pathlib import Path

import pytest

from dart.imitation.pretrain import PretrainConfig, main_job
from dart.policy.small_policy import SmallPolicy

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CONFIG = PretrainConfig(
    episodes=(("miniwob/click-test", 2), ("miniwob/focus-text", 1)),
    measured_tasks=("miniwob/click-test-2",),
    pages=2,
    page_tasks=("miniwob/click-option", "miniwob/login-user"),
    page_emphasis=2.0,
    drawn_pages=2,
    read_pages=2,
    reading_updates=2,
    updates=2,
    batch_size=4,
    environments=2,
    held_out_episodes=1,
)


def test_demonstrations_and_pages_become_a_policy_with_its_card(tmp_path: Path) -> None:
    told: list[str] = []

    main_job(CONFIG, tmp_path / "policy", report=told.append)

    for folder in ("pages", "drawn"):
        assert (tmp_path / "policy/demonstrations" / folder / "annotations.json").exists()
        assert (tmp_path / "policy/demonstrations" / folder / "words.jsonl").exists()
    assert SmallPolicy(tmp_path / "policy").codec.encode_prompt("click the button", ())
    card = (tmp_path / "policy/README.md").read_text()
    assert "1 successful episode of each of `miniwob/focus-text`" in card
    assert "2 pages of 2 tasks" in card
    assert "| `miniwob/click-test-2` |" in card
    assert "2 pages with elements and words drawn at random" in card
    assert {"reading 2 pages of 2 tasks", "drawing 2 pages"} <= set(told)
    losses = [line.split()[2::2] for line in told if line.startswith("update 2/2 ")]
    assert losses == [["reading"], ["answer", "pointer", "naming", "reading"]]


def test_the_data_of_one_policy_makes_another_one(tmp_path: Path) -> None:
    main_job(CONFIG, tmp_path / "first", report=lambda line: None)

    main_job(CONFIG, tmp_path / "second", tmp_path / "first/demonstrations", lambda line: None)

    moved = replace(CONFIG, moved_pages=True)
    main_job(moved, tmp_path / "moved", tmp_path / "first/demonstrations", lambda line: None)

    first, second, on_moved_pages = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second", "moved")
    )
    assert first == second
    assert first != on_moved_pages
