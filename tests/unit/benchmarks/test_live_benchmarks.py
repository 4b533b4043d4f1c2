"""What judges a live run can fail: a forgotten command, a lie, a lost trajectory."""

import json
from typing import Any

import pytest

from benchmarks import live_checks, live_commands, stops_live
from benchmarks.live_checks import Ran

SUSPENDED = {"name": "env-000", "state": "running", "process": "suspended", "last_reason": ""}
WAITING = {"name": "env-001", "state": "backoff", "process": "gone", "last_reason": "SIGKILL"}


def ran(out: Any, code: int = 0) -> Ran:
    return Ran(("tree",), code, out if isinstance(out, str) else json.dumps(out), "", 0.3, 0.4)


def test_somebody_knows_how_to_ask_every_command_and_no_other() -> None:
    known = {*live_checks.LOOKING, *live_checks.CHANGING, *live_checks.APART, *live_checks.BY_THE_PROGRAM}

    assert live_checks.forgotten() == []
    assert known == set(live_checks.commands())


def test_a_command_nobody_asks_fails_the_program_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(live_checks.LOOKING, "actors list")

    assert live_commands.main([]) == 1
    assert "nobody here asks actors list" in capsys.readouterr().out


def test_who_is_suspended_and_who_waits_is_told_as_it_is() -> None:
    rows = [SUSPENDED, WAITING]
    status = {"actors": rows, "healthy": False}

    assert list(live_commands.lies_about_two("tree", ran(rows))) == []
    assert list(live_commands.lies_about_two("status", ran(status, code=1))) == []
    assert list(live_commands.lies_about_two("top", ran("env-000 running, suspended\nenv-001 backoff"))) == []


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("tree", ran([SUSPENDED | {"process": "alive"}, WAITING])),
        ("tree", ran([SUSPENDED, WAITING | {"state": "running"}])),
        ("tree", ran([SUSPENDED, WAITING | {"last_reason": ""}])),
        ("status", ran({"actors": [SUSPENDED, WAITING], "healthy": True}, code=0)),
        ("top", ran("env-000 running\nenv-001 backoff")),
        ("tree, as text", ran("env-000 running, suspended\nenv-001 running")),
    ],
)
def test_a_lie_about_one_of_them_is_found(name: str, answer: Ran) -> None:
    assert len(list(live_commands.lies_about_two(name, answer))) == 1


def test_a_figure_has_to_lie_between_what_it_was_and_what_it_is() -> None:
    assert list(live_checks.between("steps", 5, 5, 9)) == []
    assert list(live_checks.between("steps", 4, 5, 9)) == ["steps is 4, but was 5 before and 9 after"]


def test_who_takes_longer_than_while_all_were_well_is_late() -> None:
    def timed(processor_s: float) -> live_commands.Timed:
        return live_commands.Timed(
            name="tree", processor_s=processor_s, wall_s=9.0, calm_processor_s=0.2, calm_wall_s=0.3
        )

    assert [timed(seconds).is_in_time for seconds in (0.3, 0.45, 0.6)] == [True, False, False]


def test_an_end_is_told_with_what_was_lost() -> None:
    held = stops_live.Held(trajectories=3, version=1, issued=4, fates={"stored": 3, "leased": 1})
    end = stops_live.End(
        how=stops_live.KILL,
        after_s=2.0,
        went_on_from=held,
        before=held,
        after=held,
        exit_code=-9,
        ended_in_s=0.1,
        problems=("1 rollouts are lost",),
    )

    lines = list(stops_live.told(end))

    assert lines[2].split(maxsplit=1) == [
        "before",
        "3 trajectories, version 1, issued 4 = leased 1 + stored 3",
    ]
    assert lines[-1].strip() == "1 rollouts are lost"
