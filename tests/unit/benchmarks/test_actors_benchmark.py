"""The pure parts of the comparison with other actor frameworks: statistics, targets, table, arguments."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import actors as comparison
from benchmarks.actors import OURS, PEERS, Cell, Figure, Target, Task
from benchmarks.peers import protocol

RATE = Figure("stream", "messages", "rate", "/s", float, Target(50), is_rate=True)
KILL = Figure("kill", "restart_1", "kill_ms", "ms", comparison.median, Target(1.5, of="plain_thespian"))
PIPE = next(peer for peer in PEERS if peer.name == "pipe")
RAY = next(peer for peer in PEERS if peer.name == "ray")


def run_of(peer: str, task: str, **figures: Any) -> dict[str, Any]:
    return {"peer": peer, "task": task, "round": 1, "answer": {"figures": figures}}


def cells(**medians: float) -> dict[str, Cell | None]:
    return {name: Cell(value, value, value, 1) for name, value in medians.items()}


def test_p99_is_the_nearest_rank_and_the_worst_of_a_few_samples() -> None:
    assert comparison.p99(range(1, 201)) == 198
    assert comparison.p99([3.0, 9.0, 1.0]) == 9.0
    assert comparison.p99([7.0]) == 7.0


def test_a_cell_is_the_median_and_the_spread_of_the_rounds_that_have_the_figure() -> None:
    answers = [{"figures": {"rate": value}} for value in (30.0, 10.0, 20.0)] + [{"failed": "it died"}]
    assert comparison.cell(RATE, answers) == Cell(20.0, 10.0, 30.0, 3)
    assert comparison.cell(RATE, [{"unsupported": "no streams"}]) is None


def test_no_wrong_reasons_count_as_zero_but_no_samples_are_no_figure() -> None:
    reasons = Figure("", "", "wrong", "", comparison.length)
    assert comparison.cell(reasons, [{"figures": {"wrong": []}}]) == Cell(0.0, 0.0, 0.0, 1)
    assert comparison.cell(KILL, [{"figures": {"kill_ms": []}}]) is None


def test_a_target_may_be_a_multiple_of_what_a_peer_has() -> None:
    assert comparison.verdict(KILL, cells(ours=20, plain_thespian=14)) == (
        "at most 21 ms (1.5 x plain_thespian)",
        True,
    )
    assert comparison.verdict(KILL, cells(ours=22, plain_thespian=14))[1] is False
    assert comparison.verdict(KILL, cells(ours=22)) == ("1.5 x plain_thespian, which was not measured", None)


def test_a_rate_has_a_lower_bound() -> None:
    assert comparison.verdict(RATE, cells(ours=60))[1] is True
    assert comparison.verdict(RATE, cells(ours=40)) == ("at least 50 /s", False)


def test_the_report_names_who_has_no_figure_and_why() -> None:
    unable = {"peer": "pykka", "task": "messages", "round": 1, "answer": {"unsupported": "threads"}}
    broken = {"peer": "ray", "task": "messages", "round": 1, "answer": {"failed": "exit code 1: no memory"}}
    [entry] = comparison.report([run_of(OURS, "messages", rate=60.0), unable, broken], [RATE, KILL])
    assert entry["none"] == {"pykka": "threads", "ray": "exit code 1: no memory"}
    assert entry["met"] is True


def test_the_table_shows_target_verdict_spread_and_ratio() -> None:
    runs = [run_of(OURS, "messages", rate=40.0), run_of("pipe", "messages", rate=4000.0)]
    text = comparison.table(list(comparison.report(runs, [RATE])))
    assert "target at least 50 /s: NOT MET" in text
    assert "100 x ours" in text
    assert "40 to 40" in text


def test_the_table_says_who_was_measured_with_fewer_actors() -> None:
    idle = Figure("idle", "idle_400", "cpu", "%", float)
    runs = [
        run_of(OURS, "idle_400", cpu=1.0) | {"params": {"children": 400}},
        run_of("ray", "idle_400", cpu=3.0) | {"params": {"children": 4}},
    ]
    text = comparison.table(list(comparison.report(runs, [idle])))
    assert text.count("only") == 1
    assert "3 x ours (of 4 only)" in text


def test_a_measurement_without_a_figure_of_this_project_is_named_with_its_reason() -> None:
    planned = [Task("messages", "messages", {}), Task("hang", "hang", {}), Task("idle_20", "idle", {})]
    failed = {"peer": OURS, "task": "hang", "round": 1, "answer": {"failed": "exit code 1: TypeError"}}
    found = comparison.unmeasured([run_of(OURS, "messages", rate=1.0), failed], planned)
    assert found == ["hang: exit code 1: TypeError", "idle_20: it was not started"]


def test_a_peer_is_asked_for_no_more_than_it_can_do() -> None:
    few = Task("restart_1", "restart", {"children": 1, "kills": 30})
    many = Task("restart_400", "restart", {"children": 400, "kills": 30})
    idle = Task("idle_400", "idle", {"children": 400})
    assert comparison.params_for(PIPE, many) == many.params
    assert comparison.params_for(RAY, few) == {"children": 1, "kills": RAY.kills}
    assert "not measured" in comparison.params_for(RAY, many)
    assert comparison.params_for(RAY, idle) == {"children": RAY.most_children}


def test_what_takes_long_is_measured_once_of_the_others_and_every_round_of_this_project() -> None:
    ours = next(peer for peer in PEERS if peer.name == OURS)
    due = {
        task.measurement: (task.is_due(2, ours), task.is_due(2, RAY)) for task in comparison.tasks([1], True)
    }
    assert due["idle"] == (True, False)
    assert due["messages"] == (True, True)


def test_every_figure_belongs_to_a_measurement_of_the_plan() -> None:
    planned = {task.key for task in comparison.tasks([1, 100, 400], quick=False)}
    assert {figure.task for figure in comparison.figures([1, 100, 400])} == planned


def test_the_answer_is_the_last_line_that_is_one_whatever_a_library_prints_after_it() -> None:
    said = 'noise\n{"figures": {"a": 1}}\nbye\n'
    assert comparison.answer_of(said, "", 0) == {"figures": {"a": 1}}
    assert comparison.answer_of(said, "one\nValueError: two\n", 1) == {
        "failed": "exit code 1: ValueError: two"
    }
    assert "failed" in comparison.answer_of("", "", 0)


def test_a_run_goes_on_only_under_the_same_settings_and_measures_failures_again(tmp_path: Path) -> None:
    out = tmp_path / "actors.json"
    done = {"round": 1, "task": "hang", "peer": OURS, "answer": {"figures": {}}}
    failed = done | {"peer": "pipe", "answer": {"failed": "killed"}}
    out.write_text(json.dumps({"settings": {"children": [1]}, "runs": [done, failed]}))
    resumed = comparison.Run(out, {"children": [1]}, resume=True)
    assert resumed.has(1, "hang", OURS)
    assert not resumed.has(1, "hang", "pipe")
    with pytest.raises(SystemExit, match="other settings"):
        comparison.Run(out, {"children": [2]}, resume=True)


def test_arguments_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert comparison.parse(["--children", "5", "1", "5"]).children == [1, 5]
    assert comparison.parse(["--quick"]).rounds == 1
    for wrong, reason in (
        (["--rounds", "0"], "--rounds must be at least 1, got 0"),
        (["--children", "0"], "--children must be at least 1, got 0"),
        (["--peers", "akka"], "invalid choice: 'akka'"),
    ):
        with pytest.raises(SystemExit):
            comparison.parse(wrong)
        assert reason in capsys.readouterr().err


def test_victims_are_spread_over_the_children_and_come_round_again() -> None:
    assert protocol.victims(400, 4) == [0, 100, 200, 300]
    assert protocol.victims(1, 3) == [0, 0, 0]
