"""What `dartrl demo` prints: the success rate every few seconds, and a rollout before and one after training.

The two rollouts, printed step by step, are typical and not chosen for success. One is of the first rollouts
and one of the newest. Each has the result, success or failure, that most of the compared rollouts have, and
the heading says how many have it.
"""

import math
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Console

from dart.core.records import RunPhase
from dart.core.run_directory import RunPaths
from dart.inspect.formatting import duration, percent
from dart.inspect.report import ChangeVerdict
from dart.inspect.result import TrainResult, publish
from dart.inspect.screen_change import changed_area
from dart.inspect.sidecar_status import WEB
from dart.inspect.snapshot import RunSnapshot
from dart.inspect.terminal_safe import one_line
from dart.run.listener import RunListener
from dart.store.blobs import BlobStore
from dart.store.browse_queries import TrajectoryFilter, TrajectorySummary
from dart.store.errors import StoreError
from dart.web.run_view import RunView
from dart.web.step_views import StepView
from dart.web.trajectory_pages import EpisodePage

LINE_EVERY_S = 3.0

RECENT = 40
"""Number of newest rollouts over which a printed success rate is computed."""

EXAMPLE_OF = 24
"""Number of first, or of newest, rollouts among which a typical example is chosen."""

BAR_WIDTH = 30

PHASES: Mapping[RunPhase, str] = {
    RunPhase.BASE_EVALUATION: "browsers and engine start; then the base policy plays held-out seeds",
    RunPhase.TRAINING: "training: browsers play, the trainer updates the policy",
    RunPhase.FINAL_EVALUATION: "the trained policy plays the same held-out seeds",
}


@dataclass(frozen=True, slots=True)
class Example:
    """A rollout with the result, success or failure, that most of the compared rollouts have."""

    rollout_id: int
    is_success: bool
    alike: int
    """Number of rollouts with this result, itself included."""
    among: int
    """Number of compared rollouts."""


def typical(rows: Sequence[TrajectorySummary], success_above: float) -> Example | None:
    """Return the first rollout with the more frequent result, success or failure. In a tie, failure wins.

    success_above   a rollout with a reward above this value is a success
    Returns None if `rows` is empty.
    """
    won = sum(row.reward > success_above for row in rows)
    is_success = 2 * won > len(rows)
    found = next((row for row in rows if (row.reward > success_above) is is_success), None)
    alike = won if is_success else len(rows) - won
    return None if found is None else Example(found.rollout_id, is_success, alike, len(rows))


def bar(rate: float | None, width: int = BAR_WIDTH) -> str:
    """Draw a rate from 0 to 1 as a bar of `width` characters. None is drawn as 0."""
    filled = round((rate or 0.0) * width)
    return "█" * filled + "░" * (width - filled)


def step_lines(views: Sequence[StepView], screenshots: BlobStore, ending: str) -> Iterator[str]:
    """Yield a line for each step: its number, its action, and the area of the screen that the action changed.

    ending   text in place of the area for the last step
    """
    following: list[StepView | None] = [*views[1:], None]
    width = max((len(_action(view)) for view in views), default=0)
    for view, after in zip(views, following, strict=True):
        effect = ending if after is None else _effect(view, after, screenshots)
        yield f"{view.number:5}  {_action(view):{width}}  {effect}"


def _action(view: StepView) -> str:
    """Describe the action of a step in words; return an answer that contains no valid action unchanged."""
    return view.overlay.caption if view.overlay.is_action else view.step.answer


def _effect(before: StepView, after: StepView, screenshots: BlobStore) -> str:
    try:
        pngs = [screenshots.read(view.step.screenshot_sha256) for view in (before, after)]
        area = changed_area(*pngs)
    except (StoreError, OSError, SyntaxError, ValueError) as error:
        return f"(no comparison: {error})"
    if area is None:
        return "nothing changed on the screen"
    return f"the screen changed from {area.left}, {area.top} to {area.right}, {area.bottom}"


def example_lines(run: RunView, example: Example, whose: str) -> Iterator[str]:
    """Yield a heading and one line for each step of an example.

    whose   name of the compared rollouts for the heading, such as "The base policy, first rollouts"
    """
    episode = EpisodePage(run, example.rollout_id)
    played = episode.trajectory
    assert played is not None, "only finished episodes are listed"
    verb = "succeeded" if example.is_success else "failed"
    yield f"{whose}: {example.alike} of {example.among} {verb}, as this one, rollout {example.rollout_id}:"
    yield f"       task: {played.instruction}"
    ending = f"the episode ended ({played.outcome.value}), reward {played.reward:g}"
    yield from step_lines(episode.views, run.blobs.screenshots, ending)


Opener = subprocess.Popen[bytes]
"""The process that opens an address in the user's browser."""


def open_page(address: str, environment: Mapping[str, str]) -> Opener | None:
    """Open an address in the user's browser with xdg-open, and return the process.

    environment   environment variables, of which DISPLAY or WAYLAND_DISPLAY has to be set
    Returns None if there is no display, or xdg-open is missing or does not start.
    """
    program = shutil.which("xdg-open")
    if program is None or not (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")):
        return None
    quiet = subprocess.DEVNULL
    with suppress(OSError):
        return Opener([program, address], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    return None


class DemoListener(RunListener):
    """Prints the lines of the demo. If standard output fails, a line is lost and the run continues."""

    serves_page = True

    def __init__(
        self,
        paths: RunPaths,
        say: Callable[[str], None],
        open_in_browser: Callable[[str], Opener | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        say               prints one line
        open_in_browser   called once with the address of the page; returns None if it could open no browser
        clock             returns seconds that never run backwards
        """
        super().__init__()
        self._paths, self._say_line, self._clock = paths, say, clock
        self._open_in_browser = open_in_browser
        self._opener: Opener | None = None
        self._address = ""
        self._phase: RunPhase | None = None
        self._progress = ""
        self._printed_s = float("-inf")
        self._elapsed_s = 0.0
        self._examples: dict[str, Example] = {}

    def show(self, snapshot: RunSnapshot) -> None:
        self._elapsed_s = snapshot.elapsed_s
        self._show_address(snapshot)
        if snapshot.phase is not self._phase:
            self._phase = snapshot.phase
            if text := PHASES.get(snapshot.phase):
                self._say(f"{duration(snapshot.elapsed_s)}  {text}")
        if snapshot.updates or snapshot.phase is RunPhase.FINAL_EVALUATION:
            self._show_before()
        if snapshot.phase is RunPhase.FINAL_EVALUATION:
            self._show_after()
        if self._clock() - self._printed_s >= LINE_EVERY_S:
            self._printed_s = self._clock()
            self._show_progress(snapshot)

    def stopping(self, number: int, deadline_s: float) -> None:
        self._say("ending: episodes in progress end, nothing new begins; a second Ctrl-C ends at once")

    def ended(self) -> None:
        self._show_before()
        self._show_after()
        self._say(f"{duration(self._elapsed_s)}  checking the data, writing the report")

    def concluded(self, result: TrainResult) -> None:
        publish(result, Console(), self._paths)
        for line in [*verdict_lines(result), *self._next_lines(result)]:
            self._say(line)

    def _say(self, text: str) -> None:
        with suppress(OSError):  # a terminal that was closed, a reader that left
            self._say_line(one_line(text))

    def _say_once(self, clock: str, progress: str) -> None:
        """Print the time and the progress, unless the progress equals the one that was printed last."""
        if progress != self._progress:
            self._progress = progress
            self._say(f"{clock}{progress}")

    def _show_address(self, snapshot: RunSnapshot) -> None:
        address = next((one.text for one in snapshot.sidecars if one.name == WEB and one.is_well), "")
        if address and not self._address:
            self._address = address
            self._say("")
            self._say(f"      watch it in the browser: {address}")
            self._opener = self._open_in_browser(address)
            if self._opener is not None:
                self._say("      (opened in your browser)")
            self._say("")

    def _show_progress(self, snapshot: RunSnapshot) -> None:
        clock = duration(snapshot.elapsed_s)
        if snapshot.evaluation_total:
            self._say_once(f"{clock}  ", _evaluation_progress(snapshot))
        elif snapshot.phase is RunPhase.TRAINING and snapshot.trajectories:
            with RunView(self._paths) as run:
                above = run.config.curation.success_above
                won, played = run.store.success_within(0.0, math.inf, RECENT, above)
            rate = won / played if played else None
            self._say(
                f"{clock}  {bar(rate)} {percent(rate):>5}  of the newest {played:2} rollouts   "
                f"update {snapshot.updates} of {snapshot.updates_max}"
            )

    def _show_before(self) -> None:
        self._show_example("before", "The base policy, first rollouts")

    def _show_after(self) -> None:
        self._show_example("after", "The trained policy, newest rollouts")

    def _show_example(self, side: str, whose: str) -> None:
        """Print a typical rollout, at most once for each side.

        side    "before" for the first rollouts, "after" for the newest
        whose   the heading's name for these rollouts
        """
        if side in self._examples:
            return
        with RunView(self._paths) as run:
            rows = _rows(run, side)
            example = typical(rows, run.config.curation.success_above)
            if example is None:
                return
            self._examples[side] = example
            self._say("")
            for line in example_lines(run, example, whose):
                self._say(line)
            if self._address and self._phase is not RunPhase.DONE:
                self._say(f"       with screenshots: {self._address}trajectory?id={example.rollout_id}")
            self._say("")

    def _next_lines(self, result: TrainResult) -> Iterator[str]:
        yield ""
        yield "What next:"
        yield f"  dartrl web {self._paths.option}".ljust(57) + " this run in the browser"
        if len(self._examples) == 2:
            before, after = (self._examples[side].rollout_id for side in ("before", "after"))
            yield f"      then /compare?a={before}&b={after}".ljust(57) + " the two rollouts side by side"
        yield f"  dartrl trajectories list {self._paths.option}".ljust(57) + " every rollout"
        if result.snapshot.updates:
            checkpoint = self._paths.checkpoints / f"v{result.snapshot.policy_version:06d}"
            yield f"  dartrl eval {shlex.quote(str(checkpoint))}".ljust(57) + " measure it with more episodes"
        yield "  dartrl train laptop".ljust(57) + " eight tasks, twelve minutes"
        yield "  dartrl init my-agent".ljust(57) + " a configuration of your own"


def _evaluation_progress(snapshot: RunSnapshot) -> str:
    if snapshot.evaluation_done:
        return f"{snapshot.evaluation_done} of {snapshot.evaluation_total} episodes"
    return f"{snapshot.well} of {len(snapshot.actors)} processes are ready"


def _rows(run: RunView, side: str) -> list[TrajectorySummary]:
    """Return the rollouts that are compared for one side, at most `EXAMPLE_OF`.

    For "before": the first rollouts that only the base policy (version 0) played, oldest first. For "after":
    the newest rollouts of trained versions, newest first.
    """
    if side == "after":
        newest = run.store.trajectory_page(TrajectoryFilter(), EXAMPLE_OF)
        return [row for row in newest if row.oldest_version > 0]
    first = run.store.trajectory_page(TrajectoryFilter(before_id=EXAMPLE_OF + 1), EXAMPLE_OF)
    return [row for row in reversed(first) if row.oldest_version == 0]


def verdict_lines(result: TrainResult) -> Iterator[str]:
    """Yield the success on held-out seeds before and after training, and advice if no rise could be shown."""
    if not result.snapshot.updates:
        yield "no update was made in this time; give it more with --set run.minutes=10"
        return
    means = [(measured.answers, measured.mean) for measured in result.report.measured]
    for answers, mean in means:
        if mean.before is not None and mean.after is not None:
            change = f"{percent(mean.before.rate)} -> {percent(mean.after.rate)}"
            yield f"held-out seeds, {answers}: {change} ({mean.verdict})"
    if not any(mean.verdict is ChangeVerdict.IMPROVED for _, mean in means):
        yield (
            "no rise in success could be shown: with so few episodes, a change can be missed; try another "
            "seed with --seed 1, or train longer with --set training.updates=40"
        )
