"""Following ends with Ctrl-C, wherever it is in its work."""

import contextlib
import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dart.cli import actors
from dart.cli.main import app
from dart.cli.output import Format, follow_up, line_by_line, until_interrupted
from dart.core.run_directory import RunPaths
from dart.inspect import event_history
from dart.store.store import Store
from tests.recorded_run import record_run


def test_what_is_new_is_shown_until_ctrl_c_which_waits_for_the_look_it_comes_in() -> None:
    looks = iter([["a"], [], ["b", "c"]])
    shown: list[str] = []
    before = signal.getsignal(signal.SIGINT)

    def read_new() -> list[str]:
        new = next(looks)
        if "c" in new:
            signal.raise_signal(signal.SIGINT)
        return new

    with until_interrupted() as ended:
        follow_up(ended, read_new, shown.extend, every_s=0.0)

    assert shown == ["a", "b", "c"]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_ends_events_before_they_were_read_once_even_if_a_library_swallows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = itertools.count(1)

    def swallow(*_: Any, **__: Any) -> list[Any]:
        number = next(reads)
        if number == 1:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert number < 3, "it went on following"
        return []

    with Store(tmp_path / "store.db") as store:
        store.add_version()
    (tmp_path / "config.toml").touch()
    (tmp_path / "lock").touch()
    monkeypatch.setattr(event_history, "read_events", swallow)
    ran = CliRunner().invoke(app, ["events", "--follow", "--run-dir", str(tmp_path)])
    assert ran.exit_code == 0, ran.output


def test_what_is_endless_is_no_single_value() -> None:
    assert [line_by_line(one) for one in Format] == [Format.TABLE, Format.WIDE, Format.JSONL, Format.JSONL]


def followed_events(paths: RunPaths) -> list[str]:
    """Return the events that `actors logs --follow` prints of env-001."""
    words = ["actors", "logs", "env-001", "--follow", "-o", "json", "--run-dir", str(paths.root)]
    ran = CliRunner().invoke(app, words)

    assert ran.exit_code == 0, ran.output
    return [json.loads(line)["event"] for line in ran.stdout.splitlines()]


def test_a_followed_log_is_one_json_object_in_each_line_from_its_first_line_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = record_run(tmp_path / "run")
    log = paths.logs / "env-001.jsonl"
    lines = log.read_text()

    def one_look(_: object, read_new: Any, show: Any) -> None:
        with log.open("a") as file:
            file.write(lines)
        show(read_new())

    monkeypatch.setattr(actors, "follow_up", one_look)
    assert followed_events(paths) == ["actor_ready"] * 2


def test_a_line_written_while_the_log_is_printed_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = record_run(tmp_path / "run")
    log = paths.logs / "env-001.jsonl"
    lines = log.read_text()
    print_lines = actors._print_lines

    def print_slowly(shown: Any, output: Format) -> None:
        print_lines(shown, output)
        if log.read_text() == lines:
            with log.open("a") as file:
                file.write(lines.replace("actor_ready", "said_meanwhile"))

    monkeypatch.setattr(actors, "_print_lines", print_slowly)
    monkeypatch.setattr(actors, "follow_up", lambda _, read_new, show: show(read_new()))
    assert followed_events(paths) == ["actor_ready", "said_meanwhile"]
