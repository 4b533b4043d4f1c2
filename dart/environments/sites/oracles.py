"""The oracle of sites, which plays the shortest solution of a task with clicks and keys."""

from collections.abc import AsyncIterator

from dart.core.actions import Action, Type
from dart.environments.browser.dom_queries import click
from dart.environments.sites.environment import SitesEnvironment
from dart.environments.sites.machine import Act


async def solution(environment: SitesEnvironment, instruction: str) -> AsyncIterator[Action]:
    """Yield the actions that solve the task of the episode. Apply each before you resume the generator.

    The boxes of the elements are read from the page. Raises TargetNotFound when the page hides an element.
    """
    for act in environment.task.solution:
        async for action in _actions_of(environment, act):
            yield action


async def _actions_of(environment: SitesEnvironment, act: Act) -> AsyncIterator[Action]:
    selector = f'[data-element="{act.element}"]'
    for name, text in act.texts:
        yield await click(environment, f'{selector} input[name="{name}"]')
        yield Type(text)
    yield await click(environment, f"{selector} button" if act.texts else selector)
