"""Changing a run from its page: the command line's requests, by POST, with the token, from our own page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from starlette.testclient import TestClient

from dart.core.errors import SilentError, UsageError
from dart.core.run_directory import RunPaths
from dart.run.control_protocol import (
    ControlAnswer,
    ControlOutcome,
    Drain,
    Pause,
    ReleaseActor,
    Request,
    RestartActor,
    Resume,
)
from dart.web import actions, app
from dart.web.auth import access_for
from tests.unit.web.conftest import TOKEN

OURS = {"origin": "http://localhost:8700"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


class Run:
    """What the control socket would be asked, and answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[Path, Request]] = []
        self.answer = ControlAnswer(ControlOutcome.DONE, "nothing <b>new</b> begins")

    def __call__(self, run_dir: Path, call: Request) -> ControlAnswer:
        self.asked.append((run_dir, call))
        return self.answer

    @property
    def calls(self) -> list[Request]:
        return [call for _, call in self.asked]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    run = Run()
    monkeypatch.setattr(app, "control", run)
    return run


@pytest.fixture
def page(recorded: RunPaths, run: Run) -> Iterator[TestClient]:
    """As the daemon serves it: everybody on this machine may look, who changes something needs the token."""
    access = access_for("127.0.0.1", TOKEN, is_open=True)
    with TestClient(
        app.web_app(recorded, access), base_url="http://localhost:8700", follow_redirects=False
    ) as opened:
        yield opened


def log_in(page: TestClient) -> None:
    answer = page.post("/login", data={"token": TOKEN}, headers=OURS)
    assert answer.status_code == 303
    assert TOKEN not in str(answer.headers)


@pytest.mark.parametrize(
    ("form", "call"),
    [
        ({"do": "pause"}, Pause()),
        ({"do": "resume"}, Resume()),
        ({"do": "drain"}, Drain()),
        ({"do": "restart", "name": "env-000"}, RestartActor(name="env-000")),
        ({"do": "release", "name": "env-000"}, ReleaseActor(name="env-000")),
    ],
)
def test_each_change_is_the_request_of_the_command_line(
    page: TestClient, run: Run, recorded: RunPaths, form: dict[str, str], call: Request
) -> None:
    log_in(page)

    answer = page.post("/do", data=form, headers=OURS)

    assert answer.status_code == 200
    assert "nothing &lt;b&gt;new&lt;/b&gt; begins" in answer.text
    assert run.asked == [(recorded.root, call)]


@pytest.mark.parametrize(
    ("headers", "logged_in", "status"),
    [
        ({}, False, 401),
        (OURS, False, 401),
        ({"authorization": "Bearer " + "x" * 30}, False, 401),
        ({}, True, 403),
        ({"origin": "http://evil.example"}, True, 403),
        ({"origin": "http://localhost:9999"}, True, 403),
        ({"origin": "null"}, True, 403),
        ({**OURS, "sec-fetch-site": "cross-site"}, True, 403),
        ({**OURS, "sec-fetch-site": "same-site"}, True, 403),
        ({"origin": "http://evil.example", **BEARER}, False, 403),
        ({"host": "evil.example", **BEARER}, False, 421),
    ],
)
def test_without_the_token_or_from_another_page_nothing_is_changed(
    page: TestClient, run: Run, headers: dict[str, str], logged_in: bool, status: int
) -> None:
    if logged_in:
        log_in(page)

    assert page.post("/do", data={"do": "pause"}, headers=headers).status_code == status
    assert run.calls == []


def test_a_program_needs_the_token_and_no_origin(page: TestClient, run: Run) -> None:
    assert page.post("/do", data={"do": "pause"}, headers=BEARER).status_code == 200
    assert run.calls == [Pause()]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_nothing_is_changed_by_anything_but_a_post(page: TestClient, run: Run, method: str) -> None:
    log_in(page)

    answer = page.request(method, "/do", params={"do": "pause"}, headers={**OURS, **BEARER})

    assert answer.status_code == 405
    assert run.calls == []


def test_what_an_address_says_is_no_form(page: TestClient, run: Run) -> None:
    assert page.post("/do?do=pause", headers=BEARER).status_code == 404
    assert run.calls == []


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({}, "there is no action ''"),
        ({"do": "scale"}, "there is no action 'scale'"),
        ({"do": "stop", "name": "env-000"}, "there is no action 'stop'"),
        ({"do": "restart"}, "restart needs the name of an actor, at most 64 characters, got ''"),
        ({"do": "restart", "name": "x" * 65}, "restart needs the name of an actor, at most 64 characters"),
        ({"do": "pause", "name": "env-000"}, "pause is about the whole run and takes no name, got 'env-000'"),
    ],
)
def test_a_change_that_the_page_does_not_offer_is_refused_with_the_reason(
    page: TestClient, run: Run, form: dict[str, str], why: str
) -> None:
    assert page.post("/do", data=form, headers=BEARER).status_code == 404
    assert page.get("/confirm", params=form).status_code == 404
    assert run.calls == []
    with pytest.raises(UsageError, match=re.escape(why)):
        actions.wanted(form)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(ControlOutcome.UNDER_WAY, 202), (ControlOutcome.REFUSED, 409), (ControlOutcome.SILENT, 503)],
)
def test_what_did_not_come_to_its_end_says_so(
    page: TestClient, run: Run, outcome: ControlOutcome, status: int
) -> None:
    run.answer = ControlAnswer(outcome, "because of this")

    answer = page.post("/do", data={"do": "drain"}, headers=BEARER)

    assert answer.status_code == status
    assert "because of this" in answer.text


def test_a_run_that_does_not_answer_is_no_defect_of_the_page(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any) -> ControlAnswer:
        raise SilentError("process 1 does not answer")

    monkeypatch.setattr(app, "control", silent)

    answer = page.post("/do", data={"do": "pause"}, headers=BEARER)

    assert (answer.status_code, "process 1 does not answer" in answer.text) == (503, True)


def test_every_button_asks_first_and_the_question_changes_nothing(page: TestClient, run: Run) -> None:
    for address, offered in (("/", actions.OF_THE_RUN), ("/actor?name=env-001", actions.OF_AN_ACTOR)):
        name = "env-001" if "name" in address else ""
        for do in offered:
            wanted = actions.RequestedAction(do=do, name=name)
            assert wanted.address.replace("&", "&amp;") in page.get(address).text
            asked = page.get(wanted.address)
            assert asked.status_code == 200
            assert wanted.about.partition(";")[0] in asked.text
            assert f'<a href="/login?{urlencode({"next": wanted.address})}">Log in</a> with the' in asked.text
            assert 'method="post"' not in asked.text.partition("</header>")[2], "a stranger has no button"
            assert urlsplit(wanted.place).path in ("/", "/actor")
    log_in(page)
    assert '<form method="post" action="/do"' in page.get("/confirm?do=pause").text
    assert run.calls == []


def test_a_page_without_a_token_offers_nothing_and_changes_nothing(client: TestClient, run: Run) -> None:
    assert "/confirm" not in client.get("/").text
    assert "was started without a token" in client.get("/confirm?do=pause").text
    assert client.post("/do", data={"do": "pause"}, headers=OURS).status_code == 403
    assert run.calls == []


def test_where_everybody_needs_the_token_the_question_does_too(guarded: TestClient, run: Run) -> None:
    assert guarded.get("/confirm?do=pause").status_code == 401
    assert guarded.post("/do", data={"do": "pause"}, headers=OURS).status_code == 401
    assert guarded.post("/do", data={"do": "pause"}, headers=BEARER).status_code == 200
    assert run.calls == [Pause()]
