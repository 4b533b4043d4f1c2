"""The demonstrations that come with dartrl fit its policies and its tasks."""

from collections import Counter
from pathlib import Path

import pytest

from dart.config.bundled import bundled_folder
from dart.config.config import Config
from dart.environments.miniwob.demonstrations import MINIWOB
from dart.imitation.pretrain import UNSEEN_TASKS
from dart.policy.load import load_codec
from dart.training.demonstration_import import read_demonstrations

FOLDER = bundled_folder() / "demonstrations"


@pytest.mark.parametrize("policy", ["base-policy", "base-policy-pointer"])
def test_there_are_ten_successes_of_each_task_with_an_oracle(policy: str) -> None:
    demonstrations = read_demonstrations(FOLDER, load_codec(bundled_folder() / policy))

    assert Counter(one.task_id for one in demonstrations) == dict.fromkeys(MINIWOB.tasks, 10)
    assert {one.reward for one in demonstrations} == {1.0}


def test_the_laptop_job_and_the_second_set_have_some() -> None:
    assert {*Config().tasks.train, *UNSEEN_TASKS} <= set(MINIWOB.tasks)


def test_every_screenshot_belongs_to_a_demonstration() -> None:
    text = (FOLDER / "demonstrations.jsonl").read_text()

    assert [path for path in Path(FOLDER, "screenshots").iterdir() if path.stem not in text] == []
