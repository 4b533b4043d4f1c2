"""What came of a run under faults: times to recovery, what was promised and if it was kept, the table."""

import json
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.actors import machine
from benchmarks.chaos_faults import JUDGED_FROM_MINUTES, LASTS_S, Fault, is_any
from dart.config.injected_faults import InjectedFault
from dart.environments.fault_injection import Injection
from dart.store.reader import StoreReader

THROUGHPUT_GOAL = 0.85
FAULTS_PER_MINUTE = 10.0

RESET_FAULTS = frozenset(
    {
        InjectedFault.FAILED_RESET,
        InjectedFault.NEVER_READY,
        InjectedFault.READY_TOO_EARLY,
        InjectedFault.DIRTY_RESET,
        InjectedFault.POPUP,
        InjectedFault.SLOW_START,
    }
)
"""Faults of a reset. A reset is repeated within its attempt, so these spend no attempt by themselves."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One stored trajectory."""

    environment: str
    began_unix_s: float
    """When its start screen was there: the environment worked."""
    stored_unix_s: float


def recovery_s(fault: Fault, episodes: Sequence[Episode], commits: Sequence[float]) -> float | None:
    """From a fault to the first real work after it; None when there was none.

    An environment shows the first screen of an episode that gets stored; so does any environment after the
    store, the curator or a supervisor was hit. The trainer commits an update (its wait for a batch included);
    a rollout actor has proved itself by a generate and has requests again; weight_sync has every engine at
    the newest version; after a full disk or a lock, a trajectory is stored.
    """
    if fault.kind in LASTS_S:
        return _first(fault.unix_s, (episode.stored_unix_s for episode in episodes), fault.unix_s)
    if fault.ready_after_s is None:
        return None
    if is_any(fault.victim, "rollout-") or fault.victim == "weight_sync":
        return fault.served_after_s
    back_unix_s = fault.unix_s + fault.ready_after_s
    if fault.victim == "trainer":
        return _first(back_unix_s, commits, fault.unix_s)
    starts = (
        episode.began_unix_s
        for episode in episodes
        if not is_any(fault.victim, "env-") or episode.environment == fault.victim
    )
    return _first(back_unix_s, starts, fault.unix_s)


def injected_recovery_s(injection: Injection, episodes: Sequence[Episode]) -> float | None:
    """From a fault inside an environment to the first screen of its next episode that gets stored."""
    own = (episode.began_unix_s for episode in episodes if episode.environment == injection.environment)
    return _first(injection.unix_s, own, injection.unix_s)


def _first(after: float, moments: Any, since: float) -> float | None:
    later = [moment for moment in moments if moment >= after]
    return min(later) - since if later else None


def group_name(victim: str) -> str:
    """`env-003` and its like under one name."""
    return next((prefix + "N" for prefix in ("env-", "rollout-") if is_any(victim, prefix)), victim)


def recoveries(
    faults: Sequence[Fault],
    injections: Sequence[Injection],
    episodes: Sequence[Episode],
    commits: Sequence[float],
) -> dict[str, list[float | None]]:
    """Times to recovery by kind."""
    found: defaultdict[str, list[float | None]] = defaultdict(list)
    for fault in faults:
        grouped = replace(fault, victim=group_name(fault.victim)).what
        found[grouped].append(recovery_s(fault, episodes, commits))
    for injection in injections:
        found[f"injected {injection.kind.value}"].append(injected_recovery_s(injection, episodes))
    return dict(sorted(found.items()))


def faulted_and_stored(store: Path, injections: Sequence[Injection]) -> list[tuple[int, int]]:
    """Leases (rollout, fence) in which a fault struck and which became a trajectory all the same.

    A reset that fails strikes no episode: it is tried again, from nothing, before there is one.
    """
    struck = {
        (injection.rollout_id, injection.fence)
        for injection in injections
        if injection.rollout_id and injection.kind not in RESET_FAULTS
    }
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        stored = set(connection.execute("SELECT rollout_id, fence FROM trajectories"))
    return sorted(struck & stored)


def episodes_of(store: Path) -> list[Episode]:
    """The stored episodes; each begins when its first screen, that after the reset, was observed."""
    query = """
        SELECT environment, started_unix_s, steps_sha256, stored_unix_s FROM trajectories
    """
    with (
        closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection,
        StoreReader(store) as reader,
    ):
        return [
            Episode(environment, started_unix_s + reader.steps(sha256)[0].observe_ms / 1000, stored_unix_s)
            for environment, started_unix_s, sha256, stored_unix_s in connection.execute(query)
        ]


def useful_actions(store: Path, begins_unix_s: float, ends_unix_s: float) -> int:
    """Environment steps that entered updates committed in this time."""
    return sum(
        episode.num_steps
        for episode in runs.finished_trajectories(store)
        if episode.trained_unix_s is not None and begins_unix_s < episode.trained_unix_s <= ends_unix_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was promised of one thing, and whether it was kept."""

    what: str
    found: str
    is_kept: bool


def conclude(program: str, seed: int, found: Mapping[str, Any], judged: Sequence[Verdict], out: Path) -> int:
    """Write what was found and what it is worth; the exit code: 1 when something was not kept."""
    whole = {
        "command": " ".join([f"python -m benchmarks.{program}", *sys.argv[1:]]),
        "machine": machine(),
        "seed": seed,
        "verdicts": [asdict(verdict) for verdict in judged],
        **found,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"written to {out}")
    return int(not all(verdict.is_kept for verdict in judged))


def verdicts(outcome: Mapping[str, Any], minutes: float) -> list[Verdict]:
    """Everything that must hold."""
    books, left = outcome["audit"], outcome["left_behind"]
    never_back = [kind for kind, times in outcome["recovery_s"].items() if None in times]
    is_long = minutes >= JUDGED_FROM_MINUTES
    wanted = int(FAULTS_PER_MINUTE * minutes)
    ratio = outcome["throughput_ratio"]
    code, hangs = outcome["exit_code"], outcome["hangs"]
    left_out = [f"{one['kind']} {one['victim']}".strip() for one in outcome["never_due"]]
    faulted, unhealed = outcome["faulted_and_stored"], outcome["unhealed"]
    found = [
        Verdict(
            what="the run under faults finishes",
            found=hangs.get("under faults") or f"exit code {code}",
            is_kept=code == 0,
        ),
        Verdict(what="rollouts lost: 0", found=str(books["lost"]), is_kept=books["lost"] == 0),
        Verdict(what="rollouts doubled: 0", found=str(books["doubled"]), is_kept=books["doubled"] == 0),
        Verdict(
            what="the record's audit finds nothing",
            found="; ".join(books["violations"]) or "nothing",
            is_kept=not books["violations"],
        ),
        Verdict(what="processes left behind: 0", found=str(list(left.values()) or 0), is_kept=not left),
        Verdict(what="faulted attempts stored: 0", found=str(faulted or 0), is_kept=not faulted),
        Verdict(
            what="every victim serves again", found=", ".join(never_back) or "yes", is_kept=not never_back
        ),
        Verdict(what="everything planned was done", found=", ".join(left_out) or "yes", is_kept=not left_out),
        Verdict(
            what="every fault has its recovery event, and work after it",
            found=", ".join(unhealed) or "yes",
            is_kept=not unhealed,
        ),
    ]
    if not outcome["is_alone"]:
        beside = outcome["exit_code_beside"]
        words = hangs.get("beside") or f"exit code {beside}"
        found.insert(1, Verdict(what="so does the one beside it", found=words, is_kept=beside == 0))
    if is_long:
        found += [
            Verdict(
                what="every kind of injected fault happened",
                found=", ".join(outcome["never_injected"]) or "yes",
                is_kept=not outcome["never_injected"],
            ),
            Verdict(
                what=f"at least {wanted} faults",
                found=str(outcome["faults"]),
                is_kept=outcome["faults"] >= wanted,
            ),
            Verdict(
                what=f"useful throughput at least {THROUGHPUT_GOAL:.0%} of the run beside it",
                found="not known" if ratio is None else f"{ratio:.1%}",
                is_kept=ratio is not None and ratio >= THROUGHPUT_GOAL,
            ),
        ]
    return found


def table(outcome: Mapping[str, Any], judged: Sequence[Verdict]) -> str:
    """For people."""
    minutes = outcome["minutes"]
    lines = [*recovery_lines(outcome["faults"], minutes, outcome["recovery_s"]), *outcome["witness"]]
    ratio, beside = outcome["throughput_ratio"], outcome["useful_actions_beside"]
    lines.append(
        f"useful actions a minute: {outcome['useful_actions'] / minutes:.1f}"
        + ("" if beside is None else f"; beside it, without faults: {beside / minutes:.1f}")
        + ("" if ratio is None else f" ({ratio:.1%})")
    )
    return "\n".join([*lines, books_line(outcome["audit"]), *verdict_lines(judged)])


def recovery_lines(
    faults: int, minutes: float, recovery_s: Mapping[str, Sequence[float | None]]
) -> list[str]:
    """How often what was done, and how long until work went on."""
    lines = [f"{faults} faults in {minutes:.1f} minutes; seconds until the first real work after each:"]
    lines.append(f"    {'':38}{'count':>7}{'median':>9}{'worst':>9}")
    for kind, times in recovery_s.items():
        known = [found for found in times if found is not None]
        if known:
            median, _, _ = runs.median_and_quartiles(known)
            lines.append(f"    {kind:38}{len(times):7}{median:9.2f}{max(known):9.2f}")
        else:
            lines.append(f"    {kind:38}{len(times):7}{'never':>9}")
    return lines


def books_line(books: Mapping[str, Any]) -> str:
    """Where every rollout that was ever issued is."""
    return (
        f"issued {books['issued']} = trained {books['trained']} + dropped {books['dropped']} + "
        f"stored {books['stored']} + leased {books['leased']}"
    )


def verdict_lines(judged: Sequence[Verdict]) -> list[str]:
    """What was kept, and what was not."""
    return [f"{'kept  ' if v.is_kept else 'BROKEN'}  {v.what}: {v.found}" for v in judged]
