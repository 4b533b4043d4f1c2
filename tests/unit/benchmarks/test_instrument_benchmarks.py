"""The scripts that measure scrapes and start-up measure what they say."""

from pathlib import Path

from benchmarks import command_line, scrape

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


def test_every_scrape_answers_for_every_actor(tmp_path: Path) -> None:
    took_ms, size = scrape.measure(tmp_path, actors=12, scrapes=2)

    assert len(took_ms) == 2
    assert all(wall_ms > 0 for wall_ms, _ in took_ms)
    assert size > 12 * 6 * len("dartrl_actor_well")
