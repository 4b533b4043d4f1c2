"""Decides which addresses exploration may open, and which are on this machine. Pure."""

from collections.abc import Collection
from urllib.parse import urljoin, urlsplit

from dart.core.errors import UsageError

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
LOCAL_SUFFIX = ".localhost"
"""Host names with this suffix mean this machine (RFC 6761)."""

DEFAULT_PORTS = {"http": ":80", "https": ":443"}
WEB = tuple(DEFAULT_PORTS)


def origin_of(url: str) -> str:
    """Return the origin of an address: its scheme, host and port. For a file, it is its folder.

    Host names are in lower case, and the default port of a scheme is left out, as browsers do it.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return f"file://{parts.path.rpartition('/')[0]}"
    return f"{parts.scheme}://{parts.netloc.lower().removesuffix(DEFAULT_PORTS.get(parts.scheme, ''))}"


def web_origin_with_port(origin: str) -> str:
    """Return a web origin with its port, also if that is the default one of its scheme."""
    parts = urlsplit(origin)
    has_port = parts.netloc.rpartition(":")[2].isdigit()
    return origin if has_port else f"{origin}{DEFAULT_PORTS[parts.scheme]}"


def is_local(url: str) -> bool:
    """Whether an address is on this machine: a file, or a server on loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_local_host = host in LOCAL_HOSTS or host.endswith(LOCAL_SUFFIX)
    return parts.scheme == "file" or (parts.scheme in WEB and is_local_host)


class AllowedOrigins:
    """The origins that one exploration may open: that of its start screen, and those of the configuration."""

    def __init__(self, start_url: str, others: Collection[str] = ()) -> None:
        """
        start_url   address of the start screen
        others      further origins, from `exploration.origins`
        raises      UsageError if the start screen is not on this machine and its origin is not in `others`
        """
        named = {origin_of(one) for one in others}
        if not is_local(start_url) and origin_of(start_url) not in named:
            raise UsageError(
                f"{start_url} is not on this machine; to explore it, name its origin "
                f"({origin_of(start_url)}) in exploration.origins"
            )
        self.origins = frozenset({origin_of(start_url), *named})

    def allow(self, url: str, base: str = "") -> bool:
        """Whether an address may be opened: it has an allowed origin, or leads to no other page.

        No address may be opened that cannot be read, such as `http://[x`.

        base   address of the page with the link, for a relative address
        """
        try:
            target = urljoin(base, url)
            scheme = urlsplit(target).scheme
        except ValueError:
            return False
        return scheme in ("javascript", "about", "") or origin_of(target) in self.origins
