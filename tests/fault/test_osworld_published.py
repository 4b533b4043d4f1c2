"""Published OSWorld tasks on a real desktop, judged by OSWorld's own evaluators: from 0 to 1 by a script.

The tasks are written down here as facts: what is set up and what the evaluator is asked. Where an environment
variable names the published folder ``examples``, its files are played instead::

    DARTRL_TEST_OSWORLD_TASKS=evaluation_examples/examples make test-desktop

A task whose application is not installed is skipped with its name.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dart.config.sections import OSWorldLocalSettings, OSWorldSettings
from dart.core.types import Outcome
from dart.environments.desktop.requirements import missing_for_desktops
from dart.environments.faults import InfrastructureFault
from dart.environments.osworld.environment import OSWorldEnvironment, make_osworld
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.oracles import ORACLES
from dart.environments.osworld.providers import LocalProvider
from dart.environments.osworld.readiness import read_guest_state
from dart.environments.osworld.tasks import PREFIX
from dart.environments.scoring import reward_of
from tests.fault.osworld_published import IMPOSSIBLE, PLAYED

REPOSITORY = Path(__file__).parents[2]
EVALUATORS = REPOSITORY / ".venv-osworld-score"
GUEST = REPOSITORY / "tests" / "fault" / "osworld_guest"
_MISSING = missing_for_desktops() + (
    [] if EVALUATORS.exists() else ["OSWorld's evaluators (make osworld-score)"]
)
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed (make desktop): {', '.join(_MISSING)}"),
]
DEADLINE_S = 120.0
PROGRAMS = {
    "chrome": "chromium",
    "gimp": "gimp",
    "libreoffice_impress": "libreoffice",
    "os": "gsettings",
    "vlc": "vlc",
}
"""The program that the tasks of an area need on the machine of the tests."""

SERVES = """
mkdir -p ~/Desktop ~/.config
export PATH={guest}/bin:{prefix}/bin:$PATH PYTHONPATH={python_path} GSETTINGS_BACKEND=keyfile
exec python {guest}/serve.py "$0"
"""
"""Starts the tests' guest server; settings are kept in a file, so that no session bus is needed."""


def _server() -> OSWorldLocalSettings:
    packages = [Path(path) for path in sys.path if path.endswith("-packages")]
    python_path = ":".join(map(str, [GUEST, REPOSITORY, *packages]))
    serve = SERVES.format(guest=GUEST, prefix=sys.prefix, python_path=python_path)
    return OSWorldLocalSettings(
        server=("sh", "-c", serve, "{port}"),
        readable=(REPOSITORY / "actors", REPOSITORY / "dart", REPOSITORY / "tests", *packages),
    )


def _tasks(tmp_path: Path) -> Path:
    """Return the published folder, or a folder with the tasks as they are written down here."""
    if published := os.environ.get("DARTRL_TEST_OSWORLD_TASKS"):
        return Path(published)
    for task_id, task in {**PLAYED, **IMPOSSIBLE}.items():
        path = tmp_path / "examples" / f"{task_id.removeprefix(PREFIX)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(task))
    return tmp_path / "examples"


@pytest.fixture
def settings(tmp_path: Path) -> OSWorldSettings:
    return OSWorldSettings(
        tasks=_tasks(tmp_path),
        cache=tmp_path / "cache",
        evaluators=EVALUATORS,
        provider="local",
        width=1024,
        height=768,
        pause_s=0.3,
        local=_server(),
    )


@pytest.fixture
async def environment(tmp_path: Path, settings: OSWorldSettings) -> AsyncIterator[OSWorldEnvironment]:
    made = make_osworld("env-000", tmp_path / "scratch", tmp_path, settings)
    yield made
    await made.close()


def _require_program(task_id: str) -> None:
    area = task_id.removeprefix(PREFIX).partition("/")[0]
    if shutil.which(PROGRAMS[area]) is None:
        pytest.skip(f"not installed: {PROGRAMS[area]}")


@pytest.mark.parametrize("task_id", sorted(ORACLES))
async def test_a_published_task_is_judged_0_then_played_by_its_script_and_judged_1(
    environment: OSWorldEnvironment, task_id: str
) -> None:
    _require_program(task_id)
    await environment.reset(task_id, 0, deadline_s=DEADLINE_S)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0
    await environment.run_command(ORACLES[task_id], deadline_s=DEADLINE_S)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0


@pytest.mark.parametrize("task_id", sorted(IMPOSSIBLE))
async def test_an_infeasible_task_pays_1_for_saying_so_and_nothing_else(
    environment: OSWorldEnvironment, task_id: str
) -> None:
    await environment.reset(task_id, 0, deadline_s=DEADLINE_S)
    score = await environment.evaluate(deadline_s=DEADLINE_S)
    is_infeasible = environment.is_infeasible(task_id)
    rewards = {outcome: reward_of(outcome, score, is_infeasible) for outcome in Outcome}
    assert {outcome for outcome, reward in rewards.items() if reward} == {Outcome.INFEASIBLE}
    assert rewards[Outcome.INFEASIBLE] == 1.0


async def test_the_command_checks_a_real_desktop(tmp_path: Path, settings: OSWorldSettings) -> None:
    provider = LocalProvider("env-000", settings, tmp_path / "scratch")
    lease = await provider.acquire(deadline_s=DEADLINE_S)
    try:
        guest = Guest(lease.name, lease.address)
        async with asyncio.timeout(DEADLINE_S):
            await _answers(guest)
        ran = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dart", "osworld", "check", "-o", "json", "--applications", "os"),
            *("--addresses", str(lease.address), "--set", f"environments.osworld.tasks={settings.tasks}"),
            *("--set", f"environments.osworld.evaluators={settings.evaluators}"),
            *("--set", "environments.osworld.width=1024", "--set", "environments.osworld.height=768"),
            *("--set", "environments.osworld.network_hosts=[]"),  # a local desktop has no network
            stdout=asyncio.subprocess.PIPE,
            cwd=REPOSITORY,
        )
        async with asyncio.timeout(2 * DEADLINE_S):
            said, _ = await ran.communicate()
    finally:
        await provider.release()
    found = {one["topic"]: one for one in json.loads(said)}
    assert {one["topic"] for one in found.values() if one["verdict"] == "wrong"} == set()
    assert "e0df059f-28a6-4169-924f-b9623e7184cc is set up, judged 0, played" in found["os"]["found"]
    assert found["os reverted"]["verdict"] == "note"
    assert ran.returncode == 0


async def _answers(guest: Guest) -> None:
    """Wait until the guest's desktop is there."""
    while True:
        with contextlib.suppress(InfrastructureFault):
            if not (await read_guest_state(guest, deadline_s=DEADLINE_S)).missing(None):
                await guest.close()
                return
        await asyncio.sleep(0.5)


def test_every_script_has_its_task_here() -> None:
    assert sorted(PLAYED) == sorted(ORACLES)
