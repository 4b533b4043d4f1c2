"""Requests carried out against a live tree of actors that need no processes, on a clock moved by hand."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Sender, receives
from actors.board import ActorState
from actors.system import RootSpec
from actors.testing import InMemorySystem
from dart.config.config import Config, ConfigError, load_config
from dart.config.problems import Problem
from dart.core import messages as m
from dart.run import control_commands
from dart.run.control_commands import ROUTED_ELSEWHERE_S, Commands
from dart.run.control_protocol import (
    ControlAnswer,
    ControlOutcome,
    Drain,
    Pause,
    Ping,
    ReleaseActor,
    Reload,
    Request,
    RestartActor,
    Resume,
    Scale,
    StopActor,
)
from dart.run.definition import RunDefinition
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.engine_names import engine_names
from supervision.child_spec import Breaker, ChildSpec, SupervisorFlags
from supervision.messages import start_child
from supervision.supervisor import Supervisor, supervisor_args, supervisor_spec

PLAYING = 3
SLOW_S = 200.0
"""Seconds that a child takes to start or to end in some tests: more than any fixed deadline of a command."""


class Curator(Actor):
    """Holds work back as the real one does; every time it is asked, one episode less is played."""

    def on_start(self) -> None:
        self.is_held, self.playing, self.is_paused = False, PLAYING, False
        self.is_training = False

    @receives(m.PauseWork)
    def hold(self, call: m.PauseWork, sender: Sender) -> m.WorkPaused | m.Paused:
        if self.is_paused:
            return m.Paused(reason="the disk is full", retry_after_s=1.0)
        self.is_held = self.is_held if call.is_held is None else call.is_held
        self.playing = max(0, self.playing - (call.is_held is None))
        return m.WorkPaused(is_held=self.is_held, playing=self.playing, is_training=self.is_training)


class Environment(Actor):
    """Is there."""


class Engine(Actor):
    """Has as many requests in flight as a test says."""

    def asked(self, count: int) -> None:
        self.set_gauges({Gauge.IN_FLIGHT: count})


class Operator(Actor):
    """Carries requests out."""

    def on_start(self) -> None:
        self.commands = Commands(self, self.args["definition"])


def worker(name: str, actor: type[Actor], **fields: Any) -> ChildSpec:
    return ChildSpec(id=name, actor=f"{__name__}:{actor.__name__}", **fields)


def tree_of(config: Config) -> RootSpec:
    """A root over a curator, a pool of engines, and one of environments, left alone after one failure."""
    limits = config.supervision.environment_pool
    environments = tuple(
        worker(
            f"env-{number:03d}",
            Environment,
            breaker=Breaker(max_failures=0),
            shutdown_s=limits.shutdown_s,
            hang_deadline_s=limits.hang_deadline_s,
        )
        for number in range(config.environments.count)
    )
    flags = SupervisorFlags(ordered=False, max_restarts=limits.max_restarts)
    pool = supervisor_spec("environment_pool", flags, environments)
    start_s = config.supervision.rollout_pool.start_deadline_s
    engines = tuple(
        worker(name, Engine, start_deadline_s=start_s) for name in engine_names(config.rollout.count)
    )
    rollouts = supervisor_spec("rollout_pool", SupervisorFlags(ordered=False), engines)
    args = supervisor_args(SupervisorFlags(), (worker("curator", Curator), rollouts, pool))
    return RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)


class Tree:
    """Such a tree with two environments, and somebody who steers it."""

    def __init__(self, bench: InMemorySystem) -> None:
        self.bench = bench
        self.file = load_config(None, ["environments.count=2"])
        """What the configuration file says."""
        self.kept: list[Config] = []
        self.definition = RunDefinition(
            config=self.file, tree_of=tree_of, reread=lambda: self.file, keep=self.kept.append
        )
        bench.start(Supervisor, "root", tree_of(self.file).args)
        self.operator = bench.start(Operator, "operator", {"definition": self.definition}, parent="")
        bench.settle()
        assert bench.row("root").ready

    def begin(self, request: Request, *, for_s: float = 0.0) -> list[ControlAnswer]:
        """A list that gets the answer, if not by then, then later."""
        answers: list[ControlAnswer] = []

        async def asked() -> None:
            answers.append(await self.operator.commands.answer(request))

        self.operator.run(asked())
        self.bench.advance(for_s)
        return answers

    def ask(self, request: Request, *, for_s: float = 0.0) -> ControlAnswer | None:
        """The answer that is there after so long; None when there is none yet."""
        answers = self.begin(request, for_s=for_s)
        return answers[0] if answers else None

    def answer(self, request: Request, *, for_s: float = 0.0) -> ControlAnswer:
        answer = self.ask(request, for_s=for_s)
        assert answer is not None
        return answer

    def outcome(self, request: Request, *, for_s: float = 0.0) -> ControlOutcome:
        return self.answer(request, for_s=for_s).outcome

    @property
    def environments(self) -> list[str]:
        return self.running("env-")

    @property
    def engines(self) -> list[str]:
        return self.running("rollout-")

    def running(self, prefix: str) -> list[str]:
        rows = self.bench.board.rows()
        return sorted(
            row.name for row in rows if row.name.startswith(prefix) and row.state is ActorState.RUNNING
        )


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with InMemorySystem(tmp_path, live_children=True) as bench:
        yield Tree(bench)


# ---- one actor ----


def test_a_ping_is_a_round_trip_through_the_root(tree: Tree) -> None:
    assert tree.answer(Ping()) == ControlAnswer(ControlOutcome.DONE, "root answers; 3 of 3 children are up")
    tree.bench.hang("root")
    assert tree.outcome(Ping(wait_ms=400), for_s=1.0) in (ControlOutcome.SILENT, ControlOutcome.UNDER_WAY)


def test_a_restarted_actor_is_another_incarnation_and_spends_no_budget(tree: Tree) -> None:
    assert tree.answer(RestartActor(name="env-001")).text == "env-001 runs again, as incarnation 2"
    assert tree.bench.row("env-001").restarts == 0


def test_a_supervisor_is_restarted_with_its_children(tree: Tree) -> None:
    assert tree.outcome(RestartActor(name="environment_pool"), for_s=0.1) is ControlOutcome.DONE
    assert [tree.bench.row(name).incarnation for name in tree.environments] == [2, 2]


def test_one_that_hangs_is_answered_about_in_time_and_restarted_when_it_was_killed(tree: Tree) -> None:
    tree.bench.hang("env-001")

    answer = tree.answer(RestartActor(name="env-001", wait_ms=400), for_s=0.4)

    assert answer == ControlAnswer(ControlOutcome.UNDER_WAY, "not done yet: env-001 is stopping")
    tree.bench.advance(6.0)
    assert tree.bench.row("env-001").incarnation == 2
    assert tree.environments == ["env-000", "env-001"]


@pytest.mark.parametrize("name", ["env-001", "environment_pool"])
def test_one_that_may_take_minutes_to_end_is_restarted_when_it_has_ended(tree: Tree, name: str) -> None:
    reloaded(tree, f"supervision.environment_pool.shutdown_s={SLOW_S}")
    tree.bench.hang("env-001")

    answer = tree.answer(RestartActor(name=name, wait_ms=600_000), for_s=SLOW_S + 1.0)

    assert answer.text == f"{name} runs again, as incarnation 2"
    assert tree.environments == ["env-000", "env-001"]


@pytest.mark.usefixtures("slow_engines")
def test_one_that_starts_slowly_is_waited_for(tree: Tree) -> None:
    answer = tree.answer(RestartActor(name="rollout-0", wait_ms=600_000), for_s=SLOW_S)
    assert answer.text == "rollout-0 runs again, as incarnation 2"


def test_one_whose_end_is_not_confirmed_stays_down_and_the_answer_says_how_it_is_started(tree: Tree) -> None:
    tree.bench.hang("env-001")
    answers = tree.begin(RestartActor(name="env-001", wait_ms=600_000))
    for supervisor in ("root", "environment_pool"):
        tree.bench.hang(supervisor)
    tree.bench.advance(60.0)

    (answer,) = answers
    assert answer.outcome is ControlOutcome.SILENT
    assert answer.text.startswith("env-001 was told to end and stays down when it has ended: ")
    assert answer.text.endswith("; `dartrl actors restart env-001` waits for its end and starts it")

    for supervisor in ("root", "environment_pool"):
        tree.bench.resume(supervisor)
    tree.bench.advance(10.0)
    assert tree.environments == ["env-000"]
    assert tree.outcome(RestartActor(name="env-001")) is ControlOutcome.DONE
    assert tree.environments == ["env-000", "env-001"]


def test_one_that_does_not_start_again_is_down_and_the_answer_says_how_to_try_again(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(environment: Environment) -> None:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(Environment, "on_start", out_of_memory)
        answer = tree.answer(RestartActor(name="env-001"), for_s=0.3)
    assert answer.outcome is ControlOutcome.REFUSED
    assert answer.text.startswith("env-001 has ended and could not be started again: ")
    assert answer.text.endswith("no memory; `dartrl actors restart env-001` tries again")
    assert tree.environments == ["env-000"]

    assert tree.outcome(RestartActor(name="env-001")) is ControlOutcome.DONE
    assert tree.environments == ["env-000", "env-001"]


def test_of_two_restarts_at_once_one_starts_the_actor_and_the_other_says_that_it_starts(tree: Tree) -> None:
    tree.bench.hang("env-001")
    answers = [tree.begin(RestartActor(name="env-001", wait_ms=60_000)) for _ in range(2)]
    tree.bench.advance(10.0)

    assert {one.text for each in answers for one in each} == {
        "env-001 runs again, as incarnation 2",
        "env-001 ended, and its supervisor is already starting it again",
    }
    assert tree.environments == ["env-000", "env-001"]


def test_while_its_supervisor_hangs_an_actor_is_not_restarted_then_or_later(tree: Tree) -> None:
    tree.bench.hang("environment_pool")

    answer = tree.answer(RestartActor(name="env-001", wait_ms=400), for_s=0.4)

    assert answer.outcome is ControlOutcome.SILENT
    assert "'environment_pool' did not answer" in answer.text
    tree.bench.resume("environment_pool")
    tree.bench.advance(1.0)
    assert tree.bench.row("env-001").incarnation == 1


def test_a_stopped_actor_stays_down_until_it_is_restarted(tree: Tree) -> None:
    assert tree.outcome(StopActor(name="env-001")) is ControlOutcome.DONE
    tree.bench.advance(60.0)
    assert tree.environments == ["env-000"]
    assert tree.outcome(RestartActor(name="env-001")) is ControlOutcome.DONE
    assert tree.environments == ["env-000", "env-001"]


@pytest.mark.parametrize(
    "request_", [StopActor(name="curator"), RestartActor(name="root"), ReleaseActor(name="env-007")]
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(tree: Tree, request_: Request) -> None:
    assert tree.outcome(request_) is ControlOutcome.REFUSED
    assert [tree.bench.row(name).incarnation for name in ("root", "curator", "env-001")] == [1, 1, 1]


@pytest.mark.parametrize("request_", [RestartActor, StopActor])
def test_a_part_of_a_pool_that_a_node_carries_is_neither_restarted_nor_stopped(
    tree: Tree, request_: type[RestartActor] | type[StopActor]
) -> None:
    placed = SupervisorFlags(dynamic=True, ordered=False)
    tree.bench.start(Supervisor, "placed", supervisor_args(placed, ()), parent="root")
    shard = supervisor_spec("environment_pool-0", SupervisorFlags(), (worker("env-100", Environment),))
    tree.operator.ask("placed", start_child(shard))
    tree.bench.settle()

    answer = tree.answer(request_(name="environment_pool-0"), for_s=1.0)

    assert answer.outcome is ControlOutcome.REFUSED
    assert "such as env-100" in answer.text
    assert tree.bench.row("environment_pool-0").incarnation == 1
    assert "env-100" in tree.environments


def test_quarantine_ends_when_it_is_told_to_and_only_where_it_is(tree: Tree) -> None:
    assert tree.outcome(ReleaseActor(name="env-001")) is ControlOutcome.REFUSED
    tree.bench.kill("env-001")
    tree.bench.settle()
    assert tree.bench.row("env-001").state is ActorState.QUARANTINED

    assert tree.outcome(ReleaseActor(name="env-001")) is ControlOutcome.DONE

    tree.bench.settle()
    assert tree.environments == ["env-000", "env-001"]


# ---- the pool ----


def test_a_pool_grows_and_shrinks_and_the_next_start_knows(tree: Tree) -> None:
    assert tree.answer(Scale(environments=20)) == ControlAnswer(ControlOutcome.DONE, "20 environments")
    assert tree.environments == [f"env-{number:03d}" for number in range(20)]
    assert tree.answer(Scale(environments=1)) == ControlAnswer(ControlOutcome.DONE, "1 environments")
    assert tree.environments == ["env-000"]
    assert [config.environments.count for config in tree.kept] == [20, 1]


def test_a_pool_whose_children_do_not_fit_into_one_answer_is_scaled_too(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervision.supervisor.CHILDREN_PER_ANSWER", 2)
    assert tree.answer(Scale(environments=5)).text == "5 environments"
    assert tree.answer(Scale(environments=1)).text == "1 environments"
    assert tree.environments == ["env-000"]


def test_a_size_that_the_disk_does_not_take_holds_for_this_run_and_the_answer_says_so(tree: Tree) -> None:
    def refuse(_: Config) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tree.definition.keep = refuse

    answer = tree.answer(Scale(environments=3))

    assert answer.outcome is ControlOutcome.REFUSED
    assert answer.text == (
        "the run has 3 environments, not what was asked for: the configuration cannot be written, so the "
        "next start will not have it: [Errno 28] No space left on device"
    )
    assert tree.environments == ["env-000", "env-001", "env-002"]


@pytest.mark.parametrize("call", [Scale(environments=3), Scale(rollouts=2)])
def test_a_run_on_a_cluster_is_not_scaled_and_the_answer_says_what_to_do(tree: Tree, call: Scale) -> None:
    """Its environments are on several nodes, and its engines on this one."""
    engines = supervisor_spec("rollout_pool", SupervisorFlags(ordered=False))
    args = supervisor_args(SupervisorFlags(), (worker("curator", Curator), engines))
    root = RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)
    tree.definition.tree_of = lambda _: root

    answer = tree.answer(call)

    assert answer.outcome is ControlOutcome.REFUSED
    assert "cannot be scaled while it runs: end it with `dartrl down`" in answer.text
    assert (tree.environments, tree.engines) == (["env-000", "env-001"], ["rollout-0"])


def test_engines_are_added_beside_environments_and_the_next_start_knows(tree: Tree) -> None:
    answer = tree.answer(Scale(environments=3, rollouts=2))
    assert answer == ControlAnswer(ControlOutcome.DONE, "3 environments and 2 rollouts")
    assert (tree.environments, tree.engines) == (
        ["env-000", "env-001", "env-002"],
        ["rollout-0", "rollout-1"],
    )
    assert [(one.environments.count, one.rollout.count) for one in tree.kept] == [(3, 2)]


@pytest.fixture
def slow_engines(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that take minutes to start, as the configuration permits; one of them is up already."""

    async def load(engine: Engine) -> None:
        await engine.sleep(SLOW_S)

    reloaded(tree, "supervision.rollout_pool.start_deadline_s=900.0")
    monkeypatch.setattr(Engine, "on_start", load)


@pytest.mark.usefixtures("slow_engines")
def test_an_engine_that_starts_slowly_is_waited_for(tree: Tree) -> None:
    answers = tree.begin(Scale(rollouts=2, wait_ms=600_000), for_s=SLOW_S - 1.0)
    assert answers == []
    tree.bench.advance(1.0)
    assert answers == [ControlAnswer(ControlOutcome.DONE, "2 rollouts")]


@pytest.mark.usefixtures("slow_engines")
def test_an_answer_that_is_due_names_the_children_that_still_start(tree: Tree) -> None:
    answer = tree.answer(Scale(rollouts=3), for_s=0.4)
    assert answer.outcome is ControlOutcome.UNDER_WAY
    assert answer.text.endswith("rollout_pool is running; rollout-1 is starting; rollout-2 is starting")


def test_a_child_that_takes_minutes_to_end_is_removed_when_it_has_ended(tree: Tree) -> None:
    reloaded(tree, f"supervision.environment_pool.shutdown_s={SLOW_S}")
    tree.bench.hang("env-001")
    answer = tree.answer(Scale(environments=1, wait_ms=600_000), for_s=SLOW_S + 1.0)
    assert answer == ControlAnswer(ControlOutcome.DONE, "1 environments")


def test_an_engine_that_is_taken_away_answers_first_what_it_was_asked(tree: Tree) -> None:
    tree.answer(Scale(rollouts=2))
    tree.bench.actor("rollout-1").asked(2)

    assert tree.ask(Scale(rollouts=1, wait_ms=60_000), for_s=5.0) is None
    assert tree.kept[-1].rollout.count == 1, "nobody asks it from now on"
    assert tree.engines == ["rollout-0", "rollout-1"]
    tree.bench.actor("rollout-1").asked(0)
    tree.bench.advance(1.0)

    assert tree.engines == ["rollout-0"]


def test_an_engine_that_never_answers_is_not_waited_for_for_ever(tree: Tree) -> None:
    tree.answer(Scale(rollouts=2))
    tree.bench.actor("rollout-1").asked(2)
    longest_s = tree.file.rollout.answer_deadline_s + ROUTED_ELSEWHERE_S + 1.0
    assert tree.answer(Scale(rollouts=1, wait_ms=600_000), for_s=longest_s).text == "1 rollouts"


def test_an_engine_that_does_not_run_is_not_waited_for(tree: Tree) -> None:
    tree.answer(Scale(rollouts=2))
    tree.bench.actor("rollout-1").asked(2)
    tree.answer(StopActor(name="rollout-1"))
    answer = tree.answer(Scale(rollouts=1, wait_ms=60_000), for_s=ROUTED_ELSEWHERE_S + 1.0)
    assert answer.text == "1 rollouts"


def test_a_size_that_contradicts_the_configuration_is_refused_and_nothing_changes(tree: Tree) -> None:
    own = "supervision.children.env-001.hang_deadline_s=3.0"
    tree.definition.config = load_config(None, ["environments.count=2", own])

    answer = tree.answer(Scale(environments=1))

    assert answer.outcome is ControlOutcome.REFUSED
    assert answer.text.startswith(
        "nothing was changed: supervision.children.env-001 is not a child of a pool"
    )
    assert (tree.environments, tree.kept) == (["env-000", "env-001"], [])


@pytest.fixture
def three_gpus(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine of vLLM, which takes a whole GPU, on a machine with three."""
    monkeypatch.setattr(control_commands, "gpus_here", lambda: ("0", "1", "2"))
    chosen = ["environments.count=2", 'rollout.engine="vllm"', "rollout.vllm.memory=0.9"]
    tree.definition.config = tree.definition.as_started = load_config(None, chosen)


@pytest.mark.usefixtures("three_gpus")
def test_engines_that_do_not_fit_on_the_gpus_are_refused_with_the_sum(tree: Tree) -> None:
    assert tree.answer(Scale(rollouts=2)).text == "2 rollouts", "the trainer has GPU 2"

    answer = tree.answer(Scale(rollouts=3))

    assert answer.outcome is ControlOutcome.REFUSED
    assert "3 engines x 1 + 1 for the trainer = 4 GPUs, and 3 are on this machine" in answer.text
    assert tree.engines == ["rollout-0", "rollout-1"]


@pytest.mark.usefixtures("three_gpus")
def test_of_two_sizes_of_which_one_is_refused_neither_changes(tree: Tree) -> None:
    answer = tree.answer(Scale(environments=5, rollouts=3))

    assert answer.outcome is ControlOutcome.REFUSED
    assert answer.text.startswith("nothing was changed: rollout.")
    assert (tree.environments, tree.engines) == (["env-000", "env-001"], ["rollout-0"])
    assert tree.kept == []


def test_a_reloaded_file_changes_the_number_of_engines(tree: Tree) -> None:
    assert reloaded(tree, "rollout.count=3").text == "changed: rollout.count"
    assert tree.engines == ["rollout-0", "rollout-1", "rollout-2"]
    tree.bench.kill("rollout_pool")
    tree.bench.advance(1.0)
    tree.operator.run(tree.operator.commands.restore())
    tree.bench.advance(1.0)
    assert tree.engines == ["rollout-0", "rollout-1", "rollout-2"]


def test_what_hangs_while_a_pool_shrinks_is_killed_and_then_gone(tree: Tree) -> None:
    tree.bench.hang("env-001")
    assert tree.outcome(Scale(environments=1, wait_ms=400), for_s=0.4) is ControlOutcome.UNDER_WAY
    tree.bench.advance(6.0)
    assert tree.bench.row("env-001").state is ActorState.FREE


def test_of_two_sizes_asked_for_at_once_the_later_one_holds(tree: Tree) -> None:
    tree.bench.hang("env-001")
    assert tree.outcome(Scale(environments=1, wait_ms=400), for_s=0.4) is ControlOutcome.UNDER_WAY

    answer = tree.answer(Scale(environments=2, wait_ms=60_000), for_s=20.0)

    assert answer == ControlAnswer(ControlOutcome.DONE, "2 environments")
    assert tree.environments == ["env-000", "env-001"]


def test_a_pool_of_another_size_is_an_event(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(control_commands, "emit", lambda _, *event: told.append(event))

    for count in (3, 3):
        tree.answer(Scale(environments=count))

    assert told == [("pools_sized", "root", {"environments": 3, "engines": 1})]


# ---- new work ----


def test_pause_and_resume_say_what_goes_on(tree: Tree) -> None:
    assert tree.answer(Pause()).text.endswith("still under way: work in 3 environments")
    assert tree.answer(Resume()) == ControlAnswer(ControlOutcome.DONE, "episodes and updates begin again")
    assert not tree.bench.actor("curator").is_held


def test_draining_waits_until_nothing_is_played(tree: Tree) -> None:
    assert tree.ask(Drain(wait_ms=60_000), for_s=0.1) is None
    assert tree.outcome(Drain(wait_ms=60_000), for_s=5.0) is ControlOutcome.DONE
    assert tree.bench.actor("curator").playing <= 0


def test_draining_waits_for_an_update_too(tree: Tree) -> None:
    curator = tree.bench.actor("curator")
    curator.playing, curator.is_training = 0, True
    waiting = tree.begin(Drain(wait_ms=60_000), for_s=5.0)
    assert waiting == []
    curator.is_training = False
    tree.bench.advance(1.0)
    assert [one.outcome for one in waiting] == [ControlOutcome.DONE]


def test_a_drain_that_is_over_time_says_who_still_plays_and_holds_nothing_later(tree: Tree) -> None:
    answer = tree.answer(Drain(wait_ms=600), for_s=0.7)
    assert answer.outcome is ControlOutcome.UNDER_WAY

    tree.answer(Resume())
    tree.bench.advance(30.0)

    assert not tree.bench.actor("curator").is_held


def test_a_drain_ends_when_the_run_is_resumed(tree: Tree) -> None:
    tree.bench.actor("curator").playing = 1000
    waiting = tree.begin(Drain(wait_ms=60_000), for_s=1.0)
    tree.answer(Resume())
    tree.bench.advance(1.0)
    assert waiting == [
        ControlAnswer(ControlOutcome.REFUSED, "the drain ended early: the run was resumed in the meantime")
    ]


def test_a_curator_that_hangs_or_a_record_that_takes_nothing_is_said(tree: Tree) -> None:
    tree.bench.actor("curator").is_paused = True
    assert tree.answer(Pause()).text == "the record takes no writes now: the disk is full"
    tree.bench.hang("curator")
    assert tree.answer(Pause(wait_ms=400), for_s=0.4).outcome is ControlOutcome.UNDER_WAY


# ---- the configuration ----


def reloaded(tree: Tree, *overrides: str) -> ControlAnswer:
    tree.file = load_config(None, ["environments.count=2", *overrides])
    return tree.answer(Reload())


def specs_of(tree: Tree, supervisor: str) -> dict[str, ChildSpec]:
    return {id_: child.spec for id_, child in tree.bench.actor(supervisor)._core.children.items()}


def test_limits_and_sizes_change_live_and_nobody_is_restarted(tree: Tree) -> None:
    answer = reloaded(
        tree,
        "environments.count=3",
        "supervision.environment_pool.hang_deadline_s=30.0",
        "supervision.environment_pool.max_restarts=77",
    )

    assert answer.outcome is ControlOutcome.DONE, answer.text
    assert {spec.hang_deadline_s for spec in specs_of(tree, "environment_pool").values()} == {30.0}
    assert tree.bench.actor("environment_pool")._core.flags.max_restarts == 77
    assert tree.environments == ["env-000", "env-001", "env-002"]
    assert [tree.bench.row(name).incarnation for name in tree.environments] == [1, 1, 1]
    assert tree.kept == [tree.file]


def test_what_is_trained_with_cannot_change_and_then_nothing_does(tree: Tree) -> None:
    answer = reloaded(tree, "training.lr=1e-5", "curation.staleness=7", "environments.count=3")

    assert answer.outcome is ControlOutcome.REFUSED
    assert "curation.staleness, training.lr cannot change while the run goes on" in answer.text
    assert tree.environments == ["env-000", "env-001"]
    assert tree.kept == []


def test_a_file_that_is_wrong_changes_nothing(tree: Tree) -> None:
    def wrong() -> Config:
        raise ConfigError([Problem("run.toml", "environments.count", "must be at least 1, got 0")])

    tree.definition.reread = wrong
    assert tree.answer(Reload()) == ControlAnswer(
        ControlOutcome.REFUSED, "nothing was changed: run.toml: environments.count must be at least 1, got 0"
    )


def test_a_run_without_a_file_to_read_again_says_so(tree: Tree) -> None:
    tree.definition.reread = None
    answer = tree.answer(Reload())
    assert answer.outcome is ControlOutcome.REFUSED
    assert answer.text.startswith("only a run on one machine, started with `dartrl up`, can reload")


def test_a_request_that_fails_by_a_defect_is_answered_and_the_next_one_is_served(tree: Tree) -> None:
    def broken() -> Config:
        raise RuntimeError("a defect")

    tree.definition.reread = broken
    assert tree.answer(Reload()) == ControlAnswer(
        ControlOutcome.REFUSED, "the request failed by a defect, see the log: RuntimeError('a defect')"
    )
    assert tree.outcome(Scale(environments=3)) is ControlOutcome.DONE


def test_a_file_that_did_not_change_says_so(tree: Tree) -> None:
    assert reloaded(tree) == ControlAnswer(ControlOutcome.DONE, "no key of the configuration has changed")


def test_a_reload_starts_the_children_that_an_earlier_one_could_not_start(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(environment: Environment) -> None:
        if environment.identity.name in ("env-002", "env-003"):
            raise RuntimeError("no memory")

    monkeypatch.setattr(Environment, "on_start", out_of_memory)
    assert reloaded(tree, "environments.count=4").outcome is ControlOutcome.REFUSED
    assert tree.environments == ["env-000", "env-001"]
    monkeypatch.undo()

    answer = reloaded(tree, "environments.count=4")

    assert answer.outcome is ControlOutcome.DONE
    assert answer.text == "no key of the configuration has changed; the run has 4 environments again"
    assert tree.environments == ["env-000", "env-001", "env-002", "env-003"]


def test_a_pool_that_hangs_and_whose_size_stays_does_not_keep_other_limits_from_changing(tree: Tree) -> None:
    tree.bench.hang("rollout_pool")
    changed = "supervision.environment_pool.max_restarts=77"
    tree.file = load_config(None, ["environments.count=2", changed])

    answer = tree.answer(Reload(wait_ms=4000), for_s=4.0)

    assert tree.bench.actor("environment_pool")._core.flags.max_restarts == 77
    assert answer.outcome is ControlOutcome.REFUSED
    assert "the number of rollouts could not be checked: 'rollout_pool' did not answer" in answer.text


def test_while_a_supervisor_hangs_no_other_is_told_anything(tree: Tree) -> None:
    tree.bench.hang("environment_pool")
    tree.file = load_config(None, ["environments.count=2", "supervision.environment_pool.shutdown_s=9.0"])
    assert tree.answer(Reload(wait_ms=400), for_s=0.4).outcome is ControlOutcome.SILENT
    assert specs_of(tree, "root")["environment_pool"].shutdown_s == 1.0 + 5.0


def test_a_pool_that_was_restarted_is_told_what_changed_since_the_start(tree: Tree) -> None:
    reloaded(tree, "supervision.environment_pool.hang_deadline_s=30.0")
    tree.answer(Scale(environments=4))
    tree.bench.kill("environment_pool")
    tree.bench.advance(1.0)
    assert tree.environments == ["env-000", "env-001"], "it starts as the run did"

    tree.operator.run(tree.operator.commands.restore())
    tree.bench.advance(1.0)

    assert tree.environments == ["env-000", "env-001", "env-002", "env-003"]
    assert {spec.hang_deadline_s for spec in specs_of(tree, "environment_pool").values()} == {30.0}
