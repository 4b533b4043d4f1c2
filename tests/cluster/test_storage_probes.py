"""Probes of real servers: a database that is empty, in use or silent; storage with create-only."""

from pathlib import Path

import pytest

from dart.cluster.storage_probes import probe_blobs, probe_record
from dart.config.config import Config
from dart.core.record_address import parse_record_address
from dart.core.run_directory import RunPaths
from dart.store.store import Store
from dart.telemetry.events import POOLS_SIZED


def config(record: str = "", blobs: str = "") -> Config:
    return Config.model_validate({"run": {"record": record, "blobs": blobs}})


def test_an_empty_database_passes(database: str, tmp_path: Path) -> None:
    found = probe_record(config(database), RunPaths(tmp_path))
    assert (found.is_well, found.text) == (True, f"{database} is empty")


def test_a_database_of_another_run_fails_with_what_to_do(database: str, tmp_path: Path) -> None:
    with Store(parse_record_address(database)) as store:
        store.add_version()
        store.record_event(POOLS_SIZED, "root", {})
    found = probe_record(config(database), RunPaths(tmp_path))
    assert not found.is_well
    assert "name an empty database in run.record" in found.text


def test_a_server_that_does_not_answer_fails(tmp_path: Path) -> None:
    found = probe_record(config("postgresql://me@127.0.0.1:1/none"), RunPaths(tmp_path))
    assert not found.is_well
    assert "127.0.0.1:1" in found.text


def test_storage_that_honours_create_only_passes_and_nothing_is_left_there(storage_address: str) -> None:
    from dart.store.object_storage import ObjectStorage

    found = probe_blobs(config(blobs=storage_address))
    assert found.is_well, found.text
    assert ObjectStorage(storage_address).entries("") == []


def test_storage_that_does_not_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tests")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    found = probe_blobs(config(blobs="s3://bucket/prefix"))
    assert not found.is_well
    assert "s3://bucket/prefix" in found.text
