"""The kinds of events that a run records, with their fields and log levels.

docs/reference/events.md is generated from it. A test compares it with the events that the code emits
(`dart.telemetry.emit`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dart.telemetry.load_meter import LOAD

STARVED = "starved"
ALARM = "alarm"
PAUSED = "paused"
ENGINE_STATE = "engine_state"
TASK_QUARANTINED = "task_quarantined"
TASK_RELEASED = "task_released"
BATCH_OVERDUE = "batch_overdue"
BATCH_REFUSED = "batch_refused"
EVALUATION_FAILED = "evaluation_failed"
WORK_HELD = "work_held"
POOLS_SIZED = "pools_sized"
CHECKPOINT_RESTORED = "checkpoint_restored"
LOG_CUT = "log_cut"
BLOBS_OWNED = "blobs_owned"
VERSION_SET_ASIDE = "version_set_aside"
SIDECAR_UP = "sidecar_up"
SIDECAR_DOWN = "sidecar_down"


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event."""

    about: str
    """When the event is recorded."""
    subject: str
    """What the event's subject names."""
    fields: Mapping[str, str]
    """Name to meaning, units included."""
    level: Literal["info", "warning", "error"] | None = "warning"
    """Level of its log line; None for events every few seconds, which are not logged."""


KINDS: Mapping[str, EventKind] = {
    LOAD: EventKind(
        level=None,
        about="How busy an actor was since it started; every `telemetry.load_every_s` and when it stops.",
        subject="the actor",
        fields={
            "wall_s": "time since the actor started",
            "in_episode_s": "environments: from the first moment of an episode to its last",
            "strict_s": "environments: in reset, step, observe and evaluate only",
            "engine_wait_s": "environments: waiting for an answer of the policy",
            "idle_s": "environments: without work",
            "turn_resumes": "environments: faults after which an episode went on in its step; "
            "`environments.turn_resumes`",
            "steps_saved": "environments: steps that were replayed then, instead of played anew",
            "busy_s": "engines: answering requests; those that wait for a load or a hold do not count",
            "weighted_s": "engines: the number of requests being answered divided by `rollout.max_batch`, "
            "summed over time",
            "requests": "engines: answers given",
            "tokens": "engines: tokens answered",
            "load_s": "engines: reading and checking a policy version beside their answers",
            "swap_s": "engines: standing still to take over a policy version",
            "loads": "engines: policy versions taken over",
            "out_s": "engines: not given new requests, for a load or for any other reason",
            "update_s": "trainer: in an update",
            "starved_s": "trainer: waiting for a batch",
            "blocked_s": "trainer: waiting for anything else",
            "writing_s": "trainer: writing and committing a version, for the most part beside its updates",
        },
    ),
    STARVED: EventKind(
        about="A component has waited longer than `curation.starved_after_s`: when that begins, again after "
        "intervals that double (at most an hour), and when it ends.",
        subject="who waits: `trainer`, `episodes` or `environments`",
        fields={
            "stage": "whether the wait `began`, `lasts` or `ended`",
            "cause": "the part to blame: `environments`, `engines`, `curator`, `store`, `trainer` or "
            "`weight_sync`",
            "text": "the whole message",
            "lasted_s": "time since the stall was first reported",
        },
    ),
    ALARM: EventKind(
        about="Something goes wrong with learning while every process is well, or that is over: an alarm is "
        "raised or cleared (docs/alarms.md).",
        subject="the name of the alarm",
        fields={
            "stage": "whether the alarm is `raised` or `cleared`",
            "text": "what was measured, in words",
            "value": "what was measured",
            "threshold": "the value at which the alarm is raised, by the section `alarms`",
            "remedy": "what to do",
        },
    ),
    PAUSED: EventKind(
        about="An actor continues after the disk was full, or the record was locked by another process.",
        subject="the actor that waited",
        fields={
            "began_unix_s": "when it began",
            "paused_s": "how long the actor waited",
            "reason": "what refused the write, and the remedy",
        },
    ),
    TASK_QUARANTINED: EventKind(
        about="A task is not played for a while: it costs rollouts or environments and teaches nothing.",
        subject="the task",
        fields={
            "reason": "the failures in a row that caused the quarantine",
            "until_unix_s": "when one group of the task is tried",
        },
    ),
    TASK_RELEASED: EventKind(
        level="info",
        about="A task that was in quarantine is played like the others again.",
        subject="the task",
        fields={"reason": "what released it"},
    ),
    BATCH_OVERDUE: EventKind(
        level="error",
        about="The trainer holds a batch for longer than `curation.batch_lease_s`; once for each lease.",
        subject="the trainer",
        fields={
            "batch": "the batch's id",
            "fence": "the number of the lease of this batch",
            "lease_s": "how long the batch may take",
        },
    ),
    BATCH_REFUSED: EventKind(
        level="error",
        about="A batch could not be trained: the groups to blame were dropped, the others stay available.",
        subject="the trainer",
        fields={
            "batch": "the batch's id",
            "groups": "the groups that were dropped",
            "demonstrations": "demonstrations of the experience pool that were taken out of use",
            "reason": "`damaged_screenshot`, `malformed_step`, `nothing_to_learn` or `not_finite`; `stale` "
            "where curation.staleness was lowered with the batch open: its groups are judged anew",
            "detail": "the whole message",
        },
    ),
    EVALUATION_FAILED: EventKind(
        about="An evaluation episode ended without a result. It is played again, or left out of the report's "
        "rate after `curation.max_attempts`; the report says how many were left out.",
        subject="the task",
        fields={
            "phase": "`before` or `after`",
            "version": "the newest policy version at that time",
            "seed": "its held-out seed",
            "is_greedy": "whether the episode was played with the most likely answers",
            "kind": "`infrastructure`, `system`, `policy`, `evaluator`, `task`, or `interrupted`: its "
            "environment was asked to stop, which spends no attempt",
            "detail": "the whole message",
            "attempts": "attempts spent so far",
            "is_left_out": "whether the episode is not played again",
        },
    ),
    WORK_HELD: EventKind(
        about="An operator pauses or resumes the run, or an alarm of `alarms.pause` pauses it. The newest "
        "event counts, also after a restart.",
        subject="the curator, which gives the work out",
        fields={
            "is_held": "whether the run is paused: no new episode and no new update begins",
            "alarm": "the alarm that paused the run; empty for an operator",
        },
    ),
    POOLS_SIZED: EventKind(
        level="info",
        about="How many environments and engines the run uses from now on. Recorded when a number changes, "
        "also at a start.",
        subject="the root",
        fields={"environments": "number of environments", "engines": "number of engines"},
    ),
    CHECKPOINT_RESTORED: EventKind(
        level="error",
        about="At a start the newest checkpoint was damaged. Training continues from the newest whole one. "
        "The updates between the two are lost.",
        subject="the trainer",
        fields={
            "version": "the newest version, whose checkpoint is a copy now",
            "from_version": "the version of which that checkpoint is a copy",
            "damage": "what was wrong with the damaged checkpoint",
            "damaged_folder": "where the damaged checkpoint is now, in the run directory; `status` and "
            "the page show a notice until that folder is removed",
        },
    ),
    LOG_CUT: EventKind(
        level="error",
        about="At a start the write-ahead log of the record was damaged, as by a power failure, and the run "
        "continues without the transactions after the damage.",
        subject="the store",
        fields={
            "damage": "what was wrong with the log, and how many transactions are lost",
            "copy": "a copy of the log as it was, in the run directory; `status` and the page show a "
            "notice until that file is removed",
        },
    ),
    BLOBS_OWNED: EventKind(
        level="info",
        about="The run took a prefix of object storage for its blobs. Recorded when the run begins.",
        subject="the store",
        fields={
            "token": "random; also in the object `owner` of the prefix, so that no other run uses it",
            "blobs": "the address of the prefix, `run.blobs`",
        },
    ),
    VERSION_SET_ASIDE: EventKind(
        level="warning",
        about="Object storage had a version that the record does not have: its update was not committed when "
        "the trainer ended, or the record is a restored, older copy. The version is kept, but is none of the "
        "run, until the run makes this version anew.",
        subject="the trainer",
        fields={
            "version": "the version",
            "committed": "the newest version of the record",
            "place": "the list of its files in object storage; the files are beside it",
        },
    ),
    SIDECAR_UP: EventKind(
        level="info",
        about="A sidecar works: the page, or the writers of `tracking`. Or the control endpoint serves again "
        "after a defect.",
        subject="`web`, `tracking` or `control`",
        fields={"text": "the address of the page or endpoint, or what is written into which folder"},
    ),
    SIDECAR_DOWN: EventKind(
        about="A sidecar or the control endpoint waits for something, or ended and is started again. The run "
        "continues.",
        subject="`web`, `tracking` or `control`",
        fields={"text": "what the sidecar or endpoint waits for, or how it ended and when it starts again"},
    ),
    ENGINE_STATE: EventKind(
        level="info",
        about="The state of an engine changes to healthy, updating, stale, suspect or dead.",
        subject="the rollout actor that owns the engine",
        fields={
            "state": "the new state: `healthy`, `updating`, `stale`, `suspect` or `dead`",
            "before": "the state before",
            "reason": "why the engine is not healthy",
            "version": "the policy version that the engine serves; -1 while its actor does not run",
            "required": "the oldest version that may still be served",
            "since_unix_s": "when the change was noticed",
        },
    ),
}


USER_VISIBLE = tuple(kind for kind in KINDS if kind != LOAD)
"""Kinds that are shown to people and counted: all but the load, which comes every few seconds."""

REPORTS: Mapping[str, str] = {
    "child_terminated": "An actor failed; it is started again as long as its supervisor's budget holds.",
    "start_error": "An actor, or its replacement, could not be started.",
    "shutdown_error": "An actor that was asked to stop crashed, or was killed because it took too long.",
    "child_quarantined": "An actor failed too often and stays down for a while: its circuit breaker is open.",
    "retired": "An actor is replaced by a fresh one: it is old, or was used often.",
    "shutdown": "A supervisor gave up: the actor failed once more than its budget allows.",
}
"""When a supervisor writes which report about an actor (`supervision.reports`).

Reports are kept in `reports/` and shown with the events.
"""

REPORT_FIELDS: Mapping[str, str] = {
    "supervisor": "who reported it",
    "reason": "why",
    "incarnation": "which incarnation of the actor",
    "pid": "its process",
    "exit_code": "how the process ended; null when a signal ended it",
    "signal": "the signal that ended the process; null when no signal did",
    "chain": "for a supervisor: the reasons of the ends below it that led to its own, nearest first",
}
"""The fields of every report about an actor."""
