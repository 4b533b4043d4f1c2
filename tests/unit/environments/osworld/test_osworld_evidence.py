"""What evaluations look at: settings and files of applications in a guest that speaks the protocol."""

import datetime
import io
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dart.config.machine_address import MachineAddress
from dart.environments.faults import EvaluatorFailed, TaskUnsupported
from dart.environments.osworld.contents import chrome_value
from dart.environments.osworld.evidence import LOOKS, MISSING, look_at
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.judging import JUDGES, judge
from dart.environments.osworld.reading import Unreadable
from dart.environments.osworld.setup_steps import Setting, take_steps, with_visits
from dart.environments.osworld.tasks import SetupStep, parse_task
from tests.unit.environments.osworld.guest_server import FakeDesktop, guest_server

pytestmark = pytest.mark.slow

CHROME = ".config/google-chrome"


@pytest.fixture
def desktop(tmp_path: Path) -> FakeDesktop:
    (tmp_path / "home").mkdir()
    return FakeDesktop(tmp_path / "home")


@pytest.fixture
def setting(desktop: FakeDesktop, tmp_path: Path) -> Setting:
    guest = Guest("vm", MachineAddress(host="vm.test"), httpx2.ASGITransport(app=guest_server(desktop)))
    return Setting(
        task_id="osworld/x/y",
        guest=guest,
        cache=tmp_path / "cache",
        scratch=tmp_path / "scratch",
        password="p",
        width=800,
        height=600,
    )


def put(desktop: FakeDesktop, path: str, content: Any) -> None:
    file = desktop.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


async def seen(setting: Setting, type_: str, **config: Any) -> Any:
    return await look_at(setting, {"type": type_, **config}, lambda: 60.0)


PREFERENCES = {
    "default_search_provider_data": {"template_url_data": {"short_name": "Bing"}},
    "profile": {"name": "Thomas", "default_content_setting_values": {"cookies": 4}},
    "webkit": {"webprefs": {"default_font_size": 24}},
    "enable_do_not_track": True,
    "safebrowsing": {"enhanced": True},
    "session": {"restore_on_startup": 1},
    "extensions": {"settings": {"a": {"path": "/home/user/x", "manifest": {"name": "X"}}, "b": {}}},
}


@pytest.mark.parametrize(
    ("type_", "value", "default"),
    [
        ("default_search_engine", "Bing", "Google"),
        ("profile_name", "Thomas", None),
        (
            "chrome_font_size",
            {"default_font_size": 24},
            {"default_fixed_font_size": 13, "default_font_size": 16, "minimum_font_size": 13},
        ),
        ("enable_do_not_track", "true", "false"),
        ("enable_enhanced_safety_browsing", "true", "false"),
        ("enable_safe_browsing", "true", "false"),
        ("new_startup_page", "false", "true"),
        ("data_delete_automacally", "true", "false"),
        ("find_unpacked_extension_path", ["/home/user/x"], []),
        ("find_installed_extension_name", ["X"], []),
    ],
)
def test_preferences_of_chrome_are_read_with_its_own_defaults(
    type_: str, value: Any, default: Any, tmp_path: Path
) -> None:
    path = tmp_path / "Preferences"
    for content, wanted in ((PREFERENCES, value), ({}, default)):
        path.write_text(json.dumps(content))
        assert chrome_value(path, type_) == wanted


async def test_preferences_of_a_guest_are_read_and_damaged_ones_are_none(
    setting: Setting, desktop: FakeDesktop
) -> None:
    assert await seen(setting, "profile_name") is MISSING
    put(desktop, f"{CHROME}/Default/Preferences", PREFERENCES)
    assert await seen(setting, "profile_name") == "Thomas"
    put(desktop, f"{CHROME}/Default/Preferences", "{half")
    with pytest.raises(Unreadable, match="Preferences is no JSON file"):
        await seen(setting, "profile_name")


async def test_the_state_and_the_bookmarks_of_chrome_are_read(setting: Setting, desktop: FakeDesktop) -> None:
    put(desktop, f"{CHROME}/Local State", {"browser": {"enabled_labs_experiments": ["a@1"]}})
    assert await seen(setting, "enabled_experiments") == ["a@1"]
    assert await seen(setting, "chrome_language") == "en-US"
    assert await seen(setting, "bookmarks") == {}
    put(desktop, f"{CHROME}/Default/Bookmarks", {"roots": {"bookmark_bar": {"children": []}}})
    assert await seen(setting, "bookmarks") == {"bookmark_bar": {"children": []}}


def history(path: Path) -> bytes:
    """An empty database of Chromium, as far as visits need it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE urls (id INTEGER PRIMARY KEY, url, title, visit_count, typed_count,"
            " last_visit_time, hidden);"
            "CREATE TABLE visits (id INTEGER PRIMARY KEY, url, visit_time, from_visit, transition,"
            " segment_id, visit_duration);"
        )
    return path.read_bytes()


async def test_a_history_is_made_and_read_again(
    setting: Setting, desktop: FakeDesktop, tmp_path: Path
) -> None:
    setting.cache.mkdir()
    (setting.cache / "history_empty.sqlite").write_bytes(history(tmp_path / "db"))
    visit = {"url": "https://a.com", "title": "A", "visit_time_from_now_in_seconds": 60}
    await take_steps((SetupStep("update_browse_history", {"history": [visit]}),), setting, lambda: 5.0)
    [(url, title, when)] = await seen(setting, "history", dest="history.sqlite")
    moment = datetime.datetime(1601, 1, 1) + datetime.timedelta(microseconds=when)
    ago = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - moment
    assert (url, title) == ("https://a.com", "A")
    assert 59 < ago.total_seconds() < 3600
    again = with_visits(with_visits(history(tmp_path / "db2"), [visit], 0.0), [visit], 1.0)
    (tmp_path / "again").write_bytes(again)
    with closing(sqlite3.connect(tmp_path / "again")) as connection:
        assert connection.execute("SELECT count(*), max(url) FROM visits").fetchone() == (2, 2)


async def test_cookies_are_read_and_a_damaged_database_is_none(
    setting: Setting, desktop: FakeDesktop, tmp_path: Path
) -> None:
    assert await seen(setting, "cookie_data", dest="c") is MISSING
    with closing(sqlite3.connect(tmp_path / "c")) as connection:
        connection.executescript(
            "CREATE TABLE cookies (a, host_key); INSERT INTO cookies VALUES (1, '.a.com')"
        )
    put(desktop, f"{CHROME}/Default/Cookies", (tmp_path / "c").read_bytes())
    assert await seen(setting, "cookie_data", dest="c") == [[1, ".a.com"]]
    put(desktop, f"{CHROME}/Default/Cookies", "no database" * 99)
    with pytest.raises(Unreadable, match="c is no SQLite database"):
        await seen(setting, "cookie_data", dest="c")


async def test_shortcuts_on_the_desktop_are_read(setting: Setting, desktop: FakeDesktop) -> None:
    assert await seen(setting, "shortcuts_on_desktop") is MISSING
    put(desktop, "Desktop/maps.desktop", "[Desktop Entry]\nName=Maps\n")
    put(desktop, "Desktop/notes.txt", "x")
    assert await seen(setting, "shortcuts_on_desktop") == {"maps.desktop": "[Desktop Entry]\nName=Maps\n"}


@pytest.mark.parametrize(
    ("text", "address"),
    [("a.com/x?q=cat&n=", "https://a.com/x?q=cat&n="), ("http://a.com/", "http://a.com/"), ("", "")],
)
async def test_the_address_bar_is_read_from_the_accessibility_tree(
    setting: Setting, desktop: FakeDesktop, text: str, address: str
) -> None:
    pytest.importorskip("lxml", reason="needs lxml (make desktop)")
    bar = f'<entry name="Address and search bar">{text.replace("&", "&amp;")}</entry>'
    desktop.tree = f'<desktop-frame><application name="Google Chrome">{bar}</application></desktop-frame>'
    assert await seen(setting, "active_url_from_accessTree", goto_prefix="https://") == address
    assert await seen(setting, "active_tab_info") == {"url": address}
    parts = await seen(setting, "active_tab_url_parse", parse_keys=["q", "none"], replace={"q": "animal"})
    assert parts == {"animal": "cat" if "cat" in text else "", "none": ""}


async def test_an_address_that_makes_no_sense_ends_no_environment(
    setting: Setting, desktop: FakeDesktop
) -> None:
    pytest.importorskip("lxml", reason="needs lxml (make desktop)")
    bar = '<entry name="Address and search bar">http://[</entry>'
    desktop.tree = f'<desktop-frame><application name="Google Chrome">{bar}</application></desktop-frame>'
    with pytest.raises(EvaluatorFailed, match="makes no sense"):
        await seen(setting, "active_url_from_accessTree")


async def test_files_of_applications_are_fetched(setting: Setting, desktop: FakeDesktop) -> None:
    put(desktop, ".config/GIMP/2.10/gimprc", '(theme "Dark")')
    put(desktop, ".config/vlc/vlcrc", "qt-bgcone=0")
    assert (
        await seen(setting, "gimp_config_file", file_name="gimprc", dest="g")
    ).read_text() == '(theme "Dark")'
    assert (await seen(setting, "vlc_config", dest="v")).read_text() == "qt-bgcone=0"
    assert await seen(setting, "gimp_config_file", file_name="none", dest="n") is MISSING
    assert await seen(setting, "vlc_playing_info", dest="s") is MISSING
    desktop.playing = "<root/>"
    assert (await seen(setting, "vlc_playing_info", dest="s")).read_text() == "<root/>"


async def test_files_beside_a_result_are_fetched_too(setting: Setting, desktop: FakeDesktop) -> None:
    put(desktop, "a.xlsx", "table")
    put(desktop, "a-Sheet1.csv", "1,2")
    paths = ["/home/user/a.xlsx", "/home/user/a-Sheet1.csv", "/home/user/none"]
    names = {"path": paths, "dest": ["a.xlsx", "a-Sheet1.csv", "none"], "multi": True}
    found = await seen(setting, "vm_file", **names)
    assert (found.name, found.with_name("a-Sheet1.csv").read_text()) == ("a.xlsx", "1,2")
    both = await seen(setting, "vm_file", **names, gives=[0, 2])
    assert [both[0].name, both[1]] == ["a.xlsx", MISSING]


async def test_a_file_to_compare_with_may_bear_the_same_name(setting: Setting, desktop: FakeDesktop) -> None:
    put(desktop, "a.txt", "found")
    setting.cache.mkdir()
    (setting.cache / "a.txt").write_text("wanted")
    found = await seen(setting, "vm_file", path="/home/user/a.txt", dest="a.txt")
    wanted = await seen(setting, "cloud_file", path="https://x.test/a.txt", dest="a.txt")
    assert (found.read_text(), wanted.read_text()) == ("found", "wanted")


async def test_the_player_that_most_films_are_opened_with_is_found(
    setting: Setting, desktop: FakeDesktop
) -> None:
    def command(given: Any, shell: bool) -> tuple[str, str, int]:
        kind = given[-1].removeprefix("video/")
        return ("" if kind == "dv" else "vlc.desktop\n" if "m" in kind else "totem.desktop\n"), "", 0

    desktop.command = command  # type: ignore[method-assign]
    assert await seen(setting, "default_video_player") == "vlc.desktop\n"


async def test_a_command_of_an_extension_is_typed_before_its_file_is_read(
    setting: Setting, desktop: FakeDesktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    put(desktop, "open.txt", "project")
    config = {"vscode_extension_command": "GetOpen", "path": "/home/user/open.txt", "dest": "o"}
    assert (await seen(setting, "vscode_config", **config)).read_text() == "project"
    assert desktop.done == [
        "hotkey('ctrl', 'shift', 'p')",
        "write('GetOpen', interval=0.02)",
        "press('enter')",
    ]


RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
PARTS = {
    "ppt/slides/slide2.xml": (
        '<p:sld xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">'
        '<p:bgPr><a:blip r:embed="rId2"/></p:bgPr><a:blip r:embed="rId9"/></p:sld>'
    ),
    "ppt/slides/_rels/slide2.xml.rels": (
        f'<Relationships xmlns="{RELATIONS}">'
        '<Relationship Id="rId9" Type="x/image" Target="../media/other.png"/>'
        '<Relationship Id="rId2" Type="x/image" Target="../media/back.png"/>'
        '<Relationship Id="rId3" Type="x/audio" Target="file:///home/user/song.mp3"/></Relationships>'
    ),
    "ppt/media/back.png": "behind",
    "ppt/media/other.png": "in front",
}


async def test_what_a_slide_links_to_is_taken_from_the_file_or_the_guest(
    setting: Setting, desktop: FakeDesktop
) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in PARTS.items():
            archive.writestr(name, content)
    put(desktop, "show.pptx", file.getvalue())
    put(desktop, "song.mp3", "la la")
    where = {"ppt_file_path": "/home/user/show.pptx", "slide_index": 1, "dest": "d"}
    assert (await seen(setting, "background_image_in_slide", **where)).read_text() == "behind"
    assert (await seen(setting, "audio_in_slide", **where)).read_text() == "la la"
    assert await seen(setting, "background_image_in_slide", **where | {"slide_index": 0}) is MISSING
    assert await seen(setting, "audio_in_slide", **where | {"ppt_file_path": "/home/user/none"}) is MISSING


async def test_the_last_row_of_a_table_is_read(setting: Setting, desktop: FakeDesktop) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl (make desktop)")
    book, file = openpyxl.Workbook(), io.BytesIO()
    for row in (["k", "v"], ["a", 1.5], ["b", "x"]):
        book.active.append(row)
    book.save(file)
    put(desktop, "t.xlsx", file.getvalue())
    config = {"path": "/home/user/t.xlsx", "file_type": "xlsx", "file_content": "last_row"}
    assert await seen(setting, "content_from_vm_file", **config) == ["b", "x"]
    with pytest.raises(TaskUnsupported, match="'first_row' of a file of type 'xlsx'"):
        await seen(setting, "content_from_vm_file", **config | {"file_content": "first_row"})


async def test_rules_speak_of_days_from_today(setting: Setting) -> None:
    rules = {
        "relativeTime": {"from": "tomorrow"},
        "expected": {"time": "{Year}"},
        "timezone": "Europe/Zurich",
    }
    found = await seen(setting, "rule_relativeTime", rules=rules)
    assert found["expected"]["time"] in {str(datetime.date.today().year + more) for more in (0, 1)}
    assert await seen(setting, "time_diff_range", diff_range_in_minutes="5") == "5"


async def test_what_is_not_known_is_said_before_anything_is_asked(
    setting: Setting, desktop: FakeDesktop
) -> None:
    with pytest.raises(TaskUnsupported, match="looks at 'googledrive_file', which is not known"):
        await seen(setting, "googledrive_file")
    assert desktop.requests == []
    assert "vm_file" in LOOKS


STRANGE = "tests.unit.environments.osworld.strange_judges"


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"found.json": "{half", "wanted.json": "{}"}, None),
        ({"wanted.json": "{}"}, None),
        (
            {"found.json": "{}", "wanted.json": "{half"},
            "expected value cannot be read: wanted.json is no JSON file",
        ),
        ({"found.json": "{}"}, "the expected value .* is missing"),
    ],
)
async def test_a_damaged_result_is_one_that_is_not_there_and_a_damaged_standard_is_nobodys_failure(
    setting: Setting,
    desktop: FakeDesktop,
    files: dict[str, str],
    fault: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(JUDGES, "diff_text_file", STRANGE)
    for name, text in files.items():
        put(desktop, name, text)
    sides = {
        side: {"type": "vm_file", "path": f"/home/user/{name}.json", "dest": f"{name}.json"}
        for side, name in {"result": "found", "expected": "wanted"}.items()
    }
    task = parse_task(
        "osworld/x/y", {"instruction": "Do it.", "evaluator": {"func": "diff_text_file", **sides}}
    )
    if fault is None:
        assert await judge(task, setting, lambda: 60.0) == 0.0
    else:
        with pytest.raises(EvaluatorFailed, match=fault):
            await judge(task, setting, lambda: 60.0)


async def test_what_to_compare_with_that_cannot_be_read_is_no_failure_of_the_policy(
    setting: Setting, desktop: FakeDesktop
) -> None:
    put(desktop, f"{CHROME}/Default/Preferences", "{half")
    rule, name = {"type": "rule", "rules": {"expected": 1}}, {"type": "profile_name"}
    for sides, fault in (
        ({"result": name, "expected": rule}, False),
        ({"result": rule, "expected": name}, True),
    ):
        evaluator = {"func": "exact_match", **sides}
        task = parse_task("osworld/x/y", {"instruction": "Do it.", "evaluator": evaluator})
        if fault:
            with pytest.raises(
                EvaluatorFailed, match="the expected value cannot be read: Preferences is no JSON file"
            ):
                await judge(task, setting, lambda: 60.0)
        else:
            assert await judge(task, setting, lambda: 60.0) == 0.0


async def test_whatever_a_library_raises_the_actor_hears_of_the_evaluator(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(JUDGES, "exact_match", STRANGE)
    rule = {"type": "rule", "rules": {"expected": 1}}
    evaluator = {"func": "exact_match", "result": rule, "expected": rule}
    task = parse_task("osworld/x/y", {"instruction": "Do it.", "evaluator": evaluator})
    with pytest.raises(EvaluatorFailed, match="exact_match failed: DatabaseError: deep inside"):
        await judge(task, setting, lambda: 60.0)
