"""The share of generic samples in the data that a policy is aligned on."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.alignment.mixing import GENERIC_PERCENT, mixed

COUNTS = st.integers(min_value=1, max_value=500)


def test_without_generic_data_the_samples_of_the_site_are_all() -> None:
    mixture = mixed(["a", "b"], [])

    assert mixture.samples == ["a", "b"]
    assert mixture.generic_share == 0


@pytest.mark.parametrize(
    ("site", "generic", "site_times", "generic_times"),
    [(7, 3, 1, 1), (7, 2, 1, 2), (70, 3, 1, 10), (7, 30, 10, 1), (7, 4, 1, 1), (7, 6, 2, 1)],
)
def test_the_kind_of_which_there_are_too_few_comes_several_times(
    site: int, generic: int, site_times: int, generic_times: int
) -> None:
    mixture = mixed(range(site), range(1000, 1000 + generic))

    assert (mixture.site_times, mixture.generic_times) == (site_times, generic_times)


@given(site=COUNTS, generic=COUNTS)
def test_at_least_the_share_is_generic_and_samples_of_a_kind_come_equally_often(
    site: int, generic: int
) -> None:
    mixture = mixed(range(site), range(1000, 1000 + generic))
    times = Counter(mixture.samples)

    assert mixture.generic_share >= GENERIC_PERCENT / 100
    assert len(times) == site + generic, "no sample is left out"
    assert {times[one] for one in range(site)} == {mixture.site_times}
    assert sum(times[one] for one in times if one >= 1000) / times.total() == pytest.approx(
        mixture.generic_share
    )
