"""An agent ends when its launcher is silent, and leaves nothing behind when it is stopped."""

import asyncio
from pathlib import Path

import pytest

from dart.cluster import host_agent
from dart.cluster.host_agent import LAUNCHER_LEASE_TICKS, HostAgent, wire_path


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Has an entry once an agent has ended, which then does not end the process of the test."""
    found: list[bool] = []
    monkeypatch.setattr(HostAgent, "_end", lambda _: found.append(True))
    monkeypatch.setattr(host_agent, "TICK_S", 3600.0)
    return found


def tick(agent: HostAgent, times: int) -> None:
    for _ in range(times):
        agent._tick()


async def test_an_agent_ends_with_the_lease_of_its_launcher(ended: list[bool]) -> None:
    agent = HostAgent()
    await agent.renew()
    tick(agent, LAUNCHER_LEASE_TICKS - 1)
    assert not ended
    tick(agent, 1)
    assert ended


async def test_a_renewed_lease_begins_anew(ended: list[bool]) -> None:
    agent = HostAgent()
    await agent.renew()
    tick(agent, LAUNCHER_LEASE_TICKS - 1)
    await agent.renew()
    tick(agent, LAUNCHER_LEASE_TICKS - 1)
    assert not ended


async def test_an_agent_waits_for_the_first_renewal(ended: list[bool]) -> None:
    agent = HostAgent()
    tick(agent, 10 * LAUNCHER_LEASE_TICKS)
    assert not ended


def test_an_agent_that_was_stopped_leaves_no_socket_and_no_folder_behind(
    ended: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(HostAgent, "_watch_raylet", lambda _: None)
    monkeypatch.setattr(host_agent, "log_to", lambda _: None)
    folder = wire_path(tmp_path).parent
    found = []

    async def play() -> None:
        agent = HostAgent()
        await agent.listen("run/a/1", "a", str(tmp_path))
        found.append(folder.exists())
        await agent.stop()

    asyncio.run(play())
    assert [*found, folder.exists()] == [True, False]
