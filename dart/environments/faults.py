"""What can go wrong with an environment, by kind. A fault is never ``None`` and never a reward.

::

    EnvironmentFault            kind
    ├─ InfrastructureFault      INFRASTRUCTURE  the attempt is spent; the next reset repairs it
    │  ├─ BrowserDied                           the browser process is gone
    │  ├─ BrowserHung                           the browser process answers nothing
    │  ├─ PageCrashed                           the page's renderer is gone (crash, kill, out of memory)
    │  ├─ PageHung                              the page answers nothing, its browser does
    │  ├─ CallRefused                           the browser answered a call with an error
    │  ├─ EnvironmentTimeout                    page and browser answer, yet the operation did not end
    │  ├─ ResetFailed                           the start screen could not be shown
    │  ├─ ActionNotConfirmed                    an action arrived not at all, in part or twice
    │  ├─ FrozenFrame                           the screenshots no longer show the screen
    │  ├─ CorruptFrame                          a screenshot is no whole picture
    │  ├─ MachineDied                           the desktop or virtual machine is gone
    │  ├─ MachineHung                           it answers nothing
    │  ├─ CallFailed                            it answered a call with an error, or not as the protocol says
    │  ├─ NotReady                              it answers, and is not what an episode can be played on
    │  ├─ DirtyStart                            something of another episode is on it
    │  ├─ ApplicationDied                       an application of the task is gone or stopped
    │  ├─ WindowManagerDied                     nobody gives windows focus and frames
    │  └─ NoMachineFree                         the provider has no machine to give
    ├─ EvaluatorFailed          EVALUATOR       the episode ran, its score could not be had
    ├─ UnknownTask              TASK            no such task; trying again will not help
    └─ TaskUnsupported          TASK            the task needs what this system does not have

    InstallationIncomplete      a person has to install something; no attempt of any task can go on
    ├─ BrowserMissing
    ├─ LauncherMissing
    ├─ PagesMissing
    ├─ DesktopMissing
    └─ ProviderRefused
"""

import difflib
from collections.abc import Iterable
from typing import ClassVar

from dart.core.errors import UnavailableError
from dart.core.types import FaultKind


class EnvironmentFault(Exception):
    """An episode cannot go on and has no reward; ``kind`` says who is to blame."""

    kind: ClassVar[FaultKind]


class InfrastructureFault(EnvironmentFault):
    """The environment broke. Not the policy's doing, not the task's."""

    kind = FaultKind.INFRASTRUCTURE


class BrowserDied(InfrastructureFault):
    """The browser process is gone; ``last_words`` is the end of its stderr."""

    def __init__(self, during: str, returncode: int | None, last_words: str = "") -> None:
        words = f"; its last words: {last_words}" if last_words else ""
        super().__init__(f"the browser died during {during} (exit code {returncode}){words}")
        self.during = during
        self.returncode = returncode
        self.last_words = last_words


class BrowserHung(InfrastructureFault):
    """The browser process lives and answers nothing: stopped, or wedged."""

    def __init__(self, during: str, deadline_s: float) -> None:
        super().__init__(f"the browser answered nothing during {during} for {deadline_s:g} s")


class PageCrashed(InfrastructureFault):
    """The renderer of the page is gone; the browser lives."""

    def __init__(self, during: str, event: str) -> None:
        super().__init__(f"the page crashed during {during} ({event})")


class PageHung(InfrastructureFault):
    """The page did not answer within ``deadline_s`` while its browser did: a script that never returns."""

    def __init__(self, during: str, deadline_s: float) -> None:
        super().__init__(f"the page answered nothing during {during} for {deadline_s:g} s; its browser did")


class CallRefused(InfrastructureFault):
    """The browser answered the call ``method`` with an error."""

    def __init__(self, method: str, message: str) -> None:
        super().__init__(f"the browser refused {method}: {message}")


class EnvironmentTimeout(InfrastructureFault):
    """``operation`` did not end within ``deadline_s``; ``missing`` names what was waited for."""

    def __init__(self, operation: str, deadline_s: float, missing: str = "") -> None:
        waited = f", waiting for {missing}" if missing else ""
        super().__init__(f"{operation} did not end within {deadline_s:g} s{waited}")
        self.operation = operation
        self.deadline_s = deadline_s


class ResetFailed(InfrastructureFault):
    """The start screen of ``task_id`` could not be shown."""

    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(f"reset of {task_id} failed: {reason}")


class ActionNotConfirmed(InfrastructureFault):
    """The screen did not get exactly the input that was sent."""

    def __init__(self, action: str, differences: str) -> None:
        super().__init__(f"{action} was lost or doubled: {differences} arrived")


class FrozenFrame(InfrastructureFault):
    """The screenshots no longer show the screen: what the policy saw was not what it acted on."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"the screenshots of {task_id} froze: a mark drawn on the screen is not on them")


class CorruptFrame(InfrastructureFault):
    """A screenshot is cut off, empty, or no picture at all."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the screenshot is corrupt: {why}")


class MachineDied(InfrastructureFault):
    """The desktop or virtual machine ``machine`` is gone; ``why`` is its exit code or what it said last."""

    def __init__(self, machine: str, during: str, why: str) -> None:
        super().__init__(f"{machine} died during {during}: {why}")


class MachineHung(InfrastructureFault):
    """The desktop or virtual machine ``machine`` did not answer within ``deadline_s``."""

    def __init__(self, machine: str, during: str, deadline_s: float) -> None:
        super().__init__(f"{machine} answered nothing during {during} for {deadline_s:g} s")


class CallFailed(InfrastructureFault):
    """``machine`` answered the call ``call`` with an error, or not as the protocol says."""

    def __init__(self, machine: str, call: str, why: str) -> None:
        super().__init__(f"{machine} could not do {call}: {why}")


class MachineNotReady(InfrastructureFault):
    """``machine`` answers, and still lacks ``missing`` after ``deadline_s``."""

    def __init__(self, machine: str, missing: str, deadline_s: float) -> None:
        super().__init__(f"{machine} was not ready within {deadline_s:g} s: {missing}")


class DirtyStart(InfrastructureFault):
    """What ``machine`` shows before the first action is not only what the task put there."""

    def __init__(self, machine: str, found: str) -> None:
        super().__init__(f"{machine} is not clean before its first action: {found}")


class ApplicationDied(InfrastructureFault):
    """An application of the task was killed, crashed or stands still; the picture alone does not show it."""

    def __init__(self, application: str, how: str) -> None:
        super().__init__(f"the application {application} {how}")


class WindowManagerDied(InfrastructureFault):
    """Windows get neither focus nor frames any more; the picture alone does not show it."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the window manager {how}")


class NoMachineFree(InfrastructureFault):
    """The provider gave no machine within ``deadline_s``."""

    def __init__(self, provider: str, why: str, deadline_s: float) -> None:
        super().__init__(f"{provider} gave no machine within {deadline_s:g} s: {why}")


class EvaluatorFailed(EnvironmentFault):
    """The episode ran, but its score could not be had."""

    kind = FaultKind.EVALUATOR

    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(f"the score of {task_id} could not be had: {reason}")


class UnknownTask(EnvironmentFault):
    """There is no task of this name."""

    kind = FaultKind.TASK

    def __init__(self, task_id: str, known: Iterable[str]) -> None:
        nearest = difflib.get_close_matches(task_id, list(known), n=1)
        hint = f", did you mean {nearest[0]}?" if nearest else ""
        super().__init__(f"unknown task {task_id}{hint}")


class TaskUnsupported(EnvironmentFault):
    """The task needs something this system cannot do; ``needs`` says what."""

    kind = FaultKind.TASK

    def __init__(self, task_id: str, needs: str) -> None:
        super().__init__(f"{task_id} cannot be played here: {needs}")


class InstallationIncomplete(UnavailableError):
    """Something has to be installed before any episode can be played. Not a fault of an episode."""


class BrowserMissing(InstallationIncomplete):
    """There is no browser to start."""

    def __init__(self, executable: str) -> None:
        super().__init__(
            f"no browser at {executable}: install it with `apt-get install chromium-headless-shell` "
            "or run `make setup`, or name another executable"
        )


class BrowserUnfit(InstallationIncomplete):
    """What should be the browser does not answer as one."""

    def __init__(self, executable: str, why: str) -> None:
        super().__init__(
            f"{executable} is no Chromium that can be started: {why}; install one with "
            "`apt-get install chromium-headless-shell` or run `make setup`, or name another executable"
        )


class LauncherMissing(InstallationIncomplete):
    """The program that binds the browser's life to ours is not there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no {name} on the PATH: install it with `apt-get install util-linux`")


class PagesMissing(InstallationIncomplete):
    """The pages of the tasks are not installed."""

    def __init__(self, looked_for: str) -> None:
        super().__init__(
            f"the MiniWoB++ pages are missing (looked for {looked_for}): "
            "install them with `pip install --no-deps miniwob==1.1.0` or run `make setup`"
        )


class DesktopMissing(InstallationIncomplete):
    """Programs or packages of the local desktop are not installed."""

    def __init__(self, missing: Iterable[str]) -> None:
        super().__init__(
            f"a local desktop needs {', '.join(missing)}: run `make desktop`, which installs them through "
            "apt and pip"
        )


class ProviderRefused(InstallationIncomplete):
    """The provider of machines does not take us; trying again will not help."""

    def __init__(self, provider: str, why: str) -> None:
        super().__init__(f"{provider} refuses to give machines: {why}")
