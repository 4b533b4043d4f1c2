"""A training loop in one process for the benchmark of alarms: the real policy, engine, learner and record.

Tasks are drawn: a screen in two colours, and an instruction that names the half to click, or two halves one
after the other. The base policy clicks near the middle. One round plays groups until enough of them have
spread, or too many were played, and then makes one update. What a fault changes are the functions and
settings of `Faults`.
"""

import io
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageDraw

from dart.config.config import Config
from dart.core.actions import ActionParseError, Click, parse_actions
from dart.core.types import GenerateRequest, Generation, Group, Outcome, RolloutLease, Step, Trajectory
from dart.inference.transformers_engine import TransformersEngine
from dart.store.checkpoints import checkpoint_name, load_checkpoint
from dart.store.run_blobs import local_blobs
from dart.store.store import Store
from dart.training.learner import Learner
from dart.training.learner_factory import learner_config

WIDTH_PX, HEIGHT_PX = 160, 210

TASKS = {
    "drawn/left": ("left",),
    "drawn/right": ("right",),
    "drawn/top": ("top",),
    "drawn/both": ("bottom", "top"),
}
"""The halves to click, in order."""

STEP_CAP = 6
ROUND_GROUPS_MOST = 3
"""A round without enough spread ends after so many times the groups of an update."""


@dataclass(slots=True)
class Faults:
    """What a fault changes; as it is made, nothing."""

    reward: Callable[[str, float], float] = lambda task_id, reward: reward
    """What the evaluator says, by task and true reward."""
    trained: Callable[[Group], Group] = lambda group: group
    """What the trainer reads of a group."""
    answer: Callable[[Generation], Generation] = lambda generation: generation
    """What the engine records and says."""
    temperature: float = 1.0
    """Temperature of the engine; the trainer assumes 1."""
    keeps_weights: bool = False
    """Whether the engine goes on with the weights that it has, and says that they are the new version."""
    is_blind: bool = False
    """Whether every screenshot is the same and the instruction is missing."""
    is_deaf: bool = False
    """Whether clicks have no effect."""
    broken_tasks: frozenset[str] = frozenset()
    """Tasks of which clicks have no effect."""


@dataclass(slots=True)
class _Episode:
    lease: RolloutLease
    middle: tuple[int, int]
    """The point at which the halves meet."""
    missing: list[str]
    """The halves that are still to be clicked."""
    steps: list[Step] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    outcome: Outcome | None = None


class Loop:
    """One run. Its record, blobs and checkpoints are in `folder`."""

    def __init__(self, folder: Path, config: Config, seed: int, faults: Faults | None = None) -> None:
        """Begin a run, or go on with the one in the folder."""
        self.config = config
        self.faults = faults or Faults()
        self._folder = folder
        self._blobs = local_blobs(folder)
        self._store = Store(folder / "store.db")
        self._store.add_version()
        self._random = random.Random(f"{seed}/{len(self._store.finished_episodes())}")
        newest = self._store.latest_version()
        version = newest.version if newest else 0
        path = folder / "checkpoints" / checkpoint_name(version)
        resume = load_checkpoint(path) if version else None
        self._learner = Learner(config.training.policy, learner_config(config), resume=resume)
        self._engine = TransformersEngine(
            path if version else config.training.policy,
            version,
            screenshots=self._blobs.screenshots,
            seed=self._random.randrange(2**31),
        )
        self._tasks = list(TASKS)
        self._next_task = 0

    def close(self) -> None:
        self._store.close()

    @property
    def store(self) -> Store:
        return self._store

    @property
    def version(self) -> int:
        return self._learner.version

    def round(self) -> float:
        """Play until an update can be made, and make it; returns the share of successes."""
        training, curation = self.config.training, self.config.curation
        ready: list[int] = []
        played: list[Trajectory] = []
        for _ in range(ROUND_GROUPS_MOST):
            episodes = self._play(training.groups_per_update, curation.rollouts_per_group)
            for group_id, group in _by_group(episodes).items():
                if len({one.reward for one in group}) > 1:
                    ready.append(group_id)
                else:
                    self._store.drop_group(group_id, "no_spread")
            played += episodes
            if len(ready) >= training.groups_per_update:
                break
        if len(ready) >= training.groups_per_update:
            self._update(ready[: training.groups_per_update])
        for group_id in ready[training.groups_per_update :]:
            self._store.drop_group(group_id, "stale")
        return sum(one.reward > curation.success_above for one in played) / len(played)

    def _update(self, group_ids: Sequence[int]) -> None:
        batch = self._store.lease_batch(list(group_ids), 2e9)
        groups = [self.faults.trained(group) for group in self._store.groups_to_trajectories(group_ids)]
        report = self._learner.update(groups, self._blobs.screenshots)
        folder = self._learner.save(self._folder / "checkpoints")
        metrics = {
            name: float(value)
            for name in ("kl", "entropy", "grad_norm", "mismatch_engine", "mismatch_stale", "clip_fraction")
            if (value := getattr(report, name)) is not None
        }
        self._store.commit_update(batch.batch_id, batch.fence, report.version, metrics)
        if self.faults.keeps_weights:
            self._engine.version = report.version
        else:
            self._engine.load(folder, report.version)
        if report.version > 1:
            shutil.rmtree(self._folder / "checkpoints" / checkpoint_name(report.version - 1))

    def _play(self, groups: int, rollouts: int) -> list[Trajectory]:
        episodes = [one for _ in range(groups) for one in self._begun(rollouts)]
        while going := [one for one in episodes if one.outcome is None]:
            generations = self._engine.generate([self._request(one) for one in going])
            for episode, generation in zip(going, generations, strict=True):
                self._step(episode, self.faults.answer(generation))
        return [self._finished(one) for one in episodes]

    def _begun(self, rollouts: int) -> list[_Episode]:
        task_id = self._tasks[self._next_task % len(self._tasks)]
        self._next_task += 1
        seed = self._random.randrange(2**31)
        group_id = self._store.open_group(task_id, seed, rollouts, STEP_CAP, self._engine.version)
        draw = random.Random(seed)
        middle = (WIDTH_PX // 2 + draw.randrange(-24, 8), HEIGHT_PX // 2 + draw.randrange(-24, 24))
        leases = [self._store.lease_rollout(group_id, "env-000", 2e9) for _ in range(rollouts)]
        return [_Episode(lease, middle, list(TASKS[task_id])) for lease in leases]

    def _request(self, episode: _Episode) -> GenerateRequest:
        blind = self.faults.is_blind
        png = screenshot(None if blind else episode.middle, done=len(episode.history))
        target = " then ".join(TASKS[episode.lease.task_id])
        return GenerateRequest(
            screenshot_sha256=self._blobs.screenshots.put(png),
            instruction="" if blind else f"Click the {target} half.",
            history=() if blind else tuple(episode.history),
            temperature=self.faults.temperature,
        )

    def _step(self, episode: _Episode, generation: Generation) -> None:
        blind = self.faults.is_blind
        png = screenshot(None if blind else episode.middle, done=len(episode.history))
        episode.steps.append(
            Step(
                screenshot_sha256=self._blobs.screenshots.put(png),
                prompt_ids=generation.prompt_ids,
                token_ids=generation.token_ids,
                logprobs=generation.logprobs,
                entropies=generation.entropies,
                answer=generation.answer,
                policy_version=generation.policy_version,
                observe_ms=0.0,
                generate_ms=0.0,
                act_ms=0.0,
                images=generation.images,
            )
        )
        episode.history.append(generation.answer)
        episode.outcome = self._acted(episode, generation.answer)

    def _acted(self, episode: _Episode, answer: str) -> Outcome | None:
        """Apply an answer; returns how the episode ended, if it did."""
        try:
            actions = parse_actions(answer)
        except ActionParseError:
            return Outcome.PARSE_ERROR
        has_effect = not (self.faults.is_deaf or episode.lease.task_id in self.faults.broken_tasks)
        for action in actions:
            if isinstance(action, Click) and has_effect:
                if not is_in_half(episode.missing[0], action, episode.middle):
                    return Outcome.TERMINATED
                episode.missing.pop(0)
                if not episode.missing:
                    return Outcome.TERMINATED
        return Outcome.STEP_CAP if len(episode.steps) >= STEP_CAP else None

    def _finished(self, episode: _Episode) -> Trajectory:
        lease = episode.lease
        assert episode.outcome is not None
        trajectory = Trajectory(
            rollout_id=lease.rollout_id,
            group_id=lease.group_id,
            task_id=lease.task_id,
            seed=lease.seed,
            environment="env-000",
            instruction="",
            outcome=episode.outcome,
            reward=self.faults.reward(lease.task_id, float(not episode.missing)),
            steps=tuple(episode.steps),
            started_unix_s=0.0,
            duration_s=0.0,
        )
        self._store.finish_rollout(lease.rollout_id, lease.fence, trajectory)
        return trajectory


def _by_group(trajectories: Sequence[Trajectory]) -> dict[int, list[Trajectory]]:
    groups: dict[int, list[Trajectory]] = {}
    for one in trajectories:
        groups.setdefault(one.group_id, []).append(one)
    return groups


def is_in_half(half: str, click: Click, middle: tuple[int, int]) -> bool:
    """Whether a click is in the half of the screen that the name means."""
    at, limit = (click.x, middle[0]) if half in ("left", "right") else (click.y, middle[1])
    return at < limit if half in ("left", "top") else at >= limit


@lru_cache(maxsize=4096)
def screenshot(middle: tuple[int, int] | None, done: int) -> bytes:
    """A PNG of the quarters around `middle` with a mark for each action so far; None: an empty screen."""
    image = Image.new("RGB", (WIDTH_PX, HEIGHT_PX), "white")
    if middle is not None:
        draw = ImageDraw.Draw(image)
        draw.rectangle((0, 0, middle[0], middle[1]), fill="red")
        draw.rectangle((middle[0], middle[1], WIDTH_PX, HEIGHT_PX), fill="blue")
        for number in range(done):
            draw.rectangle((4 * number, HEIGHT_PX - 4, 4 * number + 2, HEIGHT_PX - 1), fill="black")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def inverted(group: Group) -> Group:
    """The group with the rewards turned round."""
    return replace(
        group,
        trajectories=tuple(replace(one, reward=1.0 - one.reward) for one in group.trajectories),
    )
