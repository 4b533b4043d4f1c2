"""`dartrl eval rescore`: stored episodes judged again without machines, and its errors."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.config.config import Config
from dart.environments.osworld import rescore as module
from dart.environments.osworld.guest_answers import CALL, Answers, Reading
from dart.environments.osworld.judgements import (
    FOLDER,
    READ,
    Judged,
    JudgementLog,
    RecordedAnswers,
    read_judgements,
)
from dart.environments.osworld.judging import Judgement
from dart.environments.osworld.rescore import TODAY
from dart.environments.osworld.scoring_environment import ScoringEnvironment
from dart.environments.osworld.scoring_process import has_sandbox
from dart.environments.osworld.tasks import OSWorldTask, load_task
from dart.environments.protocol import EpisodeKey
from dart.inspect.report import RunReport, SuccessReport
from dart.run.evaluation import Measurement, as_json, judges_of
from tests.patience import slowness
from tests.unit.environments.osworld.fake_evaluators import make_evaluators

pytestmark = pytest.mark.slow

SAID: dict[str, Any] = {"type": "vm_command_line", "command": "cat said", "shell": True}
WANTED = {"type": "rule", "rules": {"expected": "done"}}


@pytest.fixture
def run(tmp_path: Path, evaluators: Path) -> Path:
    """A run directory whose configuration names evaluators and task files."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(
        '[environments]\nkind = "osworld"\n[environments.osworld]\n'
        f'tasks = "{tmp_path / "examples"}"\nevaluators = "{evaluators}"\n'
    )
    return tmp_path / "run"


def write_task(
    run: Path,
    name: str,
    result: dict[str, Any] = SAID,
    instruction: str = "Do it.",
    function: str = "exact_match",
) -> None:
    """Write a task's file; write those of a test first, because the list of a folder is read once."""
    folder = run.parent / "examples" / "x"
    folder.mkdir(parents=True, exist_ok=True)
    evaluator = {"func": function, "result": result}
    if function == "exact_match":
        evaluator["expected"] = WANTED
    (folder / f"{name}.json").write_text(json.dumps({"instruction": instruction, "evaluator": evaluator}))


def keep_judgement(run: Path, name: str, output: str) -> None:
    """Keep a judgement of 1 by desktop-env 0.0.1, which read this output of the machine."""
    arguments = {"command": SAID["command"], "shell": True}
    answer = {"status": 200, "body": {"output": output}}
    keep_reading(run, name, Reading(question="execute", arguments=arguments, answer=answer))


def keep_reading(run: Path, name: str, read: Reading) -> None:
    """Keep a judgement of 1 by desktop-env 0.0.1, which read this."""
    judgement = Judgement(
        score=1.0,
        evaluator="desktop-env 0.0.1",
        task_sha256=load_task(f"osworld/x/{name}", run.parent / "examples").sha256,
        readings=(read,),
    )
    key = EpisodeKey(rollout_id=7, attempt=1, fence=9)
    JudgementLog(run, "env-000").add(Judged(judgement, f"osworld/x/{name}", 3, key))


def other_version(folder: Path) -> Path:
    """Make evaluators of another version, in which a match is worth less."""
    made = make_evaluators(folder, "0.0.2")
    (checks,) = made.glob("lib/*/site-packages/desktop_env/evaluators/metrics/checks.py")
    checks.write_text(checks.read_text().replace("return 1.0 if result ==", "return 0.25 if result =="))
    return made


def command(*words: str | Path) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, ["eval", "rescore", *map(str, words)])
    return ran.exit_code, ran.stdout, ran.stderr


def test_a_run_is_judged_again_by_another_version_without_its_machines(run: Path, tmp_path: Path) -> None:
    for name in ("same", "changed", "today", "lost"):
        write_task(run, name, SAID | {"type": TODAY} if name == "today" else SAID)
    for name in ("same", "changed", "today", "lost"):
        keep_judgement(run, name, "done" if name != "lost" else "lost")
    write_task(run, "changed", instruction="Do that.")
    lost = next(path for path in (run / FOLDER / READ).glob("*/*") if b"lost" in path.read_bytes())
    lost.unlink()

    code, out, err = command(run, "--evaluators", other_version(tmp_path / "other"), "-o", "json")
    found = {one["task_id"].rpartition("/")[2]: one for one in json.loads(out)}

    assert code == 0
    assert found["same"] == {
        "task_id": "osworld/x/same",
        "seed": 3,
        "rollout_id": 7,
        "attempt": 1,
        "environment": "env-000",
        "evaluator": "desktop-env 0.0.1",
        "score": 1.0,
        "new_evaluator": "desktop-env 0.0.2",
        "new_score": 0.25,
        "reason": "",
        "by_values": [],
    }
    assert {found[name]["new_score"] for name in ("changed", "today", "lost")} == {None}
    assert found["changed"]["reason"] == "the task's file has changed"
    assert found["today"]["reason"] == "rules of the task name days relative to today"
    assert "is missing: restore it" in found["lost"]["reason"]
    assert any(line.endswith("/4 osworld/x/same: 1 -> 0.25") for line in err.splitlines())


async def test_a_file_name_that_is_not_utf_8_is_kept_and_read_back(run: Path) -> None:
    write_task(run, "names")
    arguments = {"path": "/home/user/a\udcff"}
    found = {"type": "directory", "name": "a\udcff", "children": [{"type": "file", "name": "\udc80ä.txt"}]}
    keep_reading(run, "names", Reading(question="directory", arguments=arguments, answer=found))
    (kept,) = read_judgements(run)
    assert kept.readings[0].arguments == arguments
    assert await RecordedAnswers(run, kept).answer("directory", arguments) == found


def test_an_evaluation_says_which_evaluators_judged_and_which_task_files_they_read(run: Path) -> None:
    for name in "ab":
        write_task(run, name, instruction=f"Do {name}.")
    for name in "abab":
        keep_judgement(run, name, "done")
    told = as_json(Measurement(RunReport(SuccessReport(), SuccessReport()), None, judges_of(run)), Config())

    assert told["evaluators"] == ["desktop-env 0.0.1"]
    examples = run.parent / "examples"
    assert told["task_sha256"] == {
        f"osworld/x/{name}": [load_task(f"osworld/x/{name}", examples).sha256] for name in "ab"
    }


def test_a_line_that_a_killed_environment_cut_costs_no_other_judgement(run: Path) -> None:
    for name in "abc":
        write_task(run, name)
    for name in "ab":
        keep_judgement(run, name, "done")
    (file,) = (run / FOLDER).glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-40])
    keep_judgement(run, "c", "done")
    assert [kept.task_id for kept in read_judgements(run)] == ["osworld/x/a", "osworld/x/c"]
    assert sorted(judges_of(run).task_sha256) == ["osworld/x/a", "osworld/x/c"]


def test_people_get_a_table_and_one_line_that_sums_it_up(run: Path) -> None:
    write_task(run, "a")
    write_task(run, "b")
    keep_judgement(run, "a", "done")
    keep_judgement(run, "b", "nothing")
    code, out, _ = command(run)

    assert code == 0
    assert "new score" in out
    assert out.splitlines()[-1] == "2 episodes judged again, 1 differently; mean score 1.0000, now 0.5000"


@pytest.mark.skipif(not has_sandbox(), reason="not installed: bubblewrap (make osworld-score)")
def test_an_episode_that_is_judged_by_the_value_of_a_getter_of_pages_says_so(run: Path) -> None:
    tabs = {"type": "tabs"}
    write_task(run, "a", tabs)
    write_task(run, "b", tabs)
    value = {"packed": zlib.compress(msgpack.packb({"value": "done", "files": {}})), "lacks": []}
    for name, answer in (("a", value), ("b", {"unkept": "it raised TimeoutError"})):
        keep_reading(
            run, name, Reading(question=CALL, arguments={"getter": "get_tabs", "config": tabs}, answer=answer)
        )
    code, out, err = command(run, "-o", "json")
    by_value, unkept = json.loads(out)

    assert code == 0
    assert (by_value["new_score"], by_value["by_values"]) == (1.0, ["get_tabs"])
    assert (unkept["new_score"], unkept["by_values"]) == (None, [])
    assert "the value of get_tabs was not kept: it raised TimeoutError" in unkept["reason"]
    assert any(
        line.endswith("osworld/x/a: 1 -> 1 (by the kept value of get_tabs)") for line in err.splitlines()
    )
    assert "1 by kept values of getters that read pages" in command(run)[1]
    assert "get_tabs" in command(run, "-o", "wide")[1]


def test_a_run_of_which_nothing_can_be_judged_again_has_failed(run: Path) -> None:
    write_task(run, "a")
    keep_judgement(run, "a", "done")
    write_task(run, "a", instruction="Do that.")
    code, out, _ = command(run)

    assert code == 1
    assert out.splitlines()[-1] == "0 episodes judged again, 0 differently; 1 not judged again"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    code, _, err = command(tmp_path)

    assert (code, err) == (
        2,
        f"error: {tmp_path} is not a run directory, because it has no config.toml: name the directory of "
        "a run\n",
    )


@pytest.mark.parametrize(
    ("kind", "why"),
    [("osworld", "none of its episodes was scored yet"), ("miniwob", 'its environments.kind is "miniwob"')],
)
def test_a_run_without_judgements_says_why(run: Path, kind: str, why: str) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text().replace('"osworld"', f'"{kind}"'))
    code, _, err = command(run)

    assert code == 2
    assert f"error: the run in {run} has no judgements: {why}" in err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_evaluators_that_another_users_run_names_are_not_started(run: Path) -> None:
    os.chown(run, 65534, 65534)
    code, _, err = command(run)

    assert code == 2
    assert "name your own with --evaluators" in err


def test_evaluators_that_are_not_installed_are_named_with_the_command_that_installs_them(
    run: Path, tmp_path: Path
) -> None:
    write_task(run, "a")
    keep_judgement(run, "a", "done")
    code, _, err = command(run, "--evaluators", tmp_path / "none")

    assert code == 69
    assert f"OSWorld's evaluators are not installed in {tmp_path / 'none'}" in err
    assert "run `make osworld-score`" in err


def test_a_folder_without_task_files_is_named_with_the_option_that_names_another(
    run: Path, tmp_path: Path
) -> None:
    write_task(run, "a")
    keep_judgement(run, "a", "done")
    code, _, err = command(run, "--tasks", tmp_path / "none")

    assert code == 2
    assert f"there is no task file in {tmp_path / 'none'}" in err
    assert "with --tasks" in err
    assert command(run, "--tasks", tmp_path / "examples")[0] == 0


# ---- several at a time ----

NO_PROCESS = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

Judging = Callable[[str], Any]
"""Judges the task with this name, such as `a` for `osworld/x/a`, and returns a score or raises."""


@pytest.fixture
def judged_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Judging], None]:
    """Replace the evaluators by a coroutine function."""

    def replace(judging: Judging) -> None:
        async def judged(
            task: OSWorldTask, scoring: ScoringEnvironment, answers: Answers, left_s: Callable[[], float]
        ) -> Judgement:
            score = await judging(task.task_id.rpartition("/")[2])
            return Judgement(score=score, evaluator=scoring.name, task_sha256=task.sha256, readings=())

        monkeypatch.setattr(module, "judged", judged)

    return replace


def keep_judgements(run: Path, names: str) -> None:
    for name in names:
        write_task(run, name)
    for name in names:
        keep_judgement(run, name, "done")


def test_as_many_episodes_as_asked_for_are_judged_at_a_time(
    run: Path, judged_by: Callable[[Judging], None]
) -> None:
    running: list[str] = []
    counts: list[int] = []

    async def judging(name: str) -> float:
        running.append(name)
        counts.append(len(running))
        await asyncio.sleep(0.01)
        running.remove(name)
        return 1.0

    judged_by(judging)
    keep_judgements(run, "abcdefgh")

    assert command(run, "--workers", "3")[0] == 0
    assert max(counts) == 3
    assert (len(counts), running) == (8, [])


def test_the_results_have_the_order_of_the_run_and_the_progress_that_in_which_they_end(
    run: Path, judged_by: Callable[[Judging], None]
) -> None:
    has_ended = {name: asyncio.Event() for name in "abcde"}
    has_ended["e"].set()

    async def judging(name: str) -> float:
        await has_ended[chr(ord(name) + 1)].wait()
        has_ended[name].set()
        return 0.5

    judged_by(judging)
    keep_judgements(run, "abcd")
    code, out, err = command(run, "--workers", "4", "-o", "json")

    assert code == 0
    assert [one["task_id"] for one in json.loads(out)] == [f"osworld/x/{name}" for name in "abcd"]
    assert err.splitlines() == [
        f"{number}/4 osworld/x/{name}: 1 -> 0.5" for number, name in enumerate("dcba", start=1)
    ]


def test_one_worker_and_several_give_the_same_scores(run: Path) -> None:
    for name in "abcdef":
        write_task(run, name, SAID | {"type": TODAY} if name == "f" else SAID)
    for name in "abcdef":
        keep_judgement(run, name, "done" if name in "ace" else "other")
    alone, several = (json.loads(command(run, "--workers", n, "-o", "json")[1]) for n in ("1", "3"))

    assert several == alone
    assert [one["new_score"] for one in alone] == [1.0, 0.0, 1.0, 0.0, 1.0, None]


def test_an_evaluation_that_cannot_be_started_is_a_reason_and_the_other_scores_stay(
    run: Path, judged_by: Callable[[Judging], None]
) -> None:
    async def judging(name: str) -> float:
        if name == "b":
            raise NO_PROCESS
        await asyncio.sleep(0.01)
        return 1.0

    judged_by(judging)
    keep_judgements(run, "abcd")
    code, out, err = command(run, "--workers", "2", "-o", "json")
    found = json.loads(out)

    assert code == 0
    assert [one["new_score"] for one in found] == [1.0, None, 1.0, 1.0]
    assert found[1]["reason"] == f"its evaluation could not be made: {NO_PROCESS}"
    assert err.splitlines()[-1].startswith("4/4 ")


def test_a_defect_ends_the_command_and_with_it_all_other_judgements(
    run: Path, judged_by: Callable[[Judging], None]
) -> None:
    cancelled: list[str] = []

    async def judging(name: str) -> float:
        if name == "a":
            raise RuntimeError("a defect")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(name)
            raise
        return 1.0

    judged_by(judging)
    keep_judgements(run, "abc")
    began = time.monotonic()
    ran = CliRunner().invoke(app, ["eval", "rescore", str(run), "--workers", "3"])

    assert isinstance(ran.exception, RuntimeError)
    assert sorted(cancelled) == ["b", "c"]
    assert time.monotonic() - began < 30


def test_ctrl_c_ends_the_command_and_every_evaluation_under_way(run: Path, tmp_path: Path) -> None:
    for name in "abcd":
        write_task(run, name, function="sleeps")
    for name in "abcd":
        keep_judgement(run, name, "done")
    (tmp_path / "tmp").mkdir()
    ran = subprocess.Popen(
        [sys.executable, "-m", "dart", "eval", "rescore", str(run), "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores it for its jobs
    )
    try:
        give_up_s = time.monotonic() + 60 * slowness()
        while len(evaluations := psutil.Process(ran.pid).children()) < 2:
            assert time.monotonic() < give_up_s, f"two evaluations run, found {evaluations}"
            assert ran.poll() is None, "the command ended before"
            time.sleep(0.05)
        evaluations = psutil.Process(ran.pid).children(recursive=True)
        ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=30 * slowness())
    finally:
        ran.kill()

    assert (ran.returncode, out, err) == (130, "", "error: interrupted\n")
    assert evaluations
    assert not [one for one in evaluations if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert not list((tmp_path / "tmp").glob("dartrl-score-*"))


def test_the_number_of_workers_is_at_least_one(run: Path) -> None:
    code, _, err = command(run, "--workers", "0")

    assert code == 2
    assert "--workers" in err
