"""What is said about the demonstrations of a pool."""

from dataclasses import replace

import pytest

from dart.config.config import Config, load_config
from dart.core.records import DemonstrationSummary
from dart.inspect.task_reports import about_pool, remarks

TASK = "miniwob/click-test"
ONE = DemonstrationSummary(
    pool_id=3, task_id=TASK, seed=3, origin="oracle", reward=1.0, num_steps=2, uses=0, dropped=False
)


def config_with(**pool: bool) -> Config:
    switches = [f"curation.experience_pool.{name}={str(value).lower()}" for name, value in pool.items()]
    return load_config(None, [f"tasks.train=['{TASK}']", "curation.experience_pool.enabled=true", *switches])


def test_a_demonstration_of_a_screen_that_follows_from_its_seed_is_said_to_join_that_seed_only() -> None:
    (line,) = about_pool([ONE], config_with())
    assert "groups of its own seed only" in line
    assert about_pool([], config_with()) == []


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ({}, "not trained on; set curation.experience_pool.self_rolled"),
        ({"self_rolled": True}, "not trained on; the policy plays with their actions as hints"),
        ({"without_thought": True}, "learns to leave its thoughts out"),
    ],
)
def test_it_is_said_how_many_have_no_thought_and_what_becomes_of_them(
    pool: dict[str, bool], said: str
) -> None:
    line = about_pool([ONE, replace(ONE, lacks_thought=True)], config_with(**pool))[0]
    assert line.startswith("demonstrations without a thought: 1; ")
    assert said in line


def test_it_is_said_how_many_are_no_successes_and_not_used() -> None:
    line = about_pool([ONE, replace(ONE, reward=0.5)], config_with())[0]
    assert line == (
        "demonstrations whose reward is no success: 1; they are not used, because their reward is not above "
        "curation.success_above (0.5)"
    )


def test_it_is_said_how_many_are_of_tasks_that_the_run_does_not_train_and_that_a_pool_is_off() -> None:
    off = config_with()
    curation = off.curation.model_copy(
        update={"experience_pool": off.curation.experience_pool.model_copy(update={"enabled": False})}
    )
    first, *_, last = about_pool(
        [ONE, *[replace(ONE, task_id="miniwob/other")] * 2], off.model_copy(update={"curation": curation})
    )

    assert first == "demonstrations of tasks that this run does not train: 2"
    assert last.startswith("the run does not use its pool: set curation.experience_pool.enabled")
    assert not any("does not use its pool" in line for line in about_pool([ONE], config_with()))


@pytest.mark.parametrize(
    ("different", "said"),
    [
        ({}, ""),
        ({"lacks_thought": True, "rolls": 2}, "guided 2 times, no thought"),
        ({"guide_id": 1, "dropped": True}, "self-rolled with hints of 1, dropped"),
    ],
)
def test_the_list_of_the_pool_says_what_is_special_about_one(different: dict[str, object], said: str) -> None:
    assert remarks(replace(ONE, **different)) == said  # type: ignore[arg-type]
