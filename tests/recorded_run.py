"""A small run that was never run: made by the store's own API, a board and a few files, in milliseconds."""

import hashlib
import json
import os
import time
from pathlib import Path

from actors.board import ActorState, Board
from dart.config.config import load_config
from dart.core.records import DecisionKind, Evaluation, EvaluationPhase, EvaluationPlay, TaskDecision
from dart.core.run_directory import RunPaths
from dart.core.types import Demonstration, FaultKind, Outcome, RolloutLease, Step, Trajectory
from dart.store.blobs import STEPS, FolderBlobs
from dart.store.serialization import pack_steps
from dart.store.store import Store
from dart.telemetry.load_meter import LOAD
from supervision import reports
from tests.pictures import png

TASKS = ("miniwob/click-test-2", "miniwob/enter-text")
ANSWERS = ("click(start_box='(80,60)')", "type(content='<b>\"quoted\" & long</b>')", "finished()")
ACTORS = ("store", "curator", "rollout-0", "weight_sync", "env-000", "env-001", "trainer")
HOSTILE = "</script><script>alert(1)</script>"
"""An instruction as a page could have it."""

NO_PID = 2**22 + 1
"""No process has it: Linux gives none above 2**22."""


def record_run(root: Path) -> RunPaths:
    """Two tasks, four groups, one update, faults, decisions, a demonstration, a board and logs."""
    paths = RunPaths(root)
    for folder in paths.folders:
        folder.mkdir(parents=True)
    config = load_config(None, [f"run.dir='{root}'", f"tasks.train={json.dumps(TASKS)}"])
    paths.config.write_text(config.to_toml())
    now_s = time.time()
    paths.lock.write_text("1\n")
    os.utime(paths.lock, (now_s - 90.0, now_s - 90.0))  # taken before its actors were started
    (paths.root / "processes.json").write_text('{"launcher": [1, 0]}')
    session = {"elapsed_s": 90.0, "budget_s": 600.0, "started_unix_s": now_s - 90.0, "used_before_s": 0.0}
    (root / "session.json").write_text(json.dumps({**session, "training_ends_unix_s": now_s + 500.0}))
    _record(paths)
    _board(paths, now_s)
    return paths


def _record(paths: RunPaths) -> None:
    blobs = FolderBlobs(paths.blobs)
    with Store(paths.store) as store:
        store.add_version()
        for task_id in TASKS:
            for reward in (0.0, 1.0):
                evaluation = Evaluation(
                    phase=EvaluationPhase.BEFORE,
                    policy_version=0,
                    task_id=task_id,
                    seed=int(reward),
                    reward=reward,
                )
                store.record_evaluation(evaluation, _play(blobs, reward) if task_id == TASKS[0] else None)
        groups = [store.open_group(TASKS[index % 2], 100 + index, 2, 4, 0) for index in range(4)]
        for group_id in groups:
            for member in range(2):
                lease = store.lease_rollout(group_id, f"env-00{member}", now_plus(60.0))
                if lease.rollout_id == 3:
                    store.release_rollout(3, 1, FaultKind.INFRASTRUCTURE, "the browser died", 5)
                    again = store.reassign_rollout(3, "env-001", now_plus(60.0))
                    assert isinstance(again, RolloutLease)
                    lease = again
                if lease.rollout_id == 8:
                    continue  # still played
                played = _trajectory(lease, blobs, reward=float(member))
                store.finish_rollout(lease.rollout_id, lease.fence, played)
        batch = store.lease_batch(groups[:2], now_plus(60.0))
        figures = {"staleness_mean": 0.5, "staleness_p95": 1.0, "staleness_max": 1.0, "staleness_bound": 4.0}
        store.commit_update(batch.batch_id, batch.fence, 1, figures)
        store.drop_group(groups[2], "no_spread")
        store.add_demonstrations([_demonstration(blobs)])
        store.record_decisions([_decision()])
        for actor in ("env-000", "rollout-0", "trainer"):
            for wall_s in (5.0, 10.0):
                busy = {"in_episode_s": 0.5, "busy_s": 0.3, "update_s": 0.2}
                store.record_event(LOAD, actor, {"wall_s": wall_s} | {k: v * wall_s for k, v in busy.items()})
        store.record_event("engine_state", "rollout-0", {"state": "suspect", "reason": HOSTILE})


def _play(blobs: FolderBlobs, reward: float) -> EvaluationPlay:
    """How an evaluation episode was played, with one step or two."""
    steps = tuple(_step(blobs, 50 + int(reward), index) for index in range(1 + int(reward)))
    return EvaluationPlay(
        environment="env-001",
        instruction=f"Click {HOSTILE}",
        outcome=Outcome.TERMINATED if reward else Outcome.PARSE_ERROR,
        num_steps=len(steps),
        steps_sha256=FolderBlobs(blobs.root / STEPS.folder, STEPS).put(pack_steps(steps)),
        started_unix_s=time.time() - 60.0,
        duration_s=1.5,
    )


def now_plus(seconds: float) -> float:
    return time.time() + seconds


def _trajectory(lease: RolloutLease, blobs: FolderBlobs, reward: float) -> Trajectory:
    return Trajectory(
        rollout_id=lease.rollout_id,
        group_id=lease.group_id,
        task_id=lease.task_id,
        seed=lease.seed,
        environment="env-000",
        instruction=f'Enter "x" {HOSTILE}',
        outcome=Outcome.FINISHED if reward else Outcome.STEP_CAP,
        reward=reward,
        steps=tuple(_step(blobs, lease.rollout_id, index) for index in range(len(ANSWERS))),
        started_unix_s=time.time() - 3.0,
        duration_s=2.5,
    )


def _step(blobs: FolderBlobs, rollout_id: int, index: int) -> Step:
    return Step(
        screenshot_sha256=blobs.put(png(160, 210, (40 * index + rollout_id) % 256)),
        prompt_ids=tuple(range(12)),
        token_ids=(4, 30, 80, 1),
        logprobs=(-0.01, -0.7, -2.0, 0.0),
        entropies=(0.1, 0.9, 1.4, 0.0),
        answer=ANSWERS[index],
        policy_version=0,
        observe_ms=12.0,
        generate_ms=30.5,
        act_ms=4.0,
    )


def _demonstration(blobs: FolderBlobs) -> Demonstration:
    return Demonstration(
        pool_id=0,
        task_id=TASKS[0],
        seed=7,
        origin="oracle",
        instruction="click",
        reward=1.0,
        steps=(_step(blobs, 99, 0),),
    )


def _decision() -> TaskDecision:
    return TaskDecision(
        task_id=TASKS[0],
        kind=DecisionKind.ROLLOUTS,
        before="8",
        after="4",
        reason=f"success 0.80 {HOSTILE}",
        policy_version=1,
        unix_s=time.time(),
    )


def _board(paths: RunPaths, now_s: float) -> None:
    board = Board.create(paths.board)
    for name in ("root", *ACTORS):
        parent = "launcher" if name == "root" else "environment_pool" if name.startswith("env-") else "root"
        slot = board.claim(name, parent)
        fields = {"ready": 1, "beat_ns": board.now_ns(), "pid": NO_PID, "started_unix_s": now_s - 60.0}
        board.set_state(slot, ActorState.RUNNING, **fields)
    slot = board.claim("environment_pool", "root")
    board.set_state(slot, ActorState.RUNNING, ready=1, beat_ns=board.now_ns(), started_unix_s=now_s - 60.0)
    ill = board.find("env-001")
    assert ill is not None
    board.set_state(ill, ActorState.BACKOFF, restarts=3, last_reason="signal 9", retry_unix_s=now_s + 5.0)
    board.close()
    offender = reports.Offender(id="env-001", incarnation=2, pid=NO_PID)
    reports.append(
        paths.root,
        reports.SupervisorReport(
            unix_s=now_s,
            supervisor="environment_pool",
            context="child_terminated",
            reason="signal 9",
            offender=offender,
            last_words=("Traceback", HOSTILE),
        ),
    )
    line = {"event": "actor_ready", "level": "info", "timestamp": "2026-11-21T13:45:13.94868Z", "pid": NO_PID}
    (paths.logs / "env-001.jsonl").write_text(f"{json.dumps(line)}\nno json {HOSTILE}\n")


def a_screenshot(paths: RunPaths) -> str:
    """The sha256 of one of its screenshots."""
    found = next(paths.blobs.glob("*/*.png"))
    assert hashlib.sha256(found.read_bytes()).hexdigest() == found.stem
    return found.stem
