"""The model card of a base policy: its data, its settings and its success."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dart.core.seeds import model_card_seed
from dart.imitation.evaluation import mean_success, success

if TYPE_CHECKING:
    from dart.imitation.pretrain import PretrainConfig


@dataclass(frozen=True, slots=True)
class Card:
    """The content of a model card; rewards are by task, on the seeds of model cards."""

    config: "PretrainConfig"
    parameters: int
    sampled: Mapping[str, Sequence[float]]
    """Rewards at temperature 1, as in training."""
    greedy: Mapping[str, Sequence[float]]


def write_card(path: Path, card: Card) -> None:
    path.write_text(card_text(card))


def card_text(card: Card) -> str:
    """Return the card as Markdown."""
    rows = [
        f"| `{task}` | {success(card.sampled[task]):.0%} | {success(card.greedy[task]):.0%} |"
        for task in card.config.tasks
        if card.sampled[task]
    ]
    return "\n".join((*_head(card), *_table(card, rows), *_recipe(card), ""))


def _head(card: Card) -> list[str]:
    return [
        "---",
        "library_name: transformers",
        "license: apache-2.0",
        "pipeline_tag: image-text-to-text",
        "---",
        "# Base policy of the laptop job",
        "",
        f"A vision-language policy of {card.parameters / 1e6:.2f} M parameters that looks at 160x210"
        " screenshots of MiniWoB++ pages and answers with one action of the UI-TARS grammar."
        " It is weak on purpose: reinforcement learning starts here. Rebuild it with `dartrl pretrain`;"
        " architecture and figures: `docs/decisions/0005-laptop-policy.md`.",
        "",
    ]


def _table(card: Card, rows: Sequence[str]) -> list[str]:
    if not rows:
        return ["Success was not measured.", ""]
    config = card.config
    return [
        f"Success on the first {config.held_out_episodes} seeds of each task that are kept for this table"
        f" (from {model_card_seed(0)} on; step cap {config.step_cap}). Neither training nor the evaluation"
        " of a run plays them:",
        "",
        "| task | sampled, temperature 1 | greedy |",
        "|---|---|---|",
        *rows,
        f"| **mean** | **{mean_success(card.sampled):.1%}** | **{mean_success(card.greedy):.1%}** |",
        "",
    ]


def _recipe(card: Card) -> list[str]:
    settings = {
        name: value for name, value in asdict(card.config).items() if name not in ("tasks", "emphasis")
    }
    return [
        f"Data: {card.config.episodes_per_task} successful episodes of each task, played by the scripted"
        " oracles of `dart.environments.miniwob.oracles` on training seeds from 0 on. No other data and no"
        " pretrained weights.",
        "",
        "| setting | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in settings.items()),
        *(f"| emphasis on `{task}` | {factor:g} |" for task, factor in card.config.emphasis),
    ]
