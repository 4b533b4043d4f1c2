"""What a task does to its machine before the first action, and between the last one and the evaluation.

By type of step; each is done once, in order, and a step that fails is a fault. Files come from the cache
folder, by task and name, or from the network where there is one.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import httpx2

from dart.environments.deadlines import LeftS
from dart.environments.faults import CallFailed, TaskUnsupported
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.task_files import Step

UNTIL_EVERY_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What steps and evaluators of one task know of their surroundings."""

    task_id: str
    guest: Guest
    cache: Path
    """Folder of files of this task."""
    password: str
    width: int
    height: int

    def filled(self, value: Any) -> Any:
        """A value with its placeholders replaced, at any depth."""
        if isinstance(value, str):
            for name, text in self._placeholders().items():
                value = value.replace(name, text)
            return value
        if isinstance(value, list):
            return [self.filled(one) for one in value]
        if isinstance(value, Mapping):
            return {key: self.filled(one) for key, one in value.items()}
        return value

    def _placeholders(self) -> Mapping[str, str]:
        return {
            "{CLIENT_PASSWORD}": self.password,
            "{SCREEN_WIDTH_HALF}": str(self.width // 2),
            "{SCREEN_HEIGHT_HALF}": str(self.height // 2),
            "{SCREEN_WIDTH}": str(self.width),
            "{SCREEN_HEIGHT}": str(self.height),
        }


StepOf = Callable[[Setting, Mapping[str, Any], LeftS], Awaitable[None]]
STEPS: dict[str, StepOf] = {}


def _step(*types: str) -> Callable[[StepOf], StepOf]:
    def register(step: StepOf) -> StepOf:
        STEPS.update(dict.fromkeys(types, step))
        return step

    return register


async def take_steps(steps: tuple[Step, ...], setting: Setting, left_s: LeftS) -> None:
    """Take them in order. Raises TaskUnsupported before the first one when one of them is not known."""
    for step in steps:
        if step.type not in STEPS:
            raise TaskUnsupported(setting.task_id, f"its step {step.type!r} is not known here")
    for step in steps:
        try:
            await STEPS[step.type](setting, setting.filled(step.parameters), left_s)
        except KeyError as missing:
            why = f"its step {step.type!r} has no {missing.args[0]!r}"
            raise TaskUnsupported(setting.task_id, why) from missing


@_step("download")
async def _download(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    for file in given["files"]:
        content = await fetched(setting, file["url"], PurePosixPath(file["path"]).name, left_s)
        await setting.guest.upload(file["path"], content, deadline_s=left_s())


@_step("upload_file")
async def _upload(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    for file in given["files"]:
        local = setting.cache / file["local_path"]
        if not local.is_file():
            raise TaskUnsupported(setting.task_id, f"its file {local} is not there")
        await setting.guest.upload(file["path"], local.read_bytes(), deadline_s=left_s())


@_step("launch")
async def _launch(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    command, shell = given["command"], bool(given.get("shell", False))
    await setting.guest.setup("launch", {"command": command, "shell": shell}, deadline_s=left_s())


@_step("open")
async def _open(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    await setting.guest.setup("open_file", {"path": given["path"]}, deadline_s=left_s())


@_step("execute", "command")
async def _execute(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    """Once, or until it says what it is to say; its output may be kept for the evaluation."""
    until = given.get("until") or {}
    while True:
        ended = await setting.guest.execute(
            given["command"], shell=bool(given.get("shell", False)), deadline_s=left_s()
        )
        for key, text in (("stdout", ended.output), ("stderr", ended.error)):
            if given.get(key):
                setting.cache.mkdir(parents=True, exist_ok=True)
                (setting.cache / given[key]).write_text(text)
        is_done = (
            ("returncode" in until and ended.returncode == until["returncode"])
            or ("stdout" in until and until["stdout"] in ended.output)
            or ("stderr" in until and until["stderr"] in ended.error)
        )
        if not until or is_done:
            return
        if left_s() <= UNTIL_EVERY_S:
            raise CallFailed(setting.guest.name, "execute", f"{given['command']!r} never came to {until!r}")
        await asyncio.sleep(UNTIL_EVERY_S)


@_step("execute_with_verification")
async def _verified(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    await setting.guest.setup("execute_with_verification", given, deadline_s=left_s())


@_step("sleep")
async def _sleep(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    await asyncio.sleep(min(float(given["seconds"]), left_s()))


@_step("activate_window")
async def _activate(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    await setting.guest.setup("activate_window", _window(given), deadline_s=left_s())


@_step("close_window")
async def _close(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    await setting.guest.setup("close_window", _window(given), deadline_s=left_s())


def _window(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "window_name": given["window_name"],
        "strict": bool(given.get("strict", False)),
        "by_class": bool(given.get("by_class", False)),
    }


@_step("change_wallpaper")
async def _wallpaper(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    await setting.guest.setup("change_wallpaper", {"path": given["path"]}, deadline_s=left_s())


@_step("chrome_open_tabs")
async def _open_tabs(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    for url in given["urls_to_open"]:
        await setting.guest.chromium("PUT", f"/json/new?{url}", deadline_s=left_s())


@_step("chrome_close_tabs")
async def _close_tabs(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    for tab in await setting.guest.chromium("GET", "/json/list", deadline_s=left_s()):
        if any(tab["url"].rstrip("/") == url.rstrip("/") for url in given["urls_to_close"]):
            await setting.guest.chromium("GET", f"/json/close/{tab['id']}", deadline_s=left_s())


async def fetched(setting: Setting, url: str, name: str, left_s: LeftS) -> bytes:
    """A file of the task, from its cache folder or from the network, and then kept.

    Raises TaskUnsupported when it is in neither.
    """
    known = setting.cache / name
    kept = setting.cache / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}_{name}"
    for path in (kept, known):
        if path.is_file():
            return path.read_bytes()
    try:
        async with httpx2.AsyncClient(follow_redirects=True, timeout=left_s()) as client:
            response = await client.get(url)
            response.raise_for_status()
    except httpx2.HTTPError as error:
        why = f"{url} could not be fetched ({type(error).__name__}: {error}), and {known} is not there"
        raise TaskUnsupported(setting.task_id, why) from error
    setting.cache.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(response.content)
    return response.content
