"""The OSWorld adapter against a guest server that speaks the protocol, and misbehaves in its ways."""

import asyncio
import errno
import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from dart.config.injected_faults import InjectedFault
from dart.config.machine_address import MachineAddress
from dart.config.sections import FaultsSettings, OSWorldSettings
from dart.core.actions import (
    Action,
    Click,
    Drag,
    Hotkey,
    Hover,
    KeyDown,
    KeyUp,
    LeftDouble,
    RightSingle,
    Scroll,
    ScrollHere,
    Type,
    Wait,
)
from dart.core.png import png_size
from dart.core.types import FaultKind, Outcome
from dart.environments.fault_injection import FaultyEnvironment, InjectionLog, read_injections
from dart.environments.faults import (
    ActionNotConfirmed,
    ApplicationDied,
    CallFailed,
    CorruptFrame,
    DirtyStart,
    DiskRefused,
    EnvironmentFault,
    EvaluatorFailed,
    FileUnreachable,
    FrozenFrame,
    InfrastructureFault,
    MachineDied,
    MachineHung,
    MachineNotReady,
    MachineTaken,
    TaskUnsupported,
    UnknownTask,
    WindowManagerDied,
)
from dart.environments.osworld import scoring_process
from dart.environments.osworld.downloads import DownloadFailed
from dart.environments.osworld.environment import OSWorldEnvironment, _opens_window
from dart.environments.osworld.guest import Executed, Guest
from dart.environments.osworld.guest_network import NetworkAway
from dart.environments.osworld.judgements import Judged
from dart.environments.osworld.keyboard import KEY_PAUSE_S, PASTE_PAUSE_S
from dart.environments.osworld.providers import MachineLease
from dart.environments.osworld.tasks import SetupStep
from dart.environments.protocol import EpisodeKey
from dart.environments.scoring import reward_of
from tests.unit.environments.osworld import guest_server as guest_server_module
from tests.unit.environments.osworld.guest_server import COMMAND_SECONDS, FakeDesktop, guest_server

PYAUTOGUI_PAUSE_S = 0.1
"""How long pyautogui waits after each of its calls."""

pytestmark = pytest.mark.slow

RENAME = {
    "id": "e0df059f",
    "snapshot": "os",
    "instruction": "Please rename the directory named todo_list_Jan_1 into todo_list_Jan_2.",
    "source": "https://example.com",
    "config": [
        {"type": "execute", "parameters": {"command": "mkdir todo_list_Jan_1", "shell": True}},
        {"type": "launch", "parameters": {"command": ["gnome-terminal"]}},
        {"type": "activate_window", "parameters": {"window_name": "gnome-terminal"}},
    ],
    "trajectory": "trajectories/e0df059f",
    "related_apps": ["os"],
    "evaluator": {
        "func": "check_include_exclude",
        "result": {"type": "vm_command_line", "command": "ls -d todo_list_Jan_2 || true", "shell": True},
        "expected": {"type": "rule", "rules": {"include": ["todo_list_Jan_2"], "exclude": []}},
    },
}
REPORT = {
    "id": "report",
    "instruction": "Write 'done' into ~/report.txt.",
    "config": [],
    "evaluator": {
        "func": "compare_text_file",
        "result": {"type": "vm_file", "path": "/home/user/report.txt", "dest": "report.txt"},
        "expected": {"type": "vm_file", "path": "/home/user/expected.txt", "dest": "expected.txt"},
        "options": {"ignore_case": True},
    },
}
PAGES = {
    "id": "pages",
    "instruction": "Look at both pages.",
    "config": [
        {"type": "launch", "parameters": {"command": ["google-chrome", "--remote-debugging-port=1337"]}},
        {
            "type": "chrome_open_tabs",
            "parameters": {"urls_to_open": ["https://a.example/x#y", "https://b.example"]},
        },
        {"type": "chrome_close_tabs", "parameters": {"urls_to_close": ["https://www.B.example/"]}},
    ],
    "evaluator": {
        "func": "is_there",
        "result": {"type": "accessibility_tree"},
    },
}
IMPOSSIBLE = {
    "id": "impossible",
    "instruction": "Turn the desktop inside out.",
    "config": [],
    "evaluator": {"func": "infeasible"},
}
DOWNLOAD = REPORT | {
    "id": "download",
    "config": [
        {"type": "download", "parameters": {"files": [{"url": "https://x.test/a", "path": "/home/user/a"}]}}
    ],
}
TASKS = {
    "os/rename": RENAME,
    "os/report": REPORT,
    "os/impossible": IMPOSSIBLE,
    "os/download": DOWNLOAD,
    "chrome/pages": PAGES,
}
DEADLINE_S = 30.0


class FakeProvider:
    """Lends fakes; each one that is lent begins with an empty home."""

    def __init__(self, tmp_path: Path) -> None:
        self._homes = tmp_path / "homes"
        self.leased: list[FakeDesktop] = []
        self.released = 0
        self.reverted: list[str] = []
        self.prepare: Callable[[FakeDesktop], None] = lambda desktop: None

    @property
    def desktop(self) -> FakeDesktop:
        return self.leased[-1]

    async def acquire(self, *, deadline_s: float) -> MachineLease:
        home = self._homes / str(len(self.leased))
        home.mkdir(parents=True)
        (home / "expected.txt").write_text("done")
        self.leased.append(FakeDesktop(home))
        self.prepare(self.desktop)
        return MachineLease(name=f"vm {len(self.leased)}", address=MachineAddress(host="vm.test"))

    async def revert(self, snapshot: str, *, deadline_s: float) -> None:
        self.reverted.append(snapshot)
        for path in self.desktop.home.iterdir():
            if path.name not in ("expected.txt", ".cache"):
                path.rmdir() if path.is_dir() else path.unlink()
        self.desktop.windows.clear()

    async def release(self) -> None:
        self.released += 1

    def guest_of(self, name: str, address: MachineAddress) -> Guest:
        return Guest(name, address, httpx2.ASGITransport(app=guest_server(self.desktop)))


@pytest.fixture
def provider(tmp_path: Path) -> FakeProvider:
    return FakeProvider(tmp_path)


@pytest.fixture
def make(tmp_path: Path, provider: FakeProvider, evaluators: Path) -> Callable[..., OSWorldEnvironment]:
    folder = tmp_path / "examples"
    for name, task in TASKS.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(task))

    def made(
        name: str = "env-000", keep: Callable[[Judged], None] = lambda _: None, **settings: Any
    ) -> OSWorldEnvironment:
        values = {"tasks": folder, "pause_s": 0.0, "evaluators": evaluators} | settings
        cache, scratch = tmp_path / "cache", tmp_path / "scratch" / name
        guest_of = provider.guest_of
        return OSWorldEnvironment(OSWorldSettings(**values), provider, cache, scratch, guest_of, keep)

    return made


@pytest.fixture
async def environment(make: Callable[..., OSWorldEnvironment]) -> AsyncIterator[OSWorldEnvironment]:
    made = make()
    yield made
    await made.close()


async def reset(environment: Any, task: str = "os/rename", deadline_s: float = DEADLINE_S) -> Any:
    return await environment.reset(f"osworld/{task}", 0, deadline_s=deadline_s)


# ---- an episode ----


async def test_an_episode_is_set_up_seen_acted_on_and_scored(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    seen = await reset(environment)
    assert (png_size(seen.screenshot), seen.instruction) == ((1920, 1080), RENAME["instruction"])
    desktop = provider.desktop
    assert (desktop.home / "todo_list_Jan_1").is_dir()
    assert desktop.launched == [["gnome-terminal"]]
    assert desktop.activated == [{"window_name": "gnome-terminal", "strict": False, "by_class": False}]
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0
    (desktop.home / "todo_list_Jan_1").rename(desktop.home / "todo_list_Jan_2")
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0


@pytest.mark.parametrize(
    ("action", "done"),
    [
        (Click(12, 34), ["click(12, 34)"]),
        (LeftDouble(1, 2), ["doubleClick(1, 2)"]),
        (RightSingle(1, 2), ["rightClick(1, 2)"]),
        (Drag(1, 2, 3, 4), ["moveTo(1, 2)", "dragTo(3, 4, duration=0.5, button='left')"]),
        (Hotkey(("ctrl", "shift", "t")), ["hotkey('ctrl', 'shift', 't')"]),
        (Hotkey(("meta", "e")), ["hotkey('win', 'e')"]),
        (Scroll(5, 6, "down"), ["scroll(-5, x=5, y=6)"]),
        (Scroll(5, 6, "right"), ["hscroll(5, x=5, y=6)"]),
        (ScrollHere("down"), ["scroll(-5)"]),
        (Hover(5, 6), ["moveTo(5, 6)"]),
        (KeyDown("meta"), ["keyDown('win')"]),
        (KeyUp("ctrl"), ["keyUp('ctrl')"]),
        (Type("it's\n"), ['write("it\'s", interval=0.02)', "press('enter')"]),
        (Type("a<b"), ["write('a', interval=0.02)", "hotkey('shift', ',')", "write('b', interval=0.02)"]),
        (Type("ä€"), ["hotkey('ctrl', 'v')", "pasted 'ä€'"]),
        (Wait(), []),
    ],
)
async def test_an_action_arrives_once_as_mouse_and_keyboard(
    environment: OSWorldEnvironment,
    provider: FakeProvider,
    action: Action,
    done: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dart.environments.osworld.keyboard.PASTE_PAUSE_S", 0.0)
    await reset(environment)
    await environment.step(action, deadline_s=DEADLINE_S)
    assert provider.desktop.done == done


@pytest.mark.parametrize(
    ("text", "least_s"),
    [
        ("x" * 5000, 5000 * KEY_PAUSE_S),
        ("äx" * 400, 400 * (PASTE_PAUSE_S + KEY_PAUSE_S)),
        ("x\n" * 1000, 1000 * (KEY_PAUSE_S + PYAUTOGUI_PAUSE_S)),
    ],
)
async def test_a_long_text_has_the_time_that_it_takes_and_is_typed_once_by_programs_that_the_guest_lets_end(
    environment: OSWorldEnvironment,
    provider: FakeProvider,
    text: str,
    least_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dart.environments.osworld.keyboard.PASTE_PAUSE_S", 0.0)
    deadlines: list[float] = []
    python = Guest.python

    async def noted(self: Guest, code: str, *, deadline_s: float) -> Executed:
        deadlines.append(deadline_s)
        return await python(self, code, deadline_s=deadline_s)

    await reset(environment)
    monkeypatch.setattr(Guest, "python", noted)
    opened = open_descriptors()
    await environment.step(Type(text), deadline_s=DEADLINE_S)

    assert open_descriptors() < opened + 20, "the programs leave descriptors open"
    assert deadlines[0] >= least_s
    assert len(deadlines) > least_s / COMMAND_SECONDS
    assert typed(provider.desktop.done) == text


def open_descriptors() -> int:
    """Of this process, in which the guest's programs run, too."""
    return len(list(Path("/proc/self/fd").iterdir()))


def typed(done: list[str]) -> str:
    """The text that these input calls entered."""
    entered = ""
    for call in done:
        kind, _, rest = call.partition("(")
        if kind == "write":
            entered += rest.split("'")[1]
        elif kind == "press":
            entered += "\n"
        elif call.startswith("pasted"):
            entered += call.split("'")[1]
    return entered


async def test_nothing_is_pasted_before_the_clipboard_has_what_was_copied(
    environment: OSWorldEnvironment, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.environments.osworld.keyboard.PASTE_PAUSE_S", 0.0)
    await reset(environment)
    provider.desktop.faults.add("copies_late")
    await environment.step(Type("ä"), deadline_s=DEADLINE_S)
    assert provider.desktop.done == ["hotkey('ctrl', 'v')", "pasted 'ä'"]
    monkeypatch.setattr("dart.environments.osworld.keyboard.OWNED_WITHIN_S", 0.0)
    with pytest.raises(ActionNotConfirmed, match="the copied text did not arrive in the clipboard"):
        await environment.step(Type("ö"), deadline_s=DEADLINE_S)


async def test_an_action_that_something_on_the_way_repeats_is_applied_once_and_a_fault(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    await reset(environment)
    provider.desktop.faults.add("applied_twice")
    with pytest.raises(ActionNotConfirmed, match="FileExistsError"):
        await environment.step(Click(1, 2), deadline_s=DEADLINE_S)
    assert provider.desktop.done == ["click(1, 2)"]


async def test_an_action_whose_answer_is_lost_is_a_fault_and_not_sent_again(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    await reset(environment)
    provider.desktop.faults.add("reply_lost")
    before = len(provider.desktop.requests)
    with pytest.raises(MachineDied, match="the connection broke"):
        await environment.step(Click(1, 2), deadline_s=DEADLINE_S)
    assert provider.desktop.requests[before:] == ["POST /execute"]
    assert provider.desktop.done == ["click(1, 2)"]


async def test_an_action_the_guest_could_not_carry_out_is_a_fault(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    await reset(environment)
    provider.desktop.faults.add("python_fails")
    with pytest.raises(ActionNotConfirmed, match="No module named 'pyautogui'"):
        await environment.step(Click(1, 2), deadline_s=DEADLINE_S)


# ---- two programs on one machine ----

Call = Callable[[OSWorldEnvironment], Coroutine[Any, Any, object]]


@pytest.fixture
async def sharing(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[OSWorldEnvironment, OSWorldEnvironment]]:
    """Two environments on one machine, as two programs have them; the first is reset."""
    first, second = make("env-000", renew="keep"), make("env-001", renew="keep")
    await reset(first, "os/report")
    lease = MachineLease(name="vm 1", address=MachineAddress(host="vm.test"))

    async def lends_the_same(*, deadline_s: float) -> MachineLease:
        return lease

    monkeypatch.setattr(provider, "acquire", lends_the_same)
    yield first, second
    for one in (first, second):
        await one.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda first: first.step(Click(1, 2), deadline_s=DEADLINE_S),
        lambda first: first.evaluate(deadline_s=DEADLINE_S),
    ],
)
async def test_an_episode_ends_in_a_fault_and_does_nothing_once_another_program_reset_its_machine(
    sharing: tuple[OSWorldEnvironment, OSWorldEnvironment], provider: FakeProvider, call: Call
) -> None:
    first, second = sharing
    await reset(second, "os/report")
    (provider.desktop.home / "report.txt").write_text("done")
    with pytest.raises(MachineTaken, match="vm 1 was reset or reverted by another program"):
        await call(first)
    assert provider.desktop.done == []
    await second.step(Click(3, 4), deadline_s=DEADLINE_S)
    assert await second.evaluate(deadline_s=DEADLINE_S) == 1.0


async def test_an_episode_ends_in_a_fault_when_another_program_resets_its_machine_during_its_evaluation(
    sharing: tuple[OSWorldEnvironment, OSWorldEnvironment], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sharing
    file = Guest.file

    async def reset_before(self: Guest, path: str, *, deadline_s: float) -> bytes | None:
        monkeypatch.setattr(Guest, "file", file)
        await reset(second, "os/report")
        return await file(self, path, deadline_s=deadline_s)

    monkeypatch.setattr(Guest, "file", reset_before)
    with pytest.raises(MachineTaken):
        await first.evaluate(deadline_s=DEADLINE_S)


async def test_an_episode_ends_in_a_fault_when_another_program_has_just_reverted_its_machine(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    await reset(environment)
    await provider.revert("os", deadline_s=DEADLINE_S)
    with pytest.raises(MachineTaken):
        await environment.evaluate(deadline_s=DEADLINE_S)


async def test_a_policy_that_empties_the_cache_of_its_home_goes_on(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    await reset(environment)
    for x in (1, 2):
        await environment.step(Click(x, x), deadline_s=DEADLINE_S)
        shutil.rmtree(provider.desktop.home / ".cache")
    assert provider.desktop.done == ["click(1, 1)", "click(2, 2)"]
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


# ---- evaluation ----


async def test_a_result_that_is_not_there_is_worth_nothing_and_no_fault(
    environment: OSWorldEnvironment,
) -> None:
    await reset(environment, "os/report")
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


@pytest.mark.parametrize("success", [0.1, 0.3])
async def test_a_policy_whose_failures_leave_no_file_looks_no_better_than_it_is(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider, success: float
) -> None:
    environment = make(renew="keep")
    draw, scores, judged = Random(1), [], 6
    await reset(environment, "os/report")
    results = [draw.random() < success for _ in range(judged)]
    for succeeds in results:
        (provider.desktop.home / "report.txt").unlink(missing_ok=True)
        if succeeds:
            (provider.desktop.home / "report.txt").write_text("done")
        scores.append(await environment.evaluate(deadline_s=DEADLINE_S))
    assert scores == [float(one) for one in results]
    await environment.close()


MISSING = "/home/user/missing"


def write_report_task(tmp_path: Path, step: dict[str, Any]) -> None:
    """Give the task `os/report` a step before its evaluation, and after it one that makes the file `next`."""
    following = {"type": "execute", "parameters": {"command": ["touch", "next"]}}
    evaluator = REPORT["evaluator"] | {"postconfig": [step, following]}  # type: ignore[operator]
    path = tmp_path / "examples" / "os" / "report.json"
    path.write_text(json.dumps(REPORT | {"evaluator": evaluator}))


async def test_a_step_before_the_evaluation_refuses_a_machine_that_lacks_a_program(
    environment: OSWorldEnvironment, tmp_path: Path
) -> None:
    write_report_task(tmp_path, {"type": "execute", "parameters": {"command": ["no-such-program"]}})
    await reset(environment, "os/report")
    with pytest.raises(TaskUnsupported, match="program 'no-such-program' is not installed"):
        await environment.evaluate(deadline_s=DEADLINE_S)


@pytest.mark.parametrize(
    "step",
    [
        {"type": "open", "parameters": {"path": MISSING}},
        {"type": "open", "parameters": {"path": "/home/user/expected.txt"}},
        {"type": "execute", "parameters": {"command": [MISSING]}},
        {"type": "command", "parameters": {"command": ["sh", "-c", "exec sleep 9"]}},
        {"type": "execute", "parameters": {"command": ["printf", "\\377"]}},
    ],
)
async def test_a_step_before_the_evaluation_that_fails_by_what_the_policy_left_is_no_fault(
    environment: OSWorldEnvironment,
    provider: FakeProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: dict[str, Any],
) -> None:
    write_report_task(tmp_path, step)
    await reset(environment, "os/report")
    provider.desktop.faults.add("opens_no_window")
    monkeypatch.setattr("dart.environments.osworld.setup_steps.WINDOW_MARGIN_S", DEADLINE_S)
    monkeypatch.setattr("dart.environments.osworld.setup_steps.LEAST_PATIENCE_S", 0.01)
    monkeypatch.setattr(guest_server_module, "COMMAND_SECONDS", 0.1)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0
    assert (provider.desktop.home / "next").exists()
    (provider.desktop.home / "report.txt").write_text("done")
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0
    provider.desktop.manager = None
    with pytest.raises(WindowManagerDied):
        await environment.evaluate(deadline_s=DEADLINE_S)


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ({"type": "launch", "parameters": {"command": ["not-installed"]}}, TaskUnsupported),
        ({"type": "change_wallpaper", "parameters": {"path": MISSING}}, CallFailed),
        ({"type": "googledrive", "parameters": {}}, TaskUnsupported),
    ],
)
async def test_a_step_before_the_evaluation_that_fails_otherwise_is_a_fault(
    environment: OSWorldEnvironment,
    provider: FakeProvider,
    tmp_path: Path,
    step: dict[str, Any],
    fault: type[EnvironmentFault],
) -> None:
    write_report_task(tmp_path, step)
    provider.prepare = lambda desktop: desktop.not_installed.add("not-installed")
    await reset(environment, "os/report")
    with pytest.raises(fault):
        await environment.evaluate(deadline_s=DEADLINE_S)
    assert not (provider.desktop.home / "next").exists()


async def test_an_evaluation_without_room_for_its_child_has_run_no_step_and_can_be_repeated(
    environment: OSWorldEnvironment, provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_report_task(tmp_path, {"type": "sleep", "parameters": {"seconds": 0}})
    await reset(environment, "os/report")
    (provider.desktop.home / "report.txt").write_text("done")
    with monkeypatch.context() as patch:
        patch.setattr("dart.environments.osworld.scoring_process.tempfile.TemporaryDirectory", full)
        with pytest.raises(OSError, match="No space left"):
            await environment.evaluate(deadline_s=DEADLINE_S)
    assert not (provider.desktop.home / "next").exists()
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0
    assert (provider.desktop.home / "next").exists()


async def test_steps_before_the_evaluation_whose_output_cannot_be_kept_are_not_repeated(
    environment: OSWorldEnvironment, provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_report_task(tmp_path, {"type": "execute", "parameters": {"command": ["true"], "stdout": "said"}})
    await reset(environment, "os/report")
    monkeypatch.setattr(scoring_process, "has_sandbox", lambda: False)  # it would write a file, too
    monkeypatch.setattr(Path, "write_text", full)
    what = "a file of a step 'execute' cannot be read or written .*No space left"
    with pytest.raises(DiskRefused, match=what) as refused:
        await environment.evaluate(deadline_s=DEADLINE_S)
    assert refused.value.kind is FaultKind.SYSTEM


async def test_environments_that_play_the_same_task_judge_their_own_files(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider
) -> None:
    environments = [make("env-000"), make("env-001")]
    for environment, text in zip(environments, ("done", "nothing"), strict=True):
        await reset(environment, "os/report")
        (provider.desktop.home / "report.txt").write_text(text)
    scores = await asyncio.gather(*(one.evaluate(deadline_s=DEADLINE_S) for one in environments))
    assert scores == [1.0, 0.0]
    for environment in environments:
        await environment.close()


async def test_each_score_is_kept_with_its_evaluators_and_the_hash_of_its_task(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider, tmp_path: Path
) -> None:
    kept: list[Judged] = []
    environment = make(keep=kept.append)
    key = EpisodeKey(rollout_id=3, attempt=1, fence=2)
    await environment.reset("osworld/os/report", 5, deadline_s=DEADLINE_S, episode=key)
    (provider.desktop.home / "report.txt").write_text("done")
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0
    assert kept == []
    await environment.keep_judgement()
    await environment.keep_judgement()
    (one,) = kept
    file = (tmp_path / "examples" / "os" / "report.json").read_bytes()
    assert (one.task_id, one.seed, one.key) == ("osworld/os/report", 5, key)
    assert one.judgement.score == 1.0
    assert one.judgement.evaluator == "desktop-env 0.0.1"
    assert one.judgement.task_sha256 == hashlib.sha256(file).hexdigest()
    await environment.close()


async def test_only_who_declares_an_infeasible_task_infeasible_is_paid(
    environment: OSWorldEnvironment,
) -> None:
    await reset(environment, "os/impossible")
    score = await environment.evaluate(deadline_s=DEADLINE_S)
    pays = environment.is_infeasible("osworld/os/impossible")
    assert pays
    assert not environment.is_infeasible("osworld/os/rename")
    paid = {outcome: reward_of(outcome, score, pays) for outcome in Outcome}
    assert [outcome for outcome, reward in paid.items() if reward] == [Outcome.INFEASIBLE]


async def test_what_can_be_no_result_is_none_instead_of_a_fault_of_the_machine(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider
) -> None:
    environment = make()
    await reset(environment, "os/report")
    (provider.desktop.home / "report.txt").mkdir()
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0
    await environment.close()


async def test_a_result_that_is_too_large_to_be_read_is_worth_nothing(
    environment: OSWorldEnvironment,
    provider: FakeProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await reset(environment, "os/report")
    for name in ("report.txt", "expected.txt"):
        (provider.desktop.home / name).write_text("done" + " " * 4000)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0
    monkeypatch.setattr("dart.environments.osworld.guest.FILE_MOST_BYTES", 1000)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


async def test_a_window_that_is_not_there_is_seen_to_be_none(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    await reset(environment, "os/report")
    guest = provider.guest_of("vm", MachineAddress(host="vm.test"))
    assert await guest.window_size("VLC", deadline_s=1.0) is None
    provider.desktop.add_window("vlc")
    assert await guest.window_size("VLC", deadline_s=1.0) == {"width": 800, "height": 600}


# ---- readiness, renewal, cleanliness ----


async def test_a_guest_without_a_window_manager_is_not_ready(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    def without(desktop: FakeDesktop) -> None:
        desktop.manager = None

    provider.prepare = without
    with pytest.raises(MachineNotReady, match=r"vm 1 was not ready within .* s: no window manager"):
        await reset(environment, deadline_s=0.3)


async def test_readiness_is_waited_for(environment: OSWorldEnvironment, provider: FakeProvider) -> None:
    """A window manager comes with the third screenshot; no step of the task is taken before."""
    managers: list[str | None] = []

    def slow(desktop: FakeDesktop) -> None:
        desktop.manager = None
        answers = iter(range(2))
        take, run = desktop.screenshot, desktop.command

        def screenshot() -> bytes:
            if next(answers, None) is None:
                desktop.manager = "mutter"
            return take()

        def command(words: Any, shell: bool) -> tuple[str, str, int]:
            if shell:  # the task's own; a look is a program of its own
                managers.append(desktop.manager)
            return run(words, shell)

        desktop.screenshot = screenshot  # type: ignore[method-assign]
        desktop.command = command  # type: ignore[method-assign]

    provider.prepare = slow
    await reset(environment)
    assert managers == ["mutter"]


async def test_a_task_whose_window_has_no_focus_is_not_ready(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    def unfocused(desktop: FakeDesktop) -> None:
        add = desktop.add_window
        desktop.add_window = lambda title, **_: add(title, active=False)  # type: ignore[method-assign]

    provider.prepare = unfocused
    with pytest.raises(MachineNotReady, match="no window of the task is active"):
        await reset(environment, deadline_s=0.7)


@pytest.mark.parametrize(
    ("command", "wants"),
    [
        (["google-chrome", "--remote-debugging-port=1337"], True),
        ("gimp picture.png", True),
        (["socat", "tcp-listen:9222,fork", "tcp:localhost:1337"], False),
        (["pkill", "chrome"], False),
        ("/usr/bin/python3 serve.py", False),
        ([], False),
    ],
)
def test_only_programs_with_windows_are_waited_for(command: object, wants: bool) -> None:
    assert _opens_window(SetupStep("launch", {"command": command})) is wants


async def test_what_the_system_itself_writes_makes_no_machine_dirty(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider
) -> None:
    environment = make(renew="revert")
    await reset(environment)
    home = provider.desktop.home
    for name in ("server/screenshots/screenshot.png", "snap/chromium/state", ".cache/x", "Documents/.x"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")

    async def only_windows(snapshot: str, *, deadline_s: float) -> None:
        provider.desktop.windows.clear()
        (home / "todo_list_Jan_1").rmdir()

    provider.revert = only_windows  # type: ignore[method-assign]
    await reset(environment)
    assert len(provider.leased) == 1
    assert (home / "server/screenshots/screenshot.png").exists()
    (home / "Documents/a person's.txt").write_text("x")
    with pytest.raises(DirtyStart, match=r"other files than .*: Documents/a person's\.txt$"):
        await reset(environment)
    await environment.close()


async def test_every_episode_has_a_new_machine_by_default(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    for _ in range(3):
        await reset(environment)
    assert (len(provider.leased), provider.released) == (3, 3)


@pytest.mark.parametrize(("renew", "released"), [("recreate", 1), ("revert", 0), ("keep", 0)])
async def test_a_machine_that_no_later_episode_can_use_is_given_back_while_there_is_no_work(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider, renew: str, released: int
) -> None:
    environment = make(renew=renew)
    await reset(environment, "os/report")
    released_before = provider.released
    await environment.give_back()
    assert provider.released == released_before + released
    assert await environment.healthy(deadline_s=DEADLINE_S)
    await reset(environment, "os/report")
    assert len(provider.leased) == 1 + released
    await environment.close()


async def test_a_machine_can_be_brought_back_to_its_snapshot_instead(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider
) -> None:
    environment = make(renew="revert")
    for _ in range(3):
        await reset(environment)
    assert (len(provider.leased), provider.reverted) == (1, ["os", "os", "os"])
    await environment.close()


async def test_a_machine_is_compared_with_the_first_one_of_its_snapshot(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider
) -> None:
    """`os/rename` names the snapshot `os`; `os/report` names none, so that it has `init_state`."""
    environment = make(renew="revert")

    async def revert(snapshot: str, *, deadline_s: float) -> None:
        await FakeProvider.revert(provider, snapshot, deadline_s=deadline_s)
        if snapshot == "os":
            (provider.desktop.home / "of the snapshot.txt").write_text("x")
            provider.desktop.add_window("Terminal of the snapshot")

    provider.revert = revert  # type: ignore[method-assign]
    for task in ("os/report", "os/rename", "os/report", "os/rename"):
        await reset(environment, task)
    assert provider.reverted == ["init_state", "os", "init_state", "os"]

    async def reverts_to_the_other(snapshot: str, *, deadline_s: float) -> None:
        await revert("os", deadline_s=deadline_s)

    provider.revert = reverts_to_the_other  # type: ignore[method-assign]
    with pytest.raises(DirtyStart, match="of the snapshot"):
        await reset(environment, "os/report")
    await environment.close()


async def test_a_revert_that_left_something_behind_is_found(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider
) -> None:
    environment = make(renew="revert")
    await reset(environment)

    async def does_nothing(snapshot: str, *, deadline_s: float) -> None:
        (provider.desktop.home / "left.txt").write_text("x")

    provider.revert = does_nothing  # type: ignore[method-assign]
    with pytest.raises(
        DirtyStart, match=r"other files than on a clean machine: left.txt.*windows.*gnome-terminal"
    ):
        await reset(environment)
    await environment.close()


async def test_a_machine_that_is_kept_is_taken_as_it_is(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider
) -> None:
    environment = make(renew="keep")
    await reset(environment, "os/report")
    (provider.desktop.home / "report.txt").write_text("done")
    await reset(environment, "os/report")
    assert len(provider.leased) == 1
    await environment.close()


async def test_a_window_that_was_there_before_the_task_is_none_of_the_task(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    def shows_its_icons(desktop: FakeDesktop) -> None:
        desktop.add_window("Terminal of the session")
        add = desktop.add_window
        desktop.add_window = lambda title, **_: add(title, kind="splash")  # type: ignore[method-assign]

    provider.prepare = shows_its_icons
    with pytest.raises(MachineNotReady, match="no window of the task"):
        await reset(environment, deadline_s=0.7)


async def test_the_next_step_waits_for_the_window_of_the_program_that_was_started(
    environment: OSWorldEnvironment, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.environments.osworld.environment.ASK_EVERY_S", 0.01)
    late: list[str] = []

    def starts_slowly(desktop: FakeDesktop) -> None:
        add, seen = desktop.add_window, desktop.state
        desktop.add_window = lambda title, **_: late.append(title)  # type: ignore[assignment, method-assign]

        def looks() -> dict[str, Any]:
            if len(late) == 1 and not desktop.activated:
                late.append("asked once")
            elif len(late) == 2 and not desktop.windows:
                add(late[0])
            return seen()

        desktop.state = looks  # type: ignore[method-assign]

    provider.prepare = starts_slowly
    await reset(environment)
    assert [window["title"] for window in provider.desktop.windows] == ["gnome-terminal"]
    assert provider.desktop.activated


async def test_a_program_that_is_not_installed_is_the_tasks_matter_and_not_the_machines(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    provider.prepare = lambda desktop: desktop.not_installed.add("gnome-terminal")
    with pytest.raises(TaskUnsupported, match="program 'gnome-terminal' is not installed on its machine"):
        await reset(environment)


@pytest.fixture
def no_file_server(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let every download fail; the last value of the list says whether it may succeed later."""
    is_transient = [True]

    async def failing(url: str, **_: Any) -> bytes:
        raise DownloadFailed("its server says no", is_transient=is_transient[-1])

    monkeypatch.setattr("dart.environments.osworld.setup_steps.download", failing)
    return is_transient


async def test_a_file_that_cannot_be_downloaded_now_costs_no_machine(
    environment: OSWorldEnvironment, provider: FakeProvider, no_file_server: list[bool]
) -> None:
    with pytest.raises(FileUnreachable, match=r"https://x\.test/a cannot be downloaded now") as refused:
        await reset(environment, "os/download")
    assert refused.value.kind is FaultKind.SYSTEM, "the task and the environment are not to blame"
    assert provider.leased == []


@pytest.mark.parametrize(("is_transient", "fault"), [(True, FileUnreachable), (False, TaskUnsupported)])
async def test_a_file_of_the_evaluation_that_is_away_is_found_before_the_episode(
    environment: OSWorldEnvironment,
    provider: FakeProvider,
    no_file_server: list[bool],
    tmp_path: Path,
    is_transient: bool,
    fault: type[EnvironmentFault],
) -> None:
    no_file_server.append(is_transient)
    expected = {"type": "cloud_file", "path": "https://x.test/gold", "dest": "gold.txt"}
    task = REPORT | {"evaluator": REPORT["evaluator"] | {"expected": expected}}  # type: ignore[operator]
    (tmp_path / "examples" / "os" / "report.json").write_text(json.dumps(task))
    with pytest.raises(fault, match=r"https://x\.test/gold cannot be downloaded"):
        await reset(environment, "os/report")
    assert provider.leased == []


async def test_files_that_are_in_the_cache_are_enough_without_a_network(
    environment: OSWorldEnvironment, provider: FakeProvider, no_file_server: list[bool], tmp_path: Path
) -> None:
    (tmp_path / "cache" / "download").mkdir(parents=True)
    (tmp_path / "cache" / "download" / "a").write_text("cached")
    await reset(environment, "os/download")
    assert (provider.desktop.home / "a").read_text() == "cached"


async def test_a_file_that_opens_no_window_is_said_by_the_guest_before_we_give_up(
    environment: OSWorldEnvironment, provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.environments.osworld.setup_steps.LEAST_PATIENCE_S", 0.01)
    monkeypatch.setattr("dart.environments.osworld.setup_steps.WINDOW_MARGIN_S", DEADLINE_S)
    opens = {"config": [{"type": "open", "parameters": {"path": "/home/user/expected.txt"}}]}
    (tmp_path / "examples" / "os" / "report.json").write_text(json.dumps(REPORT | opens))
    provider.prepare = lambda desktop: desktop.faults.add("opens_no_window")
    with pytest.raises(CallFailed, match=r"Failed to find window for \['expected.txt'\]"):
        await reset(environment, "os/report")


async def test_tabs_are_opened_once_the_browser_serves_and_in_place_of_its_first_one(
    environment: OSWorldEnvironment, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.environments.osworld.setup_steps.UNTIL_EVERY_S", 0.01)

    def comes_up_late(desktop: FakeDesktop) -> None:
        class Requests(list[str]):
            def append(self, request: str) -> None:
                super().append(request)
                if request == "GET /platform":  # what is asked when nobody is at the browser's port
                    desktop.tabs = [
                        {"id": "0", "type": "page", "title": "New Tab", "url": "chrome://newtab/"}
                    ]

        desktop.requests = Requests()

    provider.prepare = comes_up_late
    await reset(environment, "chrome/pages")
    assert [tab["url"] for tab in provider.desktop.tabs or ()] == ["https://a.example/x#y"]


async def test_a_machine_that_has_lost_its_network_plays_no_task_that_opens_pages_of_the_web(
    environment: OSWorldEnvironment, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.environments.osworld.guest_network.COMES_UP_WITHIN_S", 0.0)
    provider.prepare = lambda desktop: desktop.faults.add("no_network")
    with pytest.raises(NetworkAway, match=r"none of a\.example, b\.example, www\..*; repair the network"):
        await reset(environment, "chrome/pages")
    assert provider.desktop.launched == []
    await reset(environment, "os/rename")


async def test_a_site_that_is_down_is_no_matter_of_the_machine_and_neither_is_a_network_that_comes_up_late(
    environment: OSWorldEnvironment, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.environments.osworld.guest_network.ASK_EVERY_S", 0.01)

    def comes_up_late(desktop: FakeDesktop) -> None:
        class Connected(list[str]):
            def append(self, host: str) -> None:
                super().append(host)
                if len(self) > 8:
                    desktop.faults.discard("no_network")

        desktop.connected, desktop.tabs = Connected(), []
        desktop.faults.add("no_network")
        desktop.sites_down = {"a.example", "b.example"}

    provider.prepare = comes_up_late
    await reset(environment, "chrome/pages")
    assert [tab["url"] for tab in provider.desktop.tabs or ()] == ["https://a.example/x#y"]


@pytest.mark.parametrize(
    ("hosts", "urls"),
    [((), ["https://a.example"]), (("b.example",), ["http://127.0.0.1:8000/x", "file:///x", "localhost/y"])],
)
async def test_the_network_is_not_asked_for_if_switched_off_or_for_pages_of_the_machine_itself(
    make: Callable[..., OSWorldEnvironment],
    provider: FakeProvider,
    tmp_path: Path,
    hosts: tuple[str, ...],
    urls: list[str],
) -> None:
    opens = {"config": [{"type": "chrome_open_tabs", "parameters": {"urls_to_open": urls}}]}
    (tmp_path / "examples" / "chrome" / "pages.json").write_text(json.dumps(PAGES | opens))

    def prepare(desktop: FakeDesktop) -> None:
        desktop.faults.add("no_network")
        desktop.tabs = []

    provider.prepare = prepare
    environment = make(network_hosts=hosts)
    await reset(environment, "chrome/pages")
    assert provider.desktop.connected == []
    await environment.close()


async def test_a_browser_that_never_serves_is_not_ready(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    with pytest.raises(MachineNotReady, match="its browser's debugging port does not answer"):
        await reset(environment, "chrome/pages", deadline_s=0.7)


async def test_a_first_machine_that_was_looked_at_too_early_is_outvoted_by_two_others(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    await reset(environment, "os/report")
    provider.prepare = lambda desktop: desktop.add_window("Terminal of the session")
    with pytest.raises(DirtyStart, match="Terminal of the session"):
        await reset(environment, "os/report")
    await reset(environment, "os/report")
    provider.prepare = lambda desktop: None
    with pytest.raises(DirtyStart, match="Terminal of the session"):
        await reset(environment, "os/report")


async def test_a_machine_that_is_reverted_outvotes_nobody(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider
) -> None:
    environment = make(renew="revert")
    await reset(environment, "os/report")

    async def leaves_it_dirty(snapshot: str, *, deadline_s: float) -> None:
        (provider.desktop.home / "left.txt").write_text("x")

    provider.revert = leaves_it_dirty  # type: ignore[method-assign]
    for _ in range(3):
        with pytest.raises(DirtyStart):
            await reset(environment, "os/report")
    await environment.close()


# ---- faults ----


@pytest.mark.parametrize(
    ("fault", "expected", "says"),
    [
        ("no_answer", MachineHung, "vm 1 did not respond during /screenshot"),
        ("http_500", CallFailed, "status 500: <html>Internal Server Error"),
        ("truncated", CorruptFrame, "expected a whole PNG"),
        ("wrong_size", CorruptFrame, "expected 1920x1080 pixels, got 640x1080"),
    ],
)
async def test_a_screenshot_that_cannot_be_had_is_a_fault_and_never_none(
    environment: OSWorldEnvironment,
    provider: FakeProvider,
    fault: str,
    expected: type[EnvironmentFault],
    says: str,
) -> None:
    await reset(environment)
    provider.desktop.faults.add(fault)
    with pytest.raises(expected, match=says):
        await environment.observe(deadline_s=0.1)
    await reset(environment)
    assert len(provider.leased) == 2


async def test_a_picture_that_stands_still_is_found_before_the_score_counts(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    await reset(environment)
    provider.desktop.faults.add("frozen")
    await environment.observe(deadline_s=DEADLINE_S)
    await environment.step(Click(1, 2), deadline_s=DEADLINE_S)
    await environment.observe(deadline_s=DEADLINE_S)
    with pytest.raises(FrozenFrame):
        await environment.evaluate(deadline_s=DEADLINE_S)


async def test_a_screen_that_an_action_does_not_change_is_not_frozen(
    environment: OSWorldEnvironment, provider: FakeProvider
) -> None:
    await reset(environment)
    before = await environment.observe(deadline_s=DEADLINE_S)
    await environment.step(Wait(), deadline_s=DEADLINE_S)
    assert await environment.observe(deadline_s=DEADLINE_S) == before
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0
    assert provider.desktop.pointer == (960, 540)


@pytest.mark.parametrize(
    ("breaks", "fault", "says"),
    [
        (lambda desktop: setattr(desktop, "manager", None), WindowManagerDied, "is gone"),
        (
            lambda desktop: desktop.windows[0].update(state="T"),
            ApplicationDied,
            "gnome-terminal.*is stopped",
        ),
    ],
)
async def test_what_no_picture_shows_is_found_before_the_score_counts(
    environment: OSWorldEnvironment,
    provider: FakeProvider,
    breaks: Callable[[FakeDesktop], None],
    fault: type[EnvironmentFault],
    says: str,
) -> None:
    await reset(environment)
    breaks(provider.desktop)
    with pytest.raises(fault, match=says):
        await environment.evaluate(deadline_s=DEADLINE_S)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (InjectedFault.CRASH, MachineDied),
        (InjectedFault.HANG, MachineHung),
        (InjectedFault.NEVER_READY, MachineHung),
        (InjectedFault.LOST_ACTION, ActionNotConfirmed),
        (InjectedFault.DOUBLED_ACTION, ActionNotConfirmed),
        (InjectedFault.FROZEN_FRAME, FrozenFrame),
        (InjectedFault.TRUNCATED_FRAME, CorruptFrame),
        (InjectedFault.BAD_EVALUATION, EvaluatorFailed),
        (InjectedFault.FAILED_RESET, InfrastructureFault),
        (InjectedFault.DIRTY_RESET, DirtyStart),
    ],
)
async def test_every_injected_fault_is_noticed_before_there_is_a_reward(
    environment: OSWorldEnvironment, kind: InjectedFault, fault: type[EnvironmentFault], tmp_path: Path
) -> None:
    rates = dict.fromkeys((other.value for other in InjectedFault), 0.0) | {kind.value: 1.0}
    log = InjectionLog(tmp_path / "faults", "env-000", lambda: 0.0)
    faulty = FaultyEnvironment(environment, FaultsSettings(enabled=True, **rates), "x", log)

    async def playing() -> None:
        await reset(faulty, deadline_s=0.5 if kind is InjectedFault.NEVER_READY else DEADLINE_S)
        for x in (1, 2, 3):
            await faulty.step(Click(x, x), deadline_s=0.2 if kind is InjectedFault.HANG else DEADLINE_S)
            await faulty.observe(deadline_s=DEADLINE_S)
        await faulty.evaluate(deadline_s=DEADLINE_S)

    with pytest.raises(fault):
        await playing()
    assert [injection.kind for injection in read_injections(tmp_path / "faults")] == [kind]


async def test_a_machine_that_was_still_being_started_is_given_back_when_the_environment_closes(
    make: Callable[..., OSWorldEnvironment], provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = asyncio.Event()

    async def starting(*, deadline_s: float) -> MachineLease:
        starts.set()
        await asyncio.Event().wait()
        raise AssertionError("the event is never set")

    monkeypatch.setattr(provider, "acquire", starting)
    environment = make()
    resetting = asyncio.create_task(reset(environment))
    await starts.wait()
    resetting.cancel()
    await asyncio.wait([resetting])
    released = provider.released
    await environment.close()
    assert provider.released == released + 1


async def test_a_machine_whose_release_was_cancelled_is_given_back_when_the_environment_closes(
    environment: OSWorldEnvironment, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reset(environment)
    begins, goes_on, is_released = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def releasing() -> None:
        begins.set()
        await goes_on.wait()
        is_released.set()

    monkeypatch.setattr(provider, "release", releasing)
    resetting = asyncio.create_task(reset(environment))
    await begins.wait()
    resetting.cancel()
    await asyncio.wait([resetting])
    goes_on.set()
    await environment.close()
    assert is_released.is_set()


async def test_a_guest_that_nobody_serves_is_said_to_be_unreachable() -> None:
    guest = Guest("vm 9", MachineAddress(host="127.0.0.1", server=1))
    with pytest.raises(MachineDied, match=r"vm 9 died during /screenshot: nothing answers at 127.0.0.1:1"):
        await guest.screenshot(deadline_s=DEADLINE_S)
    await guest.close()


async def test_a_task_that_is_not_there_or_cannot_be_played_is_the_tasks_fault(
    make: Callable[..., OSWorldEnvironment], tmp_path: Path
) -> None:
    folder = tmp_path / "other" / "os"
    folder.mkdir(parents=True)
    strange = RENAME | {"config": [{"type": "googledrive", "parameters": {}}]}
    (folder / "drive.json").write_text(json.dumps(strange))
    environment = make(tasks=tmp_path / "other")
    with pytest.raises(UnknownTask, match="did you mean osworld/os/drive"):
        await reset(environment, "os/driev")
    with pytest.raises(TaskUnsupported, match="googledrive"):
        await reset(environment, "os/drive")
    await environment.close()
