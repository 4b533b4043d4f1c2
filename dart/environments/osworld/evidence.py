"""What an OSWorld evaluation looks at, by type: results in the guest, and the values they are held against.

Each is looked at once; what cannot be had is a fault. A file that is not in the guest is none: it is
`MISSING`. Files of a guest are read in a process of its own (`parsed`).
"""

import datetime
import zoneinfo
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from dart.environments.deadlines import LeftS
from dart.environments.faults import CallFailed, EvaluatorFailed, TaskUnsupported
from dart.environments.limited_child import ChildFailed, in_child
from dart.environments.osworld.reading import Unreadable
from dart.environments.osworld.relative_days import resolved
from dart.environments.osworld.setup_steps import Setting, fetched

MISSING = object()
"""In place of a file that is not there."""

NO_TEXT = "codec can't decode"
"""With these words the guest breaks when a command prints bytes that are no UTF-8."""

Look = Callable[[Setting, Mapping[str, Any], LeftS], Awaitable[Any]]
LOOKS: dict[str, Look] = {}


def looks(*types: str) -> Callable[[Look], Look]:
    """What a function looks at."""

    def register(look: Look) -> Look:
        LOOKS.update(dict.fromkeys(types, look))
        return look

    return register


async def look_at(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """The value ``config`` describes.

    Raises TaskUnsupported, EvaluatorFailed, Unreadable for a damaged file, or a fault of the machine.
    """
    type_ = str(config.get("type"))
    if type_ not in LOOKS:
        raise TaskUnsupported(setting.task_id, f"its evaluation looks at {type_!r}, which is not known here")
    try:
        return await LOOKS[type_](setting, setting.filled(config), left_s)
    except KeyError as missing:
        why = f"its evaluation looks at {type_!r} and has no {missing.args[0]!r}"
        raise TaskUnsupported(setting.task_id, why) from missing
    except NotImplementedError as error:
        raise TaskUnsupported(setting.task_id, f"its evaluation looks at {type_!r}: {error}") from error
    except Unreadable:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        why = f"what the guest says of {type_!r} makes no sense: {type(error).__name__}: {error}"
        raise EvaluatorFailed(setting.task_id, why) from error


@looks("rule")
async def _rule(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return config["rules"]


@looks("rule_relativeTime")
async def _relative(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """Rules that speak of days from now on, in the time zone they name, or UTC."""
    rules = config["rules"]
    zone = zoneinfo.ZoneInfo(rules.get("timezone", "UTC"))
    return resolved(rules, datetime.datetime.now(zone).date())


@looks("vm_command_line")
async def _output(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return (await _ran(setting, config, left_s))[0]


@looks("vm_command_error")
async def _error(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    return (await _ran(setting, config, left_s))[1]


async def _ran(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> tuple[Any, Any]:
    """Output and errors of a command; both are `MISSING` when they are no text, which the guest refuses."""
    shell = bool(config.get("shell", False))
    try:
        ended = await setting.guest.execute(config["command"], shell=shell, deadline_s=left_s())
    except CallFailed as error:
        if NO_TEXT not in str(error):
            raise
        return MISSING, MISSING
    return ended.output, ended.error


@looks("vm_terminal_output")
async def _terminal(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> str:
    return await setting.guest.terminal(deadline_s=left_s())


@looks("accessibility_tree")
async def _tree(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> str:
    return await setting.guest.accessibility_tree(deadline_s=left_s())


@looks("list_directory")
async def _directory(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    found = await setting.guest.directory(config["path"], deadline_s=left_s())
    return MISSING if found is None else found


@looks("vm_screen_size")
async def _screen(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Mapping[str, int]:
    width, height = await setting.guest.screen_size(deadline_s=left_s())
    return {"width": width, "height": height}


@looks("vm_window_size")
async def _window(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """None when there is no such window, which is for the judge to judge."""
    return await setting.guest.window_size(config["app_class_name"], deadline_s=left_s())


@looks("vm_wallpaper")
async def _wallpaper(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    content = await setting.guest.wallpaper(deadline_s=left_s())
    return MISSING if content is None else kept(setting, config.get("dest", "wallpaper"), content)


@looks("vm_file")
async def _file(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """One path, or with ``multi`` several; ``gives`` says which of them the function gets, the others lie
    beside them."""
    found: list[Any] = []
    for path, dest in zip(_names(config, "path"), _names(config, "dest"), strict=True):
        content = await setting.guest.file(path, deadline_s=left_s())
        found.append(MISSING if content is None else kept(setting, dest, content))
    return _given(config, found)


def _given(config: Mapping[str, Any], found: list[Any]) -> Any:
    """Those the function gets: one, or a list."""
    gives = [found[index] for index in sorted(set(config.get("gives", [0]))) if index < len(found)]
    return gives[0] if len(gives) == 1 else gives


@looks("cache_file")
async def _cached(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Path:
    """A file that a step of this episode has made, or one that lies in the cache folder."""
    name = config["path"]
    for path in (setting.made(name), setting.cached(name)):
        if path.is_file():
            return path
    raise EvaluatorFailed(setting.task_id, f"{path}, which a step should have made, is not there")


@looks("cloud_file")
async def _fetched(setting: Setting, config: Mapping[str, Any], left_s: LeftS) -> Any:
    """As `vm_file`, from the network; in a folder of their own, whatever they are called."""
    found = []
    for url, dest in zip(_names(config, "path"), _names(config, "dest"), strict=True):
        found.append(kept(setting, dest, await fetched(setting, url, dest, left_s), "expected"))
    return _given(config, found)


def _names(config: Mapping[str, Any], key: str) -> list[str]:
    """One name or several."""
    given = config[key]
    return list(given) if config.get("multi") and not isinstance(given, str) else [given]


def kept(setting: Setting, name: str, content: bytes, folder: str = "results") -> Path:
    """A copy in this episode's folder, for functions that read a file."""
    path = setting.made(f"{folder}/{PurePosixPath(name).name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


async def parsed(setting: Setting, function: Callable[..., Any], *arguments: Any, left_s: LeftS) -> Any:
    """What a function of a module reads out of a guest's file, in a process of its own.

    Raises Unreadable, NotImplementedError or EvaluatorFailed.
    """
    try:
        return await in_child(
            f"{function.__module__}:{function.__name__}",
            arguments,
            {},
            deadline_s=left_s(),
            passes_on=(Unreadable, NotImplementedError),
        )
    except ChildFailed as error:
        raise EvaluatorFailed(setting.task_id, f"{function.__name__} {error}") from error
