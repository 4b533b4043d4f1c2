"""How long an episode may be, and which groups find out whether it should be longer."""

import pytest

from dart.curation.step_cap import StepCap

RULE = StepCap(largest=10, slack=1, probe_share=0.25)


@pytest.mark.parametrize(
    ("longest", "cap"),
    [(None, 10), (1, 2), (4, 5), (9, 10), (10, 10), (12, 10)],  # 12: the global cap was lowered since
)
def test_the_cap_is_the_longest_success_and_some_slack(longest: int | None, cap: int) -> None:
    assert RULE.after(longest) == cap


@pytest.mark.parametrize("slack", range(4))
def test_no_success_is_cut_off_and_a_longer_one_never_lowers_the_cap(slack: int) -> None:
    rule = StepCap(largest=10, slack=slack, probe_share=0.0)
    caps = [rule.after(longest) for longest in range(1, 11)]
    assert caps == sorted(caps)
    assert all(cap >= longest for longest, cap in enumerate(caps, start=1))


@pytest.mark.parametrize(
    ("longest", "reason"),
    [
        (1, "longest success 1 step + slack 1"),
        (4, "longest success 4 steps + slack 1"),
        (9, "longest success 9 steps + slack 1"),
        (10, "longest success 10 steps + slack 1, at most 10"),
    ],
)
def test_the_reason_names_the_figures(longest: int, reason: str) -> None:
    assert RULE.reason(longest) == reason


def test_about_its_share_of_the_groups_probes_and_always_the_same_ones() -> None:
    drawn = [RULE.probes("click-test", opened, order_seed=3) for opened in range(1000)]
    assert drawn == [RULE.probes("click-test", opened, order_seed=3) for opened in range(1000)]
    assert 180 < sum(drawn) < 320
    for task, seed in (("click-test", 4), ("login-user", 3)):
        assert drawn != [RULE.probes(task, opened, seed) for opened in range(1000)]


@pytest.mark.parametrize(("share", "probing"), [(0.0, 0), (1.0, 100)])
def test_none_or_all_may_probe(share: float, probing: int) -> None:
    rule = StepCap(largest=10, slack=1, probe_share=share)
    assert sum(rule.probes("click-test", opened, 0) for opened in range(100)) == probing
