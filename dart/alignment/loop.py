"""Runs the stages of `dartrl align` one after another."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from dart.alignment.folder import AlignmentFolder, Result, claimed_alignment
from dart.alignment.model_work import measure, train_aligned
from dart.alignment.report import AlignmentReport, alignment_report, report_json, result_line
from dart.alignment.stage_configs import exploring, training
from dart.alignment.stages import AlignmentStage, numbered, remaining
from dart.config.config import Config
from dart.core.errors import DartError, TemporaryError, UsageError
from dart.core.run_directory import RunPaths, locked
from dart.exploration.dataset import Split
from dart.exploration.dataset_files import write_dataset_of_run
from dart.inspect.report import to_json
from dart.run import app
from dart.run.child_task import ChildTaskEnded, in_fresh_process
from dart.run.exploration import ProgressLines
from dart.run.exploration import explore as run_exploration
from dart.run.listener import ConsoleListener
from dart.store.migrations import connected, is_to_migrate
from dart.store.run_blobs import blobs_of
from dart.store.store import Store

MODEL_WORK_DEADLINE_S = 7 * 24 * 3600.0
"""Longest time in seconds for training or for measuring the grounding policy; a large policy takes days."""

LATE = "train with fewer grounding.updates or less data, then continue with --resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentResult:
    """The result of `align`: a report, or the signal that interrupted it."""

    report: AlignmentReport | None
    """The closing report; None if a signal ended the alignment before its end."""
    stopped_by: int = 0
    """Number of the signal that ended the alignment; 0 if it came to its end."""
    stage: AlignmentStage | None = None
    """The stage that the signal interrupted; None without a signal."""


class StageFailed(DartError):
    """A stage of an alignment failed. `cause` is the error of the stage, which says what to do."""

    def __init__(self, stage: AlignmentStage, cause: DartError, root: Path) -> None:
        super().__init__(
            f"stage {numbered(stage)}: {cause}\n"
            "the results of earlier stages are kept; when the cause is removed, continue with "
            f"`dartrl align --resume {RunPaths(root).option}`"
        )
        self.cause = cause


class StageInterrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM ended the current stage. `number` is the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def align(config: Config, *, resume: bool, say: Callable[[str], None]) -> AlignmentResult:
    """Run the unfinished stages, and write the closing report. A line says when a stage begins or ends.

    The first SIGINT or SIGTERM ends the current stage: an exploration or a training run is drained, another
    stage ends at once.

    say      prints one line
    raises   StageFailed if a stage fails; RunDirectoryError or DiskError
    """
    with claimed_alignment(config.run.dir, resume=resume) as folder:
        folder.keep_config(config.to_toml())
        stages = _Stages(config, folder, say)
        results = folder.results()
        left = remaining(results)
        for stage in (one for one in results if one not in left):
            say(f"{numbered(stage)}: finished before: {result_line(stage, results[stage])}")
        for stage in left:
            folder.withdraw(stage)  # after an interruption, its old result would count as the new one
        for stage in left:
            try:
                with _ended_by_signals():
                    stages.run(stage)
            except StageInterrupted as interrupted:
                return AlignmentResult(report=None, stopped_by=interrupted.number, stage=stage)
            except DartError as error:
                raise StageFailed(stage, error, folder.root) from error
        report = alignment_report(config.exploration.tasks[0], folder.results())
        folder.write_report(report_json(report))
        return AlignmentResult(report=report)


class _Stages:
    """Runs stages of one alignment, one at a time."""

    def __init__(self, config: Config, folder: AlignmentFolder, say: Callable[[str], None]) -> None:
        self._config, self._folder, self._say = config, folder, say
        self._of_stage: Mapping[AlignmentStage, Callable[[], Result]] = {
            AlignmentStage.EXPLORE: self._explore,
            AlignmentStage.DATA: self._write_data,
            AlignmentStage.MEASURE_BASE: partial(self._measure, Path(config.grounding.base)),
            AlignmentStage.ALIGN: self._align,
            AlignmentStage.MEASURE_ALIGNED: self._measure_aligned,
            AlignmentStage.TRAIN: self._train,
        }

    def run(self, stage: AlignmentStage) -> None:
        """Run a stage to its end, and write its result. Raises DartError or StageInterrupted."""
        self._say(f"{numbered(stage)}: {self._plan_line(stage)}")
        began_s = time.monotonic()
        result = self._of_stage[stage]()
        self._folder.finish(stage, result)
        self._say(f"{numbered(stage)}: {result_line(stage, result)} ({time.monotonic() - began_s:.0f} s)")

    def _plan_line(self, stage: AlignmentStage) -> str:
        config, grounding = self._config, self._config.grounding
        match stage:
            case AlignmentStage.EXPLORE:
                wanted = f"{config.exploration.actions} actions with {config.exploration.explorers} browsers"
                return f"exploring {config.exploration.tasks[0]}, {wanted}"
            case AlignmentStage.DATA:
                return f"writing grounding data to {self._folder.of(stage)}"
            case AlignmentStage.MEASURE_BASE | AlignmentStage.MEASURE_ALIGNED:
                return (
                    "measuring the "
                    + ("base" if stage is AlignmentStage.MEASURE_BASE else "aligned")
                    + " policy"
                )
            case AlignmentStage.ALIGN:
                return f"training {grounding.base} for {grounding.updates} updates"
            case AlignmentStage.TRAIN:
                return (
                    f"reinforcement learning on {', '.join(config.tasks.train)} in {self._folder.of(stage)}"
                )

    def _explore(self) -> Result:
        paths = self._folder.run_of(AlignmentStage.EXPLORE)
        config = exploring(self._config, self._folder)
        found = run_exploration(config, resume=paths.config.exists(), show=ProgressLines(self._say))
        if found.stopped_by:
            raise StageInterrupted(found.stopped_by)
        (one,) = found.progress
        return {"actions": one.actions, "screens": one.screens, "shapes": one.shapes, "ways": one.edges}

    def _write_data(self) -> Result:
        paths, exploration = self._folder.run_of(AlignmentStage.EXPLORE), self._config.exploration
        _migrate(paths)
        try:
            with self._folder.fresh(AlignmentStage.DATA) as place:
                written = write_dataset_of_run(place, paths, exploration.tasks[0], exploration.seed)
                _refuse_without(written, (Split.TRAIN, Split.TEST))
        except UsageError:
            self._folder.withdraw(AlignmentStage.EXPLORE)  # so that --resume continues the exploration
            raise
        return {split.value: count for split, count in written.items()}

    def _measure(self, checkpoint: Path) -> Result:
        test = self._folder.of(AlignmentStage.DATA) / Split.TEST.value
        found = _with_model(partial(measure, checkpoint, test, self._config.grounding.held_out))
        return {"checkpoint": str(checkpoint), **found}

    def _measure_aligned(self) -> Result:
        """Measure the aligned policy. Measure the base again if its held-out data were others."""
        base, grounding = self._folder.results()[AlignmentStage.MEASURE_BASE], self._config.grounding
        measured_on = (base["generic"] or {}).get("data")
        if grounding.held_out and measured_on != str(Path(grounding.held_out)):
            self._say(
                f"measuring the base policy again, because its held-out data were {measured_on or 'none'}"
            )
            again = self._measure(Path(base.get("checkpoint", grounding.base)))
            self._folder.finish(AlignmentStage.MEASURE_BASE, again)
        return self._measure(self._folder.of(AlignmentStage.ALIGN))

    def _align(self) -> Result:
        self._refuse_other_base()
        self._folder.forget_run(AlignmentStage.TRAIN)  # it began with the policy that was aligned before
        train = self._folder.of(AlignmentStage.DATA) / Split.TRAIN.value
        with self._folder.fresh(AlignmentStage.ALIGN) as place:
            return _with_model(partial(train_aligned, self._config.grounding, train, place))

    def _refuse_other_base(self) -> None:
        """Raise UsageError if another base policy was measured than the one that is aligned."""
        base = self._config.grounding.base
        measured = self._folder.results()[AlignmentStage.MEASURE_BASE].get("checkpoint", str(Path(base)))
        if measured != str(Path(base)):
            self._folder.withdraw(AlignmentStage.MEASURE_BASE)
            raise UsageError(
                f"grounding.base is {base}, but the base policy that was measured is {measured}; --resume "
                f"measures {base} and goes on with it"
            )

    def _train(self) -> Result:
        paths = self._folder.run_of(AlignmentStage.TRAIN)
        config = training(self._config, self._folder)
        with ConsoleListener(paths) as screen:
            result = app.train(config, resume=paths.config.exists(), listener=screen)
        if result.failure:
            raise DartError(result.failure)
        if result.stopped_by is not None:
            raise StageInterrupted(result.stopped_by)
        greedy = result.report.greedy
        return {
            "updates": result.snapshot.updates,
            "sampled": to_json(result.report.sampled),
            "greedy": to_json(greedy) if greedy.tasks else None,
        }


def _migrate(paths: RunPaths) -> None:
    """Migrate the record of a finished run that an earlier version of dartrl wrote. A reader cannot do so."""
    with connected(paths.record) as connection:
        is_current = not is_to_migrate(connection, paths.record)
    if not is_current:
        with locked(paths.root, resume=True), Store(paths.record, create=False, steps=blobs_of(paths).steps):
            pass  # it has been migrated


def _refuse_without(written: Mapping[Split, int], needed: tuple[Split, ...]) -> None:
    """Raise UsageError if a split that is needed has no samples."""
    lacking = [split.value for split in needed if not written.get(split)]
    if lacking:
        raise UsageError(
            f"the exploration found too few shapes for the split {' and '.join(lacking)}: expected at least "
            "four shapes of screens with samples; explore with more --actions, and also with "
            "--set exploration.stops_when_flat=false if the exploration ended before all actions were used"
        )


def _with_model(work: Callable[[], Result]) -> Result:
    """Call a function that uses torch in a process of its own, and return its result.

    Raises the errors of the function, and TemporaryError if the process ended without a result.
    """
    try:
        return in_fresh_process(work, deadline_s=MODEL_WORK_DEADLINE_S, remedy=LATE)
    except ChildTaskEnded as error:
        raise TemporaryError(
            f"{error}; the reason is above; if the process was killed (-9), it may have needed more memory "
            "than there is: lower grounding.batch"
        ) from error


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """While the block lasts, raise StageInterrupted at the first SIGINT or SIGTERM.

    After the first signal, the handlers that were set before the block are restored. Explorations and
    training runs set handlers of their own while they run.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupt(number: int, _: FrameType | None) -> None:
        restore()
        raise StageInterrupted(number)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        restore()
