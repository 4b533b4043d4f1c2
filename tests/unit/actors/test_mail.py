"""Mail over unix sockets: several mailboxes of one run, here in one process."""

import os
import resource
import select
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actors import codec
from actors.board import ActorState, Board
from actors.codec import MAX_MESSAGE_BYTES, Envelope, MessageKind, UndecodedMessage, encode, message
from actors.errors import ActorDied, ActorError, MailboxFull, MessageTooLarge
from actors.mail import Address, Mail
from actors.transport import POLL_EVERY, QUEUE_BYTES, QUEUE_MESSAGES

KEY = b"k" * 32
PATIENCE_S = 10.0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    number: int
    text: str = ""


class Post:
    """A run's board and mail folder, and the mailboxes on it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mail-", dir="/tmp"))  # the path of a socket is short
        self.board = Board.create(self.folder / "board")
        self.mails: list[Mail] = []
        self.fds: dict[int, int] = {}

    def actor(self, name: str, incarnation: int = 1, *, is_bound: bool = True) -> Mail:
        slot = self.board.claim(name, "root")
        self.board.set_state(slot, ActorState.RUNNING, incarnation=incarnation)
        mail = Mail(self.board, self.folder, KEY)
        self.mails.append(mail)
        if is_bound:
            self.bind(mail, name, incarnation)
        return mail

    def bind(self, mail: Mail, name: str, incarnation: int = 1) -> None:
        slot = self.board.find(name)
        assert slot is not None
        self.fds[id(mail)] = mail.bind(slot, incarnation)

    def set_state(self, name: str, state: ActorState) -> None:
        slot = self.board.find(name)
        assert slot is not None
        self.board.set_state(slot, state)

    def socket_of(self, name: str) -> str:
        return f"{self.folder}/{self.board.find(name)}"

    def take(self, mail: Mail, count: int, *senders: Mail) -> list[Envelope]:
        """The next `count` envelopes; waits on the descriptors an actor's loop waits on.

        senders: have more to send than the kernel takes at once, and no mail of their own.
        """
        taken: list[Envelope] = []
        give_up = time.monotonic() + PATIENCE_S
        while len(taken) < count:
            envelope = mail.receive()
            if envelope is not None:
                taken.append(envelope)
                continue
            left_s = give_up - time.monotonic()
            assert left_s > 0, f"{len(taken)} of {count} messages came within {PATIENCE_S} s"
            select.select([self.fds[id(each)] for each in (mail, *senders)], [], [], left_s)
            for sender in senders:
                assert sender.receive() is None  # it looks at what happened
        return taken

    def close(self) -> None:
        for mail in self.mails:
            mail.close()
        self.board.close()
        shutil.rmtree(self.folder)


@pytest.fixture
def post() -> Iterator[Post]:
    post = Post()
    yield post
    post.close()


def note(
    to: str, number: int = 0, *, sender: str = "ann", to_incarnation: int = 0, text: str = ""
) -> Envelope:
    return Envelope(
        kind=MessageKind.TELL,
        id=number,
        to=to,
        to_incarnation=to_incarnation,
        sender=sender,
        sender_incarnation=1,
        deadline_unix_ms=0,
        message=Note(number=number, text=text),
    )


def numbers(envelopes: list[Envelope]) -> list[int]:
    return [envelope.message.number for envelope in envelopes]


def test_messages_arrive_in_the_order_they_were_sent(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    for number in range(300):
        assert ann.send(note("bob", number)).incarnation == 1
    assert numbers(post.take(bob, 300, ann)) == list(range(300))


def test_each_sender_has_its_own_order(post: Post) -> None:
    ann, carl, bob = post.actor("ann"), post.actor("carl"), post.actor("bob")
    for number in range(50):
        ann.send(note("bob", number, sender="ann"))
        carl.send(note("bob", number, sender="carl"))
    came = post.take(bob, 100)
    for sender in ("ann", "carl"):
        assert numbers([envelope for envelope in came if envelope.sender == sender]) == list(range(50))


def test_an_actor_can_write_to_itself(post: Post) -> None:
    ann = post.actor("ann")
    ann.send(note("ann", 5))
    assert numbers(post.take(ann, 1)) == [5]


def test_nobody_bears_the_name(post: Post) -> None:
    ann = post.actor("ann")
    with pytest.raises(ActorDied, match=r"'ghost' \(state free\)"):
        ann.send(note("ghost"))


@pytest.mark.parametrize(
    "state", [ActorState.STOPPED, ActorState.BACKOFF, ActorState.FAILED, ActorState.FREE]
)
def test_the_bearer_of_the_name_is_not_running(post: Post, state: ActorState) -> None:
    ann = post.actor("ann")
    post.actor("bob")
    post.set_state("bob", state)
    with pytest.raises(ActorDied, match=rf"'bob' \(state {state}\)"):
        ann.send(note("bob"))


@pytest.mark.parametrize("state", [ActorState.STARTING, ActorState.RUNNING, ActorState.STOPPING])
def test_whoever_has_a_process_gets_mail(post: Post, state: ActorState) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    post.set_state("bob", state)
    ann.send(note("bob", 1))
    assert numbers(post.take(bob, 1)) == [1]


def test_a_message_for_an_incarnation_that_is_gone_is_not_sent_to_the_next(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob", incarnation=2)
    with pytest.raises(ActorDied, match="incarnation 1 of 'bob' has ended; the name has incarnation 2"):
        ann.send(note("bob", 1, to_incarnation=1))
    ann.send(note("bob", 2, to_incarnation=2))
    assert numbers(post.take(bob, 1)) == [2]


def test_a_new_incarnation_gets_new_mail_and_none_of_the_old(post: Post) -> None:
    ann, _ = post.actor("ann"), post.actor("bob", incarnation=1)
    ann.send(note("bob", 1))
    new = post.actor("bob", incarnation=2)
    assert ann.send(note("bob", 2)).incarnation == 2
    assert numbers(post.take(new, 1)) == [2]
    assert new.receive() is None


def test_mail_written_before_the_receiver_is_bound_waits_for_it_in_order(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob", is_bound=False)
    for number in range(10):
        ann.send(note("bob", number))
    post.bind(bob, "bob")
    ann.send(note("bob", 10))
    assert numbers(post.take(bob, 11, ann)) == list(range(11))


def fill(sender: Mail, to: str, text: str = "") -> tuple[int, str]:
    """Write until the mailbox is full; how many went through, and what was said then."""
    for number in range(20 * QUEUE_MESSAGES):
        try:
            sender.send(note(to, number, text=text))
        except MailboxFull as error:
            return number, str(error)
    raise AssertionError("the mailbox never was full")


def test_a_receiver_that_never_reads_fills_its_mailbox_and_sending_never_blocks(post: Post) -> None:
    ann = post.actor("ann")
    post.actor("bob")
    sent, said = fill(ann, "bob", "x" * 1000)
    assert "'bob'" in said
    assert QUEUE_MESSAGES <= sent < 10 * QUEUE_MESSAGES


def test_what_waits_for_a_receiver_is_bounded_in_bytes_too(post: Post) -> None:
    ann = post.actor("ann")
    post.actor("bob")
    text = "x" * 60_000
    sent, _ = fill(ann, "bob", text)
    waiting = ann._carrier._outboxes[1].waiting  # type: ignore[attr-defined]
    assert sum(map(len, waiting)) <= QUEUE_BYTES
    assert sent * len(text) < 10 * QUEUE_BYTES, "the kernel's part is bounded as well"


def test_a_full_mailbox_is_nobody_elses_trouble(post: Post) -> None:
    ann, carl = post.actor("ann"), post.actor("carl")
    post.actor("bob")
    fill(ann, "bob", "x" * 1000)
    ann.send(note("carl", 7))
    assert numbers(post.take(carl, 1)) == [7]


def test_a_mailbox_that_was_full_delivers_what_it_took_and_then_takes_mail_again(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    sent, _ = fill(ann, "bob")
    assert numbers(post.take(bob, sent, ann)) == list(range(sent))
    ann.send(note("bob", sent))
    assert numbers(post.take(bob, 1)) == [sent]


def test_what_is_too_large_is_refused_and_nothing_is_sent(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    with pytest.raises(MessageTooLarge):
        ann.send(note("bob", 1, text="x" * MAX_MESSAGE_BYTES))
    ann.send(note("bob", 2))
    assert numbers(post.take(bob, 1)) == [2]


# ---- strangers, and what was there before ----


def stranger(post: Post, to: str) -> socket.socket:
    """A connection to an inbox that is not made by this code."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(post.socket_of(to))
    return connection


def genuine(post: Post, to: str, number: int, **changes: Any) -> bytes:
    """A frame as `to` would take it."""
    slot = post.board.find(to)
    incarnation = post.board.get(slot, "incarnation")
    fields = {"to_incarnation": incarnation, "sequence": number} | changes
    return encode(replace(note(to, number), **fields), KEY)


GARBAGE: dict[str, bytes] = {
    "bytes": b"garbage",
    "another run's key": encode(note("bob"), b"o" * 32),
    "a frame longer than any mail": b"x" * (2 * MAX_MESSAGE_BYTES),
    "signed, but no envelope": codec._signature(b"\xc1", KEY) + b"\xc1",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_counted_and_skipped(post: Post, garbage: bytes) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    with stranger(post, "bob") as foreign:
        foreign.send(garbage)
        foreign.send(genuine(post, "bob", 1))
        assert numbers(post.take(bob, 1)) == [1]
    assert bob.refused == 1
    ann.send(note("bob", 2))
    assert numbers(post.take(bob, 1)) == [2]


def test_a_stranger_who_says_nothing_or_hangs_up_is_no_trouble(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    with stranger(post, "bob") as silent, stranger(post, "bob") as empty:
        empty.send(b"")
        silent.shutdown(socket.SHUT_WR)
        ann.send(note("bob", 1))
        assert numbers(post.take(bob, 1)) == [1]
    ann.send(note("bob", 2))
    assert numbers(post.take(bob, 1)) == [2]


def test_a_flood_of_one_sender_does_not_keep_another_waiting(post: Post) -> None:
    ann, carl, bob = post.actor("ann"), post.actor("carl"), post.actor("bob")
    for number in range(200):
        ann.send(note("bob", number, sender="ann"))
    post.take(bob, 10)
    carl.send(note("bob", 7, sender="carl"))
    came = post.take(bob, 2 * POLL_EVERY)
    assert [envelope.message.number for envelope in came if envelope.sender == "carl"] == [7]


def test_a_captured_frame_sent_again_is_refused(post: Post) -> None:
    bob = post.actor("bob")
    with stranger(post, "bob") as foreign:
        for number in (5, 6, 6, 5, 7):
            foreign.send(genuine(post, "bob", number))
        assert numbers(post.take(bob, 3)) == [5, 6, 7]
    with stranger(post, "bob") as foreign:
        for number in (7, 8):
            foreign.send(genuine(post, "bob", number))
        assert numbers(post.take(bob, 1)) == [8]
    assert bob.refused == 3


def test_every_sender_incarnation_has_its_own_numbers(post: Post) -> None:
    bob = post.actor("bob")
    with stranger(post, "bob") as foreign:
        for sender, incarnation, number in (("ann", 1, 9), ("ann", 2, 3), ("carl", 1, 4), ("ann", 2, 5)):
            foreign.send(genuine(post, "bob", number, sender=sender, sender_incarnation=incarnation))
        assert numbers(post.take(bob, 4)) == [9, 3, 4, 5]


def test_what_is_sent_carries_a_growing_number_and_the_receivers_incarnation(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob", incarnation=4)
    for kind in (MessageKind.TELL, MessageKind.ASK, MessageKind.REPLY):
        ann.send(replace(note("bob"), kind=kind))
    came = post.take(bob, 3)
    assert [envelope.to_incarnation for envelope in came] == [4, 4, 4]
    sequence = [envelope.sequence for envelope in came]
    assert sequence == sorted(set(sequence))


def test_an_authentic_message_of_an_unknown_type_arrives_sealed_with_the_reason(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    monkeypatch.setitem(codec._NAMES, Note, "a.newer.Message")
    ann.send(note("bob", 1))
    monkeypatch.undo()
    [envelope] = post.take(bob, 1)
    assert isinstance(envelope.message, UndecodedMessage)
    assert "a.newer.Message" in envelope.message.why
    assert envelope.sender == "ann"


# ---- receivers that end ----


def test_whoever_writes_to_a_process_that_has_just_ended_is_told(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    ann.send(note("bob", 1))
    bob.close()
    with pytest.raises(ActorDied, match="'bob' has just ended"):
        ann.send(note("bob", 2))
    with pytest.raises(ActorDied, match="'bob' has just ended"):
        ann.send(note("bob", 3))


def test_what_waited_for_a_receiver_that_ended_is_counted_as_lost(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    fill(ann, "bob", "x" * 60_000)
    bob.close()
    assert ann.receive() is None  # it looks at what happened
    assert ann.lost > 0


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_the_way_to_a_dead_incarnation_is_closed_and_nothing_piles_up(post: Post) -> None:
    ann = post.actor("ann")
    before = open_files()
    for incarnation in range(1, 30):
        bob = post.actor("bob", incarnation=incarnation)
        ann.send(note("bob", incarnation))
        assert numbers(post.take(bob, 1)) == [incarnation]
        bob.close()
        assert ann.receive() is None
    assert open_files() <= before
    assert sorted(path.name for path in post.folder.iterdir()) == ["0", "1", "board"]


def test_mail_for_somebody_who_never_binds_is_given_up_when_his_row_moves_on(post: Post) -> None:
    ann = post.actor("ann")
    post.actor("bob", is_bound=False)
    ann.send(note("bob", 1))
    post.set_state("bob", ActorState.STOPPED)
    give_up = time.monotonic() + PATIENCE_S
    while not ann.lost and time.monotonic() < give_up:
        select.select([post.fds[id(ann)]], [], [], 0.1)
        assert ann.receive() is None
    assert ann.lost == 1


def test_a_forked_process_hangs_up_on_nobody_and_holds_nothing_open(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    ann.send(note("bob", 1))
    go, went = os.pipe()
    if not (pid := os.fork()):
        os.read(go, 1)
        os._exit(0)
    try:
        ann.send(note("bob", 2))
        assert numbers(post.take(bob, 2)) == [1, 2]
        bob.close()
        with pytest.raises(ActorDied):
            ann.send(note("bob", 3))
    finally:
        os.write(went, b"x")
        os.waitpid(pid, 0)
        os.close(go)
        os.close(went)


# ---- routes ----


def test_mail_for_a_row_with_a_route_goes_to_the_bridge_as_it_is(post: Post) -> None:
    ann, bridge = post.actor("ann"), post.actor("bridge", incarnation=3)
    post.actor("far", incarnation=9, is_bound=False)
    far, way = post.board.find("far"), post.board.find("bridge")
    assert far is not None
    assert way is not None
    bridge.is_mine = "bridge".__eq__
    post.board.set(far, route=way + 1)
    assert ann.send(note("far", 1)) == Address(far, 9)
    [envelope] = post.take(bridge, 1)
    assert (envelope.to, envelope.to_incarnation, envelope.sender) == ("far", 9, "ann")
    assert isinstance(envelope.message, UndecodedMessage), "a bridge opens nobody's mail"


def test_a_sealed_message_is_sent_on_and_opened_by_its_receiver(post: Post) -> None:
    bridge, far = post.actor("bridge"), post.actor("far", incarnation=9)
    bridge.is_mine = "bridge".__eq__
    sealed = codec.decode(
        encode(replace(note("far", 1), to_incarnation=9, sequence=1), KEY), KEY, "bridge".__eq__
    )
    assert isinstance(sealed.message, UndecodedMessage)
    bridge.send(sealed)
    [envelope] = post.take(far, 1)
    assert envelope.message == Note(number=1)
    assert envelope.sender == "ann"


def test_a_route_over_a_bridge_that_is_not_running_is_closed(post: Post) -> None:
    ann = post.actor("ann")
    post.actor("bridge")
    post.actor("far", is_bound=False)
    far, way = post.board.find("far"), post.board.find("bridge")
    assert far is not None
    assert way is not None
    post.board.set(far, route=way + 1)
    post.set_state("bridge", ActorState.STOPPED)
    with pytest.raises(ActorDied, match="mail cannot reach 'far': its bridge 'bridge'"):
        ann.send(note("far", 1))


# ---- no descriptor to be had ----


class FileLimit:
    """Of this process: as many files as are open now and a few more, or what it was."""

    def __init__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def reach(self) -> None:
        lowest_free = os.dup(0)
        os.close(lowest_free)
        highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))  # noqa: PTH208
        self._fillers = [os.dup(0) for _ in range(highest - lowest_free + 1)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(self._fillers) + 1, self._before[1]))

    def lift(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._before)
        for fd in self._fillers:
            os.close(fd)
        self._fillers = []


@pytest.fixture
def file_limit() -> Iterator[FileLimit]:
    limit = FileLimit()
    yield limit
    limit.lift()


def test_a_receiver_that_can_open_no_more_files_lives_and_takes_the_mail_later(
    post: Post, file_limit: FileLimit
) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    ann.send(note("bob", 1))
    file_limit.reach()
    assert bob.receive() is None
    assert select.select([post.fds[id(bob)]], [], [], 0)[0] == [], "it does not spin"
    file_limit.lift()
    assert numbers(post.take(bob, 1)) == [1]


def test_a_sender_that_can_open_no_more_files_lives_and_sends_later(
    post: Post, file_limit: FileLimit
) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    file_limit.reach()
    ann.send(note("bob", 1))
    ann.send(note("bob", 2))
    file_limit.lift()
    assert numbers(post.take(bob, 2, ann)) == [1, 2]


def test_nobody_is_called_by_half_a_letter(post: Post) -> None:
    ann = post.actor("ann")
    with pytest.raises(ActorDied, match="no actor is running"):
        ann.send(note("\ud800"))
    with pytest.raises(ActorError, match="cannot be written as UTF-8"):
        post.board.claim("\ud800", "root")
