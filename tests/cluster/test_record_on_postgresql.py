"""The record on a PostgreSQL server: one writer, and a server that is killed or away."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from actors.testing import InMemorySystem
from dart.cli.start_plan import what_it_would_do
from dart.config.config import Config, load_config
from dart.core import messages as m
from dart.core.errors import RunDirectoryError
from dart.core.record_address import ServerAddress
from dart.core.records import StoredResult
from dart.core.run_directory import RunPaths
from dart.run.app import take_over_record
from dart.run.run_record import begin_record, refuse_without_record
from dart.store import writer
from dart.store.actor import RETRY_S, StoreActor
from dart.store.blobs import BlobStore
from dart.store.client import result_of
from dart.store.errors import StoreBusy, StoreTakenOver, StoreUnavailable
from dart.store.patience import Patience
from dart.store.reader import StoreReader
from dart.store.run_blobs import local_blobs
from dart.store.store import Store
from dart.testing.postgresql_server import PostgresqlServer
from dart.testing.trajectories import trajectory_for

KILLS = 4
NUL_AND_ESCAPES = "a\0b\x1a0\x1a\x1ac"


@pytest.fixture
def address(database: str) -> ServerAddress:
    return ServerAddress(database)


@pytest.fixture
def steps(tmp_path: Path) -> BlobStore:
    return local_blobs(tmp_path).steps


@pytest.fixture
def store(address: ServerAddress, steps: BlobStore) -> Iterator[Store]:
    with Store(address, steps=steps) as opened:
        opened.add_version()
        yield opened


def play(store: Store, group_id: int) -> int:
    """Lease a rollout and finish it; returns its id."""
    lease = store.lease_rollout(group_id, "env-000", 60.0)
    result = store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, 1.0))
    assert result is StoredResult.ACCEPTED
    return lease.rollout_id


# ---- what the record holds ----


def test_large_numbers_and_any_text_come_back(store: Store, address: ServerAddress, steps: BlobStore) -> None:
    group_id = store.open_group(NUL_AND_ESCAPES, 2**62, 4, 10, 0)
    store.record_event("restart", NUL_AND_ESCAPES, {"why": NUL_AND_ESCAPES})
    store.drop_group(group_id, NUL_AND_ESCAPES)
    with StoreReader(address, steps=steps) as reader:
        group = reader.group(group_id)
        (event,) = reader.find_events()
        assert (group.task_id, group.seed) == (NUL_AND_ESCAPES, 2**62)
        assert (event.subject, event.data) == (NUL_AND_ESCAPES, {"why": NUL_AND_ESCAPES})
        assert reader.drops_by_task() == {NUL_AND_ESCAPES: {NUL_AND_ESCAPES: 1}}
        assert reader.damaged_rows(full=True) == []


def test_numbers_keep_all_bits_and_commits_are_synced_whatever_the_server_was_told(
    store: Store, address: ServerAddress, steps: BlobStore
) -> None:
    with psycopg.connect(str(address), autocommit=True) as admin:
        ((name,),) = admin.execute("SELECT current_database()").fetchall()
        admin.execute(f'ALTER DATABASE "{name}" SET extra_float_digits = 0')
        admin.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    exact = 0.1 + 0.2
    with Store(address, steps=steps) as again:
        lease = again.lease_rollout(again.open_group("click-test", 7, 4, 10, 0), "env-000", 60.0)
        again.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, exact))
        assert again.rollout(lease.rollout_id).reward == exact
        ((kept,),) = again._bare.execute("SHOW synchronous_commit").fetchall()
    with StoreReader(address) as reader:
        assert reader.rollout(lease.rollout_id).reward == exact
    assert kept == "on"


def test_no_time_limit_of_the_database_ends_a_session_or_a_statement(
    store: Store, address: ServerAddress
) -> None:
    limits = ("statement_timeout", "idle_session_timeout")
    with psycopg.connect(str(address), autocommit=True) as admin:
        ((name,),) = admin.execute("SELECT current_database()").fetchall()
        for limit in limits:
            admin.execute(f"ALTER DATABASE \"{name}\" SET {limit} = '20min'")
    with Store(address) as again, StoreReader(address) as reader:
        assert reader.latest_version() is not None
        with reader._reading() as reading:
            for connection in (again._bare, reading):
                found = [connection.execute(f"SHOW {limit}").fetchone() for limit in limits]
                assert found == [("0",), ("0",)]


def test_a_statement_that_was_cancelled_elsewhere_is_tried_again_later(store: Store) -> None:
    store._bare.execute("SET statement_timeout = 50")
    with pytest.raises(StoreBusy, match="a statement was cancelled there"):
        store._bare.execute("SELECT pg_sleep(60)")
    store._bare.execute("SET statement_timeout = 0")
    assert store.record_event("restart", "env-000") > 0


# ---- one writer ----


def test_of_two_stores_the_older_one_commits_nothing(
    store: Store, address: ServerAddress, steps: BlobStore
) -> None:
    group_id = store.open_group("click-test", 7, 4, 10, 0)
    lease = store.lease_rollout(group_id, "env-000", 60.0)
    with Store(address, steps=steps) as newer:
        for _ in range(3):
            with pytest.raises(
                StoreTakenOver, match="took over writing in epoch 2; this process wrote in epoch 1"
            ):
                store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, 1.0))
            with pytest.raises(StoreTakenOver):
                store.record_event("restart", "env-000")
        assert newer.find_events() == ()
        assert newer.conservation().stored == 0
        play(newer, group_id)
        assert newer.conservation().stored == 1


def test_a_writer_that_is_frozen_in_a_transaction_neither_commits_nor_blocks_the_next(
    store: Store, address: ServerAddress
) -> None:
    def write_while_another_takes_over() -> None:
        with store._transaction():
            store.record_event("restart", "env-000")
            with Store(address) as newer:
                newer.record_event("restart", "env-001")

    with pytest.raises(StoreTakenOver):
        write_while_another_takes_over()
    with pytest.raises(StoreTakenOver):
        store.record_event("restart", "env-000")
    with StoreReader(address) as reader:
        assert [event.subject for event in reader.find_events()] == ["env-001"]


def test_a_store_of_an_epoch_that_is_over_does_not_open(store: Store, address: ServerAddress) -> None:
    with Store(address, create=False, epoch=store.epoch) as beside:
        beside.record_event("restart", "env-000")
    with Store(address):
        pass
    with pytest.raises(StoreTakenOver):
        Store(address, create=False, epoch=store.epoch)


def test_a_store_that_lost_its_connection_does_not_take_the_record_back(
    store: Store, address: ServerAddress
) -> None:
    with Store(address) as newer:
        end_sessions(address)
        with pytest.raises((StoreTakenOver, StoreBusy)):
            store.record_event("restart", "env-000")
        with pytest.raises(StoreTakenOver):
            store.record_event("restart", "env-000")
        assert newer.record_event("restart", "env-001") > 0


def end_sessions(address: ServerAddress) -> None:
    """End every connection to a database, as an operator or a failover does."""
    with psycopg.connect(str(address), autocommit=True) as admin:
        admin.execute("""
            SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
            WHERE datname = current_database() AND pid != pg_backend_pid()
        """)


# ---- a server that is killed ----


def test_nothing_acknowledged_is_lost_when_the_server_is_killed_again_and_again(
    postgresql: PostgresqlServer, store: Store, address: ServerAddress
) -> None:
    acknowledged: list[int] = []
    read: list[int] = []
    is_over = threading.Event()

    def write() -> None:
        group_id = store.open_group("click-test", 7, 100_000, 10, 0)
        while not is_over.is_set():
            try:
                acknowledged.append(play(store, group_id))
            except StoreBusy:
                time.sleep(0.02)

    def watch() -> None:
        with StoreReader(address, Patience(open_s=20.0, read_s=20.0)) as reader:
            while not is_over.is_set():
                try:
                    read.append(reader.conservation().stored)
                except StoreBusy:
                    time.sleep(0.02)

    threads = [threading.Thread(target=write), threading.Thread(target=watch)]
    for thread in threads:
        thread.start()
    for _ in range(KILLS):
        before = len(acknowledged)
        await_that(lambda before=before: len(acknowledged) > before + 5)
        time.sleep(random.uniform(0.0, 0.1))
        postgresql.kill()
        postgresql.start()
    before = len(acknowledged), len(read)
    await_that(lambda: len(acknowledged) > before[0] and len(read) > before[1])
    is_over.set()
    for thread in threads:
        thread.join()

    assert read == sorted(read)
    with StoreReader(address) as reader:
        assert reader.integrity() == ()
        assert {reader.rollout(rollout_id).state.value for rollout_id in acknowledged} == {"stored"}
        assert reader.conservation().stored >= len(acknowledged)


def await_that(holds: Callable[[], bool], deadline_s: float = 60.0) -> None:
    until_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < until_s, "the writer or the reader stopped"
        time.sleep(0.01)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_commit_whose_answer_got_lost_is_asked_for(
    store: Store, address: ServerAddress, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    commit = psycopg.Connection.commit

    def lose_the_answer(connection: Any) -> None:
        monkeypatch.undo()
        if is_kept:
            commit(connection)
        else:
            end_sessions(address)
        connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(psycopg.Connection, "commit", lose_the_answer)
    if is_kept:
        store.record_event("restart", "env-000")
    else:
        with pytest.raises(StoreBusy, match="its server ended during a commit"):
            store.record_event("restart", "env-000")
    assert len(store.find_events()) == is_kept


def test_a_commit_whose_answer_cannot_be_asked_for_ends_the_store(
    postgresql: PostgresqlServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_the_answer(connection: Any) -> None:
        postgresql.kill()
        connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(writer, "OUTCOME_S", 0.1)
    with monkeypatch.context() as commits:
        commits.setattr(psycopg.Connection, "commit", lose_the_answer)
        with pytest.raises(StoreUnavailable, match="whether the last change was kept is not known") as ended:
            store.record_event("restart", "env-000")
    postgresql.start()
    assert not isinstance(ended.value, StoreBusy)


# ---- errors and their remedies ----


def other(address: ServerAddress, before: str, after: str) -> ServerAddress:
    assert before in str(address)
    return ServerAddress(str(address).replace(before, after))


def test_what_cannot_be_opened_is_named_with_its_remedy(store: Store, address: ServerAddress) -> None:
    for wrong, remedy in (
        (other(address, "postgres@/test", "postgres@/absent"), r"no such database: create it \(createdb\)"),
        (other(address, "postgres@", "stranger@"), "the server refuses this user"),
        (ServerAddress("postgresql://a@127.0.0.1:1/x"), "does not answer"),
    ):
        with pytest.raises(StoreUnavailable, match=remedy) as refused:
            StoreReader(wrong)
        assert str(wrong) in str(refused.value)


def test_a_database_without_a_record_is_no_record(address: ServerAddress) -> None:
    with pytest.raises(StoreUnavailable, match="has no schema"):
        StoreReader(address)
    with pytest.raises(StoreUnavailable, match="has no schema"):
        Store(address, create=False)


def test_a_lock_held_elsewhere_passes(store: Store, address: ServerAddress) -> None:
    with psycopg.connect(str(address)) as elsewhere:
        elsewhere.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        store._bare.execute("SET lock_timeout = 50")
        with pytest.raises(StoreBusy, match="another session held a lock"):
            store.record_event("restart", "env-000")
    assert store.record_event("restart", "env-000") > 0


def test_a_new_run_leaves_the_database_of_another_one_alone(
    tmp_path: Path, address: ServerAddress, new_database: Callable[[], str]
) -> None:
    config = load_config(None, [f"run.record={str(address)!r}"])
    (tmp_path / "config.toml").write_text(config.to_toml())
    paths = RunPaths(tmp_path)
    begin_record(config, paths)
    with Store(address) as running:
        running.record_event("pools_sized", "root", {})
        with pytest.raises(RunDirectoryError, match="holds the record of a run"):
            what_it_would_do(config, RunPaths(tmp_path / "second"))
        with pytest.raises(RunDirectoryError, match=r"holds the record of a run.*name an empty database"):
            begin_record(config, RunPaths(tmp_path / "second"))
        assert running.record_event("restart", "env-000") > 0

    foreign = new_database()
    with psycopg.connect(foreign, autocommit=True) as connection:
        connection.execute("CREATE TABLE sales (amount BIGINT)")
    with pytest.raises(RunDirectoryError, match="holds tables of another program"):
        begin_record(load_config(None, [f"run.record={foreign!r}"]), RunPaths(tmp_path / "third"))


def test_a_start_that_was_interrupted_is_begun_over(tmp_path: Path, address: ServerAddress) -> None:
    config = load_config(None, [f"run.record={str(address)!r}"])
    begin_record(config, RunPaths(tmp_path))
    with psycopg.connect(str(address), autocommit=True) as connection:
        connection.execute("""UPDATE versions SET metrics = '{"of_the_first_start": 1.0}'""")
    begin_record(config, RunPaths(tmp_path))
    with StoreReader(address) as reader:
        (base,) = reader.versions()
    assert base.metrics == {}


def test_a_run_that_is_resumed_without_the_address_of_its_record_is_told_it(
    tmp_path: Path, address: ServerAddress
) -> None:
    (tmp_path / "config.toml").write_text(load_config(None, [f"run.record={str(address)!r}"]).to_toml())
    with pytest.raises(StoreUnavailable, match=r"does not exist.*The record of this run was postgresql://"):
        refuse_without_record(load_config(), RunPaths(tmp_path))


# ---- the store actor ----


@pytest.fixture
def bench(tmp_path: Path, store: Store, address: ServerAddress) -> Iterator[InMemorySystem]:
    (tmp_path / "config.toml").write_text(load_config(None, [f"run.record={str(address)!r}"]).to_toml())
    args = {
        "store": str(address),
        "config": Config().model_dump(mode="json"),
        "epoch": take_over_record(Config(), RunPaths(tmp_path)),
    }
    with InMemorySystem(tmp_path) as bench:
        bench.start(StoreActor, "store", args=args)
        yield bench


OPEN = m.OpenGroup(task_id="click-test", seed=7, rollouts_wanted=2, step_cap=10, policy_version=0)


def asked(bench: InMemorySystem) -> Any:
    answer = bench.ask("store", OPEN)
    bench.settle()
    return answer.result()


def test_the_store_pauses_while_its_server_is_away_and_goes_on_by_itself(
    postgresql: PostgresqlServer, bench: InMemorySystem, address: ServerAddress
) -> None:
    assert result_of(OPEN, asked(bench)).seed == 7
    postgresql.kill()
    paused = asked(bench)
    assert isinstance(paused, m.Paused)
    bench.advance(RETRY_S)
    assert isinstance(asked(bench), m.Paused)
    postgresql.start()
    bench.advance(RETRY_S)
    assert result_of(OPEN, asked(bench)).seed == 7
    with StoreReader(address) as reader:
        assert [event.kind for event in reader.find_events(subject="store")] == ["paused"]
        assert len(reader.snapshot().groups) == 2


def test_a_store_actor_whose_record_was_taken_over_ends(
    bench: InMemorySystem, address: ServerAddress
) -> None:
    assert result_of(OPEN, asked(bench)).seed == 7
    with Store(address) as newer:
        with pytest.raises(StoreTakenOver):
            asked(bench)
        assert len(newer.snapshot().groups) == 1
        assert newer.record_event("restart", "env-000") > 0
