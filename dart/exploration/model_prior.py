"""The prior of an action from a model: actions that the policy itself would choose have a larger prior. Pure.

The policy is asked a few times what it would do on a screen. The prior Q0 of a candidate is the constant
PRIOR, raised by the share of the valid answers that mean this candidate:

    Q0(s,a) = PRIOR + (1 - PRIOR) * hits(a) / answers

Any policy whose answers contain actions can be asked, so no other model is needed.

The policy is asked once for each screen. If it is told what was tried there, it is asked again when 1, 2, 4,
8 and so on candidates of the screen were tried (`dart.exploration.prior_context`).
"""

from collections.abc import Iterable

from dart.core.actions import Action, ActionParseError, Click, LeftDouble, Scroll, Type, parse_action
from dart.core.exploration import Candidate, ExploreAct, PageScreen
from dart.exploration.candidates import candidates_of
from dart.exploration.memory_q import PRIOR

INSTRUCTION = "Explore this site: open something that was not opened yet."


class ModelPrior:
    """The priors of actions by screen, from the answers of a model. Without answers a prior is PRIOR."""

    def __init__(self) -> None:
        self._shares: dict[int, dict[str, float]] = {}
        self._asked: dict[int, int] = {}
        """By screen: number of candidates that were tried there when the model was asked last."""

    def is_due(self, screen_id: int, tried: int = 0) -> bool:
        """Whether the model is to be asked about a screen.

        tried   number of candidates that were tried there, as far as the model is told; 0 if it is not told
        """
        before = self._asked.get(screen_id)
        return before is None or tried >= max(1, 2 * before)

    def learn(self, screen_id: int, answers: Iterable[str], screen: PageScreen, tried: int = 0) -> None:
        """Set the priors of a screen from the model's answers; those without a valid action are ignored.

        Without any valid action, the priors stay as they are.

        tried   number of candidates that were tried there, as the model was told
        """
        self._asked[screen_id] = tried
        actions = [action for answer in answers if (action := _action(answer)) is not None]
        if actions:
            self._shares[screen_id] = {
                one.key: sum(hits(action, one) for action in actions) / len(actions)
                for one in candidates_of(screen)
            }

    def __call__(self, screen_id: int, candidate: Candidate) -> float:
        """Return the prior Q0 of a candidate on a screen, between PRIOR and 1."""
        share = self._shares.get(screen_id, {}).get(candidate.key, 0.0)
        return PRIOR + (1 - PRIOR) * share


def hits(action: Action, candidate: Candidate) -> bool:
    """Whether an action of the policy means a candidate: a click into its box, typing, or the same scrolling.

    The box is not compared for typing, because the action `type` has no point.
    """
    match action:
        case Click(x, y) | LeftDouble(x, y):
            left, top, right, bottom = candidate.box
            return left <= x < right and top <= y < bottom
        case Type():
            return candidate.act in (ExploreAct.TYPE, ExploreAct.SUBMIT)
        case Scroll(direction=direction):
            return candidate.act == f"scroll_{direction}"
        case _:
            return False


def _action(answer: str) -> Action | None:
    try:
        return parse_action(answer.rpartition("Action: ")[2])
    except ActionParseError:
        return None
