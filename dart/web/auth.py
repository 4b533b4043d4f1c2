"""Access rules of the web page: hosts, origins, methods and the access token. No I/O.

Any web page that a user's browser shows can send requests to a page on the same machine. So every request has
to pass four rules, in this order:

    host     `Host` is one of the page's names: a foreign name that resolves to this machine (DNS rebinding)
             would make a foreign script same-origin with the page
    origin   `Origin` and `Sec-Fetch-Site`, where the browser sends them, name the page itself
    method   only a POST to `/do`, the login or the logout changes anything
    token    the access token, needed for changes, and for all requests if other machines can reach the page
             or a token file is named; sent in `Authorization: Bearer`, or as the session cookie of the
             login form

A change with the cookie also needs an `Origin` that names this page: browsers send `Origin` with every POST,
and no web page can forge it. Browsers do not send the cookie with requests of other sites.

The cookie holds the time of its expiry and a hash of this time that is keyed with the token, but not the
token. It is not valid after this time, nor with another token.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlencode

from dart.config.sections import WebSettings
from dart.core.errors import UsageError
from dart.core.loopback import is_loopback

COOKIE = "dartrl_session"
"""Name of the session cookie, without the port, which `cookie_name` appends. Browsers send a cookie to every
port of a machine, and each port may serve another run."""

SESSION_S = 12 * 3600.0
TOKEN_CHARACTERS_MIN = 24
"""Shortest token that is allowed. A shorter token may have been chosen by a person and could be guessed."""

STEER = "/do"
"""Path to which requests that change the run are sent, by POST."""

READING = ("GET", "HEAD")

LOGIN = "/login"

PLACE_MOST = 1000
"""Largest number of characters of an address to which a login leads back."""

METHODS = {LOGIN: (*READING, "POST"), "/logout": ("POST",), STEER: ("POST",)}
"""The methods that a path takes, for the paths that take others than `READING`."""

OPEN_PATHS = frozenset({LOGIN, "/static/style.css", "/static/app.js", "/static/icon.svg"})
"""Paths that need no token: the login form and its files."""

_OWN_PLACE = re.compile(r"/(?![/\\])[!-~]*")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::[0-9]{1,5})?")
_PURPOSE = b"dartrl web session "


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rules that requests are checked against."""

    loopback_only: bool
    """Whether only this machine can reach the page."""
    names: frozenset[str]
    """Host names that requests may use, in lower case. IP addresses are not listed."""
    token: str | None
    """The access token; None if the page has none, and then no request may change the run."""
    is_open: bool
    """Whether requests that only read are allowed without the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """The parts of a request that the rules use."""

    method: str
    path: str
    host: str | None = None
    origin: str | None = None
    fetch_site: str | None = None
    fetch_mode: str | None = None
    accept: str | None = None
    authorization: str | None = None
    cookie: str | None = None
    """The value of the session cookie."""


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """Why a request is refused."""

    status: int
    text: str
    needs_login: bool = False
    allowed: tuple[str, ...] = ()
    """The methods that the path takes, if the request has another one."""


def access_for(host: str, token: str | None, names: Iterable[str] = (), *, is_open: bool = False) -> Access:
    """Return the rules for a web page that listens at `host`.

    names    further host names that requests may use, such as the name of a proxy
    token    the access token; None for a page that only shows the run
    is_open  whether requests that only read are allowed without the token; ignored if other machines can
             reach `host`
    raises   UsageError if other machines could reach a page without a token, or the token is too short
    """
    is_local = is_loopback(host)
    if token is None and not is_local:
        raise UsageError(
            f"the page would be reachable from other machines at {host!r} without a token: name a file with "
            "--token-file (a missing one is made), or listen on 127.0.0.1 and reach the page through ssh"
        )
    if token is not None and len(token) < TOKEN_CHARACTERS_MIN:
        raise UsageError(
            f"expected a token of at least {TOKEN_CHARACTERS_MIN} characters, got {len(token)}; "
            "delete the token file, and the next start makes a new one"
        )
    return Access(
        loopback_only=is_local,
        names=_known_names(host, names),
        token=token,
        is_open=token is None or (is_open and is_local),
    )


def open_access(host: str, names: Iterable[str] = ()) -> Access:
    """Return the rules for pages at `host` that everyone who reaches them may read, such as metrics.

    The rules for hosts, origins and methods hold nevertheless, so that no foreign web page can read them.

    names    further host names that requests may use
    """
    return Access(loopback_only=is_loopback(host), names=_known_names(host, names), token=None, is_open=True)


def _known_names(host: str, names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in ("localhost", host, *names))


PAGE_IS_OPEN = "every user of this machine can read the web page; set web.token_file to require a token"


def is_open_here(web: WebSettings) -> bool:
    """Whether every user of this machine can read the page of a run with these settings."""
    return web.enabled and not web.token_file and is_loopback(web.host)


def refusal(access: Access, asked: RequestFacts, now_unix_s: float) -> AccessRefusal | None:
    """Return why a request is refused; None if it is allowed."""
    return (
        _foreign_host(access, asked)
        or _foreign_origin(asked)
        or _method(asked)
        or _no_token(access, asked, now_unix_s)
        or _no_origin(asked)
    )


def _foreign_host(access: Access, asked: RequestFacts) -> AccessRefusal | None:
    found = _HOST.fullmatch(asked.host or "")
    if found is None:
        return AccessRefusal(400, "a request needs one Host header, such as localhost:8700")
    name = found["name"].lower().strip("[]")
    if name in access.names:
        return None
    try:
        address = ip_address(name)
    except ValueError:
        return AccessRefusal(
            421, f"{name!r} is not a host name of this page; allow it with --allow-host or web.allow_hosts"
        )
    # An address in `Host` shows that the browser did not resolve a foreign name.
    if access.loopback_only and not address.is_loopback:
        return AccessRefusal(
            421, f"this page can be reached from this machine only, as localhost or 127.0.0.1, not as {name}"
        )
    return None


def _foreign_origin(asked: RequestFacts) -> AccessRefusal | None:
    foreign = AccessRefusal(
        403, "the request comes from a page of another site; open this address in a new tab"
    )
    if asked.origin is not None and _authority(asked.origin) != (asked.host or "").lower():
        return foreign
    is_navigation = asked.fetch_mode == "navigate" and asked.method == "GET"
    if asked.fetch_site in ("cross-site", "same-site") and not is_navigation:
        return foreign
    return None


def _authority(origin: str) -> str:
    """Return the host and port of an `Origin`: `localhost:8700` for `http://localhost:8700`.

    The scheme may also be https, because of proxies. The result is empty for any other text.
    """
    scheme, separator, authority = origin.partition("://")
    return authority.lower() if separator and scheme in ("http", "https") else ""


def _method(asked: RequestFacts) -> AccessRefusal | None:
    allowed = METHODS.get(asked.path, READING)
    if asked.method in allowed:
        return None
    text = f"{asked.path} takes {', '.join(allowed)}, got {asked.method}"
    return AccessRefusal(405, text, allowed=allowed)


def _no_token(access: Access, asked: RequestFacts, now_unix_s: float) -> AccessRefusal | None:
    if asked.path in OPEN_PATHS or (access.is_open and asked.path != STEER):
        return None
    if access.token is None:
        return AccessRefusal(403, "this page cannot change the run: start it with a token (--token-file)")
    if is_known(access, asked, now_unix_s):
        return None
    return AccessRefusal(
        401, "this page needs a token: log in, or send it as Authorization: Bearer", needs_login=True
    )


def is_known(access: Access, asked: RequestFacts, now_unix_s: float) -> bool:
    """Whether a request has the access token or a valid session cookie."""
    if access.token is None:
        return False
    if is_token(access.token, bearer(asked.authorization)):
        return True
    return asked.cookie is not None and is_session(access.token, asked.cookie, now_unix_s)


def bearer(authorization: str | None) -> str:
    """Return the token in the header `Authorization: Bearer`; empty if the header has none."""
    kind, _, given = (authorization or "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else ""


def _no_origin(asked: RequestFacts) -> AccessRefusal | None:
    """Refuse a request that changes the run with a session cookie but has no `Origin`.

    A request with the token in `Authorization` may lack `Origin`, because browsers never add `Authorization`
    by themselves.
    """
    if asked.path != STEER or asked.origin is not None or bearer(asked.authorization):
        return None
    return AccessRefusal(
        403, "a change needs the Origin that browsers send, or the token in Authorization: Bearer"
    )


def cookie_name(host: str | None) -> str:
    """Return the name of the session cookie for a `Host` header."""
    port = (host or "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def login_address(path: str, query: bytes) -> str:
    """Return the address of the login form that leads back to an address of this page."""
    place = f"{path}?{query.decode('latin-1')}" if query else path
    return f"{LOGIN}?{urlencode({'next': place})}" if own_place(place) != "/" else LOGIN


def own_place(place: str) -> str:
    """Return an address to which a login may lead; `/` for one that leads elsewhere or is too long.

    Browsers take `//name` and `/\\name` for an address on another host.
    """
    return place if len(place) <= PLACE_MOST and _OWN_PLACE.fullmatch(place) else "/"


def is_token(token: str, given: str) -> bool:
    """Whether `given` is the access token. The comparison takes constant time."""
    digests = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (token, given))
    return hmac.compare_digest(*digests)


def new_session(token: str, now_unix_s: float) -> str:
    """Return the value of a new session cookie, for a client that has sent the token."""
    expires = str(int(now_unix_s + SESSION_S))
    return f"{expires}.{_seal(token, expires)}"


def is_session(token: str, cookie: str, now_unix_s: float) -> bool:
    """Whether a session cookie was made with this token and has not expired."""
    expires, _, seal = cookie.partition(".")
    is_ours = hmac.compare_digest(_seal(token, expires).encode(), seal.encode("utf-8", "surrogatepass"))
    return is_ours and expires.isascii() and expires.isdigit() and int(expires) > now_unix_s


def _seal(token: str, expires: str) -> str:
    text = _PURPOSE + expires.encode("utf-8", "surrogatepass")
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()
