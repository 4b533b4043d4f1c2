"""A task's file gets at nothing of this computer: no path outside its folders, no address of its networks.

What is wrong in it, or in a file that it downloads, makes the task unsupported and ends no environment."""

import asyncio
import contextlib
import errno
import socket
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from dart.config.machine_address import MachineAddress
from dart.environments.faults import FileUnreachable, TaskUnsupported
from dart.environments.osworld import downloads, setup_steps
from dart.environments.osworld.downloads import DownloadFailed, PublicTransport, download, is_public
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.paths import inside
from dart.environments.osworld.setup_steps import HISTORY, Setting, take_steps
from dart.environments.osworld.tasks import SetupStep
from tests.unit.environments.osworld.guest_server import FakeDesktop, guest_server

SECRET = "PRIVATE KEY OF THIS COMPUTER"


@pytest.fixture
def desktop(tmp_path: Path) -> FakeDesktop:
    (tmp_path / "home").mkdir()
    (tmp_path / "id_rsa").write_text(SECRET)
    return FakeDesktop(tmp_path / "home")


@pytest.fixture
def setting(desktop: FakeDesktop, tmp_path: Path) -> Setting:
    for folder in ("cache/y", "scratch"):
        (tmp_path / folder).mkdir(parents=True)
    return Setting(
        task_id="osworld/x/y",
        guest=Guest("vm", MachineAddress(host="vm.test"), httpx2.ASGITransport(app=guest_server(desktop))),
        owner="",
        cache=tmp_path / "cache" / "y",
        scratch=tmp_path / "scratch",
        password="p",
        width=800,
        height=600,
    )


async def take(setting: Setting, type_: str, **parameters: Any) -> None:
    await take_steps((SetupStep(type_, parameters),), setting, lambda: 5.0)


# ---- paths ----


def test_a_name_stays_inside_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "good").symlink_to(folder / "file")
    (folder / "link").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    assert inside(folder, "file") == folder / "file"
    assert inside(folder, "sub/../file") == folder / "file"
    assert inside(folder, "sub/good") == folder / "file"
    names: list[Any] = ["", ".", "..", "../folder2", "sub/../../x", "/etc/passwd", "link/x", "a\0b", 3, None]
    for name in [*names, "loop/x"]:
        with pytest.raises(ValueError, match="leads out of"):
            inside(folder, name)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_the_output_of_a_step_is_written_into_the_folder_of_the_episode_only(
    setting: Setting, tmp_path: Path, stream: str
) -> None:
    for name in (str(tmp_path / "cron"), "../cron", "../../cron", "a/../../cron"):
        with pytest.raises(TaskUnsupported, match="leads out of"):
            await take(setting, "execute", command=["echo", "evil"], **{stream: name})
    await take(setting, "execute", command=["echo", "fine"], stdout="said/out.txt")
    written = {path.name: path.read_text() for path in (tmp_path / ".").rglob("*") if path.is_file()}
    assert written == {"id_rsa": SECRET, "out.txt": "fine\n"}


async def test_no_file_of_this_computer_is_put_into_a_guest(
    setting: Setting, desktop: FakeDesktop, tmp_path: Path
) -> None:
    (setting.cache / "link").symlink_to(tmp_path / "id_rsa")
    for name in (str(tmp_path / "id_rsa"), "../../id_rsa", "link"):
        with pytest.raises(TaskUnsupported, match="leads out of"):
            await take(setting, "upload_file", files=[{"local_path": name, "path": "/home/user/a"}])
    assert not (desktop.home / "a").exists()


# ---- addresses ----


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("::ffff:93.184.216.34", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
    ],
)
def test_only_addresses_of_the_public_network_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


NAMES = {
    "public.test": ["93.184.216.34"],
    "other.test": ["2606:2800:220:1::1", "93.184.216.35"],
    "inner.test": ["10.0.0.5"],
    "both.test": ["93.184.216.34", "127.0.0.1"],
    "169.254.169.254": ["169.254.169.254"],
    "localhost": ["127.0.0.1"],
}


class Web(httpx2.AsyncBaseTransport):
    """The network behind the check: what is answered by URL, and which addresses were connected to."""

    def __init__(self, answers: Mapping[str, httpx2.Response]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(f"{request.url.host} {request.headers['host']}")
        assert request.headers["accept-encoding"] == "identity"
        if ":" in request.url.host:
            raise httpx2.ConnectError("no route")
        return self.answers[f"{request.headers['host']}{request.url.raw_path.decode()}"]


def web(answers: Mapping[str, httpx2.Response]) -> tuple[Web, PublicTransport]:
    async def resolved(host: str, port: int) -> list[str]:
        return NAMES[host]

    behind = Web(answers)
    return behind, PublicTransport(resolve=resolved, direct=behind, proxies={})


class Endless(httpx2.AsyncByteStream):
    """A body that has no end, and must not be read."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        raise AssertionError("the body of a redirection was read")
        yield b""


def moved(to: str) -> httpx2.Response:
    return httpx2.Response(302, headers={"location": to}, stream=Endless())


def answered(content: bytes, **headers: str) -> httpx2.Response:
    return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(content))


async def test_a_download_connects_to_the_very_address_that_was_looked_at() -> None:
    behind, transport = web(
        {"public.test/a": moved("https://other.test/b"), "other.test/b": answered(b"file")}
    )
    found = await download("http://public.test/a", most_bytes=9, deadline_s=5.0, transport=transport)
    assert found == b"file"
    assert behind.asked == [
        "93.184.216.34 public.test",
        "2606:2800:220:1::1 other.test",
        "93.184.216.35 other.test",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/x",
        "http://169.254.169.254/latest/meta-data",
        "http://inner.test/x",
        "http://both.test/x",
        "http://public.test/to-metadata",
        "http://public.test/to-inner",
    ],
)
async def test_no_download_gets_to_an_address_of_an_inner_network_by_whatever_way(url: str) -> None:
    behind, transport = web(
        {
            "public.test/to-metadata": moved("http://169.254.169.254/latest/meta-data"),
            "public.test/to-inner": moved("https://inner.test/secret"),
        }
    )
    with pytest.raises(DownloadFailed, match="is not an address of the public network"):
        await download(url, most_bytes=99, deadline_s=5.0, transport=transport)
    assert {one.split()[1] for one in behind.asked} <= {"public.test"}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx2.Response(404), "404"),
        (answered(b"x" * 100), "more than 99 bytes"),
        (answered(b"x", **{"content-encoding": "gzip"}), "gzip"),
        (moved("http://public.test/x"), "redirects"),
        (moved("file:///etc/passwd"), "file"),
    ],
)
async def test_a_download_that_is_not_there_too_large_or_turns_in_circles_is_given_up(
    answer: httpx2.Response, says: str
) -> None:
    _, transport = web({"public.test/x": answer})
    with pytest.raises(DownloadFailed, match=says):
        await download("http://public.test/x", most_bytes=99, deadline_s=5.0, transport=transport)


async def test_a_proxy_is_used_for_what_may_be_fetched_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolved(host: str, port: int) -> list[str]:
        if host not in NAMES:
            raise OSError("unknown here")
        return NAMES[host]

    direct, behind = Web({}), Web({"unknown.test/x": answered(b"by proxy")})
    monkeypatch.setattr(downloads, "_through", lambda proxy: behind)
    transport = PublicTransport(resolve=resolved, direct=direct, proxies={"http": "http://proxy:3128"})
    got = await download("http://unknown.test/x", most_bytes=99, deadline_s=5.0, transport=transport)
    assert got == b"by proxy"
    for host in ("inner.test", "169.254.169.254"):
        with pytest.raises(DownloadFailed, match="public network"):
            await download(f"http://{host}/x", most_bytes=99, deadline_s=5.0, transport=transport)
    assert (direct.asked, behind.asked) == ([], ["unknown.test unknown.test"])


@pytest.mark.parametrize("proxies", [{}, {"http": "http://proxy:3128"}])
@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a..test"])
async def test_a_host_name_that_no_computer_can_have_is_refused_also_after_a_redirection(
    host: str, proxies: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolved(name: str, port: int) -> list[str]:
        return NAMES[name] if name in NAMES else await downloads._resolved(name, port)

    asked = Web({"public.test/x": moved(f"http://{host}/x")})
    monkeypatch.setattr(downloads, "_through", lambda proxy: asked)
    transport = PublicTransport(resolve=resolved, direct=asked, proxies=proxies)
    for url in (f"http://{host}/x", "http://public.test/x"):
        with pytest.raises(DownloadFailed, match=f"{host}' is not a valid host name"):
            await download(url, most_bytes=99, deadline_s=5.0, transport=transport)
    assert {one.split()[1] for one in asked.asked} == {"public.test"}


async def test_a_url_that_utf_8_cannot_encode_is_refused() -> None:
    with pytest.raises(DownloadFailed, match="surrogates not allowed"):
        await download("http://public.test/\udcff", most_bytes=99, deadline_s=5.0, transport=web({})[1])


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    async def downloaded(url: str, **_: Any) -> bytes:
        asked.append(url)
        if "inner" in url:
            raise DownloadFailed("10.0.0.5 is not an address of the public network")
        return b"content"

    monkeypatch.setattr(setup_steps, "download", downloaded)
    return asked


async def test_what_a_task_downloads_is_kept_and_what_it_may_not_says_where_to_put_it(
    setting: Setting, desktop: FakeDesktop, served: list[str]
) -> None:
    for _ in range(2):
        await take(setting, "download", files=[{"url": "https://x.test/a", "path": "/home/user/a.txt"}])
    assert (desktop.home / "a.txt").read_text() == "content"
    assert served == ["https://x.test/a"]
    assert [path.name.partition("_")[2] for path in setting.cache.iterdir()] == ["a.txt"]
    with pytest.raises(TaskUnsupported, match=r"public network\), and .*cache/y/b.txt does not exist"):
        await take(setting, "download", files=[{"url": "http://inner/b", "path": "/home/user/b.txt"}])


async def test_a_download_that_the_disk_of_the_cache_refuses_is_used_and_leaves_nothing_there(
    setting: Setting, desktop: FakeDesktop, served: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", is_full)
    with capture_logs() as logs:
        await take(setting, "download", files=[{"url": "https://x.test/a", "path": "/home/user/a.txt"}])
    assert (desktop.home / "a.txt").read_text() == "content"
    assert list(setting.cache.iterdir()) == []
    assert [line["event"] for line in logs] == ["download_not_kept"]


async def test_a_tab_is_closed_whatever_its_id_is(setting: Setting, desktop: FakeDesktop) -> None:
    desktop.tabs = [
        {"id": id_, "type": "page", "title": "X", "url": url}
        for id_, url in (("a\nb?c", "https://x.test/"), ("d", "https://y.test/"))
    ]
    await take(setting, "chrome_close_tabs", urls_to_close=["https://x.test/"])
    assert [tab["id"] for tab in desktop.tabs] == ["d"]


# ---- whom a failed download blames ----

Handler = Callable[[httpx2.Request], Any]


@pytest.fixture
def served_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Handler], None]:
    """Let a function answer the requests of downloads."""

    def replace(handler: Handler) -> None:
        async def downloaded(url: str, *, most_bytes: int, deadline_s: float) -> bytes:
            transport = httpx2.MockTransport(handler)
            return await download(url, most_bytes=most_bytes, deadline_s=deadline_s, transport=transport)

        monkeypatch.setattr(setup_steps, "download", downloaded)

    return replace


def _raises(error: Exception) -> Handler:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise error

    return handler


async def _never(request: httpx2.Request) -> httpx2.Response:
    await asyncio.Event().wait()
    raise AssertionError("the event is never set")


LEFT_S = 0.1
A_FILE = [{"url": "https://x.test/a", "path": "/home/user/a.txt"}]


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        *((lambda _, status=status: httpx2.Response(status), str(status)) for status in (408, 429, 500, 503)),
        (_raises(httpx2.ConnectError("x.test has no address")), "ConnectError: x.test has no address"),
        (_raises(httpx2.ReadError("the connection was reset")), "ReadError"),
        (_never, "the download did not end within"),
    ],
)
async def test_a_download_that_may_succeed_later_is_no_fault_of_the_task(
    setting: Setting, served_by: Callable[[Handler], None], handler: Handler, says: str
) -> None:
    served_by(handler)
    step = SetupStep("download", {"files": A_FILE})
    with pytest.raises(FileUnreachable, match=f"(?s)https://x.test/a cannot be downloaded now.*{says}"):
        await take_steps((step,), setting, lambda: LEFT_S)


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        *((lambda _, status=status: httpx2.Response(status), str(status)) for status in (401, 403, 404, 410)),
        (_raises(httpx2.UnsupportedProtocol("ftp")), "UnsupportedProtocol"),
    ],
)
async def test_a_download_that_cannot_succeed_makes_its_task_unsupported(
    setting: Setting, served_by: Callable[[Handler], None], handler: Handler, says: str
) -> None:
    served_by(handler)
    with pytest.raises(TaskUnsupported, match=f"(?s)cannot be downloaded.*{says}.*put the file there"):
        await take(setting, "download", files=A_FILE)


@pytest.mark.parametrize(("number", "is_transient"), [(socket.EAI_AGAIN, True), (socket.EAI_NONAME, False)])
async def test_a_name_that_does_not_exist_is_told_from_a_resolver_that_does_not_answer(
    number: int, is_transient: bool
) -> None:
    async def resolved(host: str, port: int) -> list[str]:
        raise socket.gaierror(number, "no address")

    transport = PublicTransport(resolve=resolved, direct=Web({}), proxies={})
    with pytest.raises(DownloadFailed, match=r"public\.test has no address") as failed:
        await download("http://public.test/a", most_bytes=9, deadline_s=5.0, transport=transport)
    assert failed.value.is_transient is is_transient


# ---- steps that no guest can take, and files that are damaged ----


@pytest.mark.parametrize(
    ("type_", "parameters", "says"),
    [
        ("sleep", {"seconds": "soon"}, "'soon'"),
        ("sleep", {"seconds": None}, "None"),
        ("download", {"files": 5}, "not iterable"),
        ("download", {"files": ["https://x.test/a"]}, "https://x.test/a"),
        ("upload_file", {"files": [{"local_path": "present", "path": 5}]}, "'path': 5"),
        ("upload_file", {"files": [{"local_path": "present", "path": "\udcff"}]}, "surrogates"),
        ("execute", {"command": "true", "until": "ready"}, "'until': 'ready'"),
        ("chrome_open_tabs", {"urls_to_open": [5]}, "5"),
        ("update_browse_history", {"history": 5}, "not iterable"),
        (
            "update_browse_history",
            {"history": [{"url": "a", "title": "a", "visit_time_from_now_in_seconds": 1e400}]},
            "infinity",
        ),
    ],
)
async def test_a_step_with_wrong_parameters_makes_its_task_unsupported(
    setting: Setting, desktop: FakeDesktop, type_: str, parameters: dict[str, Any], says: str
) -> None:
    desktop.tabs = []
    (setting.cache / "present").write_text("x")
    (setting.cache / HISTORY).write_bytes(empty_history())
    with pytest.raises(TaskUnsupported, match=f"(?s)its step '{type_}' has wrong parameters.*{says}"):
        await take(setting, type_, **parameters)


VISITS = [{"url": "https://x.test/", "title": "X", "visit_time_from_now_in_seconds": 60}]


def empty_history() -> bytes:
    """The tables of Chromium's history to which visits are added."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE TABLE urls"
            " (id INTEGER PRIMARY KEY, url, title, visit_count, typed_count, last_visit_time, hidden)"
        )
        connection.execute(
            "CREATE TABLE visits (url, visit_time, from_visit, transition, segment_id, visit_duration)"
        )
        return connection.serialize()


async def test_a_page_that_is_served_in_place_of_the_history_is_not_kept(
    setting: Setting, desktop: FakeDesktop, served_by: Callable[[Handler], None]
) -> None:
    served_by(lambda _: answered(b"<html>Log in to this network</html>"))
    with pytest.raises(FileUnreachable, match="begins with b'<html>Log in to ' and not with b'SQLite"):
        await take(setting, "update_browse_history", history=VISITS)
    assert not list(setting.cache.iterdir())

    served_by(lambda _: answered(empty_history()))
    await take(setting, "update_browse_history", history=VISITS)
    served_by(_raises(httpx2.ConnectError("away")))
    await take(setting, "update_browse_history", history=VISITS)  # from the cache
    with contextlib.closing(sqlite3.connect(desktop.home / ".config/google-chrome/Default/History")) as found:
        assert found.execute("SELECT url, title FROM urls").fetchall() == [("https://x.test/", "X")]


@pytest.mark.parametrize("journal", [b"\1\1", b"\2\2"], ids=["rollback journal", "write-ahead log"])
async def test_visits_are_added_without_room_for_a_temporary_file(
    setting: Setting, desktop: FakeDesktop, journal: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    empty = empty_history()
    (setting.cache / HISTORY).write_bytes(empty[:18] + journal + empty[20:])
    await take(setting, "update_browse_history", history=VISITS)
    with contextlib.closing(sqlite3.connect(desktop.home / ".config/google-chrome/Default/History")) as found:
        assert found.execute("SELECT urls.url FROM urls JOIN visits ON urls.id = visits.url").fetchall() == [
            ("https://x.test/",)
        ]


async def test_a_damaged_history_that_the_cache_already_has_is_downloaded_again(
    setting: Setting, served_by: Callable[[Handler], None]
) -> None:
    served_by(lambda _: answered(empty_history()))
    await take(setting, "update_browse_history", history=VISITS)
    (kept,) = setting.cache.iterdir()
    kept.write_bytes(b"<html>Log in to this network</html>")
    await take(setting, "update_browse_history", history=VISITS)
    assert kept.read_bytes() == empty_history()


async def test_a_history_that_is_damaged_inside_makes_its_task_unsupported(setting: Setting) -> None:
    (setting.cache / HISTORY).write_bytes(b"SQLite format 3\0" + b"x" * 1000)
    with pytest.raises(
        TaskUnsupported, match=f"damaged, delete {HISTORY} and .*_{HISTORY} in {setting.cache}"
    ):
        await take(setting, "update_browse_history", history=VISITS)
