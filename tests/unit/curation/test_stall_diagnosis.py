"""When a part waits too long, a message names the cause and the part to blame."""

from dataclasses import replace
from itertools import pairwise

import pytest

from dart.curation.stall_diagnosis import (
    Component,
    Diagnosis,
    Notices,
    Part,
    Playing,
    RunFacts,
    Since,
    Stage,
    Starving,
    diagnose,
)

AFTER_S = 60.0

WELL = RunFacts(
    starved_after_s=AFTER_S,
    groups_per_update=16,
    tasks=2,
    store=Component(name="store"),
    trainer=Component(name="trainer", version=12),
    weight_sync=Component(name="weight_sync"),
    engines=(Component(name="rollout-0", version=12), Component(name="rollout-1", version=12)),
    environments=tuple(Component(name=f"env-{number:03d}") for number in range(4)),
)
"""Every part works and none waits."""


def playing(count: int, for_s: float = 5.0) -> tuple[Playing, ...]:
    return tuple(
        Playing(environment=f"env-{n:03d}", what=f"rollout {n} of group 7 (t/a)", for_s=for_s)
        for n in range(count)
    )


def trainer_waits(
    facts: RunFacts, reason: str = "3 of 16 groups are ready", waits_s: float = 63.0
) -> RunFacts:
    return replace(facts, trainer_waits_s=waits_s, trainer_waits_because=reason)


def environments_wait(facts: RunFacts, reason: str, waits_s: float = 70.0) -> RunFacts:
    return replace(
        facts,
        waiting={part.name: waits_s for part in facts.environments},
        environments_wait_because={"env-000": reason},
    )


def engines(*changed: Component) -> tuple[Component, ...]:
    return changed


LOADING = Component(name="rollout-0", ready=False, unwell_s=58.0, doing="load", doing_s=58.0, version=11)
KILLED = Component(name="rollout-0", state="backoff", ready=False, unwell_s=80.0, reason="killed by SIGKILL")
QUARANTINED = Component(name="env-001", state="quarantined", ready=False, reason="exit code 70: no screen")
BOUND = "9 groups are live; one more could be older than 2 versions when it is trained"

CASES: dict[str, tuple[RunFacts, Starving, Part, str]] = {
    "the only engine hangs in a load": (
        replace(trainer_waits(WELL), engines=(LOADING,), playing=playing(4)),
        Starving.TRAINER,
        Part.ENGINES,
        "the trainer has waited 63 s for a batch; 3 of 16 groups are ready; "
        "4 of 4 environments wait for an answer; rollout-0 has been loading version 12 for 58 s "
        "(cause: engines)",
    ),
    "every engine is down and the trainer does not wait yet": (
        replace(WELL, engines=(KILLED, replace(KILLED, name="rollout-1", unwell_s=61.0)), playing=playing(3)),
        Starving.EPISODES,
        Part.ENGINES,
        "no engine has answered for 61 s; 3 of 4 environments wait for an answer; "
        "rollout-0 waits to be started again (killed by SIGKILL), "
        "rollout-1 waits to be started again (killed by SIGKILL) "
        "(cause: engines)",
    ),
    "one engine of two hangs": (
        replace(
            trainer_waits(WELL),
            engines=(
                Component(name="rollout-0", doing="generate", doing_s=45.0),
                Component(name="rollout-1"),
            ),
            playing=playing(4),
        ),
        Starving.TRAINER,
        Part.ENGINES,
        "the trainer has waited 63 s for a batch; 3 of 16 groups are ready; 4 of 4 environments play; "
        "rollout-0 has been generating an answer for 45 s (cause: engines)",
    ),
    "the only engine is stopped": (
        replace(
            WELL,
            engines=(Component(name="rollout-0", silent_s=64.0, unwell_s=62.0),),
            playing=playing(1),
        ),
        Starving.EPISODES,
        Part.ENGINES,
        "no engine has answered for 62 s; 1 of 4 environments waits for an answer; "
        "rollout-0 has given no sign of life for 64 s (cause: engines)",
    ),
    "no engine serves and nothing may be opened": (
        replace(environments_wait(WELL, "no engine serves a policy version yet"), engines=(KILLED,)),
        Starving.ENVIRONMENTS,
        Part.ENGINES,
        "env-000 has waited 70 s for work; no engine serves a policy version yet; "
        "0 of 4 environments wait for an answer, 4 wait for work; "
        "rollout-0 waits to be started again (killed by SIGKILL) (cause: engines)",
    ),
    "the disk is full": (
        replace(
            trainer_waits(WELL, "the store is paused"),
            paused="no space left on device for store.db",
            playing=playing(4),
        ),
        Starving.TRAINER,
        Part.STORE,
        "the trainer has waited 63 s for a batch; the store is paused; 4 of 4 environments play; "
        "the store takes no writes: no space left on device for store.db (cause: store)",
    ),
    "the store hangs": (
        replace(trainer_waits(WELL), store=Component(name="store", doing="FinishRollout", doing_s=31.0)),
        Starving.TRAINER,
        Part.STORE,
        "the trainer has waited 63 s for a batch; 3 of 16 groups are ready; 0 of 4 environments play; "
        "store has been at 'FinishRollout' for 31 s (cause: store)",
    ),
    "all tasks rest": (
        replace(
            environments_wait(WELL, "every task is in quarantine"),
            quarantined_tasks={"t/a": "20 attempts failed in a row", "t/b": "5 environments died"},
        ),
        Starving.ENVIRONMENTS,
        Part.CURATOR,
        "env-000 has waited 70 s for work; every task is in quarantine; "
        "0 of 4 environments play, 4 wait for work; all 2 tasks are in quarantine: "
        "t/a: 20 attempts failed in a row, t/b: 5 environments died (cause: curator)",
    ),
    "the trainer is slow": (
        replace(
            environments_wait(WELL, BOUND),
            trainer=Component(name="trainer", version=12, doing="update", doing_s=90.0),
        ),
        Starving.ENVIRONMENTS,
        Part.TRAINER,
        f"env-000 has waited 70 s for work; {BOUND}; 0 of 4 environments play, 4 wait for work; "
        "trainer has been at an update for 90 s (cause: trainer)",
    ),
    "the trainer does not come back": (
        replace(
            environments_wait(WELL, BOUND),
            trainer=Component(
                name="trainer", state="backoff", ready=False, reason="exit code 70: MemoryError"
            ),
        ),
        Starving.ENVIRONMENTS,
        Part.TRAINER,
        f"env-000 has waited 70 s for work; {BOUND}; 0 of 4 environments play, 4 wait for work; "
        "trainer waits to be started again (exit code 70: MemoryError) (cause: trainer)",
    ),
    "the bound is reached because one slow group must be awaited": (
        replace(
            trainer_waits(WELL, "group 7 (t/a) must be in the next batch and is still being played"),
            playing=playing(1, for_s=93.0),
            waiting={"env-001": 65.0, "env-002": 65.0, "env-003": 65.0},
        ),
        Starving.TRAINER,
        Part.ENVIRONMENTS,
        "the trainer has waited 63 s for a batch; "
        "group 7 (t/a) must be in the next batch and is still being played; "
        "1 of 4 environments plays, 3 wait for work; "
        "env-000 has been at rollout 0 of group 7 (t/a) for 93 s (cause: environments)",
    ),
    "an engine is left with an old version": (
        replace(
            environments_wait(WELL, BOUND),
            engines=(
                Component(name="rollout-0", version=9, behind_s=75.0),
                Component(name="rollout-1", version=12),
            ),
            weight_sync=Component(name="weight_sync", state="backoff", ready=False, reason="exit code 70"),
        ),
        Starving.ENVIRONMENTS,
        Part.WEIGHT_SYNC,
        f"env-000 has waited 70 s for work; {BOUND}; 0 of 4 environments play, 4 wait for work; "
        "rollout-0 has served version 9 for 75 s since the trainer made version 12, "
        "weight_sync waits to be started again (exit code 70) (cause: weight_sync)",
    ),
    "half of the environments are in quarantine": (
        replace(
            trainer_waits(WELL),
            environments=(
                Component(name="env-000"),
                QUARANTINED,
                replace(QUARANTINED, name="env-002"),
                Component(name="env-003"),
            ),
            playing=playing(2),
        ),
        Starving.TRAINER,
        Part.ENVIRONMENTS,
        "the trainer has waited 63 s for a batch; 3 of 16 groups are ready; "
        "2 of 4 environments play, 2 are down; 2 of 4 environments are down: "
        "env-001 is in quarantine (exit code 70: no screen), "
        "env-002 is in quarantine (exit code 70: no screen) (cause: environments)",
    ),
    "groups are finished and teach nothing": (
        replace(trainer_waits(WELL), playing=playing(4), dropped={"no_spread": 21, "too_few": 1}),
        Starving.TRAINER,
        Part.CURATOR,
        "the trainer has waited 63 s for a batch; 3 of 16 groups are ready; 4 of 4 environments play; "
        "since the last batch 22 finished groups were dropped: 21 no_spread, 1 too_few (cause: curator)",
    ),
    "nothing is stuck, the environments are too few": (
        replace(trainer_waits(WELL), playing=playing(4)),
        Starving.TRAINER,
        Part.ENVIRONMENTS,
        "the trainer has waited 63 s for a batch; 3 of 16 groups are ready; 4 of 4 environments play; "
        "nothing is stuck: 4 episodes at a time are too few (cause: environments)",
    ),
    "nothing is stuck and nothing is played": (
        environments_wait(WELL, BOUND),
        Starving.ENVIRONMENTS,
        Part.CURATOR,
        f"env-000 has waited 70 s for work; {BOUND}; 0 of 4 environments play, 4 wait for work; "
        "no part is stuck and the curator gives out no work (cause: curator)",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_starvation_is_told_with_its_cause(
    case: tuple[RunFacts, Starving, Part, str],
) -> None:
    facts, starving, part, text = case

    found = diagnose(facts)

    assert found is not None
    assert (found.starving, found.cause, found.text) == (starving, part, text)


HOURS = replace(WELL, starved_after_s=1800.0, update_deadline_s=21600.0)
"""The job of a large policy: its updates take an hour."""

AT_UPDATE = Component(name="trainer", version=12, doing="update", doing_s=5000.0)


def test_environments_may_wait_for_work_for_a_fifth_of_the_deadline_of_an_update() -> None:
    training = replace(HOURS, trainer=AT_UPDATE)

    assert diagnose(environments_wait(training, BOUND, waits_s=4319.0)) is None
    late = diagnose(environments_wait(training, BOUND, waits_s=4320.0))
    assert late is not None
    assert (late.starving, late.cause) == (Starving.ENVIRONMENTS, Part.TRAINER)


@pytest.mark.parametrize(
    "wrong",
    [
        {"paused": "no space left on device"},
        {"engines": (replace(KILLED, name="rollout-0"), replace(KILLED, name="rollout-1"))},
        {"quarantined_tasks": {"t/a": "20 attempts failed", "t/b": "5 environments died"}},
        {"engines": (Component(name="rollout-0", version=11, behind_s=1000.0),)},
        {"trainer": Component(name="trainer", state="backoff", ready=False)},
    ],
    ids=["store", "engines", "tasks", "weight sync", "trainer"],
)
def test_environments_may_not_wait_so_long_if_a_part_is_at_fault(wrong: dict[str, object]) -> None:
    facts = replace(HOURS, trainer=AT_UPDATE)

    assert diagnose(environments_wait(replace(facts, **wrong), BOUND, waits_s=1799.0)) is None  # type: ignore[arg-type]
    assert diagnose(environments_wait(replace(facts, **wrong), BOUND, waits_s=1800.0)) is not None  # type: ignore[arg-type]


def test_a_trainer_without_a_batch_is_reported_after_the_usual_time_also_if_updates_take_an_hour() -> None:
    assert diagnose(trainer_waits(HOURS, waits_s=1800.0)) is not None


def test_the_reason_is_that_of_the_environment_that_is_named() -> None:
    reasons = {"env-000": "every task is in quarantine", "env-001": BOUND}
    found = diagnose(replace(WELL, waiting={"env-001": 70.0}, environments_wait_because=reasons))
    assert found is not None
    assert found.text.startswith(f"env-001 has waited 70 s for work; {BOUND}; ")


def test_every_part_of_the_chain_has_a_case() -> None:
    assert {part for _, _, part, _ in CASES.values()} == set(Part)


@pytest.mark.parametrize(
    "facts",
    [
        WELL,
        replace(WELL, playing=playing(4, for_s=300.0)),
        trainer_waits(replace(WELL, engines=(LOADING,)), waits_s=AFTER_S - 0.1),
        environments_wait(WELL, BOUND, waits_s=AFTER_S - 0.1),
        replace(WELL, engines=(KILLED, Component(name="rollout-1")), playing=playing(4)),
        replace(WELL, engines=(KILLED,)),
    ],
    ids=["well", "long episodes", "trainer not yet", "environments not yet", "one engine left", "none plays"],
)
def test_nobody_starves_who_does_not_wait_or_has_not_waited_long(facts: RunFacts) -> None:
    assert diagnose(facts) is None


def test_many_parts_that_are_down_are_counted_and_not_all_listed() -> None:
    down = tuple(replace(QUARANTINED, name=f"env-{number:03d}", reason="") for number in range(180))

    found = diagnose(replace(trainer_waits(WELL), environments=down))

    assert found is not None
    assert found.text.endswith(
        "env-000 is in quarantine, env-001 is in quarantine, env-002 is in quarantine and 177 more "
        "(cause: environments)"
    )


def test_a_break_starts_the_time_anew() -> None:
    since = Since()

    assert since.seconds({"env-000", "env-001"}, 10.0) == {"env-000": 0.0, "env-001": 0.0}
    assert since.seconds({"env-000"}, 15.0) == {"env-000": 5.0}
    assert since.seconds({"env-000", "env-001"}, 20.0) == {"env-000": 10.0, "env-001": 0.0}


def a_diagnosis(cause: Part = Part.ENGINES) -> Diagnosis:
    return Diagnosis(starving=Starving.TRAINER, cause=cause, text="it waits")


def test_it_is_told_when_it_begins_after_intervals_that_double_and_when_it_ends() -> None:
    notices = Notices(first_s=60.0)

    due = [(now, notices.next(a_diagnosis(), now)) for now in range(0, 500, 10)]
    ended = notices.next(None, 500)

    assert [(now, notice.stage) for now, notice in due if notice] == [
        (0, Stage.BEGAN),
        (60, Stage.LASTS),
        (180, Stage.LASTS),
        (420, Stage.LASTS),
    ]
    assert ended is not None
    assert (ended.stage, ended.lasted_s) == (Stage.ENDED, 500)
    assert notices.next(None, 510) is None


def test_it_is_told_at_least_every_hour() -> None:
    notices = Notices(first_s=60.0)

    noticed = [now for now in range(0, 100_000, 60) if notices.next(a_diagnosis(), now)]

    assert max(later - earlier for earlier, later in pairwise(noticed)) == 3600


def test_another_cause_is_told_before_the_interval_is_over_but_not_every_moment() -> None:
    notices = Notices(first_s=60.0)
    for now in (0, 60):
        notices.next(a_diagnosis(), now)

    changing = [notices.next(a_diagnosis(part), now) for now, part in ((90, Part.STORE), (120, Part.STORE))]

    assert changing[0] is None
    assert changing[1] is not None
    assert changing[1].diagnosis.cause is Part.STORE


def test_after_its_end_it_begins_anew() -> None:
    notices = Notices(first_s=60.0)
    notices.next(a_diagnosis(), 0)
    notices.next(None, 10)

    again = notices.next(a_diagnosis(), 20)

    assert again is not None
    assert (again.stage, again.lasted_s) == (Stage.BEGAN, 0)
