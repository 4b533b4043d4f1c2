"""How many there were, at any time."""

import pytest

from dart.config.config import load_config
from dart.core.records import Event
from dart.inspect.utilisation import Sizes, sizes_of

GROWN = Sizes(((100.0, 4), (110.0, 8), (120.0, 2)))


@pytest.mark.parametrize(
    ("begins", "ends", "mean"),
    [(0.0, 50.0, 4.0), (90.0, 110.0, 4.0), (105.0, 115.0, 6.0), (100.0, 130.0, 14 / 3), (200.0, 200.0, 2.0)],
)
def test_a_stretch_has_the_mean_of_what_there_was_in_it(begins: float, ends: float, mean: float) -> None:
    assert GROWN.mean(begins, ends) == pytest.approx(mean)
    assert GROWN.most() == 8


def test_they_are_read_from_events_and_of_a_record_without_any_the_present_counts() -> None:
    data = {"environments": 4, "engines": 1}
    event = Event(event_id=1, unix_s=100.0, kind="pools_sized", subject="root", data=data)

    config = load_config(None, ["rollout.count=3"])

    assert sizes_of([event], config)["environments"] == Sizes(((100.0, 4),))
    assert sizes_of([], config)["engines"].mean(0.0, 1.0) == 3.0
    assert sizes_of([event], config)["trainer"].most() == 1
