"""A frame is taken once, in bounded memory."""

import itertools

from actors.replay_guard import ReplayGuard


def test_a_number_is_new_once_and_only_above_the_last() -> None:
    freshness = ReplayGuard()
    assert [freshness.is_new("ann", 1, number) for number in (1, 2, 2, 1, 5, 4, 6)] == [
        True,
        True,
        False,
        False,
        True,
        False,
        True,
    ]


def test_senders_and_their_incarnations_do_not_disturb_each_other() -> None:
    freshness = ReplayGuard()
    senders = list(itertools.product(("ann", "bob"), (1, 2)))
    assert all(freshness.is_new(name, incarnation, 7) for name, incarnation in senders)
    assert not any(freshness.is_new(name, incarnation, 7) for name, incarnation in senders)


def test_of_more_senders_than_it_remembers_no_frame_is_taken_twice() -> None:
    freshness = ReplayGuard(senders_known=10)
    frames = [("ann", incarnation, 100 + incarnation) for incarnation in range(1000)]
    assert all(freshness.is_new(*frame) for frame in frames)
    assert not any(freshness.is_new(*frame) for frame in frames)
    assert len(freshness._last) <= 10


def test_a_sender_that_was_forgotten_goes_on_as_its_clock_does() -> None:
    freshness = ReplayGuard(senders_known=3)
    assert freshness.is_new("quiet", 1, 5)
    for now in range(10, 20):
        assert freshness.is_new(f"loud {now}", 1, now)
    assert freshness.is_new("quiet", 1, 21)
    assert not freshness.is_new("quiet", 1, 5)
