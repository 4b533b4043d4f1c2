"""Answers the questions of the process that runs OSWorld's evaluators
(`dart.environments.osworld.scoring_child`).

That process is the *child*. The answers come from the guest, or from the cache folder of the task. Each call
goes to the guest once, with what is left of the evaluation's deadline. A fault of the machine is raised here,
in the environment's own process, where no ``except`` of an evaluator can catch it. What the guest does not
have is noted in ``lacks``: if a metric then raises an error, the policy has failed, and not the evaluator.
The same holds for the steps of the task before the evaluation, which find what the policy left.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from dart.core.utf8 import is_utf8
from dart.environments.deadlines import LeftS, counting_down
from dart.environments.faults import DiskRefused, EnvironmentFault, EvaluatorFailed
from dart.environments.osworld.guest import (
    NOT_PERMITTED,
    AnswerTooLarge,
    Command,
    GuestResponse,
    StatusNotOk,
)
from dart.environments.osworld.readiness import refuse_unusable
from dart.environments.osworld.setup_steps import (
    NOT_INSTALLED,
    ProgramMissing,
    Setting,
    fetched,
    needs_program,
    take_steps,
)
from dart.environments.osworld.tasks import OSWorldTask, SetupStep

T = TypeVar("T")

LACKS_OF_COMMANDS = {
    "codec can't decode": "output that is text",
    "timed out after": "an end in time",
    NOT_INSTALLED: "the program",
    NOT_PERMITTED: "the permission to execute",
}
"""What the guest lacks, by a part of its error: a command prints bytes that are not UTF-8, runs over 120 s,
does not exist or may not be executed. The policy may have caused each of them."""

NO_WINDOW = "Failed to find window"
"""Part of the guest's error when a file that it opened has no window in time."""

LOOK = "look"
"""Name of the question whether the machine still works."""

BROWSER_ANSWERS_S = 10.0
"""Time in seconds in which a browser that works answers with its version, also while a page is busy."""

CALL = "call"
"""Name of the question for the kept value of a getter that reads pages of the guest's browser
(`dart.environments.osworld.page_calls`)."""

FILE = "file of the cache"
"""Recorded in place of a question, for a file that was in the evaluators' cache folder from the beginning."""

LACK = "lack of a step"
"""Recorded in place of a question, for a step before the evaluation that failed by what the guest lacked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One question of an evaluation and its answer."""

    question: str
    arguments: Mapping[str, Any]
    answer: Any


def _refuse_surrogates(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for a text that no request can carry to a guest, such as a path."""
    for name, value in arguments.items():
        texts = value if isinstance(value, list) else [value]
        if not all(is_utf8(text) for text in texts if isinstance(text, str)):
            raise ValueError(f"expected {name} to be text that UTF-8 can encode, got {value!r}")


def _lack_of_command(response: GuestResponse) -> str:
    """Return what the guest lacked for a command that failed with this response; empty for another failure.

    The whole text is searched: the part may follow a long command."""
    lacks = (lack for part, lack in LACKS_OF_COMMANDS.items() if part in response.text)
    return next(lacks, "") if response.status == 500 else ""


def _lack_of_step(step: SetupStep, error: EnvironmentFault) -> str:
    """Return what the guest lacked for a step before the evaluation; empty if the policy did not cause the
    error."""
    match step.type, error:
        case "execute" | "command", ProgramMissing(program=program) if "/" in program:
            return "the program"  # one without a path belongs to the machine
        case "execute" | "command", AnswerTooLarge():
            return "an output that is not too large"
        case "execute" | "command", StatusNotOk(response=response):
            return _lack_of_command(response)
        case "open", StatusNotOk(response=GuestResponse(status=404)):
            return "the file"
        case "open", StatusNotOk(response=response) if NO_WINDOW in response.text:
            return "a window of the file"
    return ""


class Answers(Protocol):
    """Answers the questions of one evaluation."""

    lacks: list[str]
    """Descriptions of what the guest lacked for the steps before the evaluation, and of what the child asked
    for and the guest does not have."""

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the files that the evaluators' cache folder has at the beginning."""
        ...

    async def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        """Return the answer to a question of the child.

        Raises a fault of the machine, TaskUnsupported, or EvaluatorFailed for an invalid question.
        """
        ...


class GuestAnswers:
    """Answers from the guest in its present state."""

    def __init__(self, task: OSWorldTask, setting: Setting, left_s: LeftS, *, browses: bool = False) -> None:
        """browses   whether the evaluation reads pages of the guest's browser"""
        self._browses = browses
        self.lacks: list[str] = []
        self._setting = setting
        self._guest = setting.guest
        self._left_s = left_s
        self._names_by_url = dict(task.cloud_files())
        self._cached = [look["path"] for look in task.looks() if look.get("type") == "cache_file"]

    async def take_steps(self, steps: Sequence[SetupStep]) -> None:
        """Run the steps before the evaluation in order.

        A failure that the policy may have caused is noted in ``lacks``, and the next step runs. Raises
        DiskRefused when a file of a step cannot be read or written: the caller must not repeat the steps,
        because they would meet what they have changed."""
        for step in steps:
            try:
                await take_steps((step,), self._setting, self._time_of(step))
            except (StatusNotOk, AnswerTooLarge, ProgramMissing) as error:
                lack = _lack_of_step(step, error)
                if not lack:
                    raise
                self.lacks.append(f"{lack}, for a step {step.type!r}")
            except OSError as error:
                raise DiskRefused(f"a file of a step {step.type!r}", error) from error

    def _time_of(self, step: SetupStep) -> LeftS:
        """The time that a step before the evaluation may take: all that is left, but half of it for a step
        that waits for a window, which may never come."""
        return counting_down(self._left_s() / 2) if step.type == "open" else self._left_s

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of files from this episode's steps or from the task's cache folder.

        A file that is in neither place is left out, and the evaluator then raises an error."""
        for name in self._cached:
            for path in (self._setting.made(name), self._setting.cached(name)):
                if path.is_file():
                    yield name, path.read_bytes()
                    break

    async def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        try:
            reply: Callable[..., Awaitable[Any]] = getattr(self, f"_on_{question}")
            types = {name: kind for name, kind in reply.__annotations__.items() if name != "return"}
            if arguments.keys() != types.keys():
                raise TypeError(f"its arguments are {sorted(arguments)}")
            checked = {name: msgspec.convert(arguments[name], kind) for name, kind in types.items()}
            _refuse_surrogates(checked)
        except (AttributeError, TypeError, ValueError) as error:
            why = f"its evaluator sent an unknown question or wrong arguments ({question!r}): {error}"
            raise EvaluatorFailed(self._setting.task_id, why) from error
        try:
            return await reply(**checked)
        except AnswerTooLarge as error:
            if question == LOOK:
                raise  # the machine was not seen to work
            self.lacks.append(str(error))  # too large by what the policy did
            return {"status": 500, "body": b""} if question in ("execute", "player") else None

    def _found(self, value: T | None, what: str) -> T | None:
        if value is None:
            self.lacks.append(what)
        return value

    async def _on_look(self) -> None:
        """Raise a fault if the machine does not work or has another owner, or if its browser, of which pages
        are read, hangs.

        Getters take a browser that hangs for one without pages. A browser that was closed is no fault.
        """
        await refuse_unusable(self._guest, self._setting.owner, deadline_s=self._left_s())
        if self._browses:
            await self._guest.chromium(
                "GET", "/json/version", deadline_s=min(BROWSER_ANSWERS_S, self._left_s())
            )

    async def _on_call(self, getter: str, config: dict[str, Any]) -> None:
        """Return None: no value was kept, so the child calls the getter."""

    async def _on_file(self, path: str) -> bytes | None:
        return self._found(await self._guest.file(path, deadline_s=self._left_s()), path)

    async def _on_terminal(self) -> str | None:
        return self._found(await self._guest.terminal(deadline_s=self._left_s()), "a terminal")

    async def _on_accessibility_tree(self) -> str:
        return await self._guest.accessibility_tree(deadline_s=self._left_s())

    async def _on_screen_size(self) -> dict[str, int]:
        width, height = await self._guest.screen_size(deadline_s=self._left_s())
        return {"width": width, "height": height}

    async def _on_window_size(self, window_class: str) -> Any:
        found = await self._guest.window_size(window_class, deadline_s=self._left_s())
        return self._found(found, f"a window of the class {window_class}")

    async def _on_wallpaper(self) -> bytes | None:
        return self._found(await self._guest.wallpaper(deadline_s=self._left_s()), "a wallpaper")

    async def _on_desktop_path(self) -> str | None:
        return self._found(await self._guest.desktop_path(deadline_s=self._left_s()), "a desktop")

    async def _on_directory(self, path: str) -> Any:
        return self._found(await self._guest.directory(path, deadline_s=self._left_s()), path)

    async def _on_execute(self, command: str | list[str], shell: bool) -> dict[str, Any]:
        """Run a command. A failure that the policy may have caused (`LACKS_OF_COMMANDS`) is noted in
        ``lacks``."""
        try:
            ended = await self._guest.execute(command, shell=shell, deadline_s=self._left_s())
        except StatusNotOk as error:
            lack = _lack_of_command(error.response)
            if not lack:
                raise
            self.lacks.append(f"{lack}, for {command!r}")
            return {"status": 500, "body": {"status": "error", "message": str(error)}}
        body = {"output": ended.output, "error": ended.error, "returncode": ended.returncode}
        return {"status": 200, "body": {"status": "success", **body}}

    async def _on_launch(self, command: str | list[str], shell: bool) -> dict[str, Any]:
        body: dict[str, Command | bool] = {"command": command, "shell": shell}
        with needs_program(self._setting, command):
            said = await self._guest.setup("launch", body, deadline_s=self._left_s())
        return {"status": 200, "body": said.encode()}

    async def _on_player(self, password: str) -> dict[str, Any] | None:
        """Return the status of VLC; None when VLC does not run."""
        content = await self._guest.player(password, deadline_s=self._left_s())
        return None if self._found(content, "VLC") is None else {"status": 200, "body": content}

    async def _on_fetch(self, url: str) -> dict[str, Any] | None:
        """Return a file whose URL the task names; None for any other URL."""
        if url not in self._names_by_url:
            return None
        content = await fetched(self._setting, url, self._names_by_url[url], self._left_s)
        return {"status": 200, "body": content}
