"""Every site is a whole machine of 50 to 200 screens, and each of its tasks has a solution in the machine."""

from pathlib import Path

import pytest

from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.environments.faults import UnknownTask
from dart.environments.sites.catalogue import SITES, site_of
from dart.environments.sites.environment import make
from dart.environments.sites.html import document_html
from dart.environments.sites.machine import SiteState
from dart.environments.sites.style import style_of
from dart.environments.sites.tasks import KINDS, LENGTHS, task_ids, task_of
from dart.environments.sites.words import Words
from tests.unit.environments.sites.site_checks import check

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", SITES)
def test_the_definition_of_a_site_has_no_mistakes(name: str) -> None:
    check(site_of(name, 3))


@pytest.mark.parametrize("name", SITES)
def test_a_seed_changes_the_texts_of_a_site_and_not_its_machine(name: str) -> None:
    one, other = site_of(name, 1), site_of(name, 2)
    assert one.machine.states() == other.machine.states()
    assert [[element.target for element in elements] for elements in one.machine.elements.values()] == [
        [element.target for element in elements] for elements in other.machine.elements.values()
    ]
    assert [screen.name for screen in one.screens] != [screen.name for screen in other.screens]


@pytest.mark.parametrize("name", SITES)
def test_a_seed_gives_the_same_page_again_and_another_seed_another_one(name: str) -> None:
    pages = [
        document_html(SITES[name](Words(seed, name)), style_of(seed, name), SiteState("home"))
        for seed in (4, 4, 5)
    ]
    assert pages[0] == pages[1] != pages[2]


@pytest.mark.parametrize(("look_seed", "is_one"), [(-1, False), (0, True), (7, True)])
def test_all_episodes_have_the_look_of_the_configured_seed(
    look_seed: int, is_one: bool, tmp_path: Path
) -> None:
    config = Config.model_validate({"environments": {"kind": "sites", "sites": {"look_seed": look_seed}}})
    environment = make(config, "env-000", RunPaths(tmp_path))
    first, second = (environment._start_of("sites/shop/explore", seed) for seed in (1, 2))
    assert (first.style == second.style, first.site.brand == second.site.brand) == (is_one, is_one)


@pytest.mark.parametrize("task_id", [one for one in task_ids() if not one.endswith("/explore")])
def test_a_task_is_solved_by_its_own_solution_in_the_machine(task_id: str) -> None:
    task = task_of(task_id, 11)
    machine, state = task.site.machine, task.site.machine.start
    for act in task.solution:
        assert task.goal is not None
        assert not machine.is_reached(task.goal, state)
        state = machine.fire(state, act)
    assert task.goal is not None
    assert machine.is_reached(task.goal, state)
    kind = task_id.split("/")[-1]
    assert machine.num_actions(task.solution) in LENGTHS.get(kind, range(1, 31))


def test_an_unknown_site_or_kind_of_task_is_refused_with_what_was_meant() -> None:
    with pytest.raises(UnknownTask, match="did you mean sites/shop"):
        task_of("sites/shp", 0)
    assert "explore" in KINDS
