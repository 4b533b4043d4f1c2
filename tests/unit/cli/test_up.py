"""`dartrl up` from its own process, with a run that is none."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import Mock

import pytest
from click.testing import Result
from typer.testing import CliRunner

from dart.cli import cluster, detached, up
from dart.cli.daemon_log import log_of_daemon
from dart.cli.main import app as app_of_dartrl
from dart.cli.start_plan import what_it_would_do
from dart.cluster import connection, site
from dart.config.cluster import ClusterConfig, ClusterFile
from dart.config.config import load_config
from dart.core.errors import DiskError, SilentError, TemporaryError
from dart.core.run_directory import RunPaths, holder, refuse_unfit
from dart.inspect.sidecar_status import WEB, Sidecar, write_sidecar
from dart.preflight import hub_fetch, requirements
from dart.run import app, other_control_node
from dart.run.daemon import Daemon
from scripts.show_gpu_plan import PUBLISHED


@pytest.mark.usefixtures("hangup")
def test_a_hangup_ends_nothing_while_a_run_starts_or_its_data_are_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def train(*_: Any, **__: Any) -> NoReturn:
        signal.raise_signal(signal.SIGHUP)
        raise TemporaryError("it came so far")

    monkeypatch.setattr(requirements, "require_installation", lambda _: None)
    monkeypatch.setattr(up, "log_of_daemon", lambda *_: Mock())
    monkeypatch.setattr(app, "train", train)
    config = load_config(None, [f"run.dir={str(tmp_path)!r}"])

    with pytest.raises(TemporaryError, match="it came so far"):
        up._up(config, lambda: config, None)


@pytest.mark.usefixtures("hangup")
def test_a_run_on_a_cluster_fetches_its_policy_first_and_names_tasks_that_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []

    @contextmanager
    def on_cluster(_: object) -> Iterator[None]:
        assert holder(tmp_path) == os.getpid(), "the lock says which process joins the cluster"
        done.append("join")
        yield

    monkeypatch.setattr(connection, "require_ray", lambda: None)
    monkeypatch.setattr(hub_fetch, "fetch_if_allowed", lambda *_: done.append("fetch"))
    monkeypatch.setattr(requirements, "missing_browser", lambda _: iter(()))
    monkeypatch.setattr(cluster, "say_left_out", lambda _: done.append("left out"))
    monkeypatch.setattr(site, "on_cluster", on_cluster)
    monkeypatch.setattr(up, "_run_daemon", lambda *_: done.append("run"))
    run = load_config(None, [f"run.dir={str(tmp_path)!r}"])
    up._up_on_cluster(ClusterFile(tmp_path / "c.toml", ClusterConfig(), run), None, resume=False)
    assert done == ["fetch", "join", "left out", "run"]
    assert holder(tmp_path) is None
    assert RunPaths(tmp_path).up_command == f"dartrl up {tmp_path / 'c.toml'} --run-dir {tmp_path}"
    refuse_unfit(RunPaths(tmp_path), resume=False)  # so that a start that failed while it joined is repeated


@pytest.mark.usefixtures("hangup")
def test_a_cluster_that_is_not_joined_does_not_become_the_one_of_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connection, "require_ray", lambda: None)
    monkeypatch.setattr(hub_fetch, "fetch_if_allowed", lambda *_: None)
    monkeypatch.setattr(site, "on_cluster", Mock(side_effect=TemporaryError("no Ray cluster answers")))
    run = load_config(None, [f"run.dir={str(tmp_path)!r}"])
    with pytest.raises(TemporaryError, match="no Ray cluster answers"):
        up._up_on_cluster(ClusterFile(tmp_path / "c.toml", ClusterConfig(), run), None, resume=False)
    assert not RunPaths(tmp_path).cluster.exists()


@pytest.mark.parametrize("resume", [False, True])
def test_the_job_for_kubernetes_resumes_a_run_if_the_command_does(tmp_path: Path, resume: bool) -> None:
    pods = ClusterConfig.model_validate({"engine": {"kubernetes": {"image": "registry/dartrl"}}})
    run = load_config(None, [f"run.dir={str(tmp_path)!r}"])
    up._up_on_cluster(ClusterFile(tmp_path, pods, run), None, resume=resume)
    job = json.loads((tmp_path / "logs" / "ray-job.yaml").read_text().split("---\n")[2])
    assert job["spec"]["entrypoint"].endswith(" --resume") == resume


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=" ".join)
def test_a_job_for_kubernetes_is_named_also_with_detach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, detach: list[str]
) -> None:
    monkeypatch.setattr(up, "start_detached", Mock())
    places = 'record = "postgresql://me@db/runs"\nblobs = "s3://bucket/prefix"\n'
    file = tmp_path / "cluster.toml"
    file.write_text(f'run = "smoke"\n{places}[engine.kubernetes]\nimage = "registry/dartrl"\n')

    ran = CliRunner().invoke(app_of_dartrl, ["up", str(file), "--run-dir", str(tmp_path / "run"), *detach])

    assert ran.exit_code == 0, ran.output
    job = tmp_path / "run" / "logs" / "ray-job.yaml"
    assert f"start the run in the cluster with: kubectl apply -f {job}" in ran.output.replace("\n", " ")
    assert job.exists()


def test_the_log_of_a_daemon_is_bounded_keeps_the_newest_and_loses_no_line_in_between(
    tmp_path: Path,
) -> None:
    log = log_of_daemon(tmp_path / "daemon.jsonl", 10_000)
    for number in range(150):
        log.info("said", number=number, text="x" * 200)

    files = [tmp_path / "daemon.jsonl.1", tmp_path / "daemon.jsonl"]
    numbers = [json.loads(line)["number"] for file in files for line in file.read_text().splitlines()]
    assert numbers == list(range(numbers[0], 150))
    assert len(numbers) > 30
    assert all(file.stat().st_size <= 10_000 for file in files)


def test_the_log_and_the_output_of_a_daemon_are_bounded_by_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = RunPaths(tmp_path)
    paths.logs.mkdir()

    def train(*_: Any, listener: Daemon, **__: Any) -> NoReturn:
        for _ in range(3):
            paths.daemon_output.write_text("x" * 70_000)
            listener.turn()
            listener.log.info("said", text="x" * 70_000)
        raise TemporaryError("it came so far")

    monkeypatch.setattr(app, "train", train)
    config = load_config(None, [f"run.dir={str(tmp_path)!r}", "telemetry.daemon_log_bytes=65536"])
    with pytest.raises(TemporaryError, match="it came so far"):
        up._run_daemon(config, None, paths.logs / "daemon.jsonl")
    older = {"daemon.jsonl.1", f"{paths.daemon_output.name}.1"}
    assert older <= {file.name for file in paths.logs.iterdir()}


def test_a_daemon_whose_supervisor_gave_up_logs_the_reason_as_its_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def train(*_: Any, **__: Any) -> NoReturn:
        raise TemporaryError("curator failed once more than its budget allows; continue with --resume")

    monkeypatch.setattr(app, "train", train)
    log = tmp_path / "daemon.jsonl"
    with pytest.raises(TemporaryError, match="its budget"):
        up._run_daemon(load_config(None, [f"run.dir={str(tmp_path / 'run')!r}"]), None, log)

    last = json.loads(log.read_text().splitlines()[-1])
    assert (last["event"], last["level"]) == ("daemon_ended", "error")
    assert last["reason"] == "curator failed once more than its budget allows; continue with --resume"


def test_a_start_that_takes_a_run_over_waits_for_the_other_machine_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def take_over(_: object, paths: RunPaths) -> None:
        waits.append("take over")
        paths.config.touch()

    waits: list[str] = []
    monkeypatch.setattr(other_control_node, "take_over", take_over)
    monkeypatch.setattr(other_control_node, "refuse_running_elsewhere", lambda *_: waits.append("look"))
    config = load_config(None, [f"run.dir={str(tmp_path)!r}", "run.record='postgresql://db.example/run_7'"])

    up._begin_or_continue(config, resume=True)
    assert waits == ["take over"]
    up._begin_or_continue(config, resume=True)
    assert waits == ["take over", "look"], "the next start finds the run here"


def test_a_plan_for_a_run_without_its_record_is_refused(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.config.touch()
    with pytest.raises(DiskError, match=r"store\.db does not exist.*nothing was started or changed"):
        what_it_would_do(load_config(), paths)


def planned(tmp_path: Path, *overrides: str, gpu_gib: float | None = None) -> Result:
    """The output of `up --dry-run` for Qwen2.5-VL-3B of published dimensions, without its weights."""
    folder = tmp_path / "policy"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(PUBLISHED["Qwen2.5-VL-3B-Instruct"]))
    words = ["up", "one-gpu-miniwob", "--dry-run", "--run-dir", str(tmp_path / "run")]
    for override in (f"training.policy={folder}", *overrides):
        words += ["--set", override]
    return CliRunner().invoke(app_of_dartrl, [*words, *(["--gpu-gib", str(gpu_gib)] if gpu_gib else [])])


@pytest.mark.parametrize("visible", ["", "0"])
def test_a_plan_for_gpus_that_are_not_here_is_printed_and_names_them_as_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    ran = planned(tmp_path, "rollout.gpus=[1]", "training.gpus=[2]", gpu_gib=80)
    assert "GPU 1: " in ran.output
    assert "of 80.0 GiB" in ran.output
    assert ran.exit_code == 69
    assert "rollout.gpus names GPU 1, which this process cannot use" in ran.output
    assert "training.gpus names GPU 2, which this process cannot use" in ran.output
    assert "that the run needs is there" not in ran.output


def test_a_plan_for_another_machine_never_says_that_all_is_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(requirements, "require_installation", lambda *_: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    nameless = ("rollout.gpus=[]", "training.gpus=[]", "rollout.vllm.memory=0.5")
    ran = planned(tmp_path, *nameless, gpu_gib=80)
    assert "none are planned, because none are here and the configuration names none" in ran.output
    assert "GPUs of 80 GiB were assumed, not looked for" in ran.output
    assert "everything that the run needs is there" in planned(tmp_path, *nameless).output


HUB_POLICY = ("training.policy='hf://owner/tiny@main'", "training.fetch_policy=true")


def test_a_plan_says_that_the_start_fetches_the_policy_and_misses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(requirements, "CHECKS", (requirements.missing_policy,))
    sets = [word for key in HUB_POLICY for word in ("--set", key)]

    words = ["up", "laptop", "--dry-run", "--run-dir", str(tmp_path / "run"), *sets]
    ran = CliRunner().invoke(app_of_dartrl, words)

    assert ran.exit_code == 0, ran.output
    folder = tmp_path / "models/hub/owner--tiny@main"
    fetched = (
        f"everything else that the run needs is there; hf://owner/tiny@main will be fetched into {folder}"
    )
    assert fetched in ran.output


def test_a_plan_notes_environments_that_only_wait_while_an_update_is_computed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(requirements, "CHECKS", ())
    words = ["up", "laptop", "--dry-run", "--run-dir", str(tmp_path / "run")]

    ran = CliRunner().invoke(app_of_dartrl, [*words, "--set", "curation.staleness=0"])

    assert ran.exit_code == 0, ran.output
    assert "8 of 8 environments only wait while an update is computed" in ran.output
    assert "only wait" not in CliRunner().invoke(app_of_dartrl, words).output


@pytest.mark.parametrize("is_local", [True, False])
def test_a_run_in_the_background_on_this_machine_fetches_its_policy_before_its_needs_are_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_local: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    done: list[str] = []
    monkeypatch.setattr(hub_fetch, "fetch", lambda policy, _: done.append(f"fetch {policy}"))
    monkeypatch.setattr(requirements, "require_installation", lambda _: done.append("check"))
    monkeypatch.setattr("subprocess.Popen", Mock())
    shown_by: list[str] = []
    monkeypatch.setattr(detached, "_await_up", lambda *given: shown_by.append(given[-1]))
    monkeypatch.setattr(detached, "PAGE_WAIT_S", 0.0)
    config = load_config(None, [f"run.dir={str(tmp_path / 'run')!r}", *HUB_POLICY])

    detached.start_detached(config, None, [], None, is_local=is_local)

    assert done == (["fetch hf://owner/tiny@main", "check"] if is_local else [])
    assert ("logs/cluster.jsonl how it joins its cluster" in shown_by[0]) is not is_local


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            Sidecar(name=WEB, is_well=True, text="http://127.0.0.1:44587/"),
            "its page is http://127.0.0.1:44587/ (every user of this machine can read it; web.token_file",
        ),
        (Sidecar(name=WEB, is_well=False, text="cannot listen"), "its page is not up: cannot listen"),
        (None, "its page is not up yet; `dartrl status` shows the address"),
    ],
)
def test_a_run_in_the_background_says_where_its_page_is(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    page: Sidecar | None,
    said: str,
) -> None:
    monkeypatch.setattr(requirements, "require_installation", lambda _: None)
    monkeypatch.setattr("subprocess.Popen", Mock())
    monkeypatch.setattr(detached, "_await_up", lambda *_: None)
    monkeypatch.setattr(detached, "PAGE_WAIT_S", 0.0)
    monkeypatch.setattr(detached, "what_it_would_do", Mock())
    if page is not None:
        write_sidecar(RunPaths(tmp_path), page)

    detached.start_detached(load_config(None, [f"run.dir={str(tmp_path)!r}"]), None, [], None)

    assert said in capsys.readouterr().out


def test_a_run_in_the_background_that_starts_slowly_is_waited_for_as_long_as_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("dart.run.control_socket.request", Mock(side_effect=SilentError("it starts")))
    monkeypatch.setattr(detached, "time", SimpleNamespace(monotonic=lambda: sum(waits), sleep=waits.append))

    with pytest.raises(TemporaryError, match="is not up after 600 s and is still starting") as late:
        detached._await_up(tmp_path, lambda: None, 600.0, "a log shows its progress")
    assert "still starting; a log shows its progress, " in str(late.value)
    assert f"`dartrl down --now --run-dir {tmp_path}` ends it" in str(late.value)

    assert sum(waits) == pytest.approx(600.0, abs=2 * detached.POLL_S)


@pytest.mark.parametrize(
    ("words", "needed"), [(["--wait", "600"], "--detach"), (["--gpu-gib", "24"], "--dry-run")]
)
def test_an_option_without_the_one_that_it_belongs_to_is_refused(words: list[str], needed: str) -> None:
    ran = CliRunner().invoke(app_of_dartrl, ["up", "laptop", *words])

    assert (ran.exit_code, f"add {needed}" in ran.output) == (2, True), ran.output


@pytest.mark.parametrize("more", [[], ["--detach"], ["--dry-run"]], ids=" ".join)
def test_a_log_among_the_files_of_the_run_is_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: list[str]
) -> None:
    """A new run would take it for a file of another program, now and at each later start."""
    for start in ("_up", "start_detached", "show_plan"):
        monkeypatch.setattr(up, start, Mock())
    (tmp_path / "link").symlink_to(tmp_path)
    log = tmp_path / "link" / "run" / "daemon.jsonl"
    words = ["up", "laptop", "--run-dir", str(tmp_path / "run"), "--log", str(log), *more]

    ran = CliRunner().invoke(app_of_dartrl, words)

    said = " ".join(ran.output.replace("│", " ").split())
    assert (ran.exit_code, "among the files of the run" in said) == (2, True), ran.output


@pytest.mark.parametrize("detached", [False, True])
def test_a_run_that_is_continued_without_being_named_stays_the_same_when_another_one_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, detached: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    began: list[Any] = []
    monkeypatch.setattr(up, "_up", lambda _, read, *__, **___: began.append(read))
    monkeypatch.setattr(up, "start_detached", lambda _, __, words, *___, **____: began.append(words))

    def begin(name: str, *, at_s: float, actors: int) -> None:
        paths = RunPaths(Path("runs") / name)
        paths.root.mkdir(parents=True)
        paths.config.write_text(load_config(None, [f"environments.count={actors}"]).to_toml())
        paths.lock.touch()
        os.utime(paths.lock, (at_s, at_s))

    begin("mine", at_s=1.0, actors=3)
    ran = CliRunner().invoke(app_of_dartrl, ["up", *(["--detach"] if detached else [])])
    begin("other", at_s=2.0, actors=5)

    assert ran.exit_code == 0, ran.output
    (found,) = began
    if detached:
        assert found == ["--run-dir", "runs/mine"]
    else:
        assert (found().run.dir, found().environments.count) == (Path("runs/mine"), 3)
