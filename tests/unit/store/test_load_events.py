"""Events about the load of many actors: few writes, and none of them lost while the store runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from actors.actor import Stop
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.record_address import RecordAddress
from dart.store.actor import LOAD_WRITE_S, StoreActor
from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.telemetry.events import PAUSED
from dart.telemetry.load_interval import LOAD_EVENTS_PER_S, load_every_s
from dart.telemetry.load_meter import LOAD
from tests.record_places import RecordPlaces


@pytest.fixture
def path(places: RecordPlaces) -> RecordAddress:
    address = places.empty()
    with Store(address) as store:
        store.add_version()
    return address


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each write had."""
    found: list[int] = []
    record = Store.record_events

    def counted(store: Store, events: Sequence[m.EventDraft]) -> int:
        found.append(len(events))
        return record(store, events)

    monkeypatch.setattr(Store, "record_events", counted)
    return found


@pytest.fixture
def bench(tmp_path: Path, path: RecordAddress) -> Iterator[InMemorySystem]:
    with InMemorySystem(tmp_path) as bench:
        args = {"store": str(path), "config": Config().model_dump(mode="json")}
        bench.start(StoreActor, "store", args=args)
        yield bench


def send(bench: InMemorySystem, subject: str, kind: str = LOAD) -> None:
    data = {"wall_s": 1.0} if kind == LOAD else {"began_unix_s": 0.0, "paused_s": 1.0, "reason": "a test"}
    event = m.EventDraft(kind=kind, subject=subject, data=data)
    assert bench.tell("store", m.RecordEvents(events=(event,)))


def subjects(path: RecordAddress, kind: str) -> list[str]:
    with StoreReader(path) as reader:
        return sorted(event.subject for event in reader.find_events(kinds=[kind]))


def test_the_load_of_all_actors_of_a_moment_is_one_write(
    bench: InMemorySystem, path: RecordAddress, writes: list[int]
) -> None:
    names = [f"env-{index:03d}" for index in range(40)]
    for name in names:
        send(bench, name)
    bench.settle()
    bench.advance(LOAD_WRITE_S)

    assert (writes, subjects(path, LOAD)) == ([40], names)

    send(bench, "env-000")
    bench.advance(LOAD_WRITE_S)
    assert writes == [40, 1], "what comes later is written too"


def test_what_is_kept_is_written_before_the_store_ends(bench: InMemorySystem, path: RecordAddress) -> None:
    send(bench, "env-000")
    bench.settle()
    bench.tell("store", Stop())
    bench.settle()

    assert subjects(path, LOAD) == ["env-000"]


def test_other_events_do_not_wait(bench: InMemorySystem, path: RecordAddress) -> None:
    send(bench, "store", PAUSED)
    bench.settle()

    assert subjects(path, PAUSED) == ["store"]


def test_more_actors_send_their_load_less_often_and_few_as_often_as_configured() -> None:
    few = Config()
    many = few.model_copy(update={"environments": few.environments.model_copy(update={"count": 40_000})})
    actors = 40_000 + many.rollout.count + 1

    assert load_every_s(few) == few.telemetry.load_every_s
    assert actors / load_every_s(many) == pytest.approx(LOAD_EVENTS_PER_S)
