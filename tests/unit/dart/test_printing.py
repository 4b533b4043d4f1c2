"""What others wrote steers no terminal."""

import io

import pytest
import typer
from rich.console import Console
from rich.text import Text

from dart.cli import output
from dart.cli.boundary import end
from dart.cli.exit_codes import ExitCode
from dart.cli.output import Column, Format
from dart.observe.printing import Printable, one_line, printable

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
