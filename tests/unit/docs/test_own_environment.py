"""The how-tos about an environment and a reward of one's own: what they say to do works."""

import inspect
import re
import shlex
import shutil
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from dart.config.config import Config, load_config
from dart.core.actions import Action, Click, Wait
from dart.core.run_directory import RunPaths
from dart.environments.factory import make_environment
from dart.environments.protocol import Environment, Observation
from examples.own_environment import SquareEnvironment
from examples.own_reward import ShorterIsBetter
from tests.unit.docs.pages import ROOT

HOW_TO = (ROOT / "docs" / "how-to" / "own-environment.md").read_text(encoding="utf-8")
OWN_REWARD = (ROOT / "docs" / "how-to" / "own-reward.md").read_text(encoding="utf-8")
TASK, SEED, DEADLINE_S = "own/square", 7, 5.0


def test_the_environment_of_the_how_to_has_at_most_twenty_three_lines() -> None:
    lines = inspect.getsource(SquareEnvironment).splitlines()
    assert len([line for line in lines if line.strip()]) <= 23


@pytest.mark.parametrize("from_file", [False, True])
async def test_the_command_and_the_file_of_the_how_to_make_the_environment(
    from_file: bool, tmp_path: Path
) -> None:
    if from_file:
        (file := tmp_path / "run.toml").write_text(found(r"```toml\n(.*?)```", HOW_TO))
        shutil.copy(ROOT / "examples" / "own_environment.py", tmp_path)
        config = load_config(file)
    else:
        config = configured(
            found(r"(dartrl up configs/smoke\.toml --set environments\.kind=.*?)\n```", HOW_TO)
        )

    made = make_environment(config, "env-000", 1, RunPaths(tmp_path), lambda: 0.0)

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


def test_the_command_of_the_how_to_gives_the_tasks_of_the_browser_the_own_reward(tmp_path: Path) -> None:
    config = configured(
        found(r"(dartrl up configs/smoke\.toml --set environments\.make=.*?)\n```", OWN_REWARD)
    )

    made = make_environment(config, "env-000", 1, RunPaths(tmp_path), lambda: 0.0)

    assert type(made).__name__ == ShorterIsBetter.__name__
    assert config.environments.kind == "miniwob"


def found(pattern: str, page: str) -> str:
    """The only text of a page that matches."""
    (text,) = re.findall(pattern, page, re.DOTALL)
    return str(text)


def configured(command: str) -> Config:
    """The configuration of a command that a page shows."""
    words = shlex.split(command.replace("\\\n", " "))
    overrides = [value for option, value in pairwise(words) if option == "--set"]
    return load_config(ROOT / words[2], overrides)


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
