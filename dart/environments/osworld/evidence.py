"""What an OSWorld evaluation looks at, by type: results in the guest, and the values they are held against.

Each is looked at once; what cannot be had is a fault. A file that is not in the guest is one as well, unless
the configuration says that it means failure (`missing_result = "zero"`): then it is `MISSING`.
"""

import datetime
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from dart.environments.deadlines import LeftS
from dart.environments.faults import EvaluatorFailed, TaskUnsupported
from dart.environments.osworld.setup_steps import Setting, fetched

MISSING = object()
"""In place of a file that is not there."""

Look = Callable[[Setting, Mapping[str, Any], LeftS], Awaitable[Any]]
LOOKS: dict[str, Look] = {}


def _looks(*types: str) -> Callable[[Look], Look]:
    def register(look: Look) -> Look:
        LOOKS.update(dict.fromkeys(types, look))
        return look

    return register


async def look_at(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """The value ``config`` describes. Raises TaskUnsupported, EvaluatorFailed or a fault of the machine."""
    type_ = str(config.get("type"))
    if type_ not in LOOKS:
        raise TaskUnsupported(setting.task_id, f"its evaluation looks at {type_!r}, which is not known here")
    try:
        return await LOOKS[type_](setting, setting.filled(config), left_s)
    except KeyError as missing:
        why = f"its evaluation looks at {type_!r} and has no {missing.args[0]!r}"
        raise TaskUnsupported(setting.task_id, why) from missing


@_looks("rule")
async def _rule(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return config["rules"]


@_looks("vm_command_line")
async def _output(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> str:
    return (await _ran(setting, config, left_s))[0]


@_looks("vm_command_error")
async def _error(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> str:
    return (await _ran(setting, config, left_s))[1]


async def _ran(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> tuple[str, str]:
    shell = bool(config.get("shell", False))
    ended = await setting.guest.execute(config["command"], shell=shell, deadline_s=left_s())
    return ended.output, ended.error


@_looks("vm_terminal_output")
async def _terminal(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> str:
    return await setting.guest.terminal(deadline_s=left_s())


@_looks("accessibility_tree")
async def _tree(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> str:
    return await setting.guest.accessibility_tree(deadline_s=left_s())


@_looks("list_directory")
async def _directory(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Mapping[str, Any]:
    return await setting.guest.directory(config["path"], deadline_s=left_s())


@_looks("vm_screen_size")
async def _screen(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Mapping[str, int]:
    width, height = await setting.guest.screen_size(deadline_s=left_s())
    return {"width": width, "height": height}


@_looks("vm_window_size")
async def _window(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Mapping[str, int]:
    return await setting.guest.window_size(config["app_class_name"], deadline_s=left_s())


@_looks("vm_wallpaper")
async def _wallpaper(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Path:
    content = await setting.guest.wallpaper(deadline_s=left_s())
    return _kept(setting, config.get("dest", "wallpaper"), content)


@_looks("vm_file")
async def _file(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """One path, or with ``multi`` several; ``gives`` says which of them the function gets."""
    paths, dests = _paths(config), _names(config, "dest")
    gives = set(config.get("gives", [0]))
    found: list[Any] = []
    for index, (path, dest) in enumerate(zip(paths, dests, strict=True)):
        if index in gives:
            content = await setting.guest.file(path, deadline_s=left_s())
            found.append(MISSING if content is None else _kept(setting, dest, content))
    return found[0] if len(found) == 1 else found


def _paths(config: Mapping[str, Any]) -> list[str]:
    paths = _names(config, "path")
    if not config.get("time_suffix"):
        return paths
    today = datetime.datetime.now().strftime(config.get("time_format", "%Y_%m_%d"))
    return [
        f"{path[: path.index('.')]}{today}{path[path.index('.') :]}" if "." in path else path
        for path in paths
    ]


@_looks("cache_file")
async def _cached(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Path:
    return _made(setting, config["path"])


def _made(setting: Setting, name: str) -> Path:
    """A file that a step of the task has put into the cache folder."""
    path = setting.cache / name
    if not path.is_file():
        raise EvaluatorFailed(setting.task_id, f"{path}, which a step should have made, is not there")
    return path


@_looks("cloud_file")
async def _fetched(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    gives = set(config.get("gives", [0]))
    found = []
    for index, (url, dest) in enumerate(zip(_names(config, "path"), _names(config, "dest"), strict=True)):
        if index in gives:
            found.append(_kept(setting, dest, await fetched(setting, url, dest, left_s)))
    return found[0] if len(found) == 1 else found


def _names(config: Mapping[str, Any], key: str) -> list[str]:
    """One name or several."""
    given = config[key]
    return list(given) if config.get("multi") and not isinstance(given, str) else [given]


def _kept(setting: Setting, name: str, content: bytes) -> Path:
    """A copy in the cache folder, for functions that read a file."""
    path = setting.cache / "results" / PurePosixPath(name).name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
