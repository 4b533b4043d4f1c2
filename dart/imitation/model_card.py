"""The model card of a base policy: its data, its settings and its success."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from dart.core.seeds import MODEL_CARD_SEEDS
from dart.imitation.evaluation import mean_success, success

if TYPE_CHECKING:
    from dart.imitation.pretrain import PretrainConfig

CARD = """\
---
license: apache-2.0
pipeline_tag: image-text-to-text
---
# Base policy

A vision-language policy of {parameters:.2f} M parameters that looks at screenshots in a frame of 160x210 \
pixels and answers with one action of the UI-TARS grammar. It is weak on purpose: reinforcement learning \
starts here. Rebuild it with `dartrl pretrain --coordinates {coordinates}`; architecture and \
figures: `docs/decisions/0005-laptop-policy.md`.

{success}

Data: {data}. Scripted oracles played the episodes on training seeds from 0 on. No other data and no \
pretrained weights.

| setting | value |
|---|---|
{settings}
"""

SUCCESS = """\
Success on the first {episodes} seeds of each task that are kept for this table (from {first_seed} on; \
step cap {step_cap}). Neither training nor the evaluation of a run plays them:

| task | sampled, temperature 1 | greedy |
|---|---|---|
{rows}
| **mean** | **{sampled:.1%}** | **{greedy:.1%}** |"""

IN_WORDS = ("episodes", "measured_tasks", "page_tasks", "emphasis")
"""Settings that the card does not list as they are."""

Rewards = Mapping[str, Sequence[float]]
"""Rewards of the episodes of each task, by task id, on the seeds that are reserved for model cards."""


def card_text(config: "PretrainConfig", parameters: int, sampled: Rewards, greedy: Rewards) -> str:
    """Return the card as Markdown.

    parameters   number of parameters of the policy
    sampled      rewards with answers sampled at temperature 1, as in training
    greedy       rewards with the most likely answers
    """
    settings = [(name, value) for name, value in asdict(config).items() if name not in IN_WORDS]
    settings += [(f"emphasis on `{task}`", f"{factor:g}") for task, factor in config.emphasis]
    return CARD.format(
        parameters=parameters / 1e6,
        coordinates=config.coordinates,
        success=_success(config, sampled, greedy),
        data=_data(config),
        settings="\n".join(f"| {name} | {value} |" for name, value in settings),
    )


def _data(config: "PretrainConfig") -> str:
    by_count: dict[int, list[str]] = {}
    for task, count in config.episodes:
        by_count.setdefault(count, []).append(f"`{task}`")
    parts = [
        f"{count} successful episode{'s' if count > 1 else ''} of each of {', '.join(tasks)}"
        for count, tasks in by_count.items()
    ]
    if config.pages:
        moved = ", each shown with other distances between its elements" if config.moved_pages else ""
        parts.append(
            f"{config.pages} pages of {len(config.page_tasks)} tasks, none of which the table shows, with "
            f"instructions that name one element each{moved}"
        )
    if config.drawn_pages:
        parts.append(
            f"{config.drawn_pages} pages with elements and words drawn at random, with such instructions"
        )
    return "; ".join(parts)


def _success(config: "PretrainConfig", sampled: Rewards, greedy: Rewards) -> str:
    if not config.held_out_episodes:
        return "Success was not measured."
    rows = [
        f"| `{task}` | {success(sampled[task]):.0%} | {success(greedy[task]):.0%} |"
        for task in config.measured
    ]
    return SUCCESS.format(
        episodes=config.held_out_episodes,
        first_seed=MODEL_CARD_SEEDS.start,
        step_cap=config.step_cap,
        rows="\n".join(rows),
        sampled=mean_success(sampled),
        greedy=mean_success(greedy),
    )
