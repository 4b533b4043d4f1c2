"""Evaluates an OSWorld task with OSWorld's own evaluators, which run in a child process.

OSWorld's getters turn every failure into None, and its metrics often turn None into a score of 0. The
evaluators therefore never call the guest themselves: they ask this process, which makes the call. If the
machine died, hangs or refuses, this process ends the evaluation with the machine's fault. Otherwise:

* A score counts if the machine was seen to work after each metric.
* If an evaluator raises an error and the guest lacks something that the evaluator asked for, or that a step
  before the evaluation needed, the score is 0, as in OSWorld's own runs. A policy that left no file has
  failed; without the 0, the policy would look better than it is.
* If an evaluator raises an error otherwise, or takes too long or too much memory, the evaluator has failed.
  This is a counted fault (EvaluatorFailed) and never a reward.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dart.config.osworld_evaluation import child_s, page_call_s
from dart.environments.deadlines import LeftS
from dart.environments.faults import EvaluatorFailed, InfrastructureFault, TaskUnsupported
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.guest_answers import CALL, FILE, LACK, LOOK, Answers, GuestAnswers, Reading
from dart.environments.osworld.page_calls import RETURNED, PageCalls
from dart.environments.osworld.paths import inside
from dart.environments.osworld.scoring_environment import LEFT_OUT, RUNS_CODE, ScoringEnvironment
from dart.environments.osworld.scoring_process import (
    ChildBroke,
    ScoringProcess,
    has_sandbox,
    scoring_process,
)
from dart.environments.osworld.setup_steps import STEPS, Setting
from dart.environments.osworld.tasks import INFEASIBLE, OSWorldTask, names

BROWSER = "playwright"
"""The library through which getters read pages of the guest's browser."""

NAMED = ("dest", "path")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A score, with the evaluators that gave it and everything that they read."""

    score: float
    evaluator: str
    """Name and version of the evaluators."""
    task_sha256: str
    """Hash of the task's file."""
    readings: tuple[Reading, ...] = field(repr=False)
    """All that the evaluation read, in order."""
    by_values: tuple[str, ...] = ()
    """Getters that were not called, because a value was kept that they had returned before."""


async def judge(task: OSWorldTask, setting: Setting, scoring: ScoringEnvironment, left_s: LeftS) -> Judgement:
    """Run the task's steps before the evaluation, and judge the state of the machine after them.

    The score should be in [0, 1], which is not checked here.

    An infeasible task scores 0 here, because its reward depends on what the policy declared and not on the
    machine (`dart.environments.scoring`). Raises EvaluatorFailed, TaskUnsupported or a fault of the machine.
    """
    answers = GuestAnswers(task, setting, left_s, browses=bool(page_getters(task, scoring)))
    # The child starts first: if the disk has no room for it, no step has run, and the evaluation is repeated.
    async with _child(task, scoring, setting.guest) as process:
        await answers.take_steps(task.before_checks)
        return await _judgement(task, scoring, answers, left_s, process)


async def judged(
    task: OSWorldTask, scoring: ScoringEnvironment, answers: Answers, left_s: LeftS
) -> Judgement:
    """Return the judgement that follows from ``answers``, which have the values of all getters that read
    pages; see `judge`."""
    async with _child(task, scoring, None) as process:
        return await _judgement(task, scoring, answers, left_s, process)


@contextlib.asynccontextmanager
async def _child(
    task: OSWorldTask, scoring: ScoringEnvironment, guest: Guest | None
) -> AsyncIterator[ScoringProcess | None]:
    """Start the child that judges a task; None for an infeasible task, which needs none.

    guest   the guest whose browser the evaluation may read; None to read none

    Raises TaskUnsupported, or OSError when the disk refuses.
    """
    refuse_unscorable(task, scoring)
    if task.is_infeasible:
        yield None
        return
    async with scoring_process(scoring, guest if page_getters(task, scoring) else None) as process:
        yield process


async def _judgement(
    task: OSWorldTask,
    scoring: ScoringEnvironment,
    answers: Answers,
    left_s: LeftS,
    process: ScoringProcess | None,
) -> Judgement:
    """Return the judgement that follows from ``answers``; without a process the score is 0."""
    readings = [Reading(question=LACK, arguments={"what": lack}, answer=None) for lack in answers.lacks]
    score, by_values = 0.0, list[str]()
    if process is not None:
        files = dict(answers.files())
        readings += [Reading(question=FILE, arguments={"name": name}, answer=files[name]) for name in files]
        evaluation = ChildEvaluation(task, process, answers, readings, page_getters(task, scoring))
        score = await evaluation.score(files, left_s)
        by_values = evaluation.by_values
    return Judgement(
        score=score,
        evaluator=scoring.name,
        task_sha256=task.sha256,
        readings=tuple(readings),
        by_values=tuple(by_values),
    )


def page_getters(task: OSWorldTask, scoring: ScoringEnvironment) -> list[str]:
    """Return the getters of a task's evaluation that read pages of the guest's browser."""
    getters = dict.fromkeys(f"get_{look.get('type')}" for look in task.looks())
    return [name for name in getters if BROWSER in scoring.functions.get(name, ())]


class ChildEvaluation:
    """The conversation with a child about one task."""

    def __init__(
        self,
        task: OSWorldTask,
        process: ScoringProcess,
        answers: Answers,
        readings: list[Reading],
        readers: Sequence[str] = (),
    ) -> None:
        """readings   list to which each question and its answer is added
        readers    getters that read pages of the guest's browser
        """
        self._task, self._process, self._answers, self._readings = task, process, answers, readings
        self._readers = readers
        self.by_values: list[str] = []
        """Getters that were not called, because the answers have the value that they returned before."""

    async def score(self, files: Mapping[str, bytes], left_s: LeftS) -> float:
        """Return the score. Raises the same faults as `judge`.

        files   contents by name of the files in the evaluators' cache folder at the beginning
        """
        within_s = child_s(left_s())
        try:
            async with asyncio.timeout(within_s):
                order = {"evaluator": self._task.evaluator, "files": files, "page_getters": self._readers}
                await self._process.send(order)
                said = await self._conversed(PageCalls(self._answers.lacks, page_call_s(within_s)))
        except TimeoutError:
            why = f"its evaluation did not end within {within_s:.1f} s and was killed"
            raise await self._broken(why) from None
        except ChildBroke as error:
            raise await self._broken(f"its evaluation {error}") from error
        if said.get("needs"):
            library = str(said["needs"][0])
            raise TaskUnsupported(
                self._task.task_id, f"its evaluation needs {LEFT_OUT.get(library, library)}"
            )
        # Not every end comes after a metric, after which the child looks itself.
        await self._answers.answer(LOOK, {})
        if isinstance(score := said.get("score"), float):
            return score
        if self._answers.lacks:
            return 0.0
        raise self._failed(f"its evaluator broke: {said.get('raised')}")

    async def _conversed(self, calls: PageCalls) -> Mapping[str, Any]:
        """Answer the child until it ends; return its last message."""
        async with calls.limited():
            while True:
                message = await self._process.receive()
                if "ask" not in message:
                    return message
                question, arguments = str(message["ask"]), message.get("arguments")
                if not isinstance(arguments, dict):
                    raise ChildBroke(f"asked {question!r} without arguments")
                await self._process.send({"answer": await self._answer(question, arguments, calls)})

    async def _answer(self, question: str, arguments: Mapping[str, Any], calls: PageCalls) -> Any:
        """Answer one question, and keep the answer."""
        if question == RETURNED:
            self._readings.append(calls.returned(arguments))
            return None
        answer = await self._answers.answer(question, arguments)
        if question == CALL and answer is None:  # what is kept of the call follows with RETURNED
            calls.began(arguments)
            return None
        if question == CALL:
            self.by_values.append(str(arguments["getter"]))
        if question != LOOK:
            self._readings.append(Reading(question=question, arguments=arguments, answer=answer))
        return answer

    async def _broken(self, why: str) -> EvaluatorFailed:
        """Return the fault of an evaluation that was killed or crashed.

        Raises the fault of the machine instead, if it does not work; its text says ``why`` the machine was
        looked at."""
        try:
            await self._answers.answer(LOOK, {})
        except InfrastructureFault as fault:
            fault.args = (f"{fault}; the machine was looked at because {why}",)
            raise
        return self._failed(why)

    def _failed(self, why: str) -> EvaluatorFailed:
        return EvaluatorFailed(self._task.task_id, why)


# ---- which tasks can be judged ----


def refuse_unscorable(task: OSWorldTask, scoring: ScoringEnvironment) -> None:
    """Raise TaskUnsupported if the evaluators cannot judge the task, or if its evaluation names a file
    outside of the cache folder."""
    for need in needs(task, scoring):
        raise TaskUnsupported(task.task_id, f"its evaluation needs {need}")
    for look in task.looks():
        for key in NAMED:
            if key == "path" and look["type"] != "cache_file":
                continue
            for name in names(look, key) if key in look else ():
                try:
                    inside(Path("/nowhere"), name)
                except ValueError as error:
                    raise TaskUnsupported(task.task_id, f"its evaluation's file {error}") from error


def needs(task: OSWorldTask, scoring: ScoringEnvironment) -> Iterator[str]:
    """Yield what a task's evaluation needs and this system lacks: functions, libraries, a sandbox."""
    functions = [check.function for check in task.checks if check.function != INFEASIBLE]
    functions += [f"get_{look.get('type')}" for look in task.looks()]
    for name in dict.fromkeys(functions):
        if name not in scoring.functions:
            yield f"the function {name!r}, which {scoring.name} does not have"
            continue
        for library in sorted(scoring.functions[name]):
            if library == RUNS_CODE or (library == BROWSER and not has_sandbox()):
                if not has_sandbox():
                    yield LEFT_OUT[RUNS_CODE]
            elif not scoring.has(library):
                yield LEFT_OUT.get(library, library)


def not_known(task: OSWorldTask, scoring: ScoringEnvironment) -> list[str]:
    """Return what is missing to play a task: unsupported setup steps, and `needs`; empty for nothing."""
    steps = {step.type for step in task.steps()} - STEPS.keys()
    return [*(f"the step {name!r}" for name in sorted(steps)), *dict.fromkeys(needs(task, scoring))]
