"""`dartrl osworld check` against the tests' guest server: what it finds, and that its remedies work."""

import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.config.machine_address import MachineAddress
from dart.config.sections import OSWorldSettings
from dart.environments.osworld.downloads import DownloadFailed
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.oracles import ORACLES
from dart.environments.osworld.providers import free_port
from dart.preflight import osworld
from dart.preflight.doctor import CheckVerdict
from dart.preflight.osworld import MachineCheckResult, Preflight, check_machines
from tests.unit.environments.osworld.fake_evaluators import make_evaluators
from tests.unit.environments.osworld.guest_server import FakeDesktop, guest_server

pytestmark = pytest.mark.slow

RENAME = "osworld/os/e0df059f-28a6-4169-924f-b9623e7184cc"
RENAME_TASK = {
    "instruction": "Rename the folder todo_list_Jan_1 on the desktop to todo_list_Jan_2.",
    "config": [
        {"type": "execute", "parameters": {"command": "mkdir ~/Desktop/todo_list_Jan_1", "shell": True}}
    ],
    "evaluator": {
        "func": "exact_match",
        "result": {
            "type": "vm_command_line",
            "command": "[ -d ~/Desktop/todo_list_Jan_2 ] && echo yes || echo no",
            "shell": True,
        },
        "expected": {"type": "rule", "rules": {"expected": "yes\n"}},
    },
}
NOTES_TASK = {
    "instruction": "Open the notes.",
    "config": [{"type": "launch", "parameters": {"command": ["notes"]}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": "echo no", "shell": True},
        "expected": {"type": "rule", "rules": {"expected": "yes\n"}},
    },
}
DOWNLOAD_STEP = {
    "type": "download",
    "parameters": {"files": [{"url": "https://x.test/a", "path": "/home/user/a"}]},
}
ACCOUNT_TASK = NOTES_TASK | {"config": [{"type": "login", "parameters": {}}]}
IMPOSSIBLE_TASK = NOTES_TASK | {"evaluator": {"func": "infeasible"}}


@pytest.fixture
def desktop(tmp_path: Path) -> FakeDesktop:
    (tmp_path / "home" / "Desktop").mkdir(parents=True)
    return FakeDesktop(tmp_path / "home")


@pytest.fixture
def preflight(tmp_path: Path, desktop: FakeDesktop, scoring: Path) -> Preflight:
    for name, task in ((RENAME.removeprefix("osworld/"), RENAME_TASK), ("os/impossible", IMPOSSIBLE_TASK)):
        path = tmp_path / "examples" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(task))
    settings = OSWorldSettings(
        tasks=tmp_path / "examples",
        evaluators=scoring,
        cache=tmp_path / "cache",
        addresses=("vm.test:5000",),
        renew="revert",
        revert_command=("find", f"{desktop.home}/Desktop", "-mindepth", "1", "-delete"),
        pause_s=0.0,
    )

    def guest_of(name: str, address: MachineAddress) -> Guest:
        return Guest(name, address, httpx2.ASGITransport(app=guest_server(desktop)))

    return Preflight(settings=settings, scratch=tmp_path / "scratch", deadline_s=30.0, guest_of=guest_of)


@pytest.fixture(scope="module")
def scoring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_evaluators(tmp_path_factory.mktemp("evaluators") / "venv")


def with_settings(preflight: Preflight, **changed: Any) -> Preflight:
    return replace(preflight, settings=preflight.settings.model_copy(update=changed))


def by_topic(found: list[MachineCheckResult]) -> dict[str, MachineCheckResult]:
    return {one.topic: one for one in found}


async def only_wrong(found: Coroutine[Any, Any, list[MachineCheckResult]]) -> MachineCheckResult:
    """The single finding."""
    (one,) = [one for one in await found if one.verdict is CheckVerdict.WRONG]
    return one


async def test_a_machine_that_is_well_plays_a_task_from_0_to_1_and_is_reverted(
    preflight: Preflight, desktop: FakeDesktop
) -> None:
    reported: list[MachineCheckResult] = []
    found = await check_machines(preflight, reported.append)
    assert found == reported
    assert [(one.topic, one.verdict.value) for one in found] == [
        (topic, "fine")
        for topic in (
            *("evaluators", "guest", "screen", "desktop", "output", "clipboard", "network"),
            *("os", "os reverted"),
        )
    ]
    assert {one.machine for one in found} == {"", "vm.test:5000"}
    assert "judged 0, played by its script, judged 1" in by_topic(found)["os"].found
    assert desktop.clipboard == osworld.CLIPBOARD_TEXT
    assert [path.name for path in (desktop.home / "Desktop").iterdir()] == ["todo_list_Jan_1"]


async def test_without_a_command_that_reverts_it_says_what_stays(preflight: Preflight) -> None:
    found = await check_machines(with_settings(preflight, renew="keep", revert_command=()))
    reverted = by_topic(found)["os reverted"]
    assert reverted.verdict is CheckVerdict.NOTE
    assert "revert_command" in reverted.remedy
    again = await only_wrong(check_machines(with_settings(preflight, renew="keep", revert_command=())))
    assert "is judged 1 before any action" in again.found
    assert "revert the machine" in again.remedy
    clean = await check_machines(preflight)
    assert all(one.verdict is CheckVerdict.FINE for one in clean)


async def test_a_machine_without_a_network_is_found_unless_nothing_of_the_web_is_asked_for(
    preflight: Preflight, desktop: FakeDesktop
) -> None:
    desktop.faults.add("no_network")
    wrong = await only_wrong(check_machines(preflight))
    assert wrong.topic == "network"
    assert "reaches none of www.google.com" in wrong.found
    assert "environments.osworld.network_hosts = []" in wrong.remedy
    found = await check_machines(with_settings(preflight, network_hosts=()))
    assert by_topic(found)["network"].verdict is CheckVerdict.NOTE


async def test_a_revert_that_restores_nothing_is_found(preflight: Preflight, desktop: FakeDesktop) -> None:
    wrong = await only_wrong(check_machines(with_settings(preflight, revert_command=("true",))))
    assert "judged 1 after the machine was reverted" in wrong.found
    assert "restores the snapshot" in wrong.remedy
    home = desktop.home
    script = ("sh", "-c", f"echo >> {home}/new; rm -r {home}/Desktop/*")
    wrong = await only_wrong(check_machines(with_settings(preflight, revert_command=script)))
    assert "reverting it failed" in wrong.found
    assert "new" in wrong.found
    assert "restores the snapshot" in wrong.remedy


async def test_a_machine_that_is_not_there_is_named_with_its_port_and_no_task_is_tried(
    preflight: Preflight,
) -> None:
    found = await check_machines(
        replace(with_settings(preflight, addresses=(f"127.0.0.1:{free_port()}",)), guest_of=Guest)
    )
    assert [one.topic for one in found] == ["evaluators", "guest"]
    assert found[1].verdict is CheckVerdict.WRONG
    assert f"nothing answers on port {found[1].machine.rpartition(':')[2]}" in found[1].remedy


@pytest.mark.parametrize(
    ("fault", "topic", "says", "remedy"),
    [
        ("no_answer", "guest", "within 0.3 s", "has booted"),
        ("http_500", "guest", "status 500", "log of the guest server"),
        ("wrong_size", "screen", "a screenshot 640x1080", "environments.osworld.width = 640"),
    ],
)
async def test_a_guest_that_misbehaves_is_found(
    preflight: Preflight,
    desktop: FakeDesktop,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    topic: str,
    says: str,
    remedy: str,
) -> None:
    monkeypatch.setattr(osworld, "CALL_DEADLINE_S", 0.3 if fault == "no_answer" else 20.0)
    desktop.faults = {fault}
    wrong = by_topic(await check_machines(preflight))[topic]
    assert wrong.verdict is CheckVerdict.WRONG
    assert says in wrong.found
    assert remedy in wrong.remedy


async def test_the_remedy_for_a_screen_of_another_size_works(
    preflight: Preflight, desktop: FakeDesktop
) -> None:
    desktop.width, desktop.height = 1280, 720
    wrong = by_topic(await check_machines(preflight))["screen"]
    assert "width = 1280 and height = 720" in wrong.remedy
    found = await check_machines(with_settings(preflight, width=1280, height=720))
    assert all(one.verdict is CheckVerdict.FINE for one in found)


async def test_a_guest_without_pyautogui_or_window_manager_is_found(
    preflight: Preflight, desktop: FakeDesktop
) -> None:
    short = replace(preflight, deadline_s=2.0)
    desktop.faults = {"python_fails"}
    found = by_topic(await check_machines(short))
    assert "pyautogui" in found["desktop"].remedy
    assert "No module named 'pyautogui'" in found["clipboard"].found
    assert found["os"].verdict is CheckVerdict.WRONG
    desktop.faults, desktop.manager = set(), None
    assert by_topic(await check_machines(short))["desktop"].found == "no window manager"


async def test_a_guest_whose_programs_print_warnings_is_found(
    preflight: Preflight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(osworld, "PRINTS", f"print('Xlib.xauth: warning'); {osworld.PRINTS}")
    wrong = await only_wrong(check_machines(preflight))
    assert (wrong.topic, "Xlib.xauth: warning" in wrong.found) == ("output", True)
    assert "xauth add" in wrong.remedy


async def test_a_clipboard_that_keeps_nothing_is_found(
    preflight: Preflight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(osworld, "copying_line", lambda _: "raise OSError('no xclip')")
    wrong = await only_wrong(check_machines(preflight))
    assert (wrong.topic, "no xclip" in wrong.found, "xclip" in wrong.remedy) == ("clipboard", True, True)


async def test_a_script_whose_result_does_not_count_is_found(
    preflight: Preflight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ORACLES, RENAME, "true")
    wrong = await only_wrong(check_machines(preflight))
    assert "judged 0 after its script" in wrong.found
    monkeypatch.setitem(ORACLES, RENAME, "exit 3")
    wrong = await only_wrong(check_machines(preflight))
    assert "playing it by its script failed" in wrong.found
    assert "exit code 3" in wrong.found


@pytest.mark.parametrize(
    ("task", "not_installed", "verdict", "says"),
    [
        (NOTES_TASK, set(), CheckVerdict.NOTE, "set up and judged 0; no script plays it"),
        (NOTES_TASK, {"notes"}, CheckVerdict.WRONG, "'notes' is not installed"),
        (ACCOUNT_TASK, set(), CheckVerdict.NOTE, "needs the step 'login'"),
        (IMPOSSIBLE_TASK, set(), CheckVerdict.NOTE, "infeasible"),
    ],
)
async def test_an_application_without_a_script_is_set_up_and_judged(
    preflight: Preflight,
    desktop: FakeDesktop,
    task: dict[str, Any],
    not_installed: set[str],
    verdict: CheckVerdict,
    says: str,
) -> None:
    desktop.not_installed = not_installed
    path = preflight.settings.tasks / "vs_code" / "notes.json"
    path.parent.mkdir()
    path.write_text(json.dumps(task))
    chosen = replace(preflight, applications=frozenset({"vs_code"}))
    found = by_topic(await check_machines(with_settings(chosen, renew="keep")))
    assert "os" not in found
    assert found["vs_code"].verdict is verdict
    assert says in found["vs_code"].found


async def test_a_file_that_cannot_be_downloaded_now_is_blamed_on_the_network_and_not_on_the_application(
    preflight: Preflight, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(url: str, **_: Any) -> bytes:
        raise DownloadFailed("its server does not answer", is_transient=True)

    monkeypatch.setattr("dart.environments.osworld.setup_steps.download", unreachable)
    path = preflight.settings.tasks / f"{RENAME.removeprefix('osworld/')}.json"
    path.write_text(json.dumps(RENAME_TASK | {"config": [DOWNLOAD_STEP]}))
    wrong = await only_wrong(check_machines(preflight))
    assert "https://x.test/a cannot be downloaded now" in wrong.found
    assert "network" in wrong.remedy
    assert "application" not in wrong.remedy


async def test_an_application_that_has_no_tasks_is_named(preflight: Preflight) -> None:
    wrong = await only_wrong(check_machines(replace(preflight, applications=frozenset({"os", "chrom"}))))
    assert "no tasks of chrom" in wrong.found
    assert "applications there: os" in wrong.remedy


# ---- the command ----


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["osworld", "check", *words])


def test_the_command_ends_with_1_and_says_what_to_do(preflight: Preflight, tmp_path: Path) -> None:
    unreachable = f"127.0.0.1:{free_port()}"
    settings = f"environments.osworld.evaluators={tmp_path / 'none'}"
    ran = run("--addresses", unreachable, "--set", settings, "-o", "json")
    assert ran.exit_code == 1
    evaluators, guest = json.loads(ran.stdout)
    assert (evaluators["machine"], evaluators["verdict"]) == ("", "wrong")
    assert "make osworld-score" in evaluators["remedy"]
    assert (guest["machine"], guest["topic"], guest["verdict"]) == (unreachable, "guest", "wrong")
    assert f"{unreachable} guest: wrong" in ran.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--addresses HOST:PORT"),
        (("--addresses", "a:b"), "expected host:port"),
        (("--deadline", "0"), "greater than"),
    ],
)
def test_a_wrong_command_line_is_refused(words: tuple[str, ...], says: str) -> None:
    ran = run(*words)
    assert ran.exit_code == 2
    assert says in ran.stderr


def test_the_command_ends_with_0_when_nothing_is_wrong(
    preflight: Preflight, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        MachineCheckResult(machine="vm:1", topic="guest", verdict=CheckVerdict.NOTE, found="well", remedy="")
    ]

    async def check(given: Preflight, report: Callable[[MachineCheckResult], None]) -> Any:
        assert given.settings.addresses == ("vm:1", "vm:2")
        assert given.settings.renew == "keep"
        return found

    monkeypatch.setattr(osworld, "check_machines", check)
    ran = run("--addresses", "vm:1,vm:2,vm:1")
    assert (ran.exit_code, "nothing is wrong" in ran.stdout) == (0, True)
