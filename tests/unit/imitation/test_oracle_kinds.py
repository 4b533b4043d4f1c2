"""Which kind of environments plays demonstrations of a task."""

import pytest

from dart.core.errors import UsageError
from dart.environments.miniwob.demonstrations import MINIWOB
from dart.environments.sites.demonstrations import SITES
from dart.imitation.oracle_kinds import oracle_kind_of


def test_the_first_task_says_the_kind() -> None:
    assert oracle_kind_of(["miniwob/click-tab", "miniwob/enter-text"]) is MINIWOB
    assert oracle_kind_of(["sites/mail/easy"]) is SITES


def test_a_task_without_an_oracle_is_refused_with_one_that_is_spelt_like_it() -> None:
    with pytest.raises(UsageError, match=r"sites/mail/easi has no oracle .*did you mean sites/mail/easy"):
        oracle_kind_of(["sites/mail/easi"])
    with pytest.raises(UsageError, match="sites/mail/explore has no oracle"):
        oracle_kind_of(["sites/mail/explore"])


def test_tasks_of_two_kinds_are_refused() -> None:
    with pytest.raises(UsageError, match="sites/mail/easy and miniwob/click-tab are of different kinds"):
        oracle_kind_of(["sites/mail/easy", "miniwob/click-tab"])
