"""The live list of actors."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dart.core.records import RunPhase
from dart.inspect import top
from dart.inspect.formatting import age
from dart.inspect.snapshot import ActorRow, RunSnapshot
from dart.store.errors import StoreBusy


def actor(name: str, **changes: object) -> ActorRow:
    row = ActorRow(
        name=name,
        parent="root",
        state="running",
        pid=sum(name.encode()),
        incarnation=1,
        ready=True,
        beat_age_s=0.1,
        busy_s=0.0,
        handler="",
        messages=5,
        restarts=0,
        last_reason="",
        age_s=125.0,
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def snapshot(taken_unix_s: float, *actors: ActorRow) -> RunSnapshot:
    return RunSnapshot(
        run_dir="r",
        taken_unix_s=taken_unix_s,
        phase=RunPhase.TRAINING,
        elapsed_s=1.0,
        budget_s=0.0,
        actors=actors,
    )


def printed(shown: RunSnapshot, shares: dict[int, float], rows_max: int = 10) -> list[str]:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(top.screen(shown, shares, rows_max=rows_max))
    return console.export_text().splitlines()


BUSY = actor("env-000", cpu_s=3.0, rss_bytes=300 * 2**20, handler="Step", busy_s=2.0)
STOPPED = actor("env-001", process="suspended", beat_age_s=42.0)
IDLE = actor("store", restarts=7, restarts_in_window=2)


def test_the_unwell_come_first_and_then_who_works_hardest() -> None:
    lines = printed(snapshot(0.0, IDLE, BUSY, STOPPED), {BUSY.pid: 0.5})
    names = [line.split()[0] for line in lines if line.startswith(("env-", "store"))]

    assert names == ["env-001", "env-000", "store"]


def test_a_row_says_what_the_kernel_and_the_actor_say() -> None:
    lines = printed(snapshot(0.0, BUSY, STOPPED, IDLE), {BUSY.pid: 0.5})
    rows = {line.split()[0]: line for line in lines if line.startswith(("env-", "store"))}

    assert rows["env-000"].split()[2:] == ["50", "%", "300.0", "MiB", "2m05s", "Step", "2.0", "s"]
    assert "running, suspended" in rows["env-001"]
    assert "no beat for 42s" in rows["env-001"]
    assert "2/7" in rows["store"]


def test_those_without_room_are_counted() -> None:
    last = [printed(snapshot(0.0, BUSY, STOPPED, IDLE), {}, rows_max=rows)[-1].strip() for rows in (1, 3)]

    assert last[0] == "and 2 more"
    assert last[1].startswith("store")


def test_a_share_is_processor_time_between_two_looks() -> None:
    first = snapshot(100.0, actor("a", cpu_s=10.0))

    assert top.cpu_shares(None, first) == {}
    assert top.cpu_shares(first, snapshot(102.0, actor("a", cpu_s=11.0), BUSY)) == {actor("a").pid: 0.5}


def test_it_is_drawn_until_somebody_wants_to_end() -> None:
    looks = iter([snapshot(float(second), BUSY) for second in range(9)])
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 3

    file = io.StringIO()
    top.watch(lambda: next(looks), Console(file=file, width=100, force_terminal=True), wait, every_s=2.0)

    assert waits == [2.0, 2.0, 2.0]
    assert next(looks).taken_unix_s == 3.0
    assert "env-000" in file.getvalue()


def test_a_record_that_does_not_answer_leaves_the_last_picture_and_says_why() -> None:
    looks: list[RunSnapshot | None] = [snapshot(0.0, BUSY), None, snapshot(2.0, STOPPED)]
    drawn: list[str] = []
    file = io.StringIO()

    def read() -> RunSnapshot:
        if (look := looks.pop(0)) is None:
            raise StoreBusy("the server of the record does not answer")
        return look

    def wait(seconds: float) -> bool:
        drawn.append(file.getvalue())
        file.seek(0)
        file.truncate()
        return not looks

    top.watch(read, Console(file=file, width=100, height=30, force_terminal=True), wait, every_s=2.0)

    assert ["not the present state: the server of the record" in one for one in drawn] == [False, True, False]
    assert ["env-000" in one for one in drawn] == [True, True, False]


def test_a_record_that_does_not_answer_at_first_ends_the_view() -> None:
    def read() -> RunSnapshot:
        raise StoreBusy("away")

    with pytest.raises(StoreBusy, match="away"):
        top.watch(read, Console(file=io.StringIO()), lambda _: True, every_s=2.0)


def test_ages_are_short() -> None:
    assert [age(s) for s in (None, 0.4, 59, 60, 192, 3600, 7440, 86_400, 277_200)] == [
        "–",
        "0s",
        "59s",
        "1m00s",
        "3m12s",
        "1h00m",
        "2h04m",
        "1d00h",
        "3d05h",
    ]


def test_the_trainer_comes_before_the_environments_if_both_are_down() -> None:
    down = [actor(name, state="backoff") for name in ("env-000", "env-001", "trainer")]
    (first, *_) = [line for line in printed(snapshot(0.0, *down), {}, rows_max=1) if "backoff" in line]
    assert first.startswith("trainer")
