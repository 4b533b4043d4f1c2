"""Blobs in object storage: by hash, through a cache, with errors that name the remedy."""

import fcntl
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from dart.config.config import Config
from dart.config.sections import RunSettings
from dart.core.run_directory import RunPaths
from dart.store import object_storage
from dart.store.blob_cache import CachedBlobs, CacheFolder
from dart.store.blobs import SCREENSHOTS, STEPS, BlobStore, FolderBlobs
from dart.store.errors import BlobCorrupt, BlobMissing, BlobsBusy, StoreUnavailable
from dart.store.object_storage import Exists, Missing, ObjectBlobs, ObjectStorage
from dart.store.run_blobs import blobs_of, run_blobs
from dart.testing.s3_server import S3Server

CONTENT = b"\x89PNG" + bytes(range(256)) * 40


@pytest.fixture(params=["folder", "s3", "shared folder", "cached"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """Every kind of store."""
    if request.param == "folder":
        return FolderBlobs(tmp_path / "blobs", STEPS)
    if request.param == "shared folder":
        return ObjectBlobs(ObjectStorage((tmp_path / "shared").as_uri()), STEPS)
    objects = ObjectBlobs(ObjectStorage(request.getfixturevalue("s3")), STEPS)
    if request.param == "s3":
        return objects
    return CachedBlobs(objects, CacheFolder(tmp_path / "cache", 10**6), STEPS, puts_once=False)


def test_what_was_put_is_read_by_its_hash_and_gone_when_deleted(blobs: BlobStore) -> None:
    sha256 = blobs.put(CONTENT)
    assert blobs.put(CONTENT) == sha256
    assert blobs.exists(sha256)
    assert blobs.read(sha256) == CONTENT
    (entry,) = blobs.entries(int(sha256[:2], 16))
    assert entry.sha256 == sha256
    assert abs(entry.put_unix_s - time.time()) < 3600.0
    assert list(blobs.entries((int(sha256[:2], 16) + 1) % 256)) == []
    blobs.delete(sha256)
    blobs.delete(sha256)
    assert not blobs.exists(sha256)
    with pytest.raises(BlobMissing, match=f"{sha256}.steps is missing"):
        blobs.read(sha256)


def test_a_store_can_be_sent_to_another_process(blobs: BlobStore) -> None:
    sha256 = blobs.put(CONTENT)
    assert pickle.loads(pickle.dumps(blobs)).read(sha256) == CONTENT


def test_damage_in_the_storage_is_found_by_the_hash(storage_address: str) -> None:
    storage = ObjectStorage(storage_address)
    blobs = ObjectBlobs(storage, SCREENSHOTS)
    sha256 = blobs.put(CONTENT)
    storage.put(blobs.key(sha256), b"something else")
    with pytest.raises(BlobCorrupt, match="has 14 bytes with sha256"):
        blobs.read(sha256)


def test_a_blob_in_a_shared_folder_is_on_the_disk_with_the_names_of_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(object_storage, "sync_path", synced.append)
    folder = tmp_path / "shared folder"
    ObjectStorage(folder.as_uri()).put("steps/ab/one file.steps", CONTENT)
    path = folder / "steps" / "ab" / "one file.steps"
    assert synced == [path, *list(path.parents)[:3]]
    assert path.read_bytes() == CONTENT


def test_an_object_is_created_once(storage_address: str) -> None:
    storage = ObjectStorage(storage_address)
    storage.put("a/manifest", b"first", only_create=True)
    with pytest.raises(Exists):
        storage.put("a/manifest", b"second", only_create=True)
    assert storage.get("a/manifest") == b"first"
    with pytest.raises(Missing):
        storage.get("a/other")


def test_a_file_goes_and_comes_in_parts(
    storage_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_storage, "PART_BYTES", 5 << 20)
    content = random.Random(0).randbytes(11 << 20)
    (tmp_path / "weights").write_bytes(content)
    storage = ObjectStorage(storage_address)
    storage.put_file("v1/weights", tmp_path / "weights")
    storage.get_file("v1/weights", tmp_path / "again", len(content))
    assert (tmp_path / "again").read_bytes() == content


def test_a_missing_bucket_is_named(s3: str) -> None:
    with pytest.raises(
        StoreUnavailable, match=r"s3://no-such-bucket/a/x: there is no such bucket: create it"
    ):
        ObjectStorage("s3://no-such-bucket/a").put("x", b"")


def test_missing_credentials_are_named(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(StoreUnavailable, match="no credentials were found: set AWS_ACCESS_KEY_ID"):
        ObjectStorage(s3).put("x", b"")


def test_refused_credentials_are_named(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise object_storage.exceptions.PermissionDeniedError("403 Forbidden: AccessDenied")

    monkeypatch.setattr(object_storage.obstore, "put", refuse)
    with pytest.raises(StoreUnavailable, match="the credentials are refused: correct AWS_ACCESS_KEY_ID"):
        ObjectStorage(s3).put("x", b"")


def test_a_server_that_is_down_is_busy_within_seconds_and_used_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = S3Server()
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    blobs = ObjectBlobs(ObjectStorage("s3://dartrl-tests/outage"), STEPS)
    began_s = time.monotonic()
    with pytest.raises(
        BlobsBusy, match="does not answer: check AWS_ENDPOINT_URL, the network and the server"
    ):
        blobs.put(CONTENT)
    assert time.monotonic() - began_s < 3 * (object_storage.GIVE_UP_S + object_storage.REQUEST_S)
    server.start()
    try:
        assert blobs.read(blobs.put(CONTENT)) == CONTENT
    finally:
        server.stop()


class FakeServer:
    """An HTTP server on this machine that gives one answer to every request, or none."""

    def __init__(self, answer: str = "") -> None:
        self._answer = answer.encode()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._open.append(connection)
                if self._answer:
                    connection.recv(65536)
                    connection.sendall(self._answer)
                    connection.close()

    def close(self) -> None:
        self._socket.close()
        for connection in self._open:
            connection.close()


def test_a_server_that_takes_requests_and_is_silent_does_not_make_the_store_hang(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeServer()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    began_s = time.monotonic()
    with pytest.raises(BlobsBusy, match="does not answer"):
        ObjectStorage(s3).get("x")
    assert time.monotonic() - began_s < Config().supervision.store.hang_deadline_s
    server.close()


def test_an_error_quotes_no_password_key_or_signature(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        '<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>s3cr3t-id'
        "</AWSAccessKeyId><SignatureProvided>s3cr3t-signature</SignatureProvided></Error>"
    )
    for status in ("403 Forbidden", "400 Bad Request"):
        server = FakeServer(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://me:s3cr3t@127.0.0.1:{server.port}")
        with pytest.raises(StoreUnavailable, match="SignatureDoesNotMatch") as refused:
            ObjectStorage(s3).get("x")
        assert "s3cr3t" not in "".join(traceback.format_exception(refused.value))
        server.close()


class RefusesOnePart(BaseHTTPRequestHandler):
    """Just enough of S3 for the parts of one file, of which it refuses the second once."""

    protocol_version = "HTTP/1.1"
    refused: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        begins = "uploads" in self.path
        kind = "InitiateMultipartUploadResult" if begins else "CompleteMultipartUploadResult"
        self._answer(200, f"<{kind}><UploadId>1</UploadId><ETag>1</ETag></{kind}>".encode())

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if "partNumber=2&" in self.path and not self.refused:
            self.refused.append(self.path)
            return self._answer(503, b"<Error><Code>SlowDown</Code></Error>")
        return self._answer(200, b"")

    def do_DELETE(self) -> None:
        self._answer(204, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_one_refused_part_does_not_fail_a_large_file(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_storage, "PART_BYTES", 5 << 20)
    (tmp_path / "weights").write_bytes(bytes(11 << 20))
    monkeypatch.setattr(RefusesOnePart, "refused", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), RefusesOnePart) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        storage = ObjectStorage(s3, part_tries=object_storage.PART_TRIES)
        monkeypatch.setattr(object_storage, "TRIES", 1)  # the file as a whole is not put again
        storage.put_file("weights", tmp_path / "weights")
        server.shutdown()
    assert len(RefusesOnePart.refused) == 1


# ---- the cache ----


@pytest.fixture
def objects(s3: str) -> ObjectBlobs:
    return ObjectBlobs(ObjectStorage(s3), SCREENSHOTS)


def cached(
    objects: ObjectBlobs, folder: Path, most_bytes: int = 10**6, *, puts_once: bool = True
) -> CachedBlobs:
    return CachedBlobs(objects, CacheFolder(folder, most_bytes), SCREENSHOTS, puts_once=puts_once)


def held_in(folder: Path) -> list[Path]:
    return list(folder.glob("screenshots/*/*.png"))


def test_what_this_machine_has_is_not_fetched_again(objects: ObjectBlobs, tmp_path: Path) -> None:
    sha256 = objects.put(CONTENT)
    near = cached(objects, tmp_path)
    assert near.read(sha256) == CONTENT
    objects.delete(sha256)
    assert near.read(sha256) == CONTENT


def test_what_this_machine_has_put_is_not_put_again(
    objects: ObjectBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = cached(objects, tmp_path)
    sha256 = near.put(CONTENT)
    monkeypatch.setattr(objects, "put", None)
    assert near.put(CONTENT) == sha256


def test_a_cache_that_an_earlier_run_left_does_not_keep_a_blob_from_being_put(
    objects: ObjectBlobs, tmp_path: Path
) -> None:
    cached(objects, tmp_path).put(CONTENT)
    of_this_run = ObjectBlobs(ObjectStorage(f"{objects.storage.address}/another-run"), SCREENSHOTS)
    sha256 = cached(of_this_run, tmp_path).put(CONTENT)
    assert of_this_run.read(sha256) == CONTENT


def test_a_cache_that_cannot_be_used_keeps_no_blob_from_being_read_put_or_deleted(
    objects: ObjectBlobs, tmp_path: Path
) -> None:
    near = cached(objects, tmp_path)
    sha256 = near.put(CONTENT)
    (path,) = held_in(tmp_path)
    path.unlink()
    path.mkdir()  # the disk answers with an error, whoever asks
    assert near.read(sha256) == CONTENT
    assert near.put(CONTENT) == sha256
    near.delete(sha256)
    assert not objects.exists(sha256)


def test_a_damaged_file_of_the_cache_is_fetched_again(objects: ObjectBlobs, tmp_path: Path) -> None:
    near = cached(objects, tmp_path)
    sha256 = near.put(CONTENT)
    (path,) = held_in(tmp_path)
    path.write_bytes(b"half")
    assert near.read(sha256) == CONTENT
    assert path.read_bytes() == CONTENT


def test_what_was_used_longest_ago_goes_when_the_cache_is_full(objects: ObjectBlobs, tmp_path: Path) -> None:
    near = cached(objects, tmp_path, most_bytes=1000)
    names = [near.put(bytes([number]) * 300) for number in range(3)]
    near.read(names[0])
    near.put(b"x" * 300)
    kept = {path.stem for path in held_in(tmp_path)}
    assert names[0] in kept
    assert names[1] not in kept
    assert near.read(names[1]) == bytes([1]) * 300
    near.put(b"y" * 2000)
    assert sum(path.stat().st_size for path in held_in(tmp_path)) <= 1000


READER = """
import random, sys
from pathlib import Path
from dart.store.blob_cache import CachedBlobs, CacheFolder
from dart.store.blobs import SCREENSHOTS
from dart.store.object_storage import ObjectBlobs, ObjectStorage

address, folder, seed, *names = sys.argv[1:]
blobs = ObjectBlobs(ObjectStorage(address), SCREENSHOTS)
near = CachedBlobs(blobs, CacheFolder(Path(folder), 40_000), SCREENSHOTS, puts_once=True)
draw = random.Random(seed)
print("ready", flush=True)
for _ in range(150):
    near.read(draw.choice(names))
"""


def test_the_cache_stays_within_its_bound_under_many_processes_one_of_them_killed(
    objects: ObjectBlobs, tmp_path: Path
) -> None:
    names = [objects.put(bytes([number]) * 4000) for number in range(30)]
    command = [sys.executable, "-c", READER, objects.storage.address, str(tmp_path)]
    readers = [
        subprocess.Popen([*command, str(seed), *names], stdout=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    (tmp_path / "count").touch()  # by the first reader that adds a blob, or here
    time.sleep(0.1)
    readers[0].send_signal(signal.SIGKILL)
    most = 0
    while any(reader.poll() is None for reader in readers):
        with (tmp_path / "count").open("rb") as count:
            fcntl.flock(count, fcntl.LOCK_EX)  # nothing is added meanwhile
            most = max(most, sum(_size(path) for path in tmp_path.glob("screenshots/*/*")))
        time.sleep(0.005)
    assert [reader.returncode for reader in readers] == [-signal.SIGKILL, 0, 0, 0]
    for reader in readers:
        assert reader.stdout is not None
        reader.stdout.close()
    assert 4000 <= most <= 40_000


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# ---- of a run ----


@pytest.fixture
def paths(s3: str, tmp_path: Path) -> RunPaths:
    paths = RunPaths(tmp_path / "run")
    paths.root.mkdir()
    paths.config.write_text(f'[run]\nblobs = "{s3}"\ncache_bytes = 1000000\n')
    return paths


def test_a_reader_of_a_run_finds_its_blobs_by_the_configuration_it_keeps(paths: RunPaths, s3: str) -> None:
    made = run_blobs(RunSettings(blobs=s3), paths.root)
    sha256 = made.steps.put(b"steps")
    assert blobs_of(paths).steps.read(sha256) == b"steps"
    assert blobs_of(paths).steps.place(sha256).startswith(s3)
    assert not paths.blobs.exists()


def test_a_screenshot_that_is_put_again_is_new_where_the_run_deletes_old_ones(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    settings = RunSettings(blobs=shared.as_uri(), screenshots_kept_days=14)
    screenshots = run_blobs(settings, tmp_path / "run").screenshots
    sha256 = screenshots.put(CONTENT)
    (file,) = shared.rglob("*.png")
    os.utime(file, (1.0, 1.0))
    assert screenshots.put(CONTENT) == sha256
    (entry,) = screenshots.entries(int(sha256[:2], 16))
    assert abs(entry.put_unix_s - time.time()) < 3600.0
