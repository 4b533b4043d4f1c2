"""The small policies that come with dartrl on a site in a real browser, whose pages exceed their frame."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dart.core.actions import format_action, parse_action
from dart.environments.sites.environment import SitesEnvironment
from dart.environments.sites.oracles import solution
from dart.policy.small_policy import load_codec

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CONFIGS = Path(__file__).parents[2] / "configs"
TASK = "sites/mail/easy"
DEADLINE_S = 240.0


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[SitesEnvironment]:
    environment = SitesEnvironment(tmp_path / "browser")
    yield environment
    await environment.close()


@pytest.mark.parametrize("policy", ["base-policy", "base-policy-pointer"])
async def test_what_a_policy_can_say_in_its_tokens_solves_a_task(
    environment: SitesEnvironment, policy: str
) -> None:
    codec = load_codec(CONFIGS / policy)
    seen = await environment.reset(TASK, 1, deadline_s=DEADLINE_S)
    async for action in solution(environment, seen.instruction):
        screen = codec.screen("", seen.screenshot)
        tokens = codec.encode_action(format_action(action), seen.instruction, screen.frame)
        said = parse_action(codec.decode_action(tokens, seen.instruction, screen.frame))
        if (await environment.step(said, deadline_s=DEADLINE_S)).terminated:
            break
        seen = await environment.observe(deadline_s=DEADLINE_S)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0
