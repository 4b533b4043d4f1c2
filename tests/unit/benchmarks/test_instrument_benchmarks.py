"""The scripts that measure scrapes and start-up measure what they say."""

import os
from pathlib import Path

from benchmarks import command_line, scrape
from dart.core.run_directory import holder
from dart.inspect.snapshot_reader import read_snapshot

REPORT = """\
import time: self [us] | cumulative | imported package
import time:       120 |        120 |   json.scanner
import time:      2380 |       2500 | json
dartrl: something a program said meanwhile
"""


def test_the_import_times_of_python_are_read() -> None:
    assert command_line.parse(REPORT) == [
        command_line.Import("json.scanner", 120, 120),
        command_line.Import("json", 2380, 2500),
    ]


def test_of_several_import_reports_the_least_time_of_each_module_counts() -> None:
    slow, fast = (
        [command_line.Import("json", own_us, all_us), command_line.Import(name, 1, 1)]
        for own_us, all_us, name in ((900, 950, "only.once"), (300, 990, "re"))
    )

    assert set(command_line.least([slow, fast])) == {
        command_line.Import("json", 300, 950),
        command_line.Import("only.once", 1, 1),
        command_line.Import("re", 1, 1),
    }


def test_the_made_up_run_is_one_that_commands_look_at() -> None:
    with command_line.made_up_run() as folder:
        assert holder(folder) == os.getpid()
        snapshot = read_snapshot(folder)

    assert len(snapshot.actors) == command_line.ACTORS
    assert command_line.arguments_of("actors list", folder)[-2:] == ["--run-dir", str(folder)]


def test_every_scrape_answers_for_every_actor(tmp_path: Path) -> None:
    took_ms, size = scrape.measure(tmp_path, actors=12, scrapes=2)

    assert len(took_ms) == 2
    assert all(wall_ms > 0 for wall_ms, _ in took_ms)
    assert size > 12 * 6 * len("dartrl_actor_well")
