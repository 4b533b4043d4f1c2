"""The vitals board: one shared-memory file per run, one slot per actor name.

The board is the registry (name -> incarnation, pid, readiness) and the vitals
(beat, busy since, current handler, counters) at once, because both must be
readable by anyone with the run's rights while every actor hangs.

Who writes what: the supervisor writes the fields from `name` to `ended_reason`
(see `_FORMATS`). The actor writes the other fields while it lives; before its
start and after its end the supervisor writes them, too. The root writes its own
pid, and the launcher writes the rest of the root's row.
Rows below a dead supervisor are written by the supervisor or launcher above it,
rows of other machines by the bridge. So there is one writer at a time, and a
row gets another writer only when its last one has ended.

Nothing is locked for reading. A number is one aligned store and never torn;
`struct.pack_into` is not used, because it zeroes a field before it fills it,
and a reader would take a healthy actor for one that never beat. Text may be a
mix of old and new for an instant, and two fields of a row need not be of the
same moment.

The file is the rows, then an index of their names: a header and a hash table of
slots, so that a name is found among 65,536 rows as fast as among ten. The index
is changed under the lock of all claims. An entry may be out of date; the name in
the row decides.
"""

import fcntl
import math
import mmap
import os
import struct
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

from actors.errors import ActorError

WORD_BYTES = 8
SLOT_BYTES = 1024
SLOTS = 1024
"""The rows of a board that is created without a number."""

MAX_SLOTS = 2**20
NAME_BYTES = 64
CLAIM_DEADLINE_S = 5.0
GAUGES = 4
"""The number of gauges of a row: whole numbers to which the application gives a meaning, by index."""

MOST = 2**40
"""The limit of pids, counts and unix times in a row. A larger number means that the file is damaged."""

MAX_PLACED_INCARNATION = 2**60
"""The highest incarnation accepted for a plain name, so that the next placement can have a higher one.

An actor's incarnation goes on from that of its row and is not higher; a client's is random and higher.
"""

INCARNATIONS_PER_PLACEMENT = 2**20
"""Incarnations reserved for each placement of an actor on a host: those of placement n begin at n times this
number (`supervision.placement`)."""

LAUNCHER = "launcher"
"""The parent of the root actor: the process that started the system, which is no actor."""


class ActorState(StrEnum):
    """The state of a child as its supervisor sees it; most names are supervisord's."""

    FREE = "free"
    """A row without a name, or the row of a child that was forgotten."""
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    """A child in quarantine: it failed too often, and its supervisor's circuit breaker leaves it alone."""


STATES = tuple(ActorState)
"""The states in the order of their numbers in a row."""

LIVING = frozenset({ActorState.STARTING, ActorState.RUNNING, ActorState.STOPPING})
"""The states in which a child has a process that takes mail."""

WAITING = frozenset({ActorState.BACKOFF, ActorState.QUARANTINED})
"""The states in which a child has no process, and its supervisor will start one."""


@dataclass(frozen=True, slots=True)
class _Field:
    offset: int
    kind: str
    """q: a whole number, d: a float, s: text"""
    bytes: int


_FORMATS = (
    # written by the supervisor
    ("name", "64s"),
    ("parent", "64s"),
    ("state", "q"),
    ("pid", "q"),
    ("incarnation", "q"),
    ("restarts", "q"),
    ("started_unix_s", "d"),
    ("retry_unix_s", "d"),
    ("last_reason", "384s"),
    ("pid_start_ticks", "q"),
    ("route", "q"),
    ("ended_incarnation", "q"),
    ("ended_reason", "80s"),
    # written by the actor
    ("ready", "q"),
    ("beat_ns", "q"),
    ("busy_since_ns", "q"),
    ("handler", "64s"),
    ("messages", "q"),
    ("refused", "q"),
    ("work_since_ns", "q"),
    ("work", "64s"),
    ("gauge_0", "q"),
    ("gauge_1", "q"),
    ("gauge_2", "q"),
    ("gauge_3", "q"),
    ("progress_ns", "q"),
    ("unsent", "q"),
    ("uses", "q"),
    ("last_error", "120s"),
    ("own_exit", "q"),
)
_LAYOUT: dict[str, _Field] = {}
_cursor = 0
for _name, _format in _FORMATS:
    _size = struct.calcsize(_format)
    if _size % WORD_BYTES:
        raise AssertionError(f"field {_name!r} has {_size} bytes: numbers after it would not be aligned")
    _LAYOUT[_name] = _Field(_cursor, _format[-1], _size)
    _cursor += _size
if _cursor > SLOT_BYTES:
    raise AssertionError(f"a slot needs {_cursor} bytes, SLOT_BYTES is {SLOT_BYTES}")


def offset_of(field: str) -> int:
    """Where a field begins in a row, in bytes."""
    return _LAYOUT[field].offset


_ROW = struct.Struct("@" + "".join(form for _, form in _FORMATS))
"""Unpacks a whole row. Native mode ("@") copies each number at once; there is no padding between fields."""

_Raw: Any = namedtuple("_Raw", [name for name, _ in _FORMATS])  # type: ignore[misc]  # listed above
"""A whole row, not decoded."""

_FIRST_GAUGE = _Raw._fields.index("gauge_0")

_READY_END = _LAYOUT["ready"].offset + WORD_BYTES
_LAST_ERROR = _LAYOUT["last_error"]
_ACTIVITY_WORDS = tuple(
    _LAYOUT[name].offset // WORD_BYTES
    for name in (
        *("beat_ns", "progress_ns", "busy_since_ns", "work_since_ns"),
        *("messages", "refused", "unsent", "uses"),
    )
)

# The header of the index, in words.
_USED, _REBUILDS, _ENTRIES, _NEXT_EMPTIED, _CHANGES = range(5)
_HEADER_WORDS = 8
_WORDS_PER_SLOT = 2


def size_bytes(slots: int) -> int:
    """The size, in bytes, of the file of a board with this number of rows."""
    return slots * (SLOT_BYTES + _WORDS_PER_SLOT * WORD_BYTES) + _HEADER_WORDS * WORD_BYTES


def slots_in(file_bytes: int) -> int:
    """The number of rows of a board whose file has this size; 0 when it is no board."""
    slots = (file_bytes - _HEADER_WORDS * WORD_BYTES) // (SLOT_BYTES + _WORDS_PER_SLOT * WORD_BYTES)
    return slots if slots > 0 and size_bytes(slots) == file_bytes else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """One row of the board at one moment. Ages are None where nothing happened yet."""

    slot: int
    name: str
    parent: str
    state: ActorState
    pid: int
    incarnation: int
    restarts: int
    started_unix_s: float
    retry_unix_s: float
    last_reason: str
    pid_start_ticks: int
    """Field 22 of /proc/pid/stat: together with the pid it identifies one process for ever."""
    route: int
    """0 for an actor of this host. Otherwise its mail goes to the inbox of slot `route - 1`, a bridge."""
    ready: bool
    beat_age_s: float | None
    busy_s: float | None
    handler: str
    messages: int
    refused: int
    work_s: float | None
    work: str
    gauges: tuple[int, ...]
    """All GAUGES gauges, by index."""
    progress_age_s: float | None
    """The time since the actor last finished a message or a piece of work."""
    unsent: int
    """Messages that the actor could not send: a mailbox was full, or no actor had the name."""
    uses: int
    last_error: str


_STAYS = frozenset({"name", "incarnation"})
"""Fields that keep their value when a row is emptied for another actor.

The incarnation goes on, so that no two processes share an address. The name stays until the row gets another
one, because a search of the rows ends at the first row without a name.
"""


class Heartbeat:
    """Writes what changes with every message: that the actor runs, and its handler. Takes about 1 us."""

    def __init__(self, board: "Board", slot: int) -> None:
        self._board = board
        self._beat = (slot * SLOT_BYTES + _LAYOUT["beat_ns"].offset) // WORD_BYTES
        self._busy = (slot * SLOT_BYTES + _LAYOUT["busy_since_ns"].offset) // WORD_BYTES
        handler = _LAYOUT["handler"]
        begins_at = slot * SLOT_BYTES + handler.offset
        self._handler = slice(begins_at, begins_at + handler.bytes)
        self._handler_bytes = handler.bytes

    def beat(self) -> None:
        """Note that the actor runs."""
        self._board.whole[self._beat] = self._board.now_ns()

    def busy(self, what: str) -> None:
        """Note that the actor runs, and is in this handler from now on."""
        size, now_ns = self._handler_bytes, self._board.now_ns()
        self._board.memory[self._handler] = what.encode()[:size].ljust(size, b"\0")
        self._board.whole[self._busy] = now_ns
        self._board.whole[self._beat] = now_ns

    def idle(self) -> None:
        """Note that the actor runs, and waits for something to do."""
        self._board.whole[self._beat] = self._board.now_ns()
        self._board.whole[self._busy] = 0


class Board:
    """A mapped board file. Create it once per run, open it everywhere else."""

    def __init__(self, path: Path, *, is_read_only: bool = False) -> None:
        self.path = path
        self._file = path.open("rb" if is_read_only else "r+b")
        file_bytes = os.fstat(self._file.fileno()).st_size
        self.slots = slots_in(file_bytes)
        """The number of rows, named or not."""
        if not self.slots:
            self._file.close()
            raise ActorError(f"{path} has {file_bytes} bytes and is not a board of actors")
        self._header = self.slots * SLOT_BYTES // WORD_BYTES
        self._index = self._header + _HEADER_WORDS
        self.memory: mmap.mmap | bytearray
        access = mmap.ACCESS_READ if is_read_only else mmap.ACCESS_WRITE
        self._map(mmap.mmap(self._file.fileno(), 0, access=access))
        self._slots: dict[str, int] = {}
        self.now_ns: Callable[[], int] = time.monotonic_ns
        """The clock of every `_ns` field; tests set another one."""

    @classmethod
    def create(cls, path: Path, slots: int = SLOTS) -> "Board":
        """Make a fresh, empty board file (mode 0600) in place of an old one.

        slots   the number of rows, 1 to MAX_SLOTS; a row takes 1 KB of disk space, written or not

        Raises OSError when the disk has no room for the whole board.
        """
        if not 1 <= slots <= MAX_SLOTS:
            raise ActorError(f"a board has 1 to {MAX_SLOTS:,} rows, got {slots:,}")
        # A reader may have the old file mapped. If that file became shorter, SIGBUS would kill the reader.
        new = path.with_name(f".{path.name}.new")
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.fchmod(fd, 0o600)  # it may have been there before
            # On a full disk, SIGBUS ends a process that writes to a page without a place. On a tmpfs it ends
            # a reader, too: there a page gets its place when it is first read.
            os.posix_fallocate(fd, 0, size_bytes(slots))
        except OSError:
            new.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        new.replace(path)
        return cls(path)

    def close(self) -> None:
        if not self._file.closed:
            self._unmap()

    def detach(self) -> None:
        """Copy the board into this process's own memory, and close the file."""
        if not self._file.closed:
            last = bytearray(len(self.memory))
            last[self._header * WORD_BYTES :] = self.memory[self._header * WORD_BYTES :]
            for begins_at in range(0, self.slots * SLOT_BYTES, SLOT_BYTES):
                row = self.memory[begins_at : begins_at + SLOT_BYTES]
                if not row[0]:
                    break
                last[begins_at : begins_at + SLOT_BYTES] = row
            self._unmap()
            self._map(last)

    def note_own_exit(self, slot: int, code: int) -> None:
        """Note, right before the process ends, that the actor's own runtime chose this exit code."""
        self.set(slot, own_exit=code + 1)

    def own_exit(self, slot: int) -> int | None:
        """The exit code that an actor's runtime chose; None when something else ended the process."""
        noted = int(self.get(slot, "own_exit"))
        return noted - 1 if noted else None

    def _map(self, memory: mmap.mmap | bytearray) -> None:
        self.memory = memory
        self.whole = memoryview(memory).cast("q")
        self._floats = memoryview(memory).cast("d")

    def _unmap(self) -> None:
        self.whole.release()
        self._floats.release()
        if isinstance(self.memory, mmap.mmap):
            self.memory.close()
        self._file.close()

    def get(self, slot: int, field: str) -> Any:
        """One field. Text is decoded, without an incomplete character that a cut may have left at its end."""
        layout = _LAYOUT[field]
        begins_at = slot * SLOT_BYTES + layout.offset
        if layout.kind == "q":
            return self.whole[begins_at // WORD_BYTES]
        if layout.kind == "d":
            return self._floats[begins_at // WORD_BYTES]
        return _text(bytes(self.memory[begins_at : begins_at + layout.bytes]))

    def set(self, slot: int, **fields: Any) -> None:
        """Write fields; text that is too long for its place is cut. A new name is noted in the index."""
        is_moved = "route" in fields and fields["route"] != self.get(slot, "route")
        if "name" in fields or is_moved:
            with _exclusive(self._file.fileno()):
                self._set(slot, fields)
                self._note_name(slot)
        else:
            self._set(slot, fields)

    def _set(self, slot: int, fields: Mapping[str, Any]) -> None:
        for name, value in fields.items():
            layout = _LAYOUT[name]
            begins_at = slot * SLOT_BYTES + layout.offset
            if layout.kind == "q":
                self.whole[begins_at // WORD_BYTES] = int(value)
            elif layout.kind == "d":
                self._floats[begins_at // WORD_BYTES] = float(value)
            else:
                text = value.encode("utf-8", "backslashreplace")[: layout.bytes]
                self.memory[begins_at : begins_at + layout.bytes] = text.ljust(layout.bytes, b"\0")

    def set_state(self, slot: int, state: ActorState, **fields: Any) -> None:
        """Write the state of a child, and other fields. Called by its supervisor."""
        self.set(slot, state=STATES.index(state), **fields)

    def set_gauges(self, slot: int, gauges: Mapping[int, int]) -> None:
        """Write gauges, by index. Called by the actor itself."""
        self.set(slot, **{f"gauge_{index:d}": value for index, value in gauges.items()})

    def gauge(self, slot: int, index: int) -> int:
        """One gauge of a row."""
        return int(self.get(slot, f"gauge_{index:d}"))

    def gauges(self, slot: int) -> tuple[int, ...]:
        """All gauges of a row, by index."""
        first = (slot * SLOT_BYTES + _LAYOUT["gauge_0"].offset) // WORD_BYTES
        return tuple(self.whole[first : first + GAUGES])

    def clear_gauges(self, slot: int) -> None:
        """Set all gauges to 0 for a new process, which has published nothing yet."""
        self.set_gauges(slot, dict.fromkeys(range(GAUGES), 0))

    def note_end(self, slot: int, incarnation: int, reason: str) -> None:
        """Write why an incarnation ended, for monitors; the supervisor does so before it changes the row.

        reason   `normal`, `shutdown` when it was asked to stop and did, or what went wrong
        """
        self.set(slot, ended_reason=reason, ended_incarnation=incarnation)

    def condition(self, slot: int) -> bytes:
        """The part of a row that changes when something happens to the actor, and not with every message.

        It contains the fields that the supervisor writes, readiness and the last error. If two values are
        equal, none of these fields has changed.
        """
        begins_at = slot * SLOT_BYTES
        error_at = begins_at + _LAST_ERROR.offset
        own = self.memory[begins_at : begins_at + _READY_END]
        return bytes(own + self.memory[error_at : error_at + _LAST_ERROR.bytes])

    def set_activity(self, slot: int, numbers: Sequence[int], *, handler: str, work: str) -> None:
        """Write what changes with every message, for an actor of another host.

        numbers   beat_ns, progress_ns, busy_since_ns, work_since_ns, messages, refused, unsent, uses
        """
        first = slot * SLOT_BYTES // WORD_BYTES
        for word, number in zip(_ACTIVITY_WORDS, numbers, strict=True):
            self.whole[first + word] = number
        if handler != self.get(slot, "handler") or work != self.get(slot, "work"):
            self._set(slot, {"handler": handler, "work": work})

    def slots_by_parent(self) -> dict[str, list[int]]:
        """The slots of the rows below each parent, in the order the names were claimed."""
        parent_at, found = _LAYOUT["parent"].offset, dict[bytes, list[int]]()
        for begins_at in range(0, self.slots * SLOT_BYTES, SLOT_BYTES):
            if not self.memory[begins_at]:
                break
            parent = bytes(self.memory[begins_at + parent_at : begins_at + parent_at + NAME_BYTES])
            found.setdefault(parent, []).append(begins_at // SLOT_BYTES)
        return {_text(parent): slots for parent, slots in found.items()}

    def slots_behind(self, bridge: int) -> Iterator[int]:
        """The slots of the rows whose mail goes to the bridge in the slot `bridge`."""
        route_at = _LAYOUT["route"].offset // WORD_BYTES
        for slot in range(self.slots):
            first = slot * SLOT_BYTES
            if not self.memory[first]:
                return
            if self.whole[first // WORD_BYTES + route_at] == bridge + 1:
                yield slot

    def state(self, slot: int) -> ActorState:
        """The state of the child in this slot, as its supervisor sees it."""
        return STATES[int(self.get(slot, "state"))]

    def find(self, name: str) -> int | None:
        """The slot that has a name now, or None. A name that was forgotten may get another slot."""
        slot = self._slots.get(name)
        if slot is not None and self.get(slot, "name") == name:
            return slot
        try:
            wanted = name.encode().ljust(NAME_BYTES, b"\0")
        except UnicodeEncodeError:  # `claim` refuses such a name, so no row has it
            return None
        slot = self._look_up(wanted) if name else None
        if slot is not None:
            self._slots[name] = slot
        return slot

    @property
    def changes(self) -> int:
        """The number of times that a row got a name, another parent, or another route."""
        return self.whole[self._header + _CHANGES]

    # ---- the index of names ----

    def _look_up(self, wanted: bytes) -> int | None:
        """The slot of a name, by the index; by a scan when another process changes the index meanwhile."""
        before = self._index_state()
        slot = self._probe(wanted)
        if slot is not None:
            return slot
        rebuilds, _ = before
        is_settled = rebuilds % 2 == 0 and self._index_state() == before
        return None if is_settled else self._scan_for(wanted)

    def _index_state(self) -> tuple[int, int]:
        return self.whole[self._header + _REBUILDS], self.whole[self._header + _CHANGES]

    def _probe(self, wanted: bytes) -> int | None:
        for word in self._places(wanted):
            entry = self.whole[word]
            if entry == 0:
                return None
            if 0 < entry <= self.slots and self._name_at(entry - 1) == wanted:
                return entry - 1
        return None

    def _places(self, name: bytes) -> Iterator[int]:
        """The positions in the index where a name may be, in the order of search (linear probing)."""
        size = self.slots * _WORDS_PER_SLOT
        first = crc32(name) % size
        return (self._index + (first + step) % size for step in range(size))

    def _note_name(self, slot: int) -> None:
        """Add a row's name to the index, under the lock. Entries under its earlier names stay."""
        header = self._header
        self.whole[header + _CHANGES] += 1
        name = self._name_at(slot)
        if not name[0]:
            return
        self.whole[header + _USED] = max(self.whole[header + _USED], slot + 1)
        is_crowded = self.whole[header + _ENTRIES] > self.slots * _WORDS_PER_SLOT * 3 // 4
        if is_crowded or self.whole[header + _REBUILDS] % 2:  # odd: its last writer ended half way
            self._rebuild_index()
        else:
            self._add_entry(slot, name)

    def _add_entry(self, slot: int, name: bytes) -> None:
        for word in self._places(name):
            if self.whole[word] == slot + 1:
                return
            if self.whole[word] == 0:
                self.whole[word] = slot + 1
                self.whole[self._header + _ENTRIES] += 1
                return

    def _rebuild_index(self) -> None:
        """Write the index anew, without entries under earlier names. Readers scan the rows meanwhile."""
        header, end = self._header, self._index + self.slots * _WORDS_PER_SLOT
        self.whole[header + _REBUILDS] |= 1
        self.memory[self._index * WORD_BYTES : end * WORD_BYTES] = bytes((end - self._index) * WORD_BYTES)
        self.whole[header + _ENTRIES] = 0
        for slot in range(self.slots):
            name = self._name_at(slot)
            if not name[0]:
                break
            self._add_entry(slot, name)
        self.whole[header + _REBUILDS] += 1

    def _name_at(self, slot: int) -> bytes:
        begins_at = slot * SLOT_BYTES
        return bytes(self.memory[begins_at : begins_at + NAME_BYTES])

    def _scan_for(self, wanted: bytes) -> int | None:
        """Find the slot of a name by comparing it with each row's."""
        for slot in range(self.slots):
            bearer = self._name_at(slot)
            if not bearer[0]:
                return None
            if bearer == wanted:
                return slot
        return None

    def claim(
        self,
        name: str,
        parent: str,
        *,
        incarnation: int | None = None,
        check: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Return the slot of a name. A new name takes an unused slot, or one whose actor was forgotten.

        incarnation   the incarnation that the caller will write; None: one that goes on from the slot's
        check         called with the slot if the name belongs to another parent; it may raise to refuse the
                      claim. It is called under the lock of all claims: if two processes want one name, one
                      gets it.

        A slot's incarnation is not reset for a new name, so that no two processes share an address.
        Raises ActorError when the name is not usable, the board is full, or the lock is held for too long.
        """
        try:
            name_bytes = len(name.encode())
        except UnicodeEncodeError as error:
            raise ActorError(f"actor name {name!r} cannot be written as UTF-8: {error.reason}") from None
        if not name or "\0" in name:  # a row whose first byte is zero counts as the end of all rows
            raise ActorError(f"actor name {name!r} is empty or has a zero byte; choose another name")
        if name_bytes > NAME_BYTES:
            raise ActorError(f"actor name {name!r} is longer than {NAME_BYTES} bytes; choose a shorter name")
        with _exclusive(self._file.fileno()):
            slot = self.find(name)
            if slot is None:
                slot = self._slot_for_a_new_name(incarnation)
            if slot is None:
                raise ActorError(
                    f"the board holds {self.slots} actors and is full, so {name!r} cannot start; "
                    "start fewer, or start the system with more rows"
                )
            is_known = self.get(slot, "name") == name
            is_same = is_known and self.get(slot, "parent") == parent
            if is_known and not is_same:
                check(slot)
            if not is_same or self.state(slot) is ActorState.FREE:  # a free row may go to another name
                state = STATES.index(ActorState.STARTING)
                self._set(slot, {"state": state, "name": name, "parent": parent, "pid": 0})
                self._note_name(slot)
        self._slots[name] = slot
        return slot

    def _unused_slot(self) -> int | None:
        """The first slot that never had a name."""
        first = self._named_slots() or 0
        return next((slot for slot in range(first, self.slots) if not self._name_at(slot)[0]), None)

    def _named_slots(self) -> int | None:
        """How many slots, from the first, have or had a name; None if the file does not say."""
        used = self.whole[self._header + _USED]
        is_right = 0 <= used <= self.slots and (not used or bool(self._name_at(used - 1)[0]))
        return used if is_right else None

    def _slot_for_a_new_name(self, incarnation: int | None) -> int | None:
        """A slot that never had a name, or whose actor ended and was forgotten.

        An actor, whose incarnation goes on from the slot's, gets no slot with a random one. A caller with an
        incarnation of its own gets any slot. A client first gets the slot of another client: clients with
        many names would use up the slots that actors can have.
        """
        is_random = incarnation is not None and incarnation > MAX_PLACED_INCARNATION
        fitting = partial(self._emptied_slot, is_random=is_random)
        tries: list[Callable[[], int | None]] = [self._unused_slot, fitting]
        if is_random:
            tries.reverse()
        if incarnation is not None:
            tries.append(partial(self._emptied_slot, is_random=not is_random))
        return next((slot for find in tries if (slot := find()) is not None), None)

    def _emptied_slot(self, *, is_random: bool) -> int | None:
        """A slot whose actor ended and was forgotten, cleared except for its incarnation, which is random or
        not."""
        fitting = (slot for slot in self._emptied() if self._has_random_incarnation(slot) == is_random)
        slot = next(fitting, None)
        if slot is not None:
            blank = {"q": 0, "d": 0.0, "s": ""}
            wiped = {name: blank[field.kind] for name, field in _LAYOUT.items() if name not in _STAYS}
            self._set(slot, wiped)
            self.whole[self._header + _NEXT_EMPTIED] = slot + 1
        return slot

    def _emptied(self) -> Iterator[int]:
        """The slots whose actors ended and were forgotten.

        Each search begins after the slot that the last one found, so that a full board is not searched from
        its first row for every name.
        """
        first, named = self.whole[self._header + _NEXT_EMPTIED], self._named_slots()
        count = self.slots if named is None else named
        for step in range(count):
            slot = (first + step) % count
            if self.state(slot) is ActorState.FREE and self.get(slot, "ended_incarnation"):
                yield slot

    def _has_random_incarnation(self, slot: int) -> bool:
        return int(self.get(slot, "incarnation")) > MAX_PLACED_INCARNATION

    def row(self, name: str) -> Vitals | None:
        """The row that has a name now, with ages as of now; None if no row has it."""
        slot = self.find(name)
        return None if slot is None else self.vitals(slot)

    def vitals(self, slot: int) -> Vitals:
        """One row, with ages as of now."""
        return self._vitals(slot, self._raw(slot))

    def _raw(self, slot: int) -> Any:
        return _Raw._make(_ROW.unpack_from(self.memory, slot * SLOT_BYTES))

    def _vitals(self, slot: int, raw: Any) -> Vitals:
        now_ns = self.now_ns()
        return Vitals(
            slot=slot,
            name=_text(raw.name),
            parent=_text(raw.parent),
            state=STATES[raw.state],
            pid=raw.pid,
            incarnation=raw.incarnation,
            restarts=raw.restarts,
            started_unix_s=raw.started_unix_s,
            retry_unix_s=raw.retry_unix_s,
            last_reason=_text(raw.last_reason),
            pid_start_ticks=raw.pid_start_ticks,
            route=raw.route,
            ready=bool(raw.ready),
            beat_age_s=_age_s(raw.beat_ns, now_ns),
            busy_s=_age_s(raw.busy_since_ns, now_ns),
            handler=_text(raw.handler),
            messages=raw.messages,
            refused=raw.refused,
            work_s=_age_s(raw.work_since_ns, now_ns),
            work=_text(raw.work),
            gauges=raw[_FIRST_GAUGE : _FIRST_GAUGE + GAUGES],
            progress_age_s=_age_s(raw.progress_ns, now_ns),
            unsent=raw.unsent,
            uses=raw.uses,
            last_error=_text(raw.last_error),
        )

    def rows(self) -> list[Vitals]:
        """Every named actor, in the order the names were claimed; damaged rows are left out."""
        rows = []
        for slot in range(self.slots):
            raw = self._raw(slot)
            if not raw.name[0]:
                break
            if _is_possible(raw):
                rows.append(self._vitals(slot, raw))
        return rows


def rows_of(path: Path) -> list[Vitals]:
    """The rows of the board in a file; none where the file is missing or is no board."""
    if not path.is_file() or not slots_in(path.stat().st_size):
        return []
    board = Board(path, is_read_only=True)  # the file system may be: that of an archive, or of a failed disk
    try:
        return board.rows()
    finally:
        board.close()


def _is_possible(raw: Any) -> bool:
    """Whether a row has only values that this code writes. A damaged file has others."""
    numbers = raw.pid, raw.restarts, raw.route
    times = raw.started_unix_s, raw.retry_unix_s
    return (
        0 <= raw.state < len(STATES)
        and raw.incarnation >= 0  # that of a client is drawn from 62 bits
        and all(0 <= number < MOST for number in numbers)
        and all(abs(unix_s) < MOST or unix_s == math.inf for unix_s in times)
    )


def _text(field: bytes) -> str:
    """Decode text, without an incomplete character that a cut may have left at its end."""
    return field.rstrip(b"\0").decode("utf-8", "ignore") if field[0] else ""


def _age_s(then_ns: int, now_ns: int) -> float | None:
    return max(0.0, (now_ns - then_ns) / 1e9) if then_ns else None


class _exclusive:
    """A lock on a file, with a deadline. It excludes processes, and threads of one process.

    A process that is suspended while it holds the lock must not block every process that starts an actor.

    The lock belongs to a descriptor that is opened for it alone. `lockf` would let a second thread of the
    process in, and would be released when any thread closes the file. With a descriptor that outlives the
    claim, threads with one board and forked children would share the lock.
    """

    def __init__(self, fd: int) -> None:
        self._file_fd = fd

    def __enter__(self) -> None:
        try:
            self._fd = os.open(f"/proc/self/fd/{self._file_fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise ActorError(f"the board's claim lock cannot be opened: {error.strerror}") from error
        give_up = time.monotonic() + CLAIM_DEADLINE_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > give_up:
                    os.close(self._fd)
                    raise ActorError(
                        "the board's claim lock is held by another process or thread for over "
                        f"{CLAIM_DEADLINE_S} s; if a process of this run is suspended, resume or end it"
                    ) from None
                time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor, too
        os.close(self._fd)
