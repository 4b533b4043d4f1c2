"""Every benchmark has a shortest form, and a form without figures fails."""

import threading
from pathlib import Path

import pytest

from benchmarks import shortest

FOLDER = Path(shortest.__file__).parent


def test_every_benchmark_that_can_be_started_has_a_shortest_form() -> None:
    programs = {file.stem for file in FOLDER.glob("*.py") if 'if __name__ == "__main__"' in file.read_text()}
    assert programs - {"shortest"} == set(shortest.FORMS)


def test_a_benchmark_without_a_figure_fails_as_one_that_ended_with_an_error_or_never() -> None:
    assert shortest.judged(0, "median 3.1 ms") == ""
    assert shortest.judged(0, "done\n") == "it printed no figure"
    assert shortest.judged(1, "median 3.1 ms") == "exit code 1"
    assert shortest.judged(None, "median 3.1 ms").startswith("not done after")


def test_as_many_benchmarks_run_at_a_time_as_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_run = threading.Barrier(2)

    def meet(name: str, folder: Path) -> shortest.Outcome:
        both_run.wait(timeout=30.0)
        return shortest.Outcome(name, 0.0, "")

    monkeypatch.setattr(shortest, "run_one", meet)

    outcomes = list(shortest.run_all(["fuzz", "soak", "blobs", "scrape"], tmp_path, jobs=2))

    assert {one.name for one in outcomes} == {"fuzz", "soak", "blobs", "scrape"}


def test_where_a_package_of_desktops_is_missing_their_benchmark_is_named_as_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shortest, "missing_for_desktops", lambda: ["the Python package mss"])
    words = shortest.left_out(shortest.FORMS["desktops"])
    assert words == "NOT RUN: not installed (make desktop): the Python package mss"
    monkeypatch.setattr(shortest, "missing_for_desktops", list)
    assert shortest.left_out(shortest.FORMS["desktops"]) == ""
