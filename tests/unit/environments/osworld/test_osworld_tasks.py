"""Task files in every published form, what is wrong with the others, and how checks are weighed."""

import json
from pathlib import Path
from typing import Any

import pytest

from dart.config.config import Config, trained_tasks
from dart.curation.run_phases import RunPlan
from dart.curation.settings import settings_of
from dart.environments.faults import TaskUnsupported, UnknownTask
from dart.environments.osworld import judging
from dart.environments.osworld.coverage import main
from dart.environments.osworld.misjudged import MISJUDGED
from dart.environments.osworld.tasks import Check, SetupStep, load_task, parse_task, task_ids
from dart.preflight.left_out_tasks import left_out_lines
from dart.run.evaluation import measuring

PLAIN: dict[str, Any] = {
    "id": "x",
    "snapshot": "chrome",
    "instruction": "Do it.",
    "config": [{"type": "sleep", "parameters": {"seconds": 1}}],
    "evaluator": {
        "postconfig": [{"type": "close_window", "parameters": {"window_name": "x"}}],
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": "true"},
        "expected": {"type": "rule", "rules": {"expected": ""}},
        "options": {"a": 1},
    },
}


def with_evaluator(**evaluator: Any) -> dict[str, Any]:
    return PLAIN | {"evaluator": evaluator}


def test_the_plain_form_is_read() -> None:
    task = parse_task("osworld/chrome/x", PLAIN)
    assert (task.instruction, task.snapshot, task.evaluator) == ("Do it.", "chrome", PLAIN["evaluator"])
    assert task.setup == (SetupStep("sleep", {"seconds": 1}),)
    assert task.before_checks == (SetupStep("close_window", {"window_name": "x"}),)
    assert task.checks == (
        Check(
            "exact_match",
            {"type": "vm_command_line", "command": "true"},
            {"type": "rule", "rules": {"expected": ""}},
            {"a": 1},
        ),
    )


def test_the_form_with_lists_is_read() -> None:
    rows = [{"type": "vm_file", "path": "a"}, {"type": "vm_file", "path": "b"}]
    task = parse_task(
        "t", with_evaluator(func=["exact_match", "is_utc_0"], conj="or", result=rows, expected=[rows[0], {}])
    )
    assert [(check.function, check.result, check.expected) for check in task.checks] == [
        ("exact_match", rows[0], rows[0]),
        ("is_utc_0", rows[1], None),
    ]


def test_the_wrapped_form_is_read() -> None:
    assert parse_task("t", {"raw": PLAIN, "task_type": "chrome", "task_id": "x"}) == parse_task("t", PLAIN)


@pytest.mark.parametrize("evaluator", [{"func": "infeasible"}, {"func": ["infeasible"]}])
def test_an_infeasible_task_needs_nothing_but_the_word(evaluator: dict[str, Any]) -> None:
    assert parse_task("t", PLAIN | {"evaluator": evaluator}).is_infeasible


def test_a_task_without_setup_has_none() -> None:
    bare = {key: value for key, value in PLAIN.items() if key not in ("config", "snapshot")}
    task = parse_task("t", bare)
    assert (task.setup, task.snapshot) == ((), "init_state")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({key: PLAIN[key] for key in PLAIN if key != "instruction"}, "has no 'instruction'"),
        (PLAIN | {"instruction": " "}, "expected an instruction, a text that is not blank, got ' '"),
        (with_evaluator(), "has no 'func'"),
        (
            with_evaluator(func=["a", "b"], result=[{}]),
            "evaluator.func names 2 functions, but evaluator.result has 1 entries",
        ),
        (with_evaluator(func="a", conj="xor"), "conj to be 'and' or 'or'"),
        (with_evaluator(func="a", result="text"), "expected a JSON object"),
        (PLAIN | {"config": [{"parameters": {}}]}, "has no 'type'"),
        (
            PLAIN | {"config": [{"type": "launch", "parameters": {"command": 5}}]},
            "expected the command of a step to be a text or a list, got 5",
        ),
        (
            with_evaluator(func="a", result={"type": "cloud_file", "path": "https://x.test/a"}),
            "has no 'dest'",
        ),
        (with_evaluator(func="a", expected={"type": "cache_file"}), "has no 'path'"),
        (
            with_evaluator(
                func="a", result={"type": "cloud_file", "path": ["https://x.test/a"], "dest": "a"}
            ),
            r"expected texts for path and dest of a cloud_file, got \{.*'path': \['https://x.test/a'\]",
        ),
        (
            with_evaluator(func="a", result={"type": "cloud_file", "multi": True, "path": 5, "dest": ["a"]}),
            "expected texts for path and dest of a cloud_file",
        ),
        (
            with_evaluator(
                func="a",
                result={
                    "type": "cloud_file",
                    "multi": True,
                    "path": ["https://x.test/a"],
                    "dest": ["a", "b"],
                },
            ),
            "a cloud_file names files: 1 for path and 2 for dest; give one for each",
        ),
        ([], "its file is wrong"),
    ],
)
def test_what_is_no_task_says_what_is_wrong(data: Any, says: str) -> None:
    with pytest.raises(TaskUnsupported, match=f"osworld/a/b cannot be played here.*{says}"):
        parse_task("osworld/a/b", data)


def test_tasks_are_found_in_a_folder_or_in_a_set(tmp_path: Path) -> None:
    for name in ("chrome/a", "chrome/b", "os/c"):
        path = tmp_path / "examples" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(PLAIN))
    (tmp_path / "set.json").write_text(json.dumps({"chrome": ["b"], "os": ["c"]}))
    assert task_ids(tmp_path / "examples") == ("osworld/chrome/a", "osworld/chrome/b", "osworld/os/c")
    assert task_ids(tmp_path / "set.json") == ("osworld/chrome/b", "osworld/os/c")
    assert load_task("osworld/chrome/b", tmp_path / "set.json").instruction == "Do it."
    with pytest.raises(UnknownTask, match="did you mean osworld/chrome/b"):
        load_task("osworld/chrome/a", tmp_path / "set.json")


def test_a_file_that_is_no_json_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "os").mkdir()
    (tmp_path / "os" / "x.json").write_text("{")
    with pytest.raises(TaskUnsupported, match=r"x\.json cannot be read"):
        load_task("osworld/os/x", tmp_path)


def test_it_is_said_which_tasks_can_be_played_and_what_the_others_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], evaluators: Path
) -> None:
    sound = {
        "func": "compare_audios",
        "result": {"type": "vm_file"},
        "expected": {"type": "googledrive_file"},
    }
    tasks = {
        "os/good": PLAIN,
        "os/impossible": PLAIN | {"evaluator": {"func": "infeasible"}},
        "vlc/sound": PLAIN | {"evaluator": sound, "config": [{"type": "login", "parameters": {}}]},
        "vlc/broken": {"instruction": "x"},
    }
    for name, task in tasks.items():
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(task))
    options = ["--evaluators", str(evaluators)]
    assert main([str(tmp_path), *options]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split() for line in said[:3]] == [
        ["os", "2", "of", "2", "100.0%"],
        ["vlc", "0", "of", "2", "0.0%"],
        ["all", "2", "of", "4", "50.0%"],
    ]
    needs = [
        "the step 'login'",
        "librosa and fastdtw: run `scripts/setup-osworld-score.sh audio`",
        "the function 'get_googledrive_file', which desktop-env 0.0.1 does not have",
        "a valid task file: osworld/vlc/broken cannot be played here: its file has no 'evaluator'",
    ]
    assert {line.split(maxsplit=1)[1] for line in said[3:]} == set(needs)
    assert main([str(tmp_path), *options, "--page"]) == 0
    page = capsys.readouterr().out
    assert f"| `osworld/vlc/sound` | {'; '.join(needs[:3])} |" in page
    assert "| an account | 1 |" in page
    assert main([str(tmp_path / "none"), *options]) == 1
    assert main([str(tmp_path), "--evaluators", str(tmp_path)]) == 1


def test_training_leaves_out_what_is_judged_wrongly_and_evaluations_play_it() -> None:
    wrong = next(iter(MISJUDGED))
    tasks = {"tasks": {"train": ["osworld/os/x", wrong]}, "environments": {"kind": "osworld"}}
    config = Config.model_validate(tasks)
    assert trained_tasks(config) == settings_of(config).tasks == ("osworld/os/x",)
    assert {one.task_id for one in RunPlan(config=config, training_ends_s=0.0).episodes} == {
        "osworld/os/x",
        wrong,
    }


def test_a_start_says_which_tasks_give_no_result_and_why(tmp_path: Path, evaluators: Path) -> None:
    wrong = next(iter(MISJUDGED))
    for task_id, evaluator in {
        wrong: {"func": "exact_match", "result": {"type": "rule"}},
        "osworld/os/fine": {"func": "exact_match", "result": {"type": "rule"}},
        "osworld/os/new": {"func": "check_of_next_year", "result": {"type": "rule"}},
    }.items():
        path = tmp_path / f"{task_id.removeprefix('osworld/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"instruction": "x", "evaluator": evaluator}))
    osworld = {"tasks": str(tmp_path), "evaluators": str(evaluators)}
    config = Config.model_validate(
        {
            "tasks": {"train": [wrong, "osworld/os/fine", "osworld/os/new"]},
            "environments": {"kind": "osworld", "osworld": osworld},
        }
    )

    cannot = [
        "1 of 3 tasks cannot be played here; their episodes end without a result:",
        "  osworld/os/new: the function 'check_of_next_year', which desktop-env 0.0.1 does not have",
    ]
    assert list(left_out_lines(config)) == [
        "1 of 3 tasks are left out of training, because their evaluation is wrong; evaluations play them:",
        f"  {wrong}: {MISJUDGED[wrong]}",
        *cannot,
    ]
    assert list(left_out_lines(measuring(config, tmp_path, tmp_path / "run"))) == cannot


def test_a_task_that_runs_code_is_named_at_the_start_where_there_is_no_sandbox(
    tmp_path: Path, evaluators: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "has_sandbox", lambda: False)
    (tmp_path / "os").mkdir()
    evaluator = {"func": "runs", "result": {"type": "rule"}}
    (tmp_path / "os" / "x.json").write_text(json.dumps({"instruction": "x", "evaluator": evaluator}))
    osworld = {"tasks": str(tmp_path), "evaluators": str(evaluators)}
    config = Config.model_validate(
        {"tasks": {"train": ["osworld/os/x"]}, "environments": {"kind": "osworld", "osworld": osworld}}
    )

    (_, line) = left_out_lines(config)

    assert "bubblewrap" in line
