"""The faults of environments, by kind. A fault is an exception, never ``None`` and never a reward.

::

    EnvironmentFault            kind
    ├─ InfrastructureFault      INFRASTRUCTURE  the attempt is spent; the next reset repairs it
    │  ├─ BrowserDied                           the browser process is gone
    │  ├─ BrowserHung                           the browser process answers nothing
    │  ├─ PageCrashed                           the page's renderer is gone (crash, kill, out of memory)
    │  ├─ PageHung                              the page answers nothing, its browser does
    │  ├─ CallRefused                           the browser answered a call with an error
    │  ├─ EnvironmentTimeout                    page and browser answer, but the operation did not end
    │  ├─ ResetFailed                           the start screen could not be shown
    │  ├─ ActionNotConfirmed                    the screen received an action partly, twice or not at all
    │  ├─ FrozenFrame                           the screenshots no longer show the screen
    │  ├─ CorruptFrame                          a screenshot is not a whole picture
    │  ├─ MachineDied                           the desktop or virtual machine is gone
    │  ├─ MachineHung                           it answers nothing
    │  ├─ CallFailed                            it answered a call with an error, or not as the protocol says
    │  ├─ MachineNotReady                       it answers, but its desktop is not ready for an episode
    │  ├─ DirtyStart                            something of another episode is on it
    │  ├─ ApplicationDied                       an application of the task is gone or stopped
    │  ├─ WindowManagerDied                     the window manager is gone
    │  └─ NoMachineFree                         the provider has no machine to give
    ├─ EvaluatorFailed          EVALUATOR       the episode ran, but it could not be scored
    ├─ UnknownTask              TASK            no such task; trying again will not help
    └─ TaskUnsupported          TASK            the task needs something that this system does not have

    InstallationIncomplete      a person has to install something before any task can be played
    ├─ BrowserMissing
    ├─ BrowserUnfit
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
    """The episode cannot continue and has no reward; ``kind`` says who is to blame."""

    kind: ClassVar[FaultKind]


class InfrastructureFault(EnvironmentFault):
    """The environment broke. Neither the policy nor the task is to blame."""

    kind = FaultKind.INFRASTRUCTURE


class BrowserDied(InfrastructureFault):
    """The browser process is gone; ``stderr_tail`` is the end of its stderr."""

    def __init__(self, during: str, returncode: int | None, stderr_tail: str = "") -> None:
        words = f"; its stderr ends with: {stderr_tail}" if stderr_tail else ""
        super().__init__(f"the browser died during {during} (exit code {returncode}){words}")
        self.during = during
        self.returncode = returncode
        self.stderr_tail = stderr_tail


class BrowserHung(InfrastructureFault):
    """The browser process is running but answers nothing: it is stopped or stuck."""

    def __init__(self, during: str, deadline_s: float) -> None:
        super().__init__(f"the browser answered nothing during {during} for {deadline_s:g} s")


class PageCrashed(InfrastructureFault):
    """The renderer of the page is gone; the browser is running."""

    def __init__(self, during: str, event: str) -> None:
        super().__init__(f"the page crashed during {during} ({event})")


class PageHung(InfrastructureFault):
    """The page did not answer within ``deadline_s`` while its browser did: a script that never returns."""

    def __init__(self, during: str, deadline_s: float) -> None:
        super().__init__(
            f"the page answered nothing during {during} for {deadline_s:g} s, although its browser answers"
        )


class CallRefused(InfrastructureFault):
    """The browser answered the call ``method`` with an error."""

    def __init__(self, method: str, message: str) -> None:
        super().__init__(f"the browser refused {method}: {message}")


class EnvironmentTimeout(InfrastructureFault):
    """``operation`` did not end within ``deadline_s``; ``missing`` names what it was waiting for."""

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
    """The screen did not receive exactly the input that was sent; ``differences`` says what it received."""

    def __init__(self, action: str, differences: str) -> None:
        super().__init__(f"{action} was lost or doubled: {differences}")


class FrozenFrame(InfrastructureFault):
    """The screenshots no longer show the screen, so the policy did not see what it acted on."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"the screenshots of {task_id} froze: a mark drawn on the screen is not on them")


class CorruptFrame(InfrastructureFault):
    """A screenshot is cut off, empty, of the wrong size or not a picture."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the screenshot is corrupt: {why}")


class MachineDied(InfrastructureFault):
    """The desktop or virtual machine ``machine`` is gone; ``why`` is its exit code or its last message."""

    def __init__(self, machine: str, during: str, why: str) -> None:
        super().__init__(f"{machine} died during {during}: {why}")


class MachineHung(InfrastructureFault):
    """The desktop or virtual machine ``machine`` did not answer within ``deadline_s``."""

    def __init__(self, machine: str, during: str, deadline_s: float) -> None:
        super().__init__(f"{machine} answered nothing during {during} for {deadline_s:g} s")


class CallFailed(InfrastructureFault):
    """``machine`` answered ``call`` with an error, or with something that the protocol does not allow."""

    def __init__(self, machine: str, call: str, why: str) -> None:
        super().__init__(f"{machine} failed at {call}: {why}")


class MachineNotReady(InfrastructureFault):
    """``machine`` answers, but is not ready after ``deadline_s``; ``missing`` says why."""

    def __init__(self, machine: str, missing: str, deadline_s: float) -> None:
        super().__init__(f"{machine} was not ready within {deadline_s:g} s: {missing}")


class DirtyStart(InfrastructureFault):
    """``machine`` holds something before the first action that the task did not put there."""

    def __init__(self, machine: str, found: str) -> None:
        super().__init__(f"{machine} is not clean before its first action: {found}")


class ApplicationDied(InfrastructureFault):
    """An application of the task died or is stopped, which a screenshot does not show."""

    def __init__(self, application: str, how: str) -> None:
        super().__init__(f"the application {application} {how}")


class WindowManagerDied(InfrastructureFault):
    """The window manager died or is stopped, which a screenshot does not show."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the window manager {how}")


class NoMachineFree(InfrastructureFault):
    """The provider gave no machine within ``deadline_s``."""

    def __init__(self, provider: str, why: str, deadline_s: float) -> None:
        super().__init__(f"{provider} gave no machine within {deadline_s:g} s: {why}")


class EvaluatorFailed(EnvironmentFault):
    """The episode ran, but it could not be scored."""

    kind = FaultKind.EVALUATOR

    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(f"{task_id} could not be scored: {reason}")


class UnknownTask(EnvironmentFault):
    """No task has this name."""

    kind = FaultKind.TASK

    def __init__(self, task_id: str, known: Iterable[str]) -> None:
        nearest = difflib.get_close_matches(task_id, list(known), n=1)
        hint = f", did you mean {nearest[0]}?" if nearest else ""
        super().__init__(f"unknown task {task_id}{hint}")


class TaskUnsupported(EnvironmentFault):
    """The task cannot be played on this system; ``needs`` says what is missing."""

    kind = FaultKind.TASK

    def __init__(self, task_id: str, needs: str) -> None:
        super().__init__(f"{task_id} cannot be played here: {needs}")


class InstallationIncomplete(UnavailableError):
    """Something has to be installed before any episode can be played. It is not a fault of an episode."""


class BrowserMissing(InstallationIncomplete):
    """The browser to start does not exist."""

    def __init__(self, executable: str) -> None:
        super().__init__(
            f"no browser at {executable}: install it with `apt-get install chromium-headless-shell` "
            "or run `dartrl setup`, or name another one in environments.executable"
        )


class BrowserUnfit(InstallationIncomplete):
    """The configured executable is not a Chromium that starts."""

    def __init__(self, executable: str, why: str) -> None:
        super().__init__(
            f"{executable} is not a Chromium that starts: {why}; install one with "
            "`apt-get install chromium-headless-shell` or run `dartrl setup`, or name another one in "
            "environments.executable"
        )


class LauncherMissing(InstallationIncomplete):
    """The program that ends the browser together with its environment is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no {name} on the PATH: install it with `apt-get install util-linux`")


class PagesMissing(InstallationIncomplete):
    """The pages of the tasks are not installed."""

    def __init__(self, looked_for: str) -> None:
        super().__init__(
            f"the MiniWoB++ pages are missing (looked for {looked_for}): "
            "run `dartrl setup`, or install them with `pip install --no-deps miniwob==1.1.0`"
        )


class DesktopMissing(InstallationIncomplete):
    """Programs or packages of the local desktop are not installed."""

    def __init__(self, missing: Iterable[str]) -> None:
        super().__init__(
            f"a local desktop needs {', '.join(missing)}: run `make desktop`, which installs them through "
            "apt and pip"
        )


class ProviderRefused(InstallationIncomplete):
    """The provider of machines refuses this run, for instance its token; trying again will not help."""

    def __init__(self, provider: str, why: str) -> None:
        super().__init__(f"{provider} refuses to give machines: {why}")
