"""Loads that grow old are thinned to one a minute, then one a quarter of an hour; nothing else is touched."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core.messages import EventDraft
from dart.inspect.utilisation import TimeWindow, spent
from dart.store.actor import StoreActor
from dart.store.event_retention import ENDS_MOST, EVERY_S, last_of_incarnations
from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.telemetry.events import PAUSED
from dart.telemetry.load_meter import LOAD
from tests.record_places import RecordPlaces

DAY_S = 86_400.0
BEGAN_UNIX_S = 20_000 * DAY_S


class Hands:
    """A clock that is set, and goes on by itself with every look when told so."""

    def __init__(self) -> None:
        self.unix_s = BEGAN_UNIX_S
        self.tick_s = 0.0

    def __call__(self) -> float:
        self.unix_s += self.tick_s
        return self.unix_s - self.tick_s


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def store(places: RecordPlaces, clock: Hands) -> Iterator[Store]:
    opened = Store(places.empty(), clock)
    yield opened
    opened.close()


def play(store: Store, clock: Hands, seconds: float) -> None:
    """For a while two actors tell their loads in turns, every 15 s, and in between something happens."""
    round_of = (
        EventDraft(kind=LOAD, subject="env-000", data={"wall_s": 1e9}),
        EventDraft(kind=LOAD, subject="env-001", data={"wall_s": 1e9}),
        EventDraft(kind=PAUSED, subject="store", data={}),
    )
    clock.tick_s = 5.0
    store.record_events(round_of * int(seconds / 15.0))
    clock.tick_s = 0.0


def thin(store: Store) -> None:
    """Delete from the oldest event to the present."""
    thinned = store.thin_events()
    while thinned.is_behind:
        thinned = store.thin_events(thinned.looked_unix_s)


def loads_of(store: StoreReader, subject: str) -> list[float]:
    return [
        e.unix_s - BEGAN_UNIX_S for e in store.find_events(kinds=[LOAD], subject=subject, limit=1_000_000)
    ]


def test_of_loads_older_than_an_hour_the_last_of_each_minute_is_kept(store: Store, clock: Hands) -> None:
    play(store, clock, 2 * 3600.0)

    thin(store)

    old = [at for at in loads_of(store, "env-000") if at < 3600.0]
    assert old == [60.0 * minute + 45.0 for minute in range(60)]
    assert [at for at in loads_of(store, "env-001") if at < 3600.0] == [at + 5.0 for at in old]


def test_the_newest_hour_and_every_other_kind_are_kept_whole(store: Store, clock: Hands) -> None:
    play(store, clock, 2 * 3600.0)

    thin(store)

    kinds = Counter(event.kind for event in store.find_events(limit=1_000_000))
    assert kinds[PAUSED] == 480
    assert len([at for at in loads_of(store, "env-000") if at >= 3600.0]) == 240


def test_after_a_day_one_of_each_quarter_of_an_hour_is_kept(store: Store, clock: Hands) -> None:
    play(store, clock, 3600.0)
    clock.unix_s += DAY_S

    thin(store)

    assert loads_of(store, "env-000") == [885.0, 1785.0, 2685.0, 3585.0]


def test_the_last_load_of_an_actor_that_was_replaced_is_kept(store: Store, clock: Hands) -> None:
    for lifetime_s in (330.0, 200.0, 300.0):
        for wall_s in range(0, int(lifetime_s), 5):
            clock.unix_s += 5.0
            store.record_event(LOAD, "env-000", {"in_episode_s": wall_s + 5.0, "wall_s": wall_s + 5.0})
    clock.unix_s += 2 * DAY_S

    thin(store)

    assert loads_of(store, "env-000") == [330.0, 530.0, 830.0]
    load = store.find_events(kinds=(LOAD,))
    window = TimeWindow(begins_unix_s=BEGAN_UNIX_S, ends_unix_s=BEGAN_UNIX_S + 830.0)
    assert spent(load, window)["env-000"]["in_episode_s"] == pytest.approx(830.0)


def row(event_id: int, unix_s: float, data: str, subject: str = "env-000") -> SimpleNamespace:
    return SimpleNamespace(event_id=event_id, subject=subject, unix_s=unix_s, data=data)


def test_a_damaged_load_keeps_no_other_one_from_being_deleted() -> None:
    rows = [row(1, 10.0, '{"wall_s": 5.0}'), row(2, 15.0, '{"wa'), row(3, 20.0, '{"wall_s": 1.5e-05}')]
    assert last_of_incarnations(rows) == [1]


def test_the_loads_of_one_actor_do_not_end_an_incarnation_of_another() -> None:
    rows = [
        row(2 * at + own, at, f'{{"wall_s": {wall_s}}}', f"env-{own}")
        for at in range(1, 4)
        for own, wall_s in ((0, 100.0 + at), (1, 200.0 + at))
    ]
    assert last_of_incarnations(rows) == []


@pytest.mark.parametrize(("unix_s", "wall_s", "ended"), [(15.0, "5.5", []), (11.0, "1.5e-05", [1])])
def test_the_seconds_of_a_load_count_with_all_their_digits(
    unix_s: float, wall_s: str, ended: list[int]
) -> None:
    rows = [row(1, 10.0, '{"wall_s": 0.5}'), row(2, unix_s, f'{{"wall_s": {wall_s}}}')]
    assert last_of_incarnations(rows) == ended


def test_of_more_incarnations_than_a_statement_can_name_the_newest_are_kept() -> None:
    rows = [row(number, 10.0 * number, '{"wall_s": 1.0}') for number in range(1, ENDS_MOST + 3)]
    assert last_of_incarnations(rows) == list(range(2, ENDS_MOST + 2))


def test_looking_again_and_again_keeps_what_one_look_at_the_end_keeps(
    places: RecordPlaces, store: Store, clock: Hands
) -> None:
    other_clock = Hands()
    other = Store(places.empty(), other_clock)
    looked_unix_s = None
    for _ in range(13):
        play(store, clock, 1005.0)
        play(other, other_clock, 1005.0)
        store.thin_events(looked_unix_s)
        looked_unix_s = clock.unix_s

    thin(other)

    assert loads_of(store, "env-000") == loads_of(other, "env-000")
    other.close()


def test_an_empty_record_has_nothing_to_thin(store: Store) -> None:
    assert store.thin_events()[0::2] == (0, False)


def test_one_deletion_looks_at_a_part_of_a_backlog_so_that_the_store_can_do_other_work(
    store: Store, clock: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.store.LOOK_EVENTS", 300)
    play(store, clock, 3 * 3600.0)
    clock.unix_s += 21 * DAY_S

    first = store.thin_events()

    assert first.is_behind
    assert 0 < first.deleted < 300
    second = store.thin_events(first.looked_unix_s)
    assert second.looked_unix_s > first.looked_unix_s
    assert 0 < second.deleted < 300
    thin(store)
    assert loads_of(store, "env-000") == [885.0 + 900.0 * number for number in range(12)]


def test_each_deletion_gets_further_also_where_the_clock_was_set_back_for_a_while(
    store: Store, clock: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.store.LOOK_EVENTS", 20)
    play(store, clock, 3000.0)
    clock.unix_s -= 3000.0
    play(store, clock, 45.0)
    clock.unix_s += 3000.0
    play(store, clock, 3495.0)
    clock.unix_s += 2 * DAY_S

    for at_s in range(2850, 3000, 5):
        looked_unix_s = BEGAN_UNIX_S + 3600.0 + at_s
        assert store.thin_events(looked_unix_s).looked_unix_s > looked_unix_s


def test_the_store_thins_by_itself_as_time_goes_by(tmp_path: Path, store: Store, clock: Hands) -> None:
    play(store, clock, 1800.0)
    args = {"store": str(store.address), "config": Config().model_dump(mode="json")}
    with InMemorySystem(tmp_path) as bench:
        bench.start(StoreActor, "store", args=args)
        bench.advance(EVERY_S + 1.0)

    with StoreReader(store.address) as reader:
        assert loads_of(reader, "env-000") == [885.0, 1785.0]
