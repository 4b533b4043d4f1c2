"""Injected faults: the plan repeats and keeps its rates; each kind is noticed and written down."""

from collections import Counter
from pathlib import Path

import pytest

from dart.config.environment_kinds import KINDS
from dart.config.injected_faults import InjectedFault
from dart.config.sections import FaultsSettings, SimulationSettings
from dart.core.actions import Click, Wait
from dart.environments.fault_injection import FaultyEnvironment, InjectionLog, planned_fault, read_injections
from dart.environments.faults import (
    ActionNotConfirmed,
    CorruptFrame,
    EnvironmentFault,
    EnvironmentTimeout,
    EvaluatorFailed,
    FrozenFrame,
    InfrastructureFault,
    ResetFailed,
)
from dart.environments.protocol import EpisodeKey
from dart.environments.simulated import SimulatedEnvironment

NONE = dict.fromkeys((kind.value for kind in InjectedFault), 0.0)
KEY = EpisodeKey(rollout_id=5, attempt=2, fence=3)
DEADLINE_S = 0.01
"""Only a hang waits for it."""


def only(kind: InjectedFault) -> FaultsSettings:
    return FaultsSettings(enabled=True, **(NONE | {kind.value: 1.0}))


def faulty(kind: InjectedFault, folder: Path) -> FaultyEnvironment:
    inner = SimulatedEnvironment(SimulationSettings(steps_median=4.0, steps_sigma=0.0), 0)
    log = InjectionLog(folder, "env-000", lambda: 12.0)
    return FaultyEnvironment(inner, only(kind), "env-000", log, asleep)


async def asleep(seconds: float) -> None:
    """No time passes."""


async def play(environment: FaultyEnvironment, action: Click | Wait = Click(1, 1)) -> float:  # noqa: B008
    await environment.reset("simulated/0", 1, deadline_s=DEADLINE_S, episode=KEY)
    while not (await environment.step(action, deadline_s=DEADLINE_S)).terminated:
        await environment.observe(deadline_s=DEADLINE_S)
    return await environment.evaluate(deadline_s=DEADLINE_S)


def test_the_same_seed_and_name_give_the_same_plan() -> None:
    faults = FaultsSettings(enabled=True, crash=0.2, hang=0.2)

    def plan(faults: FaultsSettings, name: str) -> list[object]:
        return [planned_fault(faults, name, number) for number in range(50)]

    assert plan(faults, "env-000") == plan(faults, "env-000")
    assert plan(faults, "env-000") != plan(faults, "env-001")
    assert plan(faults, "env-000") != plan(faults.model_copy(update={"seed": 1}), "env-000")


def test_each_kind_strikes_as_often_as_its_rate_says() -> None:
    planned = [planned_fault(FaultsSettings(enabled=True), "env-000", n) for n in range(20_000)]
    struck = Counter(fault.kind for fault in planned if fault is not None)
    assert set(struck) == {kind for kind in InjectedFault if getattr(FaultsSettings(), kind.value)}
    for kind in struck:
        assert struck[kind] / 20_000 == pytest.approx(getattr(FaultsSettings(), kind.value), rel=0.25)


def test_without_rates_nothing_strikes() -> None:
    faults = FaultsSettings(enabled=True, **NONE)
    assert not any(planned_fault(faults, "env-000", number) for number in range(1000))


@pytest.mark.parametrize(
    ("kind", "fault", "says"),
    [
        (InjectedFault.CRASH, InfrastructureFault, "was killed before step"),
        (InjectedFault.HANG, EnvironmentTimeout, "step did not end within"),
        (InjectedFault.LOST_ACTION, ActionNotConfirmed, r"click.*lost or doubled: 0 of 1 pointerdown"),
        (InjectedFault.DOUBLED_ACTION, ActionNotConfirmed, r"click.*lost or doubled: 2 of 1 pointerdown"),
        (InjectedFault.FROZEN_FRAME, FrozenFrame, "screenshots of simulated/0 froze"),
        (InjectedFault.BAD_EVALUATION, EvaluatorFailed, "got nan"),
        (InjectedFault.FAILED_RESET, ResetFailed, "reset of simulated/0 failed"),
        (InjectedFault.NEVER_READY, EnvironmentTimeout, "reset did not end within"),
        (InjectedFault.READY_TOO_EARLY, InfrastructureFault, "has the injected fault ready_too_early"),
        (InjectedFault.TRUNCATED_FRAME, CorruptFrame, "expected a whole PNG"),
        (InjectedFault.DIRTY_RESET, InfrastructureFault, "has the injected fault dirty_reset"),
        (InjectedFault.POPUP, InfrastructureFault, "has the injected fault popup"),
        (InjectedFault.DEAD_APPLICATION, InfrastructureFault, "has the injected fault dead_application"),
        (
            InjectedFault.DEAD_WINDOW_MANAGER,
            InfrastructureFault,
            "injected fault dead_window_manager",
        ),
    ],
)
async def test_every_kind_of_fault_is_noticed_and_written_down(
    kind: InjectedFault, fault: type[EnvironmentFault], says: str, tmp_path: Path
) -> None:
    environment = faulty(kind, tmp_path)
    with pytest.raises(fault, match=says):
        await play(environment)
    (injection,) = read_injections(tmp_path)
    assert (injection.kind, injection.environment, injection.unix_s) == (kind, "env-000", 12.0)
    assert (injection.task_id, injection.seed, injection.number) == ("simulated/0", 1, 0)
    assert (injection.rollout_id, injection.attempt, injection.fence) == (5, 2, 3)


@pytest.mark.parametrize("kind", [InjectedFault.LOST_ACTION, InjectedFault.DOUBLED_ACTION])
async def test_an_action_that_sends_nothing_is_neither_lost_nor_doubled(
    kind: InjectedFault, tmp_path: Path
) -> None:
    await play(faulty(kind, tmp_path), Wait())
    assert read_injections(tmp_path) == []


@pytest.mark.parametrize("kind", [InjectedFault.CRASH, InjectedFault.HANG, InjectedFault.FROZEN_FRAME])
async def test_the_next_reset_repairs_what_was_broken(kind: InjectedFault, tmp_path: Path) -> None:
    environment = faulty(kind, tmp_path)
    with pytest.raises(EnvironmentFault):
        await play(environment)
    assert not await environment.healthy(deadline_s=DEADLINE_S) or kind is InjectedFault.FROZEN_FRAME
    await environment.reset("simulated/0", 2, deadline_s=DEADLINE_S)
    assert await environment.healthy(deadline_s=DEADLINE_S)


async def test_a_slow_start_is_written_down_and_harms_nothing(tmp_path: Path) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    inner = SimulatedEnvironment(SimulationSettings(success=1.0), 0)
    log = InjectionLog(tmp_path, "env-000", lambda: 12.0)
    environment = FaultyEnvironment(inner, only(InjectedFault.SLOW_START), "x", log, sleep)
    assert await play(environment) == 1.0
    assert waited == [pytest.approx(DEADLINE_S / 3)]
    assert [injection.kind for injection in read_injections(tmp_path)] == [InjectedFault.SLOW_START]


def test_every_rate_has_its_kind_and_every_kind_its_rate() -> None:
    assert {kind.value for kind in InjectedFault} == set(FaultsSettings.model_fields) - {"enabled", "seed"}


def test_a_page_in_a_browser_has_no_windows_to_lose() -> None:
    assert InjectedFault.POPUP not in KINDS["miniwob"].injectable
    assert KINDS["desktop"].injectable == frozenset(InjectedFault)


async def test_without_faults_a_faulty_environment_is_like_any_other(tmp_path: Path) -> None:
    inner = SimulatedEnvironment(SimulationSettings(success=1.0), 0)
    faults = FaultsSettings(enabled=True, **NONE)
    environment = FaultyEnvironment(inner, faults, "x", InjectionLog(tmp_path, "env-000", lambda: 0.0))
    assert [await play(environment) for _ in range(20)] == [1.0] * 20
    assert read_injections(tmp_path) == []
