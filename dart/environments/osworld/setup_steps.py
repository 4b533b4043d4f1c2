"""Setup steps: what a task does to its machine before the first action, and before the evaluation.

Each step runs once, in order; a step that fails is a fault, unless it fails before the evaluation by what the
policy left (`dart.environments.osworld.guest_answers`). Files come from the cache folder of the task or from
the network.
"""

import asyncio
import contextlib
import sqlite3
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import structlog

from dart.environments.deadlines import LeftS
from dart.environments.faults import CallFailed, FileUnreachable, MachineNotReady, TaskUnsupported
from dart.environments.osworld.addresses_of_pages import as_query, same_page
from dart.environments.osworld.downloads import DownloadFailed, download
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.paths import inside
from dart.environments.osworld.tasks import OSWorldTask, SetupStep
from dart.store.blobs import write_whole
from dart.store.errors import StoreUnavailable

UNTIL_EVERY_S = 0.3

DOWNLOAD_MOST_BYTES = 512 * 2**20

NOT_INSTALLED = "No such file or directory"
"""Part of the guest's error when a program to start is not installed."""

WINDOW_MARGIN_S = 2.0
"""The guest stops waiting for a window this long before the step's deadline, so that its response arrives."""

LEAST_PATIENCE_S = 1.0
"""The guest waits for a window at least this long."""

HISTORY = "history_empty.sqlite"
HISTORY_URL = (
    "https://huggingface.co/datasets/xlangai/ubuntu_osworld_file_cache/resolve/main/"
    "chrome/44ee5668-ecd5-4366-a6ce-c1c9b8d4e938/history_empty.sqlite?download=true"
)
"""URL of an empty browser history, to which visits are added for tasks that need a history."""

SQLITE_BEGINS = b"SQLite format 3\0"
"""First bytes of each SQLite file."""

HISTORY_PATH = "~/.config/google-chrome/Default/History"
BEFORE_UNIX_S = 11_644_473_600
"""Seconds from the year 1601, where Chromium's time begins, to 1970, where unix time begins."""

LINK_FROM_NOWHERE = 0x30000000
"""Chromium's transition code for a visited link without redirections."""


class ProgramMissing(TaskUnsupported):
    """A program that a task starts is not installed on its machine."""

    def __init__(self, task_id: str, program: str) -> None:
        super().__init__(task_id, f"the program {program!r} is not installed on its machine")
        self.program = program


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetting:
    """What an episode has before it has a machine: the folders and the settings."""

    task_id: str
    cache: Path
    """Folder with the files that this task downloads, shared by all its episodes."""
    scratch: Path
    """Folder for files that the steps and evaluators of this episode write."""
    password: str
    width: int
    height: int

    def cached(self, name: str) -> Path:
        """Return the path of a file in the cache folder. Raises TaskUnsupported for a path outside of it."""
        return self._inside(self.cache, name)

    def made(self, name: str) -> Path:
        """Return the path of a file in the episode's folder. Raises TaskUnsupported for a path outside of
        it."""
        return self._inside(self.scratch, name)

    def _inside(self, folder: Path, name: str) -> Path:
        try:
            return inside(folder, name)
        except ValueError as error:
            raise TaskUnsupported(self.task_id, f"its file {error}") from error

    def filled(self, value: Any) -> Any:
        """Return a JSON value in which all placeholders such as ``{CLIENT_PASSWORD}`` are replaced."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(TaskSetting):
    """What the steps and the evaluation of one episode work with: the guest, the folders and the settings."""

    guest: Guest
    owner: str
    """The number that the machine's owner has in this episode (`dart.environments.osworld.machine_owner`)."""

    @classmethod
    def of(cls, setting: TaskSetting, guest: Guest) -> "Setting":
        """Return the setting of an episode on this machine, with an owner's number of its own."""
        values = {one.name: getattr(setting, one.name) for one in fields(setting)}
        return cls(**values, guest=guest, owner=uuid.uuid4().hex)


StepOf = Callable[[Setting, Mapping[str, Any], LeftS], Awaitable[None]]
STEPS: dict[str, StepOf] = {}


def _step(*types: str) -> Callable[[StepOf], StepOf]:
    def register(step: StepOf) -> StepOf:
        STEPS.update(dict.fromkeys(types, step))
        return step

    return register


def refuse_unsupported(steps: Sequence[SetupStep], task_id: str) -> None:
    """Raise TaskUnsupported when any of the steps is not supported."""
    for step in steps:
        if step.type not in STEPS:
            raise TaskUnsupported(
                task_id,
                f"its setup or check has the step type {step.type!r}, which is not supported; "
                "remove the task from tasks.train",
            )


async def take_steps(steps: Sequence[SetupStep], setting: Setting, left_s: LeftS) -> None:
    """Run the steps in order.

    Raises TaskUnsupported before any step runs when one is not supported, and later for a step with wrong
    parameters; also FileUnreachable and faults of the machine."""
    refuse_unsupported(steps, setting.task_id)
    for step in steps:
        with needs_parameters(setting.task_id, f"step {step.type!r}", step.parameters):
            await STEPS[step.type](setting, setting.filled(step.parameters), left_s)


@contextlib.contextmanager
def needs_parameters(task_id: str, what: str, parameters: Mapping[str, Any]) -> Iterator[None]:
    """Raise TaskUnsupported when the block fails because of the parameters of ``what``."""
    try:
        yield
    except KeyError as missing:
        raise TaskUnsupported(task_id, f"its {what} has no parameter {missing.args[0]!r}") from missing
    except (TypeError, ValueError, AttributeError, OverflowError) as error:  # a fault is none of these
        why = f"its {what} has wrong parameters ({error}): {parameters!r:.300}"
        raise TaskUnsupported(task_id, why) from error


async def fetch_files(task: OSWorldTask, setting: TaskSetting, left_s: LeftS) -> None:
    """Download the files of a task that its cache folder lacks: those of its steps, and those that its
    evaluation compares results with.

    The caller has no machine yet, so a file that cannot be downloaded costs none. Raises FileUnreachable or
    TaskUnsupported.
    """
    for step in task.steps():
        with needs_parameters(setting.task_id, f"step {step.type!r}", step.parameters):
            for url, name, begins in _files_of(step.type, setting.filled(step.parameters)):
                await fetched(setting, url, name, left_s, begins=begins)
    for url, name in task.cloud_files():
        with needs_parameters(setting.task_id, "getter 'cloud_file'", {"path": url}):
            await fetched(setting, url, name, left_s)


def _files_of(type_: str, given: Mapping[str, Any]) -> Iterator[tuple[str, str, bytes]]:
    """Yield URL, name in the cache and first bytes of each file that a step of this type fetches."""
    match type_:
        case "download":
            for file in given["files"]:
                yield file["url"], PurePosixPath(file["path"]).name, b""
        case "update_browse_history":
            yield HISTORY_URL, HISTORY, SQLITE_BEGINS


@_step("download")
async def _download(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    for file in given["files"]:
        content = await fetched(setting, file["url"], PurePosixPath(file["path"]).name, left_s)
        await setting.guest.upload(file["path"], content, deadline_s=left_s())


@_step("upload_file")
async def _upload(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    for file in given["files"]:
        local = setting.cached(file["local_path"])
        if not local.is_file():
            raise TaskUnsupported(setting.task_id, f"its file {local} does not exist; put the file there")
        await setting.guest.upload(file["path"], local.read_bytes(), deadline_s=left_s())


@_step("launch")
async def _launch(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    command, shell = given["command"], bool(given.get("shell", False))
    with needs_program(setting, command):
        await setting.guest.setup("launch", {"command": command, "shell": shell}, deadline_s=left_s())


@contextlib.contextmanager
def needs_program(setting: Setting, command: str | Sequence[str]) -> Iterator[None]:
    """Raise ProgramMissing instead of CallFailed when the block fails because the guest lacks a program.

    An attempt with CallFailed would be repeated, and would fail in the same way each time."""
    try:
        yield
    except CallFailed as error:
        if NOT_INSTALLED not in str(error):
            raise
        program = (command.split() if isinstance(command, str) else list(command))[:1]
        raise ProgramMissing(setting.task_id, " ".join(program)) from error


@_step("open")
async def _open(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    """Open a file and wait until a window has the name of the file in its title.

    The guest waits until about the deadline of the step; by default it would wait half an hour."""
    patience_s = max(LEAST_PATIENCE_S, left_s() - WINDOW_MARGIN_S)
    body = {"path": given["path"], "timeout_seconds": patience_s}
    await setting.guest.setup("open_file", body, deadline_s=left_s())


@_step("execute", "command")
async def _execute(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    """Run a command once, or again and again until its result matches ``until``.

    The parameters ``stdout`` and ``stderr`` name files of the episode's folder in which the output is stored,
    for the evaluation."""
    until = given.get("until") or {}
    while True:
        with needs_program(setting, given["command"]):
            shell = bool(given.get("shell", False))
            ended = await setting.guest.execute(given["command"], shell=shell, deadline_s=left_s())
        for key, text in (("stdout", ended.output), ("stderr", ended.error)):
            if given.get(key):
                path = setting.made(given[key])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        is_reached = (
            ended.returncode == until.get("returncode"),
            "stdout" in until and until["stdout"] in ended.output,
            "stderr" in until and until["stderr"] in ended.error,
        )
        if not until or any(is_reached):
            return
        if left_s() <= UNTIL_EVERY_S:
            why = f"the command {given['command']!r} did not end with {until!r} before its deadline"
            raise CallFailed(setting.guest.name, "execute", why)
        await asyncio.sleep(UNTIL_EVERY_S)


@_step("sleep")
async def _sleep(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    await asyncio.sleep(min(float(given["seconds"]), left_s()))


def _route_step(route: str, body_of: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Register a step that one route of the guest's server carries out."""

    @_step(route)
    async def _(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
        await setting.guest.setup(route, body_of(given), deadline_s=left_s())


def _window(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "window_name": given["window_name"],
        "strict": bool(given.get("strict", False)),
        "by_class": bool(given.get("by_class", False)),
    }


_route_step("execute_with_verification", dict)
_route_step("activate_window", _window)
_route_step("close_window", _window)
_route_step("change_wallpaper", lambda given: {"path": given["path"]})


@_step("chrome_open_tabs")
async def _open_tabs(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    """Open the tabs of the task. Once the first of them is open, close the first tab that was open before."""
    before = await browser_tabs(setting, left_s)
    for number, url in enumerate(given["urls_to_open"]):
        await setting.guest.chromium("PUT", f"/json/new?{as_query(url)}", deadline_s=left_s())
        if number == 0 and before:
            await _close_tab(setting, before[0], left_s)


@_step("chrome_close_tabs")
async def _close_tabs(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    for tab in await browser_tabs(setting, left_s):
        if any(same_page(tab["url"], url) for url in given["urls_to_close"]):
            await _close_tab(setting, tab, left_s)


async def _close_tab(setting: Setting, tab: Mapping[str, Any], left_s: LeftS) -> None:
    id_ = quote(tab["id"], safe="", errors="replace")  # the guest says it, so it may be any text
    await setting.guest.chromium("GET", f"/json/close/{id_}", deadline_s=left_s())


async def browser_tabs(setting: Setting, left_s: LeftS) -> list[Mapping[str, Any]]:
    """Return the pages that are open in the guest's browser, once its debugging port answers.

    Raises MachineNotReady when the port does not answer before the deadline.
    """
    deadline_s = left_s()
    while True:
        found = await setting.guest.chromium("GET", "/json/list", deadline_s=left_s())
        if found is not None:
            return pages_of(found)
        if left_s() <= UNTIL_EVERY_S:
            what = "its browser's debugging port does not answer"
            raise MachineNotReady(setting.guest.name, what, deadline_s)
        await asyncio.sleep(UNTIL_EVERY_S)


def pages_of(tabs: Any) -> list[Mapping[str, Any]]:
    """Return the pages with an id and a URL from the list of targets of a browser's debugging port."""
    return [
        tab
        for tab in (tabs if isinstance(tabs, list) else ())
        if isinstance(tab, Mapping)
        and tab.get("type", "page") == "page"
        and isinstance(tab.get("url"), str)
        and isinstance(tab.get("id"), str)
    ]


@_step("update_browse_history")
async def _browsed(setting: Setting, given: Mapping[str, Any], left_s: LeftS) -> None:
    """Replace the browser's history by the visits of the task."""
    empty = await fetched(setting, HISTORY_URL, HISTORY, left_s, begins=SQLITE_BEGINS)
    try:
        filled = with_visits(empty, given["history"], time.time())
    except sqlite3.Error as error:
        why = (
            f"no browser history can be made of its visits ({error}); correct them, or, if the file without "
            f"visits is damaged, delete {HISTORY} and <uuid>_{HISTORY} in {setting.cache}"
        )
        raise TaskUnsupported(setting.task_id, why) from error
    await setting.guest.upload(HISTORY_PATH, filled, deadline_s=left_s())


def with_visits(history: bytes, visits: Sequence[Mapping[str, Any]], now_s: float) -> bytes:
    """Return a Chromium history (an SQLite file) with these visits added.

    visits   maps with ``url``, ``title`` and ``visit_time_from_now_in_seconds``, the age of the visit
    now_s    the unix time from which the ages count

    Raises sqlite3.Error when the history is damaged or lacks tables, and for a visit without texts.
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        # Bytes 18 and 19 say whether there is a write-ahead log, which a database in memory cannot have.
        connection.deserialize(history[:18] + b"\1\1" + history[20:])
        with connection:
            for visit in visits:
                ago_s = float(visit["visit_time_from_now_in_seconds"])
                moment = int((now_s + BEFORE_UNIX_S - ago_s) * 1e6)
                page = connection.execute(
                    "INSERT INTO urls (url, title, visit_count, typed_count, last_visit_time, hidden)"
                    " VALUES (?, ?, 1, 0, ?, 0)",
                    (visit["url"], visit["title"], moment),
                ).lastrowid
                connection.execute(
                    "INSERT INTO visits (url, visit_time, from_visit, transition, segment_id, visit_duration)"
                    " VALUES (?, ?, 0, ?, 0, 0)",
                    (page, moment, LINK_FROM_NOWHERE),
                )
        return connection.serialize()


async def fetched(setting: TaskSetting, url: str, name: str, left_s: LeftS, *, begins: bytes = b"") -> bytes:
    """Return a file of the task from its cache folder, or download it into the folder.

    In the folder the file is called ``name``, or ``<uuid of the URL>_<name>``: OSWorld's client and this
    function give this name to a download. When the file is not there, raises FileUnreachable if a download
    may succeed later, and TaskUnsupported if it cannot.

    begins   the first bytes of a whole file. A file with others is not used and not kept: a network that
             asks for a login serves a page in place of each file
    """
    known = setting.cached(name)
    kept = setting.cached(f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{name}")
    for path in (kept, known):
        if path.is_file() and (content := path.read_bytes()).startswith(begins):
            return content
    try:
        content = await download(url, most_bytes=DOWNLOAD_MOST_BYTES, deadline_s=left_s())
    except DownloadFailed as error:
        if error.is_transient:
            raise FileUnreachable(url, str(error), known) from error
        why = f"{url} cannot be downloaded ({error}), and {known} does not exist; put the file there"
        raise TaskUnsupported(setting.task_id, why) from error
    if not content.startswith(begins):
        why = f"what its server sent begins with {content[: len(begins)]!r} and not with {begins!r}"
        raise FileUnreachable(url, why, known)
    _keep(kept, content)
    return content


def _keep(path: Path, content: bytes) -> None:
    """Write a file into the cache: other environments that play the task find the whole file or none.

    A disk that refuses costs the episode nothing: the next one downloads the file again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except (OSError, StoreUnavailable) as error:
        structlog.get_logger().warning("download_not_kept", path=str(path), reason=str(error))
