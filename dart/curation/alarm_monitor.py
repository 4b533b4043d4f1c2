"""The alarm monitor of the curator: it measures the updates and episodes in the record for the alarms.

All its state follows from the record: after a restart the new curator reads the record again and continues
with the same counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dart.config.alarm_names import LearningAlarm
from dart.config.config import Config, trained_tasks
from dart.config.sections import AlarmsSettings
from dart.core.records import FinishedEpisode
from dart.core.types import Step
from dart.curation.learning_alarms import (
    MEMORY,
    AlarmBoard,
    AlarmChange,
    Figures,
    lasting_changes,
    update_figures,
)
from dart.curation.play_figures import REFERENCE_WINDOWS, AnswerFigures, PlayHistory, answer_figures
from dart.store.errors import BlobDamage
from dart.store.reader import StoreReader
from dart.store.serialization import unpack_without_prompts
from dart.telemetry.events import ALARM

RAISED, CLEARED = "raised", "cleared"


class AlarmMonitor:
    """Measures updates and windows that are new in the record. Only one thread may use it at a time."""

    def __init__(self, config: Config, open_reader: Callable[[], StoreReader]) -> None:
        """open_reader   opens a reader of the record that can also read the steps of episodes"""
        self._settings = _settings_of(config)
        self._max_grad_norm = config.training.max_grad_norm
        self._open_reader = open_reader
        self._success_above = config.curation.success_above
        self._trained = trained_tasks(config)
        self._history = PlayHistory(self._success_above, self._trained)
        self._changes: list[AlarmChange] = []
        """Changes that were found, and that `look` has not returned yet."""
        self._board: AlarmBoard | None = None
        self._recorded: frozenset[LearningAlarm] | None = None
        """The alarms that the record said were raised, from the start of the first `look` to its end."""
        self._version = 0
        """The newest version that was measured."""
        self._last: FinishedEpisode | None = None
        """The last episode of the last window."""
        self._windows = 0
        """Number of windows that were measured or read so far."""

    def has_news(self, reader: StoreReader) -> bool:
        """Whether `look` would find something new: a window or an update that is not measured yet or, at the
        first call, an alarm of an earlier curator."""
        if self._board is None and reader.newest_event(ALARM) is not None:
            return True  # alarms of before, which may be switched off by now
        newest = reader.latest_version()
        has_update = newest is not None and newest.version > self._version
        has_window = reader.episodes_finished() // self._settings.episodes > self._windows
        return (has_update or has_window) and self._settings.enabled

    def look(self) -> list[AlarmChange]:
        """Measure what is new in the record, and return the alarms that are raised or cleared by it.

        The first call measures the last updates and windows of an earlier curator again. It returns only the
        alarms that are not as the record says.

        Raises StoreUnavailable if the record cannot be read; the next call then continues where this one
        ended.
        """
        with self._open_reader() as reader:
            if self._board is None:
                self._board = self._caught_up(reader)
                self._recorded = self._board.raised
                self._changes += self._board.clear_unwatched()
            if self._settings.enabled:
                for figures in self.measured(reader):
                    self._changes += self._board.next(figures)
        changes, self._changes = self._changes, []
        recorded, self._recorded = self._recorded, None
        return changes if recorded is None else lasting_changes(changes, recorded)

    def measured(self, reader: StoreReader) -> Iterator[Figures]:
        """Yield the measurements of each update and each window that this monitor has not measured yet. A new
        monitor measures all of them, from the start of the run."""
        yield from self._of_updates(reader)
        yield from self._of_windows(reader)

    def _caught_up(self, reader: StoreReader) -> AlarmBoard:
        """Skip the old updates and windows, of which no measurement is needed; return the board of alarms.

        The skipped windows are only added to the history. The board begins with the alarms that are raised
        by the record; the last `MEMORY` updates and windows are left to be measured.
        """
        self._history = PlayHistory(self._success_above, self._trained)
        self._windows, self._last = 0, None
        windows = reader.episodes_finished() // self._settings.episodes - MEMORY
        while self._windows < windows and (window := self._next_window(reader)):
            self._add(reader, window, is_measured=self._windows < REFERENCE_WINDOWS)
        newest = reader.latest_version()
        self._version = max(0, (newest.version if newest else 0) - MEMORY)
        return AlarmBoard(self._settings, raised_alarms(reader).keys())

    def _of_updates(self, reader: StoreReader) -> Iterator[Figures]:
        for version in reader.versions(first=self._version + 1):
            self._version = version.version
            yield update_figures(version.metrics, self._max_grad_norm)

    def _of_windows(self, reader: StoreReader) -> Iterator[Figures]:
        while window := self._next_window(reader):
            answers = self._add(reader, window, is_measured=True)
            assert answers is not None
            yield self._history.figures(answers)

    def _next_window(self, reader: StoreReader) -> Sequence[FinishedEpisode]:
        """Return the episodes of the window after the last one; empty while there are too few for a
        window."""
        size = self._settings.episodes
        window = reader.finished_episodes(self._last, limit=size)
        return window if len(window) == size else ()

    def _add(
        self, reader: StoreReader, window: Sequence[FinishedEpisode], *, is_measured: bool
    ) -> AnswerFigures | None:
        answers = answer_figures(list(_steps_of(reader, window))) if is_measured else None
        self._history.add_window(window, answers)
        self._last = window[-1]
        self._windows += 1
        return answers


def _settings_of(config: Config) -> AlarmsSettings:
    """Return the settings of the alarms, with those off that the trainer has no figure for."""
    alarms = config.alarms
    if config.training.kl_beta > 0:
        return alarms
    return alarms.model_copy(update={"off": (*alarms.off, LearningAlarm.KL_RUNAWAY.value)})


def _steps_of(reader: StoreReader, window: Sequence[FinishedEpisode]) -> Iterator[Sequence[Step]]:
    """Yield the steps of each episode, except episodes whose stored steps are damaged."""
    for episode in window:
        try:
            yield reader.steps(episode.steps_sha256, unpack_without_prompts)
        except BlobDamage:
            continue  # the trainer refuses the group, and `dartrl doctor --data` names it


def event_of(change: AlarmChange) -> Mapping[str, str | float]:
    """Return the fields of the event that reports that an alarm was raised or cleared."""
    return {
        "stage": RAISED if change.is_raised else CLEARED,
        "text": change.measured.text,
        "value": change.measured.value,
        "threshold": change.threshold,
        "remedy": change.rule.remedy,
    }


def raised_alarms(reader: StoreReader) -> dict[LearningAlarm, Mapping[str, object]]:
    """Return the alarms whose newest event in the record says that they are raised.

    Each comes with the fields of that event, and the time of the event as `unix_s`.
    """
    if reader.newest_event(ALARM) is None:
        return {}
    found: dict[LearningAlarm, Mapping[str, object]] = {}
    for alarm in LearningAlarm:
        newest = reader.find_events(kinds=[ALARM], subject=alarm.value, limit=1)
        if newest and newest[0].data["stage"] == RAISED:
            found[alarm] = {**newest[0].data, "unix_s": newest[0].unix_s}
    return found
