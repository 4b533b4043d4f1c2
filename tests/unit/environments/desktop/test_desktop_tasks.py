"""The tasks of local desktops: drawn from seeds, solvable from the instruction alone, and strictly judged."""

import pytest

from dart.core.actions import CallUser, Finished, Type, parse_action
from dart.environments.desktop.tasks import (
    State,
    Window,
    answer_of,
    instance_of,
    is_infeasible,
    solution_of,
    task_ids,
)
from dart.environments.faults import UnknownTask

SEEDS = range(30)
LONGEST = 12
"""`curation.step_cap` of configs/desktop.toml."""


def test_there_are_enough_tasks_on_real_applications() -> None:
    feasible = [task_id for task_id in task_ids() if not is_infeasible(task_id)]
    assert len(feasible) >= 15
    used = {app.command[0] for task_id in task_ids() for app in instance_of(task_id, 0).applications}
    assert used == {"mousepad", "galculator", "pcmanfm", "localc", "lowriter"}


@pytest.mark.parametrize("task_id", task_ids())
def test_a_seed_gives_one_instance_and_seeds_differ(task_id: str) -> None:
    one, again = instance_of(task_id, 7), instance_of(task_id, 7)
    assert (one.instruction, one.files) == (again.instruction, again.files)
    if task_id not in ("desktop/files-new-folder",):
        told = {
            (instance_of(task_id, seed).instruction, str(instance_of(task_id, seed).files)) for seed in SEEDS
        }
        assert len(told) > 1


@pytest.mark.parametrize("task_id", task_ids())
def test_every_instance_has_a_solution_that_ends_with_a_declaration(task_id: str) -> None:
    for seed in SEEDS:
        *actions, last = solution_of(instance_of(task_id, seed).instruction)
        assert len(actions) < LONGEST
        assert isinstance(last, CallUser if is_infeasible(task_id) else Finished)


@pytest.mark.parametrize("task_id", task_ids())
def test_nothing_done_is_worth_nothing(task_id: str) -> None:
    instance = instance_of(task_id, 0)
    windows = tuple(
        Window(title="", window_class=(app.window_class,), x=40, y=58, width=640, height=480)
        for app in instance.applications
    )
    files = {name: content for name, content in instance.files.items() if not name.endswith("/")}
    folders = frozenset(name.rstrip("/").partition("/")[0] for name in instance.files if "/" in name)
    active = instance.applications[-1].window_class
    assert not instance.succeeds(State(files=files, folders=folders, windows=windows, active=active))


def test_a_script_is_played_answer_by_answer() -> None:
    instruction = instance_of("desktop/editor-write", 0).instruction
    history: list[str] = []
    while not history or history[-1] != "finished()":
        history.append(answer_of(instruction, history))
    assert [parse_action(answer) for answer in history] == list(solution_of(instruction))
    assert isinstance(parse_action(history[0]), Type)
    assert answer_of(instruction, history) == "finished()"


def test_an_instruction_of_no_task_has_no_solution() -> None:
    with pytest.raises(LookupError, match=r"has the instruction 'Click the button\.'"):
        solution_of("Click the button.")


def test_an_unknown_task_is_said_with_the_nearest_name() -> None:
    with pytest.raises(UnknownTask, match="did you mean desktop/editor-write"):
        instance_of("desktop/editor-wrte", 0)


@pytest.mark.parametrize(
    ("task_id", "spoiled"),
    [
        ("desktop/editor-append", lambda lines: lines),
        ("desktop/editor-append", lambda lines: [*lines, "wrong"]),
        ("desktop/editor-delete-first", lambda lines: lines[:-1]),
        ("desktop/editor-clear", lambda lines: [" "]),
    ],
)
def test_a_text_that_is_almost_right_is_wrong(task_id: str, spoiled: object) -> None:
    instance = instance_of(task_id, 1)
    lines = instance.files["notes.txt"].decode().splitlines()
    content = "\n".join(spoiled(lines)).encode()  # type: ignore[operator]
    assert not instance.succeeds(State(files={"notes.txt": content}))


def test_a_newline_at_the_end_of_a_text_makes_no_difference() -> None:
    instance = instance_of("desktop/editor-delete-first", 1)
    wanted = b"".join(instance.files["notes.txt"].splitlines(keepends=True)[1:])
    assert instance.succeeds(State(files={"notes.txt": wanted}))
    assert instance.succeeds(State(files={"notes.txt": wanted.rstrip(b"\n")}))


@pytest.mark.parametrize("task_id", [task_id for task_id in task_ids() if "/calculator-" in task_id])
def test_no_digit_is_typed_twice_into_the_calculator(task_id: str) -> None:
    for seed in SEEDS:
        typed = [
            one.content
            for one in solution_of(instance_of(task_id, seed).instruction)
            if isinstance(one, Type)
        ]
        assert all(len(set(text)) == len(text) for text in typed)
