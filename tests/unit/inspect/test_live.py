"""What a person sees of a run, from one snapshot."""

import errno
import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from dart.cli.output import Format, print_fitted
from dart.core.records import Conservation, RunPhase
from dart.inspect import live
from dart.inspect.formatting import duration, state_text
from dart.inspect.processes import UNREACHABLE
from dart.inspect.sidecar_status import Sidecar
from dart.inspect.snapshot import ActorRow, EngineRow, RunSnapshot, TaskRow
from dart.inspect.success_windows import SuccessWindow
from dart.inspect.tables import styled_state


def actor(name: str, parent: str = "root", **changes: object) -> ActorRow:
    row = ActorRow(
        name=name,
        parent=parent,
        state="running",
        pid=100,
        incarnation=1,
        ready=True,
        beat_age_s=0.1,
        busy_s=0.0,
        handler="",
        messages=5,
        restarts=0,
        last_reason="",
    )
    return replace(row, **changes)  # type: ignore[arg-type]


KILLED = actor(
    "env-001",
    "environment_pool",
    state="backoff",
    ready=False,
    restarts=3,
    restarts_in_window=1,
    window_s=60.0,
    retry_in_s=12.0,
    last_reason="killed by SIGKILL",
)
ACTORS = (
    actor("root", ""),
    actor("store", handler="append", busy_s=0.03),
    actor("environment_pool"),
    actor("env-000", "environment_pool"),
    KILLED,
)
SNAPSHOT = RunSnapshot(
    run_dir="runs/x",
    taken_unix_s=0.0,
    phase=RunPhase.TRAINING,
    elapsed_s=192.0,
    budget_s=1200.0,
    updates=12,
    policy_version=12,
    serving_versions=(12, 11, 12),
    success_rate=0.43,
    recent=100,
    trajectories=512,
    actions_per_minute=312.4,
    staleness_mean=0.84,
    staleness_p50=1.0,
    staleness_p95=2.0,
    staleness_max=2,
    rollouts_mean=6.0,
    step_cap_mean=7.5,
    steps_mean=3.25,
    drops={"too_few": 1, "no_spread": 19},
    pool_size=12,
    pool_uses=3,
    engines=(
        EngineRow(name="rollout-0", state="healthy", version=12, reason=""),
        EngineRow(name="rollout-1", state="updating", version=11, reason="it is loading version 12"),
    ),
    restarts=3,
    faults={"infrastructure": 3, "policy": 0},
    conservation=Conservation(issued=600, trained=400, dropped=20, stored=150, leased=30),
    tasks=(
        TaskRow(
            task_id="click",
            trajectories=64,
            recent=30,
            success_rate=0.6,
            base_success_rate=0.3,
            rollouts=4,
            step_cap=5,
        ),
        TaskRow(task_id="type", trajectories=0, recent=0, success_rate=None),
    ),
    actors=ACTORS,
)


def printed(renderable: RenderableType, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(renderable)
    return console.export_text()


def line_with(text: str, word: str) -> str:
    (line,) = [line for line in text.splitlines() if word in line]
    return line


def test_a_line_holds_all_figures_of_the_run() -> None:
    assert live.summary_line(SNAPSHOT) == (
        "3:12/20:00  training  success 43 % (100 newest)  updates 12  version 12 (serving 11, 12)  "
        "trajectories 512  actions/min 312  staleness 0.8 (p50 1, p95 2, max 2)  alive 4/5  restarts 3  "
        "faults infrastructure 3"
    )


def test_the_restarts_of_a_continued_run_are_those_since_it_was_continued() -> None:
    assert "  restarts 3 since 1:40  faults " in live.summary_line(replace(SNAPSHOT, used_before_s=100.0))


def test_a_run_that_only_starts_shows_dashes_instead_of_numbers() -> None:
    fresh = RunSnapshot(run_dir="r", taken_unix_s=0, phase=RunPhase.TRAINING, elapsed_s=0, budget_s=0)

    text = live.summary_line(fresh)

    assert text.startswith("0:00  training  success –  updates 0  version 0 (serving –)")
    assert "staleness –" in text


def test_an_evaluation_shows_how_far_it_is() -> None:
    measuring = replace(SNAPSHOT, phase=RunPhase.BASE_EVALUATION, evaluation_done=37, evaluation_total=400)

    assert "base evaluation 37/400" in live.summary_line(measuring)


def test_the_screen_shows_tasks_with_their_base_and_actors_with_their_state() -> None:
    text = printed(live.screen(SNAPSHOT))

    assert line_with(text, "click").split()[:6] == ["click", "30", "%", "60", "%", "64"]
    assert line_with(text, "type").split()[:4] == ["type", "–", "–", "0"]
    assert "append 0.0 s" in line_with(text, "store  ")
    assert "issued 600 = trained 400 + dropped 20 + stored 150 + leased 30" in text


def test_the_screen_shows_what_curation_does() -> None:
    text = printed(live.screen(SNAPSHOT))

    assert "N 6.0  step cap 7.5  steps/episode 3.2  dropped 19 no_spread, 1 too_few  pool 12, used 3x" in text
    assert line_with(text, "click").split()[6:8] == ["4", "5"]


def test_the_screen_says_how_many_demonstrations_have_no_thought() -> None:
    text = printed(live.screen(replace(SNAPSHOT, pool_without_thought=9)))

    assert "pool 12, used 3x, 9 without a thought" in " ".join(text.split())


def test_a_task_in_quarantine_is_counted_and_says_until_when_and_why() -> None:
    rest = "in quarantine until 12:05:10: 20 attempts"
    quarantined = replace(SNAPSHOT, tasks=(replace(SNAPSHOT.tasks[0], quarantined=rest),))

    text = printed(live.screen(quarantined), width=200)

    assert "in quarantine 1 of 1 tasks" in text
    assert "in quarantine until 12:05:10" in line_with(text, "click")


def test_an_engine_that_does_not_answer_says_why_and_the_others_nothing() -> None:
    text = printed(live.screen(SNAPSHOT))

    assert "rollout-1 is updating: it is loading version 12" in text
    assert "rollout-0" not in text


STARVED = "since 12:00:00: the trainer has waited 63 s for a batch (cause: engines)"


def test_who_starves_is_seen_and_makes_the_run_degraded() -> None:
    starving = replace(SNAPSHOT, actors=ACTORS[:4], notices=(STARVED,))

    text = printed(live.status(starving, pid=7))

    assert not starving.is_healthy
    assert "DEGRADED" in text
    assert STARVED in text


def test_a_lost_rollout_is_seen_as_an_inequality() -> None:
    broken = replace(SNAPSHOT, conservation=Conservation(issued=3, trained=1))

    assert "issued 3 ≠ trained 1" in printed(live.screen(broken))
    assert not broken.is_healthy


def test_on_a_narrow_screen_lines_end_between_figures() -> None:
    console = Console(file=io.StringIO(), width=20)
    console.print(live.Flow(["success 36 %", "updates 4", "staleness 0.6 (p50 1, p95 1)", "x"]))

    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "success 36 %",
        "updates 4",
        "staleness 0.6 (p50 ",
        "1, p95 1)",
        "x",
    ]


def test_actors_that_end_when_the_work_is_done_degrade_no_run() -> None:
    gone = actor("rollout-0", ready=False, state="exited")
    run = replace(SNAPSHOT, actors=(*ACTORS[:3], gone), engines=())

    assert not run.is_healthy
    ending = replace(run, phase=RunPhase.DONE)
    assert (ending.is_healthy, ending.health) == (True, "ending")
    assert not replace(ending, notices=("env-000 starves",)).is_healthy


def test_an_engine_that_takes_a_version_over_degrades_no_run() -> None:
    loading = actor("rollout-0", ready=False, work="load", work_s=0.3)
    engine = EngineRow(name="rollout-0", state="updating", version=3, reason="it is loading version 4")
    run = replace(SNAPSHOT, actors=(*ACTORS[:3], loading), engines=(engine,))

    assert (run.is_healthy, run.well) == (True, 4)
    assert not replace(run, engines=(replace(engine, state="suspect"),)).is_healthy


def test_the_unwell_come_first_and_say_why() -> None:
    lines = printed(live.actor_table(ACTORS)).splitlines()

    assert lines[1].split()[:3] == ["env-001", "backoff", "1/3"]
    assert "killed by SIGKILL" in lines[1]


def test_many_actors_are_counted_instead_of_listed() -> None:
    crowd = [actor(f"env-{i:03d}") for i in range(200)]

    lines = printed(live.actor_table([*crowd, KILLED], rows_max=10)).splitlines()

    assert len([line for line in lines if line.strip()]) == 12
    assert "191 running" in lines[11]


def test_an_actor_that_runs_but_is_not_ready_is_not_called_running() -> None:
    assert state_text(actor("trainer", ready=False)) == "running, not ready"


def test_the_tree_has_every_actor_below_its_supervisor() -> None:
    lines = printed(live.tree(ACTORS)).splitlines()

    assert lines[0].startswith("root")
    assert lines[2].startswith("└── environment_pool")
    assert lines[4].startswith(
        "    └── env-001  backoff  again in 12 s  restarts 1 in 60 s, 3 in all  last: killed"
    )


def test_the_tree_has_the_sidecars_below_the_main_process() -> None:
    page = Sidecar(name="web", is_well=True, text="http://127.0.0.1:8700/")

    lines = printed(live.tree(ACTORS, [page])).splitlines()

    assert lines[-2:] == ["main process", "└── web  http://127.0.0.1:8700/"]


def test_the_tree_says_how_long_what_each_does_and_what_the_kernel_says() -> None:
    rows = [
        actor("root", "", age_s=60.0),
        actor("store", handler="append", busy_s=0.03, age_s=59.0),
        actor("env-000", process="suspended", beat_age_s=25.0, handler="Step"),
        actor("rollout-0", work="load", work_s=2.0),
        actor("trainer", process="gone"),
    ]

    lines = [line.split(maxsplit=1)[-1] for line in printed(live.tree(rows)).splitlines()]

    assert lines[1:] == [
        "store  running  pid 100  for 59s  append 0.0 s",
        "env-000  running, suspended  pid 100  no beat for 25s, in Step",
        "rollout-0  running  pid 100  load 2.0 s",
        "trainer  running, gone  pid 100",
    ]


def test_an_actor_that_an_outage_holds_back_shows_neither_a_next_start_nor_its_ended_process() -> None:
    held = replace(KILLED, retry_in_s=None, pid=100)

    text = line_with(printed(live.tree([held])), "env-001")

    assert text == "env-001  backoff  restarts 1 in 60 s, 3 in all  last: killed by SIGKILL"


def test_the_pid_of_a_process_that_has_ended_is_not_shown() -> None:
    ended = actor("trainer", state="stopped", pid=22180)

    assert live.vitals(ended)[0] == "trainer  stopped"
    assert "pid 22180" in live.vitals(replace(ended, state="stopping"))[0]


def test_the_lines_about_an_actor_name_its_messages_and_its_memory() -> None:
    busy = actor("store", handler="append", busy_s=0.5, messages=9, refused=2, unsent=3)

    assert live.vitals(replace(busy, rss_bytes=3 * 2**20, cpu_s=1.5))[1:] == [
        "supervisor root, incarnation 1",
        "now append 0.5 s; last beat 0s ago; 9 messages handled, 2 refused, 3 could not be sent",
        "memory 3.0 MiB, processor time 1.5 s",
    ]


@pytest.mark.parametrize("down", [KILLED, actor("env-001", process="gone", last_reason="killed by SIGKILL")])
def test_the_lines_about_an_actor_without_a_process_do_not_say_that_it_does_something_now(
    down: ActorRow,
) -> None:
    assert live.vitals(down)[2:] == [
        "last beat 0s ago; 5 messages handled, 0 refused, 0 could not be sent",
        "last ended: killed by SIGKILL",
    ]


def test_of_an_actor_that_never_beat_no_last_beat_is_said() -> None:
    never = actor("env-000", beat_age_s=None, state="starting")

    assert live.vitals(never)[2] == (
        "now idle; no beat yet; 5 messages handled, 0 refused, 0 could not be sent"
    )


def test_an_actor_whose_supervisor_is_gone_is_still_in_the_tree() -> None:
    assert "orphan" in printed(live.tree([actor("orphan", "gone")]))


def test_status_says_where_and_how_the_run_is() -> None:
    well = replace(SNAPSHOT, actors=ACTORS[:4])

    assert "runs/x  DEGRADED  pid 7" in printed(live.status(SNAPSHOT, pid=7))
    assert "runs/x  healthy  pid 7" in printed(live.status(well, pid=7))
    assert "DEGRADED: its main process is suspended" in printed(
        live.status(replace(well, main_is="suspended"), pid=7)
    )
    ended = printed(live.status(well, pid=None))
    assert "runs/x  NOT RUNNING" in ended
    assert "rollout-1 is updating" not in ended
    finished = replace(well, phase=RunPhase.DONE)
    assert "runs/x  DONE" in printed(live.status(finished, pid=None))
    nothing_played = replace(finished, notices=("no episode has ended with a reward yet",))
    assert "runs/x  NOT RUNNING" in printed(live.status(nothing_played, pid=None))


def test_a_run_that_lost_a_rollout_is_not_done_and_of_one_that_does_not_answer_nothing_is_known() -> None:
    finished = replace(SNAPSHOT, actors=ACTORS[:4], phase=RunPhase.DONE)
    lost = replace(finished, conservation=Conservation(issued=3, trained=1))

    assert "runs/x  NOT RUNNING" in printed(live.status(lost, pid=None))
    for pid in (7, None):
        away = printed(live.status(replace(finished, main_is=UNREACHABLE), pid=pid))
        assert "runs/x  CANNOT TELL: its control node does not answer" in away


@pytest.mark.parametrize(
    ("fields", "style"),
    [
        ({}, "green"),
        ({"beat_age_s": 20.0}, "green"),
        ({"beat_age_s": 20.1}, "bold red"),
        ({"ready": False}, "yellow"),
        ({"process": "suspended"}, "bold red"),
        ({"process": "gone"}, "bold red"),
        ({"state": "failed"}, "bold red"),
        ({"state": "backoff", "beat_age_s": 60.0}, "yellow"),
        ({"state": "starting", "beat_age_s": 60.0}, "cyan"),
        ({"state": "quarantined"}, "bold magenta"),
        ({"state": "stopped"}, ""),
    ],
)
def test_the_colour_of_a_state_says_whether_its_actor_can_work(fields: dict[str, object], style: str) -> None:
    assert styled_state(actor("env-000", **fields)).style == style  # type: ignore[arg-type]


def test_remarks_are_coloured_unless_they_are_about_a_sidecar_that_works() -> None:
    web, tracking = (Sidecar(name=name, is_well=name == "web", text="…") for name in ("web", "tracking"))
    run = replace(SNAPSHOT, sidecars=(web, tracking), notices=(STARVED,))

    styles = {remark.plain.split()[0]: remark.style for remark in live._remarks(run)}

    assert styles == {"web": "", "tracking": "yellow", "rollout-1": "yellow", "since": "bold yellow"}


def test_a_success_rate_is_green_only_above_that_of_the_base_policy() -> None:
    (now,) = (column.value for column in live.TASK_COLUMNS if column.name == "now")
    better = SNAPSHOT.tasks[0]

    shown = [
        now(one)
        for one in (better, replace(better, success_rate=0.3), replace(better, base_success_rate=None))
    ]

    assert [getattr(text, "style", None) for text in shown] == ["green", "", ""]


def test_actors_that_start_for_the_first_time_make_a_run_starting_and_not_degraded() -> None:
    first = [
        actor("trainer", "root", state="starting", ready=False),
        actor("env-000", "root", state="backoff", ready=False),
    ]
    root = actor("root", "", ready=False)
    starting = replace(SNAPSHOT, actors=(root, *ACTORS[:4], *first))

    assert "runs/x  STARTING: trainer, env-000  pid 7" in printed(live.status(starting, pid=7))
    many = replace(starting, actors=(*first, *first, *first))
    assert "STARTING: trainer, env-000, trainer and 3 more" in printed(live.status(many, pid=7))
    assert "STARTING: the root supervisor" in printed(live.status(replace(SNAPSHOT, actors=()), pid=7))
    for unwell in (
        replace(starting, actors=(*starting.actors, actor("env-001", "root", state="starting", restarts=1))),
        replace(starting, actors=(*starting.actors, actor("env-001", state="backoff", last_reason="killed"))),
        replace(starting, actors=(replace(root, beat_age_s=60.0), *starting.actors[1:])),
        replace(starting, notices=(STARVED,)),
    ):
        assert "runs/x  DEGRADED  pid 7" in printed(live.status(unwell, pid=7))


def test_in_the_wide_form_of_status_nothing_is_shortened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "quarantined until 12:00:00: no success in the last 96 episodes, and no demonstration"
    (task, *_), crowd = SNAPSHOT.tasks, [replace(ACTORS[0], name=f"env-{number:03}") for number in range(40)]
    run = replace(SNAPSHOT, tasks=(replace(task, quarantined=reason),), actors=tuple(crowd))
    monkeypatch.setenv("COLUMNS", "40")

    print_fitted(live.status(run, pid=7, is_wide=True), Format.WIDE)
    text = capsys.readouterr().out

    assert "…" not in text
    assert reason in text
    assert all(actor.name in text for actor in crowd)
    assert not any("env-" in line for line in text.splitlines() if reason in line), "one below the other"


def plain_output(*snapshots: tuple[float, RunSnapshot]) -> list[str]:
    file, times = io.StringIO(), iter([time for time, _ in snapshots])
    with live.open_view(Console(file=file, width=40), clock=lambda: next(times)) as show:
        for _, snapshot in snapshots:
            show(snapshot)
    return file.getvalue().splitlines()


def test_without_a_terminal_there_is_a_line_every_ten_seconds() -> None:
    lines = plain_output(*((float(second), SNAPSHOT) for second in range(25)))

    assert len(lines) == 3
    assert lines[0] == live.summary_line(SNAPSHOT)


def window(begins_s: float, ends_s: float, successes: int, episodes: int = 10) -> SuccessWindow:
    return SuccessWindow(begins_s=begins_s, ends_s=ends_s, successes=successes, episodes=episodes)


LEARNED = replace(
    SNAPSHOT,
    base_success_rate=0.45,
    success_windows=(window(0, 120, 4), window(120, 240, 7)),
)


def test_the_screen_shows_success_over_time_beside_that_of_the_base_policy() -> None:
    text = " ".join(printed(live.screen(LEARNED)).split())

    expected = "before training 45 % (held-out seeds); while training (sampled) 0–2 min 40 %, 2–4 min 70 %"
    assert f"success: {expected}" in text


def test_without_a_terminal_success_over_time_is_a_line_when_a_window_is_over() -> None:
    later = replace(LEARNED, elapsed_s=250.0)

    lines = plain_output((0.0, LEARNED), (1.0, LEARNED), (2.0, later))

    assert [line.partition("(sampled) ")[2] for line in lines if "(sampled)" in line] == [
        "0–2 min 40 %",
        "0–2 min 40 %, 2–4 min 70 %",
    ]


def test_a_new_phase_is_told_at_once() -> None:
    lines = plain_output((0.0, SNAPSHOT), (1.0, replace(SNAPSHOT, phase=RunPhase.DONE)))

    assert ["training" in lines[0], "done" in lines[1]] == [True, True]


def test_a_notice_is_told_at_once_and_once_and_that_it_is_over() -> None:
    starving = replace(SNAPSHOT, notices=(STARVED,))

    lines = plain_output((0.0, SNAPSHOT), (1.0, starving), (2.0, starving), (3.0, SNAPSHOT))

    assert lines[1:] == [f"  {STARVED}", "  all notices are over"]


def test_a_notice_of_which_only_the_free_space_changes_is_told_once() -> None:
    waits = [
        replace(SNAPSHOT, notices=(f"{what} waits ({free} are free)",))
        for what, free in (("the store", "1.2 GiB"), ("the store", "998.7 MiB"), ("env-000", "12 B"))
    ]

    lines = plain_output(*enumerate([SNAPSHOT, *waits]))

    assert lines[1:] == ["  the store waits (1.2 GiB are free)", "  env-000 waits (12 B are free)"]


class Disk(io.StringIO):
    """Text on a disk that is full for a while."""

    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_lines_that_find_no_room_on_the_disk_are_left_out_and_end_nothing() -> None:
    disk, times = Disk(), iter([0.0, 10.0, 20.0])
    view = live.PlainLines(Console(file=disk), clock=lambda: next(times))

    view.show(replace(SNAPSHOT, updates=1))
    view.show(replace(SNAPSHOT, updates=2))
    disk.is_full = False
    view.show(replace(SNAPSHOT, updates=3))

    assert disk.getvalue().splitlines() == [live.summary_line(replace(SNAPSHOT, updates=3))]


def test_output_that_fails_for_another_reason_is_told() -> None:
    closed = io.StringIO()
    closed.close()

    with pytest.raises(ValueError, match="closed"):
        live.PlainLines(Console(file=closed)).show(SNAPSHOT)


def test_on_a_terminal_the_last_picture_stays() -> None:
    file = io.StringIO()
    with live.open_view(Console(file=file, width=160, force_terminal=True)) as show:
        show(SNAPSHOT)

    assert "env-001" in file.getvalue()
    assert file.getvalue().endswith("\x1b[?25h")


def test_durations_read_like_a_clock() -> None:
    assert [duration(s) for s in (0, 59.9, 61, 3723)] == ["0:00", "0:59", "1:01", "1:02:03"]


NOTICES = tuple(f"since 11:03:39: alarm number {number}: {'what was measured ' * 12}" for number in range(5))
CROWD = replace(
    SNAPSHOT,
    notices=NOTICES,
    tasks=tuple(
        TaskRow(
            task_id=f"osworld/chrome/3c6da5d7-4da4-1a69-b8a1-{number:012}",
            trajectories=0,
            recent=0,
            success_rate=None,
            quarantined="until 12:00: it fails" if number == 59 else "",
        )
        for number in range(60)
    ),
    actors=(
        actor("root", ""),
        *(actor(f"env-{number:03}", state="quarantined", last_reason="died") for number in range(150)),
        *(actor(f"env-{number:03}") for number in range(150, 200)),
        actor("trainer", state="backoff", last_reason="out of memory"),
    ),
)


def shown_on(height: int, width: int = 80, snapshot: RunSnapshot = CROWD) -> list[str]:
    """The lines of the live view on a terminal of this size."""
    console = Console(file=io.StringIO(), width=width, height=height)
    with console.capture() as captured:
        console.print(live.fitted_screen(snapshot, console))
    return captured.get().splitlines()


def test_a_trainer_that_is_down_is_listed_before_the_environments_that_are() -> None:
    lines = printed(live.actor_table(CROWD.actors)).splitlines()
    assert lines[1].split() == ["trainer", "backoff", "out", "of", "memory"]


@pytest.mark.parametrize(("height", "width"), [(40, 80), (50, 200), (24, 80)])
def test_the_live_view_of_a_large_run_fits_the_screen_with_its_worst_task_and_its_worst_actor(
    height: int, width: int
) -> None:
    lines = shown_on(height, width)
    assert len(lines) <= height
    text = "\n".join(lines)
    assert all(f"alarm number {number}" in text for number in range(len(NOTICES)))
    assert "until" in text
    assert "trainer" in text


def test_the_live_view_fits_the_screen_also_if_the_actors_left_out_are_in_many_states() -> None:
    states = ("quarantined", "backoff", "starting", "failed", "running")
    mixed = replace(
        CROWD,
        actors=tuple(actor(f"env-{n:03}", state=states[n // 40], last_reason=NOTICES[0]) for n in range(200)),
    )
    for height, width in ((40, 80), (50, 100)):
        assert len(shown_on(height, width, mixed)) <= height


def test_on_a_low_terminal_the_header_leaves_half_of_the_lines_to_the_actors() -> None:
    windows = tuple(
        SuccessWindow(begins_s=60.0 * n, ends_s=60.0 * (n + 1), successes=3, episodes=4) for n in range(3)
    )
    run = replace(
        SNAPSHOT, notices=(f"the alarm one_action is raised: {'x' * 200}",), success_windows=windows
    )
    console = Console(file=io.StringIO(), width=80, height=15)
    head = live.fitted_header(run, console)

    assert live.lines_of(head, console) <= 7
    text = printed(head, 80)
    assert all(word in text for word in ("training", "success 43 %", "alive 4/5", "one_action"))
    assert "dropped 19" not in text


def test_a_live_view_with_room_shows_remarks_and_all_rows() -> None:
    console = Console(file=io.StringIO(), width=160, height=50)
    assert printed(live.fitted_screen(SNAPSHOT, console)) == printed(live.screen(SNAPSHOT))
