"""Mixes data of a site with generic data, so that the policy does not forget other screens. Pure.

A policy that is trained on one site alone gets worse on others. GUI-Bee's alignment (arXiv 2501.13896) has
this problem.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

GENERIC_PERCENT = 30
"""Smallest share, in percent, of generic samples in training, if there are any generic samples."""


@dataclass(frozen=True, slots=True)
class Mixture(Generic[T]):
    """Samples of a site and generic samples. Each is repeated `site_times` or `generic_times` times."""

    site: Sequence[T]
    generic: Sequence[T]
    site_times: int
    generic_times: int

    @property
    def samples(self) -> list[T]:
        """All samples, with their repetitions."""
        return [*list(self.site) * self.site_times, *list(self.generic) * self.generic_times]

    @property
    def generic_share(self) -> float:
        """The share of generic samples in `samples`, between 0 and 1."""
        generic, site = len(self.generic) * self.generic_times, len(self.site) * self.site_times
        return generic / (generic + site)


def mixed(site: Sequence[T], generic: Sequence[T]) -> Mixture[T]:
    """Mix samples of a site with generic samples; at least GENERIC_PERCENT % of the mixture are generic.

    Too few generic samples are repeated until they have this share. If there are more generic samples, those
    of the site are repeated as often as the share allows. Without generic samples, the mixture is the samples
    of the site. At least one sample of the site must be given.
    """
    site_weight = GENERIC_PERCENT * len(site)
    generic_weight = (100 - GENERIC_PERCENT) * len(generic)
    if not generic:
        return Mixture(site, generic, 1, 0)
    if generic_weight < site_weight:
        return Mixture(site, generic, 1, -(-site_weight // generic_weight))
    return Mixture(site, generic, generic_weight // site_weight, 1)
