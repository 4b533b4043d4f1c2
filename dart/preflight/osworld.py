"""The checks of `dartrl osworld check`: whether machines can play OSWorld's tasks, before a run uses them.

On each machine it is checked that the guest server answers, that the screen has the configured size, that
input and clipboard work, and that the machine reaches the web. Then one task of each application is set up
and has to be judged 0. If there is a script that solves it (`ORACLES`), the script is played and the task has
to be judged 1. At the end the machine is reverted. Every wait has a deadline.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from dart.config.machine_address import MachineAddress, parse_address
from dart.config.sections import OSWorldSettings
from dart.core.png import png_size
from dart.environments.faults import (
    DirtyStart,
    EnvironmentFault,
    EvaluatorFailed,
    FileUnreachable,
    InfrastructureFault,
    MachineDied,
    MachineHung,
    MachineTaken,
    TaskUnsupported,
)
from dart.environments.osworld.environment import OSWorldEnvironment
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.guest_network import NETWORK_REMEDY, NetworkAway, of_the_web, reaches_any
from dart.environments.osworld.judging import not_known
from dart.environments.osworld.keyboard import copying_line, lines_done, program
from dart.environments.osworld.misjudged import MISJUDGED
from dart.environments.osworld.oracles import ORACLES
from dart.environments.osworld.providers import AddressList
from dart.environments.osworld.readiness import read_guest_state
from dart.environments.osworld.scoring_environment import (
    EvaluatorsMissing,
    ScoringEnvironment,
    find_evaluators,
)
from dart.environments.osworld.tasks import PREFIX, OSWorldTask, load_task, task_ids
from dart.preflight.doctor import CheckResult, CheckVerdict, fine, note, wrong

CALL_DEADLINE_S = 20.0
"""Deadline in seconds of a single call to a machine. A machine that is up answers within one second."""

MACHINES_AT_ONCE = 8
"""Number of machines that are checked at a time. Each evaluation uses one processor of this computer."""

CLIPBOARD_TEXT = "dartrl: ü 中"
"""Text with characters that no keyboard has. Actions paste such text instead of typing it."""

PRINTED = "dartrl"
PRINTS = f"import pyautogui; print({PRINTED!r})"

GuestOf = Callable[[str, MachineAddress], Guest]
Report = Callable[["MachineCheckResult"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCheckResult(CheckResult):
    """The result of one check of one machine."""

    machine: str
    """Address of the machine; empty for a check of this computer."""

    @classmethod
    def at(cls, machine: str, result: CheckResult) -> Self:
        """Return the result of a check with the machine."""
        return cls(machine=machine, **asdict(result))


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What is checked, on which machines, and how long it may take."""

    settings: OSWorldSettings
    scratch: Path
    """Folder for temporary files of the checks."""
    deadline_s: float
    """Deadline in seconds of each setup, each script and each evaluation."""
    applications: frozenset[str] = frozenset()
    """The applications to check, named as the folders of the tasks; empty: all."""
    guest_of: GuestOf = Guest


async def check_machines(
    preflight: Preflight, report: Report = lambda result: None
) -> list[MachineCheckResult]:
    """Check the machines of ``settings.addresses``, MACHINES_AT_ONCE at a time.

    Returns the results for this computer, then those of each machine in the order of the addresses.

    report   called with each result as soon as it is known
    """
    scoring, found = _evaluators(preflight)
    tasks: Mapping[str, TaskOfApplication] = {}
    if scoring is not None:
        tasks = chosen_tasks(preflight.settings.tasks, scoring, preflight.applications)
        found += _without_tasks(preflight, tasks)
    results = [MachineCheckResult.at("", one) for one in found]
    for one in results:
        report(one)
    turns = asyncio.Semaphore(MACHINES_AT_ONCE)

    async def checked(number: int) -> list[MachineCheckResult]:
        machine = str(parse_address(preflight.settings.addresses[number]))
        of_machine: list[MachineCheckResult] = []
        async with turns:
            async for one in _checks(preflight, number, tasks):
                of_machine.append(MachineCheckResult.at(machine, one))
                report(of_machine[-1])
        return of_machine

    numbers = range(len(preflight.settings.addresses))
    for of_machine in await asyncio.gather(*map(checked, numbers)):
        results += of_machine
    return results


def _evaluators(preflight: Preflight) -> tuple[ScoringEnvironment | None, list[CheckResult]]:
    """Return the evaluators' virtual environment, or None if it is missing, and the result of the check."""
    try:
        scoring = find_evaluators(preflight.settings.evaluators)
    except EvaluatorsMissing as error:
        found, _, remedy = str(error).partition(": ")
        return None, [wrong("evaluators", f"{found}; so no task was tried", remedy)]
    return scoring, [fine("evaluators", f"{scoring.name} in {preflight.settings.evaluators}")]


def _without_tasks(preflight: Preflight, tasks: Mapping[str, "TaskOfApplication"]) -> Iterator[CheckResult]:
    """Yield a result if there are no tasks at all, or none of an application in `preflight.applications`."""
    absent = preflight.applications - tasks.keys()
    if absent or not tasks:
        of = f" of {', '.join(sorted(absent))}" if absent else ""
        remedy = "name the folder `examples`, or a set, with --set environments.osworld.tasks=FOLDER"
        if absent:
            known = ", ".join(sorted(_areas(preflight.settings.tasks))) or "none"
            remedy += f"; applications there: {known}"
        yield wrong("tasks", f"no tasks{of} in {preflight.settings.tasks}", remedy)


# ---- which tasks ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOfApplication:
    """The task that is tried for one application, or the reason (`why_none`) why there is none."""

    task_id: str = ""
    """Id of the task; empty if no task of the application can be played."""
    why_none: str = ""


def chosen_tasks(
    tasks: Path, scoring: ScoringEnvironment, applications: frozenset[str] = frozenset()
) -> Mapping[str, TaskOfApplication]:
    """Return one task for each application, by the name of the application.

    A task with a script (`ORACLES`) is preferred, then a task that needs no files. Tasks that are infeasible,
    cannot be judged by these evaluators, or are judged wrongly (`MISJUDGED`) are never chosen.

    tasks          folder with the task files, or a file with a set of tasks
    applications   the applications to return; empty: all
    """
    return {
        area: _chosen(ids, tasks, scoring)
        for area, ids in _areas(tasks).items()
        if not applications or area in applications
    }


def _areas(tasks: Path) -> Mapping[str, Sequence[str]]:
    """Return the task ids of each application, by the name of the application."""
    areas: dict[str, list[str]] = {}
    for task_id in task_ids(tasks):
        areas.setdefault(task_id.removeprefix(PREFIX).partition("/")[0], []).append(task_id)
    return areas


def _chosen(ids: Sequence[str], tasks: Path, scoring: ScoringEnvironment) -> TaskOfApplication:
    ranked, whys = [], ["all are infeasible or judged wrongly"]
    for task_id in ids:
        try:
            task = load_task(task_id, tasks)
        except TaskUnsupported as error:
            whys.append(str(error))
            continue
        needs = not_known(task, scoring)
        whys += [f"{task_id} needs {need}" for need in needs]
        if not needs and not task.is_infeasible and task_id not in MISJUDGED:
            ranked.append((_rank(task), task_id))
    return TaskOfApplication(task_id=min(ranked)[1]) if ranked else TaskOfApplication(why_none=whys[-1])


def _rank(task: OSWorldTask) -> tuple[int, bool]:
    """Return a sort key: tasks with a script first, in the order of `ORACLES`, then tasks without files."""
    order = list(ORACLES)
    place = order.index(task.task_id) if task.task_id in ORACLES else len(order)
    return place, any(step.type in ("download", "upload_file") for step in task.steps())


# ---- one machine ----


async def _checks(
    preflight: Preflight, number: int, tasks: Mapping[str, TaskOfApplication]
) -> AsyncIterator[CheckResult]:
    """Yield the results of one machine. If its guest server does not answer, that is the only result.

    number   index of the machine in `settings.addresses`
    tasks    the task of each application
    """
    settings = preflight.settings
    address = parse_address(settings.addresses[number])
    guest = preflight.guest_of(f"the machine at {address}", address)
    try:
        reached = await _guest(guest)
        yield reached
        if reached.verdict is CheckVerdict.WRONG:
            return
        yield await _screen(guest, settings)
        yield await _desktop(guest)
        yield await _output(guest)
        yield await _clipboard(guest)
        yield await _network(guest, settings)
    finally:
        await guest.close()
    provider = AddressList(settings.addresses, number, settings.revert_command)
    scratch = preflight.scratch / f"machine-{number}"
    environment = OSWorldEnvironment(settings, provider, settings.cache, scratch, preflight.guest_of)
    try:
        for area, chosen in tasks.items():
            async for one in _application(preflight, environment, area, chosen):
                yield one
    finally:
        await environment.close()


async def _guest(guest: Guest) -> CheckResult:
    try:
        await guest.screenshot(deadline_s=CALL_DEADLINE_S)
    except InfrastructureFault as error:
        return wrong("guest", str(error), _remedy_of_guest(error, guest.address))
    return fine("guest", "answers, and takes screenshots")


def _remedy_of_guest(error: InfrastructureFault, address: MachineAddress) -> str:
    match error:
        case MachineDied():
            return (
                f"start the machine, or name its address: nothing answers on port {address.server} of "
                f"{address.host}; with another port for its browser, write host:port:chromium:vlc"
            )
        case MachineHung():
            return "wait until the machine has booted; if it has, restart its guest server"
    return "look into the log of the guest server; it needs an X server and a desktop session"


async def _screen(guest: Guest, settings: OSWorldSettings) -> CheckResult:
    try:
        size = await guest.screen_size(deadline_s=CALL_DEADLINE_S)
        shown = png_size(await guest.screenshot(deadline_s=CALL_DEADLINE_S))
    except InfrastructureFault as error:
        return wrong("screen", str(error), "look into the log of the guest server")
    expected = (settings.width, settings.height)
    if size == shown == expected:
        return fine("screen", _written(size))
    return wrong(
        "screen",
        f"the screen has {_written(size)} pixels, a screenshot {_written(shown)}, and the configuration says "
        f"{_written(expected)}",
        f"set environments.osworld.width = {shown[0]} and height = {shown[1]}, or change the machine's "
        "resolution; some tasks place clicks by the size of the screen",
    )


def _written(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


async def _desktop(guest: Guest) -> CheckResult:
    try:
        state = await read_guest_state(guest, deadline_s=CALL_DEADLINE_S)
    except InfrastructureFault as error:
        remedy = "install python-xlib and pyautogui for the program `python` of the guest server"
        return wrong("desktop", str(error), remedy)
    if missing := state.missing(None):
        return wrong("desktop", missing, "start the desktop session before the guest server")
    return fine("desktop", f"{state.manager}, {len(state.windows)} windows")


async def _output(guest: Guest) -> CheckResult:
    """Check that the output of a program has only what it prints, because evaluators use outputs as paths."""
    try:
        ended = await guest.python(PRINTS, deadline_s=CALL_DEADLINE_S)
    except InfrastructureFault as error:
        return wrong("output", str(error), "look into the log of the guest server")
    if ended.output.strip() == PRINTED:
        return fine("output", "programs print what they should and nothing else")
    return wrong(
        "output",
        f"a program that imports pyautogui and prints {PRINTED!r} printed "
        f"{(ended.output or ended.error).strip()[:200]!r}; evaluators use such output as a path, so they "
        "find no file and judge 0",
        "if the output has a warning of Xlib.xauth, run `xauth add $DISPLAY . $(mcookie)` on the machine; "
        "otherwise remove what prints the additional text",
    )


async def _clipboard(guest: Guest) -> CheckResult:
    """Check that a text can be copied to the clipboard and read back.

    The check runs the same kind of program as actions, so it also needs pyautogui on the machine.
    """
    try:
        sent = program([copying_line(CLIPBOARD_TEXT)], uuid.uuid4().hex)
        ended = await guest.python(sent, deadline_s=CALL_DEADLINE_S)
        said = (
            "" if lines_done(ended.output) == 1 else (ended.error or ended.output).strip()[-200:] or "nothing"
        )
    except InfrastructureFault as error:
        said = str(error)
    if not said:
        return fine("clipboard", "keeps text with characters that no keyboard has")
    remedy = "install pyautogui and pyperclip for the program `python` of the guest server, and xclip"
    return wrong("clipboard", f"a copied text did not come back: {said}", remedy)


async def _network(guest: Guest, settings: OSWorldSettings) -> CheckResult:
    """Check that the machine reaches the web, which tasks that open pages need."""
    hosts = settings.network_hosts
    if not hosts:
        return note("network", "not checked, because environments.osworld.network_hosts is empty")
    try:
        is_reached = await reaches_any(guest, of_the_web(hosts), CALL_DEADLINE_S)
    except InfrastructureFault as error:
        return wrong("network", str(error), "look into the log of the guest server")
    if is_reached:
        return fine("network", "reaches the web")
    found = f"reaches none of {', '.join(hosts)}, so tasks that open pages of the web are refused"
    return wrong("network", found, NETWORK_REMEDY)


# ---- one application ----


async def _application(
    preflight: Preflight,
    environment: OSWorldEnvironment,
    area: str,
    chosen: TaskOfApplication,
) -> AsyncIterator[CheckResult]:
    """Yield the results of trying an application's task. A failed result is always the last one.

    area   name of the application
    """
    task_id, deadline_s = chosen.task_id, preflight.deadline_s
    if not task_id:
        yield note(area, f"no task of this application can be played: {chosen.why_none}")
        return
    short = task_id.removeprefix(PREFIX)
    doing = "setting it up"
    try:
        await environment.reset(task_id, 0, deadline_s=deadline_s)
        doing = "judging it before any action"
        before = await environment.evaluate(deadline_s=deadline_s)
        if before != 0.0:
            yield wrong(area, f"{short} is judged {before:g} before any action", _not_clean(preflight))
            return
        if task_id not in ORACLES:
            yield note(area, f"{short} is set up and judged 0; no script plays it")
        else:
            doing = "playing it by its script"
            await environment.run_command(ORACLES[task_id], deadline_s=deadline_s)
            doing = "judging it after its script"
            after = await environment.evaluate(deadline_s=deadline_s)
            if after != 1.0:
                yield wrong(area, f"{short} is judged {after:g} after its script", NOT_ONE)
                return
            yield fine(area, f"{short} is set up, judged 0, played by its script, judged 1")
        doing = "reverting it"
        yield await _reverted(preflight, environment, area, task_id)
    except EnvironmentFault as error:
        yield wrong(area, f"{short}: {doing} failed: {error}", _remedy_of_task(error, short))


NOT_ONE = (
    "compare the application with that of OSWorld's image: on this machine it keeps its settings in another "
    "place, or has another version"
)

RESTORES = "check that environments.osworld.revert_command restores the snapshot before it ends"


def _not_clean(preflight: Preflight) -> str:
    if preflight.settings.renew == "keep":
        return (
            "an earlier episode left its result on the machine: revert the machine, and set "
            "environments.osworld.revert_command"
        )
    return "the snapshot of the machine has the task's result already: take a new snapshot without it"


async def _reverted(
    preflight: Preflight, environment: OSWorldEnvironment, area: str, task_id: str
) -> CheckResult:
    """Check that the machine can be reverted: reset the task again, and check that it is judged 0.

    The reset reverts the machine and compares its state with that of its first start. Without a
    revert_command, the result is a note.
    """
    topic = f"{area} reverted"
    if preflight.settings.renew == "keep":
        return note(
            topic,
            "nothing reverts the machine: what the task changed is still there",
            "set environments.osworld.revert_command, or revert the machine now",
        )
    await environment.reset(task_id, 0, deadline_s=preflight.deadline_s)
    score = await environment.evaluate(deadline_s=preflight.deadline_s)
    if score != 0.0:
        return wrong(
            topic,
            f"the task is judged {score:g} after the machine was reverted",
            RESTORES,
        )
    return fine(topic, "files and windows are those of the first start, and the task is judged 0")


def _remedy_of_task(error: EnvironmentFault, short: str) -> str:
    match error:
        case TaskUnsupported():
            return "provide what the task needs, or leave the tasks of this application out of tasks.train"
        case FileUnreachable():
            return "repair the network of this computer, or put the file at the path above; then check again"
        case EvaluatorFailed():
            return "run the evaluators' tests: python -m benchmarks.osworld_evaluators; or update desktop-env"
        case DirtyStart():
            return RESTORES
        case NetworkAway():
            return NETWORK_REMEDY
        case MachineTaken():
            return "end the run, evaluation or check that uses the machine, too; then check again"
        case MachineHung():
            return "allow more time with --deadline, or give the machine more processors"
    return f"play {short} on the machine by hand: its application does not start or is not installed"
