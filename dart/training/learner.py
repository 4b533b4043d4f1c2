"""The learner: makes policy updates from groups, and writes checkpoints that can be resumed.

One `update` takes the step samples of the given groups through `minibatches` optimizer steps of
DART's objective (`dart.training.loss`) and makes the next policy version. The frozen reference
of the KL term is the base policy. An update that meets a number that is not finite changes nothing.
"""

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch
from torch import Tensor

from dart.core.types import Group, Step
from dart.policy.adapter_files import fingerprint
from dart.policy.base import Scorer
from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.policy.prefixes import prefix_of
from dart.policy.protocols import Screen, UnsupportedCheckpoint, screenshots_of
from dart.policy.sampling import AnswerScores
from dart.store.blobs import BlobStore, read_each
from dart.store.checkpoints import Checkpoint, CheckpointState, WriteCheckpoint, write_checkpoint
from dart.training.batch import StepSample, padded, step_samples
from dart.training.batch_errors import SHARED_BY_RANKS, NonFiniteUpdate, NothingToLearn
from dart.training.checkpoint_copy import CheckpointCopy, read_master, refuse_missing_weights
from dart.training.entropy import Pointing
from dart.training.failure_penalty import FailurePenalty
from dart.training.logprob_mismatch import mismatch_figures, mismatch_sums
from dart.training.loss import (
    LossConfig,
    TokenBatch,
    dart_loss,
    non_finite_samples,
    sequence_mean_token_mean,
)
from dart.training.passes import Pass, micro_batches, minibatches, passes_of_rank, shares
from dart.training.pointer_loss import pointer_loss
from dart.training.rank_group import RankGroup
from dart.training.reference_policy import BASE_SHA256, base_sha256
from dart.training.step_credit import StepCredit
from dart.training.update_report import UpdateReport

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig(LossConfig):
    """Everything that an update depends on besides the data: the constants of the loss and these settings.

    The defaults are those of `dart.config.sections.TrainingSettings`, which also gives their sources.
    """

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of AdamW's running means of the gradient and of its square."""
    weight_decay: float = 0.1
    warmup_updates: int = 0
    """Updates over which the learning rate rises linearly to `lr`."""
    entropy_quantile: float | None = None
    """Steps below this quantile of their group's entropies are left out of the loss; None: no quantile."""
    step_credit: StepCredit | None = None
    """Settings of credit for single steps; None: every step has the advantage of its trajectory."""
    failure_penalty: FailurePenalty | None = None
    """Penalty of episodes that failed with their only step, in groups without a success; None: such groups
    are not trained."""
    click_unit: Literal["point", "element"] = "point"
    """The action whose probability the objective uses for a click: the drawn point, or its whole element."""
    pointer_weight: float = 0.0
    """Weight of the supervised loss of a pointer head (`dart.training.pointer_loss`)."""
    max_grad_norm: float = 2.0
    temperature: float = 1.0
    """Temperature of the sampling distribution; the same as in the rollouts."""
    minibatches: int = 1
    """Optimizer steps per update; the samples are split among them at random, those with a common prefix
    together (`dart.training.passes.minibatches`)."""
    micro_batch: int = 32
    """Most samples in one forward and backward pass; limits memory and has no other effect."""
    micro_batch_tokens: int = 0
    """Most tokens in one pass, padding included; 0: no limit."""
    image_cache_mib: int = 4096
    """Largest memory, in MiB, for processed screenshots that the update needs again."""
    placement: ModelPlacement = field(default_factory=lambda: ModelPlacement(is_trained=True))
    """Device, precision and adapter of a vision-language policy."""
    published_dtype: str = "float32"
    """Precision in which engines read the weights."""
    threads: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Minibatch:
    """The samples of one optimizer step."""

    size: int
    """Number of samples, over all ranks."""
    passes: Sequence[Pass[StepSample]]
    """The passes of this rank."""


@dataclass(frozen=True, slots=True, eq=False)
class _OldLogprobs:
    """Log-probs of a pass [samples, tokens] under the policy before the update."""

    tokens: Tensor
    """Log-probs of the drawn tokens."""
    units: Tensor
    """Log-probs that the objective uses (`LearnerConfig.click_unit`)."""


_Old = Mapping[Pass[StepSample], _OldLogprobs]
"""Log-probs under the policy before the update, by pass. A pass without an entry runs before any optimizer
step, so the log-probs that it computes are the old ones."""


class Learner:
    """A policy in training. Only one thread may call it."""

    def __init__(
        self,
        base: Path,
        config: LearnerConfig,
        *,
        resume: Checkpoint | None = None,
        ranks: RankGroup | None = None,
    ) -> None:
        """Start from the base policy (version 0), or from a verified checkpoint that was trained from it.

        ranks   the group of processes that train together; None: this process trains alone
        """
        torch.set_num_threads(config.threads)
        self.config = config
        self._ranks = ranks or RankGroup()
        self.version = 0 if resume is None else resume.state.version
        began_with = None if resume is None else base_sha256(resume.state)
        self._base_sha256 = fingerprint(base) if began_with is None and self._ranks.index == 0 else began_with
        folder = None if resume is None else resume.folder
        self._policy = load(base, placement=config.placement, resume=folder)
        if config.pointer_weight > 0 and self._policy.codec.pointer is None:
            raise UnsupportedCheckpoint(
                f"training.pointer_weight is {config.pointer_weight:g}, but the policy in {base} has no "
                "pointer head; set it to 0, or start from a policy with one (docs/policies.md)"
            )
        if config.click_unit == "element" and not self._policy.draws_points:
            raise UnsupportedCheckpoint(
                f"training.click_unit is element, but the policy in {base} writes points as digits, so the "
                "probability of an element is not known; set it to point, or start from a policy with a "
                "pointer head (docs/policies.md)"
            )
        self._ranks.shard(self._policy.module)
        if folder is not None and (master := read_master(folder)):
            refuse_missing_weights(self._policy.module, master, folder)
            self._ranks.read_weights(self._policy.module, master)
        self._reference = self._base_policy(base) if config.kl_beta > 0 else None
        self._optimizer = torch.optim.AdamW(
            self._policy.trainable(),
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=self._ranks.count == 1,
        )
        if resume is not None:
            self._ranks.read_optimizer(self._policy.module, self._optimizer, resume.folder)

    def _base_policy(self, folder: Path) -> Scorer:
        """Return the scorer of the KL term's reference: the same weights without the adapter, or a frozen
        copy of the policy in `folder`."""
        known = self._policy.base_scorer()
        if known is not None:
            return known
        frozen = load(folder, placement=replace(self.config.placement, is_trained=False))
        frozen.codec = self._policy.codec  # the same one, and so the same prepared screenshots
        self._ranks.shard(frozen.module)
        return frozen.score

    def update(self, groups: Sequence[Group], screenshots: BlobStore) -> UpdateReport:
        """Train on the groups' steps once and make the next version.

        Raises NothingToLearn, NonFiniteUpdate, MalformedStep, ForeignPrompt, BlobMissing, BlobCorrupt; after
        each the policy, the optimizer and the version are as before.
        """
        started = time.perf_counter()
        samples = step_samples(
            groups,
            self.config.entropy_quantile,
            self._pointing(),
            self.config.step_credit,
            self.config.failure_penalty,
        )
        kept = samples.kept
        if not kept:
            raise NothingToLearn(
                f"none of the {len(groups)} groups has both different rewards and a step to train on; "
                "the batch is dropped"
            )
        plan = self._plan(kept)
        screens = self._screens(plan, screenshots)
        with self._policy.keeping_images(self._scored_steps(plan), self.config.image_cache_mib * MIB):
            old = self._old_logprobs(plan, screens)
            try:
                figures = self._optimize(plan, old, screens, len(kept) / samples.steps)
            except NonFiniteUpdate as error:
                steps = self._non_finite_steps(plan, old, screens)
                raise NonFiniteUpdate(error.what, error.value, self.version, steps) from error
        self.version += 1
        rewards = [trajectory.reward for group in groups for trajectory in group.trajectories]
        return UpdateReport(
            version=self.version,
            **figures,
            samples=len(kept),
            steps=samples.steps,
            steps_masked=samples.low_entropy,
            without_behaviour=sum(not sample.step.has_behaviour for sample in kept),
            injected=sum(len(group.demonstrations) for group in groups),
            tokens=sum(len(sample.step.token_ids) for sample in kept),
            prefixes=len({prefix_of(sample.step) for sample in kept}),
            groups=len(groups),
            groups_without_spread=samples.groups_without_spread,
            mean_reward=math.fsum(rewards) / len(rewards),
            seconds=time.perf_counter() - started,
        )

    def _pointing(self) -> Pointing | None:
        tokens = self._policy.codec.pointer
        return None if tokens is None else Pointing(tokens=tokens, patches=self._policy.patch_count)

    def save(self, parent: Path) -> Path:
        """Write the current version as a checkpoint below `parent` and return its folder."""
        return self.copy()(parent)

    def copy(self) -> WriteCheckpoint:
        """Copy the current version and return the function that writes the copy below a folder.

        Any thread may call the returned function; it returns the folder of the new checkpoint.
        """
        state, files = self.state(), self.copy_files()
        return lambda parent: write_checkpoint(parent, state, files.write)

    def state(self) -> CheckpointState:
        """Return the content of the checkpoint's `state.json` for the current version."""
        return CheckpointState(
            version=self.version, learner={"config": asdict(self.config), BASE_SHA256: self._base_sha256}
        )

    def copy_files(self) -> CheckpointCopy:
        """Copy the weights and the optimizer's state for a checkpoint. Every rank has to call this method."""
        is_adapter = self._policy.has_adapter
        return CheckpointCopy(
            policy=self._policy,
            weights=self._ranks.copied_weights(
                self._policy.module,
                only_trained=self._policy.saves_only_trained,
                is_shared=not is_adapter,
            ),
            write_optimizer=self._ranks.copied_optimizer(self._policy.module, self._optimizer),
            dtype=getattr(torch, self.config.published_dtype),
            is_adapter=is_adapter,
            rank=self._ranks.index,
        )

    def _plan(self, samples: Sequence[StepSample]) -> list[_Minibatch]:
        """Split the samples into mini-batches, and each of these into the passes of this rank."""
        keys = [self._policy.prefix_key(sample.step) for sample in samples]
        chance = Random(self.config.seed * 1_000_003 + self.version)
        plan = []
        for numbers in minibatches(keys, self.config.minibatches, chance):
            chosen = [samples[number] for number in numbers]
            passes = [self._micro_batches(share) for share in self._shares(chosen)]
            plan.append(_Minibatch(len(chosen), passes_of_rank(passes, self._ranks.index)))
        return plan

    def _shares(self, samples: Sequence[StepSample]) -> list[list[StepSample]]:
        """Split samples among the ranks, evenly by what limits a pass: their tokens, or their number."""
        has_budget = self.config.micro_batch_tokens > 0
        costs = [self._policy.token_count(sample.step) if has_budget else 1 for sample in samples]
        return [[samples[number] for number in share] for share in shares(costs, self._ranks.count)]

    def _micro_batches(self, samples: Sequence[StepSample]) -> list[Sequence[StepSample]]:
        """Split samples into passes: those that are cheap to score together are neighbours."""
        size, budget = self.config.micro_batch, self.config.micro_batch_tokens
        ordered = sorted(samples, key=lambda sample: self._policy.sort_key(sample.step))
        return list(
            micro_batches(ordered, size, budget, lambda sample: self._policy.token_count(sample.step))
        )

    def _screens(self, plan: Sequence[_Minibatch], screenshots: BlobStore) -> dict[str, Screen]:
        """Decode every screenshot of this rank's samples once, by sha256, and check the prompts against them.

        An error of one rank is raised by all of them.
        """
        steps = [sample.step for part in plan for one in part.passes for sample in one.items]
        failed: Exception | None = None
        screens: dict[str, Screen] = {}
        try:
            names = {name for step in steps for name in screenshots_of(step)}
            contents = read_each(screenshots, screenshots.read, sorted(names))
            screens = {name: self._policy.codec.screen(name, png) for name, png in contents.items()}
            for step in steps:
                self._policy.check_prompt(step, screens)
        except SHARED_BY_RANKS as error:
            failed = error
        self._ranks.fail_together(failed)
        return screens

    def _scored_steps(self, plan: Sequence[_Minibatch]) -> Iterator[Step]:
        """Yield every step of this rank as often as an update scores it."""
        for number, part in enumerate(plan):
            times = 1 + (self._reference is not None) + (number > 0)
            for one in part.passes:
                for sample in one.items:
                    yield from [sample.step] * times

    @torch.no_grad()
    def _old_logprobs(self, plan: Sequence[_Minibatch], screens: Mapping[str, Screen]) -> _Old:
        """Score all passes but those of the first optimizer step, under the policy before the update.

        The passes of the first step need no extra scoring: they run before the policy has changed.
        """
        return {
            one: self._old(self._scores(self._policy.score, one, screens))
            for part in plan[1:]
            for one in part.passes
        }

    def _scores(self, score: Scorer, one: Pass[StepSample], screens: Mapping[str, Screen]) -> AnswerScores:
        return score([sample.step for sample in one.items], screens, self.config.temperature)

    def _units(self, scores: AnswerScores) -> Tensor:
        """Return the log-probs [samples, tokens] that the objective uses."""
        of_elements = scores.element_logprobs if self.config.click_unit == "element" else None
        return scores.logprobs if of_elements is None else of_elements

    def _old(self, scores: AnswerScores) -> _OldLogprobs:
        return _OldLogprobs(scores.logprobs.detach(), self._units(scores).detach())

    def _optimize(
        self, plan: Sequence[_Minibatch], old: _Old, screens: Mapping[str, Screen], share: float
    ) -> dict[str, Any]:
        """Make all optimizer steps of an update and return the figures of its report.

        share   fraction of the steps that is in the loss; scales the mean over these to a mean over all steps

        Raises NonFiniteUpdate after it has undone the steps that were already made.
        """
        before = self._snapshot() if len(plan) > 1 else None
        samples = sum(part.size for part in plan)
        means: dict[str, float] = {}
        mismatch: dict[str, float] = {}
        grad_norms: list[float] = []
        try:
            for part in plan:
                for one in part.passes:
                    weight = one.counts * self._ranks.count * share * len(one.items) / part.size
                    terms, sums = self._backward(one, old.get(one), screens, weight)
                    _add(means, terms, one.counts * len(one.items) / samples)
                    _add(mismatch, sums, float(one.counts))
                grad_norms.append(self._step())
        except NonFiniteUpdate:
            if before is not None:
                self._restore(before)
            raise
        finally:
            self._optimizer.zero_grad(set_to_none=True)
        return {
            **self._ranks.sum(means),
            **mismatch_figures(self._ranks.sum(mismatch)),
            "grad_norm": math.fsum(grad_norms) / len(grad_norms),
            "optimizer_steps": len(grad_norms),
        }

    def _backward(
        self, one: Pass[StepSample], old: _OldLogprobs | None, screens: Mapping[str, Screen], weight: float
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Add `weight` times the gradient of a pass's loss to the gradients. Returns the means of the loss's
        terms, and the sums of `logprob_mismatch.mismatch_sums`.

        Only a single process checks the loss here. Several ranks have different losses and check the common
        gradient norm instead, so that all of them fail together.
        """
        batch, scores = self._token_batch(one, old, screens)
        terms = dart_loss(batch, self.config)
        pointing = self._pointer_loss(one.items, scores, screens)
        loss = terms.loss + self.config.pointer_weight * pointing
        if self._ranks.count == 1:
            self._refuse_non_finite("loss", float(loss.detach()))
        (loss * weight).backward()  # type: ignore[no-untyped-call]
        is_stale = torch.tensor([sample.step.policy_version < self.version for sample in one.items])
        is_demonstration = torch.tensor([sample.is_demonstration for sample in one.items])
        values = {field.name: getattr(terms, field.name) for field in fields(terms)}
        values["entropy"] = sequence_mean_token_mean(scores.entropies.detach(), batch.mask)
        values |= {"loss": loss, "pointer_loss": pointing}
        means = {name: float(value.detach()) for name, value in values.items() if value is not None}
        return means, mismatch_sums(batch, is_stale, is_demonstration, self.config.tis_cap)

    def _pointer_loss(
        self, samples: Sequence[StepSample], scores: AnswerScores, screens: Mapping[str, Screen]
    ) -> Tensor:
        """Return the supervised loss of the pointer head; 0 if `pointer_weight` is 0."""
        if self.config.pointer_weight == 0:
            return torch.zeros(())
        return pointer_loss(samples, scores, screens, self._policy)

    def _step(self) -> float:
        """Make one optimizer step with the summed gradient; return the gradient's norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self._policy.trainable(), self.config.max_grad_norm)
        whole_norm = self._ranks.full_norm(norm)
        self._refuse_non_finite("gradient norm", whole_norm)
        self._set_learning_rate()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return whole_norm

    def _token_batch(
        self, one: Pass[StepSample], old: _OldLogprobs | None, screens: Mapping[str, Screen]
    ) -> tuple[TokenBatch, AnswerScores]:
        """Return the inputs of the objective for a pass, and the policy's scores.

        old   log-probs under the policy before the update; None: the policy has not changed yet
        """
        steps = [sample.step for sample in one.items]
        reference = None
        if self._reference is not None:
            with torch.no_grad():  # just before the policy's own pass, which needs the same prepared images
                reference = self._units(self._scores(self._reference, one, screens))
        scores = self._scores(self._policy.score, one, screens)
        before = self._old(scores) if old is None else old
        recorded = [torch.tensor(step.logprobs) if step.has_behaviour else None for step in steps]
        drawn = padded(recorded, scores.logprobs)
        batch = TokenBatch(
            logp=self._units(scores),
            old=before.units,
            # old - behaviour, which the importance weight takes, stays the difference of the drawn tokens
            behaviour=drawn + (before.units - before.tokens),
            has_behaviour=torch.tensor([step.has_behaviour for step in steps]),
            reference=reference,
            advantage=torch.tensor([sample.advantage for sample in one.items]),
            mask=scores.mask,
        )
        return batch, scores

    @torch.no_grad()
    def _non_finite_steps(
        self, plan: Sequence[_Minibatch], old: _Old, screens: Mapping[str, Screen]
    ) -> list[Step]:
        """Return the steps whose loss under the current policy is not finite; all ranks return the same."""
        found: list[Step] = []
        for part in plan:
            for one in part.passes:
                batch, _ = self._token_batch(one, old.get(one), screens)
                is_bad = non_finite_samples(batch, self.config).tolist()
                pairs = zip(one.items, is_bad, strict=True)
                found += [sample.step for sample, bad in pairs if bad and one.counts]
        return self._ranks.gather(found)

    def _refuse_non_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise NonFiniteUpdate(what, value, self.version)

    def _set_learning_rate(self) -> None:
        done = (self.version + 1) / max(1, self.config.warmup_updates)
        for group in self._optimizer.param_groups:
            group["lr"] = self.config.lr * min(1.0, done)

    def _snapshot(self) -> tuple[list[Tensor], Any]:
        weights = [weight.detach().clone() for weight in self._policy.trainable()]
        return weights, copy.deepcopy(self._optimizer.state_dict())

    @torch.no_grad()
    def _restore(self, snapshot: tuple[list[Tensor], Any]) -> None:
        for weight, before in zip(self._policy.trainable(), snapshot[0], strict=True):
            weight.copy_(before)
        self._optimizer.load_state_dict(snapshot[1])


def _add(sums: dict[str, float], values: Mapping[str, float], weight: float) -> None:
    for name, value in values.items():
        sums[name] = sums.get(name, 0.0) + weight * value
