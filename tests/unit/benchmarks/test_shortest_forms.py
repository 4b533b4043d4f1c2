"""Every benchmark has a shortest form, and a form without figures fails."""

from pathlib import Path

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
