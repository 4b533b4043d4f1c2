"""The faults of environments. A fault is an exception, never ``None`` and never a reward.

Every fault of an episode is an `EnvironmentFault`, and its ``kind`` says what is to blame:

* `InfrastructureFault`: the environment broke. The attempt is spent; the next reset repairs the environment.
* `FileUnreachable` and `ProviderAway`: the network, a file server or the server of machines broke. The
  attempt is spent; a reset would not repair it, and it does not count against the task.
* `DiskRefused`: a disk of this computer refused a file. The attempt is spent, and it does not count against
  the task.
* `EvaluatorFailed`: the episode ran, but it could not be scored.
* `UnknownTask` and `TaskUnsupported`: the task cannot be played; trying again will not help.

An `InstallationIncomplete` is not a fault of an episode: no task can be played before something is installed.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import ClassVar

from dart.config.problems import shortened
from dart.core.errors import UnavailableError
from dart.core.suggestions import did_you_mean, near
from dart.core.types import FaultKind


class EnvironmentFault(Exception):
    """The episode cannot continue and has no reward; ``kind`` says what is to blame.

    An environment of your own may raise this class itself: then the environment is to blame.
    """

    kind: ClassVar[FaultKind] = FaultKind.INFRASTRUCTURE


class InfrastructureFault(EnvironmentFault):
    """The environment broke. Neither the policy nor the task is to blame."""


class BrowserDied(InfrastructureFault):
    """The browser process is gone; ``stderr_tail`` is the end of its stderr.

    ``why`` says why it was killed, if a limit was the reason."""

    def __init__(self, during: str, returncode: int | None, stderr_tail: str = "", why: str = "") -> None:
        killed = f", killed because {why}" if why else ""
        ends = f"; its stderr ends with: {stderr_tail}" if stderr_tail else ""
        super().__init__(f"the browser died during {during} (exit code {returncode}{killed}){ends}")


class BrowserHung(InfrastructureFault):
    """The browser process runs but does not respond: it is stopped or stuck."""

    def __init__(self, during: str, deadline_s: float) -> None:
        super().__init__(f"the browser did not respond during {during} within {deadline_s:g} s")


class PageCrashed(InfrastructureFault):
    """The renderer process of the page is gone (crash, kill, out of memory), but its browser runs."""

    def __init__(self, during: str, event: str) -> None:
        super().__init__(f"the page crashed during {during} ({event})")


class PageHung(InfrastructureFault):
    """The page does not respond although its browser does, for instance because a script never returns."""

    def __init__(self, during: str, deadline_s: float) -> None:
        super().__init__(
            f"the page did not respond during {during} within {deadline_s:g} s, although its browser does"
        )


class CallRefused(InfrastructureFault):
    """The browser returned an error for the call ``method``."""

    def __init__(self, method: str, message: str) -> None:
        super().__init__(f"the browser refused {method}: {message}")


class EnvironmentTimeout(InfrastructureFault):
    """``operation`` did not end within ``deadline_s``; ``missing`` says what it waited for."""

    def __init__(self, operation: str, deadline_s: float, missing: str = "") -> None:
        waited = f", waiting for {missing}" if missing else ""
        super().__init__(f"{operation} did not end within {deadline_s:g} s{waited}")


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


class WrongResult(InfrastructureFault):
    """A method of an environment returned something that `dart.environments.protocol` does not allow."""

    def __init__(self, kind: str, method: str, expected: str, got: object) -> None:
        super().__init__(
            f"expected {method} of environments of kind {kind!r} to return {expected}, got "
            f"{shortened(repr(got))}"
        )


class MachineDied(InfrastructureFault):
    """The desktop or virtual machine ``machine`` is gone; ``why`` is its exit code or its last message."""

    def __init__(self, machine: str, during: str, why: str) -> None:
        super().__init__(f"{machine} died during {during}: {why}")


class MachineHung(InfrastructureFault):
    """The desktop or virtual machine ``machine`` did not respond within ``deadline_s``."""

    def __init__(self, machine: str, during: str, deadline_s: float) -> None:
        super().__init__(f"{machine} did not respond during {during} within {deadline_s:g} s")


class CallFailed(InfrastructureFault):
    """``machine`` replied to ``call`` with an error, or with something that the protocol does not allow."""

    def __init__(self, machine: str, call: str, why: str) -> None:
        super().__init__(f"{machine} failed at {call}: {why}")


class MachineNotReady(InfrastructureFault):
    """``machine`` responds, but its desktop is not ready for an episode; ``missing`` says why."""

    def __init__(self, machine: str, missing: str, deadline_s: float) -> None:
        super().__init__(f"{machine} was not ready within {deadline_s:g} s: {missing}")


class DirtyStart(InfrastructureFault):
    """Before the first action, ``machine`` has files or windows that the task did not put there."""

    def __init__(self, machine: str, found: str) -> None:
        super().__init__(f"{machine} is not clean before its first action: {found}")


class MachineTaken(InfrastructureFault):
    """Another program has reset ``machine`` during the episode, so its desktop shows another task."""

    def __init__(self, machine: str) -> None:
        super().__init__(
            f"{machine} was reset or reverted by another program during the episode: let only one run, "
            "evaluation or check use it at a time"
        )


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


class FileUnreachable(EnvironmentFault):
    """The network or the server of ``url`` failed; the file can also be put at the path ``place``."""

    kind = FaultKind.SYSTEM

    def __init__(self, url: str, why: str, place: Path) -> None:
        super().__init__(
            f"{url} cannot be downloaded now ({why}); look at the network of this computer, or put the file "
            f"at {place}"
        )


class ProviderAway(EnvironmentFault):
    """The server of machines ``provider`` cannot be reached; ``why`` is its last message or the error."""

    kind = FaultKind.SYSTEM

    def __init__(self, provider: str, why: str) -> None:
        super().__init__(
            f"{provider} cannot be reached ({why}); start the server of machines, or look at the network "
            "between it and this computer"
        )


class DiskRefused(EnvironmentFault):
    """A disk of this computer refused ``what``, a file of an episode."""

    kind = FaultKind.SYSTEM

    def __init__(self, what: str, error: OSError) -> None:
        super().__init__(f"{what} cannot be read or written ({error}); look at the disk of this computer")


class EvaluatorFailed(EnvironmentFault):
    """The episode was played to its end, but it could not be scored."""

    kind = FaultKind.EVALUATOR

    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(f"{task_id} could not be scored: {reason}")


class UnknownTask(EnvironmentFault):
    """No task has the id ``task_id``."""

    kind = FaultKind.TASK

    def __init__(self, task_id: str, known: Collection[str]) -> None:
        super().__init__(f"unknown task {task_id}{did_you_mean(near(task_id, known))}")


class TaskUnsupported(EnvironmentFault):
    """The task cannot be played on this system; ``needs`` says what is missing."""

    kind = FaultKind.TASK

    def __init__(self, task_id: str, needs: str) -> None:
        super().__init__(f"{task_id} cannot be played here: {needs}")


class InstallationIncomplete(UnavailableError):
    """Something has to be installed before any episode can be played."""


INSTALL_BROWSER = "install one with `apt-get install chromium-headless-shell` or run `dartrl setup`"

PERMIT_SANDBOX = (
    "permit user namespaces (in Docker with `--security-opt seccomp=unconfined`, on Ubuntu with "
    "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`; outside of containers the package "
    "chromium-sandbox will do)"
)


class BrowserMissing(InstallationIncomplete):
    """The configured executable does not exist or is not a Chromium that starts."""

    def __init__(self, executable: str, why: str = "no such program", remedy: str = INSTALL_BROWSER) -> None:
        super().__init__(
            f"{executable} is not a Chromium that starts: {why}; {remedy}, or name another one in "
            "environments.executable"
        )


class PagesMissing(InstallationIncomplete):
    """The pages of MiniWoB++ are not installed."""

    def __init__(self, looked_for: str) -> None:
        super().__init__(
            f"the MiniWoB++ pages are missing (looked for {looked_for}): "
            "run `dartrl setup`, or install them with `pip install --no-deps miniwob==1.1.0`"
        )


class DesktopMissing(InstallationIncomplete):
    """Programs or packages of the local desktop are not installed."""

    def __init__(self, missing: Iterable[str]) -> None:
        super().__init__(
            f"a local desktop needs {', '.join(missing)}: install them through apt and pip, or "
            "run `make desktop` in a clone of the repository"
        )


class ProviderRefused(InstallationIncomplete):
    """The provider of machines refuses this run or its token. Trying again will not help."""

    def __init__(self, provider: str, why: str) -> None:
        super().__init__(f"{provider} refuses to give machines: {why}")
