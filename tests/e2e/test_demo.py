"""`dartrl demo` by its real command: real browsers, a real policy, real updates, from a folder of its own."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.protocol import MARK, marked_pids
from benchmarks.runs import marked_processes
from dart.core.run_directory import RunPaths
from dart.store.reader import StoreReader
from tests.patience import slowness

REPOSITORY = Path(__file__).resolve().parents[2]
SHORT = {
    "training.updates": 3,
    "training.groups_per_update": 1,
    "evaluation.seeds_per_task": 2,
    "evaluation.greedy_seeds_per_task": 1,
    "environments.count": 2,
    "run.minutes": 30.0,
}

pytestmark = [pytest.mark.timeout(600), pytest.mark.long, pytest.mark.browser]


class Demo:
    """A demo in a process of its own, in an empty folder, with what it has printed so far."""

    def __init__(self, folder: Path, changed: dict[str, object]) -> None:
        self.mark = uuid.uuid4().hex
        self.printed: list[str] = []
        sets = [word for key, value in (SHORT | changed).items() for word in ("--set", f"{key}={value}")]
        environment = {**os.environ, MARK: self.mark, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dart", "demo", "--no-browser", *sets],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read_until(self, text: str) -> str:
        """Read lines until one holds the text, and return that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append(line)
            if text in line:
                return line
        raise AssertionError(f"the demo ended without a line with {text!r}:\n{''.join(self.printed)}")

    def ended(self) -> tuple[int, str]:
        assert self.process.stdout is not None
        self.printed.extend(self.process.stdout)
        return self.process.wait(), "".join(self.printed)

    def assert_nothing_left(self) -> None:
        give_up_s = time.monotonic() + 5.0 * slowness()
        while (left := marked_processes(self.mark)) and time.monotonic() < give_up_s:
            time.sleep(0.05)
        assert left == {}


def fetched(address: str) -> str:
    """Fetch a page of the run; on a busy machine the page asks to try again later."""
    give_up_s = time.monotonic() + 20.0 * slowness()
    while True:
        try:
            with urllib.request.urlopen(address, timeout=60) as page:
                return str(page.read().decode())
        except urllib.error.HTTPError as refused:
            if refused.code != 503 or time.monotonic() > give_up_s:
                raise
        time.sleep(1.0)


@pytest.fixture
def demos() -> Iterator[list[Demo]]:
    """The demos that a test starts; none of their processes lives afterwards."""
    started: list[Demo] = []
    yield started
    for demo in started:
        for pid in marked_pids(demo.mark):
            os.kill(pid, signal.SIGKILL)
        assert demo.process.stdout is not None
        demo.process.stdout.close()
        demo.process.wait()


def test_a_demo_shows_its_page_a_rollout_before_and_after_and_what_to_do_next(
    tmp_path: Path, demos: list[Demo]
) -> None:
    demos.append(demo := Demo(tmp_path, {}))
    address = demo.read_until("watch it in the browser: ").split()[-1]
    assert "<title>" in fetched(address)
    rollout = demo.read_until("with screenshots: ").split()[-1]
    assert "Close the dialog" in fetched(rollout), "the instruction of the task"

    code, output = demo.ended()

    assert code == 0, output
    demo.assert_nothing_left()
    steps = [
        output.index(text) for text in ("The base policy, first", "The trained policy, newest", "What next")
    ]
    assert steps == sorted(steps)
    assert "% of the newest" in " ".join(output.split())
    assert "reward " in output
    paths = RunPaths(tmp_path / "runs" / "demo")
    assert paths.report.exists()
    with StoreReader(paths.store) as record:
        assert record.conservation().holds
        newest = record.latest_version()
    assert newest is not None
    assert newest.version == 3


def test_ctrl_c_drains_a_demo_and_says_how_it_goes_on(tmp_path: Path, demos: list[Demo]) -> None:
    demos.append(demo := Demo(tmp_path, {"training.updates": 10_000}))
    demo.read_until("% ")

    demo.process.send_signal(signal.SIGINT)
    code, output = demo.ended()

    assert code == 130, output
    assert "Go on with: dartrl train --resume --run-dir runs/demo" in output
    demo.assert_nothing_left()
    with StoreReader(tmp_path / "runs" / "demo" / "store.db") as record:
        assert record.conservation().holds
