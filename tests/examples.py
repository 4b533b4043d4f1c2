"""How many examples a property is tried with."""

from hypothesis import settings

QUICK = "quick"
"""The profile of `make test-fast`: a tenth of the examples."""


def examples(thorough: int) -> int:
    """`thorough`, or a tenth of it under the quick profile.

    Hypothesis itself lets explicit settings win over a profile.
    """
    return thorough if settings.get_current_profile_name() != QUICK else max(3, thorough // 10)
