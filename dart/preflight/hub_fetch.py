"""Fetches a checkpoint from the Hugging Face hub and checks every file by its hash.

A branch or a tag is first resolved to a commit, and all files are fetched from this commit. The folder of the
checkpoint appears only when every file has been fetched and checked. Its `hub.json` has the repository, the
revision, the commit and the hash of each file. One process at a time fetches a checkpoint.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dart.config.config import Config
from dart.config.hub import NOTE, HubPolicy, fetched_from
from dart.core.disk_errors import DISK_ERRORS
from dart.core.errors import UnavailableError

ENDPOINT = "HF_ENDPOINT"
SUFFIXES = (".json", ".safetensors", ".jinja", ".txt", ".model")
"""Suffixes of the files that are fetched; others, such as pictures, are left out."""

READ_BYTES = 1 << 20


def fetch(
    policy: HubPolicy, say: Callable[[str], None] = lambda _: None, *, only_config: bool = False
) -> Path:
    """Fetch a checkpoint, unless it has been fetched before, and return its folder.

    If another process fetches the same checkpoint, wait for it.

    say           prints a line of progress
    only_config   fetch only config.json, which is enough for an estimate of memory (`dartrl up --dry-run`)

    Raises UnavailableError if the hub cannot be reached or has no such checkpoint, or if a fetched file does
    not have the hash that the hub reports. Raises OSError if the disk is full or fails, or if the user may
    not write into the folder.
    """
    if not _is_fetched(policy):
        with _alone(policy, say):
            if not _is_fetched(policy):  # by another process meanwhile
                _fetch(policy, say, only_config=only_config)
    return policy.folder


def _is_fetched(policy: HubPolicy) -> bool:
    return (policy.folder / NOTE).is_file()


@contextmanager
def _alone(policy: HubPolicy, say: Callable[[str], None]) -> Iterator[None]:
    """Let no other process fetch the same checkpoint while the block lasts. Raises OSError."""
    policy.folder.parent.mkdir(parents=True, exist_ok=True)
    with policy.folder.with_name(f".{policy.folder.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process fetches {policy}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(policy: HubPolicy, say: Callable[[str], None], *, only_config: bool) -> None:
    with _told(policy):
        from huggingface_hub import HfApi

        api = HfApi(endpoint=os.environ.get(ENDPOINT))
        info = api.model_info(policy.repo, revision=policy.revision, files_metadata=True)
        wanted = [one for one in info.siblings or () if _belongs(one.rfilename, only_config=only_config)]
        if not any(one.rfilename == "config.json" for one in wanted):
            raise UnavailableError(
                f"{policy} has no config.json, so it is not a checkpoint of a policy; name another repository"
            )
        target = policy.folder if only_config else policy.folder.with_name(f".{policy.folder.name}.part")
        target.mkdir(parents=True, exist_ok=True)
        hashes = {}
        for one in wanted:
            say(f"{one.rfilename}  {one.size or 0:,} bytes")
            api.hf_hub_download(policy.repo, one.rfilename, revision=info.sha, local_dir=target)
            hashes[one.rfilename] = _checked(target / one.rfilename, one, policy)
    shutil.rmtree(target / ".cache", ignore_errors=True)
    if only_config:
        return
    note = {"repo": policy.repo, "revision": policy.revision, "commit": info.sha, "files": hashes}
    (target / NOTE).write_text(json.dumps(note, indent=1))
    shutil.rmtree(policy.folder, ignore_errors=True)  # a config.json that was fetched alone
    target.rename(policy.folder)
    say(f"{policy} is commit {info.sha}, in {policy.folder}")


def fetch_if_allowed(config: Config, say: Callable[[str], None]) -> None:
    """Fetch the policy that a start fetches, if there is one. Raises the errors of `fetch`."""
    policy = fetched_by_start(config)
    if policy is not None:
        fetch(policy, say)


def fetched_by_start(config: Config) -> HubPolicy | None:
    """Return the policy that the start of a run fetches; None if it fetches none.

    It is that of `training.policy`, if this names one on the hub, `training.fetch_policy` is true, and it has
    not been fetched before.
    """
    policy = fetched_from(config.training.policy)
    if policy is None or not config.training.fetch_policy or _is_fetched(policy):
        return None
    return policy


def _belongs(name: str, *, only_config: bool) -> bool:
    if only_config:
        return name == "config.json"
    return name.endswith(SUFFIXES) and "/" not in name


def _checked(file: Path, said: Any, policy: HubPolicy) -> str:
    """Check a fetched file and return its hash: the sha256 of a large (LFS) file, else git's blob hash.

    said     the hub's description of the file
    raises   UnavailableError, after deleting the file, if the hash is not the one that the hub reports
    """
    large = said.lfs.sha256 if said.lfs else None
    begin = b"" if large else f"blob {file.stat().st_size}\0".encode()
    digest = hashlib.sha256() if large else hashlib.sha1(begin, usedforsecurity=False)
    with file.open("rb") as content:
        while piece := content.read(READ_BYTES):
            digest.update(piece)
    expected = large or said.blob_id
    if digest.hexdigest() != expected:
        file.unlink()
        raise UnavailableError(
            f"{file.name} of {policy} has the hash {digest.hexdigest()}, expected {expected}: "
            "the file was damaged or changed during the download; fetch it again"
        )
    return str(expected)


@contextmanager
def _told(policy: HubPolicy) -> Iterator[None]:
    """Turn errors of the hub and of the network in the block into UnavailableError, which says what to do.

    The errors of a full or failing disk and of a missing permission stay as they are, and name the folder.
    """
    from huggingface_hub import errors

    where = os.environ.get(ENDPOINT) or "https://huggingface.co"
    try:
        yield
    except errors.RevisionNotFoundError as error:
        what = f"{where} has {policy.repo}, but no revision {policy.revision!r}"
        raise UnavailableError(f"{what}; name a commit, a tag or a branch") from error
    except errors.RepositoryNotFoundError as error:
        what = f"{where} has no {policy.repo}, or does not show it to you"
        raise UnavailableError(f"{what}; check the name, or set HF_TOKEN for a gated repository") from error
    # The base of all errors of the hub's HTTP client, whose own name changes with the version.
    except (OSError, errors.HTTPError) as error:  # type: ignore[attr-defined]
        if isinstance(error, OSError) and (error.errno in DISK_ERRORS or isinstance(error, PermissionError)):
            error.filename = error.filename or str(policy.folder)  # the error of a write names no file
            raise
        what = f"{policy} cannot be fetched from {where}: {error}"
        by_hand = "copy the checkpoint into a folder of yours and name that folder in training.policy"
        raise UnavailableError(f"{what}; set {ENDPOINT} to a mirror, or {by_hand}") from error
