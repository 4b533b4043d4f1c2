"""The alarm monitor of the curator: it measures updates and episodes of the record for the alarms.

Everything follows from the record: the next curator reads it again and goes on with the same counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dart.config.alarm_names import LearningAlarm
from dart.config.config import Config
from dart.core.records import FinishedEpisode
from dart.core.types import Step
from dart.curation.learning_alarms import MEMORY, AlarmBoard, AlarmChange, Figures, update_figures
from dart.curation.play_figures import REFERENCE_WINDOWS, AnswerFigures, PlayHistory, answer_figures
from dart.store.errors import BlobDamage
from dart.store.reader import StoreReader
from dart.store.serialization import unpack_without_prompts
from dart.telemetry.events import ALARM

RAISED, CLEARED = "raised", "cleared"


class AlarmMonitor:
    """Measures what is new in the record. Only one thread may call it at a time."""

    def __init__(self, config: Config, open_reader: Callable[[], StoreReader]) -> None:
        """open_reader   opens the record, with the steps of its episodes"""
        self._settings = config.alarms
        self._max_grad_norm = config.training.max_grad_norm
        self._open_reader = open_reader
        self._history = PlayHistory(config.curation.success_above)
        self._board: AlarmBoard | None = None
        self._version = 0
        """The newest version that was measured."""
        self._last: FinishedEpisode | None = None
        """The last episode of the last window."""
        self._windows = 0

    @property
    def windows(self) -> int:
        """Number of windows so far."""
        return self._windows

    def has_news(self, reader: StoreReader) -> bool:
        """Whether a look would measure something: a window or an update that is not measured yet."""
        if self._board is None and reader.newest_event(ALARM) is not None:
            return True  # alarms of before, which may be switched off by now
        newest = reader.latest_version()
        has_update = newest is not None and newest.version > self._version
        has_window = reader.episodes_finished() // self._settings.episodes > self._windows
        return (has_update or has_window) and self._settings.enabled

    def look(self) -> list[AlarmChange]:
        """The alarms that were raised or cleared since the last look. Raises StoreUnavailable."""
        with self._open_reader() as reader:
            changes = [] if self._board else self._catch_up(reader)
            assert self._board is not None
            if self._settings.enabled:
                for figures in self.measured(reader):
                    changes += self._board.next(figures)
        return changes

    def measured(self, reader: StoreReader) -> Iterator[Figures]:
        """Measure what is new: of a new monitor everything, from the start of the run."""
        yield from self._of_updates(reader)
        yield from self._of_windows(reader)

    def _catch_up(self, reader: StoreReader) -> list[AlarmChange]:
        """Go through what needs no measurement: earlier alarms followed from it.

        Returns the alarms that were raised and are not watched any more.
        """
        newest = reader.latest_version()
        self._version = max(0, (newest.version if newest else 0) - MEMORY)
        episodes = reader.finished_episodes()
        size = self._settings.episodes
        for number in range(max(0, len(episodes) // size - MEMORY)):
            window = episodes[number * size : (number + 1) * size]
            self._add(reader, window, is_measured=number < REFERENCE_WINDOWS)
        self._board = AlarmBoard(self._settings, raised_alarms(reader).keys())
        return self._board.clear_unwatched()

    def _of_updates(self, reader: StoreReader) -> Iterator[Figures]:
        for version in reader.versions(first=self._version + 1):
            self._version = version.version
            yield update_figures(version.metrics, self._max_grad_norm)

    def _of_windows(self, reader: StoreReader) -> Iterator[Figures]:
        size = self._settings.episodes
        while len(window := reader.finished_episodes(self._last, limit=size)) == size:
            answers = self._add(reader, window, is_measured=True)
            assert answers is not None
            yield self._history.figures(window, answers)

    def _add(
        self, reader: StoreReader, window: Sequence[FinishedEpisode], *, is_measured: bool
    ) -> AnswerFigures | None:
        answers = answer_figures(list(_steps_of(reader, window))) if is_measured else None
        self._history.add_window(window, answers)
        self._last = window[-1]
        self._windows += 1
        return answers


def _steps_of(reader: StoreReader, window: Sequence[FinishedEpisode]) -> Iterator[Sequence[Step]]:
    """Yield the steps of each episode, without those that are damaged."""
    for episode in window:
        try:
            yield reader.steps(episode.steps_sha256, unpack_without_prompts)
        except BlobDamage:
            continue  # the trainer refuses the group, and `dartrl doctor --data` names it


def event_of(change: AlarmChange) -> Mapping[str, str | float]:
    """The fields of the event that reports a change."""
    return {
        "stage": RAISED if change.is_raised else CLEARED,
        "text": change.measured.text,
        "value": change.measured.value,
        "threshold": change.threshold,
        "remedy": change.rule.remedy,
    }


def raised_alarms(reader: StoreReader) -> dict[LearningAlarm, Mapping[str, object]]:
    """The alarms that are raised by the record, with the fields of their events and `unix_s`."""
    if reader.newest_event(ALARM) is None:
        return {}
    found: dict[LearningAlarm, Mapping[str, object]] = {}
    for alarm in LearningAlarm:
        newest = reader.find_events(kinds=[ALARM], subject=alarm.value, limit=1)
        if newest and newest[0].data["stage"] == RAISED:
            found[alarm] = {**newest[0].data, "unix_s": newest[0].unix_s}
    return found
