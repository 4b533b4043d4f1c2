"""What the model card of a base policy says of its data and its success."""

from dataclasses import replace

from dart.core.seeds import MODEL_CARD_SEEDS
from dart.imitation.model_card import card_text
from dart.imitation.pretrain import PretrainConfig

CONFIG = PretrainConfig(
    episodes=(("miniwob/a", 2), ("miniwob/b", 1)), emphasis=(("miniwob/b", 0.3),), held_out_episodes=4
)
SAMPLED = {"miniwob/a": [1.0, 0.0, 0.0, 0.0], "miniwob/b": [0.0, 0.0, 0.5, 0.0]}
GREEDY = {"miniwob/a": [1.0, 1.0, 1.0, 0.0], "miniwob/b": [0.6, 1.0, 0.0, 0.0]}


def test_the_card_has_sampled_and_greedy_success_of_each_task_and_their_means() -> None:
    rows = [line for line in card_text(CONFIG, 600_000, SAMPLED, GREEDY).splitlines() if line[:1] == "|"]

    assert rows[:5] == [
        "| task | sampled, temperature 1 | greedy |",
        "|---|---|---|",
        "| `miniwob/a` | 25% | 75% |",
        "| `miniwob/b` | 0% | 50% |",
        "| **mean** | **12.5%** | **62.5%** |",
    ]
    assert "| emphasis on `miniwob/b` | 0.3 |" in rows
    assert f"| lr | {CONFIG.lr} |" in rows


def test_the_card_names_the_size_the_seeds_and_the_data() -> None:
    card = card_text(CONFIG, 604_321, SAMPLED, GREEDY)

    assert "A vision-language policy of 0.60 M parameters" in card
    seeds = f"the first 4 seeds of each task that are kept for this table (from {MODEL_CARD_SEEDS[0]} on"
    assert seeds in card
    assert (
        "Data: 2 successful episodes of each of `miniwob/a`; 1 successful episode of each of `miniwob/b`. "
        in card
    )


def test_the_card_of_a_policy_that_was_not_measured_says_so() -> None:
    assert "Success was not measured." in card_text(replace(CONFIG, held_out_episodes=0), 1, {}, {})
