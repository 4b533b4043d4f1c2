"""Which stages of an alignment remain."""

from dart.alignment.stages import Stage, numbered, remaining


def test_all_stages_remain_at_first_and_none_at_the_end() -> None:
    assert remaining(()) == tuple(Stage)
    assert remaining(tuple(Stage)) == ()


def test_after_an_unfinished_stage_all_later_ones_are_done_again() -> None:
    without_data = set(Stage) - {Stage.DATA}

    assert remaining(without_data) == tuple(Stage)[1:]


def test_people_are_shown_the_place_of_a_stage() -> None:
    assert numbered(Stage.EXPLORE) == "1 of 6, explore"
    assert numbered(Stage.TRAIN) == "6 of 6, train"
