"""Pages about trajectories: the list, one episode step by step, two side by side, one as a file.

The functions block, so the event loop runs them in threads (`dart.web.blocking`).
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from dart.config.config import Config
from dart.core.errors import DiskError, UsageError
from dart.core.run_directory import RunPaths
from dart.core.types import Outcome, Step, Trajectory
from dart.inspect.task_reports import find_task
from dart.inspect.terminal_safe import one_line
from dart.store.blobs import BlobStore
from dart.store.browse_queries import PAGE, Fate, TrajectoryFilter
from dart.store.errors import BlobDamage
from dart.web.render import render, static
from dart.web.run_view import RunView
from dart.web.step_views import StepView, first_difference, views

ID_DIGITS = 18
"""Largest number of digits of an id in an address, so that the id fits into 64 bits."""

RESULTS = {"": None, "success": True, "failure": False}

OLD = "was deleted as an old one (run.screenshots_kept_days), or is damaged"

OTHERS_MOST = 30
"""How many trajectories of the same task are offered for comparison."""


def number(values: Mapping[str, str], name: str) -> int:
    """Read the parameter `name` of an address as a whole number. Raises UsageError if it is not one."""
    text = values.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= ID_DIGITS):
        raise UsageError(
            f"expected a whole number of at most {ID_DIGITS} digits for {name!r} in the address, "
            f"got {text[:40]!r}"
        )
    return int(text)


def wanted(values: Mapping[str, str], config: Config) -> TrajectoryFilter:
    """Read the filter of a list of trajectories from an address.

    The parameters are `task`, `outcome`, `result` (`success` or `failure`) and `before`, a rollout id. A
    missing parameter does not filter. Raises UsageError for a value that is not possible.
    """
    outcome = values.get("outcome") or None
    if outcome is not None and outcome not in list(Outcome):
        raise UsageError(f"there is no outcome {outcome[:40]!r}; the outcomes are {', '.join(Outcome)}")
    result = values.get("result", "")
    if result not in RESULTS:
        raise UsageError(f"expected success or failure for the result, got {result[:40]!r}")
    task = values.get("task")
    return TrajectoryFilter(
        task_id=find_task(task, tuple(config.tasks.train)) if task else None,
        outcome=outcome,
        is_success=RESULTS[result],
        success_above=config.curation.success_above,
        before_id=number(values, "before") if values.get("before") else None,
    )


def trajectories(run: RunView, values: Mapping[str, str]) -> str:
    """Render one page of the list of trajectories, newest first, with the form for its filters."""
    rows = run.store.trajectory_page(wanted(values, run.config))
    kept = {name: values[name] for name in ("task", "outcome", "result") if values.get(name)}
    older = urlencode({**kept, "before": str(rows[-1].rollout_id)}) if len(rows) == PAGE else ""
    return render(
        "trajectories.html",
        rows=rows,
        success=run.config.curation.success_above,
        with_task=True,
        tasks=tuple(run.config.tasks.train),
        outcomes=tuple(Outcome),
        results=("success", "failure"),
        chosen={name: values.get(name, "") for name in ("task", "outcome", "result")},
        older=older,
        is_first="before" not in values,
    )


class EpisodePage:
    """One rollout with the steps of its trajectory or, if it has none, those of its parked episode.

    Raises UsageError if the run has no such rollout.
    """

    def __init__(self, run: RunView, rollout_id: int) -> None:
        fate = run.store.fate(rollout_id)
        if fate is None:
            raise UsageError(
                f"the run has no rollout {rollout_id}; `dartrl trajectories list` shows those played"
            )
        self.fate: Fate = fate
        self.trajectory: Trajectory | None = run.store.trajectory(rollout_id)
        above = run.config.curation.success_above
        self.is_success = self.trajectory is not None and self.trajectory.reward > above
        self.steps: tuple[Step, ...] = (
            self.trajectory.steps if self.trajectory else run.store.parked_steps(rollout_id)
        )
        self.views: tuple[StepView, ...] = views(
            self.steps, run.size_of, run.token_texts(), fate.trained_version
        )
        is_old = self.trajectory and self.trajectory.started_unix_s < run.store.screenshots_since_unix_s()
        self.lost = OLD if is_old else "is missing or damaged"
        """What a page says of a screenshot that cannot be shown."""

    @property
    def title(self) -> str:
        return f"{self.fate.task_id}, rollout {self.fate.rollout.rollout_id}"

    def lines(self) -> list[str]:
        """Return the episode as text: its rollout and outcome, failed attempts, and a line for each step."""
        fate, played = self.fate, self.trajectory
        state = fate.rollout.state.value + (f", {fate.drop_reason}" if fate.drop_reason else "")
        rollout = (
            f"{fate.rollout.rollout_id}  {fate.task_id}  seed {fate.seed}  group {fate.rollout.group_id}"
        )
        lines = [f"{rollout}  {state}"]
        if played:
            lines.append(f"{played.outcome.value}, reward {played.reward:.2f}: {played.instruction}")
        lines += [f"attempt {one.attempt}  {one.fault_kind}: {one.detail}" for one in fate.attempts]
        return [one_line(line) for line in (*lines, *map(_step_line, self.views))]


def _step_line(step: StepView) -> str:
    sure = "" if step.probability is None else f"  p {step.probability:.2f}"
    old = "" if step.staleness is None else f", {step.staleness} old when trained"
    played = f"{step.step.answer}  ({step.overlay.caption}){sure}"
    return f"{step.number:3}  {played}  version {step.step.policy_version}{old}"


def trajectory(run: RunView, values: Mapping[str, str]) -> str:
    """Render one episode step by step."""
    rollout_id = number(values, "id")
    episode = EpisodePage(run, rollout_id)
    page = run.store.trajectory_page(TrajectoryFilter(task_id=episode.fate.task_id), OTHERS_MOST)
    others = [row for row in page if row.rollout_id != rollout_id]
    others.sort(key=lambda row: row.group_id != episode.fate.rollout.group_id)  # its own group first
    return render("trajectory.html", episode=episode, others=others, screenshot=address)


def compare(run: RunView, values: Mapping[str, str]) -> str:
    """Render two episodes of one task side by side. Raises UsageError if their tasks differ."""
    first, second = pair = [EpisodePage(run, number(values, name)) for name in ("a", "b")]
    if first.fate.task_id != second.fate.task_id:
        raise UsageError(
            f"only rollouts of one task can be compared: rollout {values['a']} plays {first.fate.task_id}, "
            f"rollout {values['b']} plays {second.fate.task_id}"
        )
    differs = first_difference(first.steps, second.steps)
    return render("compare.html", pair=pair, differs=differs, screenshot=address)


def address(sha256: str) -> str:
    """Return the path of a screenshot on the web page."""
    return f"/blobs/{sha256}.png"


def trajectory_html(run: RunView, rollout_id: int) -> str:
    """Return the page of a rollout as HTML, which contains its screenshots, style and script.

    The content security policy of the page admits only this style and this script, by their hashes.

    raises   UsageError if the run has no such rollout
    """
    style, script = (static(name).decode() for name in ("style.css", "app.js"))
    return render(
        "export.html",
        episode=EpisodePage(run, rollout_id),
        run_name=run.paths.root.name,
        screenshot=partial(_as_data, run.blobs.screenshots),
        style=style,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
    )


def write_trajectory(paths: RunPaths, rollout_id: int, file: Path) -> None:
    """Write the page of a rollout into an HTML file.

    raises   UsageError if the run has no such rollout, DiskError if the file cannot be written
    """
    with RunView(paths) as run:
        _write([trajectory_html(run, rollout_id)], file, "--html")


def write_trajectories(
    paths: RunPaths, values: Mapping[str, str], as_line: Callable[[Fate, Trajectory], str], file: Path
) -> tuple[int, list[int]]:
    """Write the finished episodes that `wanted` selects into a file, a line for each, newest first.

    as_line   returns the line of an episode, without its end
    returns   the number of episodes, and the rollouts that are left out because their steps are damaged

    raises   UsageError for a filter that is not possible, DiskError if the file cannot be written
    """
    left_out: list[int] = []
    with RunView(paths) as run:
        episodes = finished_episodes(run, wanted(values, run.config), left_out)
        count = _write((f"{as_line(*episode)}\n" for episode in episodes), file, "--jsonl")
    return count, left_out


def finished_episodes(
    run: RunView, selected: TrajectoryFilter, left_out: list[int]
) -> Iterator[tuple[Fate, Trajectory]]:
    """Yield the finished episodes that the filter selects, newest first. One at a time is in memory.

    left_out   gets the rollouts whose steps are damaged
    """
    while rows := run.store.trajectory_page(selected, PAGE):
        for row in rows:
            fate = run.store.fate(row.rollout_id)
            try:
                trajectory = run.store.trajectory(row.rollout_id)
            except BlobDamage:
                left_out.append(row.rollout_id)
                continue
            assert fate is not None, "a rollout is never deleted"
            assert trajectory is not None, "nor is its trajectory"
            yield fate, trajectory
        selected = replace(selected, before_id=rows[-1].rollout_id)


def _write(parts: Iterable[str], file: Path, option: str) -> int:
    """Write texts into a file and return their number. Raises DiskError, with the option that names the
    file."""
    count = 0
    try:
        with file.open("w", encoding="utf-8") as text:
            for part in parts:
                text.write(part)
                count += 1
    except OSError as error:
        raise DiskError(
            f"{file} cannot be written: {error.strerror}; name another file with {option}"
        ) from error
    return count


def _as_data(blobs: BlobStore, sha256: str) -> str:
    """Return a screenshot as a `data:` URL; the empty `data:,` if the screenshot is missing or damaged."""
    try:
        content = blobs.read(sha256)
    except BlobDamage:
        return "data:,"
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
