"""The how-tos about an environment and a reward of one's own: what they say to do works."""

import inspect
import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from dart.config.config import Config, load_config
from dart.config.environment_kinds import KINDS, EnvironmentKind
from dart.core.actions import Action, Click, Wait
from dart.core.run_directory import RunPaths
from dart.environments.factory import make_environment
from dart.environments.protocol import Environment, Observation
from examples.own_environment import SquareEnvironment
from examples.own_reward import ShorterIsBetter
from tests.unit.docs.pages import ROOT

HOW_TO = (ROOT / "docs" / "how-to" / "own-environment.md").read_text(encoding="utf-8")
OWN_REWARD = (ROOT / "docs" / "how-to" / "own-reward.md").read_text(encoding="utf-8")
TASK, SEED, DEADLINE_S = "square/one", 7, 5.0


def test_the_environment_of_the_how_to_has_at_most_twenty_three_lines() -> None:
    lines = inspect.getsource(SquareEnvironment).splitlines()
    assert len([line for line in lines if line.strip()]) <= 23


async def test_the_row_of_the_how_to_makes_the_environment_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ((name, row),) = re.findall(r'^ *"(\w+)": (EnvironmentKind\(.*\)),$', HOW_TO, re.MULTILINE)
    monkeypatch.setitem(KINDS, name, eval(row, {"EnvironmentKind": EnvironmentKind}))
    config = Config()
    settings = config.environments.model_copy(update={"kind": name})
    config = config.model_copy(update={"environments": settings})

    made = make_environment(config, "env-000", 1, RunPaths(tmp_path), lambda: 0.0)

    assert isinstance(made, SquareEnvironment)
    assert await played(made, [Wait()]) == 1.0


def test_the_environment_of_the_how_to_has_methods_of_the_protocol_and_no_others() -> None:
    methods = {name for name in vars(SquareEnvironment) if not name.startswith("_")}
    assert methods <= {name for name in vars(Environment) if not name.startswith("_")}
    assert methods >= {"reset", "observe", "step", "evaluate", "healthy"}


async def test_a_task_and_seed_give_the_same_start_screen() -> None:
    first, again, other = [await started(SquareEnvironment(), seed) for seed in (SEED, SEED, SEED + 1)]
    assert first == again
    assert first != other


async def test_a_method_that_the_how_to_leaves_out_does_nothing() -> None:
    square = SquareEnvironment()
    await started(square)
    await square.park(deadline_s=DEADLINE_S)
    await square.unpark(deadline_s=DEADLINE_S)
    assert await square.healthy(deadline_s=DEADLINE_S)
    await square.close()


async def test_the_reward_of_the_how_to_is_less_for_more_steps() -> None:
    assert await played(ShorterIsBetter(SquareEnvironment())) == 1.0
    assert await played(ShorterIsBetter(SquareEnvironment()), [Wait(), Wait()]) == pytest.approx(0.81)


def test_the_row_of_the_how_to_gives_the_tasks_of_the_browser_the_own_reward(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ((name, row),) = re.findall(
        r'^"(\w+)": (EnvironmentKind\(.*?^\)),$', OWN_REWARD, re.MULTILINE | re.DOTALL
    )
    own = eval(row, {"EnvironmentKind": EnvironmentKind})
    bundled = KINDS[name]
    monkeypatch.setitem(KINDS, name, own)
    config = load_config(None, ['tasks.train=["miniwob/click-tab"]'])

    made = make_environment(config, "env-000", 1, RunPaths(tmp_path), lambda: 0.0)

    assert isinstance(made, ShorterIsBetter)
    assert replace(own, make=bundled.make, injectable=bundled.injectable) == bundled


async def started(environment: Environment, seed: int = SEED) -> Observation:
    return await environment.reset(TASK, seed, deadline_s=DEADLINE_S)


async def played(environment: Environment, first: list[Action] | None = None) -> float:
    """The reward of some actions, and then a click on the square that the screenshot shows."""
    seen = await started(environment)
    for action in [*(first or []), middle_of_the_square(seen)]:
        await environment.step(action, deadline_s=DEADLINE_S)
    return await environment.evaluate(deadline_s=DEADLINE_S)


def middle_of_the_square(seen: Observation) -> Click:
    picture = Image.open(BytesIO(seen.screenshot)).convert("L")
    left, top, right, bottom = picture.point(lambda grey: 255 - grey).getbbox() or (0, 0, 0, 0)
    return Click((left + right) // 2, (top + bottom) // 2)
