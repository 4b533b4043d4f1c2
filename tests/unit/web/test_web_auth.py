"""Who may look: hosts, origins, methods, the token and its cookie."""

import pytest
from starlette.testclient import TestClient

from dart.config.sections import WebSettings
from dart.core.errors import UsageError
from dart.web.auth import (
    Access,
    RequestFacts,
    access_for,
    is_open_here,
    is_session,
    is_token,
    new_session,
    refusal,
)

TOKEN = "correct-horse-battery-staple-17"
LOCAL = access_for("127.0.0.1", None)
OPEN = access_for("0.0.0.0", TOKEN, ["Trainer.example"])
NOW_UNIX_S = 1_000_000.0


def status(access: Access, **asked: str) -> int:
    """What a GET of the overview is answered; 200 for no refusal."""
    values = {"method": "GET", "path": "/", "host": "localhost:8700", **asked}
    refused = refusal(access, RequestFacts(**values), NOW_UNIX_S)
    return 200 if refused is None else refused.status


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("localhost:8700", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:8700", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("trainer.example", 421),
        ("192.0.2.7:8700", 421),
        ("", 400),
        ("localhost:8700, evil.example", 400),
        ("local host", 400),
        ("localhost:123456", 400),
        ("user@localhost", 400),
    ],
)
def test_a_page_for_this_machine_goes_by_this_machines_names_alone(host: str, answer: int) -> None:
    assert status(LOCAL, host=host) == answer


@pytest.mark.parametrize(
    ("host", "answer"), [("trainer.example:8700", 401), ("192.0.2.7", 401), ("evil.example", 421)]
)
def test_beyond_this_machine_addresses_and_listed_names_are_ours(host: str, answer: int) -> None:
    assert status(OPEN, host=host) == answer


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"origin": "http://localhost:8700"}, 200),
        ({"origin": "https://LOCALHOST:8700"}, 200),
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "localhost:8700"}, 403),
        ({"fetch_site": "same-origin"}, 200),
        ({"fetch_site": "none"}, 200),
        ({"fetch_site": "cross-site"}, 403),
        ({"fetch_site": "same-site"}, 403),
        ({"fetch_site": "cross-site", "fetch_mode": "navigate"}, 200),
        ({"fetch_site": "cross-site", "fetch_mode": "navigate", "method": "POST", "path": "/login"}, 403),
    ],
)
def test_other_sites_may_lead_here_and_not_look(asked: dict[str, str], answer: int) -> None:
    assert status(LOCAL, **asked) == answer


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("HEAD", "/", 200),
        ("POST", "/login", 200),
        ("POST", "/", 405),
        ("DELETE", "/login", 405),
        ("POST", "/do", 403),
        ("GET", "/do", 405),
    ],
)
def test_nothing_but_the_login_is_posted_where_there_is_no_token(method: str, path: str, answer: int) -> None:
    assert status(LOCAL, method=method, path=path) == answer


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/", "GET, HEAD"),
        ("POST", "/stream", "GET, HEAD"),
        ("PUT", "/login", "GET, HEAD, POST"),
        ("GET", "/logout", "POST"),
        ("GET", "/do", "POST"),
    ],
)
def test_a_method_that_is_not_taken_is_answered_with_those_that_are(
    guarded: TestClient, method: str, path: str, allowed: str
) -> None:
    answer = guarded.request(method, path)

    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert f"{path} takes {allowed}, got {method}" in answer.text


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({}, 401),
        ({"authorization": f"Bearer {TOKEN}"}, 200),
        ({"authorization": f"bearer  {TOKEN}"}, 200),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": "Bearer \udcff"}, 401),
        ({"cookie": new_session(TOKEN, NOW_UNIX_S)}, 200),
        ({"cookie": new_session(TOKEN, NOW_UNIX_S - 13 * 3600)}, 401),
        ({"cookie": new_session("another-token-of-good-length", NOW_UNIX_S)}, 401),
        ({"cookie": TOKEN}, 401),
        ({"path": "/login"}, 200),
        ({"path": "/static/style.css"}, 200),
        ({"path": "/static/../blobs/x"}, 401),
        ({"path": "/blobs/x"}, 401),
    ],
)
def test_with_a_token_nothing_is_shown_without_it(asked: dict[str, str], answer: int) -> None:
    assert status(OPEN, **asked) == answer


DAEMON = access_for("127.0.0.1", TOKEN, is_open=True)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({}, 200),
        ({"path": "/blobs/x"}, 200),
        ({"path": "/do", "method": "POST"}, 401),
        ({"path": "/do", "method": "POST", "authorization": f"Bearer {TOKEN}"}, 200),
        ({"path": "/do", "method": "POST", "cookie": new_session(TOKEN, NOW_UNIX_S)}, 403),
        (
            {
                "path": "/do",
                "method": "POST",
                "cookie": new_session(TOKEN, NOW_UNIX_S),
                "origin": "http://localhost:8700",
            },
            200,
        ),
    ],
)
def test_on_this_machine_looking_may_be_free_and_changing_never_is(
    asked: dict[str, str], answer: int
) -> None:
    assert status(DAEMON, **asked) == answer


def test_looking_is_never_free_beyond_this_machine() -> None:
    assert status(access_for("0.0.0.0", TOKEN, is_open=True), host="192.0.2.7") == 401


def test_a_cookie_cannot_be_prolonged() -> None:
    expires, seal = new_session(TOKEN, NOW_UNIX_S).split(".")

    assert not is_session(TOKEN, f"{int(expires) + 1}.{seal}", NOW_UNIX_S)
    assert TOKEN not in new_session(TOKEN, NOW_UNIX_S)


def test_a_token_is_compared_whole() -> None:
    assert is_token(TOKEN, TOKEN)
    assert not any(is_token(TOKEN, given) for given in ("", TOKEN[:-1], TOKEN.upper()))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "trainer.example"])
def test_without_a_token_nobody_else_can_reach_it(host: str) -> None:
    with pytest.raises(UsageError, match="--token-file"):
        access_for(host, None)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(UsageError, match="24 characters, got 6"):
        access_for("127.0.0.1", "secret")


def test_whether_everybody_on_this_machine_may_look_is_known_before_it_is_served() -> None:
    assert is_open_here(WebSettings())
    assert not is_open_here(WebSettings(enabled=False))
    assert not is_open_here(WebSettings(token_file="token"))
    assert not is_open_here(WebSettings(host="0.0.0.0"))
