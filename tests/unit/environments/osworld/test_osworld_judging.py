"""Evaluations in a process of their own: which scores count, what is a fault, and what is kept of them."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dart.environments.deadlines import counting_down
from dart.environments.desktop.memory import MemoryLimit
from dart.environments.faults import (
    CallFailed,
    EnvironmentFault,
    EvaluatorFailed,
    MachineDied,
    MachineHung,
    TaskUnsupported,
    WindowManagerDied,
)
from dart.environments.osworld import scoring_process, setup_steps
from dart.environments.osworld.downloads import DownloadFailed
from dart.environments.osworld.guest import AnswerTooLarge
from dart.environments.osworld.guest_answers import LOOK, GuestAnswers
from dart.environments.osworld.judgements import (
    Judged,
    JudgementLog,
    RecordedAnswers,
    read_judgements,
)
from dart.environments.osworld.judging import judge, judged
from dart.environments.osworld.scoring_environment import (
    EvaluatorsMissing,
    find_evaluators,
    needs_of_functions,
)
from dart.environments.osworld.scoring_process import has_sandbox
from dart.environments.osworld.setup_steps import Setting
from dart.environments.osworld.tasks import OSWorldTask, parse_task
from dart.environments.protocol import EpisodeKey
from tests.patience import slowness
from tests.unit.environments.osworld import guest_server
from tests.unit.environments.osworld.fake_evaluators import make_evaluators
from tests.unit.environments.osworld.guest_server import FakeDesktop, setting_of

pytestmark = pytest.mark.slow
needs_sandbox = pytest.mark.skipif(not has_sandbox(), reason="not installed: bubblewrap (make osworld-score)")

DEADLINE_S = 60.0 * slowness()
NOTES = {"type": "vm_file", "path": "/home/user/notes.txt", "dest": "notes.txt"}
GOLD = {"type": "vm_file", "path": "/home/user/gold.txt", "dest": "gold.txt"}
CLOUD = {"type": "cloud_file", "path": "https://files.example/gold.txt", "dest": "gold.txt"}


def rule(**rules: Any) -> dict[str, Any]:
    return {"type": "rule", "rules": rules}


def task(func: Any, result: Any = None, expected: Any = None, **more: Any) -> OSWorldTask:
    evaluator = {"func": func, "result": result or rule(), **more}
    if expected is not None:
        evaluator["expected"] = expected
    return parse_task("osworld/x/y", {"instruction": "Do it.", "evaluator": evaluator}, "a" * 64)


@pytest.fixture
def setting(desktop: FakeDesktop, tmp_path: Path) -> Setting:
    (desktop.home / "gold.txt").write_text("done\n")
    return setting_of(desktop, tmp_path)


@pytest.fixture
def score(evaluators: Path, setting: Setting) -> Callable[..., Any]:
    scoring = find_evaluators(evaluators)

    async def scored(*arguments: Any, deadline_s: float = DEADLINE_S, **more: Any) -> float:
        left_s = counting_down(deadline_s)
        return (await judge(task(*arguments, **more), setting, scoring, left_s)).score

    return scored


# ---- scores ----


async def test_a_score_comes_from_what_the_guest_has(score: Callable[..., Any], desktop: FakeDesktop) -> None:
    notes = desktop.home / "notes.txt"
    notes.write_text("other\n")
    assert await score("compare_text_file", NOTES, GOLD) == 0.0
    notes.write_text("DONE\n")
    assert await score("compare_text_file", NOTES, GOLD) == 0.0
    assert await score("compare_text_file", NOTES, GOLD, options={"ignore_case": True}) == 1.0


@pytest.mark.parametrize(
    ("look", "function", "expected"),
    [
        ({"type": "vm_command_line", "command": "echo a", "shell": True}, "exact_match", "a\n"),
        ({"type": "vm_command_line", "command": ["echo", "b"]}, "exact_match", "b\n"),
        ({"type": "program", "code": "print(6 * 7)"}, "exact_match", "42"),
        ({"type": "screen"}, "exact_match", {"width": 1920, "height": 1080}),
        ({"type": "accessibility_tree"}, "check_include_exclude", None),
        ({"type": "list_directory", "path": "/home/user"}, "is_there", None),
        ({"type": "zone"}, "exact_match", "UTC"),
        ({"type": "terminal"}, "exact_match", None),
        ({"type": "desktop"}, "exact_match", None),
        ({"type": "wallpaper"}, "exact_match", None),
        ({"type": "window", "app_class_name": "none"}, "exact_match", None),
    ],
)
async def test_each_look_is_answered_as_the_guest_answers_it(
    score: Callable[..., Any], look: dict[str, Any], function: str, expected: Any
) -> None:
    rules = (
        {"include": ["Notes"], "exclude": []}
        if function == "check_include_exclude"
        else {"expected": expected}
    )
    against = () if function == "is_there" else (rule(**rules),)
    assert await score(function, look, *against) == 1.0


@pytest.mark.parametrize(
    ("conjunction", "scores", "total"),
    [("and", [1.0, 0.5], 0.75), ("and", [0.5, 0.0], 0.0), ("or", [0.2, 1.0], 1.0), ("or", [0.2, 0.6], 0.6)],
)
async def test_scores_of_several_functions_are_joined_as_osworld_does(
    score: Callable[..., Any], conjunction: str, scores: list[float], total: float
) -> None:
    given = await score(["gives"] * 2, [rule()] * 2, [rule(score=one) for one in scores], conj=conjunction)
    assert given == total


async def test_a_getter_that_finds_no_file_is_a_zero_of_all(score: Callable[..., Any]) -> None:
    absent = {"type": "opened_file", "path": "/home/user/none"}
    assert await score("is_there", absent) == 0.0
    assert await score(["gives", "is_there"], [rule(), absent], [rule(score=1.0), rule()]) == 0.0


# ---- what is missing ----


async def test_an_evaluator_that_breaks_over_a_missing_file_is_worth_nothing(
    score: Callable[..., Any], desktop: FakeDesktop
) -> None:
    assert await score("has_lines", NOTES, rule(expected=1)) == 0.0
    desktop.manager = None
    with pytest.raises(WindowManagerDied):
        await score("has_lines", NOTES, rule(expected=1))


async def test_an_evaluator_that_breaks_otherwise_is_counted_and_no_score(score: Callable[..., Any]) -> None:
    with pytest.raises(EvaluatorFailed, match="its evaluator broke: RuntimeError: broken"):
        await score("breaks", GOLD)
    with pytest.raises(EvaluatorFailed, match="its evaluator broke: AssertionError"):
        await score("is_there", {"type": "cache_file", "path": "none.txt"})
    with pytest.raises(EvaluatorFailed, match="SystemExit"):
        await score("leaves", GOLD)


async def test_a_player_that_does_not_run_is_the_policys(
    score: Callable[..., Any], desktop: FakeDesktop
) -> None:
    look = {"type": "playing"}
    assert await score("check_include_exclude", look, rule(include=["playing"], exclude=[])) == 0.0
    desktop.playing = "<state>playing</state>"
    assert await score("check_include_exclude", look, rule(include=["playing"], exclude=[])) == 1.0


async def test_output_that_is_no_text_is_a_missing_result(score: Callable[..., Any]) -> None:
    look = {"type": "vm_command_line", "command": ["printf", "\\377"]}
    assert await score("check_include_exclude", look, rule(include=["a"], exclude=[])) == 0.0


@pytest.mark.parametrize(
    "command",
    [
        ["no-such-program"],
        ["~/not-executable"],
        ["sh", "-c", "exec sleep 9", "a long command " * 30],
    ],
)
async def test_a_command_that_cannot_start_or_end_is_a_missing_result(
    score: Callable[..., Any], desktop: FakeDesktop, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(guest_server, "COMMAND_SECONDS", 0.1)
    (desktop.home / "not-executable").write_text("#!/bin/sh\n")
    look = {"type": "vm_command_line", "command": command}
    assert await score("has_lines", look, rule(expected=1)) == 0.0
    desktop.manager = None
    with pytest.raises(WindowManagerDied):
        await score("has_lines", look, rule(expected=1))


async def test_a_file_that_may_not_be_read_is_a_missing_result(
    score: Callable[..., Any], desktop: FakeDesktop
) -> None:
    notes = desktop.home / "notes.txt"
    notes.write_text("done\n")
    assert await score("compare_text_file", NOTES, GOLD) == 1.0
    notes.chmod(0o000)
    assert await score("compare_text_file", NOTES, GOLD) == 0.0
    desktop.manager = None
    with pytest.raises(WindowManagerDied):
        await score("compare_text_file", NOTES, GOLD)


async def test_files_come_from_the_cache_or_a_step_and_nothing_else_is_fetched(
    score: Callable[..., Any], setting: Setting, desktop: FakeDesktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def downloaded(url: str, **_: Any) -> bytes:
        raise DownloadFailed("no network")

    monkeypatch.setattr(setup_steps, "download", downloaded)
    (desktop.home / "notes.txt").write_text("gold")
    with pytest.raises(TaskUnsupported, match=r"gold\.txt cannot be downloaded \(no network\)"):
        await score("compare_text_file", NOTES, CLOUD)
    setting.cache.mkdir()
    (setting.cache / "gold.txt").write_text("gold")
    assert await score("compare_text_file", NOTES, CLOUD) == 1.0
    setting.scratch.mkdir()
    setting.made("said.txt").write_text("gold")
    assert await score("compare_text_file", NOTES, {"type": "cache_file", "path": "said.txt"}) == 1.0


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        ("file", {"path": "/home/user/\udcff"}),
        ("window_size", {"window_class": "\udcff"}),
        ("execute", {"command": "cat \udcff", "shell": True}),
        ("launch", {"command": ["cat", "\udcff"], "shell": False}),
        ("fetch", {"url": "https://x.test/\udcff"}),
    ],
)
async def test_a_question_that_cannot_be_sent_to_the_guest_is_the_evaluators_failure(
    setting: Setting, desktop: FakeDesktop, question: str, arguments: dict[str, Any]
) -> None:
    answers = GuestAnswers(task("is_there", NOTES), setting, counting_down(DEADLINE_S))
    with pytest.raises(EvaluatorFailed, match=r"to be text that UTF-8 can encode, got .*\\udcff"):
        await answers.answer(question, arguments)
    assert desktop.requests == []


async def test_a_look_whose_answer_is_too_large_has_not_seen_the_machine_work(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = GuestAnswers(task("is_there", NOTES), setting, counting_down(DEADLINE_S))
    monkeypatch.setattr("dart.environments.osworld.guest.RESPONSE_MOST_BYTES", 20)
    with pytest.raises(AnswerTooLarge):
        await answers.answer(LOOK, {})
    assert answers.lacks == []


@pytest.mark.parametrize("name", ["/etc/cron.d/x", "../x", "a/../../x"])
async def test_a_task_names_no_file_outside_of_its_folder(score: Callable[..., Any], name: str) -> None:
    for look in (GOLD | {"dest": name}, {"type": "cache_file", "path": name}):
        with pytest.raises(TaskUnsupported, match="leads out of"):
            await score("is_there", look)


# ---- faults ----

LOOKS = {
    "file": NOTES,
    "command": {"type": "vm_command_line", "command": ["true"]},
    "program": {"type": "program", "code": "print(1)"},
    "tree": {"type": "accessibility_tree"},
    "screen": {"type": "screen"},
    "directory": {"type": "list_directory", "path": "/home/user"},
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    ("how", "fault"), [("died", MachineDied), ("hung", MachineHung), ("http_500", CallFailed)]
)
async def test_a_machine_that_fails_is_a_fault_whatever_an_evaluator_makes_of_it(
    score: Callable[..., Any],
    setting: Setting,
    desktop: FakeDesktop,
    look: str,
    how: str,
    fault: type[EnvironmentFault],
) -> None:
    if how == "http_500":
        desktop.faults.add(how)
    else:
        setting.guest.simulated_failure = how
    with pytest.raises(fault):
        await score("is_there", LOOKS[look], deadline_s=2.0 if how == "hung" else DEADLINE_S)


async def test_a_machine_that_fails_after_its_last_answer_is_a_fault(
    score: Callable[..., Any], desktop: FakeDesktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = {"type": "vm_command_line", "command": ["true"]}

    run = desktop.command

    def ran(given: Any, shell: bool) -> tuple[str, str, int]:
        ended = run(given, shell)
        if given == ["true"]:
            desktop.manager = None
        return ended

    monkeypatch.setattr(desktop, "command", ran)
    with pytest.raises(WindowManagerDied):
        await score("gives", command, rule(score=1.0))


@pytest.mark.parametrize(
    ("function", "result"),
    [("is_there", {"type": "opened_file", "path": "/home/user/none"}), ("breaks", GOLD)],
)
async def test_a_machine_is_looked_at_when_a_getter_finds_no_file_and_when_an_evaluator_breaks(
    score: Callable[..., Any], desktop: FakeDesktop, function: str, result: dict[str, Any]
) -> None:
    desktop.manager = None
    with pytest.raises(WindowManagerDied):
        await score(function, result)


async def test_an_evaluation_that_does_not_end_is_killed(score: Callable[..., Any]) -> None:
    before = set(psutil.Process().children())  # other tests of this process may have left theirs
    with pytest.raises(EvaluatorFailed, match=r"did not end within 1\.\d s and was killed"):
        await score("sleeps", GOLD, deadline_s=2.0)
    assert set(psutil.Process().children()) <= before


async def test_an_evaluation_that_takes_too_much_memory_is_the_evaluators_failure(
    score: Callable[..., Any],
) -> None:
    with pytest.raises(EvaluatorFailed, match=r"MemoryError|crashed"):
        await score("takes_memory", GOLD)


def permits_groups() -> bool:
    """Whether this process may make control groups with a limit on memory."""
    limit = MemoryLimit("permits-groups", 2**30)
    limit.take([])
    is_there = limit.group is not None and limit.group.is_dir()
    limit.release()
    return is_there


CHILDREN = """sum(
    os.waitpid(pid, 0)[1] == 0
    for pid in [os.fork() or ((lambda held: time.sleep(3))(b'x' * 2**27), os._exit(0)) for _ in range(4)]
)"""
"""How many of four processes that hold 128 MiB each for a while end by themselves."""


@needs_sandbox
@pytest.mark.skipif(not permits_groups(), reason="not permitted: control groups with a limit on memory")
@pytest.mark.parametrize(("limit_mib", "is_enough"), [(2048, True), (320, False)])
async def test_all_processes_of_an_evaluation_have_one_limit_together(
    score: Callable[..., Any],
    desktop: FakeDesktop,
    monkeypatch: pytest.MonkeyPatch,
    limit_mib: int,
    is_enough: bool,
) -> None:
    monkeypatch.setattr(scoring_process, "MOST_SANDBOX_BYTES", limit_mib * 2**20)
    (desktop.home / "answer").write_text(CHILDREN)
    look = {"type": "vm_command_line", "command": ["cat", "answer"]}
    try:
        ended_well = await score("runs", look)
    except EvaluatorFailed:  # the kernel ended the one that judges
        ended_well = 0.0
    assert (ended_well == 4.0) is is_enough


@needs_sandbox
async def test_the_kernel_ends_an_evaluation_before_anything_else(
    score: Callable[..., Any], desktop: FakeDesktop
) -> None:
    (desktop.home / "answer").write_text("int(open('/proc/self/oom_score_adj').read())")
    assert await score("runs", {"type": "vm_command_line", "command": ["cat", "answer"]}) == 1000.0


@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="only a process of root gives its children other users")
async def test_evaluations_at_the_same_time_do_not_share_a_limit_on_processes(
    score: Callable[..., Any], desktop: FakeDesktop
) -> None:
    (desktop.home / "answer").write_text("os.getuid()")
    look = {"type": "vm_command_line", "command": ["cat", "answer"]}
    users = await asyncio.gather(score("runs", look), score("runs", look))
    assert len({*users, float(os.getuid())}) == 3


# ---- code in an answer ----


@needs_sandbox
@pytest.mark.parametrize(
    "code",
    [
        "open({path!r}, 'w').write('x')",
        "os.symlink('/etc/passwd', {path!r}) or 1",
        "socket.create_connection(('127.0.0.1', {port}), 1) and 1",
        "os.kill(os.getppid(), 9) or time.sleep(60)",
        "ctypes.string_at(0)",
        "[os.write(fd, b'x' * 99) for fd in range(3, 20) if os.path.exists(f'/proc/self/fd/{{fd}}')] and 1",
        "[os.fork() for _ in range(99)] and time.sleep(60)",
    ],
)
async def test_code_in_an_answer_reaches_nothing_and_the_next_evaluation_goes_on(
    score: Callable[..., Any], desktop: FakeDesktop, tmp_path: Path, code: str
) -> None:
    reached = []
    server = await asyncio.start_server(lambda *_: reached.append(1), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    look = {"type": "vm_command_line", "command": ["cat", "answer"]}
    (desktop.home / "answer").write_text(code.format(path=str(tmp_path / "reached"), port=port))
    with pytest.raises(EvaluatorFailed):
        await score("runs", look, deadline_s=6.0)
    server.close()
    assert not reached
    assert not (tmp_path / "reached").is_symlink()
    assert not (tmp_path / "reached").exists()
    assert await score("gives", GOLD, rule(score=1.0)) == 1.0


async def test_without_a_sandbox_functions_that_run_code_are_refused_and_others_judge(
    score: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("judging", "scoring_process"):
        monkeypatch.setattr(f"dart.environments.osworld.{module}.has_sandbox", lambda: False)
    with pytest.raises(TaskUnsupported, match="needs bubblewrap"):
        await score("runs", rule())
    assert await score("compare_text_file", GOLD, GOLD) == 1.0


# ---- the environment with the evaluators ----


async def test_what_the_evaluators_do_not_have_is_said_before_a_task_is_judged(
    score: Callable[..., Any],
) -> None:
    with pytest.raises(TaskUnsupported, match=r"'check_nothing', which desktop-env 0\.0\.1 does not have"):
        await score("check_nothing", GOLD)
    with pytest.raises(
        TaskUnsupported, match=r"librosa and fastdtw: run .scripts/setup-osworld-score.sh audio"
    ):
        await score("compare_audios", GOLD)


def test_what_a_function_needs_is_read_from_its_source() -> None:
    source = """
import fitz
from playwright.sync_api import sync_playwright as begin
def opens(path): return fitz.open(path)
def twice(path): return [opens(path), opens(path)]
def page(): return begin()
def evaluates(text): return eval(text)
def plain(text): return text.strip()
"""
    assert needs_of_functions(source) == {
        "opens": {"fitz"},
        "twice": {"fitz"},
        "page": {"playwright"},
        "evaluates": {"runs code"},
        "plain": set(),
    }


def test_evaluators_that_are_not_installed_say_how_to_install_them(tmp_path: Path) -> None:
    with pytest.raises(EvaluatorsMissing, match="run `make osworld-score`"):
        find_evaluators(tmp_path / "none")


# ---- what is kept ----


async def test_what_an_evaluation_read_is_kept_and_judged_again_by_another_version(
    evaluators: Path, setting: Setting, desktop: FakeDesktop, tmp_path: Path
) -> None:
    scoring, left_s = find_evaluators(evaluators), counting_down(DEADLINE_S)
    asked = task("compare_text_file", NOTES, GOLD, options={"ignore_case": True})
    (desktop.home / "notes.txt").write_text("DONE\n")
    judgement = await judge(asked, setting, scoring, left_s)
    log = JudgementLog(tmp_path / "run", "env-000", lambda: 5.0)
    log.add(Judged(judgement, "osworld/x/y", 3, EpisodeKey(rollout_id=7, attempt=1, fence=9)))
    (kept,) = read_judgements(tmp_path / "run")
    assert (kept.score, kept.evaluator, kept.task_sha256) == (1.0, "desktop-env 0.0.1", "a" * 64)
    assert (kept.task_id, kept.seed, kept.rollout_id, kept.attempt, kept.fence) == ("osworld/x/y", 3, 7, 1, 9)

    (desktop.home / "notes.txt").unlink()
    other = find_evaluators(_other_version(tmp_path))
    again = await judged(asked, other, RecordedAnswers(tmp_path / "run", kept), left_s)
    assert (again.score, again.evaluator) == (0.25, "desktop-env 0.0.2")
    unread = task("compare_text_file", NOTES, NOTES | {"path": "/home/user/other.txt", "dest": "other"})
    with pytest.raises(EvaluatorFailed, match="ask what was not recorded while the episode ran"):
        await judged(unread, scoring, RecordedAnswers(tmp_path / "run", kept), left_s)


async def test_an_evaluator_that_breaks_without_the_output_of_a_step_before_it_is_worth_nothing_again(
    evaluators: Path, setting: Setting, tmp_path: Path
) -> None:
    scoring, left_s = find_evaluators(evaluators), counting_down(DEADLINE_S)
    step = {"type": "execute", "parameters": {"command": ["/home/user/made"], "stdout": "said.txt"}}
    asked = task("is_there", {"type": "cache_file", "path": "said.txt"}, postconfig=[step])
    judgement = await judge(asked, setting, scoring, left_s)
    assert judgement.score == 0.0
    JudgementLog(tmp_path / "run", "env-000").add(
        Judged(judgement, "osworld/x/y", 3, EpisodeKey(rollout_id=7, attempt=1, fence=9))
    )
    (kept,) = read_judgements(tmp_path / "run")
    again = await judged(asked, scoring, RecordedAnswers(tmp_path / "run", kept), left_s)
    assert again.score == 0.0


def _other_version(tmp_path: Path) -> Path:
    folder = make_evaluators(tmp_path / "other", "0.0.2")
    (checks,) = folder.glob("lib/*/site-packages/desktop_env/evaluators/metrics/checks.py")
    checks.write_text(
        checks.read_text().replace("return 1.0 if texts[0] == texts[1]", "return 0.25 if texts")
    )
    return folder
