"""The long run's report tells what grows from what does not."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import longevity, longevity_report
from benchmarks.longevity_report import Verdict, fitted, judge, judge_one, role_of

EVERY_S = 10.0
LOOKS = 720
STEPS = [(EVERY_S * number, 100.0 * number) for number in range(LOOKS)]


def over_time(value: Any) -> list[tuple[float, float]]:
    return [(EVERY_S * number, value(number)) for number in range(LOOKS)]


def sample(number: int, **changed: Any) -> dict[str, Any]:
    held = {"processes": 1, "pss_bytes": 100 * 2**20, "uss_bytes": 90 * 2**20, "fds": 10, "threads": 4}
    return {
        "stretch": 1,
        "t_s": EVERY_S * number,
        "unix_s": 1e9 + EVERY_S * number,
        "training": True,
        "roles": {"trainer": held},
        "disk": {"record_bytes": 2**20 + 2**16 * number},
        "counts": {"updates": number, "trajectories": number, "steps": 10 * number, "restarts": 0},
        "look_cpu_s": 0.1,
    } | changed


def test_a_process_has_the_role_of_its_actor_or_of_the_actor_it_descends_from() -> None:
    parents = {1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 2, 7: 6, 8: 1}
    names = {2: "environment_pool", 3: "env-001", 6: "rollout-0"}

    roles = {pid: role_of(pid, parents, names, launcher=1) for pid in parents}

    assert roles == {
        1: "launcher",
        2: "supervisors",
        3: "environments",
        4: "browsers",
        5: "browsers",
        6: "engines",
        7: "engines",
        8: "helpers",
    }


def test_a_slope_is_found_beside_restarts_and_noise() -> None:
    def value(number: int) -> float:
        return 3000.0 if 100 <= number < 140 else 50.0 + 0.2 * number + math.sin(number)

    level, slope = fitted(over_time(value))

    assert slope == pytest.approx(0.02, rel=0.05)
    assert level == pytest.approx(50.0, abs=2.0)


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("memory trainer", lambda number: 800.0 + 5.0 * math.sin(number), Verdict.FLAT),
        ("memory trainer", lambda number: 800.0 - number, Verdict.FLAT),
        ("memory trainer", lambda number: 800.0 + 0.5 * number, Verdict.GROWS),
        ("memory trainer", lambda number: 800.0 + min(300.0, 1.0 * number), Verdict.LEVELS_OFF),
        ("fds store", lambda number: 20.0 + number // 72, Verdict.GROWS),
        ("fds store", lambda number: 20.0 + number % 2, Verdict.FLAT),
        ("disk record", lambda number: 5.0 + 0.5 * number, Verdict.WITH_DATA),
        ("disk record", lambda number: 5.0 + 0.001 * number**2, Verdict.GROWS),
    ],
)
def test_each_way_over_time_has_its_verdict(name: str, value: Any, verdict: Verdict) -> None:
    assert judge_one(name, "MiB", over_time(value), STEPS).verdict is verdict


def test_what_grows_with_what_is_played_says_by_how_much() -> None:
    figure = judge_one("disk record", "MiB", over_time(lambda number: 0.1 * number), STEPS)

    assert figure.per_step_bytes == pytest.approx(0.1 / 100.0 * 2**20, rel=0.01)


def test_a_run_of_minutes_is_told_and_not_judged() -> None:
    judged = judge([sample(number) for number in range(8)])

    assert {figure.verdict for figure in judged.figures} == {Verdict.UNJUDGED}
    assert not judged.growing
    assert "too short to say" in longevity_report.table(judged)


def test_a_role_grows_by_its_own_memory_and_not_by_shares_that_others_gave_up() -> None:
    def shares(number: int) -> dict[str, Any]:
        held = {"processes": 1, "pss_bytes": (100 + number) * 2**20, "uss_bytes": 90 * 2**20}
        return {"trainer": held | {"fds": 10, "threads": 4}}

    judged = judge([sample(number, roles=shares(number)) for number in range(LOOKS)])

    verdicts = {figure.name: figure.verdict for figure in judged.figures}
    assert verdicts["memory trainer"] is Verdict.FLAT
    assert verdicts["memory in all"] is Verdict.GROWS


def test_of_several_starts_the_longest_is_judged_while_it_trained() -> None:
    first = [sample(number, stretch=1) for number in range(50)]
    second = [sample(number, stretch=2, training=40 <= number < 440) for number in range(480)]

    judged = judge(first + second)

    assert (judged.stretch, judged.samples) == (2, 530)
    assert judged.warm_up_s == pytest.approx(400.0 + 0.2 * 3990.0)
    assert judged.ends_s == 4390.0
    verdicts = {figure.name: figure.verdict for figure in judged.figures}
    assert verdicts["disk record"] is Verdict.WITH_DATA
    assert verdicts["memory trainer"] is Verdict.FLAT


def test_a_process_is_looked_at_with_all_it_holds_and_one_that_is_gone_is_left_out() -> None:
    own = os.getpid()

    found = longevity.look_at({own: os.getppid(), 2**22 + 1: own}, {own: "env-000"}, launcher=0)

    assert list(found) == ["environments"]
    assert found["environments"]["processes"] == 1
    assert found["environments"]["pss_bytes"] >= found["environments"]["uss_bytes"] > 2**20
    assert found["environments"]["fds"] > 2


def test_the_line_that_a_killed_program_left_half_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps(sample(0)) + "\n" + json.dumps(sample(1))[:20])

    assert [one["t_s"] for one in longevity.read_samples(file)] == [0.0]


def test_nothing_measured_is_reported_as_nothing(tmp_path: Path) -> None:
    assert longevity.conclude(tmp_path, None) is False
    assert json.loads((tmp_path / "report.json").read_text())["samples"] == 0


def test_what_was_measured_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `train`")
    samples = [sample(number) for number in range(20)]

    longevity_report.draw(samples, judge(samples), tmp_path / "longevity.png")

    assert (tmp_path / "longevity.png").stat().st_size > 10_000
