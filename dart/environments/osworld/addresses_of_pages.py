"""Compares and encodes addresses of web pages. Pure."""

import re
from urllib.parse import quote, urlsplit, urlunsplit

_HAS_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def same_page(one: str | None, other: str | None) -> bool:
    """Return whether two addresses name the same page.

    The case of the host, a leading ``www.`` and a path of only ``/`` do not matter; a missing scheme counts
    as ``http``. None equals only None."""
    if one is None or other is None:
        return one is other
    return _plain(one) == _plain(other)


def with_scheme(address: str) -> str:
    """Return an address with the scheme ``http`` if it has none."""
    return address if _HAS_SCHEME.match(address) else f"http://{address}"


def _plain(address: str) -> str:
    parts = urlsplit(with_scheme(address))
    host = parts.netloc.lower().removeprefix("www.")
    path = "" if parts.path == "/" else parts.path
    return urlunsplit(parts._replace(netloc=host, path=path))


def as_query(address: str) -> str:
    """Return an address percent-encoded, for the query of a URL of the browser's debugging port."""
    return quote(address, safe="/:?=&,+;@!$'()*")
