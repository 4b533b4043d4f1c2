"""Malformed and unauthenticated frames into every port of a running system, by the million.

* Thespian's TCP ports (admin, logger, supervisors; others have none): random bytes; lengths that are
  negative, huge, endless or no numbers; pickles that would execute code, unsigned, signed with another key or
  under a real signature; real frames cut short or with one bit turned; connections left silent.
* Every mail socket: the same, ZeroMQ's greeting and frames, frames longer than any may be, and authentic
  frames that were recorded and are sent again.

Meanwhile an actor asks every other one continuously. What is held: none of the frames reaches a decoder
behind the signature check (what is forged bears a mark that is looked for there); no pickle runs (it would
leave a file); every frame of mail is counted as refused; nobody's memory grows, nobody dies, all answer.

``python -m benchmarks.fuzz --frames 1000000 --seed 1`` prints a table, writes ``benchmarks/out/fuzz.json``
and exits with 1 when something does not hold.
"""

import argparse
import contextlib
import hmac
import json
import mmap
import os
import pickle
import platform
import random
import socket
import struct
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from actors import codec, thespian_base
from actors.actor import Actor, Sender, receives
from actors.codec import Envelope, MessageKind, message
from actors.errors import ActorError
from actors.mail import MAX_FRAME_BYTES, Mail
from actors.system import ActorSystem, RootSpec
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.messages import CountChildren
from supervision.supervisor import supervisor_args, supervisor_spec

OUT = Path(__file__).parent / "out" / "fuzz.json"

MARK = b"mark of a forged frame"
"""In every forged frame that has a structure; looked for in all that is decoded."""

TCP_SHARE = 0.2
"""Of all frames; one connection each, a mail socket takes thousands over one."""

PATIENCE_S = 60.0
SILENT_CONNECTIONS = 40
GROWTH_KIB = 4096
"""What a process may have grown by between the first tenth and the end; an interpreter's heap breathes."""

WORKERS = ("a", "b", "c")
SUPERVISORS = ("root", "crowd")
ACTORS = (*SUPERVISORS, *WORKERS, "asker")


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Answered by itself."""


class Answerer(Actor):
    """Answers."""

    @receives(Ping)
    def ping(self, call: Ping, sender: Sender) -> Ping:
        return call


class Asker(Answerer):
    """Asks everybody for ever; keeps in `args["out"]` how often, and how long each took at most."""

    def on_start(self) -> None:
        self.waits: dict[str, dict[str, float]] = {
            name: {"answers": 0, "failures": 0, "longest_ms": 0.0} for name in (*SUPERVISORS, *WORKERS)
        }
        self.after(0.0, self._ask_for_ever)
        self.every(0.2, self._write)

    async def _ask_for_ever(self) -> None:
        while True:
            for name, waits in self.waits.items():
                began_s = time.perf_counter()
                try:
                    await self.ask(
                        name, Ping() if name in WORKERS else CountChildren(), deadline_s=PATIENCE_S
                    )
                    waits["answers"] += 1
                except ActorError:
                    waits["failures"] += 1
                waits["longest_ms"] = max(waits["longest_ms"], (time.perf_counter() - began_s) * 1000)
                await self.sleep(0.005)

    def _write(self) -> None:
        out = Path(self.args["out"])
        new = out.with_suffix(".new")
        new.write_text(json.dumps(self.waits))
        new.replace(out)


# ---- forging ----


class Bomb:
    """Unpickled, it leaves a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trace}; : {MARK.decode()}",)


def framed(data: bytes) -> bytes:
    """As Thespian puts it on the wire."""
    return b"%d>" % len(data) + data


class Forger:
    """Draws frames that are not authentic. Deterministic under its generator, `real` frames apart."""

    def __init__(self, rng: random.Random, bomb: bytes, real: bytes) -> None:
        self._rng = rng
        self._bomb = bomb
        self._real = real

    def noise(self) -> bytes:
        return self._rng.randbytes(self._rng.choice((1, 2, 16, 100, 1000, 4000)))

    def bit_turned(self) -> bytes:
        at = self._rng.randrange(8 * len(self._real))
        frame = bytearray(self._real)
        frame[at // 8] ^= 1 << at % 8
        return bytes(frame)

    def cut_short(self) -> bytes:
        return self._real[: self._rng.randrange(1, len(self._real))]

    def unsigned(self) -> bytes:
        return self._bomb

    def signed_with_another_key(self) -> bytes:
        return hmac.digest(self._rng.randbytes(32), self._bomb, "sha256") + self._bomb

    def under_a_real_signature(self) -> bytes:
        return self._real[: thespian_base.SIGNATURE_BYTES] + self._bomb

    def unsigned_zeros(self) -> bytes:
        return bytes(thespian_base.SIGNATURE_BYTES) + self._bomb


class ThespianForger(Forger):
    """For a TCP port: what is not about the framing itself is framed."""

    def draw(self) -> tuple[str, bytes]:
        # The real frame has its length: the turned bit and the cut may be there as well.
        bare = (self.noise, self.bit_turned, self.cut_short, self.wrong_length, self.endless_length)
        content = (
            self.unsigned,
            self.signed_with_another_key,
            self.under_a_real_signature,
            self.unsigned_zeros,
            self.acknowledgement,
        )
        kind = self._rng.choice((*bare, *content))
        return kind.__name__, kind() if kind in bare else framed(kind())

    def wrong_length(self) -> bytes:
        length = self._rng.choice(
            (
                b"-1",
                b"-99999999",
                b"99999999999",
                b"1e3",
                b"0x10",
                b"",
                b" ",
                "²".encode(),
                b"4_0",
                b"00",
                b"0",
            )
        )
        return length + b">" + self._bomb

    def endless_length(self) -> bytes:
        return self._rng.choice((b"1", b"-", b" ", b"\0")) * self._rng.choice((21, 400, 4000))

    def acknowledgement(self) -> bytes:
        return pickle.dumps(self._rng.choice(("ACK", "ACK+DATAERR", "NAK")))


ZMTP_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)


class MailForger(Forger):
    """For a mail socket: one packet is one frame."""

    def __init__(self, rng: random.Random, bomb: bytes, real: bytes, replays: list[bytes]) -> None:
        super().__init__(rng, bomb, real)
        self._replays = replays

    def draw(self) -> tuple[str, bytes]:
        kind = self._rng.choice(
            (
                self.noise,
                self.bit_turned,
                self.cut_short,
                self.unsigned,
                self.signed_with_another_key,
                self.under_a_real_signature,
                self.unsigned_zeros,
                self.greeting_of_zeromq,
                self.frame_of_zeromq,
                self.replay,
            )
        )
        if self._rng.random() < 0.002:
            kind = self.too_long
        return kind.__name__, kind()

    def greeting_of_zeromq(self) -> bytes:
        return ZMTP_GREETING + self.noise()

    def frame_of_zeromq(self) -> bytes:
        return b"\x02" + struct.pack(">Q", len(self._bomb)) + self._bomb

    def too_long(self) -> bytes:
        return self._real + bytes(MAX_FRAME_BYTES)

    def replay(self) -> bytes:
        return self._rng.choice(self._replays)


# ---- watching the decoders; every process is forked from this one and inherits it ----


class Tally:
    """Counts per process in shared memory."""

    PLACES = 1 << 16

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8 * self.PLACES)

    def add(self) -> None:
        at = 8 * (os.getpid() % self.PLACES)
        (count,) = struct.unpack_from("Q", self._memory, at)
        struct.pack_into("Q", self._memory, at, count + 1)

    def total(self) -> int:
        return sum(struct.unpack(f"{self.PLACES}Q", self._memory[:]))


@dataclass
class Watched:
    """What came to the decoders of all processes together."""

    decoded: Path
    """A line for every marked frame that reached a decoder behind the signature check."""
    thespian_refused: Tally = field(default_factory=Tally)

    def note(self, where: str, body: bytes) -> None:
        if MARK in body:
            with self.decoded.open("a") as file:
                file.write(f"{where} of process {os.getpid()}\n")


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    """Look at all that is decoded in processes that are forked while this lasts."""
    watch = Watched(folder / "decoded")
    stock_unpickler = thespian_base._RestrictedUnpickler
    stock_loads, stock_more = thespian_base.SignedFrames.loads, thespian_base.ReceiveBuffer.addMore
    stock_header = codec._header

    class Unpickler(stock_unpickler):
        def __init__(self, file: Any) -> None:
            watch.note("unpickler", file.getvalue())
            super().__init__(file)

    def counting(stock: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            try:
                return stock(*args)
            except BaseException:
                watch.thespian_refused.add()
                raise

        return counted

    def header(body: Any) -> Any:
        watch.note("mail", bytes(body))
        return stock_header(body)

    thespian_base._RestrictedUnpickler = Unpickler
    thespian_base.SignedFrames.loads = staticmethod(counting(stock_loads))
    thespian_base.ReceiveBuffer.addMore = counting(stock_more)
    codec._header = header
    try:
        yield watch
    finally:
        thespian_base._RestrictedUnpickler = stock_unpickler
        thespian_base.SignedFrames.loads = staticmethod(stock_loads)
        thespian_base.ReceiveBuffer.addMore = stock_more
        codec._header = stock_header


# ---- attacking ----


@dataclass(slots=True)
class Attack:
    """What was sent to one place."""

    sent: Counter[str] = field(default_factory=Counter)


def attack_tcp(attack: Attack, port: int, forger: ThespianForger, frames: int) -> None:
    """One connection per frame; some are left silent, some are ended by us in the middle of a frame."""
    silent: deque[socket.socket] = deque()
    for number in range(frames):
        kind, frame = forger.draw()
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        with contextlib.suppress(ConnectionError):  # it may refuse a beginning before it has the rest
            connection.sendall(frame)
        attack.sent[kind] += 1
        if number % 50 == 0:
            silent.append(connection)
            if len(silent) > SILENT_CONNECTIONS:
                silent.popleft().close()
            continue
        with contextlib.suppress(OSError):  # it has hung up already
            connection.shutdown(socket.SHUT_WR)  # what is not whole now never will be
        await_end(connection)
        connection.close()
    for connection in silent:
        connection.close()


def await_end(connection: socket.socket) -> None:
    """Until the other side ends the connection; it may say ACK+DATAERR first. Raises TimeoutError."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(1024):
            pass


def attack_mail(attack: Attack, path: Path, forger: MailForger, frames: int) -> None:
    with mail_connection(path) as connection:
        for _ in range(frames):
            kind, frame = forger.draw()
            connection.send(frame)
            attack.sent[kind] += 1


# ---- a run ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run found; `broken` judges it."""

    frames: int
    seed: int
    seconds: float
    places: dict[str, dict[str, int]]
    decoded: int
    executed: bool
    mail_sent: int
    mail_refused: int
    thespian_refused: int
    growth_kib: dict[str, int]
    replaced: list[str]
    waits: dict[str, dict[str, float]]
    stopped_answering: list[str]


class Recorder:
    """Carries nothing; keeps the frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost = 0

    def bind(self, slot: int, incarnation: int) -> int:
        raise NotImplementedError

    def put(self, slot: int, incarnation: int, frame: bytes) -> bool:
        self.frames.append(frame)
        return True

    def take(self) -> bytes | None:
        return None

    def flush(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        pass


class Fuzz:
    """A system under attack."""

    def __init__(self, system: ActorSystem, mail_dir: Path, trace: Path, seed: int) -> None:
        self._system = system
        self._mail_dir = mail_dir
        self._rng = random.Random(seed)
        self._bomb = pickle.dumps((None, Bomb(trace)))
        self.attacks: dict[str, Attack] = {}

    def pids(self) -> dict[str, int]:
        """Every process of the system."""
        admin = psutil.Process(int((self._system.run_dir / "admin.pid").read_text()))
        rows = {row.name: row.pid for row in self._system.board.rows()}
        actors = {name: rows[name] for name in ACTORS}
        (logger,) = {child.pid for child in admin.children()} - {actors["root"]}
        return {"admin": admin.pid, "logger": logger} | actors

    def uss_bytes(self) -> dict[str, int]:
        return {name: psutil.Process(pid).memory_full_info().uss for name, pid in self.pids().items()}

    def tcp_ports(self) -> dict[str, int]:
        """Where processes listen. All have inherited the launcher's port, where nobody is served any more."""
        taken = _listening(os.getpid())
        ports: dict[str, int] = {}
        for name, pid in self.pids().items():
            for port in _listening(pid) - taken:
                ports[f"{name} TCP"] = port
                taken.add(port)
        return ports

    def mail_sockets(self) -> dict[str, Path]:
        slots = {str(row.slot): row.name for row in self._system.board.rows()}
        sockets = {slots.get(path.name, ""): path for path in self._mail_dir.iterdir()}
        return {name: sockets[name] for name in ACTORS}

    def refused(self) -> int:
        return sum(row.refused for row in self._system.board.rows())

    def authentic(self, to: str, sender: str) -> bytes:
        """A frame as it could have been recorded."""
        key = (self._system.run_dir / "key").read_bytes()
        recorder = Recorder()
        Mail(self._system.board, self._mail_dir, key, carrier=recorder).send(
            Envelope(
                kind=MessageKind.TELL,
                id=1,
                to=to,
                to_incarnation=0,
                sender=sender,
                sender_incarnation=self._rng.getrandbits(62),
                deadline_unix_ms=0,
                message=CountChildren() if to in SUPERVISORS else Ping(),
            )
        )
        return recorder.frames[0]

    def send(self, frames: int) -> None:
        """So many, to all places at once."""
        ports, sockets = self.tcp_ports(), self.mail_sockets()
        shares = [int(frames * TCP_SHARE / len(ports))] * len(ports)
        shares += _split(frames - sum(shares), len(sockets))
        attacks = [self._on_port(*place) for place in ports.items()]
        attacks += [self._on_mail(*place) for place in sockets.items()]
        with ThreadPoolExecutor(len(attacks)) as pool:
            for done in [pool.submit(attack, share) for attack, share in zip(attacks, shares, strict=True)]:
                done.result()

    def _on_port(self, place: str, port: int) -> Callable[[int], None]:
        real = framed(thespian_base.SignedFrames.dumps((None, thespian_base.Boot(MARK))))
        forger = ThespianForger(random.Random(self._rng.random()), self._bomb, real)
        attack = self.attacks.setdefault(place, Attack())
        return lambda frames: attack_tcp(attack, port, forger, frames)

    def _on_mail(self, name: str, path: Path) -> Callable[[int], None]:
        replays = [self.authentic(name, "a recorded sender") for _ in range(3)]
        with mail_connection(path) as connection:
            for frame in replays:
                connection.send(frame)
        real = self.authentic(name, MARK.decode())
        forger = MailForger(random.Random(self._rng.random()), self._bomb, real, replays)
        attack = self.attacks.setdefault(f"{name} mail", Attack())
        return lambda frames: attack_mail(attack, path, forger, frames)


def _listening(pid: int) -> set[int]:
    connections = psutil.Process(pid).net_connections("tcp")
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def _split(frames: int, shares: int) -> list[int]:
    return [frames // shares + (number < frames % shares) for number in range(shares)]


@contextlib.contextmanager
def mail_connection(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        yield connection


def await_true(holds: Callable[[], bool]) -> None:
    """Return when it holds, or after PATIENCE_S; what follows looks whether it does."""
    give_up = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < give_up:
        time.sleep(0.02)


def root_spec(waits: Path) -> RootSpec:
    """Two supervisors, three actors, and who asks them all."""
    flags = SupervisorFlags(max_restarts=0)
    workers = tuple(ChildSpec(id=name, actor="benchmarks.fuzz:Answerer") for name in WORKERS)
    asker = ChildSpec(id="asker", actor="benchmarks.fuzz:Asker", args={"out": str(waits)})
    args = supervisor_args(flags, (supervisor_spec("crowd", flags, workers), asker))
    return RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)


def fuzz(frames: int, seed: int) -> Report:
    """One run."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "mail").mkdir(mode=0o700)
        waits, trace = folder / "waits.json", folder / "executed"
        with (
            watched(folder) as watch,
            ActorSystem(folder, folder / "mail", root_spec(waits), prints_reports=False) as system,
        ):
            await_true(waits.exists)
            attacked = Fuzz(system, folder / "mail", trace, seed)
            before = attacked.pids()
            attacked.send(frames // 10)
            await_true(lambda: attacked.refused() >= _sent(attacked, " mail"))
            uss = attacked.uss_bytes()
            for tenth in range(2, 11):
                attacked.send(frames * tenth // 10 - frames * (tenth - 1) // 10)
                print(f"{tenth * 10} % of {frames} frames sent", file=sys.stderr)
            await_true(lambda: attacked.refused() >= _sent(attacked, " mail"))
            grown = {who: bytes_ - uss[who] for who, bytes_ in attacked.uss_bytes().items()}
            asked = json.loads(waits.read_text())
            await_true(lambda: _answers_since(waits, asked))
            return Report(
                frames=_sent(attacked, ""),
                seed=seed,
                seconds=round(time.monotonic() - began_s, 1),
                places={place: dict(sorted(a.sent.items())) for place, a in attacked.attacks.items()},
                decoded=len(watch.decoded.read_text().splitlines()) if watch.decoded.exists() else 0,
                executed=trace.exists(),
                mail_sent=_sent(attacked, " mail"),
                mail_refused=attacked.refused(),
                thespian_refused=watch.thespian_refused.total(),
                growth_kib={who: bytes_ // 1024 for who, bytes_ in grown.items()},
                replaced=sorted(who for who, pid in attacked.pids().items() if before[who] != pid),
                waits=json.loads(waits.read_text()),
                stopped_answering=[] if _answers_since(waits, asked) else sorted(asked),
            )


def _sent(attacked: Fuzz, place: str) -> int:
    return sum(a.sent.total() for name, a in attacked.attacks.items() if name.endswith(place))


def _answers_since(waits: Path, before: dict[str, dict[str, float]]) -> bool:
    """Everybody has answered more often than then."""
    now = json.loads(waits.read_text())
    return all(now[name]["answers"] > asked["answers"] for name, asked in before.items())


def broken(report: Report) -> list[str]:
    """What does not hold, in words."""
    found = []
    if report.decoded or report.executed:
        found.append(f"{report.decoded} forged frames were decoded; a pickle ran: {report.executed}")
    if report.mail_refused != report.mail_sent:
        found.append(f"{report.mail_sent} frames of mail were sent, {report.mail_refused} counted as refused")
    if report.replaced:
        found.append(f"these processes died: {report.replaced}")
    grown = {who: kib for who, kib in report.growth_kib.items() if kib > GROWTH_KIB}
    if grown:
        found.append(f"these processes grew by more than {GROWTH_KIB} KiB: {grown}")
    failures = {name: waits["failures"] for name, waits in report.waits.items() if waits["failures"]}
    if failures or report.stopped_answering:
        found.append(f"asks failed: {failures}; no answer at the end from {report.stopped_answering}")
    return found


def show(report: Report) -> None:
    print(f"{report.frames} frames in {report.seconds} s, seed {report.seed}")
    for place, sent in report.places.items():
        print(f"  {place:14} {sum(sent.values()):8}  " + ", ".join(f"{k} {n}" for k, n in sent.items()))
    print(f"decoded: {report.decoded}; a pickle ran: {report.executed}")
    print(f"mail: {report.mail_refused} refused of {report.mail_sent}")
    print(f"TCP: {report.thespian_refused} refused; the others were not whole. Every receiver hung up.")
    print("grown by, KiB: " + ", ".join(f"{who} {kib}" for who, kib in report.growth_kib.items()))
    for name, waits in report.waits.items():
        print(f"  {name:8} answered {waits['answers']:6.0f}, longest wait {waits['longest_ms']:.1f} ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    report = fuzz(options.frames, options.seed)
    show(report)
    found = broken(report)
    options.out.parent.mkdir(exist_ok=True)
    command = f"python -m benchmarks.fuzz --frames {options.frames} --seed {options.seed}"
    machine = {"python": platform.python_version(), "cores": os.cpu_count()}
    options.out.write_text(
        json.dumps({"command": command, "machine": machine, "broken": found, **asdict(report)}, indent=2)
        + "\n"
    )
    for line in found:
        print(f"DOES NOT HOLD: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    from benchmarks import fuzz as as_its_actors_import_it  # a message is named after its module

    sys.exit(as_its_actors_import_it.main())
