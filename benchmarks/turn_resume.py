"""What replaying an episode after a killed browser saves: `python -m benchmarks.turn_resume`

Real runs of `dartrl train` on three MiniWoB++ tasks of three to five steps, with the base policy and real
browsers. In a share of the episodes the browser is killed (`environments.faults.crash`). The runs differ by
`environments.turn_resumes` alone, 0 and 2, and take turns, as many rounds as asked for. Nothing is trained:
a run ends after the same number of stored environment steps, before its first batch is complete.

The figure is answers of the policy per stored environment step: an attempt that is played anew asks for its
answers again. It counts work, not seconds, so a busy machine does not change it. Beside it: how many steps
were replayed instead, attempts that were spent, and resumes that failed because a screen differed.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.actors import machine
from benchmarks.runs import REPOSITORY, Run, discard, training
from dart.inspect.utilisation import TimeWindow, spent, total
from dart.store.reader import StoreReader
from dart.telemetry.load_meter import LOAD

CONFIG = REPOSITORY / "configs" / "laptop.toml"
OUT = Path(__file__).parent / "out" / "turn_resume.json"
ARMS = (0, 2)
"""Values of environments.turn_resumes."""

CRASH_SHARE = 0.3
"""Share of episodes in which the browser is killed, at an operation that the plan draws."""

OVERRIDES: Mapping[str, Any] = {
    "tasks.train": ["miniwob/enter-text", "miniwob/enter-password", "miniwob/login-user"],
    "environments.count": 3,
    "environments.faults.enabled": True,
    "environments.faults.crash": CRASH_SHARE,
    **dict.fromkeys(
        (
            *("environments.faults.hang", "environments.faults.lost_action"),
            *("environments.faults.doubled_action", "environments.faults.frozen_frame"),
            *("environments.faults.failed_reset", "environments.faults.bad_evaluation"),
        ),
        0.0,
    ),
    "curation.task_quarantine.enabled": False,
    "supervision.environment_pool.backoff.initial_s": 0.1,
    "supervision.environment_pool.backoff.max_s": 0.5,
    "training.groups_per_update": 1000,
    "evaluation.before": False,
    "evaluation.after": False,
    "telemetry.load_every_s": 1.0,
    "run.minutes": 30.0,
}

RUN_DEADLINE_S = 2000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one run did."""

    turn_resumes: int
    seed: int
    stored_steps: int
    answers: int
    """Answers that the engine gave."""
    resumed: int
    """Faults after which an episode went on in its step."""
    steps_saved: int
    """Steps that were replayed then."""
    attempts_spent: int
    replays_that_differed: int

    @property
    def answers_per_step(self) -> float:
        return self.answers / self.stored_steps if self.stored_steps else math.nan


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--actions", type=int, default=400, help="stored environment steps of each run")
    parser.add_argument("--quick", action="store_true", help="one round of few steps: only to see it work")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rounds, actions = (1, 30) if options.quick else (options.rounds, options.actions)
    found: list[Work] = []
    with tempfile.TemporaryDirectory(prefix="turn-resume-") as folder:
        for seed in range(rounds):
            for resumes in ARMS:
                found.append(measure(Path(folder) / f"{resumes}-{seed}", resumes, seed, actions))
                print(line(found[-1]), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    written = {"machine": machine(), "crash": CRASH_SHARE, "runs": [asdict(one) for one in found]}
    options.out.write_text(json.dumps(written, indent=1) + "\n")
    print(table(found))
    return 0


def measure(directory: Path, resumes: int, seed: int, actions: int) -> Work:
    """One run to its end. Raises RuntimeError if it fails."""
    changed = {
        "environments.turn_resumes": resumes,
        "environments.faults.seed": seed,
        "run.seed": seed,
        "training.actions": actions,
    }
    with training(CONFIG, directory, {**OVERRIDES, **changed}) as run:
        give_up_s = time.monotonic() + RUN_DEADLINE_S
        while not run.is_over and time.monotonic() < give_up_s:
            time.sleep(0.5)
        if run.process.poll() != 0:
            raise RuntimeError(f"the run ended with {run.process.poll()}: {run.last_words()}")
        work = work_of(run, resumes, seed)
    discard(run)
    return work


def work_of(run: Run, resumes: int, seed: int) -> Work:
    """Count what a run did, by its record and its logs."""
    with StoreReader(run.paths.store) as record:
        events = record.find_events(kinds=(LOAD,), limit=10**6)
        counted = spent(events, TimeWindow(begins_unix_s=0.0, ends_unix_s=math.inf))
        totals = record.totals()
    logs = run.paths.logs.glob("env-*.jsonl*")
    return Work(
        turn_resumes=resumes,
        seed=seed,
        stored_steps=totals.steps,
        answers=round(total(counted, "rollout-", "requests")),
        resumed=round(total(counted, "env-", "turn_resumes")),
        steps_saved=round(total(counted, "env-", "steps_saved")),
        attempts_spent=sum(totals.faults.values()),
        replays_that_differed=sum(log.read_text().count("turn_not_resumed") for log in logs),
    )


def line(work: Work) -> str:
    return (
        f"turn_resumes {work.turn_resumes}, seed {work.seed}: {work.answers} answers for "
        f"{work.stored_steps} stored steps ({work.answers_per_step:.3f}), {work.resumed} resumed, "
        f"{work.steps_saved} steps saved, {work.attempts_spent} attempts spent, "
        f"{work.replays_that_differed} replays differed"
    )


def table(found: Sequence[Work]) -> str:
    """The sums over all rounds, side by side."""
    lines = [
        "| turn_resumes | answers per stored step | resumed | steps saved | attempts spent |",
        "|---|---|---|---|---|",
    ]
    for resumes in ARMS:
        own = [one for one in found if one.turn_resumes == resumes]
        answers, steps = sum(one.answers for one in own), sum(one.stored_steps for one in own)
        lines.append(
            f"| {resumes} | {answers / steps if steps else math.nan:.3f} | {sum(one.resumed for one in own)} "
            f"| {sum(one.steps_saved for one in own)} | {sum(one.attempts_spent for one in own)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
