"""Scripts that play published OSWorld tasks, for a preflight of machines and for tests.

Each script runs in a shell of the guest and leaves what its task asks for, mostly in a settings file. If the
script's episode is a success, the machine and the evaluators work. A script shows neither how a person would
do the task nor whether a policy can.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dart.environments.osworld.tasks import PREFIX

ENDS = """
pkill {name}
for _ in $(seq 50); do pgrep {name} >/dev/null || break; sleep 0.2; done
"""
"""Shell commands that end a program and wait up to 10 seconds for its end. A program that still ran would
later write its own settings over those of the script."""

SETS_PREFERENCE = """
python3 - <<'END'
import json, os
path = os.path.expanduser("~/.config/google-chrome/Default/{file}")
os.makedirs(os.path.dirname(path), exist_ok=True)
found = json.load(open(path)) if os.path.exists(path) else {{}}
at = found
for key in {keys!r}:
    at = at.setdefault(key, {{}})
at[{last!r}] = {value!r}
json.dump(found, open(path, "w"))
END
"""

SETS_AUTO_SAVING = """
python3 - <<'END'
import os
path = os.path.expanduser("~/.config/libreoffice/4/user/registrymodifications.xcu")
text = open(path, encoding="utf-8").read()
item = ('<item oor:path="/org.openoffice.Office.Common/Save/Document"><prop oor:name="AutoSaveTimeIntervall" '
        'oor:op="fuse"><value>3</value></prop></item>')
open(path, "w", encoding="utf-8").write(text.replace("</oor:items>", item + "</oor:items>"))
END
"""


def _setting(schema: str, key: str, value: str) -> str:
    return f"gsettings set org.gnome.desktop.{schema} {key} {value}"


def _gimp(file: str, line: str) -> str:
    """Return a script that adds a line to one of GIMP's settings files."""
    adds = f"for folder in ~/.config/GIMP/*/; do printf '%s\\n' '{line}' >> \"${{folder}}{file}\"; done"
    return ENDS.format(name="gimp") + adds


def _vlc(key: str, value: str) -> str:
    """Return a script that sets a key of VLC's settings."""
    file = "~/.config/vlc/vlcrc"
    return (
        ENDS.format(name="vlc")
        + f"mkdir -p ~/.config/vlc; touch {file}; sed -i '/^#*{key}=/d' {file}; "
        + f"printf '%s\\n' '{key}={value}' >> {file}"
    )


def _chrome(key: str, value: Any, file: str = "Preferences") -> str:
    """Return a script that sets a key, whose parts are separated by dots, in a file of Chrome's profile."""
    *keys, last = key.split(".")
    sets = SETS_PREFERENCE.format(file=file, keys=keys, last=last, value=value)
    return ENDS.format(name="chrom") + sets


def _bookmarks(*folders: str) -> Mapping[str, Any]:
    """Return Chrome's bookmarks with some empty folders on its bar."""

    def folder(id_: int, name: str, *children: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"id": str(id_), "name": name, "type": "folder", "children": list(children)}

    held = [folder(number, name) for number, name in enumerate(folders, start=4)]
    return {
        "bookmark_bar": folder(1, "Bookmarks bar", *held),
        "other": folder(2, "Other bookmarks"),
        "synced": folder(3, "Mobile bookmarks"),
    }


def _of_areas() -> Iterator[tuple[str, str, str]]:
    """Yield area, id and script of each task."""
    yield "chrome", "030eeff7-b492-4218-b312-701ec99ee0cc", _chrome("enable_do_not_track", True)
    yield (
        "chrome",
        "2ad9387a-65d8-4e33-ad5b-7580065a27ca",
        _chrome("roots", _bookmarks("Favorites"), "Bookmarks"),
    )
    yield "chrome", "af630914-714e-4a24-a7bb-f9af687d3b91", _chrome("webkit.webprefs.default_font_size", 72)
    yield "gimp", "7767eef2-56a3-4cea-8c9f-48c070c7d65b", _gimp("gimprc", '(theme "Light")')
    yield "gimp", "7b7617bd-57cc-468e-9c91-40c4ec2bcb3d", _gimp("gimprc", "(undo-levels 100)")
    yield "gimp", "d52d6308-ec58-42b7-a2c9-de80e4837b2b", _gimp("sessionrc", "(hide-docks yes)")
    yield (
        "libreoffice_impress",
        "2cd43775-7085-45d8-89fa-9e35c0a915cf",
        ENDS.format(name="soffice") + SETS_AUTO_SAVING,
    )
    yield (
        "os",
        "e0df059f-28a6-4169-924f-b9623e7184cc",
        "mv ~/Desktop/todo_list_Jan_1 ~/Desktop/todo_list_Jan_2",
    )
    yield "os", "3ce045a0-877b-42aa-8d2c-b4a863336ab8", _setting("interface", "text-scaling-factor", "1.5")
    yield "os", "a4d98375-215b-4a4d-aee9-3d4370fccc41", _setting("screensaver", "lock-enabled", "true")
    yield "os", "bedcedc4-4d72-425e-ad62-21960b11fe0d", _setting("session", "idle-delay", "0")
    yield "os", "f9be0997-4b7c-45c5-b05c-4612b44a6118", _setting("notifications", "show-banners", "false")
    yield "vlc", "215dfd39-f493-4bc3-a027-8a97d72c61bf", _vlc("qt-bgcone", "0")
    yield "vlc", "8ba5ae7a-5ae5-4eab-9fcc-5dd4fe3abf89", _vlc("input-record-path", "/home/user/Desktop")
    yield "vlc", "9195653c-f4aa-453d-aa95-787f6ccfaae9", _vlc("qt-max-volume", "200")
    yield "vlc", "a5bbbcd5-b398-4c91-83d4-55e1e31bbb81", _vlc("qt-minimal-view", "1")
    black = ";".join(["10"] * 12)
    yield "vlc", "d06f0d4d-2cd5-4ede-8de9-598629438c6e", _vlc("qt-slider-colours", black)
    yield (
        "vlc",
        "f3977615-2b45-4ac5-8bba-80c17dbe2a37",
        _vlc("one-instance-when-started-from-file", "0"),
    )


ORACLES: Mapping[str, str] = {f"{PREFIX}{area}/{id_}": script for area, id_, script in _of_areas()}
"""The scripts by task id. A preflight plays the first script of each application."""
