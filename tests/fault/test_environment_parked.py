"""A parked page stands still and lives on; a parked episode outlives the processes that played it."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from actors.system import ActorSystem, RootSpec
from dart.config.config import Config
from dart.core.actions import Scroll, format_action
from dart.core.types import RolloutLease, RolloutState
from dart.environments.browser.demonstrations import play
from dart.environments.browser.dom_queries import click
from dart.environments.faults import PageCrashed
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.miniwob.oracles import ORACLES
from dart.store.reader import StoreReader
from dart.store.store import Store
from supervision import reports
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.supervisor import supervisor_args
from tests.fault.actors_under_test import eventually

pytestmark = pytest.mark.browser

TASK, SEED = "miniwob/login-user", 7
STEP_CAP = 6
DEADLINE_S = 20.0
TICKS = "(window.ticks = 0, setInterval(() => { window.ticks += 1 }, 5), 1)"

LEFT_MS = 1000

SEEN_NOW = "({now: performance.now(), date: +new Date(), other: Date.now(), ticks: window.ticks})"
SEEN = f"({{...{SEEN_NOW}, fired: window.fired}})"
WATCHED = f"""
window.ticks = 0; window.fired = window.cancelled = null; window.began = {SEEN_NOW};
setInterval(() => {{ window.ticks += 1 }}, 50);
setTimeout((more) => {{ window.fired = {{...{SEEN_NOW}, more}} }}, {LEFT_MS}, 'more');
clearTimeout(setTimeout(() => {{ window.cancelled = 1 }}, {LEFT_MS} / 2)); 1
"""
"""A one-shot timer, an interval, and one that is cancelled."""


async def test_the_timers_of_a_parked_page_stand_still_and_afterwards_it_is_as_before(tmp_path: Path) -> None:
    environment = MiniWobEnvironment(tmp_path)
    await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    await environment.inspect(TICKS)
    await environment.park(deadline_s=DEADLINE_S)
    await environment.park(deadline_s=DEADLINE_S)
    before = await environment.inspect("window.ticks")
    assert await environment.healthy(deadline_s=DEADLINE_S)
    for _ in range(20):
        assert await environment.inspect("window.ticks") == before
    await environment.unpark(deadline_s=DEADLINE_S)
    while await environment.inspect("window.ticks") == before:
        pass  # the test's own timeout is the deadline
    assert await environment.inspect("document.visibilityState") == "visible"
    await environment.step(Scroll(80, 120, "down"), deadline_s=DEADLINE_S)  # waits for frames
    button = await click(environment, "#subbtn")
    assert (await environment.step(button, deadline_s=DEADLINE_S)).terminated
    await environment.observe(deadline_s=DEADLINE_S)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0
    await environment.close()


async def test_a_parked_page_sees_no_time_pass_and_its_timers_keep_what_was_left_of_them(
    tmp_path: Path,
) -> None:
    environment = MiniWobEnvironment(tmp_path)
    await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    await environment.inspect(WATCHED)
    await environment.park(deadline_s=DEADLINE_S)
    parked_at = await environment.inspect(SEEN)
    await asyncio.sleep(2 * LEFT_MS / 1000)  # in real time every one of them would have run out
    assert await environment.inspect(SEEN) == parked_at
    await environment.unpark(deadline_s=DEADLINE_S)
    while (fired := (await environment.inspect(SEEN))["fired"]) is None:
        pass  # the test's own timeout is the deadline
    began = await environment.inspect("window.began")
    assert fired["now"] - began["now"] >= LEFT_MS - 1  # a native timer may be early by the clock's rounding
    assert fired["date"] - began["date"] >= LEFT_MS - 1
    assert fired["ticks"] > 0
    wall_ms = await environment.inspect("performance.timeOrigin + performance.now()") - time.time() * 1000
    assert wall_ms < -2 * LEFT_MS + 1
    assert await environment.inspect("window.cancelled") is None
    assert fired["more"] == "more"
    assert await environment.inspect("typeof Date() + (new Date() instanceof Date)") == "stringtrue"
    assert await environment.inspect("new Date(2020, 1, 3).getDate()") == 3
    await environment.close()


async def test_a_reset_wakes_a_parked_page(tmp_path: Path) -> None:
    environment = MiniWobEnvironment(tmp_path)
    await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    await environment.park(deadline_s=DEADLINE_S)
    await environment.reset("miniwob/click-test", 2, deadline_s=DEADLINE_S)
    await environment.step(Scroll(80, 120, "down"), deadline_s=DEADLINE_S)
    assert await environment.inspect("document.visibilityState") == "visible"
    await environment.close()


async def test_a_reset_replaces_a_page_that_crashed_while_it_was_parked(tmp_path: Path) -> None:
    environment = MiniWobEnvironment(tmp_path)
    await environment.reset("miniwob/click-test", 1, deadline_s=DEADLINE_S)
    await environment.park(deadline_s=DEADLINE_S)
    assert environment._page is not None
    with pytest.raises(PageCrashed):
        await environment._page.post("Page.crash")
    assert not await environment.healthy(deadline_s=DEADLINE_S)
    await environment.reset("miniwob/click-test", 2, deadline_s=DEADLINE_S)
    assert await environment.healthy(deadline_s=DEADLINE_S)
    await environment.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="parked-", dir="/tmp"))
    for name in ("mail", "blobs", "scratch"):
        (folder / name).mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running(
    folder: Path, lease: RolloutLease, engine: dict[str, Any], name: str = "WrittenEngine", **limits: float
) -> Iterator[ActorSystem]:
    """A store, a curator with this lease, an engine and one environment, each in its own process.

    name     class of the engine in `tests.fault.parking`
    limits   keys of the section environments
    """
    config = Config.model_validate(
        {
            "environments": {"park_after_s": 0.1, **limits},
            "supervision": {"environment_pool": {"shutdown_s": 1.0}},
        }
    ).model_dump(mode="json")
    told = {"config": config, "store": str(folder / "store.db"), "engines": ["rollout-0"]}
    children = (
        ChildSpec(id="store", actor="dart.store.actor:StoreActor", args=told),
        ChildSpec(id="curator", actor="tests.fault.parking:OneLeaseCurator", args={"lease": asdict(lease)}),
        ChildSpec(id="rollout-0", actor=f"tests.fault.parking:{name}", args=engine),
        ChildSpec(
            id="env-000", actor="dart.environments.actor:EnvironmentActor", args=told, shutdown_s=DEADLINE_S
        ),
    )
    root = RootSpec(
        name="root",
        actor="supervision.supervisor:Supervisor",
        args=supervisor_args(SupervisorFlags(), children),
    )
    system = ActorSystem(folder, folder / "mail", root)
    with system:
        yield system
    system.board.close()


def leased(store: Store) -> RolloutLease:
    return store.lease_rollout(store.open_group(TASK, SEED, 2, STEP_CAP, 0), "env-000", 2e9)


def requests(system: ActorSystem) -> int:
    slot = system.board.find("rollout-0")
    return 0 if slot is None else int(system.board.get(slot, "uses"))


async def written_answers(scratch: Path) -> list[str]:
    environment = MiniWobEnvironment(scratch)
    played = await play(environment, ORACLES[TASK], TASK, SEED)
    await environment.close()
    assert played.reward == 1.0
    return [format_action(action) for _, action, _ in played.steps]


async def test_an_episode_parked_by_one_process_is_taken_up_by_another_and_stored_once(folder: Path) -> None:
    answers = await written_answers(folder / "oracle")
    with Store(folder / "store.db") as store, StoreReader(folder / "store.db") as reader:
        lease = leased(store)
        with running(folder, lease, {"answers": answers, "silent_from": 2, "version": 0}) as system:
            eventually(lambda: requests(system) == 3, "the third step waits for its answer")
            system.stop()
            eventually(lambda: system.wait(0.1), "every actor ended by itself")
        parked = reader.parked_steps(lease.rollout_id)
        assert [step.token_ids[0] for step in parked] == [0, 1]

        reassigned = store.reassign_rollout(lease.rollout_id, "env-000", 2e9)
        assert isinstance(reassigned, RolloutLease)
        assert (reassigned.attempt, reassigned.parked_steps) == (1, 2)
        with running(folder, reassigned, {"answers": answers, "silent_from": 99, "version": 1}):
            eventually(
                lambda: reader.rollout(lease.rollout_id).state is RolloutState.STORED,
                "it is played to its end",
            )
        (trajectory,) = reader.groups_to_trajectories([lease.group_id])[0].trajectories
    numbers = range(len(answers))
    assert [step.token_ids[0] for step in trajectory.steps] == [n if n < 2 else 100 + n for n in numbers]
    assert [step.policy_version for step in trajectory.steps] == [0 if n < 2 else 1 for n in numbers]
    assert trajectory.steps[:2] == parked
    assert len(trajectory.steps) <= STEP_CAP
    assert trajectory.reward == 1.0


async def test_a_sigterm_to_an_environment_costs_no_attempt_and_no_restart(folder: Path) -> None:
    answers = await written_answers(folder / "oracle")
    with Store(folder / "store.db") as store, StoreReader(folder / "store.db") as reader:
        lease = leased(store)
        with running(folder, lease, {"answers": answers, "silent_from": 2, "version": 0}) as system:
            eventually(lambda: requests(system) == 3, "the third step waits for its answer")
            slot = system.board.find("env-000")
            assert slot is not None
            os.kill(system.board.get(slot, "pid"), signal.SIGTERM)
            eventually(lambda: len(reader.parked_steps(lease.rollout_id)) == 2, "its steps are stored")
            system.await_ready("env-000", incarnation=2)
            row = system.board.vitals(slot)
        assert [step.token_ids[0] for step in reader.parked_steps(lease.rollout_id)] == [0, 1]
        assert reader.rollout(lease.rollout_id).attempt == 1
    assert row.restarts == 0
    contexts = [report.context for report in reports.read(folder, "root")]
    assert contexts == ["preempted"]


@pytest.mark.parametrize("kill_at", [1, 2])
async def test_an_episode_whose_browser_is_killed_in_a_step_goes_on_there_and_asks_no_answer_again(
    folder: Path, kill_at: int
) -> None:
    answers = await written_answers(folder / "oracle")
    engine = {"answers": answers, "silent_from": 99, "version": 0, "kill_at": kill_at}
    with Store(folder / "store.db") as store, StoreReader(folder / "store.db") as reader:
        lease = leased(store)
        with running(folder, lease, engine, "KillingEngine", turn_resumes=1, park_after_s=60.0) as system:
            eventually(
                lambda: reader.rollout(lease.rollout_id).state is RolloutState.STORED,
                "it is played to its end",
            )
            assert requests(system) == len(answers)
        (trajectory,) = reader.groups_to_trajectories([lease.group_id])[0].trajectories
        assert reader.rollout(lease.rollout_id).attempt == 1
    lines = map(json.loads, (folder / "logs" / "env-000.jsonl").read_text().splitlines())
    resumed = [
        (line["step"], "the browser died" in line["fault"])
        for line in lines
        if "turn_resumed" in line.values()
    ]
    assert [step.token_ids[0] for step in trajectory.steps] == list(range(len(answers)))
    assert trajectory.reward == 1.0
    assert resumed == [(kill_at + 1, True)]


async def test_without_resumes_a_killed_browser_costs_the_attempt(folder: Path) -> None:
    answers = await written_answers(folder / "oracle")
    engine = {"answers": answers, "silent_from": 99, "version": 0, "kill_at": 2}
    with Store(folder / "store.db") as store:
        lease = leased(store)
        with running(folder, lease, engine, "KillingEngine"):
            failed = folder / "logs" / "env-000.jsonl"
            eventually(
                lambda: failed.exists() and "episode_failed" in failed.read_text(), "the fault is reported"
            )
