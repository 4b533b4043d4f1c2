"""An agent ends when its launcher is silent."""

import pytest

from dart.cluster import host_agent
from dart.cluster.host_agent import LAUNCHER_LEASE_TICKS, HostAgent


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
