"""Whatever a client sends, the page answers, shows nothing without a token, and changes nothing."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from dart.core.run_directory import RunPaths
from dart.web.app import web_app
from dart.web.auth import access_for
from dart.web.middleware import HEADERS, Guard
from tests.examples import examples
from tests.recorded_run import record_run

TOKEN = "a-token-of-a-good-length-0123456789"
SECRETS = (TOKEN, "click-test-2", "env-001")
"""The token, and what only a page would show."""

raw = st.binary(max_size=30)
names = st.sampled_from(
    [b"host", b"origin", b"cookie", b"authorization", b"sec-fetch-site", b"sec-fetch-mode", b"content-length"]
)
paths = st.one_of(
    st.sampled_from(
        ["/", "/tree", "/actor", "/trajectory", "/compare", "/stream", "/export", "/login", "/do", "/confirm"]
    ),
    st.text(max_size=20).map(lambda text: f"/{text}"),
    st.text(max_size=70).map(lambda text: f"/blobs/{text}.png"),
    st.text(max_size=20).map(lambda text: f"/static/{text}"),
)
queries = st.one_of(
    raw,
    st.tuples(
        st.sampled_from([b"id=", b"a=1&b=", b"name=", b"page=", b"before=", b"do=pause&name=", b"do="]), raw
    ).map(b"".join),
)


@pytest.fixture(scope="module")
def paths_of_run(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    return record_run(tmp_path_factory.mktemp("fuzzed") / "run")


@pytest.fixture(scope="module")
def guarded(paths_of_run: RunPaths) -> Guard:
    return web_app(paths_of_run, access_for("127.0.0.1", TOKEN))


@pytest.fixture(scope="module")
def open_page(paths_of_run: RunPaths) -> Guard:
    return web_app(paths_of_run, access_for("127.0.0.1", None))


async def answered(
    app: Guard, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body of one request, straight through ASGI."""
    scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1"}
    scope |= {"method": method, "path": path, "raw_path": path.encode("utf-8", "surrogatepass")}
    scope |= {"query_string": query, "headers": headers, "scheme": "http", "server": ("127.0.0.1", 8700)}
    sent: list[Message] = []
    received = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return received.pop(0) if len(received) > 1 else received[0]

    async def send(message: Message) -> None:
        sent.append(message)

    await app({**scope, "client": ("127.0.0.1", 1), "root_path": "", "state": {}}, receive, send)
    text = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), text


def files_of(paths: RunPaths) -> dict[str, int]:
    """Name and time of change of every file; readers share an index beside the record, which is none."""
    files = [file for file in paths.root.rglob("*") if not file.name.startswith("store.db-")]
    return {str(file): file.stat().st_mtime_ns for file in files if file.is_file()}


requests = given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "OPTIONS", "FOO"]),
    path=paths,
    query=queries,
    headers=st.lists(st.tuples(names, raw), max_size=4),
    is_ours=st.booleans(),
    body=st.binary(max_size=60),
)
some = settings(
    max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@some
@requests
async def test_nothing_is_shown_to_a_stranger(
    guarded: Guard,
    method: str,
    path: str,
    query: bytes,
    headers: list[tuple[bytes, bytes]],
    is_ours: bool,
    body: bytes,
) -> None:
    ours = [(b"host", b"localhost:8700")] if is_ours else []

    status, sent, text = await answered(guarded, method, path, query, [*ours, *headers], body)

    assert status in (200, 303, 307, 400, 401, 403, 404, 405, 413, 421)
    assert not any(secret.encode() in text for secret in SECRETS)
    assert all(sent[name.encode()] == value.encode() for name, value in HEADERS.items())


@some
@requests
async def test_whatever_is_asked_is_answered_and_changes_nothing(
    open_page: Guard,
    paths_of_run: RunPaths,
    method: str,
    path: str,
    query: bytes,
    headers: list[tuple[bytes, bytes]],
    is_ours: bool,
    body: bytes,
) -> None:
    before = files_of(paths_of_run)

    status, _, text = await answered(open_page, method, path, query, [(b"host", b"localhost:8700")], body)

    assert status < 500
    assert b"Traceback" not in text
    assert files_of(paths_of_run) == before
