"""A store actor whose record refuses writes pauses, says so once, and goes on by itself.

A server that is away is in tests/cluster/test_record_on_postgresql.py.
"""

import errno
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.errors import DiskError
from dart.core.record_address import RecordAddress
from dart.store.actor import BLOBS_RETRY_S, RETRY_S, StoreActor
from dart.store.client import result_of, write
from dart.store.disk_wait import ROOM_RETRY_S, await_room, is_no_room
from dart.store.errors import BlobMissing, BlobsBusy, StoreBusy, StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.run_blobs import RunBlobs
from dart.telemetry.board_gauges import Gauge
from dart.testing.trajectories import trajectory_for
from tests.record_places import RecordPlaces

OPEN = m.OpenGroup(task_id="click-test", seed=7, rollouts_wanted=2, step_cap=10, policy_version=0)
LEASE = m.LeaseRollout(group_id=1, environment="env-000", deadline_unix_s=2e9)
NO_ROOM = OSError(28, "No space left on device")


@pytest.fixture
def bench(
    tmp_path: Path, places: RecordPlaces, new_record: RecordAddress, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InMemorySystem]:
    monkeypatch.setattr(places.lock_timeout, 0.01)
    with InMemorySystem(tmp_path) as bench:
        args = {"store": str(new_record), "config": Config().model_dump(mode="json")}
        bench.start(StoreActor, "store", args=args)
        yield bench


def asked(bench: InMemorySystem, call: Any = OPEN, to: str = "store") -> Any:
    answer = bench.ask(to, call)
    bench.settle()
    return answer.result()


def test_a_locked_record_is_answered_by_a_pause_and_goes_on(
    bench: InMemorySystem, places: RecordPlaces, new_record: RecordAddress
) -> None:
    lock = places.lock(new_record)
    paused = asked(bench)
    assert isinstance(paused, m.Paused)
    assert re.search("another (process|session) held", paused.reason)
    lock.release()
    assert asked(bench) == paused, "tried again only after a while"
    bench.advance(RETRY_S)
    assert result_of(OPEN, asked(bench)).group_id == 1
    with StoreReader(new_record) as reader:
        assert len(reader.snapshot().groups) == 1
        (event,) = reader.find_events()
    assert (event.kind, event.subject) == ("paused", "store")
    assert event.data["paused_s"] == pytest.approx(RETRY_S)


def test_a_wall_clock_that_is_set_does_not_change_how_long_a_pause_was(
    bench: InMemorySystem, places: RecordPlaces, new_record: RecordAddress
) -> None:
    lock = places.lock(new_record)
    assert isinstance(asked(bench), m.Paused)
    bench.clock.set_unix_ahead(-3600.0)
    bench.advance(RETRY_S)
    lock.release()
    assert result_of(OPEN, asked(bench)).group_id == 1
    with StoreReader(new_record) as reader:
        (event,) = reader.find_events()
    assert event.data["paused_s"] == pytest.approx(RETRY_S)
    assert event.data["began_unix_s"] == pytest.approx(bench.clock.unix_s() - RETRY_S, abs=0.01)


def test_a_pause_that_lasts_is_one_pause(
    bench: InMemorySystem, places: RecordPlaces, new_record: RecordAddress
) -> None:
    lock = places.lock(new_record)
    for _ in range(5):
        assert isinstance(asked(bench), m.Paused)
        bench.advance(RETRY_S)
    lock.release()
    assert result_of(OPEN, asked(bench)).group_id == 1
    with StoreReader(new_record) as reader:
        assert len(reader.find_events()) == 1


def test_a_probe_does_not_end_a_pause_on_the_board(
    bench: InMemorySystem, places: RecordPlaces, new_record: RecordAddress
) -> None:
    bench.start(StoreActor, "probed", args=bench.actor("store").args, probe_every_s=5.0)
    assert is_ready(bench, "probed")
    lock = places.lock(new_record)
    for _ in range(2):
        assert isinstance(asked(bench, to="probed"), m.Paused)
        assert not is_ready(bench, "probed")
        bench.advance(6.0)
    lock.release()
    assert result_of(OPEN, asked(bench, to="probed")).group_id == 1
    assert is_ready(bench, "probed")


def is_ready(bench: InMemorySystem, name: str) -> bool:
    row = bench.board.row(name)
    return row is not None and row.ready


def test_a_contradiction_after_a_pause_is_still_an_answer(
    bench: InMemorySystem, places: RecordPlaces, new_record: RecordAddress
) -> None:
    lock = places.lock(new_record)
    call = m.DropGroup(group_id=99, reason="no_spread")
    assert isinstance(asked(bench, call), m.Paused)
    lock.release()
    bench.advance(RETRY_S)
    assert isinstance(asked(bench, call), m.Contradiction)


class AwayBlobs:
    """Object storage that does not answer while `is_away`, and has no blob else."""

    is_remote = True

    def __init__(self) -> None:
        self.is_away, self.asked = True, 0

    def read(self, sha256: str) -> bytes:
        self.asked += 1
        if self.is_away:
            raise BlobsBusy("s3://bucket/run: the object storage does not answer")
        raise BlobMissing(sha256, f"{sha256} is missing")


def test_the_record_takes_other_writes_while_object_storage_does_not_answer(
    bench: InMemorySystem, new_record: RecordAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = AwayBlobs()
    monkeypatch.setattr("dart.store.actor.run_blobs", lambda *_: RunBlobs(away, away))
    bench.start(StoreActor, "blobs", args=bench.actor("store").args)
    assert result_of(OPEN, asked(bench, to="blobs")).group_id == 1
    lease = result_of(LEASE, asked(bench, LEASE, to="blobs")).result
    played = replace(trajectory_for(lease), steps=())
    finish = m.FinishRollout(rollout_id=1, fence=1, trajectory=played, steps_sha256="0" * 64)

    paused = asked(bench, finish, to="blobs")
    assert isinstance(paused, m.Paused)
    assert [asked(bench, finish, to="blobs") for _ in range(3)] == [paused] * 3
    assert away.asked == 1, "the storage is not asked for each report"
    assert waited_unix_s(bench, "blobs") == int(bench.clock.unix_s()), "the curator revokes no lease now"
    assert result_of(OPEN, asked(bench, to="blobs")).group_id == 2

    bench.advance(BLOBS_RETRY_S)
    assert asked(bench, finish, to="blobs") == paused
    bench.advance(BLOBS_RETRY_S)
    away.is_away = False
    assert isinstance(asked(bench, finish, to="blobs"), m.Contradiction)
    assert away.asked == 3


def waited_unix_s(bench: InMemorySystem, name: str) -> int:
    slot = bench.board.find(name)
    assert slot is not None
    return bench.board.gauge(slot, Gauge.WAITED_UNIX_S)


class Client(Actor):
    """Whoever writes to the record, or to the disk."""

    def on_start(self) -> None:
        self.said: list[str] = []
        self.done: list[Any] = []
        self.failed: list[Exception] = []

    async def write(self) -> None:
        self.done.append(await write(self, OPEN, self.said.append))

    async def work(self, errors: list[Exception]) -> None:
        def once() -> str:
            if errors:
                raise errors.pop(0)
            return "done"

        try:
            self.done.append(await await_room(self, "a screenshot", once))
        except Exception as error:
            self.failed.append(error)


@pytest.fixture
def client(bench: InMemorySystem) -> Client:
    bench.start(Client, "env-000")
    client: Client = bench.actor("env-000")
    return client


def test_whoever_writes_waits_until_the_record_goes_on(
    bench: InMemorySystem, places: RecordPlaces, new_record: RecordAddress, client: Client
) -> None:
    lock = places.lock(new_record)
    client.run(client.write())
    bench.settle()
    for _ in range(30):
        bench.advance(RETRY_S)
    assert client.done == []
    assert len(client.said) == 1
    lock.release()
    bench.advance(2 * RETRY_S)
    assert [group.group_id for group in client.done] == [1]
    assert client.said[-1] == ""


def test_work_that_finds_no_room_is_done_when_there_is(
    bench: InMemorySystem, new_record: RecordAddress, client: Client
) -> None:
    wrapped = RuntimeError("the checkpoint was not written")
    wrapped.__cause__ = NO_ROOM
    began_unix_s = bench.clock.unix_s()
    client.run(client.work([NO_ROOM, wrapped]))
    bench.settle()
    bench.advance(ROOM_RETRY_S)
    assert client.done == []
    assert waited_unix_s(bench, "env-000") == int(began_unix_s + ROOM_RETRY_S), "it still waits"
    bench.advance(ROOM_RETRY_S)
    assert client.done == ["done"]
    with StoreReader(new_record) as reader:
        (event,) = reader.find_events()
    assert (event.kind, event.subject) == ("paused", "env-000")
    assert event.data["began_unix_s"] == pytest.approx(began_unix_s, abs=0.01)
    assert event.data["paused_s"] == pytest.approx(2 * ROOM_RETRY_S)


def test_work_that_is_given_up_while_it_waits_reports_no_end_of_the_wait(
    bench: InMemorySystem, new_record: RecordAddress, client: Client
) -> None:
    waiting = client.work([NO_ROOM])
    client.run(waiting)
    bench.settle()
    waiting.close()
    bench.settle()
    assert not bench.row("env-000").ready
    with StoreReader(new_record) as reader:
        assert not reader.find_events()


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "denied"), ValueError("damaged")], ids=str)
def test_another_error_after_the_wait_ends_it_and_leaves_the_actor_ready(
    bench: InMemorySystem, new_record: RecordAddress, client: Client, error: Exception
) -> None:
    client.run(client.work([NO_ROOM, error]))
    bench.settle()
    assert not bench.row("env-000").ready
    bench.advance(ROOM_RETRY_S)
    assert client.failed == [error]
    assert bench.row("env-000").ready
    with StoreReader(new_record) as reader:
        (event,) = reader.find_events()
    assert (event.kind, event.data["paused_s"]) == ("paused", pytest.approx(ROOM_RETRY_S))


@pytest.mark.parametrize(
    "error",
    [
        BlobsBusy("s3://bucket/run: the object storage does not answer"),
        StoreBusy("postgresql://db/run: its server does not answer"),
    ],
    ids=str,
)
def test_work_that_a_server_does_not_answer_waits_and_says_so(
    bench: InMemorySystem, new_record: RecordAddress, client: Client, error: StoreBusy
) -> None:
    client.run(client.work([error]))
    bench.settle()
    assert client.done == []
    assert waited_unix_s(bench, "env-000") == int(bench.clock.unix_s())
    bench.advance(ROOM_RETRY_S)
    assert client.done == ["done"]
    with StoreReader(new_record) as reader:
        (event,) = reader.find_events()
    assert event.data["reason"] == f"a screenshot: {error}"


def test_any_other_error_is_no_pause(bench: InMemorySystem, client: Client) -> None:
    error = PermissionError(13, "Permission denied")
    client.run(client.work([error]))
    bench.settle()
    assert client.failed == [error]
    assert client.done == []


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (NO_ROOM, True),
        (OSError(122, "Disk quota exceeded"), True),
        (RuntimeError("safetensors: I/O error: No space left on device (os error 28)"), True),
        (PermissionError(13, "Permission denied"), False),
        (StoreUnavailable("store.db: it is damaged"), False),
        (DiskError("the disk refused"), False),
    ],
)
def test_only_a_full_disk_is_no_room(error: Exception, is_one: bool) -> None:
    assert is_no_room(error) is is_one
