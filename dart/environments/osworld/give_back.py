"""Gives back the machines that environments of a run have left, when the run does not run.

An environment that is killed gives nothing back, and its machine runs until it is stopped. The files of
`machines/` name the machines of a server; a label finds the containers of docker. A start that the server has
not answered has no id. Machines of the token whose age fits the start may have come from it: with a token of
its own the run stops them, with a shared token it names them.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from dart.config.config import Config
from dart.config.sections import OSWorldDockerSettings
from dart.core.run_directory import RunPaths
from dart.environments.deadlines import LeftS, counting_down
from dart.environments.faults import InfrastructureFault
from dart.environments.leftovers import GIVE_BACK_S, GivenBack
from dart.environments.osworld.machine_ledger import FOLDER, Ledger, ledgers_in, write_ledger
from dart.environments.osworld.machine_server import LONGEST_BOOT_S, Listed, MachineServer
from dart.environments.osworld.providers import (
    labelled_containers,
    remove_containers,
    run,
    run_label,
)

STOP_RETRY_S = 2.0

LOOK_DEADLINE_S = 5.0
"""Deadline of docker when containers are only named. If it passes, docker is asked again to remove them."""

MINUTE_S = 60.0
"""A server lists the ages of machines in minutes, so they are only known to a minute."""


def left_behind(config: Config, paths: RunPaths) -> tuple[str, ...]:
    """Name what environments have left (`dart.environments.leftovers`). No server of machines is asked."""
    settings = config.environments.osworld
    named = _named(_found(paths.root / FOLDER), settings.pool.server)
    if settings.provider != "docker":
        return tuple(named)
    return (*named, *asyncio.run(_containers_left(settings.docker, _places(config, paths))))


def give_back(config: Config, paths: RunPaths) -> GivenBack:
    """Give back what environments have left (`dart.environments.leftovers`)."""
    return asyncio.run(_give_back(config, paths))


async def _give_back(config: Config, paths: RunPaths) -> GivenBack:
    settings = config.environments.osworld
    server = MachineServer(settings.pool)
    works = [give_back_machines(server, paths.root / FOLDER, stops_strays=settings.pool.own_token)]
    if settings.provider == "docker":
        works.append(_remove_containers(settings.docker, _places(config, paths)))
    given = await asyncio.gather(*works)
    return GivenBack(
        count=sum(one.count for one in given), left=tuple(line for one in given for line in one.left)
    )


# ---- machines of a server ----


async def give_back_machines(
    server: MachineServer,
    folder: Path,
    *,
    stops_strays: bool,
    sleep: Callable[[float], Any] = asyncio.sleep,
    unix_s: Callable[[], float] = time.time,
) -> GivenBack:
    """Stop the machines that the files of environments name, and remove those that are gone from there.

    server         is closed at the end
    folder         folder with the file of each environment
    stops_strays   whether a machine that may have come from a start without an answer is stopped, too
    """
    try:
        found = _found(folder)
        if not found:
            return GivenBack()
        if server.lacks_token:
            return GivenBack(
                left=tuple(f"{one}: {server.lacks_token}" for one in _named(found, server.address))
            )
        outcome = await _stop_all(server, found, unix_s(), sleep, stops_strays=stops_strays)
    finally:
        await server.close()
    for path, ledger in found.items():
        with contextlib.suppress(OSError):  # a machine that stays in the file is stopped once more
            write_ledger(path, outcome.left_of(ledger))
    return GivenBack(count=outcome.count, left=tuple(outcome.lines(found)))


def _found(folder: Path) -> dict[Path, Ledger]:
    """Return the files of environments, with what they name. Their processes have been killed, although one
    may still be there."""
    return {path: one for path, one in ledgers_in(folder) if not one.is_empty}


def _ids(found: Mapping[Path, Ledger]) -> list[str]:
    return [emulator for ledger in found.values() for emulator in ledger.emulator_ids]


def _named(found: Mapping[Path, Ledger], server: str) -> Iterator[str]:
    """Yield a line for the machines that files name, and one for the unanswered starts of each file."""
    if ids := _ids(found):
        yield f"machines {', '.join(ids)} of {server}"
    for path, ledger in found.items():
        if ledger.unanswered:
            yield _starts_text(path, ledger.unanswered, server)


def _starts_text(path: Path, asked_unix_s: Sequence[float], server: str) -> str:
    first, last = (
        datetime.fromtimestamp(one, UTC).isoformat(timespec="seconds")
        for one in (min(asked_unix_s), max(asked_unix_s))
    )
    if len(asked_unix_s) == 1:
        return f"a machine that {path.stem} asked {server} for at {first}, without an answer"
    return (
        f"{len(asked_unix_s)} machines that {path.stem} asked {server} for between {first} and {last}, "
        "without an answer"
    )


async def _stop_all(
    server: MachineServer,
    found: Mapping[Path, Ledger],
    now_unix_s: float,
    sleep: Callable[[float], Any],
    *,
    stops_strays: bool,
) -> "_Outcome":
    """Stop the machines that files name. After starts without an answer, ask which machines the token has."""
    left_s = counting_down(GIVE_BACK_S)
    ids = _ids(found)
    starts = [asked for ledger in found.values() for asked in ledger.unanswered]
    listed = await server.listed() if starts else []
    strays = (
        None
        if listed is None
        else [
            one
            for one in listed
            if one.emulator_id not in ids and any(_may_come_from(asked, one, now_unix_s) for asked in starts)
        ]
    )
    if stops_strays:
        ids += [one.emulator_id for one in strays or ()]
    whys = await asyncio.gather(*(_stopped(server, one, left_s, sleep) for one in ids))
    return _Outcome(server.address, dict(zip(ids, whys, strict=True)), strays, now_unix_s)


async def _stopped(server: MachineServer, emulator: str, left_s: LeftS, sleep: Callable[[float], Any]) -> str:
    """Stop a machine, with as many tries as the time permits. Returns "" or why it may still run."""
    while why := await server.stop(emulator, deadline_s=left_s()):
        if left_s() <= STOP_RETRY_S:
            break
        await sleep(STOP_RETRY_S)
    return why


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a server has said of the machines that environments have left."""

    server: str
    reasons: Mapping[str, str]
    """Why a machine may still run, by its id; "" if it is gone."""
    strays: Sequence[Listed] | None
    """Machines that no file names and that may have come from a start without an answer; None if the server
    does not list its machines."""
    now_unix_s: float

    @property
    def count(self) -> int:
        """Number of machines that are gone."""
        return sum(not why for why in self.reasons.values())

    def left_of(self, ledger: Ledger) -> Ledger:
        """Return what the file of an environment still has to name."""
        return msgspec.structs.replace(
            ledger,
            emulator_ids=[one for one in ledger.emulator_ids if self.reasons[one]],
            unanswered=[asked for asked in ledger.unanswered if self._why_open(asked)],
        )

    def lines(self, found: Mapping[Path, Ledger]) -> Iterator[str]:
        """Yield a line for each reason why machines may still run, or why those of a file's starts may."""
        for reason in dict.fromkeys(filter(None, self.reasons.values())):
            ids = [emulator for emulator, why in self.reasons.items() if why == reason]
            yield f"machines {', '.join(ids)} of {self.server}: {reason}"
        for path, ledger in found.items():
            for why, starts in groupby(sorted(ledger.unanswered), self._why_open):
                if why:
                    yield f"{_starts_text(path, list(starts), self.server)}: {why}"

    def _why_open(self, asked_unix_s: float) -> str:
        """Say why a start without an answer may have left a machine that runs; "" if it has not."""
        if self.strays is None:
            return "the server does not list its machines"
        running = [one for one in self.strays if self.reasons.get(one.emulator_id) != ""]
        if ids := [one.emulator_id for one in running if _may_come_from(asked_unix_s, one, self.now_unix_s)]:
            named = ", ".join(ids)
            return f"the age of {named} fits; by POST /stop_emulator, stop what no other program uses"
        if self.now_unix_s - asked_unix_s < LONGEST_BOOT_S:
            return "a boot may still be under way"
        return ""


def _may_come_from(asked_unix_s: float, machine: Listed, now_unix_s: float) -> bool:
    """Whether the age of a machine fits this start. The age counts from the end of the boot."""
    after_s = now_unix_s - MINUTE_S * machine.duration_minutes - asked_unix_s
    return -MINUTE_S <= after_s <= LONGEST_BOOT_S + MINUTE_S


# ---- containers of docker ----


def _places(config: Config, paths: RunPaths) -> tuple[Path, ...]:
    """Return the run directory, and its earlier place if it was moved since the last start.

    The configuration that a run keeps names the place of its last start. If something is still there, the
    directory may be a copy of it, whose containers are not its own.
    """
    earlier = config.run.dir
    return (paths.root,) if earlier.exists() else (paths.root, earlier)


async def _containers_left(settings: OSWorldDockerSettings, places: Sequence[Path]) -> list[str]:
    try:
        found = await _containers(settings, places, counting_down(LOOK_DEADLINE_S))
    except InfrastructureFault as fault:
        return [_unknown_containers(places, fault)]
    return [f"containers {', '.join(found)} of docker"] if found else []


async def _remove_containers(settings: OSWorldDockerSettings, places: Sequence[Path]) -> GivenBack:
    left_s = counting_down(GIVE_BACK_S)
    try:
        found = await _containers(settings, places, left_s)
        if found:
            await remove_containers(found, settings.program, deadline_s=left_s())
    except InfrastructureFault as fault:
        return GivenBack(left=(_unknown_containers(places, fault),))
    return GivenBack(count=len(found))


async def _containers(settings: OSWorldDockerSettings, places: Sequence[Path], left_s: LeftS) -> list[str]:
    return [
        container
        for label in dict.fromkeys(map(run_label, places))
        for container in await labelled_containers(
            label, settings.program, deadline_s=left_s(), run_command=run
        )
    ]


def _unknown_containers(places: Sequence[Path], fault: InfrastructureFault) -> str:
    labels = " or ".join(dict.fromkeys(map(run_label, places)))
    return f"containers with the label {labels}: {fault}"
