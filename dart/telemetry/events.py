"""The kinds of events that a run records, with their fields and log levels.

docs/reference/events.md is generated from this module. A test compares the module with the events that the
code emits (`dart.telemetry.emit`).
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
SCREENSHOTS_LOST = "screenshots_lost"
BLOBS_OWNED = "blobs_owned"
VERSION_SET_ASIDE = "version_set_aside"
PRIOR_CONTEXT_REFUSED = "prior_context_refused"
SIDECAR_UP = "sidecar_up"
SIDECAR_DOWN = "sidecar_down"


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event."""

    about: str
    """What happened, and when the event is recorded."""
    subject: str
    """What the subject of the event names, such as a task or an actor."""
    fields: Mapping[str, str]
    """The meaning of each field of the event, by name. Fields `…_s` are in seconds, `…_unix_s` are times in
    unix seconds."""
    level: Literal["info", "warning", "error"] | None = "warning"
    """Level of the event's line in the log; None for events that are recorded every few seconds and are not
    logged."""


KINDS: Mapping[str, EventKind] = {
    LOAD: EventKind(
        level=None,
        about="How busy an actor was since it started. Recorded every `telemetry.load_every_s` and when the "
        "actor stops.",
        subject="the actor",
        fields={
            "wall_s": "time since the actor started",
            "in_episode_s": "environments: in an episode, from its first moment to its last",
            "strict_s": "environments: in reset, step, observe and evaluate only",
            "engine_wait_s": "environments: waiting for an answer of the policy",
            "idle_s": "environments: without work",
            "turn_resumes": "environments: number of faults after which an episode went on in the same step "
            "(`environments.turn_resumes`)",
            "steps_saved": "environments: number of steps that were replayed after these faults, instead of "
            "being played anew",
            "busy_s": "engines: answering at least one request; requests that wait for a load or a hold do "
            "not count",
            "weighted_s": "engines: the number of requests being answered divided by `rollout.max_batch`, "
            "summed over time",
            "requests": "engines: number of answers given",
            "tokens": "engines: number of tokens in these answers",
            "load_s": "engines: reading and checking a policy version while they answer",
            "swap_s": "engines: answering nothing while they take over a policy version",
            "loads": "engines: number of policy versions taken over",
            "out_s": "engines: getting no new requests, because of a load or for any other reason",
            "update_s": "trainer: in an update",
            "starved_s": "trainer: waiting for a batch",
            "blocked_s": "trainer: waiting for anything else",
            "writing_s": "trainer: writing and committing a version, mostly while it computes an update",
        },
    ),
    STARVED: EventKind(
        about="The run stalls: the trainer, episodes or environments have waited longer than "
        "`curation.starved_after_s`. Recorded when the stall begins, again after intervals that double (at "
        "most an hour), and when the stall ends.",
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
        about="An alarm is raised, because learning goes wrong although every process is healthy, or is "
        "cleared (docs/alarms.md).",
        subject="the name of the alarm",
        fields={
            "stage": "whether the alarm is `raised` or `cleared`",
            "text": "what was measured, in words",
            "value": "what was measured, as a number",
            "threshold": "the value at which the alarm is raised, from the section `alarms`",
            "remedy": "what to do",
        },
    ),
    PAUSED: EventKind(
        about="An actor continues after the disk was full, another process had locked the record, or the "
        "record's server or the object storage did not answer.",
        subject="the actor that waited",
        fields={
            "began_unix_s": "when the wait began",
            "paused_s": "how long the actor waited",
            "reason": "what refused the read or write, in the words of the error",
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
            "lease_s": "how long the trainer may hold the batch",
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
            "reason": "`damaged_screenshot`, `damaged_steps`, `malformed_step`, `nothing_to_learn` or "
            "`not_finite`; `stale` if curation.staleness was lowered while the trainer held the batch: its "
            "groups are then judged anew",
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
            "seed": "the held-out seed of the episode",
            "is_greedy": "whether the episode was played with the most likely answers",
            "kind": "the kind of fault: `infrastructure`, `system`, `policy`, `evaluator` or `task`; or "
            "`interrupted`: the environment was asked to stop, which spends no attempt",
            "detail": "the whole message",
            "attempts": "attempts spent so far",
            "is_left_out": "whether the episode is not played again",
        },
    ),
    WORK_HELD: EventKind(
        about="An operator pauses or resumes the run, or an alarm of `alarms.pause` pauses it. The newest of "
        "these events says whether the run is paused, also after a restart.",
        subject="the curator, which leases all work",
        fields={
            "is_held": "whether the run is paused: no new episode and no new update begins",
            "alarm": "the alarm that paused the run; empty for an operator",
        },
    ),
    POOLS_SIZED: EventKind(
        level="info",
        about="How many environments and engines the run uses from now on. Recorded when one of the numbers "
        "changes, during the run or at its start.",
        subject="the root supervisor",
        fields={"environments": "number of environments", "engines": "number of engines"},
    ),
    CHECKPOINT_RESTORED: EventKind(
        level="error",
        about="At a start the newest checkpoint was damaged. Training continues from the newest whole one. "
        "The updates between the two are lost, and an evaluation of the newest one is played again.",
        subject="the trainer",
        fields={
            "version": "the newest version; its checkpoint is now a copy of an older one",
            "from_version": "the version whose checkpoint was copied",
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
    SCREENSHOTS_LOST: EventKind(
        about="At a start screenshots that the run still needs were missing or damaged, as after a power "
        "failure. The run continues: the trainer drops the groups that name them. Recorded at each start "
        "until no episode or demonstration in use names them.",
        subject="the store",
        fields={
            "screenshots": "how many screenshots were missing or damaged, of those that the start checked",
            "detail": "the first of them, with what is wrong with each",
        },
    ),
    BLOBS_OWNED: EventKind(
        level="info",
        about="The run took a prefix of object storage for its blobs. Recorded when the run begins.",
        subject="the store",
        fields={
            "token": "a random text that is also in the object `owner` of the prefix, so that no other run "
            "uses the prefix",
            "blobs": "the address of the prefix, `run.blobs`",
        },
    ),
    VERSION_SET_ASIDE: EventKind(
        level="warning",
        about="Object storage had a version that the record does not have: its update was not committed when "
        "the trainer ended, or the record is a restored, older copy. The files of the version are kept, but "
        "it does not belong to the run until the run makes this version anew.",
        subject="the trainer",
        fields={
            "version": "the version",
            "committed": "the newest version of the record",
            "place": "the list of its files in object storage; the files are beside it",
        },
    ),
    PRIOR_CONTEXT_REFUSED: EventKind(
        about="An engine refused the text that tells the policy what was tried on a screen "
        "(`exploration.prior_context_bytes`), mostly because the prompt is too long. The policy was asked "
        "without the text, and exploration goes on.",
        subject="the explorer",
        fields={
            "screen": "the screen of the exploration graph",
            "bytes": "size of the refused text",
            "reason": "the engine's message",
        },
    ),
    SIDECAR_UP: EventKind(
        level="info",
        about="A sidecar has begun to work (the page, the inspection endpoint, or the writers of "
        "`tracking`), or the control endpoint serves again after a defect.",
        subject="`web`, `inspection`, `tracking` or `control`",
        fields={"text": "the address of the page or endpoint, or what is written into which folder"},
    ),
    SIDECAR_DOWN: EventKind(
        about="A sidecar or the control endpoint waits for something, or ended and is started again. The run "
        "continues.",
        subject="`web`, `inspection`, `tracking` or `control`",
        fields={"text": "what the sidecar or endpoint waits for, or how it ended and when it starts again"},
    ),
    ENGINE_STATE: EventKind(
        level="info",
        about="The state of an engine changes to healthy, updating, stale, suspect or dead.",
        subject="the rollout actor that owns the engine",
        fields={
            "state": "the new state: `healthy`, `updating`, `stale`, `suspect` or `dead`",
            "before": "the state before; empty when the engine is first up",
            "reason": "why the engine is not healthy",
            "version": "the policy version that the engine serves; -1 while its actor does not run",
            "required": "the oldest version that may still be served",
            "since_unix_s": "when the change was noticed",
        },
    ),
}


USER_VISIBLE = tuple(kind for kind in KINDS if kind != LOAD)
"""The kinds that are shown to users and counted: all except LOAD, which is recorded every few seconds."""

REPORTS: Mapping[str, str] = {
    "child_terminated": "An actor failed. It is started again, unless the restart budget of its supervisor "
    "is spent.",
    "start_error": "An actor, or its replacement, could not be started.",
    "shutdown_error": "An actor that was asked to stop crashed, or was killed because it took too long.",
    "child_quarantined": "An actor failed too often and stays down for a while: its circuit breaker is open.",
    "retired": "An actor is replaced by a fresh one: it is old, or was used often.",
    "preempted": "A SIGTERM announced that an actor's process will be taken away: the actor is stopped in "
    "order and started again.",
    "outage": "More actors of a pool than `max_failing` failed within a minute: only the named actor is "
    "tried, while the others wait.",
    "outage_over": "The named actor stays up again: the outage of its pool is over, and the others are "
    "started.",
    "shutdown": "A supervisor gave up: the actor failed once more than its budget allows.",
}
"""For each kind of report about an actor: when a supervisor writes it (`supervision.reports`).

Reports are kept in `reports/` of the run directory and shown together with the events.
"""

REPORT_FIELDS: Mapping[str, str] = {
    "supervisor": "the supervisor that wrote the report",
    "reason": "why this happened",
    "incarnation": "the incarnation of the actor",
    "pid": "the process of the actor",
    "exit_code": "how the process ended; null when a signal ended it",
    "signal": "the signal that ended the process; null when no signal did",
    "chain": "if the actor is a supervisor: the reasons of the failures below it that caused its own end, "
    "nearest first",
}
"""The fields of every report about an actor."""
