"""Faults no exception shows, in a real browser: each injected kind is noticed, and nothing else is."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dart.config.injected_faults import InjectedFault
from dart.config.sections import FaultsSettings
from dart.core.actions import Action, Click, Drag, Hotkey, Type
from dart.environments.browser.dom_queries import click
from dart.environments.fault_injection import FaultyEnvironment, InjectionLog, read_injections
from dart.environments.faults import (
    ActionNotConfirmed,
    BrowserDied,
    BrowserHung,
    CorruptFrame,
    EnvironmentFault,
    EvaluatorFailed,
    FrozenFrame,
    ResetFailed,
)
from dart.environments.miniwob.environment import MiniWobEnvironment

pytestmark = pytest.mark.browser

TASK, SEED = "miniwob/enter-text", 1
DEADLINE_S = 20.0
HANG_S = 1.2
"""Deadline of what is expected to hang."""


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[MiniWobEnvironment]:
    environment = MiniWobEnvironment(tmp_path)
    yield environment
    await environment.close()


@pytest.mark.parametrize(
    ("kind", "fault", "says"),
    [
        (InjectedFault.CRASH, BrowserDied, "exit code -9"),
        (InjectedFault.HANG, BrowserHung, "the browser did not respond during step"),
        (InjectedFault.LOST_ACTION, ActionNotConfirmed, "lost or doubled: 0 of"),
        (InjectedFault.DOUBLED_ACTION, ActionNotConfirmed, "lost or doubled: [24] of"),
        (InjectedFault.FROZEN_FRAME, FrozenFrame, "screenshots of miniwob/enter-text froze"),
        (InjectedFault.BAD_EVALUATION, EvaluatorFailed, "got nan"),
        (InjectedFault.FAILED_RESET, ResetFailed, "a fault was injected"),
        (InjectedFault.TRUNCATED_FRAME, CorruptFrame, "expected a whole PNG"),
    ],
)
async def test_every_injected_fault_is_noticed_before_there_is_a_reward(
    environment: MiniWobEnvironment,
    kind: InjectedFault,
    fault: type[EnvironmentFault],
    says: str,
    tmp_path: Path,
) -> None:
    rates = dict.fromkeys((other.value for other in InjectedFault), 0.0) | {kind.value: 1.0}
    log = InjectionLog(tmp_path / "faults", "env-000", lambda: 0.0)
    faulty = FaultyEnvironment(environment, FaultsSettings(enabled=True, **rates), "x", log)
    deadline_s = HANG_S if kind is InjectedFault.HANG else DEADLINE_S

    async def playing() -> None:
        await faulty.reset(TASK, SEED, deadline_s=DEADLINE_S)
        for action in (await click(environment, "#tt"), Type("ab"), Type("c")):
            await faulty.step(action, deadline_s=deadline_s)
            await faulty.observe(deadline_s=deadline_s)
        await faulty.evaluate(deadline_s=deadline_s)

    with pytest.raises(fault, match=says):
        await playing()
    assert [injection.kind for injection in read_injections(tmp_path / "faults")] == [kind]


async def test_looking_whether_the_picture_is_frozen_leaves_no_trace(environment: MiniWobEnvironment) -> None:
    start = await environment.reset(TASK, SEED, deadline_s=DEADLINE_S)
    await environment.step(Click(5, 150), deadline_s=DEADLINE_S)
    assert await environment.observe(deadline_s=DEADLINE_S) == start
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0
    assert await environment.observe(deadline_s=DEADLINE_S) == start
    assert await environment.inspect("document.getElementById('dart-mark')") is None


DIALOG = "(document.body.addEventListener('mousedown', () => alert('x')), 1)"
STOP_EVENTS = """
['mousedown', 'pointerdown', 'keydown'].forEach((kind) => document.addEventListener(kind,
    (event) => { event.stopImmediatePropagation(); event.preventDefault(); }, true)) ?? 1
"""
DISABLE = "(document.querySelectorAll('button, input').forEach((e) => { e.disabled = true }), 1)"


@pytest.mark.parametrize(
    ("task_id", "prepare", "selector", "then"),
    [
        ("click-tab", "1", ".ui-tabs-anchor", lambda at: [Drag(at.x, at.y, at.x + 60, at.y + 40), at]),
        (
            "enter-text",
            "1",
            "#tt",
            lambda at: [at, Type("abc"), Hotkey(("ctrl", "a")), Drag(at.x, at.y, 5, 190)],
        ),
        ("choose-list", "1", "#options", lambda at: [at, Type("abc"), Hotkey(("esc",)), Click(5, 190)]),
        ("enter-text", DIALOG, "#tt", lambda at: [at, Type("a")]),
        ("enter-text", STOP_EVENTS, "#tt", lambda at: [at, Type("a")]),
        ("enter-text", DISABLE, "#subbtn", lambda at: [at, at]),
        ("enter-text", "1", "#tt", lambda at: [Click(159, 209), Click(160, 5), Click(5, 5000), at]),
    ],
)
async def test_what_pages_do_with_input_is_no_fault(
    environment: MiniWobEnvironment,
    task_id: str,
    prepare: str,
    selector: str,
    then: Callable[[Click], list[Action]],
) -> None:
    await environment.reset(f"miniwob/{task_id}", SEED, deadline_s=DEADLINE_S)
    at = await click(environment, selector)
    await environment.inspect(prepare)
    for action in then(at):
        if (await environment.step(action, deadline_s=DEADLINE_S)).terminated:
            break
        await environment.observe(deadline_s=DEADLINE_S)
    await environment.evaluate(deadline_s=DEADLINE_S)
