"""One record is printed the same way by every command."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dart.cli.main import app
from dart.cli.output import Format, print_data, print_list
from dart.cli.trajectories import COLUMNS as TRAJECTORY_COLUMNS
from dart.cli.versions import CHECKPOINT_COLUMNS, VERSION_COLUMNS
from dart.inspect.policy_versions import CheckpointRow, VersionRow
from dart.inspect.tables import Column, table
from dart.store.browse_queries import TrajectorySummary
from tests.recorded_run import record_run

T = TypeVar("T")


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    size_bytes: int


@dataclass(frozen=True)
class Thing:
    name: str
    colour: Colour
    inner: Inner | None = None


THINGS = [Thing("[red]a", Colour.RED, Inner(3)), Thing("b" * 30, Colour.RED)]
COLUMNS: list[Column[Thing]] = [
    Column("name", lambda thing: thing.name, width_max=10),
    Column("bytes", lambda thing: thing.inner and thing.inner.size_bytes, is_number=True),
    Column("colour", lambda thing: thing.colour, is_wide=True),
]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_status_shortens_nothing_where_the_output_is_no_terminal(tmp_path: Path) -> None:
    paths = record_run(tmp_path / "run")

    for words in ([], ["-o", "wide"]):
        found = CliRunner().invoke(
            app, ["status", "--run-dir", str(paths.root), *words], env={"COLUMNS": "40"}
        )
        assert "NOT RUNNING" in found.stdout
        assert "…" not in found.stdout


def test_the_table_of_tasks_counts_dropped_groups(tmp_path: Path) -> None:
    paths = record_run(tmp_path / "run")

    found = CliRunner().invoke(app, ["tasks", "list", "--run-dir", str(paths.root)])

    assert "dropped groups" in found.stdout.splitlines()[0]


def test_events_that_nothing_matches_are_said_beside_the_output(tmp_path: Path) -> None:
    of_run = ["--run-dir", str(record_run(tmp_path / "run").root)]

    for words in (["--for", "env-999"], ["--kind", "starved"]):
        found = CliRunner().invoke(app, ["events", *words, *of_run])
        assert (found.exit_code, found.stdout) == (0, "")
        assert found.stderr.startswith("no event matches")
    assert CliRunner().invoke(app, ["events", "--for", "env-999", "-o", "json", *of_run]).output == "[]\n"


def at_80_columns(row: T, columns: Sequence[Column[T]]) -> str:
    """The table of one row on a terminal of 80 columns."""
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(table([row], columns))
    return console.export_text()


def test_a_table_of_versions_has_room_for_times_and_the_engine_at_80_columns() -> None:
    metrics = {"steps": 123.0, "loss": -0.0284, "kl": 0.29, "entropy": 0.874, "staleness_mean": 1.25}
    row = VersionRow(
        version=123,
        created_unix_s=0.0,
        checkpoint="",
        is_kept=True,
        served_by=("rollout-0",),
        metrics=metrics | {"grad_norm": 12.5},
    )
    assert "…" not in (shown := at_80_columns(row, VERSION_COLUMNS))
    assert "rollout-0" in shown


def test_a_table_of_trajectories_says_the_whole_fate_at_80_columns() -> None:
    row = TrajectorySummary(
        rollout_id=12345,
        group_id=1,
        task_id="osworld/libreoffice_calc/21df9241-f8d7-4509-b7f1-37e501a823f7",
        seed=1,
        environment="env-000",
        outcome="parse_error",
        reward=0.0,
        num_steps=12,
        oldest_version=31,
        stored_unix_s=1.7e9,
        duration_s=3.0,
        state="dropped",
        drop_reason="screenshots_lost",
    )
    lines = at_80_columns(row, TRAJECTORY_COLUMNS).splitlines()
    begins = lines[0].index("fate")
    assert "".join(line[begins:].strip() for line in lines[1:]) == "dropped,screenshots_lost"


def test_a_list_of_actors_that_never_ended_has_no_column_of_reasons(tmp_path: Path) -> None:
    of_run = ["--run-dir", str(record_run(tmp_path / "run").root)]

    every = CliRunner().invoke(app, ["actors", "list", *of_run])
    well = CliRunner().invoke(app, ["actors", "list", "--under", "trainer", *of_run])

    assert "last reason" in every.output
    assert "trainer" in well.output
    assert "last reason" not in well.output


def test_the_folder_of_a_checkpoint_is_whole_on_a_narrow_terminal() -> None:
    folder = f"/{'x' * 120}/checkpoints/000012"
    row = CheckpointRow(version=12, folder=folder, written_unix_s=0.0, size_bytes=10**9, is_complete=True)
    parts = [line.split()[-1] for line in at_80_columns(row, CHECKPOINT_COLUMNS).splitlines()[1:]]
    assert "".join(parts) == folder


def test_a_table_cuts_what_is_long_and_takes_no_name_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(THINGS, COLUMNS, Format.TABLE)

    assert lines(capsys) == ["name        bytes", "[red]a          3", "bbbbbbbbb…      –"]


def test_a_wide_table_has_every_column_and_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(THINGS, COLUMNS, Format.WIDE)

    assert lines(capsys)[2].split() == ["b" * 30, "–", "red"]


def test_json_is_one_list_with_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(THINGS, COLUMNS, Format.JSON)

    (line,) = lines(capsys)
    assert json.loads(line)[0] == {"name": "[red]a", "colour": "red", "inner": {"size_bytes": 3}}


def test_jsonl_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(THINGS, COLUMNS, Format.JSONL)

    assert [json.loads(line)["name"] for line in lines(capsys)] == ["[red]a", "b" * 30]


def test_no_rows_are_said_to_a_person_and_an_empty_list_to_a_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_list([], COLUMNS, Format.TABLE, empty="there is nothing")
    print_list([], COLUMNS, Format.JSON, empty="there is nothing")

    assert lines(capsys) == ["there is nothing", "[]"]


def test_one_value_is_one_line_in_both_kinds_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    for output in (Format.JSON, Format.JSONL):
        print_data({"thing": THINGS[0]}, output)

    first, second = lines(capsys)
    assert first == second
    assert json.loads(first)["thing"]["inner"] == {"size_bytes": 3}


def test_a_short_option_asks_for_json(tmp_path: Path) -> None:
    record_run(tmp_path / "run")

    for words in (["-o", "json"], ["--json"]):
        ended = CliRunner().invoke(app, ["actors", "list", "--run-dir", str(tmp_path / "run"), *words])
        assert json.loads(ended.stdout)[0]["name"]


def test_a_command_without_this_option_refuses_the_word_that_was_written() -> None:
    ended = CliRunner().invoke(app, ["train", "--json"])
    assert ended.exit_code == 2
    assert "No such option: --json" in ended.stderr
