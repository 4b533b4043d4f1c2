"""What others wrote steers no terminal."""

import ast
import io
import tomllib
from pathlib import Path

import pytest
import typer
from rich.console import Console
from rich.text import Text

from dart.cli import output
from dart.cli.exit_codes import ExitCode, end
from dart.cli.output import Format
from dart.config.layers import literal
from dart.inspect.tables import Column
from dart.inspect.terminal_safe import Printable, one_line, printable

REPOSITORY = Path(__file__).resolve().parents[3]
HOSTILE = "a\x1b[2Jb\x9b1mc\rd\x07e\u202ef\ud800g"
HARMLESS = "a␛[2Jb�1mc␍d␇e�f�g"


def test_every_control_character_is_a_letter_and_lines_stay() -> None:
    assert printable(HOSTILE + "\nnext") == HARMLESS + "\nnext"
    assert printable("click “ok” – 日本 é") == "click “ok” – 日本 é"


def test_what_is_to_be_one_line_is_one() -> None:
    assert one_line("a\n12:00:00  paused") == "a⏎12:00:00  paused"


def test_what_is_drawn_keeps_its_colours_and_loses_what_was_written_into_it() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system="standard")
    console.print(Printable(Text(HOSTILE, style="red")))

    drawn = console.file.getvalue()  # type: ignore[attr-defined]

    drawn_by_rich = HARMLESS.replace("␍", "").replace("␇", "")  # it leaves these out by itself
    assert drawn == f"\x1b[31m{drawn_by_rich}\x1b[0m\n"


def test_every_way_out_of_a_command_is_guarded(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(HOSTILE)
    output.print_list([HOSTILE], [Column("said", lambda one: one)], Format.TABLE)
    with pytest.raises(typer.Exit):
        end(HOSTILE, ExitCode.FAILED)

    told = capsys.readouterr()

    assert told.out.split() == [HARMLESS, "said", HARMLESS]
    assert told.err == f"error: {HARMLESS}\n"


GUARDED = {("main.py", "f'dartrl {__version__}'"), ("config.py", "json.dumps(json_schema(), indent=2)")}
"""What is echoed as it is and holds nothing that others wrote."""


def unguarded(file: Path) -> list[str]:
    """What a module of the command line prints past `dart.cli.output`, as it is written."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function, what = ast.unparse(node.func), ast.unparse(node.args[0])
        is_bare = function in ("typer.echo", "print", "click.echo") and (file.name, what) not in GUARDED
        is_drawn = function.lower().endswith("console.print") or function == "Console().print"
        if is_bare or (is_drawn and not what.startswith("Printable(")):
            found.append(f"{file.name}:{node.lineno}: {function}({what})")
    return found


def test_no_command_prints_past_the_functions_that_guard_the_terminal() -> None:
    files = (REPOSITORY / "dart/cli").glob("*.py")
    guards = {"output.py", "exit_codes.py"}
    assert [line for file in files if file.name not in guards for line in unguarded(file)] == []


def test_the_metrics_of_a_run_steer_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dart.cli.web import metrics
    from dart.inspect import metrics as figures
    from tests.recorded_run import record_run

    run_dir = record_run(tmp_path / "run").root
    exposition = figures.exposition
    monkeypatch.setattr(figures, "exposition", lambda snapshot: exposition(snapshot) + HOSTILE + "\n")
    metrics(run_dir=run_dir)
    printed = capsys.readouterr().out
    assert printed.endswith(f"\n{HARMLESS}\n")
    assert "dartrl_run_healthy " in printed


def test_a_value_in_toml_is_the_same_when_it_is_read_and_steers_no_terminal_when_it_is_shown() -> None:
    hostile = HOSTILE.replace("\ud800", "\U0001f600\U000e0001") + "\n\x7f"
    written = literal(hostile)
    assert tomllib.loads(f"value = {written}") == {"value": hostile}
    assert written.isprintable()
