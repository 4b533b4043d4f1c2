"""The table of the benchmark of grounding."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.grounding import QUICK, Cell, Cost, groups_of, join, lines, mean_with_interval, write
from dart.core.boxes import Box
from tests.unit.grounding.samples import made_sample

BOX = Box(0, 0, 10, 10)


def test_the_interval_is_students_t_over_seeds() -> None:
    mean, half = mean_with_interval([0.2, 0.3, 0.4])

    assert mean == pytest.approx(0.3)
    assert half == pytest.approx(4.303 * 0.1 / math.sqrt(3), rel=1e-3)


def test_one_seed_has_no_interval() -> None:
    assert math.isnan(mean_with_interval([0.5])[1])


def test_attribute_and_text_queries_are_counted_apart_and_by_the_number_of_elements() -> None:
    assert groups_of(made_sample(BOX, [BOX] * 5, query="colour")) == (
        "all", "attributes", "attributes, 4 to 6 elements", "query colour",
    )  # fmt: skip
    assert groups_of(made_sample(BOX, [BOX], query="text")) == ("all", "text", "text, 1 elements")


def test_a_row_has_the_mean_over_seeds_and_the_number_of_samples() -> None:
    found = [Cell("pointer head", seed, "held-out", "all", 0.2 + 0.1 * seed, 50) for seed in range(3)]
    text = "\n".join(lines(found, [Cost("pointer head", 0, 0.25, 3.0)]))

    assert "| pointer head | 0.30 ± 0.25 (50) |" in text
    assert "| pointer head | 0.250 | 3.0 |" in text


def test_results_that_were_measured_apart_are_joined_and_none_counts_twice(tmp_path: Path) -> None:
    one, two = (Cell("pointer head", seed, "held-out", "all", 0.5, 9) for seed in range(2))
    write(tmp_path / "0.json", QUICK, [one], [])
    write(tmp_path / "1.json", QUICK, [one, two], [])

    assert join([tmp_path / "0.json", tmp_path / "1.json"], tmp_path / "both.json") == 0
    assert [cell["seed"] for cell in json.loads((tmp_path / "both.json").read_text())["cells"]] == [0, 1]
