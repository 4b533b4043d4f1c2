"""`dartrl policy fetch` with the real huggingface_hub, against a server here that speaks its routes."""

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.config.config import ConfigError, load_config
from dart.config.hub import NOTE, fetched_from, hub_policy
from dart.preflight import hub_fetch
from dart.preflight.hub_fetch import fetched_by_start
from dart.preflight.requirements import missing_policy
from tests.patience import slowness

pytestmark = pytest.mark.slow

REPO, COMMIT = "owner/tiny", "a" * 40
FILES = {
    "config.json": b'{"model_type": "qwen2_5_vl"}',
    "model.safetensors": b"weights" * 1000,
    "cat.png": b"x",
}
REPOSITORY = Path(__file__).resolve().parents[3]


def listed(name: str, content: bytes) -> dict[str, Any]:
    git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    told: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git}
    if name.endswith(".safetensors"):
        sha256 = hashlib.sha256(content).hexdigest()
        told["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
    return told


class Hub(BaseHTTPRequestHandler):
    """The routes that are asked for; `changed` names a file whose content is another than is listed."""

    changed = ""

    def do_HEAD(self) -> None:
        self._reply(has_body=False)

    def do_GET(self) -> None:
        self._reply(has_body=True)

    def _reply(self, *, has_body: bool) -> None:
        path = self.path.partition("?")[0]
        api, resolve = f"/api/models/{REPO}/revision/", f"/{REPO}/resolve/{COMMIT}/"
        if path in (f"{api}main", f"{api}{COMMIT}"):
            files = [listed(name, content) for name, content in FILES.items()]
            self._send(200, json.dumps({"id": REPO, "sha": COMMIT, "siblings": files}).encode(), has_body)
        elif path.startswith(resolve) and path.removeprefix(resolve) in FILES:
            name = path.removeprefix(resolve)
            content = FILES[name][::-1] if name == Hub.changed else FILES[name]
            self._send(200, content, has_body, {"ETag": f'"{hashlib.md5(content).hexdigest()}"'})
        else:
            missing = "RevisionNotFound" if path.startswith(api) else "RepoNotFound"
            self._send(404, b"{}", has_body, {"X-Error-Code": missing})

    def _send(self, code: int, body: bytes, has_body: bool, more: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {
            "X-Repo-Commit": COMMIT,
            "Content-Length": str(len(body)),
            **(more or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Hub, "changed", "")
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetch(folder: Path, endpoint: str, *words: str) -> subprocess.CompletedProcess[str]:
    known = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder / "home")}
    return subprocess.run(
        [sys.executable, "-m", "dart", "policy", "fetch", *words],
        cwd=folder,
        env={**os.environ, **known, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60 * slowness(),
        check=False,
    )


def test_a_branch_becomes_a_commit_and_every_file_of_a_checkpoint_is_checked(
    tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fetch(tmp_path, endpoint, f"hf://{REPO}@main")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "models/hub/owner--tiny@main"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "hub.json", "model.safetensors"]
    note = json.loads((folder / "hub.json").read_text())
    assert (note["repo"], note["revision"], note["commit"]) == (REPO, "main", COMMIT)
    assert note["files"]["model.safetensors"] == hashlib.sha256(FILES["model.safetensors"]).hexdigest()
    monkeypatch.chdir(tmp_path)
    config = load_config(None, [f'training.policy="hf://{REPO}@main"'])
    assert config.training.policy == folder
    assert not any("fetch it" in problem for problem in missing_policy(config))


def test_a_file_that_is_not_what_the_hub_says_is_refused_and_no_checkpoint_is_made(
    tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "changed", "model.safetensors")
    done = fetch(tmp_path, endpoint, f"hf://{REPO}@{COMMIT}")
    assert (
        done.returncode,
        "expected " + hashlib.sha256(FILES["model.safetensors"]).hexdigest() in done.stderr,
    ) == (
        69,
        True,
    )
    assert not (tmp_path / f"models/hub/owner--tiny@{COMMIT}").exists()


def test_a_config_alone_is_enough_for_an_estimate(tmp_path: Path, endpoint: str) -> None:
    assert fetch(tmp_path, endpoint, f"hf://{REPO}@main", "--only-config").returncode == 0
    folder = tmp_path / "models/hub/owner--tiny@main"
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_what_the_hub_does_not_have_and_a_machine_without_a_network_are_said(
    tmp_path: Path, endpoint: str
) -> None:
    for address, where, problem in (
        (f"hf://{REPO}@gone", endpoint, "but no revision 'gone'; name a commit, a tag or a branch"),
        (
            f"hf://{REPO}@main",
            "http://127.0.0.1:9",
            "or copy the checkpoint into a folder of yours and name that folder in training.policy",
        ),
    ):
        done = fetch(tmp_path, where, address)
        assert done.returncode == 69, done.stderr
        assert problem in done.stderr
    assert fetch(tmp_path, endpoint, "owner/tiny").returncode == 2


def test_an_address_is_read_and_a_missing_checkpoint_says_how_to_fetch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("hf://Qwen/Qwen2.5-VL-3B-Instruct@main", "hf://a/b@0123abc", "hf://o-o/n_n@v1.0"):
        policy = hub_policy(address)
        assert policy is not None
        assert str(policy) == address
        assert fetched_from(policy.folder) == policy
    config = load_config(None, ['training.policy="hf://a/b@main"'])
    (problem,) = missing_policy(config)
    assert "dartrl policy fetch hf://a/b@main" in problem
    assert problem.endswith("or allow the start to do so with --set training.fetch_policy=true")
    allowed = load_config(None, ['training.policy="hf://a/b@main"', "training.fetch_policy=true"])
    (problem,) = missing_policy(allowed)
    assert problem.endswith(f"fetch it with 'dartrl policy fetch hf://a/b@main' in {Path.cwd()}")
    with pytest.raises(ConfigError, match="must be a folder or hf://OWNER/NAME@REVISION"):
        load_config(None, ['training.policy="hf://a/b"'])


def test_a_fetched_policy_is_found_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(None, ['training.policy="hf://a/b@main"', "training.fetch_policy=true"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    missing = fetched_by_start(config)
    assert missing is not None
    assert missing.folder == config.training.policy == tmp_path / "models/hub/a--b@main"
    missing.folder.mkdir(parents=True)
    (missing.folder / NOTE).write_text("{}")
    assert fetched_by_start(config) is None


@pytest.mark.parametrize("revision", ["refs/pr/1", "feature/two--words"])
def test_a_revision_with_a_slash_survives_its_folder(revision: str) -> None:
    policy = hub_policy(f"hf://a/b@{revision}")
    assert policy is not None
    assert fetched_from(policy.folder) == policy


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device at {folder}; everything"),
        (
            OSError(errno.EROFS, "Read-only file system", "/models"),
            "Read-only file system at /models; everything",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/models"), "Permission denied: /models; only"),
    ],
    ids=["full", "read-only", "not allowed"],
)
def test_a_disk_that_takes_no_checkpoint_is_named_and_not_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, says: str
) -> None:
    class NoDisk:
        def __init__(self, endpoint: str | None) -> None:
            raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "HfApi", NoDisk)

    ran = CliRunner().invoke(app, ["policy", "fetch", f"hf://{REPO}@main"])

    assert ran.exit_code == 74, ran.output
    assert says.format(folder=tmp_path / "models/hub/owner--tiny@main") in ran.output
    assert "HF_ENDPOINT" not in ran.output


def test_of_two_that_fetch_the_same_checkpoint_at_once_the_second_waits_and_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    policy = hub_policy(f"hf://{REPO}@main")
    assert policy is not None
    downloads: list[str] = []
    second_waits_or_ended = Event()

    def note(line: str) -> None:
        if "waiting" in line:
            second_waits_or_ended.set()

    def fetch_too() -> None:
        try:
            hub_fetch.fetch(policy, note)
        finally:
            second_waits_or_ended.set()

    second = Thread(target=fetch_too)

    class Api:
        """A hub that is asked for the second file when a second fetch begins."""

        def __init__(self, endpoint: str | None) -> None:
            pass

        def model_info(self, *_: Any, **__: Any) -> Any:
            large = SimpleNamespace(sha256=hashlib.sha256(FILES["model.safetensors"]).hexdigest())
            small = listed("config.json", FILES["config.json"])["blobId"]
            siblings = [
                SimpleNamespace(rfilename="config.json", size=1, lfs=None, blob_id=small),
                SimpleNamespace(rfilename="model.safetensors", size=1, lfs=large, blob_id=""),
            ]
            return SimpleNamespace(sha=COMMIT, siblings=siblings)

        def hf_hub_download(self, repo: str, name: str, *, revision: str, local_dir: Path) -> None:
            downloads.append(name)
            if len(downloads) == 2:
                second.start()
                assert second_waits_or_ended.wait(60 * slowness())
            local_dir.mkdir(parents=True, exist_ok=True)
            (local_dir / name).write_bytes(FILES[name])

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)

    hub_fetch.fetch(policy)
    second.join()

    assert downloads == ["config.json", "model.safetensors"]
    files = json.loads((policy.folder / NOTE).read_text())["files"]
    assert {path.name for path in policy.folder.iterdir()} == {*files, NOTE}
