"""What a guest answers and what its files hold takes a bounded part of this computer, and always ends."""

import gzip
import io
import json
import sqlite3
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dart.config.machine_address import MachineAddress
from dart.environments.faults import CallFailed, EvaluatorFailed
from dart.environments.osworld import guest as guest_module
from dart.environments.osworld import reading
from dart.environments.osworld.evidence import look_at
from dart.environments.osworld.guest import AnswerTooLarge, Guest
from dart.environments.osworld.judges_of_browsers import check_accessibility_tree
from dart.environments.osworld.judges_of_documents import compare_docx_images
from dart.environments.osworld.judges_of_images import picture
from dart.environments.osworld.judges_of_text import compare_zip_files, run_sqlite3
from dart.environments.osworld.judging import JUDGES, judge
from dart.environments.osworld.reading import Unreadable, xml_in
from dart.environments.osworld.setup_steps import Setting
from dart.environments.osworld.tasks import parse_task
from tests.unit.environments.huge_pictures import huge_png
from tests.unit.environments.osworld.guest_server import FakeDesktop, guest_server, one_colour

MIB = 2**20


class Endless(httpx2.AsyncByteStream):
    """A body without an end; counts what was taken of it."""

    def __init__(self) -> None:
        self.taken_bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.taken_bytes += MIB
            yield b"x" * MIB


def guest_that_answers(response: Callable[[], httpx2.Response]) -> Guest:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["accept-encoding"] == "identity"
        return response()

    return Guest("vm", MachineAddress(host="vm.test"), httpx2.MockTransport(answer))


def streamed(content: bytes, status: int = 200, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(content))


# ---- answers ----


@pytest.mark.parametrize(
    ("call", "most_bytes"),
    [
        (lambda guest: guest.screenshot(deadline_s=60.0), "FILE_MOST_BYTES"),
        (lambda guest: guest.file("/x", deadline_s=60.0), "FILE_MOST_BYTES"),
        (lambda guest: guest.terminal(deadline_s=60.0), "RESPONSE_MOST_BYTES"),
        (lambda guest: guest.execute("x", deadline_s=60.0), "RESPONSE_MOST_BYTES"),
        (lambda guest: guest.player("x", deadline_s=60.0), "RESPONSE_MOST_BYTES"),
        (lambda guest: guest.chromium("GET", "/x", deadline_s=60.0), "RESPONSE_MOST_BYTES"),
    ],
)
async def test_a_body_without_an_end_is_read_up_to_a_limit(
    call: Callable[[Guest], Any], most_bytes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, most_bytes, 3 * MIB)
    body = Endless()
    guest = guest_that_answers(lambda: httpx2.Response(200, stream=body))
    with pytest.raises(AnswerTooLarge, match="more than 3145728 bytes"):
        await call(guest)
    assert body.taken_bytes == 4 * MIB


async def test_a_body_that_is_compressed_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * (64 * MIB))
    guest = guest_that_answers(lambda: streamed(bomb, **{"content-encoding": "gzip"}))
    for call in (guest.screenshot(deadline_s=5.0), guest.file("/x", deadline_s=5.0)):
        with pytest.raises(CallFailed, match="is compressed"):
            await call


async def test_a_refused_file_or_folder_is_named_by_its_path() -> None:
    guest = guest_that_answers(lambda: streamed(b"denied", 403))
    with pytest.raises(CallFailed, match=r"/file /home/user/a\.txt: status 403: denied"):
        await guest.file("/home/user/a.txt", deadline_s=5.0)
    with pytest.raises(CallFailed, match="/list_directory /home/user/x: status 403: denied"):
        await guest.directory("/home/user/x", deadline_s=5.0)


async def test_the_text_of_an_answer_is_in_one_encoding_whatever_it_says() -> None:
    guest = guest_that_answers(
        lambda: streamed("é".encode(), 500, **{"content-type": "text/x; charset=idna"})
    )
    with pytest.raises(CallFailed, match="status 500: é"):
        await guest.terminal(deadline_s=5.0)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"[" + b"[]," * 1_000_000 + b"[]]",
        b"9" * 100_000,
        b"[]",
        b'{"output": [], "error": null}',
        b'{"width": 1e999, "height": {}}',
        b'{"directory_tree": 3}',
        b"{",
    ],
)
async def test_an_answer_that_is_not_as_the_protocol_says_is_a_fault_of_the_machine(content: bytes) -> None:
    guest = guest_that_answers(lambda: streamed(content))
    for call in (
        guest.execute("x", deadline_s=5.0),
        guest.screen_size(deadline_s=5.0),
        guest.directory("/x", deadline_s=5.0),
        guest.desktop_path(deadline_s=5.0),
        guest.accessibility_tree(deadline_s=5.0),
    ):
        with pytest.raises(CallFailed, match="its response"):
            await call


# ---- files ----


@pytest.fixture
def desktop(tmp_path: Path) -> FakeDesktop:
    (tmp_path / "home").mkdir()
    return FakeDesktop(tmp_path / "home")


@pytest.fixture
def setting(desktop: FakeDesktop, tmp_path: Path) -> Setting:
    return Setting(
        task_id="osworld/x/y",
        guest=Guest("vm", MachineAddress(host="vm.test"), httpx2.ASGITransport(app=guest_server(desktop))),
        cache=tmp_path / "cache",
        scratch=tmp_path / "scratch",
        password="p",
        width=800,
        height=600,
    )


def bomb_of_views(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE VIEW cookies AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)"
            " SELECT x, zeroblob(1000) FROM r;"
        )
    return path.read_bytes()


async def test_a_view_without_an_end_ends_with_the_evaluation(
    setting: Setting, desktop: FakeDesktop, tmp_path: Path
) -> None:
    folder = desktop.home / ".config" / "google-chrome" / "Default"
    folder.mkdir(parents=True)
    (folder / "Cookies").write_bytes(bomb_of_views(tmp_path / "bomb"))
    with pytest.raises((EvaluatorFailed, Unreadable)):
        await look_at(setting, {"type": "cookie_data", "dest": "c"}, lambda: 20.0)


def test_a_query_reads_its_database_and_does_nothing_else(tmp_path: Path) -> None:
    path, other = tmp_path / "db?mode=rwc", tmp_path / "other"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (2);")
    assert run_sqlite3(path, {"sql": "WITH y AS (SELECT max(x) AS z FROM t) SELECT z > 1 FROM y"}) == 1.0
    for sql in (
        f"ATTACH '{other}' AS z",
        f"VACUUM INTO '{other}'",
        "PRAGMA journal_mode = WAL",
        "PRAGMA user_version = 3",
        "CREATE TEMP TABLE u (x)",
        "DELETE FROM t",
        "SELECT load_extension('x')",
    ):
        with pytest.raises(Unreadable, match=r"not authorized|authorization denied|readonly"):
            run_sqlite3(path, {"sql": sql})
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name]


def test_a_query_without_an_end_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "QUERY_MOST_STEPS", 100)
    path = tmp_path / "db"
    path.write_bytes(bomb_of_views(tmp_path / "bomb"))
    with pytest.raises(Unreadable, match="interrupted"):
        run_sqlite3(path, {"sql": "SELECT count(*) FROM cookies"})


def test_members_of_archives_are_unpacked_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "UNPACKED_MOST_BYTES", MIB)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a", "b", "c"):
            archive.writestr(name, b"\0" * (400 * 1024))
        archive.writestr("content.xml", b" " * (2 * MIB))
    for read in (lambda: compare_zip_files(path, path), lambda: xml_in(path, "content.xml")):
        with pytest.raises(Unreadable, match="more than 1048576 bytes"):
            read()


def test_a_picture_of_too_many_pixels_is_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(huge_png(9000, 9000))
    with pytest.raises(Unreadable, match="9000x9000 pixels"):
        picture(path)


def test_a_picture_in_a_document_of_too_many_pixels_is_not_decoded(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx", reason="needs python-docx (make desktop)")
    path, document = tmp_path / "a.docx", docx.Document()
    document.add_picture(io.BytesIO(one_colour(8, 8, 1)))
    document.save(str(path))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, huge_png(9000, 9000) if name.endswith(".png") else content)
    with pytest.raises(Unreadable, match="9000x9000 pixels"):
        compare_docx_images(path, path)


def test_a_tree_names_no_file_of_this_computer(tmp_path: Path) -> None:
    pytest.importorskip("lxml", reason="needs lxml (make desktop)")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for declared in (f'SYSTEM "{secret.as_uri()}"', '"secret"'):
        tree = f"<!DOCTYPE l [<!ENTITY a {declared}>]><l>&a;</l>"
        assert check_accessibility_tree(tree, [{"xpath": "//l"}]) == 1.0
        assert check_accessibility_tree(tree, [{"xpath": "//l", "text": "secret"}]) == 0.0


async def test_a_judge_that_takes_more_memory_than_it_may_is_the_evaluators_failure(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(JUDGES, "exact_match", "tests.unit.environments.osworld.strange_judges")
    evaluator = {
        "func": "exact_match",
        "result": {"type": "rule", "rules": "takes memory"},
        "expected": {"type": "rule", "rules": {}},
    }
    task = parse_task("osworld/x/y", {"instruction": "Do it.", "evaluator": evaluator})
    with pytest.raises(EvaluatorFailed, match="MemoryError: the call exceeds its limit of 4096 MiB"):
        await judge(task, setting, lambda: 60.0)


async def test_preferences_that_nest_without_an_end_are_no_preferences(
    setting: Setting, desktop: FakeDesktop
) -> None:
    folder = desktop.home / ".config" / "google-chrome" / "Default"
    folder.mkdir(parents=True)
    for content in ("[" * 100_000, json.dumps({"profile": 3}), '{"profile": {"name": ' + "9" * 5000 + "}}"):
        (folder / "Preferences").write_text(content)
        with pytest.raises(Unreadable, match="Preferences"):
            await look_at(setting, {"type": "profile_name"}, lambda: 60.0)
