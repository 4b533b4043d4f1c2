"""SIGKILL at every level: what is below is gone, what is beside stays, and the next start finds no trace.

The tree is two levels deep and each of its leaves keeps two processes of its own (tests.fault.keepers).
"""

import contextlib
import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from actors.process import die_with_parent, is_alive
from actors.system import ActorSystem
from tests.fault.actors_under_test import PATIENCE_S, eventually
from tests.fault.keepers import LEAVES, TREE, Launched, below, root_spec

GONE_WITHIN_S = 5.0
ACTORS = {"root", *below("root")}


@pytest.fixture(scope="module")
def lasting() -> Iterator[Launched]:
    """For deaths the system survives."""
    launched = Launched()
    yield launched
    launched.close()


@pytest.fixture
def launched() -> Iterator[Launched]:
    """For deaths the system does not survive."""
    launched = Launched()
    yield launched
    launched.close()


@pytest.mark.parametrize("victim", ["outer", "inner", "leaf-1"])
def test_below_a_killed_actor_everything_is_gone_and_beside_it_nothing(
    lasting: Launched, victim: str
) -> None:
    lasting.await_up()
    doomed = {lasting.pid(victim)} | lasting.pids_below(victim)
    spared = lasting.marked() - doomed
    assert {lasting.pid(name) for name in ACTORS - {victim} - below(victim)} <= spared
    os.kill(lasting.pid(victim), signal.SIGKILL)
    eventually(
        lambda: not any(map(is_alive, doomed)),
        f"everything below {victim} is gone",
        lambda: str([psutil.Process(pid).cmdline() for pid in doomed if is_alive(pid)]),
        GONE_WITHIN_S,
    )
    assert all(map(is_alive, spared)), "what is beside it lives on"
    lasting.await_up()  # and what died is back, whole


def test_a_killed_logger_takes_nobody_along(lasting: Launched) -> None:
    """Stock, the admin dies with it (and everything with the admin)."""
    lasting.await_up()
    (logger,) = lasting.loggers()
    spared = lasting.marked() - {logger}
    os.kill(logger, signal.SIGKILL)
    eventually(lambda: len(lasting.loggers() - {logger}) == 1, "there is a new logger")
    assert all(map(is_alive, spared))
    os.kill(lasting.pid("leaf-3"), signal.SIGKILL)
    lasting.await_up()  # without the old one, too, actors are started


@pytest.mark.parametrize("victim", ["launcher", "admin", "root"])
def test_when_the_system_is_killed_at_its_top_every_process_is_gone(launched: Launched, victim: str) -> None:
    least = len(("launcher", "admin", "logger", *ACTORS)) + 2 * len(LEAVES)
    assert len(launched.marked()) >= least
    os.kill(launched.pid(victim), signal.SIGKILL)
    eventually(
        lambda: launched.marked() <= {launched.process.pid},
        f"everything below {victim} is gone",
        lambda: str(launched.marked()),
        GONE_WITHIN_S,
    )
    if victim != "launcher":
        assert launched.process.wait(PATIENCE_S) == 0, "the launcher notices and ends by itself"


def test_even_stopped_processes_are_gone_when_the_launcher_is_killed(launched: Launched) -> None:
    for who in ("outer", "inner", "leaf-1"):
        os.kill(launched.pid(who), signal.SIGSTOP)
    os.kill(launched.process.pid, signal.SIGKILL)
    eventually(
        lambda: launched.marked() == set(), "all is gone", lambda: str(launched.marked()), GONE_WITHIN_S
    )


@pytest.mark.parametrize("victim", ["launcher", "admin"])
def test_a_run_can_be_started_again_in_its_directory_right_after_a_kill(
    launched: Launched, victim: str
) -> None:
    """Even what is dying is out of the way."""
    os.kill(launched.pid(victim), signal.SIGKILL)
    launched.process.wait(PATIENCE_S)  # a directory belongs to one launcher at a time
    system = ActorSystem(launched.run_dir, launched.run_dir / "mail", root_spec())
    with system:
        eventually(lambda: _are_ready(system), "the next system is up")
    system.board.close()
    eventually(lambda: launched.marked() <= {launched.process.pid}, "the first system is gone")


def _are_ready(system: ActorSystem) -> bool:
    slots = [system.board.find(leaf) for leaf in LEAVES]
    return all(slot is not None and system.board.get(slot, "ready") for slot in slots)


def test_the_admin_is_a_child_of_its_launcher_and_no_daemon(lasting: Launched) -> None:
    assert psutil.Process(lasting.pid("admin")).ppid() == lasting.process.pid


def test_a_child_whose_parent_died_before_it_could_say_so_ends_at_once() -> None:
    """The kernel's promise counts from the call on; whoever calls it as an orphan already is one."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            die_with_parent(expected_parent_pid=os.getppid() + 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_the_tree_of_these_tests_is_two_levels_deep_below_its_root() -> None:
    assert below("root") == {"outer", "inner", "beside", *LEAVES}
    assert TREE["inner"] == ("leaf-1", "leaf-2")
