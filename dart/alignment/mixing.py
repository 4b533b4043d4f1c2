"""Mixing data of a site with generic data, so that what the policy knew is not forgotten. Pure.

A policy that is trained on one site alone gets worse elsewhere, which is the known problem of GUI-Bee's
alignment (arXiv 2501.13896).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

GENERIC_PERCENT = 30
"""Least share of generic samples among those that are trained on, where there are any."""


@dataclass(frozen=True, slots=True)
class Mixture(Generic[T]):
    """Samples of a site and generic ones; each comes as often as the others of its kind."""

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
        """The share of the generic samples."""
        generic, site = len(self.generic) * self.generic_times, len(self.site) * self.site_times
        return generic / (generic + site)


def mixed(site: Sequence[T], generic: Sequence[T]) -> Mixture[T]:
    """Mix samples of a site, at least one, with generic ones, of which at least GENERIC_PERCENT are there.

    The kind of which there are too few comes several times: generic samples until their share is reached, or
    samples of the site as long as that share stays. Without generic samples, those of the site are all.
    """
    site_weight = GENERIC_PERCENT * len(site)
    generic_weight = (100 - GENERIC_PERCENT) * len(generic)
    if not generic:
        return Mixture(site, generic, 1, 0)
    if generic_weight < site_weight:
        return Mixture(site, generic, 1, -(-site_weight // generic_weight))
    return Mixture(site, generic, generic_weight // site_weight, 1)
