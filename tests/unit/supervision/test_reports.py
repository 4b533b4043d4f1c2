"""Why children ended is kept: written, read again, found along a chain; a broken file ends nobody."""

import math
from pathlib import Path

import pytest

from supervision import reports
from supervision.reports import CHAIN_LINKS, Offender, SupervisorReport
from tests.conformance.world import BenchWorld, below, case, child


def report(context: str = "child_terminated", reason: str = "SIGKILL", **fields: object) -> SupervisorReport:
    offender = Offender(id="a", incarnation=3, pid=77, restart="permanent", shutdown_s=math.inf)
    return SupervisorReport(
        **{"unix_s": 1.5, "supervisor": "sup", "context": context, "reason": reason, "offender": offender}
        | fields
    )


def test_what_is_written_is_read_again_oldest_first(tmp_path: Path) -> None:
    first = report(exit_code=70, last_words=("a", "ü"), log_lines=("{}",), chain=("why",))
    second = report("shutdown_error", signal="SIGKILL")
    for each in (first, second):
        reports.append(tmp_path, each)
    assert reports.read(tmp_path, "sup") == (first, second)
    assert reports.read(tmp_path, "other") == ()


def test_reports_are_read_while_the_supervisor_renames_a_full_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports.append(tmp_path, report())
    newest = tmp_path / "reports" / "sup.jsonl"
    newest.rename(newest.with_suffix(".jsonl.1"))
    monkeypatch.setattr(Path, "exists", lambda path: True)  # as it was a moment before
    assert reports.read(tmp_path, "sup") == (report(),)


def test_a_line_that_was_cut_off_or_is_of_another_kind_is_left_out(tmp_path: Path) -> None:
    reports.append(tmp_path, report())
    with (tmp_path / "reports" / "sup.jsonl").open("a") as file:
        file.write('{"unix_s": 1.5, "superv\n\n7\n{"context": "of another version"}\n')
    reports.append(tmp_path, report("shutdown"))
    assert [each.context for each in reports.read(tmp_path, "sup")] == ["child_terminated", "shutdown"]


def test_a_line_that_was_cut_off_does_not_take_the_next_one_along(tmp_path: Path) -> None:
    reports.append(tmp_path, report())
    path = tmp_path / "reports" / "sup.jsonl"
    path.write_bytes(path.read_bytes()[:-40])

    reports.append(tmp_path, report("shutdown"))

    assert [each.context for each in reports.read(tmp_path, "sup")] == ["shutdown"]


def test_a_file_that_has_grown_is_put_aside_and_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MAX_FILE_BYTES", 500)
    for number in range(10):
        reports.append(tmp_path, report(reason=f"number {number}"))
    files = sorted(path.name for path in (tmp_path / "reports").iterdir())
    assert files == ["sup.jsonl", "sup.jsonl.1"]
    kept = [each.reason for each in reports.read(tmp_path, "sup")]
    assert kept == [f"number {number}" for number in range(10)][-len(kept) :]
    assert len(kept) >= 2
    assert all((tmp_path / "reports" / name).stat().st_size < 1200 for name in files)


def test_a_report_that_cannot_be_written_costs_the_report_alone(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file where the folder should be")
    reports.append(tmp_path, report())


def test_the_chain_is_the_last_end_and_what_led_to_it(tmp_path: Path) -> None:
    assert reports.chain_below(tmp_path, "sup") == ()
    reports.append(tmp_path, report())
    assert reports.chain_below(tmp_path, "sup") == (), "a death that was repaired ended nobody"
    reports.append(tmp_path, report("start_error", "no disk"))
    reports.append(tmp_path, report("shutdown", "gave up", chain=tuple(f"{n}" for n in range(20))))
    chain = reports.chain_below(tmp_path, "sup")
    assert chain[:3] == ("gave up", "0", "1")
    assert len(chain) == CHAIN_LINKS


def test_the_end_of_a_file_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert reports.last_lines(log) == ()
    log.write_text("".join(f"line {number} ä\n" for number in range(5000)))
    assert reports.last_lines(log, 2) == ("line 4998 ä", "line 4999 ä")


def test_reports_and_logs_that_cannot_be_read_are_empty(tmp_path: Path) -> None:
    (tmp_path / "reports" / "sup.jsonl").mkdir(parents=True)  # a folder is no file that can be read
    assert reports.chain_below(tmp_path, "sup") == ()
    assert reports.last_lines(tmp_path) == ()


@case("format_log_1", "format_log_2")
def test_a_report_says_who_why_about_whom_and_what_led_to_it(tmp_path: Path) -> None:
    world = BenchWorld(tmp_path)
    world.grow(below("pool", child("a"), max_restarts=0), child("b"), max_restarts=0)
    world.end("a", "crash")
    assert "gave up: child 'pool' failed once more" in world.until_ended()
    world.close()
    death, gave_up = world.reports("pool")
    assert (death.supervisor, death.context, death.offender.id) == ("pool", "child_terminated", "a")
    assert death.reason == "exit code 70: ZeroDivisionError: asked to"
    assert (death.exit_code, death.signal, death.offender.restart) == (70, None, "permanent")
    assert death.last_words[-1] == "ZeroDivisionError: asked to"
    assert (gave_up.context, gave_up.offender.id) == ("shutdown", "a")
    above = world.reports()
    assert [(each.context, each.offender.id) for each in above] == [
        ("child_terminated", "pool"),
        ("shutdown", "pool"),
    ]
    assert above[-1].chain == (gave_up.reason,)


def test_a_supervisor_that_is_killed_did_not_end_for_the_reasons_of_one_that_gave_up(tmp_path: Path) -> None:
    world = BenchWorld(tmp_path)
    world.grow(below("pool", child("a"), max_restarts=0))
    world.end("a", "crash")
    world.until(lambda: world.lives("pool") == (2,) and world.is_up("pool"), "the pool is back")
    world.end_and_await_next("pool", "kill")
    world.close()
    gave_up, killed = world.reports()
    assert (gave_up.chain, gave_up.signal) == ((world.reports("pool")[1].reason,), None)
    assert (killed.chain, killed.signal) == ((), "SIGKILL")
