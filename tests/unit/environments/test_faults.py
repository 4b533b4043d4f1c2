"""Every fault says what happened, to what, and what to do, and knows its kind."""

import pytest

from dart.core.types import FaultKind
from dart.environments import faults


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (
            faults.BrowserDied("step", -9, "oom"),
            FaultKind.INFRASTRUCTURE,
            "exit code -9.*stderr ends with: oom",
        ),
        (faults.PageCrashed("reset", "Inspector.targetCrashed"), FaultKind.INFRASTRUCTURE, "during reset"),
        (faults.PageHung("observe", 2.0), FaultKind.INFRASTRUCTURE, "during observe within 2 s"),
        (faults.EnvironmentTimeout("step", 0.5, "a frame"), FaultKind.INFRASTRUCTURE, "0.5 s.*a frame"),
        (faults.ResetFailed("miniwob/x", "no start"), FaultKind.INFRASTRUCTURE, "miniwob/x failed: no start"),
        (
            faults.EvaluatorFailed("miniwob/x", "null"),
            FaultKind.EVALUATOR,
            "miniwob/x could not be scored: null",
        ),
        (faults.BrowserHung("observe", 2.0), FaultKind.INFRASTRUCTURE, "browser did not respond.*2 s"),
        (faults.CallRefused("Page.x", "no"), FaultKind.INFRASTRUCTURE, "refused Page.x: no"),
        (
            faults.UnknownTask("miniwob/clik-test", ["miniwob/click-test"]),
            FaultKind.TASK,
            "mean miniwob/click",
        ),
    ],
)
def test_a_fault_says_what_happened_and_knows_who_is_to_blame(
    fault: faults.EnvironmentFault, kind: FaultKind, says: str
) -> None:
    assert fault.kind is kind
    with pytest.raises(faults.EnvironmentFault, match=says):
        raise fault


def test_a_fault_without_a_kind_of_its_own_blames_the_environment() -> None:
    class Unplugged(faults.EnvironmentFault):
        pass

    assert Unplugged("no power").kind is faults.EnvironmentFault("no power").kind is FaultKind.INFRASTRUCTURE


def test_an_unknown_task_without_a_near_name_suggests_nothing() -> None:
    assert "did you mean" not in str(faults.UnknownTask("zzz", ["miniwob/click-test"]))


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        (faults.BrowserMissing("/x/y"), "/x/y.*apt-get install chromium-headless-shell.*dartrl setup"),
        (faults.PagesMissing("miniwob"), "pip install --no-deps miniwob"),
    ],
)
def test_what_is_not_installed_is_said_with_its_remedy(
    missing: faults.InstallationIncomplete, remedy: str
) -> None:
    with pytest.raises(faults.InstallationIncomplete, match=remedy):
        raise missing
