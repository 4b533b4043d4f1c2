"""Which stages of an alignment remain."""

from dart.alignment.stages import AlignmentStage, numbered, remaining


def test_all_stages_remain_at_first_and_none_at_the_end() -> None:
    assert remaining(()) == tuple(AlignmentStage)
    assert remaining(tuple(AlignmentStage)) == ()


def test_after_an_unfinished_stage_all_later_ones_are_done_again() -> None:
    without_data = set(AlignmentStage) - {AlignmentStage.DATA}

    assert remaining(without_data) == tuple(AlignmentStage)[1:]


def test_people_are_shown_the_place_of_a_stage() -> None:
    assert numbered(AlignmentStage.EXPLORE) == "1 of 6, explore"
    assert numbered(AlignmentStage.TRAIN) == "6 of 6, train"
