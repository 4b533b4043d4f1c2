"""What evaluations look at in the settings and files of applications, by type: Chrome, VLC, GIMP, VS Code and
presentations.

Only files are read and commands run; nothing is fetched from anywhere but the guest. A settings file that is
not there is `MISSING`, like any other.
"""

import collections
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dart.environments.deadlines import LeftS
from dart.environments.osworld.contents import (
    IN_BOOKMARKS,
    IN_LOCAL_STATE,
    IN_PREFERENCES,
    address_in,
    chrome_value,
    linked_in,
)
from dart.environments.osworld.evidence import MISSING, kept, looks, parsed
from dart.environments.osworld.judges_of_tables import last_row
from dart.environments.osworld.reading import rows_of
from dart.environments.osworld.setup_steps import Setting, pages_of

CHROME = "~/.config/google-chrome"
PREFERENCES, LOCAL_STATE = f"{CHROME}/Default/Preferences", f"{CHROME}/Local State"

PLAYER_PASSWORD = "password"
"""Of the web interface of the guests' VLC, as OSWorld's machines are set up."""

VIDEO_TYPES = (
    *("3gpp", "3gpp2", "dv", "fli", "flv", "mp2t", "mp4", "mp4v-es", "mpeg", "mpeg-system", "msvideo"),
    *("ogg", "quicktime", "vnd.rn-realvideo", "webm", "x-avi", "x-flv", "x-m4v", "x-matroska", "x-mpeg"),
    *("x-ms-asf", "x-ms-wmv", "x-msvideo", "x-ogm", "x-theora"),
)
"""Kinds of films whose players are asked for, to find the one that most are opened with."""

MOST_SHORTCUTS, SHORTCUT_MOST_BYTES = 1000, 2**16
"""Files on a desktop that are looked at, and how much of a starter is read."""

COMMAND_PALETTE = """
import time, pyautogui
pyautogui.FAILSAFE = False
pyautogui.hotkey("ctrl", "shift", "p")
time.sleep(1.0)
pyautogui.write({text!r}, interval=0.02)
time.sleep(0.5)
pyautogui.press("enter")
time.sleep(1.0)
"""

# ---- Chrome ----


@looks(*IN_PREFERENCES)
async def _preference(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return await _in_chrome(setting, PREFERENCES, config["type"], left_s)


@looks(*IN_LOCAL_STATE)
async def _state(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return await _in_chrome(setting, LOCAL_STATE, config["type"], left_s)


@looks(*IN_BOOKMARKS)
async def _bookmarks(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """Chrome makes the file with the first bookmark; without it there are none."""
    found = await _in_chrome(setting, f"{CHROME}/Default/Bookmarks", config["type"], left_s)
    return {} if found is MISSING else found


async def _in_chrome(setting: Setting, path: str, type_: str, left_s: LeftS) -> Any:
    file = await _file_of(setting, path, PurePosixPath(path).name, left_s)
    return file if file is MISSING else await parsed(setting, chrome_value, file, type_, left_s=left_s)


@looks("cookie_data")
async def _cookies(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return await _rows(setting, "Cookies", "SELECT * FROM cookies", config["dest"], left_s)


@looks("history")
async def _history(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    query = "SELECT url, title, last_visit_time FROM urls"
    return await _rows(setting, "History", query, config["dest"], left_s)


async def _rows(setting: Setting, name: str, query: str, dest: str, left_s: LeftS) -> Any:
    """All rows of a query on one of Chrome's databases."""
    path = await _file_of(setting, f"{CHROME}/Default/{name}", dest, left_s)
    return path if path is MISSING else await parsed(setting, rows_of, path, query, left_s=left_s)


@looks("shortcuts_on_desktop")
async def _shortcuts(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """The texts of the starters on the desktop, by file name."""
    desktop = await setting.guest.desktop_path(deadline_s=left_s())
    if desktop is None:
        return MISSING
    found = await setting.guest.directory(desktop, deadline_s=left_s())
    texts = {}
    for name in [str(node.get("name")) for node in (found or {}).get("children", ())][:MOST_SHORTCUTS]:
        if name.endswith(".desktop"):
            content = await setting.guest.file(f"{desktop}/{name}", deadline_s=left_s())
            texts[name] = (content or b"")[:SHORTCUT_MOST_BYTES].decode(errors="replace")
    return texts


@looks("open_tabs_info")
async def _tabs(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """Title and address of each page; without a browser there are none."""
    found = await setting.guest.chromium("GET", "/json/list", deadline_s=left_s())
    return [{"title": tab.get("title", ""), "url": tab["url"]} for tab in pages_of(found)]


@looks("active_url_from_accessTree")
async def _active(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> str:
    return await _active_address(setting, config, left_s)


@looks("active_tab_info")
async def _active_tab(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Mapping[str, str]:
    """Its address; nobody asks for more of it."""
    return {"url": await _active_address(setting, config, left_s)}


async def _active_address(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> str:
    """What the address bar says, which leaves the beginning out; empty without a browser."""
    tree = await setting.guest.accessibility_tree(deadline_s=left_s())
    text = str(await parsed(setting, address_in, tree, left_s=left_s))
    if not text or urlsplit(text).scheme in ("http", "https", "chrome", "file"):
        return text
    return f"{config.get('goto_prefix', 'https://')}{text}"


@looks("active_tab_url_parse")
async def _parts(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> dict[str, str]:
    """Parameters of the address in the address bar, some under another name; empty where there is none."""
    query = parse_qs(urlsplit(await _active_address(setting, config, left_s)).query)
    found = {key: (query.get(key) or [""])[0] for key in config["parse_keys"]}
    return {config.get("replace", {}).get(key, key): value for key, value in found.items()}


# ---- other applications ----


@looks("gimp_config_file")
async def _gimp(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return await _file_of(setting, f"~/.config/GIMP/2.10/{config['file_name']}", config["dest"], left_s)


@looks("vlc_config")
async def _vlc(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return await _file_of(setting, "~/.config/vlc/vlcrc", config["dest"], left_s)


@looks("vlc_playing_info")
async def _playing(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    content = await setting.guest.player(PLAYER_PASSWORD, deadline_s=left_s())
    return MISSING if content is None else kept(setting, config["dest"], content)


@looks("default_video_player")
async def _player(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> str:
    """The starter that most kinds of films are opened with, as xdg-mime prints it."""
    found: collections.Counter[str] = collections.Counter()
    for kind in VIDEO_TYPES:
        command = ["xdg-mime", "query", "default", f"video/{kind}"]
        ended = await setting.guest.execute(command, deadline_s=left_s())
        found.update([ended.output] if ended.output else [])
    return found.most_common(1)[0][0] if found else "unknown"


@looks("vscode_config")
async def _vscode(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """A file that a command of an extension writes; the command is typed into the command palette."""
    code = COMMAND_PALETTE.format(text=config["vscode_extension_command"])
    await setting.guest.python(code, deadline_s=left_s())
    return await _file_of(setting, config["path"], config["dest"], left_s)


async def _file_of(setting: Setting, path: str, dest: str, left_s: LeftS) -> Any:
    content = await setting.guest.file(path, deadline_s=left_s())
    return MISSING if content is None else kept(setting, dest, content)


@looks("content_from_vm_file")
async def _content(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    if (config["file_type"], config["file_content"]) != ("xlsx", "last_row"):
        raise NotImplementedError(f"{config['file_content']!r} of a file of type {config['file_type']!r}")
    path = await _file_of(setting, config["path"], PurePosixPath(config["path"]).name, left_s)
    return path if path is MISSING else await parsed(setting, last_row, path, left_s=left_s)


@looks("time_diff_range")
async def _range(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return config["diff_range_in_minutes"]


# ---- what is in a presentation ----


@looks("background_image_in_slide")
async def _behind(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """The picture behind a slide."""
    return await _linked(setting, config, "behind", left_s)


@looks("audio_in_slide")
async def _sound(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """The sound that comes with a slide."""
    return await _linked(setting, config, "audio", left_s)


async def _linked(setting: Setting, config: Mapping[str, Any], kind: str, left_s: LeftS) -> Any:
    """The file that a slide links to, in the presentation or beside it in the guest."""
    name = PurePosixPath(config["ppt_file_path"]).name
    path = await _file_of(setting, config["ppt_file_path"], name, left_s)
    if path is MISSING:
        return MISSING
    target, content = await parsed(setting, linked_in, path, int(config["slide_index"]), kind, left_s=left_s)
    if target.startswith("file://"):
        return await _file_of(setting, target.removeprefix("file://"), config["dest"], left_s)
    return MISSING if content is None else kept(setting, config["dest"], content)
