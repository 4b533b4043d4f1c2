"""Getters that read pages of the guest's browser: the limit of a call, and what is kept of a value."""

import asyncio
import dataclasses
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from dart.config.machine_address import MachineAddress
from dart.config.osworld_evaluation import RESERVE_S
from dart.environments.deadlines import counting_down
from dart.environments.faults import EvaluatorFailed, WindowManagerDied
from dart.environments.osworld import judging
from dart.environments.osworld.judgements import (
    FOLDER,
    READ,
    Judged,
    JudgementLog,
    RecordedAnswers,
    read_judgements,
)
from dart.environments.osworld.judging import ChildEvaluation, Judgement, judge, judged
from dart.environments.osworld.page_calls import PageCalls
from dart.environments.osworld.scoring_environment import find_evaluators
from dart.environments.osworld.scoring_process import has_sandbox
from dart.environments.osworld.setup_steps import Setting
from dart.environments.osworld.tasks import OSWorldTask, parse_task
from dart.environments.protocol import NO_ROLLOUT
from dart.store.errors import BlobDamage
from tests.patience import slowness
from tests.unit.environments.osworld.guest_server import FakeDesktop, setting_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_sandbox(), reason="not installed: bubblewrap (make osworld-score)"),
]

DEADLINE_S = 60.0 * slowness()
TABS = [{"url": "https://one.example"}, {"url": "https://two.example"}]


def task(func: Any, result: Any, expected: Any = None, **more: Any) -> OSWorldTask:
    evaluator = {"func": func, "result": result, **more}
    if expected is not None:
        evaluator["expected"] = {"type": "rule", "rules": {"expected": expected}}
    return parse_task("osworld/x/y", {"instruction": "Do it.", "evaluator": evaluator}, "a" * 64)


@pytest.fixture
async def setting(desktop: FakeDesktop, tmp_path: Path) -> AsyncIterator[Setting]:
    """A guest whose browser says its tabs to each connection and closes it."""

    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write("\n".join(tab["url"] for tab in TABS).encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield setting_of(desktop, tmp_path, browser_at(server.sockets[0]))


@pytest.fixture
def hung(desktop: FakeDesktop, tmp_path: Path) -> Iterator[Setting]:
    """A guest whose browser accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield setting_of(desktop, tmp_path, browser_at(server))


def browser_at(server: Any) -> MachineAddress:
    """The address of a guest whose browser has the port of this socket."""
    return MachineAddress(host="127.0.0.1", chromium=server.getsockname()[1])


# ---- the limit of a call ----


@pytest.fixture
def limit_s(monkeypatch: pytest.MonkeyPatch) -> str:
    """The limit of a call, which is far below the deadline of the evaluation, as a message has it."""
    limit_s = 0.02 * (DEADLINE_S - RESERVE_S)
    monkeypatch.setattr(judging, "page_call_s", lambda _: limit_s)  # whatever time the setup took
    return f"{limit_s:.1f}"


class Answered:
    """Stands for a child that gives the score 1 at once, and for answers that lack nothing."""

    lacks = ()

    async def send(self, message: object) -> None:
        pass

    async def receive(self) -> dict[str, float]:
        return {"score": 1.0}

    async def answer(self, question: str, arguments: object) -> None:
        pass


@pytest.mark.parametrize(
    ("left_s", "limit_s"),
    [(180.0, 131.25), (150.0, 125.0), (130.0, 125.0), (105.0, 100.0)],
    ids=["nothing took time before", "a slow setup before", "no more than two waits", "less than that"],
)
async def test_a_call_that_reads_pages_has_the_time_of_two_waits_if_so_much_is_left(
    monkeypatch: pytest.MonkeyPatch, left_s: float, limit_s: float
) -> None:
    limits: list[float] = []

    class Noted(PageCalls):
        def __init__(self, lacks: Sequence[str], limit_s: float) -> None:
            super().__init__(lacks, limit_s)
            limits.append(limit_s)

    monkeypatch.setattr(judging, "PageCalls", Noted)
    stub: Any = Answered()
    evaluation = ChildEvaluation(task("is_there", {"type": "tabs"}), stub, stub, [])
    assert await evaluation.score({}, lambda: left_s) == 1.0
    assert limits == [limit_s]


async def test_a_getter_that_hangs_in_the_browser_is_ended_at_its_own_limit_and_named(
    hung: Setting, evaluators: Path, limit_s: str
) -> None:
    hangs = task("is_there", {"type": "tabs"})
    expected = f"its getter get_tabs did not return within {limit_s} s, the limit of a call that reads pages"
    before = set(psutil.Process().children())  # other tests of this process may have left theirs
    with pytest.raises(EvaluatorFailed, match=expected):
        await judge(hangs, hung, find_evaluators(evaluators), counting_down(DEADLINE_S))
    assert set(psutil.Process().children()) <= before


async def test_a_machine_that_broke_while_a_getter_hung_is_to_blame_and_the_getter_is_named(
    hung: Setting, evaluators: Path, desktop: FakeDesktop, limit_s: str
) -> None:
    desktop.manager = None
    hangs = task("is_there", {"type": "tabs"})
    with pytest.raises(WindowManagerDied, match=f"because .*get_tabs did not return within {limit_s} s"):
        await judge(hangs, hung, find_evaluators(evaluators), counting_down(DEADLINE_S))


@pytest.mark.parametrize(("look", "conjunction"), [("tabs", "and"), ("no_page", "or")])
async def test_the_limit_of_a_call_ends_when_its_getter_returns_or_raises(
    setting: Setting, evaluators: Path, limit_s: str, look: str, conjunction: str
) -> None:
    rests = {"type": "rule", "rules": 1.5 * float(limit_s)}
    slow = task(["is_there", "rests"], [{"type": look}, rests], conj=conjunction)
    judgement = await judge(slow, setting, find_evaluators(evaluators), counting_down(DEADLINE_S))
    assert judgement.score == 1.0


async def test_the_relay_to_the_browser_works_where_the_path_of_the_temporary_folder_is_long(
    setting: Setting, evaluators: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (long := tmp_path / ("long" * 30)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    reads = task("is_there", {"type": "tabs"})
    judgement = await judge(reads, setting, find_evaluators(evaluators), counting_down(DEADLINE_S))
    assert judgement.score == 1.0


# ---- what is kept ----


@pytest.fixture
def kept(setting: Setting, evaluators: Path, tmp_path: Path) -> Callable[[OSWorldTask], Awaitable[Judgement]]:
    """Judges a task and keeps the judgement in the run directory ``run``."""

    async def judge_and_keep(asked: OSWorldTask) -> Judgement:
        judgement = await judge(asked, setting, find_evaluators(evaluators), counting_down(DEADLINE_S))
        JudgementLog(tmp_path / "run", "env-000").add(Judged(judgement, asked.task_id, 0, NO_ROLLOUT))
        return judgement

    return judge_and_keep


@pytest.fixture
def again(evaluators: Path, tmp_path: Path) -> Callable[[OSWorldTask], Awaitable[Judgement]]:
    """Judges a task again by what was kept, without a guest."""

    async def judge_again(asked: OSWorldTask) -> Judgement:
        (line,) = read_judgements(tmp_path / "run")
        answers = RecordedAnswers(tmp_path / "run", line)
        return await judged(asked, find_evaluators(evaluators), answers, counting_down(DEADLINE_S))

    return judge_again


Judges = Callable[[OSWorldTask], Awaitable[Judgement]]


@pytest.mark.parametrize(
    ("asked", "score"),
    [
        (task("exact_match", {"type": "tabs"}, expected=TABS), 1.0),
        (task("exact_match", {"type": "tabs"}, expected=[]), 0.0),
        (task("has_lines", {"type": "printed_page", "dest": "page.txt"}, expected=2), 1.0),
        (task("has_lines", {"type": "page_of_a_file", "path": "/home/user/none"}, expected=2), 0.0),
    ],
    ids=["a list", "another list", "a file that the getter wrote", "nothing, for want of a file"],
)
async def test_the_value_of_a_getter_of_pages_is_judged_again_without_its_guest(
    kept: Judges, again: Judges, asked: OSWorldTask, score: float
) -> None:
    first = await kept(asked)
    second = await again(asked)
    assert (first.score, second.score) == (score, score)
    assert second.by_values == (f"get_{asked.evaluator['result']['type']}",)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"type": "set_of_tabs"}, "it cannot be written down: "),
        ({"type": "large_page", "bytes": 2**20}, "it has 1048[0-9]+ bytes, and at most "),
        ({"type": "two_numbers"}, "it does not consist of texts, numbers, lists and maps"),
        ({"type": "large_file", "bytes": 2**26 + 1}, "it wrote 67108865 bytes of files, and at most "),
    ],
)
async def test_a_value_that_cannot_be_kept_changes_no_score_and_says_so_when_it_is_judged_again(
    kept: Judges, again: Judges, result: dict[str, Any], why: str
) -> None:
    asked = task("is_there", result)
    assert (await kept(asked)).score == 1.0
    with pytest.raises(EvaluatorFailed, match=f"the value of get_{result['type']} was not kept: {why}"):
        await again(asked)


async def test_a_judgement_of_a_run_that_kept_no_values_says_so(
    kept: Judges, again: Judges, tmp_path: Path
) -> None:
    asked = task("is_there", {"type": "tabs"})
    judgement = await kept(asked)
    (tmp_path / "run" / FOLDER / "env-000.jsonl").unlink()
    without = dataclasses.replace(judgement, readings=())
    JudgementLog(tmp_path / "run", "env-000").add(Judged(without, asked.task_id, 0, NO_ROLLOUT))
    with pytest.raises(
        EvaluatorFailed, match="get_tabs reads pages of a browser, and its value was not kept"
    ):
        await again(asked)


async def test_a_kept_value_that_was_altered_is_noticed(kept: Judges, again: Judges, tmp_path: Path) -> None:
    asked = task("exact_match", {"type": "tabs"}, expected=TABS)
    await kept(asked)
    (value,) = (tmp_path / "run" / FOLDER / READ).glob("*/*")
    content = value.read_bytes()
    value.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BlobDamage):
        await again(asked)
