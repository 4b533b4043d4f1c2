"""Pages about trajectories: the list, one episode step by step, two side by side, one as a file.

The functions block, so the event loop runs them in threads (`dart.web.blocking`).
"""

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

from dart.config.config import Config
from dart.core.errors import DiskError, UsageError
from dart.core.run_directory import RunPaths
from dart.core.types import Outcome, Step, Trajectory
from dart.inspect.task_reports import find_task
from dart.inspect.terminal_safe import one_line
from dart.store.blobs import BlobStore
from dart.store.browse_queries import PAGE, Fate, PlayedEvaluation, TrajectoryFilter, TrajectorySummary
from dart.store.errors import BlobDamage
from dart.web.render import render, static
from dart.web.run_view import RunView
from dart.web.step_views import StepView, first_difference, views

A = TypeVar("A")
B = TypeVar("B")
RowT = TypeVar("RowT", TrajectorySummary, PlayedEvaluation)

ID_DIGITS = 18
"""Largest number of digits of an id, so that it fits into 64 bits."""

EVALUATION_ID = "e"
"""First letter of the id of an evaluation episode in addresses and commands; a rollout's id is a number."""

RESULTS = {"": None, "success": True, "failure": False}

OLD = "was deleted as an old one (run.screenshots_kept_days), or is damaged"

OTHERS_MOST = 30
"""How many trajectories of the same task are offered for comparison."""


def wanted(values: Mapping[str, str], config: Config) -> TrajectoryFilter:
    """Read the filter of a list of trajectories from an address.

    The parameters are `task`, `outcome`, `result` (`success` or `failure`) and `before`, an id. A missing
    parameter does not filter. Raises UsageError for a value that is not possible.
    """
    outcome = values.get("outcome") or None
    if outcome is not None and outcome not in list(Outcome):
        raise UsageError(f"there is no outcome {outcome[:40]!r}; the outcomes are {', '.join(Outcome)}")
    result = values.get("result", "")
    if result not in RESULTS:
        raise UsageError(f"expected success or failure for the result, got {result[:40]!r}")
    task, before = values.get("task"), values.get("before")
    return TrajectoryFilter(
        task_id=find_task(task, tuple(config.tasks.train)) if task else None,
        outcome=outcome,
        is_success=RESULTS[result],
        success_above=config.curation.success_above,
        before_id=episode_key(before)[1] if before else None,
    )


def trajectories(run: RunView, values: Mapping[str, str]) -> str:
    """Render one page of the list of trajectories, newest first, with the form for its filters.

    With `of=evaluation`, and for a run that only evaluates, it lists evaluation episodes.
    """
    trains = run.config.training.learner != "none"
    of_evaluation = values.get("of") == "evaluation" or not trains
    selected = wanted(values, run.config)
    page = run.store.evaluation_page if of_evaluation else run.store.trajectory_page
    rows = page(selected, PAGE + 1)  # one more, which says whether there are older ones
    has_older, rows = len(rows) > PAGE, rows[:PAGE]
    kept = {name: values[name] for name in ("of", "task", "outcome", "result") if values.get(name)}
    older = urlencode({**kept, "before": str(_key(rows[-1]))}) if has_older else ""
    return render(
        "trajectories.html",
        rows=rows,
        of_evaluation=of_evaluation,
        trains=trains,
        success=run.config.curation.success_above,
        with_task=True,
        tasks=tuple(run.config.tasks.train),
        family=run.family,
        outcomes=tuple(Outcome),
        results=("success", "failure"),
        chosen={name: values.get(name, "") for name in ("task", "outcome", "result")},
        older=older,
        is_first="before" not in values,
    )


def _key(row: TrajectorySummary | PlayedEvaluation) -> int:
    return row.evaluation_id if isinstance(row, PlayedEvaluation) else row.rollout_id


def answers_of(one: PlayedEvaluation, config: Config) -> str:
    """Say how the answers of an evaluation episode were chosen and, in a run that trains, when."""
    answers = "greedy answers" if one.is_greedy else "sampled answers"
    return answers if config.training.learner == "none" else f"{one.phase.value} training, {answers}"


class EvaluationPage:
    """One evaluation episode with its steps. Raises UsageError if the run has none with this id."""

    def __init__(self, run: RunView, evaluation_id: int) -> None:
        found = run.store.evaluation_episode(evaluation_id)
        self.id = f"{EVALUATION_ID}{evaluation_id}"
        self.fate = None
        if found is None:
            raise UsageError(
                f"the run has no evaluation episode {self.id} with steps; `dartrl trajectories list "
                "--evaluation` shows those that it has"
            )
        self.evaluation: PlayedEvaluation = found
        self.answers = answers_of(found, run.config)
        self.task_id = found.task_id
        self.is_success = found.reward > run.config.curation.success_above
        self.steps: tuple[Step, ...] = run.store.steps(found.play.steps_sha256)
        self.views: tuple[StepView, ...] = views(self.steps, run.size_of, run.token_texts(), None)
        self.lost = _lost(run, found.play.started_unix_s)

    @property
    def title(self) -> str:
        return f"{self.task_id}, evaluation episode {self.id}"

    def lines(self) -> list[str]:
        """Return the episode as text: what was evaluated, its outcome, and a line for each step."""
        one, play = self.evaluation, self.evaluation.play
        first = f"{self.id}  {one.task_id}  seed {one.seed}  {self.answers}"
        ended = f"{play.outcome.value}, reward {one.reward:.2f}: {play.instruction}"
        return [one_line(line) for line in (first, ended, *map(_step_line, self.views))]


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
        self.evaluation = None
        self.id = str(rollout_id)
        self.fate: Fate = fate
        self.task_id = fate.task_id
        self.trajectory: Trajectory | None = run.store.trajectory(rollout_id)
        above = run.config.curation.success_above
        self.is_success = self.trajectory is not None and self.trajectory.reward > above
        self.steps: tuple[Step, ...] = (
            self.trajectory.steps if self.trajectory else run.store.parked_steps(rollout_id)
        )
        self.views: tuple[StepView, ...] = views(
            self.steps, run.size_of, run.token_texts(), fate.trained_version
        )
        self.lost = _lost(run, self.trajectory.started_unix_s if self.trajectory else math.inf)
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


def episode_page(run: RunView, id_: str) -> EpisodePage | EvaluationPage:
    """Return the page of a rollout, whose id is a number, or of an evaluation episode, such as `e12`.

    Raises UsageError if the run has none with this id.
    """
    of_evaluation, key = episode_key(id_)
    return EvaluationPage(run, key) if of_evaluation else EpisodePage(run, key)


def episode_key(id_: str) -> tuple[bool, int]:
    """Return whether an id is that of an evaluation episode, and its number. Raises UsageError for no id."""
    digits = id_.removeprefix(EVALUATION_ID)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= ID_DIGITS):
        raise UsageError(
            f"expected the id of an episode: the number of a rollout, or e12 for evaluation episode 12; "
            f"got {id_[:40]!r}"
        )
    return id_.startswith(EVALUATION_ID), int(digits)


def _lost(run: RunView, started_unix_s: float) -> str:
    """Say why a screenshot of an episode that began at this time cannot be shown."""
    return OLD if started_unix_s < run.store.screenshots_since_unix_s() else "is missing or damaged"


def _step_line(step: StepView) -> str:
    sure = "" if step.probability is None else f"  p {step.probability:.2f}"
    old = "" if step.staleness is None else f", {step.staleness} old when trained"
    played = f"{step.step.answer}  ({step.overlay.caption}){sure}"
    return f"{step.number:3}  {played}  version {step.step.policy_version}{old}"


def trajectory(run: RunView, values: Mapping[str, str]) -> str:
    """Render one episode step by step."""
    episode = episode_page(run, values.get("id", ""))
    return render("trajectory.html", episode=episode, others=_others(run, episode), screenshot=address)


def _others(run: RunView, episode: EpisodePage | EvaluationPage) -> list[tuple[str, str]]:
    """Return the id and a description of other episodes of the same task, the most comparable first.

    For a rollout these are those of its group, for an evaluation episode those of its seed: the same start
    before and after training, with sampled and with greedy answers.
    """
    same_task = TrajectoryFilter(task_id=episode.task_id)
    if isinstance(episode, EvaluationPage):
        same_seed = replace(same_task, seed=episode.evaluation.seed)
        pages = (run.store.evaluation_page(one, OTHERS_MOST) for one in (same_seed, same_task))
        found = [
            (
                f"{EVALUATION_ID}{row.evaluation_id}",
                f"{answers_of(row, run.config)}, {row.play.outcome}, reward {row.reward:.2f}, "
                f"seed {row.seed}",
            )
            for row in dict.fromkeys(chain.from_iterable(pages))
        ]
    else:
        group = episode.fate.rollout.group_id
        rollouts = sorted(
            run.store.trajectory_page(same_task, OTHERS_MOST), key=lambda row: row.group_id != group
        )
        found = [
            (str(row.rollout_id), f"{row.outcome}, reward {row.reward:.2f}, seed {row.seed}")
            for row in rollouts
        ]
    return [one for one in found if one[0] != episode.id][:OTHERS_MOST]


def compare(run: RunView, values: Mapping[str, str]) -> str:
    """Render two episodes of one task side by side. Raises UsageError if their tasks differ."""
    first, second = pair = [episode_page(run, values.get(name, "")) for name in ("a", "b")]
    if first.task_id != second.task_id:
        raise UsageError(
            f"only episodes of one task can be compared: {first.id} plays {first.task_id}, "
            f"{second.id} plays {second.task_id}"
        )
    differs = first_difference(first.steps, second.steps)
    return render("compare.html", pair=pair, differs=differs, screenshot=address)


def address(sha256: str) -> str:
    """Return the path of a screenshot on the web page."""
    return f"/blobs/{sha256}.png"


def trajectory_html(run: RunView, id_: str) -> str:
    """Return the page of an episode as HTML, which contains its screenshots, style and script.

    The content security policy of the page admits only this style and this script, by their hashes.

    raises   UsageError if the run has no such episode
    """
    style, script = (static(name).decode() for name in ("style.css", "app.js"))
    return render(
        "export.html",
        episode=episode_page(run, id_),
        run_name=run.paths.root.name,
        screenshot=partial(_as_data, run.blobs.screenshots),
        style=style,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
    )


def write_trajectory(paths: RunPaths, id_: str, file: Path) -> None:
    """Write the page of an episode into an HTML file.

    raises   UsageError if the run has no such episode, DiskError if the file cannot be written
    """
    with RunView(paths) as run:
        _write([trajectory_html(run, id_)], file, "--html")


def write_trajectories(
    paths: RunPaths, values: Mapping[str, str], as_line: Callable[[Fate, Trajectory], str], file: Path
) -> tuple[int, list[str]]:
    """Write the finished episodes that `wanted` selects into a file, a line for each, newest first.

    as_line   returns the line of an episode, without its end
    returns   the number of episodes, and the rollouts that are left out because their steps are damaged

    raises   UsageError for a filter that is not possible, DiskError if the file cannot be written
    """
    return _write_lines(paths, values, finished_episodes, as_line, file)


def write_evaluations(
    paths: RunPaths,
    values: Mapping[str, str],
    as_line: Callable[[PlayedEvaluation, tuple[Step, ...]], str],
    file: Path,
) -> tuple[int, list[str]]:
    """Do for evaluation episodes what `write_trajectories` does for rollouts."""
    return _write_lines(paths, values, _evaluation_episodes, as_line, file)


def _write_lines(
    paths: RunPaths,
    values: Mapping[str, str],
    episodes: Callable[[RunView, TrajectoryFilter, list[str]], Iterator[tuple[A, B]]],
    as_line: Callable[[A, B], str],
    file: Path,
) -> tuple[int, list[str]]:
    left_out: list[str] = []
    with RunView(paths) as run:
        found = episodes(run, wanted(values, run.config), left_out)
        count = _write((f"{as_line(*episode)}\n" for episode in found), file, "--jsonl")
    return count, left_out


def finished_episodes(
    run: RunView, selected: TrajectoryFilter, left_out: list[str]
) -> Iterator[tuple[Fate, Trajectory]]:
    """Yield the finished episodes that the filter selects, newest first. One at a time is in memory.

    left_out   gets the rollouts whose steps are damaged
    """
    for row in _all_rows(run.store.trajectory_page, selected):
        fate = run.store.fate(row.rollout_id)
        try:
            trajectory = run.store.trajectory(row.rollout_id)
        except BlobDamage:
            left_out.append(str(row.rollout_id))
            continue
        assert fate is not None, "a rollout is never deleted"
        assert trajectory is not None, "nor is its trajectory"
        yield fate, trajectory


def _evaluation_episodes(
    run: RunView, selected: TrajectoryFilter, left_out: list[str]
) -> Iterator[tuple[PlayedEvaluation, tuple[Step, ...]]]:
    for row in _all_rows(run.store.evaluation_page, selected):
        try:
            steps = run.store.steps(row.play.steps_sha256)
        except BlobDamage:
            left_out.append(f"{EVALUATION_ID}{row.evaluation_id}")
            continue
        yield row, steps


def _all_rows(
    page: Callable[[TrajectoryFilter, int], Sequence[RowT]], selected: TrajectoryFilter
) -> Iterator[RowT]:
    """Yield the rows that a filter selects, newest first, read page by page."""
    while rows := page(selected, PAGE):
        yield from rows
        selected = replace(selected, before_id=_key(rows[-1]))


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
