"""Data sets as tasks: which sample a seed shows, what is on which side, and what is refused before a run."""

from pathlib import Path

import pytest

from dart.config.config import Config, ConfigError, load_config
from dart.core import screenspot
from dart.core.boxes import Box
from dart.core.run_directory import RunPaths
from dart.core.screenspot import GroundingDataError, GroundingSample, split_by_image, write_screenspot
from dart.core.seeds import HELD_OUT_SEEDS, MODEL_CARD_SEEDS, TRAINING_SEEDS
from dart.environments.grounding.data_sets import load_data_set
from dart.environments.grounding.environment import make
from dart.preflight.requirements import missing_browser
from tests.unit.grounding.samples import samples


def screens(folder: Path, lefts: range) -> list[GroundingSample]:
    """Two samples for each screen; a screen follows from the place of its red square."""
    places = [{"red": Box(left, 10, left + 10, 20), "blue": Box(5, 100, 20, 120)} for left in lefts]
    return [sample for one in places for sample in samples(folder, one)]


def written(folder: Path, lefts: range) -> Path:
    write_screenspot(folder, screens(folder, lefts))
    return folder


def config_for(*words: str) -> Config:
    return load_config(None, ["environments.kind=grounding", *words])


def images(shown: tuple[GroundingSample, ...]) -> set[str]:
    return {sample.image.name for sample in shown}


def test_screens_are_split_and_never_instructions(tmp_path: Path) -> None:
    held = screens(tmp_path, range(10, 110, 10))
    train, held_out = split_by_image(held, 0.3)

    assert {one.image for one in train}.isdisjoint({one.image for one in held_out})
    assert (len(train), len(held_out)) == (14, 6)
    assert {one.image for one in split_by_image(held[::-1], 0.3)[1]} == {one.image for one in held_out}


def test_training_and_held_out_seeds_show_different_screenshots(tmp_path: Path) -> None:
    data = load_data_set(written(tmp_path / "pages", range(10, 110, 10)), 0.3)
    trained = {data.sample_of(seed).image.name for seed in TRAINING_SEEDS[:200]}
    measured = {
        data.sample_of(seed).image.name for seeds in (HELD_OUT_SEEDS, MODEL_CARD_SEEDS) for seed in seeds[:60]
    }

    assert (len(trained), len(measured)) == (7, 3)
    assert trained.isdisjoint(measured)


def test_consecutive_held_out_seeds_show_every_sample_once(tmp_path: Path) -> None:
    data = load_data_set(written(tmp_path / "pages", range(10, 110, 10)), 0.5)
    shown = [data.sample_of(seed) for seed in HELD_OUT_SEEDS[:10]]

    assert len({(one.image, one.instruction) for one in shown}) == 10
    assert load_data_set(tmp_path / "pages", 0.5) == data


def test_a_folder_with_its_own_split_keeps_it_and_loses_shared_screens_from_training(tmp_path: Path) -> None:
    written(tmp_path / "pages" / "train", range(10, 60, 10))
    written(tmp_path / "pages" / "held-out", range(50, 80, 10))
    data = load_data_set(tmp_path / "pages", 0.9)

    assert (len(images(data.train)), len(images(data.held_out))) == (4, 3)
    assert images(data.train).isdisjoint(images(data.held_out))


def test_a_data_set_with_an_empty_side_is_refused_with_the_remedy(tmp_path: Path) -> None:
    one_screen = written(tmp_path / "one", range(10, 20, 10))
    with pytest.raises(
        GroundingDataError, match="no held-out samples: its 1 screenshots are all in the other"
    ):
        load_data_set(one_screen, 0.2)


def test_a_configuration_without_a_data_set_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"environments\.grounding\.data is empty: name folders"):
        config_for('tasks.train=["grounding/pages"]')


def test_two_data_sets_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="has 2 data sets for the task 'grounding/pages': rename a folder"):
        config_for('tasks.train=["grounding/pages"]', 'environments.grounding.data=["a/pages", "b/pages"]')


def test_a_task_is_the_name_of_a_folder_or_of_an_annotation_file() -> None:
    data = 'environments.grounding.data=["a/pages", "v2/screenspot_web.json"]'
    tasks = ("grounding/pages", "grounding/screenspot_web")
    assert config_for(f"tasks.train={list(tasks)}", data).tasks.train == tasks
    with pytest.raises(ConfigError, match="'grounding/page', which is not a task; did you mean"):
        config_for('tasks.train=["grounding/page"]', data)


@pytest.mark.parametrize("word", ["environments.grounding.spread=1", "environments.grounding.reward=near"])
def test_an_unknown_key_or_reward_is_one_error(word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_for('tasks.train=["grounding/pages"]', 'environments.grounding.data=["a/pages"]', word)
    assert len(refused.value.problems) == 1


def config_of(folder: Path, *words: str) -> Config:
    data = f'environments.grounding.data=["{folder}"]'
    return config_for(f'tasks.train=["grounding/{folder.name}"]', data, *words)


def test_the_configured_share_of_the_screens_is_held_out(tmp_path: Path) -> None:
    folder = written(tmp_path / "pages", range(10, 110, 10))
    config = config_of(folder, "environments.grounding.held_out_share=0.4")
    data = make(config, "env-000", RunPaths(tmp_path / "run"))._data["grounding/pages"]
    assert (len(images(data.train)), len(images(data.held_out))) == (6, 4)


def checked(folder: Path, *words: str) -> list[str]:
    return list(missing_browser(config_of(folder, *words)))


@pytest.mark.parametrize("is_split", [True, False])
def test_only_the_checks_before_a_run_read_every_screenshot_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_split: bool
) -> None:
    if is_split:
        written(tmp_path / "pages" / "train", range(10, 60, 10))
        written(tmp_path / "pages" / "held-out", range(60, 80, 10))
    else:
        written(tmp_path / "pages", range(10, 110, 10))

    def damaged(png: bytes) -> tuple[int, int]:
        raise ValueError("it is damaged")

    monkeypatch.setattr(screenspot, "whole_png_size", damaged)
    make(config_of(tmp_path / "pages"), "env-000", RunPaths(tmp_path / "run"))
    (message,) = checked(tmp_path / "pages")
    assert "cannot be read: it is damaged" in message


def test_a_sound_data_set_has_no_problem_and_one_without_enough_held_out_samples_has(tmp_path: Path) -> None:
    folder = written(tmp_path / "pages", range(10, 110, 10))

    assert checked(folder, "evaluation.seeds_per_task=4", "evaluation.greedy_seeds_per_task=4") == []
    (message,) = checked(folder, "evaluation.seeds_per_task=5", "evaluation.greedy_seeds_per_task=5")
    assert "has 4 held-out samples, but evaluation.seeds_per_task is 5: lower it" in message


def test_a_missing_folder_an_empty_set_and_a_missing_image_are_one_message_each(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "annotations.json").write_text("[]")
    folder = written(tmp_path / "pages", range(10, 110, 10))
    next((folder / "images").iterdir()).unlink()

    for path, part in (
        (tmp_path / "none", "has no annotations"),
        (tmp_path / "empty", "has no samples"),
        (folder, "is missing: searched in"),
    ):
        (message,) = checked(path)
        assert message.startswith("environments.grounding.data: ")
        assert part in message
