"""Names, addresses, picture headers and rewards, without a browser."""

import importlib.machinery
import importlib.util
import struct
from pathlib import Path

import pytest

from dart.core.png import png_size
from dart.environments import scoring
from dart.environments.faults import BrowserMissing, EvaluatorFailed, PagesMissing, UnknownTask
from dart.environments.miniwob import pages
from dart.environments.miniwob.environment import MiniWobEnvironment

HEADER = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


def test_all_installed_pages_are_tasks() -> None:
    tasks = pages.task_ids()
    assert len(tasks) == 130
    assert {"miniwob/click-test", "miniwob/login-user"} <= set(tasks)


def test_a_task_and_its_seed_have_an_address_on_disk() -> None:
    url = pages.page_url("miniwob/click-test", 7)
    assert url.startswith("file:///")
    assert url.endswith("/click-test.html?seed=7")


def test_an_unknown_task_names_the_nearest_one() -> None:
    with pytest.raises(UnknownTask, match="did you mean miniwob/click-test"):
        pages.page_url("miniwob/click-tset", 0)


def test_without_the_pages_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PagesMissing, match="pip install --no-deps miniwob"):
        pages.miniwob_html_dir()


def test_a_package_of_that_name_without_pages_is_missing_them_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = importlib.machinery.ModuleSpec("miniwob", None, is_package=True)
    other.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: other)
    with pytest.raises(PagesMissing):
        pages.miniwob_html_dir()


async def test_a_missing_browser_is_named_with_its_remedy(tmp_path: Path) -> None:
    environment = MiniWobEnvironment(tmp_path, executable=str(tmp_path / "chromium"))
    with pytest.raises(BrowserMissing, match="apt-get install chromium-headless-shell"):
        await environment.reset("miniwob/click-test", 0, deadline_s=1.0)
    await environment.close()


async def test_nothing_can_be_done_before_the_first_reset(tmp_path: Path) -> None:
    environment = MiniWobEnvironment(tmp_path)
    with pytest.raises(RuntimeError, match="observe without an episode: call reset first"):
        await environment.observe(deadline_s=1.0)
    assert not await environment.healthy(deadline_s=1.0)


def test_the_size_of_a_picture_is_read_from_its_header() -> None:
    assert png_size(HEADER + struct.pack(">II", 160, 210)) == (160, 210)


@pytest.mark.parametrize("data", [b"", b"GIF89a", HEADER, HEADER + b"\0" * 7])
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected a PNG"):
        png_size(data)


def test_a_picture_larger_than_any_screen_is_refused_by_its_header() -> None:
    assert png_size(HEADER + struct.pack(">II", 7680, 4320)) == (7680, 4320)
    with pytest.raises(ValueError, match="13000x13000 pixels; at most 33177600"):
        png_size(HEADER + struct.pack(">II", 13000, 13000))


@pytest.mark.parametrize(("raw", "reward"), [(1, 1.0), (0.4, 0.4), (-1, 0.0), (3.5, 1.0), (0, 0.0)])
def test_the_raw_reward_is_clamped_to_the_unit_interval(raw: float, reward: float) -> None:
    assert scoring.clamped_score("miniwob/x", raw) == reward


@pytest.mark.parametrize("raw", [None, "1", float("nan"), float("inf"), True])
def test_a_reward_that_is_no_number_is_the_evaluators_failure(raw: object) -> None:
    with pytest.raises(EvaluatorFailed, match="miniwob/x"):
        scoring.clamped_score("miniwob/x", raw)
