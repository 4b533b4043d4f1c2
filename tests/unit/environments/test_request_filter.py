"""What a request filter lets pass, and the flags of a browser with one."""

import pytest

from dart.core.origins import AllowedOrigins
from dart.environments.browser.request_filter import OFFLINE, RequestFilter, filter_of

SHOP, FAR = "http://shop.localhost:8000", "https://far.example"
FILTER = RequestFilter(frozenset({SHOP, FAR}))


@pytest.mark.parametrize(
    ("method", "url", "passes"),
    [
        ("GET", f"{SHOP}/cart", True),
        ("POST", f"{SHOP}/order", True),
        ("GET", "http://shop.localhost/cart", False),
        ("GET", "https://shop.localhost:8000/cart", False),
        ("GET", f"{FAR}/search?q=lamp", True),
        ("HEAD", f"{FAR}:443/", True),
        ("POST", f"{FAR}/order", False),
        ("PUT", f"{FAR}/order", False),
        ("GET", "https://far.example.net/", False),
        ("GET", "https://far.example@elsewhere.example/", False),
    ],
)
def test_a_request_passes_to_allowed_origins_and_carries_something_only_on_this_machine(
    method: str, url: str, passes: bool
) -> None:
    assert FILTER.lets_pass(method, url) is passes
    assert not OFFLINE.lets_pass(method, url)


def test_connections_without_the_missing_proxy_are_those_to_the_allowed_ports() -> None:
    flags = dict(flag.split("=", 1) for flag in FILTER.flags)
    rules = flags["--proxy-bypass-list"].split(";")
    assert rules == ["<-loopback>", SHOP, f"{FAR}:443", "ws://shop.localhost:8000"]
    assert flags["--host-resolver-rules"].count("EXCLUDE") == 3


def test_without_origins_nothing_is_intercepted_because_the_flags_refuse_everything() -> None:
    assert OFFLINE.patterns == []
    assert [one["urlPattern"] for one in FILTER.patterns] == ["http*", f"{FAR}/*"]


def test_of_the_allowed_origins_those_of_the_web_are_reached() -> None:
    allowed = AllowedOrigins("file:///pages/miniwob/a.html?seed=1")
    assert filter_of(allowed.origins) == OFFLINE
    also = AllowedOrigins("file:///pages/miniwob/a.html?seed=1", [SHOP])
    assert filter_of(also.origins) == RequestFilter(frozenset({SHOP}))
