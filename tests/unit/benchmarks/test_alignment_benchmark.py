"""Which data the arms of the benchmark of alignment get, which queries measure them, and its tables."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.alignment_data import first_states, is_known, mixture, unseen_queries, unseen_shapes, usable
from benchmarks.alignment_report import Asked, Measured, Result, joined, lines, paired_difference, read_result
from dart.core.boxes import Box
from dart.core.exploration import Effect
from dart.environments.sites.catalogue import site_of
from dart.exploration.dataset import QueryKind
from dart.exploration.graph import Graph
from tests.unit.exploration.screens import button, click, node, screen, step
from tests.unit.exploration.test_dataset import heading
from tests.unit.grounding.samples import made_sample

BOX = Box(0, 0, 10, 10)


def graph_of_pages(count: int) -> Graph:
    """Pages of a shape each; the click on `Go` of every page opens another heading."""
    graph = Graph()
    for number in range(1, count + 1):
        elements = (heading(f"Page {number}"), button("Go"), button("Help", 1), button("Home", 2))
        graph.add_node(node(number, screen("site", shape=f"shape {number}", elements=elements)))
    for number in range(1, count):
        for _ in range(2):
            graph.add_step(
                step(len(graph.steps) + 1, number, click("Go").key, Effect.KNOWN_SCREEN, number + 1)
            )
    return graph


def test_half_of_the_measured_queries_are_about_outcomes_and_all_are_of_unseen_shapes() -> None:
    graph = graph_of_pages(20)
    found = unseen_queries(graph, 40)
    kinds = Counter(query.kind is QueryKind.OUTCOME for query in found)
    assert kinds[True] == kinds[False] > 5
    shapes = {graph.nodes[query.screen_id].screen.shape for query in found}
    assert shapes <= unseen_shapes(graph.shapes)
    assert len(unseen_shapes(graph.shapes)) == 10


def test_samples_of_a_measured_shape_are_not_trained_on() -> None:
    measured = made_sample(BOX, provenance={"shape": "product"})
    other = made_sample(BOX, provenance={"shape": "cart"})
    assert usable([measured, other], [measured]) == [other]


def test_a_query_is_known_if_training_has_its_words_at_its_place() -> None:
    sample = made_sample(BOX)
    assert is_known(sample, [made_sample(Box(0, 0, 12, 12))])
    assert not is_known(sample, [made_sample(Box(50, 50, 60, 60))])


def test_a_mixture_has_its_share_of_generic_samples_and_the_others_equally_often() -> None:
    own = [made_sample(BOX, provenance={"own": number}) for number in range(7)]
    generic = [made_sample(BOX, provenance={"generic": number}) for number in range(100)]
    mixed = mixture(own, generic, 100, 0.3, seed=0)
    counts = Counter(str(one.provenance) for one in mixed)
    assert len(mixed) == 100
    assert [counts[str(one.provenance)] for one in own] == [10] * 7
    assert sum(counts[str(one.provenance)] for one in generic) == 30
    assert max(counts[str(one.provenance)] for one in generic) == 1


def test_the_oracle_knows_a_state_of_every_screen() -> None:
    machine = site_of("shop", 0).machine
    states = first_states(machine)
    assert [state.screen for state in states.values()] == list(machine.states())


def test_a_difference_is_paired_by_sample() -> None:
    always, never = [[1, 1, 1, 1]], [[0, 0, 0, 0], [0, 0, 0, 0]]
    assert paired_difference(always, never) == (1.0, 1.0, 1.0)
    mean, low, high = paired_difference([[1, 0] * 50], [[0, 1] * 50])
    assert mean == 0.0
    assert low < 0.0 < high


def made_result(seeds: int, actions: int = 200) -> Result:
    asked = [
        Asked(instruction="a", query="outcome", is_known=False, chance=0.25),
        Asked(instruction="b", query="element", is_known=True, chance=0.25),
    ]
    arms = [("base", 0, "00"), *(("oracle", seed, "10") for seed in range(seeds))]
    return Result(
        {"actions": actions},
        asked={"shop": asked},
        measured=[
            Measured(arm=arm, site="shop", seed=seed, data=data, hits=hits)
            for arm, seed, hits in arms
            for data in ("unseen", "unseen without the picture", "generic")
        ],
    )


def test_the_table_has_accuracy_by_group_and_differences_to_the_base() -> None:
    text = "\n".join(lines(made_result(3)))
    row = "| oracle | 0.50 ± 0.00 | 1.00 ± 0.00 | 0.00 ± 0.00 | 1.00 ± 0.00 | 0.00 ± 0.00 |"
    assert row in text
    assert "| oracle - base | +0.50 [+0.00, +1.00] | +1.00 [+1.00, +1.00] |" in text


def test_results_of_one_setting_are_joined_and_none_counts_twice(tmp_path: Path) -> None:
    made_result(2).write(tmp_path / "one.json")
    both = joined([read_result(tmp_path / "one.json"), made_result(3)])
    assert len(both.measured) == len(made_result(3).measured)
    with pytest.raises(ValueError, match="one setting"):
        joined([made_result(1), made_result(1, actions=100)])
