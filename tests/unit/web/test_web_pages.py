"""Every page over a recorded run, without sockets."""

import asyncio
import fcntl
import json
import re
import shutil
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dart.core.errors import UsageError
from dart.core.run_directory import RunPaths
from dart.core.types import Outcome
from dart.curation.groups import DropReason
from dart.inspect.sidecar_status import Sidecar
from dart.inspect.snapshot import EngineRow
from dart.store.errors import StoreBusy
from dart.store.store import Store
from dart.web import trajectory_pages
from dart.web.app import STREAM_S, changes, gzipped, part_or_error, web_app
from dart.web.auth import access_for
from dart.web.charts import Chart
from dart.web.pages import PAGES, PagePart, Values, WebPage, head
from dart.web.render import MEANINGS, ago, render
from dart.web.run_view import LOG_LINES, RunView
from dart.web.trajectory_pages import trajectory_html, write_trajectory
from supervision import reports
from supervision.reports import Offender, SupervisorReport
from tests.recorded_run import ACTORS, HOSTILE, TASKS, a_screenshot, record_run
from tests.unit.web.conftest import TOKEN

ADDRESSES = {
    "/": [
        "Success while training",
        "95 % interval of as many independent episodes",
        "Utilisation",
        "Staleness",
        "issued 8 = trained 4",
        "the browser died",
        "child_terminated",
    ],
    "/?window=15m": ["Throughput"],
    "/tree": [*ACTORS, "backoff", "signal 9"],
    "/actor?name=env-001": ["environment_pool", "signal 9", "actor_ready", "incarnation 2"],
    "/actor?name=rollout-0": ["engine_state", "suspect", "busy_s"],
    "/tasks": ["click-test-2", "enter-text", "1 no_spread", "dropped groups"],
    f"/task?id={TASKS[0]}": ["N 8 -&gt; 4", "oracle", "step_cap"],
    "/trajectories": ["/trajectory?id=7", "no_spread", "finished", "nothing to learn from"],
    "/trajectories?task=enter-text&result=success&outcome=finished": ["/trajectory?id=4"],
    "/trajectory?id=2": ["type “", "click at 80, 60", "made version 1", "says that it is done", "/blobs/"],
    "/trajectory?id=3": ["Failed attempts", "the browser died"],
    "/trajectory?id=8": ["was not finished"],
    "/trajectories?of=evaluation": ["/trajectory?id=e2", "parse_error", "sampled"],
    "/trajectory?id=e2": ["before training, sampled answers of version 0", "never trained on", "e1: before"],
    "/compare?a=e1&b=e2": ["They differ from step 1 on"],
    "/compare?a=1&b=2": ["They differ from step 1 on"],
    "/exploration": ["Nothing was explored in this run"],
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_shows_what_was_recorded_and_nothing_its_policy_forbids(
    client: TestClient, address: str
) -> None:
    answer = client.get(address)

    assert answer.status_code == 200
    assert [text for text in ADDRESSES[address] if text not in answer.text] == []
    assert HOSTILE not in answer.text
    assert (
        re.findall(r"<script(?! src=\"/static/app.js\?\w{12}\" defer>)|\sstyle=|<style|\son\w+=", answer.text)
        == []
    )
    assert re.findall(r"(?:src|href|action)=\"(?!/|#)[^\"]*\"", answer.text) == []


def test_a_scraper_gets_the_metrics_and_health_checks_the_state_of_the_run(client: TestClient) -> None:
    metrics = client.get("/metrics")

    assert metrics.status_code == 200
    assert "dartrl_run_healthy 0" in metrics.text
    for address in ("/livez", "/readyz"):
        answer = client.get(address)
        assert (answer.status_code, answer.text.splitlines()[0]) == (503, "the root supervisor is gone")


def part_of(page: str, name: str, run: RunView, /, **values: str) -> str:
    """Render one part of a page of a run."""
    (part,) = (part for part in PAGES[page].parts if part.name == name)
    return part.render(run, Values(values))


def test_routine_of_a_long_run_hides_no_alarm(recorded: RunPaths, tmp_path: Path) -> None:
    copy = RunPaths(Path(shutil.copytree(recorded.root, tmp_path / "run")))
    with Store(copy.store) as store:
        store.record_event("alarm", "equal_rewards", {"stage": "raised", "text": "all groups are equal"})
        for _ in range(600):
            for before, state in pairwise(["healthy", "updating", "healthy"]):
                store.record_event("engine_state", "rollout-0", {"state": state, "before": before})
    with RunView(copy) as run:
        overview = part_of("overview", "newest", run)
        engine = part_of("actor", "happened", run, name="rollout-0")

    assert "all groups are equal" in overview
    assert "suspect" in engine, "a state of before"


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/actor?name=nobody", 404),
        ("/actor", 404),
        ("/actor?name=../../etc/passwd", 404),
        ("/task?id=miniwob/none", 404),
        ("/trajectory?id=99999", 404),
        ("/trajectory?id=-1", 404),
        ("/trajectory?id=1e3", 404),
        ("/trajectory?id=e99", 404),
        ("/trajectory?id=e", 404),
        ("/export?id=e1%0d%0aset-cookie:x", 404),
        ("/trajectory?id=" + "9" * 40, 404),
        ("/trajectory", 404),
        ("/compare?a=1&b=3", 404),
        ("/compare?a=1", 404),
        ("/trajectories?outcome=great", 404),
        ("/trajectories?task=none", 404),
        ("/trajectories?before=x", 404),
        ("/?window=1y", 404),
        ("/stream?page=nothing", 404),
        ("/blobs/../store.db.png", 404),
        ("/blobs/%2e%2e%2fstore.png", 404),
        ("/blobs/" + "0" * 64 + ".png", 404),
        ("/blobs/" + "A" * 64 + ".png", 404),
        ("/static/page.html", 404),
        ("/static/..%2fapp.py", 404),
        ("/nothing", 404),
    ],
)
def test_what_is_not_there_is_not_found(client: TestClient, address: str, status: int) -> None:
    assert client.get(address).status_code == status


def test_what_was_asked_for_is_escaped_where_it_is_repeated(client: TestClient) -> None:
    answer = client.get("/actor", params={"name": HOSTILE})

    assert HOSTILE not in answer.text
    assert "&lt;script&gt;" in answer.text


def test_a_screenshot_is_served_by_its_hash_and_may_be_kept(client: TestClient, recorded: RunPaths) -> None:
    answer = client.get(f"/blobs/{a_screenshot(recorded)}.png")

    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert answer.content.startswith(b"\x89PNG")
    assert "immutable" in answer.headers["cache-control"]


def test_every_answer_bears_the_policy(client: TestClient) -> None:
    for address in ("/", "/nothing", "/static/app.js", "/login"):
        headers = client.get(address, headers={"host": "localhost"}).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/", headers={"host": "evil.example"}).headers["x-frame-options"] == "DENY"


def test_a_stranger_is_led_to_the_login_and_shown_nothing(guarded: TestClient) -> None:
    assert guarded.get("/").status_code == 401
    led = guarded.get("/", headers={"sec-fetch-mode": "navigate"})

    assert (led.status_code, led.headers["location"]) == (303, "/login")
    assert guarded.get("/login").status_code == 200
    assert guarded.get("/?token=" + TOKEN).status_code == 401


BROWSER_ACCEPTS = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


def test_a_browser_that_sends_no_fetch_metadata_is_led_to_the_login(guarded: TestClient) -> None:
    led = guarded.get("/tasks", headers={"accept": BROWSER_ACCEPTS})
    assert (led.status_code, led.headers.get("location")) == (303, "/login?next=%2Ftasks")
    assert guarded.get("/stream?page=head", headers={"accept": "text/event-stream"}).status_code == 401
    framed = {"accept": BROWSER_ACCEPTS, "sec-fetch-mode": "no-cors"}
    assert guarded.get("/tasks", headers=framed).status_code == 401


def test_the_page_shows_no_run_as_healthy_whose_main_process_is_suspended(recorded: RunPaths) -> None:
    with RunView(recorded) as run:
        run.snapshot = replace(run.snapshot, main_is="suspended")
        assert "main process suspended" in head(run, Values())


def test_the_page_shows_a_run_whose_actors_start_for_the_first_time_as_starting(recorded: RunPaths) -> None:
    with RunView(recorded) as run:
        run.snapshot = replace(run.snapshot, is_running=True, main_is="", actors=(), notices=())
        assert ">starting<" in head(run, Values())
        run.snapshot = replace(run.snapshot, notices=("the disk is full",))
        assert ">degraded<" in head(run, Values())


def test_the_overview_names_each_sidecar_that_does_not_do_its_job(recorded: RunPaths) -> None:
    with RunView(recorded) as run:
        page = Sidecar(name="web", is_well=True, text="http://127.0.0.1:8700")
        nodes = Sidecar(name="cluster", is_well=False, text="no agent runs on <node-3>")
        run.snapshot = replace(run.snapshot, notices=(), engines=(), sidecars=(page, nodes))
        shown = part_of("overview", "notices", run)

    assert shown.strip() == '<p class="notice warn">cluster: no agent runs on &lt;node-3&gt;</p>'


def test_the_colour_at_the_top_of_a_page_is_that_of_the_state_of_the_run(recorded: RunPaths) -> None:
    with RunView(recorded) as run:
        root = replace(run.snapshot.actors[0], process="alive", beat_age_s=0.1)
        well = replace(run.snapshot, is_running=True, main_is="", notices=(), actors=(root,))
        run.snapshot = well
        assert '<span class="pill good">healthy</span>' in head(run, Values())
        run.snapshot = replace(well, notices=("the disk is full",))
        assert '<span class="pill warn">degraded</span>' in head(run, Values())
        run.pid = None
        assert '<span class="pill idle">ended</span>' in head(run, Values())


def test_who_gave_the_token_gets_a_cookie_without_it(guarded: TestClient) -> None:
    wrong = guarded.post("/login", data={"token": "no"})
    right = guarded.post("/login", data={"token": f" {TOKEN}\n"})

    assert (wrong.status_code, "set-cookie" in wrong.headers) == (403, False)
    assert right.status_code == 303
    cookie = right.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert "Log out" in guarded.get("/tree").text
    guarded.post("/logout")
    assert guarded.get("/tree").status_code == 401


def test_a_program_sends_the_token_in_a_header(guarded: TestClient) -> None:
    assert guarded.get("/tree", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_form_as_large_as_a_film_is_refused(guarded: TestClient) -> None:
    assert guarded.post("/login", content=b"x" * 5000).status_code == 413


def test_an_actor_is_shown_while_the_record_cannot_be_read(recorded: RunPaths, tmp_path: Path) -> None:
    copy = RunPaths(Path(shutil.copytree(recorded.root, tmp_path / "run")))
    for file in copy.root.glob("store.db*"):
        file.write_bytes(b"no database" * 1000)
    app = web_app(copy, access_for("127.0.0.1", None))
    with copy.lock.open() as lock, TestClient(app, base_url="http://localhost") as client:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = client.get("/actor?name=rollout-0")

    assert "it is no SQLite database" in answer.text
    assert "<dt>engine</dt>" in answer.text


def test_before_the_run_has_a_record_the_page_says_so(empty: TestClient) -> None:
    answer = empty.get("/")

    assert answer.status_code == 200
    assert "has no config.toml yet" in answer.text


def test_an_export_holds_all_it_needs(recorded: RunPaths, tmp_path: Path) -> None:
    file = tmp_path / "two.html"

    write_trajectory(recorded, "2", file)
    text = file.read_text()

    assert text.count('src="data:image/png;base64,') == 3
    assert HOSTILE not in text
    assert "default-src &#39;none&#39;" in text
    assert re.findall(r"(?:src|href|action)=\"(?!data:)[^\"]*\"", text) == []


def test_a_lost_screenshot_is_said_and_the_rest_is_shown(recorded: RunPaths, tmp_path: Path) -> None:
    copy = RunPaths(Path(shutil.copytree(recorded.root, tmp_path / "run")))
    with RunView(copy) as run:
        played = run.store.trajectory(2)
        assert played is not None
        lost = played.steps[0].screenshot_sha256
        (copy.blobs / lost[:2] / f"{lost}.png").unlink()
        text = trajectory_html(run, "2")

    assert f"{lost[:12]} is missing or damaged" in text
    assert text.count("data:image/png") == 2

    with Store(copy.record, clock=lambda: played.started_unix_s + 30 * 86_400.0) as store:
        store.give_up_screenshots(14 * 86_400.0, 60.0)
    with RunView(copy) as run:
        assert f"{lost[:12]} was deleted as an old one (run.screenshots_kept_days)" in trajectory_html(
            run, "2"
        )


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self, step_s: float) -> None:
        self.now_s = 0.0
        self._step_s = step_s

    async def sleep(self, _: float) -> None:
        self.now_s += self._step_s
        for _turn in range(3):  # what was begun gets on
            await asyncio.sleep(0)


async def test_a_stream_tells_a_part_when_it_changes_and_waits_for_no_other() -> None:
    clock, texts, never = Clock(0.5), iter(["a", "a", "b", "b"]), asyncio.Event()
    page = WebPage("t", "", (PagePart("slow", 1.0, lambda *_: ""), PagePart("x", 1.0, lambda *_: "")))

    async def html(part: PagePart) -> str:
        if part.name == "slow":
            await never.wait()
        return next(texts)

    stream = changes(page, html, sleep=clock.sleep, now_s=lambda: clock.now_s)
    told_now = [await anext(stream) for _ in range(3)]
    await stream.aclose()

    assert told_now == [
        "retry: 2000\n\n",
        'data: {"name": "x", "html": "a"}\n\n',
        'data: {"name": "x", "html": "b"}\n\n',
    ]
    assert 2.0 <= clock.now_s <= 3.0


async def test_a_stream_outlives_what_its_page_is_about() -> None:
    """An actor of a pool that was made smaller, while its page is open."""
    clock = Clock(0.5)

    async def html(part: PagePart) -> str:
        raise UsageError("the run has no actor 'env-007'")

    stream = changes(WebPage("t", "", (PagePart("x", 1.0, lambda *_: ""),)), html, sleep=clock.sleep)
    events = [await anext(stream) for _ in range(2)]
    await stream.aclose()

    assert "no actor &#39;env-007&#39;" in events[1]


async def test_a_stream_ends_so_that_its_session_is_looked_at_again() -> None:
    clock = Clock(60.0)

    async def html(part: PagePart) -> str:
        return "a"

    page = WebPage("t", "", (PagePart("x", 1.0, lambda *_: ""),))
    events = [event async for event in changes(page, html, sleep=clock.sleep, now_s=lambda: clock.now_s)]

    assert clock.now_s >= STREAM_S
    assert events[-1].startswith("event: alive\n")


async def test_a_part_that_cannot_be_read_says_why() -> None:
    async def locked() -> str:
        raise StoreBusy("the record is <locked>")

    shown = await part_or_error(locked())

    assert "the record is &lt;locked&gt;" in shown
    assert 'role="status"' not in shown, "many parts would say the same at once"


def test_a_run_that_is_taken_up_again_does_not_show_the_actors_it_had(tmp_path: Path) -> None:
    paths = record_run(tmp_path / "run")
    (paths.root / "processes.json").write_text('{"launcher": [4000000, 1]}')
    with (
        paths.lock.open() as lock,
        TestClient(web_app(paths, access_for("127.0.0.1", None)), base_url="http://localhost") as client,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        for address in ("/", "/tree"):
            page = client.get(address)
            assert page.status_code == 200
            assert "is starting as process 1; none of its actors is up yet" in page.text
        assert client.get("/").text.count("is starting as process 1") == 2, "at the top, and for the figures"
        assert "backoff" not in client.get("/tree").text
        assert client.get("/metrics").status_code == 503
        assert "/trajectory?id=7" in client.get("/trajectories").text
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert "env-001" in client.get("/tree").text, "of one that has ended it shows how it was"


def test_the_tree_names_above_its_rows_which_actors_cannot_work(client: TestClient) -> None:
    shown = client.get("/tree").text
    above, _, _ = shown.partition("<table")
    assert "of 9 actors cannot work now" in above
    assert 'href="/actor?name=env-001"' in above


def test_an_engine_that_loads_a_version_is_none_of_the_actors_that_cannot_work(recorded: RunPaths) -> None:
    with RunView(recorded) as run:
        up = [replace(one, state="running", process="alive", beat_age_s=0.1) for one in run.actors]
        run.actors = tuple(replace(one, ready=one.name not in ("rollout-0", "trainer")) for one in up)
        run.engines = (EngineRow(name="rollout-0", state="updating", version=1, reason="it is loading"),)
        above, _, _ = part_of("tree", "tree", run).partition("<table")

    assert "1 of 9 actors cannot work now" in above
    assert re.findall(r"name=([\w-]+)", above) == ["trainer"]


def test_notices_are_announced_by_a_text_of_their_own_that_does_not_change_with_their_figures(
    client: TestClient,
) -> None:
    shown = client.get("/").text
    assert '<div id="part-notices" class="part">' in shown
    notices = re.findall(r'<p class="notice warn">(.*?)</p>', shown)
    assert f'<p class="unseen" data-spoken role="status">{" ".join(notices)}</p>' in shown
    assert shown.count('role="status"') == 2  # the other one says that the page is not followed
    assert client.get("/tree").text.count('role="status"') == 2


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/trajectory?id=2", "(the policy declared the task done)"),
        ("/trajectory?id=5", "(all rollouts of the group have the same reward: nothing to learn from)"),
        ("/trajectory?id=e1", "(the answer of the policy was no action)"),
        ("/actor?name=rollout-0", "engines: answering at least one request"),
    ],
)
def test_what_words_and_figures_mean_can_be_read_without_a_pointer(
    client: TestClient, address: str, words: str
) -> None:
    _, _, main = client.get(address).text.partition("<main")
    assert words in re.sub("<[^>]*>", "", main)


def test_the_title_of_a_page_names_its_run_so_that_tabs_of_two_runs_differ(
    client: TestClient, recorded: RunPaths
) -> None:
    assert f"<title>Tasks · {recorded.root.name} · dartrl</title>" in client.get("/tasks").text


def test_the_success_chart_says_what_the_evaluations_measured(client: TestClient) -> None:
    assert "dots: held-out seeds, before 50 %" in client.get("/").text


def test_the_tiles_of_the_overview_show_the_figures_that_they_are_called(recorded: RunPaths) -> None:
    with RunView(recorded) as run:
        root = replace(run.snapshot.actors[0], process="alive", beat_age_s=0.1)
        run.snapshot = replace(
            run.snapshot,
            success_rate=0.43,
            recent=200,
            updates=12,
            updates_max=300,
            serving_versions=(11, 9, 11),
            trajectories=512,
            steps_mean=3.25,
            actions_per_minute=312.4,
            staleness_mean=0.84,
            staleness_p95=2.0,
            staleness_max=7,
            faults={"task": 2, "infrastructure": 3},
            actors=(root, replace(root, name="store", state="failed")),
            restarts=4,
            used_before_s=100.0,
            pool_size=12,
            pool_uses=3,
        )
        shown = part_of("overview", "now", run)

    tile = re.compile('<div class="tile (.*?)"><dt>(.*?)</dt><dd>(.*?)</dd><dd class="detail">(.*?)</dd>')
    assert {name: rest for _, name, *rest in tile.findall(shown)} == {
        "Success": ["43 %", "200 newest episodes"],
        "Updates": ["12/300", "serving version 9, 11"],
        "Episodes": ["512", "3.2 steps each"],
        "Steps/min": ["312", "over the last minute"],
        "Staleness": ["0.8", "p95 2, most 7"],
        "Faults": ["5", "3 infrastructure, 2 task"],
        "Actors": ["1/2", "4 restarts since 1:40"],
        "Pool": ["12", "used 3 times"],
    }
    assert [name for tone, name, *_ in tile.findall(shown) if tone == "warn"] == ["Faults", "Actors"]


def test_the_facts_about_an_actor_are_those_that_they_are_called(recorded: RunPaths) -> None:
    with RunView(recorded) as run:
        root = run.actors[0]
        busy = replace(root, messages=9, refused=2, unsent=3, restarts=7, restarts_in_window=4, window_s=60.0)
        run.actors = (replace(busy, age_s=125.0, beat_age_s=0.25, rss_bytes=3 * 2**20, cpu_s=1.5),)
        facts = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", part_of("actor", "vitals", run, name="root")))

    assert {name: facts[name] for name in ("messages", "refused", "not sent", "restarts", "up")} == {
        "messages": "9",
        "refused": "2",
        "not sent": "3",
        "restarts": "7, 4 in 1m00s",
        "up": "2m05s",
    }
    assert {name: facts[name] for name in ("last sign of life", "memory", "processor")} == {
        "last sign of life": "0.2 s ago",
        "memory": "3.0 MiB",
        "processor": "1.5 s",
    }


def test_an_actor_that_never_beat_shows_no_last_sign_of_life(recorded: RunPaths) -> None:
    with RunView(recorded) as run:
        run.actors = (replace(run.actors[0], age_s=12.0, beat_age_s=None, process="alive"),)
        facts = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", part_of("actor", "vitals", run, name="root")))

    assert (facts["up"], facts["last sign of life"]) == ("12s", "–")


def test_the_lines_of_the_staleness_chart_are_the_figures_that_they_are_called(client: TestClient) -> None:
    chart = client.get("/").text.partition("<strong>Staleness")[2].partition("</figure>")[0]

    named = re.findall(r"</svg>(\w+) <b data-value>([^<]*)</b>", chart)
    assert named == [("mean", "0.5"), ("p95", "1"), ("bound", "4")]


def test_the_newest_event_comes_first(client: TestClient) -> None:
    events = client.get("/").text.partition("Newest events")[2]

    assert events.index("engine_state") < events.index("child_terminated")


def test_the_page_of_an_actor_has_the_end_of_its_log_and_its_newest_end_first(
    recorded: RunPaths, tmp_path: Path
) -> None:
    copy = RunPaths(Path(shutil.copytree(recorded.root, tmp_path / "run")))
    written = {"level": "info", "timestamp": "2026-11-21T13:45:13.94868Z"}
    lines = [json.dumps({**written, "event": f"line {number}"}) for number in range(LOG_LINES + 80)]
    (copy.logs / "env-000.jsonl").write_text("\n".join(lines) + "\n")
    for unix_s, reason in ((1.0, "earlier"), (2.0, "later")):
        report = SupervisorReport(
            unix_s=unix_s,
            supervisor="environment_pool",
            context="child_terminated",
            reason=reason,
            offender=Offender(id="env-000"),
        )
        reports.append(copy.root, report)
    with RunView(copy) as run:
        actor = run.actor("env-000")
        log, ends = [line.event for line in run.log(actor)], [one.reason for one in run.ends(actor)]

    assert (log[0], log[-1]) == ("line 80", f"line {LOG_LINES + 79}")
    assert ends == ["later", "earlier"]


def test_every_outcome_and_every_reason_of_a_drop_is_explained() -> None:
    assert [word for word in (*Outcome, *DropReason) if not MEANINGS.get(word)] == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5.0, "0 s ago"),
        (89.0, "89 s ago"),
        (90.0, "2 min ago"),
        (89 * 60.0, "89 min ago"),
        (90 * 60.0, "2 h ago"),
        (47 * 3600.0, "47 h ago"),
        (48 * 3600.0, "2 d ago"),
        (400 * 86_400.0, "400 d ago"),
    ],
)
def test_how_long_ago_is_said_in_a_unit_that_fits(
    seconds: float, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.web.render.time.time", lambda: 1e9)

    assert ago(1e9 - seconds) == text


PILL = re.compile(r"/trajectory\?id=(e?\d+)\">.*?<span class=\"pill (\w+)\"", re.DOTALL)


@pytest.mark.parametrize(
    ("address", "colours"),
    [
        ("/trajectories?task=enter-text", {"7": "idle", "4": "good", "3": "idle"}),
        ("/trajectories?of=evaluation", {"e2": "good", "e1": "bad"}),
    ],
)
def test_a_success_is_green_in_a_list_and_an_answer_that_was_no_action_red(
    client: TestClient, address: str, colours: dict[str, str]
) -> None:
    assert dict(PILL.findall(client.get(address).text)) == colours


def test_the_episodes_of_its_group_are_offered_first_to_compare_an_episode_with(client: TestClient) -> None:
    offered = re.findall(r"<option value=\"(\d+)\">", client.get("/trajectory?id=2").text)

    assert offered == ["1", "6", "5"]


def test_a_chart_without_values_says_what_did_not_happen() -> None:
    empty = Chart("Faults", [], (0.0, 60.0), empty="no failed attempt in this time")
    assert "no failed attempt in this time" in render("_charts.html", charts=[empty], windows=(), window="")


def test_the_labels_of_a_chart_are_drawn_over_its_lines(client: TestClient) -> None:
    shown = client.get("/").text
    figure = shown[shown.index("Throughput") :].partition("</figure>")[0]
    assert figure.rindex('class="line') < figure.index('class="tick"')


def test_pages_are_compressed_and_their_files_are_loaded_once(client: TestClient) -> None:
    shown = client.get("/tree")
    assert shown.headers["content-encoding"] == "gzip"
    files = re.findall(r'"(/static/[^"]*)"', shown.text)
    assert len(files) == 3
    for file in files:
        assert "immutable" in client.get(file).headers["cache-control"]
    assert client.get("/static/app.js?0").headers["cache-control"] == "no-cache"


async def test_a_compressed_stream_tells_each_event_as_it_comes() -> None:
    async def events() -> AsyncIterator[str]:
        yield "data: 1\n\n"
        yield "data: 2\n\n"

    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    heard = [unpacker.decompress(part) async for part in gzipped(events())]

    assert heard == [b"data: 1\n\n", b"data: 2\n\n", b""]
    assert unpacker.eof


def test_a_login_leads_to_the_page_that_was_asked_for(guarded: TestClient) -> None:
    wanted = "/compare?a=1&b=2"
    led = guarded.get(wanted, headers={"sec-fetch-mode": "navigate"})
    form = guarded.get(led.headers["location"]).text
    assert '<input type="hidden" name="next" value="/compare?a=1&amp;b=2">' in form
    wrong = guarded.post("/login", data={"token": "no", "next": wanted})
    assert 'value="/compare?a=1&amp;b=2"' in wrong.text

    logged_in = guarded.post("/login", data={"token": TOKEN, "next": wanted})

    assert (logged_in.status_code, logged_in.headers["location"]) == (303, wanted)


@pytest.mark.parametrize(
    "place",
    ["", "//evil.example", "/\\evil.example", "https://evil.example/", "/\t/evil", "tree", "/" + "x" * 2000],
)
def test_a_login_leads_to_no_other_host(guarded: TestClient, place: str) -> None:
    assert guarded.post("/login", data={"token": TOKEN, "next": place}).headers["location"] == "/"


def test_a_change_whose_session_has_expired_is_not_sent_again_by_the_login(guarded: TestClient) -> None:
    led = guarded.post("/do", headers={"sec-fetch-mode": "navigate", "origin": "http://localhost:8700"})
    assert (led.status_code, led.headers["location"]) == (303, "/login")


def test_an_export_has_the_date_and_the_time_zone_of_its_episode(recorded: RunPaths, tmp_path: Path) -> None:
    with RunView(recorded) as run:
        text = trajectory_html(run, "2")
    assert re.search(r"<dt>played</dt><dd>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}, 2.5 s", text)


def test_a_page_names_the_time_zone_of_its_times(client: TestClient) -> None:
    assert re.search(
        r"<footer class=\"quiet\">Times of day are in the time zone UTC[+-]\d{4}\.",
        client.get("/").text,
    )


def test_a_list_leads_to_older_episodes_only_where_there_are_some(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory_pages, "PAGE", 3)
    first = client.get("/trajectories").text
    assert first.count("/trajectory?id=") == 3
    assert 'href="/trajectories?before=5" rel="next"' in first
    monkeypatch.setattr(trajectory_pages, "PAGE", 7)
    whole = client.get("/trajectories").text
    assert whole.count("/trajectory?id=") == 7
    assert 'rel="next"' not in whole


def test_screenshots_are_loaded_as_they_come_into_sight(client: TestClient) -> None:
    shown = client.get("/trajectory?id=2").text
    assert shown.count('loading="lazy"') == shown.count("/blobs/") == 3


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_headings_of_a_page_skip_no_level(client: TestClient, address: str) -> None:
    levels = [int(level) for level in re.findall(r"<h(\d)", client.get(address).text)]
    assert levels[0] == 1
    assert [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1] == []


def test_what_the_eye_sees_of_a_row_is_there_for_a_screen_reader(client: TestClient) -> None:
    assert '>env-001</a><span class="unseen">, level 3</span>' in client.get("/tree").text
    assert re.search(r'class="spark" role="img" aria-label="from \S+ % to \S+ %"', client.get("/tasks").text)
