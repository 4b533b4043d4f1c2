"""When an episode whose environment failed is replayed, and when it is not."""

import pytest

from dart.config.config import ConfigError, load_config
from dart.environments.faults import (
    BrowserDied,
    EnvironmentFault,
    EvaluatorFailed,
    PageHung,
    UnknownTask,
)
from dart.environments.turn_resume import may_resume

DIED = BrowserDied("step", -9)


@pytest.mark.parametrize("fault", [DIED, PageHung("observe", 10.0)])
def test_an_episode_goes_on_after_a_fault_of_its_browser(fault: EnvironmentFault) -> None:
    assert may_resume(fault, steps=1, resumed=0, limit=1)


@pytest.mark.parametrize("fault", [EvaluatorFailed("a", "b"), UnknownTask("a", ())])
def test_it_is_played_anew_where_the_fault_would_come_again(
    fault: EnvironmentFault,
) -> None:
    assert not may_resume(fault, steps=1, resumed=0, limit=9)


def test_it_is_played_anew_in_its_first_step_and_when_it_was_resumed_too_often() -> None:
    assert not may_resume(DIED, steps=0, resumed=0, limit=1)
    assert not may_resume(DIED, steps=3, resumed=1, limit=1)
    assert not may_resume(DIED, steps=3, resumed=0, limit=0)


def test_a_configuration_refuses_to_replay_screens_that_do_not_follow_from_the_seed() -> None:
    resumes, desktop = "environments.turn_resumes=1", "environments.kind=desktop"

    assert load_config(None, [resumes]).environments.turn_resumes == 1
    assert load_config(None).environments.turn_resumes == 0
    with pytest.raises(ConfigError) as refused:
        load_config(None, [resumes, desktop, "tasks.train=['desktop/a']"])
    assert "environments.turn_resumes" in str(refused.value)
    assert "must be 0 because an environment of kind 'desktop'" in str(refused.value)
