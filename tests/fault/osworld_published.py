"""The facts of published OSWorld tasks that `tests.fault.test_osworld_published` plays.

Each is the setup and the evaluator of the task with the same id, with an instruction in other words.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dart.environments.osworld.tasks import PREFIX

Step = Mapping[str, Any]
CLICKS = (
    "import pyautogui; import time; pyautogui.click({SCREEN_WIDTH_HALF}, {SCREEN_HEIGHT_HALF}); "
    "time.sleep(0.5);"
)


def _execute(command: str | Sequence[str]) -> Step:
    parameters = {"command": command, "shell": isinstance(command, str)}
    return {"type": "execute", "parameters": parameters}


def _launch(command: str | Sequence[str]) -> Step:
    parameters = {"command": command, "shell": isinstance(command, str)}
    return {"type": "launch", "parameters": parameters}


def _rule(**rules: Any) -> Step:
    return {"type": "rule", "rules": rules}


def _task(
    instruction: str, config: Sequence[Step], func: str, result: Step, expected: Step, *after: Step
) -> Step:
    evaluator = {"func": func, "result": result, "expected": expected, "postconfig": list(after)}
    return {"instruction": instruction, "config": list(config), "evaluator": evaluator}


CLICK = _execute(["python", "-c", CLICKS])
CHROME = (
    _launch(["google-chrome", "--remote-debugging-port=1337"]),
    _launch(["socat", "tcp-listen:9222,fork", "tcp:localhost:1337"]),
)
CHROME_AGAIN = (
    _launch(["pkill", "chrome"]),
    _launch(["google-chrome", "--remote-debugging-port=1337"]),
    {"type": "sleep", "parameters": {"seconds": 3}},
)
PLAYER = "vlc --no-audio --no-video-title-show"
VLC = (_launch(f"VLC_VERBOSE=-1 {PLAYER}"), CLICK)
VLC_AGAIN = (_launch(["pkill", "vlc"]), _launch(PLAYER))
ENDS_GIMP = 'import time; import pyautogui; time.sleep(1);pyautogui.hotkey(["ctrl", "q"]);'
GIMP_ENDED = (_execute(["python3", "-c", ENDS_GIMP]), {"type": "sleep", "parameters": {"seconds": 0.5}})
SCHEMAS = "org.gnome.desktop"


def _chrome(instruction: str, func: str, getter: str, expected: Step) -> Step:
    return _task(instruction, CHROME, func, {"type": getter}, expected, *CHROME_AGAIN)


def _gimp(instruction: str, file: str, key: str, value: str) -> Step:
    result = {"type": "gimp_config_file", "file_name": file, "dest": file}
    rule = _rule(key=key, value=value)
    return _task(instruction, [_launch(["gimp"])], "check_config_status", result, rule, *GIMP_ENDED)


def _vlc(instruction: str, func: str, after: Sequence[Step] = VLC_AGAIN, **rules: Any) -> Step:
    return _task(instruction, VLC, func, {"type": "vlc_config", "dest": "vlcrc"}, _rule(**rules), *after)


def _setting(instruction: str, schema: str, key: str, before: str, after: str) -> Step:
    command = ["gsettings", "set", f"{SCHEMAS}.{schema}", key, before]
    result = {
        "type": "vm_command_line",
        "command": f"gsettings get {SCHEMAS}.{schema} {key}",
        "shell": True,
    }
    setup = [_execute(command), CLICK]
    return _task(instruction, setup, "exact_match", result, _rule(expected=f"{after}\n"))


_SCALED = (
    "gsettings get org.gnome.desktop.interface text-scaling-factor | "
    'awk \'{ print ($1 >= 1.2) ? "Large text enabled" : "No text scaling enabled" }\''
)
_RENAMED = "[ -d ~/Desktop/todo_list_Jan_2 ] && echo 'Directory exists.' || echo 'Directory does not exist.'"
_AUTO_SAVING = "/home/user/.config/libreoffice/4/user/registrymodifications.xcu"

PLAYED: Mapping[str, Step] = {
    f"{PREFIX}chrome/030eeff7-b492-4218-b312-701ec99ee0cc": _chrome(
        "Ask sites not to track me.", "exact_match", "enable_do_not_track", _rule(expected="true")
    ),
    f"{PREFIX}chrome/2ad9387a-65d8-4e33-ad5b-7580065a27ca": _chrome(
        "Put a folder named Favorites on the bookmarks bar.",
        "is_expected_bookmarks",
        "bookmarks",
        _rule(type="bookmark_bar_folders_names", names=["Favorites"]),
    ),
    f"{PREFIX}chrome/af630914-714e-4a24-a7bb-f9af687d3b91": _chrome(
        "Make the default font size the largest one.",
        "check_font_size",
        "chrome_font_size",
        _rule(type="range", min=16, max=99999),
    ),
    f"{PREFIX}gimp/7767eef2-56a3-4cea-8c9f-48c070c7d65b": _gimp(
        "Use GIMP's light theme.", "gimprc", "theme", '"Light"'
    ),
    f"{PREFIX}gimp/7b7617bd-57cc-468e-9c91-40c4ec2bcb3d": _gimp(
        "Keep at least 100 steps to undo.", "gimprc", "undo-levels", "100"
    ),
    f"{PREFIX}gimp/d52d6308-ec58-42b7-a2c9-de80e4837b2b": _gimp(
        "Hide the docks of GIMP.", "sessionrc", "hide-docks", "yes"
    ),
    f"{PREFIX}libreoffice_impress/2cd43775-7085-45d8-89fa-9e35c0a915cf": _task(
        "Save automatically every three minutes.",
        [_launch(["libreoffice", "--impress"])],
        "check_auto_saving_time",
        {"type": "vm_file", "path": _AUTO_SAVING, "dest": "registrymodifications.xcu"},
        _rule(minutes=3),
    ),
    f"{PREFIX}os/e0df059f-28a6-4169-924f-b9623e7184cc": _task(
        "Rename the folder todo_list_Jan_1 on the desktop to todo_list_Jan_2.",
        [_execute("echo {CLIENT_PASSWORD} | sudo -S mkdir ~/Desktop/todo_list_Jan_1"), CLICK],
        "exact_match",
        {"type": "vm_command_line", "command": _RENAMED, "shell": True},
        _rule(expected="Directory exists.\n"),
    ),
    f"{PREFIX}os/3ce045a0-877b-42aa-8d2c-b4a863336ab8": _task(
        "Make text larger.",
        [CLICK],
        "check_include_exclude",
        {"type": "vm_command_line", "command": _SCALED, "shell": True},
        _rule(include=["Large text enabled"], exclude=["No text scaling enabled"]),
    ),
    f"{PREFIX}os/a4d98375-215b-4a4d-aee9-3d4370fccc41": _setting(
        "Lock the screen when I am away.", "screensaver", "lock-enabled", "false", "true"
    ),
    f"{PREFIX}os/bedcedc4-4d72-425e-ad62-21960b11fe0d": _setting(
        "Do not dim the screen.", "session", "idle-delay", "300", "uint32 0"
    ),
    f"{PREFIX}os/f9be0997-4b7c-45c5-b05c-4612b44a6118": _setting(
        "Show no notifications.", "notifications", "show-banners", "true", "false"
    ),
    f"{PREFIX}vlc/215dfd39-f493-4bc3-a027-8a97d72c61bf": _vlc(
        "Hide the cone.", "check_qt_bgcone", expected_qt_bgcone=0
    ),
    f"{PREFIX}vlc/8ba5ae7a-5ae5-4eab-9fcc-5dd4fe3abf89": _vlc(
        "Keep recordings on the desktop.",
        "is_vlc_recordings_folder",
        (),
        recording_file_path="/home/user/Desktop",
    ),
    f"{PREFIX}vlc/9195653c-f4aa-453d-aa95-787f6ccfaae9": _vlc(
        "Allow a volume of 200 %.", "check_qt_max_volume", expected_qt_max_volume=200
    ),
    f"{PREFIX}vlc/a5bbbcd5-b398-4c91-83d4-55e1e31bbb81": _vlc(
        "Hide the toolbar.", "check_qt_minimal_view", expected_qt_minimal_view=1
    ),
    f"{PREFIX}vlc/d06f0d4d-2cd5-4ede-8de9-598629438c6e": _vlc(
        "Make the volume slider dark.", "check_qt_slider_colours", type="blackish"
    ),
    f"{PREFIX}vlc/f3977615-2b45-4ac5-8bba-80c17dbe2a37": _vlc(
        "Open each video in a window of its own.",
        "check_one_instance_when_started_from_file",
        expected_one_instance_when_started_from_file=0,
    ),
}
"""Feasible tasks, each with a script in `dart.environments.osworld.oracles`."""


def _impossible(instruction: str, *config: Step) -> Step:
    return {"instruction": instruction, "config": list(config), "evaluator": {"func": "infeasible"}}


IMPOSSIBLE: Mapping[str, Step] = {
    f"{PREFIX}chrome/3720f614-37fd-4d04-8a6b-76f54f8c222d": _impossible("An infeasible task of Chrome."),
    f"{PREFIX}gimp/5ca86c6f-f317-49d8-b6a7-b527541caae8": _impossible("An infeasible task of GIMP."),
    f"{PREFIX}multi_apps/6d72aad6-187a-4392-a4c4-ed87269c51cf": _impossible("One of several applications."),
    f"{PREFIX}os/b3d4a89c-53f2-4d6b-8b6a-541fb5d205fa": _impossible("An infeasible task of the system."),
    f"{PREFIX}os/fe41f596-a71b-4c2f-9b2f-9dcd40b568c3": _impossible("Another one of the system."),
    f"{PREFIX}vlc/5ac2891a-eacd-4954-b339-98abba077adb": _impossible(
        "An infeasible task of VLC.", _launch(f"VLC_VERBOSE=-1 {PLAYER}")
    ),
}
"""Tasks that cannot be done."""
