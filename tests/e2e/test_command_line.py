"""The command line from outside: what it prints where, and with which code it ends."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from actors.board import ActorState, Board
from dart import __version__
from dart.config.config import load_config
from dart.core.records import DecisionKind, TaskDecision
from dart.core.run_directory import claimed
from dart.store.blobs import FolderBlobs
from dart.store.store import Store
from dart.testing.trajectories import demonstration_of, step_at
from supervision import reports
from supervision.reports import Offender, SupervisorReport

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A folder that looks like a checkpoint until it is loaded."""
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file({"weight": np.zeros(1, np.float32)}, folder / "model.safetensors")
    return folder


def dartrl(*arguments: str | Path, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "dart", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_lists_every_command() -> None:
    ended = dartrl("--help")

    assert ended.returncode == 0
    for command in (
        "train",
        "up",
        "down",
        "eval",
        "pretrain",
        "demo",
        "status",
        "tree",
        "top",
        "actors",
        "events",
        "why",
        "metrics",
        "doctor",
        "web",
        "tasks",
        "trajectories",
        "pool",
        "policy",
        "checkpoints",
        "config",
    ):
        assert f"│ {command} " in ended.stdout


@pytest.mark.parametrize("command", ["train", "actors logs"])
def test_a_command_explains_itself_with_examples(command: str) -> None:
    ended = dartrl(*command.split(), "--help")

    assert ended.returncode == 0
    assert f"• dartrl {command}" in ended.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert dartrl("--version").stdout == f"dartrl {__version__}\n"


def test_an_unknown_command_is_wrong_usage() -> None:
    assert dartrl("trian").returncode == 2


def test_the_shipped_configurations_are_good() -> None:
    ended = dartrl("config", "check", "configs/laptop.toml", "configs/smoke.toml")

    assert (ended.returncode, ended.stdout) == (0, "configs/laptop.toml, configs/smoke.toml: valid\n")


def test_every_problem_of_every_file_is_on_stderr_with_code_78(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text("[training]\nclip_epsilon = 0.2\nlr = 0")
    second.write_text("[runs]\n")

    ended = dartrl("config", "check", first, second)

    assert ended.returncode == 78
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        f"error: {first}: training.lr must be greater than 0, got 0 (default 1e-06; Learning rate of AdamW)",
        f"error: {first}: training.clip_epsilon is not a key; "
        "did you mean training.clip_low or training.clip_high?",
        f"error: {second}: runs is not a key; did you mean run?",
    ]


def test_the_shown_configuration_is_toml_with_origins() -> None:
    ended = dartrl("config", "show", "configs/smoke.toml", "--set", "training.lr=1e-5")

    shown = tomllib.loads(ended.stdout)
    assert shown["training"]["lr"] == 1e-5
    assert "lr = 1e-05  # --set\n" in ended.stdout
    assert "count = 2  # configs/smoke.toml\n" in ended.stdout


def test_a_run_without_browser_and_policy_names_both_with_code_69(tmp_path: Path) -> None:
    missing = ("--set", "environments.executable=/no/browser", "--set", "training.policy=/no/policy")

    ended = dartrl("train", "--run-dir", tmp_path / "run", *missing)

    assert ended.returncode == 69
    assert "/no/browser is not a Chromium that starts" in ended.stderr
    assert "no policy checkpoint in /no/policy" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_a_directory_that_holds_a_run_ends_with_73_and_both_ways_out(tmp_path: Path, policy: Path) -> None:
    run = tmp_path / "run"
    with claimed(run, resume=False, config_toml="# the first"):
        pass

    ended = dartrl("train", "--run-dir", run, "--set", f"training.policy={policy}")

    assert ended.returncode == 73
    assert "holds a run already" in ended.stderr
    assert "--resume" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (run / "config.toml").read_text() == "# the first"


def test_a_directory_in_use_ends_with_73_and_names_the_process(tmp_path: Path, policy: Path) -> None:
    run = tmp_path / "run"
    with claimed(run, resume=False, config_toml=""):
        ended = dartrl("train", "--resume", "--run-dir", run, "--set", f"training.policy={policy}")

    assert ended.returncode == 73
    assert f"taken by process {os.getpid()}" in ended.stderr


def test_status_and_tree_without_any_run_end_with_3(tmp_path: Path) -> None:
    for command in ("status", "tree"):
        ended = dartrl(command, cwd=tmp_path)

        assert ended.returncode == 3
        assert "there is no run in runs/" in ended.stderr


def test_status_of_a_run_that_shows_nothing_yet_ends_with_4(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml=""):
        ended = dartrl("status", "--run-dir", tmp_path / "run")

    assert ended.returncode == 4
    assert "ask again in a moment" in ended.stderr


def test_status_of_a_run_that_ended_before_it_began_ends_with_3(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", resume=False, config_toml=""):
        pass

    ended = dartrl("status", "--run-dir", tmp_path / "run", "--json")

    assert (ended.returncode, ended.stdout) == (3, "")


@pytest.fixture
def ended_run(tmp_path: Path) -> Path:
    """A run that has ended: one task it knows something about, and one demonstration."""
    run = tmp_path / "run"
    text = load_config(REPOSITORY / "configs" / "smoke.toml", [f"run.dir={str(run)!r}"]).to_toml()
    with claimed(run, resume=False, config_toml=text) as held, Store(held.paths.store) as store:
        store.add_version()
        store.record_decisions((FEWER,))
        store.add_demonstrations([DEMONSTRATION])
    return run


FEWER = TaskDecision(
    task_id="miniwob/click-test-2",
    kind=DecisionKind.ROLLOUTS,
    before="8",
    after="4",
    reason="success 0.80 over the last 8",
    policy_version=12,
    unix_s=0.0,
)
DEMONSTRATION = demonstration_of("miniwob/click-test-2", 3, [step_at(0)])


def test_the_tasks_of_an_ended_run_are_listed_and_explained(ended_run: Path) -> None:
    listed = dartrl("tasks", "list", "--run-dir", ended_run, "--json")
    shown = dartrl("tasks", "show", "click-test-2", "--run-dir", ended_run)
    unknown = dartrl("tasks", "show", "clik-test-2", "--run-dir", ended_run)

    assert [task["rollouts"] for task in json.loads(listed.stdout)] == [4, 4]
    assert shown.stdout.splitlines()[-1].endswith("N 8 -> 4: success 0.80 over the last 8 (version 12)")
    assert (shown.returncode, unknown.returncode) == (0, 2)
    assert "did you mean click-test-2?" in unknown.stderr


def test_a_demonstration_is_listed_shown_and_taken_out_of_use(ended_run: Path) -> None:
    listed = dartrl("pool", "list", "--run-dir", ended_run)
    shown = dartrl("pool", "show", "1", "--run-dir", ended_run)
    dropped = dartrl("pool", "drop", "1", "--run-dir", ended_run)
    after = dartrl("pool", "list", "--run-dir", ended_run, "--json")

    assert listed.stdout.splitlines()[1].split() == ["1", "3", "1", "0", "miniwob/click-test-2", "oracle"]
    assert "click(point='<point>0 2</point>')" in shown.stdout
    assert dropped.stdout == "demonstration 1 is out of use; 0 are in use\n"
    assert [one["dropped"] for one in json.loads(after.stdout)] == [True]


def test_a_demonstration_that_is_not_there_ends_with_2(ended_run: Path) -> None:
    ended = dartrl("pool", "show", "9", "--run-dir", ended_run)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert "the pool has no demonstration 9" in ended.stderr


def test_the_pool_of_a_running_run_is_not_written_and_the_message_says_how_to(ended_run: Path) -> None:
    with claimed(ended_run, resume=True, config_toml=(ended_run / "config.toml").read_text()):
        ended = dartrl("pool", "import", ended_run, "--run-dir", ended_run)
        listed = dartrl("pool", "list", "--run-dir", ended_run)

    assert ended.returncode == 73
    assert f"is running as process {os.getpid()}" in ended.stderr
    assert "dartrl train --resume" in ended.stderr
    assert "curation.experience_pool.folders" in ended.stderr
    assert listed.returncode == 0


def test_the_doctor_finds_what_is_missing_and_says_what_to_do(ended_run: Path) -> None:
    lost = FolderBlobs(ended_run / "blobs").path(DEMONSTRATION.steps[0].screenshot_sha256)

    found = dartrl("doctor", "--data", "--run-dir", ended_run, "--json")
    lost.parent.mkdir(parents=True)
    lost.write_bytes(b"")
    told = dartrl("doctor", "--data", "--full", "--run-dir", ended_run)

    assert (found.returncode, told.returncode) == (1, 1)
    assert [finding["what"] for finding in json.loads(found.stdout)["findings"]] == ["is missing"]
    assert told.stdout.splitlines() == [
        "issued 0 = trained 0 + dropped 0 + stored 0 + leased 0",
        f"screenshot {lost}: has other bytes than its name promises",
        "  what to do: restore the file from a copy",
        "1 finding",
    ]


def test_the_doctor_of_a_sound_run_says_so_while_it_is_running_too(ended_run: Path) -> None:
    with Store(ended_run / "store.db") as store:
        store.drop_demonstration(1)  # its screenshot is not there

    with claimed(ended_run, resume=True, config_toml=(ended_run / "config.toml").read_text()):
        ended = dartrl("doctor", "--data", "--run-dir", ended_run)

    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "the data is sound")


def test_an_actor_is_looked_into_after_its_run_has_ended(ended_run: Path) -> None:
    board = Board.create(ended_run / "board")
    for name, parent in (("root", "launcher"), ("environment_pool", "root"), ("env-000", "environment_pool")):
        board.set_state(board.claim(name, parent), ActorState.STOPPED, incarnation=2)
    board.close()
    reports.append(ended_run, DEATH)
    log = ended_run / "logs" / "env-000.jsonl"
    for number, minute in ((1, 58), (2, 59)):
        ready = {"event": "actor_ready", "level": "info", "incarnation": number}
        ready["timestamp"] = f"2026-01-01T11:{minute}:00Z"
        with log.open("a") as file:
            file.write(json.dumps(ready) + "\n")

    listed = dartrl("actors", "list", "--under", "environment_pool", "-o", "jsonl", "--run-dir", ended_run)
    told = dartrl("why", "env-000", "--run-dir", ended_run, "-o", "json")
    before = dartrl("actors", "logs", "env-000", "--previous", "--run-dir", ended_run, "-o", "jsonl")
    happened = dartrl("events", "--for", "env-000", "--run-dir", ended_run, "-o", "jsonl")
    nobody = dartrl("actors", "stack", "env-000", "--run-dir", ended_run)

    assert [json.loads(line)["name"] for line in listed.stdout.splitlines()] == [
        "environment_pool",
        "env-000",
    ]
    failed, ended_with_the_run = json.loads(told.stdout)["ends"]
    assert failed["report"]["last_words"] == ["ValueError: 7"]
    assert (ended_with_the_run["incarnation"], ended_with_the_run["report"]) == (2, None)
    assert [json.loads(line)["incarnation"] for line in before.stdout.splitlines()] == [1]
    assert [json.loads(line)["kind"] for line in happened.stdout.splitlines()] == ["child_terminated"]
    assert (nobody.returncode, nobody.stdout) == (3, "")


DEATH = SupervisorReport(
    unix_s=1767268730.0,
    supervisor="environment_pool",
    context="child_terminated",
    reason="exit code 70: ValueError: 7",
    offender=Offender(id="env-000", incarnation=1, pid=7),
    exit_code=70,
    last_words=("ValueError: 7",),
)


def test_the_doctor_without_a_run_ends_with_3(tmp_path: Path) -> None:
    assert dartrl("doctor", "--data", "--run-dir", tmp_path / "nowhere").returncode == 3


def test_a_foreign_supervision_package_stops_every_command_with_78(tmp_path: Path) -> None:
    (tmp_path / "supervision").mkdir()
    (tmp_path / "supervision" / "__init__.py").write_text("")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from dart.cli.main import main; main()"

    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 78
    assert "pip uninstall supervision" in ended.stderr


def test_a_number_of_demonstrations_needs_the_tasks_that_it_counts(tmp_path: Path) -> None:
    ended = dartrl("pretrain", "--out", tmp_path / "policy", "--episodes", "48")

    assert ended.returncode == 2
    assert "name them with --task" in ended.stderr


@pytest.mark.parametrize(
    "option", [("--task", "miniwob/click-test"), ("--coordinates", "pointer")], ids=["a task", "patches"]
)
def test_a_policy_that_reads_is_that_of_the_laptop_job_with_bins(
    tmp_path: Path, option: tuple[str, str]
) -> None:
    ended = dartrl("pretrain", "--out", tmp_path / "policy", "--reading", *option)

    assert ended.returncode == 2
    assert "leave out --task and --coordinates" in ended.stderr


def test_pretraining_does_not_overwrite_a_checkpoint(policy: Path) -> None:
    ended = dartrl("pretrain", "--out", policy)

    assert ended.returncode == 73
    assert json.loads((policy / "config.json").read_text()) == {}
