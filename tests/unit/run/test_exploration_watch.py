"""What ends the exploration of a site, and what it outlives."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dart.config.config import load_config
from dart.core.errors import DartError, DiskError, TemporaryError, UnavailableError
from dart.core.run_directory import RunPaths
from dart.inspect.health import ROOT_SILENT_S
from dart.run import app, exploration
from dart.run.exploration import ExplorationProgress, ProgressLines, progress_line
from dart.run.listener import RunListener
from dart.run.site import OTHERS_STOP_S
from dart.store.errors import StoreBusy


class Watched:
    """An exploration whose tree ends at the third look, with a record that is away at the first."""

    def __init__(
        self,
        verdict: str,
        *,
        failure: str = "",
        signals: int = 0,
        beat_age_s: float = 0.0,
        hangs_up: bool = False,
    ) -> None:
        self.shown: list[str] = []
        self.stops = 0
        self._hangs_up = hangs_up
        self._reads = 0
        self._looks = iter([False, False, True])
        self._system: Any = SimpleNamespace(
            wait=lambda _: next(self._looks),
            root_beat_age_s=lambda: beat_age_s,
            verdict=lambda: verdict,
            failure=lambda: failure,
        )
        self._signals: Any = SimpleNamespace(
            count=signals, last=15 if signals else 0, handle_hangup=self._handle_hangup
        )

    def watch(self, folder: Path) -> None:
        session: Any = SimpleNamespace(keep=lambda: None)
        app.watch(
            self._system,
            session,
            RunPaths(folder),
            self._signals,
            RunListener(),
            show=lambda: self.shown.append(self._read()),
            stop=self._stop,
            stop_deadline_s=lambda: 45.0,
            remedy=exploration.CONTINUE,
        )

    def _stop(self) -> bool:
        self.stops += 1
        return True

    def _handle_hangup(self) -> None:
        if self._hangs_up:
            self._signals.count = 1

    def _read(self) -> str:
        self._reads += 1
        if self._reads == 1:
            raise StoreBusy("the server does not answer")
        return "progress"


def test_an_exploration_outlives_a_record_that_is_away(tmp_path: Path) -> None:
    watched = Watched("done: all tasks are explored")
    watched.watch(tmp_path)
    assert watched.shown == ["progress"]


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        ("gave up: UnsupportedCheckpoint: /models/x has no image processor", UnavailableError),
        ("gave up: StoreUnavailable: the disk is full", DiskError),
        ("gave up: child 'explorer-000' failed once more", TemporaryError),
        ("", TemporaryError),
    ],
)
@pytest.mark.parametrize("signals", [0, 1])
def test_an_exploration_whose_checkpoint_cannot_be_loaded_is_no_temporary_error(
    tmp_path: Path, verdict: str, kind: type[DartError], signals: int
) -> None:
    with pytest.raises(kind, match=verdict or "the root supervisor was killed") as error:
        Watched(verdict, failure="failed", signals=signals).watch(tmp_path)

    is_resumed = "what was explored is kept, continue with --resume" in str(error.value)
    assert is_resumed == (kind is not UnavailableError)


def test_an_exploration_that_is_drained_is_no_failure(tmp_path: Path) -> None:
    Watched("", signals=1).watch(tmp_path)


def test_an_exploration_whose_terminal_closes_is_drained(tmp_path: Path) -> None:
    watched = Watched("", hangs_up=True)
    watched.watch(tmp_path)
    assert watched.stops == 1


def test_an_exploration_whose_root_hangs_ends(tmp_path: Path) -> None:
    with pytest.raises(TemporaryError, match=r"gave no sign of life for .* continue with --resume"):
        Watched("", beat_age_s=ROOT_SILENT_S + 1.0).watch(tmp_path)


def test_an_exploration_has_as_long_to_end_as_its_explorers_may_take_and_25_s_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines_s: list[float] = []

    def watch(*_: Any, stop_deadline_s: Any, **__: Any) -> None:
        deadlines_s.append(stop_deadline_s())
        raise TemporaryError("it ended")

    monkeypatch.setattr(exploration, "ActorSystem", lambda *_, **__: nullcontext())
    monkeypatch.setattr(exploration, "watch", watch)
    slow = ["supervision.explorer_pool.shutdown_s=120.0", f'run.dir="{tmp_path / "run"}"']

    with pytest.raises(TemporaryError, match="it ended"):
        exploration.explore(load_config(None, slow))

    assert deadlines_s == [120.0 + OTHERS_STOP_S]


def progress(task_id: str, *, actions: int = 0, screens: int = 5) -> ExplorationProgress:
    return ExplorationProgress(
        task_id=task_id, actions=actions, most_actions=10, screens=screens, shapes=4, open_screens=3, edges=7
    )


def test_the_line_about_an_exploration_is_about_the_first_task_with_actions_left() -> None:
    first, second = progress("shop", actions=10), progress("mail", actions=9)
    expected = "mail: action 9 of 10, 5 screens, 4 shapes, 3 to expand"
    assert progress_line((first, second)) == progress_line((second, first)) == expected
    assert progress_line((progress("mail", actions=10), first)).startswith("shop: action 10 of 10, ")


def test_a_line_about_an_exploration_is_printed_when_it_has_changed() -> None:
    lines: list[str] = []
    say = ProgressLines(lines.append)
    for actions in (1, 1, 2, 2):
        say((progress("mail", actions=actions),))
    assert [line.partition(",")[0] for line in lines] == ["mail: action 1 of 10", "mail: action 2 of 10"]


def test_an_exploration_without_a_screen_has_failed_unless_a_signal_ended_it(tmp_path: Path) -> None:
    found = (progress("mail"), progress("shop", screens=0))
    with pytest.raises(DartError, match=r"the exploration graph of shop is empty: .* --resume --run-dir"):
        exploration._refuse_empty(found, RunPaths(tmp_path), 0)
    exploration._refuse_empty(found, RunPaths(tmp_path), 1)
