"""What a newcomer's first script does, right and wrong: order, output, errors, folders, and its end."""

import contextlib
import gc
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Sender, receives
from actors.board import LAUNCHER
from actors.codec import message
from actors.errors import ActorDied, ActorError, NotReady
from actors.process import is_alive
from actors.scratch import LOCK, PREFIX
from actors.system import LONGEST_MAIL_DIR_BYTES, ActorSystem, RootSpec
from supervision import run
from supervision.child_spec import Backoff, ChildSpec, SupervisorFlags
from supervision.errors import TreeGaveUp
from supervision.messages import start_child
from supervision.run import supervised, worker
from supervision.supervisor import supervisor_spec
from tests.fault.actors_under_test import (
    PATIENCE_S,
    Echo,
    Misbehave,
    Who,
    eventually,
)
from tests.fault.actors_under_test import Worker as Subject


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    number: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    numbers: tuple[int, ...] = ()


class Notebook(Actor):
    """Writes down what it is told, prints when it starts and stops."""

    def on_start(self) -> None:
        self.numbers: list[int] = []
        print("notebook starts")

    @receives(Note)
    def note(self, call: Note, sender: Sender) -> None:
        self.numbers.append(call.number)

    @receives(Notes)
    def notes(self, call: Notes, sender: Sender) -> Notes:
        return Notes(numbers=tuple(self.numbers))

    def on_stop(self) -> Any:
        print("notebook stops", end="")
        if path := self.args.get("stopped"):
            Path(path).touch()


class Diary(Notebook):
    """Takes two seconds to stop."""

    async def on_stop(self) -> None:
        await self.sleep(2.0)
        super().on_stop()


class Immortal(Subject):
    """Clears the signal that ends it with its supervisor, as a change of user does."""

    def on_start(self) -> None:
        import ctypes

        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)


def subject(id_: str = "a", **spec: Any) -> ChildSpec:
    return worker(id_, Subject, backoff=Backoff(max_s=0.0), **spec)


ENDURING = SupervisorFlags(max_restarts=1000)
GIVES_UP = SupervisorFlags(max_restarts=0)


def pid_of(system: ActorSystem, name: str) -> int:
    return system.ask(name, Who()).pid  # type: ignore[no-any-return]


# ---- the launcher's mail ----


def test_an_ask_of_the_launcher_never_overtakes_what_it_told_before() -> None:
    with supervised(worker("notebook", Notebook)) as system:
        told: list[int] = []
        for _ in range(100):
            for _ in range(3):
                told.append(len(told))
                assert system.tell("notebook", Note(number=told[-1]))
            assert system.ask("notebook", Notes()).numbers == tuple(told)


def test_a_tell_of_another_thread_is_refused_where_it_is_said() -> None:
    said: list[str] = []

    def tell() -> None:
        try:
            system.tell("notebook", Note(number=1))
        except ActorError as error:
            said.append(str(error))

    with supervised(worker("notebook", Notebook)) as system:
        system.tell("notebook", Note(number=0))
        thread = threading.Thread(target=tell)
        thread.start()
        thread.join()
        assert "belongs to the thread that first used tell or ask" in said[0]
        assert system.ask("notebook", Notes()).numbers == (0,)


def test_every_thread_asks_and_tells_by_a_client_of_its_own() -> None:
    def asked(number: int) -> tuple[int, ...]:
        with system.client(f"thread-{number}") as client:
            client.tell("notebook", Note(number=number))
            return client.ask("notebook", Notes()).numbers  # type: ignore[no-any-return]

    with supervised(worker("notebook", Notebook)) as system, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(asked, range(8)))
        assert all(number in numbers for number, numbers in enumerate(answers))
        assert set(system.ask("notebook", Notes()).numbers) == set(range(8))


def test_a_client_gets_no_name_that_is_in_use() -> None:
    with supervised(subject()) as system:
        with system.client("one"):
            for name in ("a", "root", "one", LAUNCHER):
                with pytest.raises(ActorError, match=f"the name '{name}' is in use"):
                    system.client(name)
        with system.client("one") as again:
            assert again.ask("a", Echo(text="two")) == Echo(text="two")
    with pytest.raises(ActorDied, match="client 'two' cannot be made: the system has ended"):
        system.client("two")


def test_of_many_actors_that_are_not_ready_the_first_ten_are_named() -> None:
    names = [f"env-{number}" for number in range(500)]
    with supervised(subject()) as system, pytest.raises(NotReady) as refusal:
        system.await_ready(*names, deadline_s=0)
    assert str(refusal.value).startswith("not ready within 0 s: {'env-0': 'unknown'")
    assert str(refusal.value).endswith("'env-9': 'unknown'} and 490 more")


def test_no_child_takes_the_name_of_a_client() -> None:
    with supervised(subject()) as system, system.client("one") as client:
        started = client.ask("root", start_child(subject("one")))
        assert started.reason.startswith("already_started: the name 'one' belongs to a client")
        assert client.ask("a", Echo(text="still there")) == Echo(text="still there")


def test_a_tree_whose_mail_belongs_to_another_thread_is_stopped_all_the_same(tmp_path: Path) -> None:
    with supervised(worker("notebook", Notebook, {"stopped": str(tmp_path / "stopped")})) as system:
        thread = threading.Thread(target=lambda: system.ask("notebook", Notes()))
        thread.start()
        thread.join()
    assert (tmp_path / "stopped").exists()


def test_a_child_that_came_later_has_its_own_time_to_stop_when_the_block_is_left(tmp_path: Path) -> None:
    with supervised() as system:
        late = worker("diary", Diary, {"stopped": str(tmp_path / "stopped")}, shutdown_s=PATIENCE_S)
        assert system.ask("root", start_child(late)).ok
    assert (tmp_path / "stopped").exists()


def test_a_tree_whose_root_is_suspended_is_killed_when_the_block_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "ROOT_SILENT_S", 1.0)
    with supervised(subject(shutdown_s=math.inf)) as system:
        pid = pid_of(system, "a")
        os.kill(system.vitals("root").pid, signal.SIGSTOP)
    eventually(lambda: not is_alive(pid), "the child is gone")


def test_systems_that_start_at_once_in_several_threads_do_not_mix() -> None:
    def asked() -> bool:
        with supervised(subject()) as system:
            return pid_of(system, "a") == system.vitals("a").pid

    with ThreadPoolExecutor(4) as threads:
        assert all(list(threads.map(lambda _: asked(), range(4))))


def test_after_the_block_everything_says_that_the_system_has_ended() -> None:
    with supervised(subject()) as system:
        system.ask("a", Echo())
    with pytest.raises(ActorDied, match="the system has ended"):
        system.ask("a", Echo())
    with pytest.raises(ActorDied, match="the system ended"):
        system.await_ready("a")
    assert not system.tell("a", Echo())
    assert system.wait(0.0)
    assert system.vitals("a").restarts == 0
    system.stop()
    system.kill()


def test_a_system_that_has_ended_holds_no_descriptor() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with supervised(subject()) as first:
        first.ask("a", Echo())
    before = open_files()
    with supervised(subject()) as second:
        second.ask("a", Echo())
    assert open_files() <= before


# ---- how a block ends ----


def test_a_system_leaves_no_socket_to_the_garbage_collector() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        with supervised(subject()) as system:
            system.ask("a", Echo())
        gc.collect()
    assert [str(warning.message) for warning in warned] == []


def test_when_the_tree_gives_up_the_block_ends_with_that_error() -> None:
    def block() -> None:
        with supervised(subject(), flags=GIVES_UP) as system:
            system.tell("a", Misbehave(how="raise"))
            assert system.wait(PATIENCE_S)

    with pytest.raises(TreeGaveUp, match="gave up: child 'a' failed once more"):
        block()


def test_an_ask_that_died_with_the_tree_is_followed_by_why_the_tree_ended() -> None:
    with (
        pytest.raises(TreeGaveUp, match="gave up") as gave_up,
        supervised(subject(), flags=GIVES_UP) as system,
    ):
        system.ask("a", Misbehave(how="raise"))
    assert isinstance(gave_up.value.__cause__, ActorDied)


def test_an_error_of_the_blocks_own_is_kept_and_notes_that_the_tree_had_ended() -> None:
    def block() -> None:
        with supervised(subject(), flags=GIVES_UP) as system:
            system.tell("a", Misbehave(how="raise"))
            system.wait(PATIENCE_S)
            raise KeyError("mine")

    with pytest.raises(KeyError) as mine:
        block()
    assert "the tree had ended: gave up" in mine.value.__notes__[0]


@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt()])
def test_on_stop_runs_however_the_block_is_left(error: BaseException, tmp_path: Path) -> None:
    notebook = worker("notebook", Notebook, {"stopped": str(tmp_path / "stopped")})
    with pytest.raises(type(error)), supervised(notebook):
        raise error
    assert (tmp_path / "stopped").exists()


# ---- where files are ----


@pytest.mark.parametrize("fate", ["changed", "deleted"])
def test_nothing_stays_behind_whatever_becomes_of_the_directory(
    fate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pids: list[int] = []
    with contextlib.suppress(KeyError), supervised(subject(), run_dir=Path("run")) as system:
        pids += [pid_of(system, "a"), system.vitals("root").pid]
        if fate == "deleted":
            for file in sorted((tmp_path / "run").rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
            (tmp_path / "run").rmdir()
        monkeypatch.chdir("/")
        raise KeyError("mine")
    eventually(lambda: not any(map(is_alive, pids)), "every process is gone")


def test_a_child_that_cleared_its_death_signal_dies_with_its_supervisor_and_with_the_system() -> None:
    pool = supervisor_spec("pool", SupervisorFlags(), (worker("a", Immortal),))
    with supervised(pool, flags=ENDURING) as system:
        first = pid_of(system, "a")
        os.kill(system.vitals("pool").pid, signal.SIGKILL)
        system.await_ready("pool", "a", incarnation=2)
        assert not is_alive(first)
        second = pid_of(system, "a")
        system.kill()
        eventually(lambda: not is_alive(second), "it is gone with the system")


def test_a_long_temporary_directory_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with supervised(subject()) as system:
        assert system.ask("a", Echo(text="short")) == Echo(text="short")


def test_a_mail_directory_with_a_long_path_is_refused_at_once_and_says_so(tmp_path: Path) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    root = RootSpec(name="root", actor="supervision.supervisor:Supervisor", args={})
    with pytest.raises(ActorError, match=f"sockets there need one of at most {LONGEST_MAIL_DIR_BYTES}"):
        ActorSystem(tmp_path, long, root)


# ---- scripts ----


def script(body: str, before: str = ":", **streams: Any) -> "subprocess.Popen[str]":
    """These names imported, then the body, in a process of its own; `before` is said to its shell."""
    lines = ["from tests.fault.test_first_steps import *", "if __name__ == '__main__':"]
    code = "\n".join([*lines, *(f"    {line}" for line in body.splitlines())])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("PYTHONUNBUFFERED", None)
    command = ["sh", "-c", f'{before}; exec "$0" "$@"', sys.executable, "-c", code]
    return subprocess.Popen(command, env=environment, text=True, **streams)


def output_of(body: str) -> tuple[str, str]:
    process = script(body, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, error = process.communicate(timeout=3 * PATIENCE_S)
    assert process.returncode == 0, error
    return out, error


def test_what_actors_print_arrives_though_the_output_is_a_pipe() -> None:
    out, _ = output_of("with supervised(worker('n', Notebook)):\n    pass")
    assert out.splitlines() == ["notebook starts", "notebook stops"]


def test_what_an_actor_with_code_of_others_prints_goes_to_the_standard_error_and_that_of_its_processes(
    tmp_path: Path,
) -> None:
    (tmp_path / "player.py").write_text(
        "import subprocess\n"
        "from actors import Actor\n"
        "class Player(Actor):\n"
        "    prints_to_stderr = True\n"
        "    def on_start(self):\n"
        "        print('player starts')\n"
        "        subprocess.run(['echo', 'its browser starts'])\n"
    )
    out, error = output_of(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from player import Player\n"
        "with supervised(worker('p', Player)):\n    pass"
    )
    assert (out, error.splitlines()) == ("", ["player starts", "its browser starts"])


OWN_ACTOR = """
from actors import Actor, ActorState
from supervision import supervised, worker

class Own(Actor):
    pass

with supervised(worker("own", Own)) as system:
    assert system.vitals("own").state is ActorState.RUNNING
"""


def python(*arguments: str, **streams: Any) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment, text=True, stderr=subprocess.PIPE, timeout=3 * PATIENCE_S, **streams
    )


def test_a_script_whose_actor_would_start_the_system_again_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "unguarded.py").write_text(OWN_ACTOR)
    ended = python(str(tmp_path / "unguarded.py"))
    assert ended.returncode == 1
    reason = "the module 'unguarded' starts a system while a new actor imports it; start the system below `if"
    assert f"failed to start: exit code 70: actors.errors.ActorError: {reason}" in ended.stderr


def test_a_script_from_the_standard_input_may_define_its_own_actors() -> None:
    ended = python("-", input=OWN_ACTOR)
    assert ended.returncode == 0, ended.stderr


CRASH = """
with supervised(subject(), flags=ENDURING{}) as system:
    system.tell('a', Misbehave(how='raise'))
    system.await_ready('a', incarnation=2)
"""


def test_a_crash_is_on_the_console_with_its_traceback_unless_told_otherwise() -> None:
    _, error = output_of(CRASH.format(""))
    assert "[root] 'a' (incarnation 1) ended: exit code 70: ZeroDivisionError: asked to" in error
    assert "Traceback (most recent call last)" in error
    assert output_of(CRASH.format(", print_reports=False"))[1] == ""


def test_a_script_whose_standard_streams_are_closed_runs(tmp_path: Path) -> None:
    said = tmp_path / "said"
    body = f"""
with supervised(worker('n', Notebook)) as system:
    Path({str(said)!r}).write_text(repr(system.ask('n', Notes())))
"""
    shell = script(body, before="exec 0<&- 1>&- 2>&-")
    assert shell.wait(3 * PATIENCE_S) == 0
    assert said.read_text() == "Notes(numbers=())"


@pytest.fixture
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_the_folder_of_a_killed_launcher_is_removed_by_the_next(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(temporary))
    body = "with supervised(subject()) as system:\n    print('runs', flush=True)\n    system.wait(600)"
    process = script(body, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.kill()
    process.wait()
    process.stdout.close()
    (left,) = temporary.glob(f"{PREFIX}*/{LOCK}")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def is_swept() -> bool:
        with supervised(subject()):
            return not left.exists()

    eventually(is_swept, "the folder is removed")


FEW_FILES = """
from supervision import Restart, TreeNotStarted
pool = tuple(subject(f"a{number}", restart=Restart.TEMPORARY) for number in range(40))
try:
    with supervised(*pool, flags=SupervisorFlags(ordered=False, max_restarts=0)):
        print('runs')
except TreeNotStarted as error:
    print(error)
"""


def test_a_supervisor_that_can_open_no_more_files_starts_nobody_and_says_so() -> None:
    process = script(FEW_FILES, before="ulimit -n 64", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, error = process.communicate(timeout=3 * PATIENCE_S)
    assert process.returncode == 0, error
    assert "may open too few files for one more; raise ulimit -n" in out + error
