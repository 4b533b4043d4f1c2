"""Priors from what a policy would do on a screen."""

from dataclasses import replace

import pytest

from dart.core.exploration import Candidate, ExploreAct, PageElement
from dart.exploration.candidates import candidates_of
from dart.exploration.memory_q import PRIOR
from dart.exploration.model_prior import ModelPrior
from tests.unit.exploration.screens import button, click, screen

SCREEN = screen("home", ("Cart", "Help"))


def test_a_candidate_is_raised_by_the_share_of_answers_that_hit_it() -> None:
    prior = ModelPrior()
    hit, beside = "click(start_box='(20,12)')", "click(start_box='(90,90)')"
    prior.learn(1, [hit, hit, beside, "Thought: it helps.\nAction: click(start_box='(20,26)')"], SCREEN)
    assert prior(1, click("Cart")) == pytest.approx(PRIOR + (1 - PRIOR) / 2)
    assert prior(1, click("Help", 1)) == pytest.approx(PRIOR + (1 - PRIOR) / 4)


def test_without_a_valid_answer_the_prior_is_the_constant() -> None:
    prior = ModelPrior()
    prior.learn(1, ["no action", ""], SCREEN)
    assert not prior.is_due(1)
    assert prior(1, click("Cart")) == PRIOR
    assert prior(2, click("Cart")) == PRIOR


def test_scrolling_and_typing_hit_what_does_the_same() -> None:
    prior = ModelPrior()
    down, up = Candidate(act=ExploreAct.SCROLL_DOWN), Candidate(act=ExploreAct.SCROLL_UP)
    long = replace(SCREEN, scrolls=(ExploreAct.SCROLL_DOWN, ExploreAct.SCROLL_UP))
    prior.learn(1, ["scroll(start_box='(5,5)', direction='down')"], long)
    assert (prior(1, down), prior(1, up)) == (1.0, PRIOR)
    acts = (ExploreAct.TYPE, ExploreAct.SUBMIT)
    field = PageElement(role="textbox", text="Name", box=(10, 10, 30, 20), acts=acts)
    form = screen("form", elements=(field, button("Save", 2)))
    prior.learn(2, ["type(content='lamp')"], form)
    assert [prior(2, one) for one in candidates_of(form)] == [1.0, 1.0, PRIOR]


@pytest.mark.parametrize("click_of", ["click", "left_double"])
def test_a_click_hits_the_pixels_of_a_box_without_its_right_and_lower_edge(click_of: str) -> None:
    """The box of the first button is (10, 10, 50, 20)."""
    for x, y, is_hit in ((10, 10, True), (49, 19, True), (9, 10, False), (50, 10, False), (10, 20, False)):
        prior = ModelPrior()
        prior.learn(1, [f"{click_of}(start_box='({x},{y})')"], SCREEN)
        assert prior(1, click("Cart")) == (1.0 if is_hit else PRIOR)


def test_a_model_that_is_told_what_was_tried_is_asked_again_each_time_that_has_doubled() -> None:
    prior, asked = ModelPrior(), []
    for tried in range(20):
        if prior.is_due(1, tried):
            asked.append(tried)
            prior.learn(1, [], SCREEN, tried)
    assert asked == [0, 1, 2, 4, 8, 16]
    assert prior.is_due(2, 3)


def test_answers_without_an_action_leave_the_earlier_priors() -> None:
    prior = ModelPrior()
    prior.learn(1, ["click(start_box='(20,12)')"], SCREEN)
    prior.learn(1, [], SCREEN, tried=1)
    assert prior(1, click("Cart")) == 1.0
