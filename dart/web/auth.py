"""Who may look: the rules about hosts, origins and the token. Pure: headers in, a verdict out.

A page on this machine can be attacked by any page that its user's browser shows, so every request is held
against four rules, in this order:

    host     the name it was asked under is one of ours: a foreign name that resolves to this machine (DNS
             rebinding) would make a stranger's script same-origin with this page
    origin   where the browser names one it is our own, in `Origin` and in `Sec-Fetch-Site`
    method   nothing is changed but by a POST to `/do`, the login and the logout
    token    of whoever changes something, and beyond loopback, or where that was asked for, of everybody: in
             `Authorization: Bearer`, or a session cookie that the login form gave for it

A change that comes with the cookie must also name its origin, and that must be ours: browsers do with every
POST, and no page of another origin can make one name another. The cookie is not sent for other sites at all.

The cookie holds no token: an expiry and a keyed hash of it, so it says nothing when it leaks from a browser's
files after its time, and another token voids it.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from dart.config.sections import WebSettings
from dart.core.errors import UsageError

COOKIE = "dartrl_session"
"""With the port behind it: browsers send cookies to every port of a machine, and each may be another run."""

SESSION_S = 12 * 3600.0
TOKEN_CHARACTERS_MIN = 24
"""A token is not typed from memory; what is shorter than this was not made by a random generator."""

STEER = "/do"
"""Where a POST changes the run."""

OPEN_PATHS = frozenset({"/login", "/static/style.css", "/static/app.js", "/static/icon.svg"})
"""What is answered without a token: the form to give it, and how that looks."""

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::[0-9]{1,5})?")
_PURPOSE = b"dartrl web session "


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What is asked of a request."""

    loopback_only: bool
    """It listens on this machine alone."""
    names: frozenset[str]
    """Names it may be asked under, in lower case; addresses need not be listed."""
    token: str | None
    """Asked of who changes something; None: nobody may."""
    is_open: bool
    """Who only looks is not asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What the rules look at in a request."""

    method: str
    path: str
    host: str | None = None
    origin: str | None = None
    fetch_site: str | None = None
    fetch_mode: str | None = None
    authorization: str | None = None
    cookie: str | None = None
    """Value of our cookie."""


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """Why a request is not answered."""

    status: int
    text: str
    needs_login: bool = False


def access_for(
    host: str, token: str | None, names: Iterable[str] = (), *, is_open: bool | None = None
) -> Access:
    """The rules for a page that listens at `host`.

    names    further names it may be asked under, such as that of a proxy before it
    is_open  whether who only looks needs no token, which only this machine may; default: where there is none
    raises   UsageError if it can be reached from elsewhere and has no token, or a token that can be guessed
    """
    is_local = is_loopback(host)
    if token is None and not is_local:
        raise UsageError(
            f"the page would be reachable from other machines at {host!r} without a token: name a file with "
            "--token-file (it is made where there is none), or listen on 127.0.0.1 and reach it through ssh"
        )
    if token is not None and len(token) < TOKEN_CHARACTERS_MIN:
        raise UsageError(
            f"the token has {len(token)} characters, it needs {TOKEN_CHARACTERS_MIN}: delete its file and a "
            "good one is made"
        )
    own = {"localhost", *(name.lower() for name in names)}
    return Access(
        loopback_only=is_local,
        names=frozenset(own | {host.lower()}),
        token=token,
        is_open=token is None or (bool(is_open) and is_local),
    )


PAGE_IS_OPEN = "any user of this machine may look at the page; web.token_file has everybody asked for a token"


def is_open_here(web: WebSettings) -> bool:
    """Whether everybody on this machine may look at the page that a daemon serves."""
    return web.enabled and not web.token_file and is_loopback(web.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def refusal(access: Access, asked: RequestFacts, now_unix_s: float) -> AccessRefusal | None:
    """Why this request is not answered; None when it is."""
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
        return AccessRefusal(421, "this page does not go by the name it was asked under; see --allow-host")
    # A browser that was given an address cannot have been led here by a foreign name.
    if access.loopback_only and not address.is_loopback:
        return AccessRefusal(421, "this page is for this machine alone")
    return None


def _foreign_origin(asked: RequestFacts) -> AccessRefusal | None:
    foreign = AccessRefusal(403, "another site's page asked for this; open it in a tab of its own")
    if asked.origin is not None and _authority(asked.origin) != (asked.host or "").lower():
        return foreign
    is_navigation = asked.fetch_mode == "navigate" and asked.method == "GET"
    if asked.fetch_site in ("cross-site", "same-site") and not is_navigation:
        return foreign
    return None


def _authority(origin: str) -> str:
    """`localhost:8700` of `http://localhost:8700`; the scheme may be that of a proxy before us."""
    scheme, separator, authority = origin.partition("://")
    return authority.lower() if separator and scheme in ("http", "https") else ""


def _method(asked: RequestFacts) -> AccessRefusal | None:
    if asked.method in ("GET", "HEAD"):
        return AccessRefusal(405, "changes are made by POST alone") if asked.path == STEER else None
    if asked.method == "POST" and asked.path in ("/login", "/logout", STEER):
        return None
    return AccessRefusal(405, "there is only GET and HEAD here")


def _no_token(access: Access, asked: RequestFacts, now_unix_s: float) -> AccessRefusal | None:
    if asked.path in OPEN_PATHS or (access.is_open and asked.path != STEER):
        return None
    if access.token is None:
        return AccessRefusal(403, "this page only shows: it was started without a token (--token-file)")
    if is_known(access, asked, now_unix_s):
        return None
    return AccessRefusal(
        401, "a token is needed: log in, or send it as Authorization: Bearer", needs_login=True
    )


def is_known(access: Access, asked: RequestFacts, now_unix_s: float) -> bool:
    """Whether the request comes with the token, or with a session that was given for it."""
    if access.token is None:
        return False
    if is_token(access.token, _bearer(asked)):
        return True
    return asked.cookie is not None and is_session(access.token, asked.cookie, now_unix_s)


def _bearer(asked: RequestFacts) -> str:
    kind, _, given = (asked.authorization or "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else ""


def _no_origin(asked: RequestFacts) -> AccessRefusal | None:
    """A change that a browser asks for, unless it says that our own page made it ask.

    A token in the header is not sent by browsers of themselves, and needs no such witness.
    """
    if asked.path != STEER or asked.origin is not None or _bearer(asked):
        return None
    return AccessRefusal(
        403, "a change needs the Origin that browsers send, or the token in Authorization: Bearer"
    )


def cookie_name(host: str | None) -> str:
    """Of the session of whoever asks under this `Host`."""
    port = (host or "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def is_token(token: str, given: str) -> bool:
    """Whether this is the token, in a time that tells nothing about it."""
    digests = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (token, given))
    return hmac.compare_digest(*digests)


def new_session(token: str, now_unix_s: float) -> str:
    """The value of the cookie for somebody who gave the token."""
    expires = str(int(now_unix_s + SESSION_S))
    return f"{expires}.{_seal(token, expires)}"


def is_session(token: str, cookie: str, now_unix_s: float) -> bool:
    """Whether we gave this cookie for this token, and its time is not over."""
    expires, _, seal = cookie.partition(".")
    is_ours = hmac.compare_digest(_seal(token, expires).encode(), seal.encode("utf-8", "surrogatepass"))
    return is_ours and expires.isascii() and expires.isdigit() and int(expires) > now_unix_s


def _seal(token: str, expires: str) -> str:
    text = _PURPOSE + expires.encode("utf-8", "surrogatepass")
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()
