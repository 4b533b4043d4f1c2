"""The page of the exploration graph over a recorded exploration."""

import fcntl
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dart.core import messages as m
from dart.core.exploration import Effect, ExploreAct, HeldLease, LeaseMove
from dart.core.run_directory import RunPaths
from dart.exploration.coverage import CoveragePoint
from dart.store.store import Store
from dart.web.app import web_app
from dart.web.auth import access_for
from dart.web.exploration_pages import coverage_chart, explorers_at
from tests.recorded_run import record_run
from tests.unit.exploration.screens import SEED, TASK, screen


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    """A run in which two screens were found, the second of which an explorer holds."""
    found = record_run(tmp_path_factory.mktemp("explored") / "run")
    with Store(found.store) as store:
        lease = store.write(
            m.LeaseScreen(
                task_id=TASK,
                seed=SEED,
                screen_id=None,
                explorer="explorer-007",
                incarnation=1,
                deadline_unix_s=2e9,
            )
        )
        for number, (source, name, action) in enumerate(((None, "home", ""), (1, "<b>cart", "click|link"))):
            store.write(
                m.RecordExplored(
                    fence=lease.fence,
                    number=number + 1,
                    cost=1,
                    source_id=source,
                    act=ExploreAct.RESET if source is None else ExploreAct.CLICK,
                    action=action,
                    effect=Effect.NEW_SHAPE,
                    target_id=None,
                    screen=screen(name, ("one", "two")),
                    is_expansion=source is not None,
                    move=LeaseMove.FOLLOW,
                    deadline_unix_s=2e9,
                )
            )
    return found


@pytest.fixture
def ended(paths: RunPaths) -> Iterator[TestClient]:
    """The page of the run, which nothing runs."""
    with TestClient(
        web_app(paths, access_for("127.0.0.1", None)), base_url="http://localhost:8700"
    ) as opened:
        yield opened


@pytest.fixture
def client(paths: RunPaths, ended: TestClient) -> Iterator[TestClient]:
    """The same page while the run seems to run: its lock is held."""
    with paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield ended


def test_the_page_shows_screens_ways_frontier_and_holders(client: TestClient) -> None:
    answer = client.get("/exploration")
    assert answer.status_code == 200
    assert f"{TASK} {SEED}" in answer.text
    assert answer.text.count("<image ") == 2
    assert len(re.findall('class="way"', answer.text)) == 1
    assert "2 · 2 untried" in answer.text
    assert "explorer-007" in answer.text
    assert 'class="screen open held"' in answer.text


def test_of_a_run_that_has_ended_nobody_explores_now(ended: TestClient) -> None:
    shown = ended.get("/exploration").text

    assert "<dt>Exploring now</dt><dd>0</dd>" in shown
    assert "explorer-007" not in shown
    assert 'class="screen open"' in shown


def test_a_lease_whose_deadline_has_passed_is_of_no_explorer_that_explores_now() -> None:
    one = HeldLease(
        fence=1,
        task_id=TASK,
        seed=SEED,
        screen_id=1,
        explorer="env-000",
        incarnation=1,
        deadline_unix_s=100.0,
    )
    late = replace(one, screen_id=2, explorer="env-001", deadline_unix_s=99.9)

    assert explorers_at((one, late), 100.0) == {1: "env-000"}


def test_titles_of_pages_are_shown_as_text(client: TestClient) -> None:
    answer = client.get("/exploration")
    assert "<b>cart" not in answer.text
    assert "&lt;b&gt;cart" in answer.text


@pytest.mark.parametrize("graph", ["miniwob/none 3", f"{TASK} ²", f"{TASK} {'1' * 4301}"])
def test_a_task_that_was_not_explored_is_refused_with_those_that_were(client: TestClient, graph: str) -> None:
    answer = client.get("/exploration", params={"id": graph})
    assert answer.status_code == 404
    assert f"it has explored {TASK} {SEED}" in answer.text


def test_the_curve_rises_in_steps_to_the_top() -> None:
    curve = [CoveragePoint(0, 0, 0), CoveragePoint(5, 2, 1), CoveragePoint(10, 2, 1)]
    chart = coverage_chart(curve)
    screens, shapes = chart.series
    assert chart.path(screens.points) == "M0 860L500 860L500 60L1000 60L1000 60"
    assert (chart.last(screens), chart.last(shapes)) == ("2", "1")


def test_the_folder_of_a_run_without_a_record_says_so(tmp_path: Path) -> None:
    with TestClient(
        web_app(RunPaths(tmp_path), access_for("127.0.0.1", None)), base_url="http://localhost"
    ) as one:
        assert "Nothing was explored" not in one.get("/exploration").text


def test_each_screen_of_the_graph_is_a_link_with_a_name(client: TestClient) -> None:
    drawn = client.get("/exploration").text.partition('<div class="graph">')[2]
    assert 'role="img"' not in drawn, "the content of a picture is hidden from a screen reader"
    assert re.findall(r'aria-label="(screenshot[^"]*)"', drawn) == [
        "screenshot of screen 1",
        "screenshot of screen 2",
    ]
