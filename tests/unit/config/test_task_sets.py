"""Named sets of tasks, and lists of tasks in files."""

import json
from collections import Counter
from pathlib import Path

import pytest

from dart.config.bundled import bundled_folder
from dart.config.config import load_config
from dart.config.task_sets import TASK_SETS, task_set, tasks_named
from dart.core.errors import ConfigurationError


def test_the_sets_of_osworld_have_as_many_tasks_as_was_published() -> None:
    everything = task_set("osworld-369")
    assert Counter(task.split("/")[1] for task in everything) == {
        "chrome": 46,
        "gimp": 26,
        "libreoffice_calc": 47,
        "libreoffice_impress": 47,
        "libreoffice_writer": 23,
        "multi_apps": 101,
        "os": 24,
        "thunderbird": 15,
        "vlc": 17,
        "vs_code": 23,
    }
    without_drive = task_set("osworld-361")
    assert {task.split("/")[1] for task in set(everything) - set(without_drive)} == {"multi_apps"}
    assert len(without_drive) == 361
    assert set(task_set("osworld-ablation-45")) <= set(without_drive)


def test_the_ablations_tasks_are_those_that_the_main_job_trains() -> None:
    job = load_config(bundled_folder() / "osworld-uitars-7b.toml")
    assert set(task_set("osworld-ablation-45")) == set(job.tasks.train)


def test_sets_files_and_ids_are_joined_and_each_task_is_named_once(tmp_path: Path) -> None:
    lines = tmp_path / "mine.txt"
    lines.write_text("# mine\nminiwob/click-test\n\nminiwob/click-tab # hard\n")
    published = tmp_path / "theirs.json"
    published.write_text(json.dumps({"os": ["a", "b"], "vlc": ["c"]}))
    named = tasks_named([str(lines), "miniwob/click-test", str(published)])
    assert named == (
        "miniwob/click-test",
        "miniwob/click-tab",
        "osworld/os/a",
        "osworld/os/b",
        "osworld/vlc/c",
    )
    assert len(tasks_named(TASK_SETS)) == 369


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("osworld-360", None, "is not a set of tasks; did you mean osworld-369 or osworld-361?"),
        ("gone.txt", None, "No such file"),
        ("empty.txt", "# nothing\n", "lists no tasks; write one task id per line"),
        ("list.json", "[1]", "expected one task id per line, or in a .json file an object"),
        ("deep.json", "[" * 10_000, "expected one task id per line, or in a .json file an object"),
        ("broken.json", "{", "expected one task id per line, or in a .json file an object"),
    ],
)
def test_what_names_no_tasks_is_refused_with_what_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | None, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_text(content)
    with pytest.raises(ConfigurationError, match="--tasks") as refused:
        tasks_named([name])
    assert problem in str(refused.value)
