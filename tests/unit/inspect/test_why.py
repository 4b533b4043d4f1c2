"""Why an actor ended: its own failure or that of another actor, and what its log says."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dart.core.errors import UsageError
from dart.core.run_directory import RunPaths
from dart.inspect import logs, why
from dart.inspect.exit_reports import ActorEnd, all_reports, ancestors_of, ends, newest_failure
from dart.inspect.logs import LogLine
from dart.inspect.snapshot import ActorRow
from supervision import reports
from supervision.reports import Offender, SupervisorReport

PARENTS = {
    "root": "",
    "store": "root",
    "rollout_pool": "root",
    "environment_pool": "root",
    "env-000": "environment_pool",
    "env-001": "environment_pool",
    "trainer": "root",
}


GONE = ActorRow(
    name="env-000",
    parent="environment_pool",
    state="backoff",
    pid=0,
    incarnation=1,
    ready=False,
    beat_age_s=0.0,
    busy_s=0.0,
    handler="",
    messages=0,
    restarts=0,
    last_reason="",
    process="gone",
)


def report(supervisor: str, child: str, unix_s: float, **fields: object) -> SupervisorReport:
    told: dict[str, object] = {
        "unix_s": unix_s,
        "supervisor": supervisor,
        "context": "child_terminated",
        "reason": f"{child} broke",
        "offender": Offender(id=child, incarnation=1),
    }
    return SupervisorReport(**told | fields)  # type: ignore[arg-type]


def ready(incarnation: int, unix_s: float) -> LogLine:
    return LogLine(incarnation=incarnation, unix_s=unix_s, level="info", event="actor_ready", fields={})


def starts(*moments_s: float) -> list[LogLine]:
    return [ready(number, at_s) for number, at_s in enumerate(moments_s, start=1)]


def blamed(found: list[ActorEnd]) -> list[tuple[int, str]]:
    return [(one.incarnation, one.report.offender.id if one.report else "") for one in found]


def test_an_actor_that_failed_has_its_own_report() -> None:
    own = report("environment_pool", "env-000", 20.0)

    (only,) = ends("env-000", PARENTS, starts(10.0, 21.0), [own])

    assert (only.incarnation, only.started_unix_s, only.report, only.is_own) == (1, 10.0, own, True)


def test_one_that_never_got_ready_has_the_reports_of_its_deaths() -> None:
    own = report("environment_pool", "env-000", 20.0, context="start_error")

    assert blamed(ends("env-000", PARENTS, [], [own])) == [(1, "env-000")]
    assert ends("env-001", PARENTS, [], [own]) == []


def test_one_that_has_not_come_back_yet_is_told_too() -> None:
    own = report("environment_pool", "env-000", 20.0)

    assert blamed(ends("env-000", PARENTS, starts(10.0), [own])) == [(1, "env-000")]


def test_an_actor_is_taken_along_by_a_supervisor_above_and_with_its_branch() -> None:
    pool = report("root", "environment_pool", 20.0)
    store = report("root", "store", 40.0, taken_along=("rollout_pool", "environment_pool", "trainer"))

    found = ends("env-000", PARENTS, starts(10.0, 21.0, 41.0), [pool, store])

    assert blamed(found) == [(1, "environment_pool"), (2, "store")]
    assert not any(one.is_own for one in found)


def test_one_that_was_taken_along_and_is_not_back_yet_is_told() -> None:
    pool = report("root", "environment_pool", 20.0)

    assert blamed(ends("env-000", PARENTS, starts(10.0), [pool], is_up=False)) == [(1, "environment_pool")]
    assert blamed(ends("env-000", PARENTS, starts(10.0, 21.0), [pool])) == [(1, "environment_pool")]


def test_incarnations_of_several_starts_of_a_run_are_told_apart() -> None:
    """Each start counts from 1: the first had two, the second has its second now."""
    lives = [ready(number, at_s) for number, at_s in ((1, 10), (2, 21), (1, 100), (2, 121))]
    failures = [report("environment_pool", "env-000", at_s) for at_s in (20.0, 120.0)]

    found = ends("env-000", PARENTS, lives, failures)

    assert [(one.incarnation, one.started_unix_s, one.report) for one in found] == [
        (1, 10, failures[0]),
        (2, 21, None),
        (1, 100, failures[1]),
    ]


def test_who_takes_whom_along_is_the_supervisors_word_whatever_its_strategy() -> None:
    alone = report("environment_pool", "env-001", 20.0)
    earlier = report("root", "store", 20.5, taken_along=("rollout_pool",))
    together = report("environment_pool", "env-001", 21.0, taken_along=("env-000",))

    assert blamed(ends("env-000", PARENTS, starts(10.0, 22.0), [alone, earlier])) == [(1, "")]
    assert blamed(ends("env-000", PARENTS, starts(10.0, 22.0), [alone, together])) == [(1, "env-001")]


def test_what_was_decided_after_a_death_and_a_replacement_are_no_deaths() -> None:
    retired = report("environment_pool", "env-000", 20.0, context="retired")

    assert blamed(ends("env-000", PARENTS, starts(10.0, 21.0), [retired])) == [(1, "")]


def test_a_death_before_its_life_is_not_to_blame() -> None:
    assert blamed(ends("env-000", PARENTS, starts(10.0, 21.0), [report("root", "store", 5.0)])) == [(1, "")]


def test_the_supervisors_above_are_found_also_on_a_board_that_shows_a_circle() -> None:
    assert ancestors_of("env-000", PARENTS) == ["environment_pool", "root"]
    assert ancestors_of("a", {"a": "b", "b": "a"}) == ["b", "a"]


def test_only_newer_reports_are_read_and_a_broken_line_is_left_out(tmp_path: Path) -> None:
    for unix_s in (1.0, 2.0):
        reports.append(tmp_path, report("root", "store", unix_s))
    with (tmp_path / "reports" / "root.jsonl").open("a") as file:
        file.write('{"unix_s": 9')
    reports.append(tmp_path, report("root", "store", 3.0))
    with (tmp_path / "reports" / "root.jsonl").open("ab") as file:
        file.write(b"7\n" + bytes(101))  # after a power failure a file may end in zeros
    reports.append(tmp_path, report("environment_pool", "env-000", 2.5))

    assert [one.unix_s for one in reports.read(tmp_path, "root", 2.0)] == [2.0, 3.0]
    assert [one.unix_s for one in all_reports(tmp_path)] == [1.0, 2.0, 2.5, 3.0]


def test_the_message_of_an_error_is_that_of_the_newest_failure_with_it(tmp_path: Path) -> None:
    failures = ("WrongConfiguration: old", "WrongConfiguration: a: b", "OSError: disk")
    for unix_s, reason in enumerate(failures):
        reports.append(tmp_path, report("root", "trainer", float(unix_s), reason=reason))
    decided = report("root", "trainer", 9.0, reason="WrongConfiguration: none", context="shutdown")
    reports.append(tmp_path, decided)

    assert newest_failure(tmp_path, "WrongConfiguration") == "a: b"
    assert newest_failure(tmp_path, "MemoryError") == ""


def log_line(event: str, incarnation: int, unix_s: float, **fields: object) -> str:
    timestamp = datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")
    said = {"actor": "env-000", "incarnation": incarnation, **fields, "event": event, "level": "info"}
    return json.dumps({**said, "timestamp": timestamp})


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    for folder in ("logs", "crash"):
        (tmp_path / folder).mkdir()
    return RunPaths(tmp_path)


def test_a_log_is_read_with_the_file_before_it_and_without_half_lines(paths: RunPaths) -> None:
    (paths.logs / "env-000.jsonl.1").write_text(log_line("actor_ready", 1, 10.0, pid=7) + "\n")
    (paths.logs / "env-000.jsonl").write_text(log_line("actor_ready", 2, 21.5) + '\n{"half": ')

    lines = logs.read_log(paths, "env-000")

    assert lines == [ready(1, 10.0), ready(2, 21.5)]
    assert [line.incarnation for line in logs.previous_lines(lines, 2)] == [1]
    assert logs.previous_lines(lines, 1) == []


def test_the_incarnation_before_is_of_this_start_of_the_run_or_else_the_last_one_of_the_start_before(
    paths: RunPaths,
) -> None:
    said = [("actor_ready", 1), ("first", 1), ("actor_ready", 2), ("actor_ready", 1), ("again", 1)]
    said += [("actor_ready", 2)]
    log = "".join(log_line(event, number, 10.0 + at) + "\n" for at, (event, number) in enumerate(said))
    (paths.logs / "env-000.jsonl").write_text(log)
    lines = logs.read_log(paths, "env-000")

    assert [line.event for line in logs.previous_lines(lines, 2)] == ["actor_ready", "again"]
    assert [line.unix_s for line in logs.previous_lines(lines[:5], 1)] == [12.0]


@pytest.fixture
def without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A board on which no actor has a row."""
    monkeypatch.setattr(why, "read_actors", lambda _: ())


@pytest.mark.usefixtures("without_rows")
def test_an_actor_that_was_removed_from_the_tree_has_its_ends_from_reports_and_log(paths: RunPaths) -> None:
    lines = [log_line("actor_ready", 1, 10.0), log_line("actor_ready", 2, 21.5)]
    (paths.logs / "env-000.jsonl").write_text("\n".join(lines) + "\n")
    reports.append(paths.root, report("environment_pool", "env-000", 20.0))

    row, found = why.read_ends(paths.root, "env-000")

    assert row is None
    said = why.summary("env-000", row, found)
    assert said == "env-000 was removed from the tree; before that, it ended once"
    (only,) = found
    assert why.end_line(only).endswith("incarnation 1 ended after 10s: env-000 broke")


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ([], "env-000 is backoff: its process has ended, and no supervisor has reported why"),
        ([report("environment_pool", "env-000", 20.0)], "env-000 is backoff; it ended once"),
    ],
)
def test_an_actor_without_a_process_is_unexplained_only_until_its_end_is_reported(
    failures: list[SupervisorReport], said: str
) -> None:
    found = ends("env-000", PARENTS, [], failures)
    assert why.summary("env-000", GONE, found) == said


@pytest.mark.usefixtures("without_rows")
def test_a_death_after_an_actor_was_removed_is_not_its_end(paths: RunPaths) -> None:
    (paths.logs / "env-000.jsonl").write_text(log_line("actor_ready", 1, 10.0) + "\n")
    reports.append(paths.root, report("root", "environment_pool", 90.0))

    row, found = why.read_ends(paths.root, "env-000")

    said = why.summary("env-000", row, found)
    assert said == "env-000 was removed from the tree; before that, it never ended"


@pytest.mark.usefixtures("without_rows")
@pytest.mark.parametrize("name", ["env-000", "../secret", "x" * 300])
def test_an_actor_that_the_run_never_had_is_refused(paths: RunPaths, name: str) -> None:
    reports.append(paths.root, report("environment_pool", "env-001", 20.0))

    with pytest.raises(UsageError, match="the run has no actor"):
        why.read_ends(paths.root, name)


def test_last_words_are_the_traceback_or_what_the_kernel_left(paths: RunPaths) -> None:
    (paths.crash / "env-000.1.fault").write_text("Fatal Python error: Segmentation fault\n")
    (paths.crash / "env-000.2.fault").write_text("")
    (paths.crash / "env-000.2.txt").write_text("Traceback\nValueError: 7\n")

    assert logs.last_words(paths, "env-000", 1) == "Fatal Python error: Segmentation fault"
    assert logs.last_words(paths, "env-000", 2).endswith("ValueError: 7")
    assert logs.last_words(paths, "env-000", 3) == ""


def test_a_log_is_followed_into_the_next_file_and_half_a_line_waits_for_its_end(paths: RunPaths) -> None:
    log = paths.logs / "env-000.jsonl"
    log.write_text(log_line("old", 1, 1.0) + "\n")
    first, second, third = (log_line(event, 1, 2.0) for event in ("first", "second", "third"))

    with logs.Tail(paths, "env-000") as tail:
        kept = tail.new()
        with log.open("a") as file:
            file.write(first + "\n" + second[:20])
        half = tail.new()
        with log.open("a") as file:
            file.write(second[20:] + "\n")
        log.rename(paths.logs / "env-000.jsonl.1")
        log.write_text(third + "\n")
        whole, nothing = tail.new(), tail.new()

    assert [line.event for line in kept] == ["old"]
    assert [line.event for line in half] == ["first"]
    assert [line.event for line in whole] == ["second", "third"]
    assert nothing == []


def test_a_log_that_does_not_exist_yet_is_followed_from_its_beginning(paths: RunPaths) -> None:
    with logs.Tail(paths, "env-000") as tail:
        before = tail.new()
        (paths.logs / "env-000.jsonl").write_text(log_line("first", 1, 1.0) + "\n")
        after = tail.new()

    assert (before, [line.event for line in after]) == ([], ["first"])


def test_a_line_written_just_before_the_log_is_renamed_is_shown(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = paths.logs / "env-000.jsonl"
    log.write_text(log_line("old", 1, 1.0) + "\n")
    last, first = (log_line(event, 1, 2.0) for event in ("last", "first"))
    is_another_file = logs.Tail._is_another_file

    def rename_first(tail: logs.Tail) -> bool:
        with log.open("a") as file:
            file.write(last + "\n")
        log.rename(paths.logs / "env-000.jsonl.1")
        log.write_text(first + "\n")
        return is_another_file(tail)

    with logs.Tail(paths, "env-000") as tail:
        tail.new()
        monkeypatch.setattr(logs.Tail, "_is_another_file", rename_first)
        assert [line.event for line in tail.new()] == ["last", "first"]


def test_a_log_is_followed_from_its_kept_lines_on_although_it_is_renamed_meanwhile(paths: RunPaths) -> None:
    log, earlier = (paths.logs / name for name in ("env-000.jsonl", "env-000.jsonl.1"))
    earlier.write_text(log_line("oldest", 1, 1.0) + "\n")
    log.write_text(log_line("old", 1, 1.0) + "\n")
    with logs.Tail(paths, "env-000") as tail:
        log.rename(earlier)
        log.write_text(log_line("new", 1, 2.0) + "\n")
        assert [line.event for line in tail.new()] == ["oldest", "old", "new"]


def test_a_log_that_is_renamed_while_it_is_opened_is_read_once(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, earlier = (paths.logs / name for name in ("env-000.jsonl", "env-000.jsonl.1"))
    log.write_text(log_line("old", 1, 1.0) + "\n")
    read_earlier = logs.Tail._earlier

    def rename_first(tail: logs.Tail) -> bytes:
        log.rename(earlier)
        return read_earlier(tail)

    monkeypatch.setattr(logs.Tail, "_earlier", rename_first)
    with logs.Tail(paths, "env-000") as tail:
        assert [line.event for line in tail.new()] == ["old"]


def test_an_end_is_told_with_its_process_and_what_it_said_last() -> None:
    own = report(
        "environment_pool",
        "env-000",
        20.0,
        signal="SIGKILL",
        offender=Offender(id="env-000", incarnation=3, pid=77),
        last_words=("ValueError: 7",),
        log_lines=(log_line("step_failed", 3, 19.0, step=4),),
        chain=("below",),
    )

    lines = list(why.end_lines(ActorEnd(incarnation=3, started_unix_s=8.0, report=own, is_own=True)))

    assert lines[0].endswith("incarnation 3 ended after 12s: env-000 broke")
    assert lines[1:4] == [
        "    reported by environment_pool, process 77, SIGKILL",
        "    because: below",
        "    it said: ValueError: 7",
    ]
    assert lines[4].startswith("    its log: ")
    assert lines[4].endswith("step_failed  step=4")


@pytest.mark.parametrize(
    ("ended", "how"),
    [({"exit_code": 0}, "exit code 0"), ({"signal": "SIGKILL"}, "SIGKILL"), ({}, None)],
)
def test_an_end_is_told_with_the_exit_code_also_if_it_is_0(ended: dict[str, object], how: str | None) -> None:
    own = report("environment_pool", "env-000", 20.0, **ended)

    _, told = why.end_lines(ActorEnd(incarnation=1, started_unix_s=8.0, report=own, is_own=True))

    assert told == "    reported by environment_pool" + (f", {how}" if how else "")


def test_an_end_nobody_reported_says_so() -> None:
    silent = ActorEnd(incarnation=1, started_unix_s=8.0, report=None, is_own=False)

    assert why.end_line(silent) == (
        "incarnation 1: no supervisor reported why: it was asked to stop, or the whole run ended"
    )
