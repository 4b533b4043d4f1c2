"""Why nothing is trained: what the curator's stall diagnosis concludes from the state of a run."""

from dataclasses import replace

from dart.curation.stall_diagnosis import Component, Playing, RunFacts, diagnose

WELL = RunFacts(
    starved_after_s=60.0,
    store=Component(name="store"),
    trainer=Component(name="trainer", version=12),
    weight_sync=Component(name="weight_sync"),
    engines=(Component(name="rollout-0", version=12),),
    environments=tuple(Component(name=f"env-{number:03d}") for number in range(8)),
    playing=tuple(
        Playing(environment=f"env-{number:03d}", what=f"rollout {number} of group 7 (click-tab)", for_s=8.0)
        for number in range(8)
    ),
)
WAITS = replace(WELL, trainer_waits_s=63.0, trainer_waits_because="3 of 16 groups are ready")

SEEN = {
    "a load that hangs": replace(
        WAITS, engines=(Component(name="rollout-0", ready=False, doing="load", doing_s=58.0),)
    ),
    "a full disk": replace(WAITS, paused="no space left on device"),
    "nothing to learn": replace(WAITS, groups_per_update=16, dropped={"no_spread": 21, "too_few": 1}),
    "too few environments": WAITS,
    "no part waits": WELL,
}


def main() -> None:
    for what, facts in SEEN.items():
        found = diagnose(facts)
        print(f"{what}:\n  {found.text if found else 'all is well'}\n")


if __name__ == "__main__":
    main()
