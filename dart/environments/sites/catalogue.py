"""All sites by name, each with the function that makes its definition from seeded words."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from dart.environments.sites.admin import admin
from dart.environments.sites.calendar import calendar
from dart.environments.sites.forum import forum
from dart.environments.sites.mail import mail
from dart.environments.sites.shop import shop
from dart.environments.sites.site import SiteDefinition
from dart.environments.sites.travel import travel
from dart.environments.sites.words import Words

SITES: Mapping[str, Callable[[Words], SiteDefinition]] = {
    "shop": shop,
    "forum": forum,
    "admin": admin,
    "calendar": calendar,
    "mail": mail,
    "travel": travel,
}


@lru_cache(maxsize=64)
def site_of(name: str, seed: int) -> SiteDefinition:
    """Return the site ``name``. Its texts depend on ``seed``; its screens and transitions do not."""
    return SITES[name](Words(seed, name))
