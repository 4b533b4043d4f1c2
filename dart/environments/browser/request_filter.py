"""Keeps a browser from every origin of the network but those that are allowed. Pure.

A `RequestFilter` holds for everything in its browser: pages, frames, windows and workers. It has two parts.

* Flags, which decide about every connection. A connection to another origin goes to a proxy that does not
  exist, so it fails before a byte leaves. Names of other hosts are not resolved, and WebRTC sends nothing
  past the proxy. A redirect is a connection of its own.
* Interception (`Fetch` of the DevTools protocol), which decides about navigations and about requests to
  origins that are not on this machine. It ends a navigation to another origin before it begins, so the page
  stays; the flags alone would leave the browser's error page. It refuses requests that carry something, such
  as the POST of a form, to an allowed origin that is not on this machine. The flags cannot see the method of
  a request.

Files are not of the network: a page from disk reads files as it does without a filter.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from dart.core.origins import WEB, is_local, origin_of, web_origin_with_port

NO_PROXY = "127.0.0.1:9"
"""Address of the proxy that does not exist. Port 9 is reserved for a service that discards what it gets."""

METHODS = ("GET", "HEAD")
"""The methods of requests that carry nothing."""


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """What the pages of a browser may reach: nothing but the origins.

    origins   web origins, as `dart.core.origins.origin_of` returns them
    """

    origins: frozenset[str] = frozenset()

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of a browser with this filter."""
        web = sorted(map(web_origin_with_port, self.origins))
        sockets = [f"ws{one.removeprefix('http')}" for one in web if is_local(one)]
        hosts = [urlsplit(one).hostname for one in web]
        excluded = "".join(f", EXCLUDE {host}" for host in ("127.0.0.1", *hosts))
        return (
            f"--proxy-server={NO_PROXY}",
            # The first rule removes the browser's own: that connections to this machine need no proxy.
            f"--proxy-bypass-list={';'.join(('<-loopback>', *web, *sockets))}",
            f"--host-resolver-rules=MAP * ~NOTFOUND{excluded}",
            "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        )

    @property
    def patterns(self) -> list[dict[str, str]]:
        """The requests that are intercepted, for `Fetch.enable`.

        Without origins there are none: the flags refuse everything, and interception makes Chromium slower.
        """
        if not self.origins:
            return []
        far = sorted(one for one in self.origins if not is_local(one))
        navigations = {"urlPattern": "http*", "resourceType": "Document"}
        return [navigations, *({"urlPattern": f"{origin}/*"} for origin in far)]

    def lets_pass(self, method: str, url: str) -> bool:
        """Return whether an intercepted request may be sent."""
        return origin_of(url) in self.origins and (is_local(url) or method in METHODS)


OFFLINE = RequestFilter()
"""Lets nothing pass."""


def filter_of(origins: frozenset[str]) -> RequestFilter:
    """Return the filter for allowed origins (`dart.core.origins.AllowedOrigins`): for those of the web among
    them."""
    return RequestFilter(frozenset(one for one in origins if urlsplit(one).scheme in WEB))
