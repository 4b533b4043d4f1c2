"""Measures the success of a base policy for its model card. One process plays with several browsers that
share one model.

The seeds are reserved for model cards (`MODEL_CARD_SEEDS`): neither training nor the evaluations of a run use
them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from dart.core.actions import ActionParseError, CallUser, Finished, parse_action
from dart.core.seeds import MODEL_CARD_SEEDS
from dart.core.types import SUCCESS_ABOVE
from dart.environments.browser.in_parallel import in_parallel
from dart.environments.protocol import Environment
from dart.imitation.oracle_kinds import oracle_kind_of
from dart.policy.codec import PromptCodec
from dart.policy.context import history_answer
from dart.policy.modeling import GuiPolicyModel
from dart.policy.sampling import SampledAnswer, sample

if TYPE_CHECKING:
    from dart.imitation.pretrain import PretrainConfig

DEADLINE_S = 30.0
"""Deadline of each operation of an environment: reset, step, observe, evaluate."""


class HeldOutPlayer:
    """Plays episodes of several environments at the same time with one model. When the model is free, all
    prompts that wait for it are answered as one batch."""

    def __init__(self, model: GuiPolicyModel, codec: PromptCodec, step_cap: int, temperature: float) -> None:
        self._model = model
        self._codec = codec
        self._step_cap = step_cap
        self._temperature = temperature
        self._generator = torch.Generator().manual_seed(0)
        self._waiting: list[tuple[list[int], torch.Tensor, asyncio.Future[SampledAnswer]]] = []

    async def play(self, environment: Environment, task_id: str, seed: int) -> float:
        """Play one episode and return its reward. An answer that contains no valid action ends the episode
        with reward 0."""
        observation = await environment.reset(task_id, seed, deadline_s=DEADLINE_S)
        history: list[str] = []
        for _ in range(self._step_cap):
            screen = self._codec.screen("", observation.screenshot)
            prompt = self._codec.encode_prompt(observation.instruction, history, screen.frame)
            answer = await self._answer(prompt, torch.from_numpy(screen.pixels))
            text = self._codec.decode_action(
                answer.token_ids, observation.instruction, screen.frame, answer.centres
            )
            try:
                action = parse_action(text)
            except ActionParseError:
                return 0.0
            if isinstance(action, Finished | CallUser):
                break
            result = await environment.step(action, deadline_s=DEADLINE_S)
            if result.terminated:
                break
            history.append(history_answer(text, result.box))
            observation = await environment.observe(deadline_s=DEADLINE_S)
        return await environment.evaluate(deadline_s=DEADLINE_S)

    async def _answer(self, prompt: list[int], pixels: torch.Tensor) -> SampledAnswer:
        """Sample an answer to one prompt, given as token ids, and one screenshot.

        pixels   uint8 [H, W, 3]
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SampledAnswer] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._run)
        self._waiting.append((prompt, pixels, future))
        return await future

    def _run(self) -> None:
        """Answer all waiting prompts. Their players get the error if that fails: asyncio only logs it."""
        batch, self._waiting = self._waiting, []
        prompts, pixels, futures = zip(*batch, strict=True)
        try:
            for future, answer in zip(futures, self._sampled(prompts, pixels), strict=True):
                if not future.done():
                    future.set_result(answer)
        except Exception as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    def _sampled(self, prompts: Sequence[list[int]], pixels: tuple[torch.Tensor, ...]) -> list[SampledAnswer]:
        temperatures = [self._temperature] * len(prompts)
        return sample(self._model, prompts, torch.stack(pixels), temperatures, self._generator)


async def play_held_out(
    model: GuiPolicyModel, codec: PromptCodec, config: "PretrainConfig", temperature: float
) -> dict[str, list[float]]:
    """Play each of `config.measured` on the first `config.held_out_episodes` seeds for model cards.

    Returns the rewards of the episodes of each task, by task id.
    """
    seeds = MODEL_CARD_SEEDS[: config.held_out_episodes]
    episodes = [(task, seed) for seed in seeds for task in config.measured]
    rewards: dict[str, list[float]] = {task: [] for task in config.measured}
    make = oracle_kind_of(config.measured).make
    player = HeldOutPlayer(model, codec, config.step_cap, temperature)

    async def played(environment: Environment, task_id: str, seed: int) -> tuple[str, float]:
        return task_id, await player.play(environment, task_id, seed)

    async for task_id, reward in in_parallel(make, played, episodes, config.environments):
        rewards[task_id].append(reward)
    return rewards


def mean_success(rewards: Mapping[str, Sequence[float]]) -> float:
    """Return the mean success rate over tasks, given the rewards of the episodes of each task."""
    return sum(success(task_rewards) for task_rewards in rewards.values()) / len(rewards)


def success(rewards: Sequence[float]) -> float:
    """Return the share of successes among these rewards of episodes."""
    return sum(reward > SUCCESS_ABOVE for reward in rewards) / len(rewards)
