"""A supervised rollout actor with vLLM (`make test-vllm`): what becomes of it when a part of it breaks."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-vllm` has an environment for it")

from actors.process import is_alive
from benchmarks.vllm_scene import Checkpoints, Screens, config_with, rollout_child
from dart.core import messages as m
from dart.core.run_directory import RunPaths
from dart.core.types import Generation
from tests.fault.actors_under_test import Running, eventually, pool, started

pytestmark = pytest.mark.timeout(900)

NAME = "rollout-0"
UP_WITHIN_S = 900.0
GONE_WITHIN_S = 5.0


def _command_of(process: psutil.Process) -> str:
    """Empty for a process that has ended meanwhile."""
    with suppress(psutil.NoSuchProcess):  # a zombie is one, too
        return " ".join(process.cmdline())
    return ""


class Scene:
    """One engine below its supervisor."""

    def __init__(self, processes: Running, screens: Screens) -> None:
        self.processes = processes
        self.screens = screens

    def await_up(self) -> None:
        eventually(lambda: self.processes.is_up(NAME), f"{NAME} is up", self.processes.explain, UP_WITHIN_S)

    def answer(self) -> Generation:
        call = m.Generate(request=self.screens.request(0))
        answer: Generation = self.processes.system.ask(NAME, call, deadline_s=60.0)
        return answer

    def members(self, word: str = "VLLM") -> list[psutil.Process]:
        """The processes of its engine, by what they call themselves."""
        below = psutil.Process(self.processes.pid(NAME)).children(recursive=True)
        return [process for process in below if word in _command_of(process)]

    def sockets(self) -> set[Path]:
        """By which its engine is talked to."""
        return set(self.processes.mail_dir.glob("engine-*/*"))

    def await_back(self, incarnation: int) -> str:
        """Up again and answering; why it was started again."""
        eventually(
            lambda: self.processes.row(NAME).incarnation > incarnation,
            f"{NAME} was started again",
            self.processes.explain,
            UP_WITHIN_S,
        )
        self.await_up()
        assert isinstance(self.answer(), Generation)
        return self.processes.row(NAME).last_reason


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("actor")
    child = rollout_child(config_with(), folder / "record.db", Checkpoints(folder).first)
    with started(pool("rollout_pool", child)) as processes:
        scene = Scene(processes, Screens(RunPaths(processes.system.run_dir).blobs))
        scene.await_up()
        yield scene


def test_a_killed_actor_takes_its_engine_along_and_comes_back(scene: Scene) -> None:
    members = [process.pid for process in scene.members()]
    assert len(members) >= 2, "an engine core and a worker"
    sockets = scene.sockets()
    assert sockets
    before = scene.processes.kill(NAME)
    eventually(
        lambda: not any(map(is_alive, members)), "its processes are gone", lambda: f"{members}", GONE_WITHIN_S
    )
    assert "SIGKILL" in scene.await_back(before.incarnation)
    now = scene.sockets()
    assert len(now) == len(sockets), "what the killed one left is removed"
    assert not now & sockets


def test_an_actor_that_is_killed_while_its_engine_starts_takes_it_along(scene: Scene) -> None:
    before = scene.processes.kill(NAME)
    eventually(
        lambda: scene.processes.pid(NAME) not in (0, before.pid) and bool(scene.members("VLLM::Worker")),
        "a worker of the next one starts",
        scene.processes.explain,
        UP_WITHIN_S,
    )
    [worker] = scene.members("VLLM::Worker")
    worker.suspend()  # it cannot see for itself that it is alone
    assert not scene.processes.is_up(NAME)
    scene.processes.kill(NAME)
    eventually(lambda: not is_alive(worker.pid), "it is gone", lambda: f"{worker}", GONE_WITHIN_S)
    scene.await_up()


def test_a_killed_worker_ends_the_actor_which_says_so(scene: Scene) -> None:
    incarnation = scene.processes.row(NAME).incarnation
    [worker] = scene.members("VLLM::Worker")
    worker.kill()
    reason = scene.await_back(incarnation)
    assert "EngineDied" in reason
    assert f"worker {worker.pid} ended" in reason


def test_a_stopped_engine_core_is_found_by_a_token_that_does_not_come(scene: Scene) -> None:
    incarnation = scene.processes.row(NAME).incarnation
    [core] = scene.members("VLLM::EngineCore")
    members = [process.pid for process in scene.members()]
    os.kill(core.pid, signal.SIGSTOP)
    reason = scene.await_back(incarnation)
    assert "EngineWedged" in reason
    assert f"engine core {core.pid} is stopped" in reason
    assert not any(map(is_alive, members)), "stopped or not, they are gone"


def test_an_engine_that_finds_no_memory_says_so_and_what_to_lower(tmp_path: Path) -> None:
    config = config_with(vllm={"cpu_cache_gib": 4096.0})
    child = rollout_child(config, tmp_path / "record.db", Checkpoints(tmp_path).first)
    with started(pool("rollout_pool", child, max_restarts=0)) as processes:
        board = processes.system.board
        eventually(lambda: board.find(NAME) is not None, "its pool starts it", processes.explain, UP_WITHIN_S)
        eventually(
            lambda: "EngineDied" in processes.row(NAME).last_reason,
            "it says why it did not start",
            processes.explain,
            UP_WITHIN_S,
        )
        assert "memory" in processes.row(NAME).last_reason.lower()
