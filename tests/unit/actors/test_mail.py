"""Mail over unix sockets: several mailboxes of one run, here in one process."""

import select
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import zmq

from actors import codec
from actors.board import ActorState, Board
from actors.codec import MAX_MESSAGE_BYTES, Envelope, Kind, encode, message
from actors.errors import ActorDied, MailboxFull, MessageTooLarge
from actors.mail import QUEUE_MESSAGES, Mail

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

    def socket_of(self, name: str, incarnation: int = 1) -> str:
        return f"ipc://{self.folder}/{self.board.find(name)}.{incarnation}"

    def take(self, mail: Mail, count: int) -> list[Envelope]:
        """The next `count` envelopes; waits on the descriptor an actor's loop waits on."""
        taken: list[Envelope] = []
        give_up = time.monotonic() + PATIENCE_S
        while len(taken) < count:
            envelope = mail.receive()
            if envelope is not None:
                taken.append(envelope)
                continue
            left_s = give_up - time.monotonic()
            assert left_s > 0, f"{len(taken)} of {count} messages came within {PATIENCE_S} s"
            select.select([self.fds[id(mail)]], [], [], left_s)
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
        kind=Kind.TELL,
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
        assert ann.send(note("bob", number)) == 1
    assert numbers(post.take(bob, 300)) == list(range(300))


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
    with pytest.raises(ActorDied, match="incarnation 1 is gone, 2 bears the name"):
        ann.send(note("bob", 1, to_incarnation=1))
    ann.send(note("bob", 2, to_incarnation=2))
    assert numbers(post.take(bob, 1)) == [2]


def test_a_new_incarnation_gets_new_mail_and_none_of_the_old(post: Post) -> None:
    ann, _ = post.actor("ann"), post.actor("bob", incarnation=1)
    ann.send(note("bob", 1))
    new = post.actor("bob", incarnation=2)
    assert ann.send(note("bob", 2)) == 2
    assert numbers(post.take(new, 1)) == [2]
    assert new.receive() is None


def test_mail_written_before_the_receiver_is_bound_waits_for_it_in_order(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob", is_bound=False)
    for number in range(10):
        ann.send(note("bob", number))
    post.bind(bob, "bob")
    ann.send(note("bob", 10))
    assert numbers(post.take(bob, 11)) == list(range(11))


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


def test_a_full_mailbox_is_nobody_elses_trouble(post: Post) -> None:
    ann, carl = post.actor("ann"), post.actor("carl")
    post.actor("bob")
    fill(ann, "bob", "x" * 1000)
    ann.send(note("carl", 7))
    assert numbers(post.take(carl, 1)) == [7]


def test_a_mailbox_that_was_full_delivers_what_it_took_and_then_takes_mail_again(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    sent, _ = fill(ann, "bob")
    assert numbers(post.take(bob, sent)) == list(range(sent))
    ann.send(note("bob", sent))
    assert numbers(post.take(bob, 1)) == [sent]


def test_what_is_too_large_is_refused_and_nothing_is_sent(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    with pytest.raises(MessageTooLarge):
        ann.send(note("bob", 1, text="x" * MAX_MESSAGE_BYTES))
    ann.send(note("bob", 2))
    assert numbers(post.take(bob, 1)) == [2]


GARBAGE: dict[str, Callable[[], list[bytes]]] = {
    "bytes": lambda: [b"garbage"],
    "nothing": lambda: [b""],
    "several parts": lambda: [b"a", b"b", b"c"],
    "another run's key": lambda: [encode(note("bob"), b"o" * 32)],
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_counted_and_skipped(post: Post, garbage: Callable[[], list[bytes]]) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    with zmq.Context() as context, context.socket(zmq.PUSH) as foreign:
        foreign.connect(post.socket_of("bob"))
        frames = garbage()
        foreign.send_multipart(frames)
        foreign.send(encode(note("bob", 1), KEY))
        assert numbers(post.take(bob, 1)) == [1]
        assert bob.refused == len(frames)
    ann.send(note("bob", 2))
    assert numbers(post.take(bob, 1)) == [2]


def test_a_frame_larger_than_any_mail_is_never_taken_into_memory(post: Post) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    with zmq.Context() as context, context.socket(zmq.PUSH) as foreign:
        foreign.setsockopt(zmq.LINGER, 0)
        foreign.connect(post.socket_of("bob"))
        with foreign.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
            foreign.send(b"x" * (4 * MAX_MESSAGE_BYTES))
            hung_up = monitor.poll(int(PATIENCE_S * 1000))
            foreign.disable_monitor()
    assert hung_up, "the receiver hangs up on who sends such a thing"
    ann.send(note("bob", 1))
    assert numbers(post.take(bob, 1)) == [1]
    assert bob.refused == 0


def test_an_authentic_message_of_an_unknown_type_is_counted_and_skipped(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = post.actor("ann"), post.actor("bob")
    monkeypatch.setitem(codec._NAMES, Note, "a.newer.Message")
    ann.send(note("bob", 1))
    monkeypatch.undo()
    ann.send(note("bob", 2))
    assert numbers(post.take(bob, 1)) == [2]
    assert bob.refused == 1
