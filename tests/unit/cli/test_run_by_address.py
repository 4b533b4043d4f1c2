"""A run that is named by the address of its record: what is refused before anything is asked."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.cli.options import is_address

HERE_ONLY = (
    *(("checkpoints", "list"), ("policy", "versions"), ("pool", "drop", "1"), ("actors", "stack", "root")),
    *(("pool", "import", "folder"), ("doctor",), ("doctor", "--data")),
)
ADDRESS = "postgresql://dartrl@db.invalid/run"


def run(*words: str, at: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*words, "--run-dir", at])
    return result.exit_code, result.output


@pytest.mark.parametrize("words", HERE_ONLY)
def test_a_command_on_files_says_where_to_run_it_without_asking(words: tuple[str, ...]) -> None:
    code, output = run(*words, at=ADDRESS)
    assert (code, "run it on the control node" in output) == (2, True)


@pytest.mark.parametrize("words", [("status",), ("tree",), ("down",), ("pause",), ("why", "env-000")])
@pytest.mark.parametrize(
    "address",
    ["postgresql://u:hidden@h/run", "postgresql://h/run?password=hidden", "postgresql://u:hidden@h:x/run"],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(words: tuple[str, ...], address: str) -> None:
    code, output = run(*words, at=address)
    assert code == 2
    assert "PGPASSFILE" in output
    assert "hidden" not in output


@pytest.mark.parametrize(
    ("address", "says"),
    [("mysql://h/run", "expected postgresql://"), ("postgresql://h", "names no database")],
)
def test_what_is_no_address_of_a_record_says_what_is_expected(address: str, says: str) -> None:
    code, output = run("status", at=address)
    assert (code, says in " ".join(output.split())) == (2, True)


@pytest.mark.parametrize("command", ["up", "train"])
def test_a_new_run_needs_a_folder(command: str) -> None:
    code, output = run(command, "laptop", at=ADDRESS)
    assert code == 2
    assert "run.record" in output


def test_a_folder_is_no_address() -> None:
    assert not any(map(is_address, (None, "runs/laptop", Path("runs/laptop"), "runs/a:b")))
    assert is_address(ADDRESS)


def test_tab_asks_no_other_machine() -> None:
    """Completion has 0.3 s; names of actors are offered for runs of this machine."""
    program = (
        "import sys, typer\n"
        "from dart.cli.options import offer_actors\n"
        "context = type('Context', (), {'params': {'run_dir': '" + ADDRESS + "'}})()\n"
        "print(offer_actors(context, 'e'), 'psycopg' in sys.modules, 'dart.run.mirror' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "[] False False\n"
