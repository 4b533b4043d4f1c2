"""Blobs in object storage: any S3, or a folder that all machines share, through obstore.

The address never holds credentials. obstore takes them from the variables AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, or from the role of the machine. AWS_ENDPOINT_URL names a server other than Amazon's,
and AWS_REGION its region.

This module repeats a request a few times within seconds. If the storage still does not answer, it raises
BlobsBusy, and the caller waits and tries again. An error that a person must correct is BlobsUnavailable, with
the remedy.

obstore starts threads, so a process that is going to fork must not use this module (`dart.run.child_task`).
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions
from obstore import store as stores
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_exponential

from dart.core.run_directory import make_private
from dart.store.blobs import BlobEntry, BlobKind, checked, missing, sync_path
from dart.store.errors import BlobsBusy, BlobsUnavailable

T = TypeVar("T")

TRIES = 4
GIVE_UP_S = 2.0
"""Seconds after the first try of a request, from which on no further try begins. The sum with REQUEST_S is
less than the hang deadline of the store actor, 8 s, because that actor reads blobs in message handlers."""

REQUEST_S = 5.0
"""Deadline of one request for a blob, in seconds."""

PART_REQUEST_S = 60.0
"""Deadline of one request for a part of a file, in seconds."""

PART_TRIES = 4
"""How often a part of a file is tried: a file of a thousand parts must not fail with one of them."""

CONNECT_S = 3.0
PART_BYTES = 16 << 20
"""Size of the parts in which a file is sent and fetched, so that a lost connection costs only one part."""

METADATA_SERVER = "169.254.169.254"
"""Address of the cloud's metadata server, which obstore asks for credentials if the environment has none."""


class Missing(Exception):
    """There is no object with this key."""


class Exists(Exception):
    """An object with this key exists already, but the request was to create a new one."""


class Entry(NamedTuple):
    """An object, as a listing shows it."""

    key: str
    put_unix_s: float


class ObjectStorage:
    """Objects below one address, by keys such as `steps/ab/abcd….steps`. Can be pickled.

    Methods that make a request raise BlobsBusy or BlobsUnavailable.
    """

    def __init__(self, address: str, *, request_s: float = REQUEST_S, part_tries: int = 1) -> None:
        """
        address      `s3://BUCKET/PREFIX` or `file:///FOLDER`
        request_s    deadline of one request
        part_tries   how often obstore itself tries a request, so that one failed part does not fail a file
        """
        self.address = address.rstrip("/")
        self._request_s, self._part_tries = request_s, part_tries

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_client"}

    @property
    def _folder(self) -> Path | None:
        """The folder that the machines share; None if the storage is an S3 server."""
        parts = urlsplit(self.address)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @cached_property
    def _client(self) -> Any:
        if self._folder is not None:
            make_private(self._folder)
            return stores.LocalStore(self._folder)
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        return stores.from_url(
            self.address,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "timeout": f"{self._request_s:g}s",
                "connect_timeout": f"{CONNECT_S:g}s",
            },
            retry_config={"max_retries": self._part_tries - 1},
        )

    def place(self, key: str) -> str:
        """The address of an object."""
        return f"{self.address}/{key}"

    def put(self, key: str, content: bytes, *, only_create: bool = False) -> None:
        """Store an object; with `only_create` raise Exists if there is one."""
        mode: Literal["create", "overwrite"] = "create" if only_create else "overwrite"
        self._try(key, lambda: obstore.put(self._client, key, content, mode=mode, use_multipart=False))
        self._sync(key)

    def get(self, key: str) -> bytes:
        """The content of an object. Raises Missing."""
        return self._try(key, lambda: obstore.get(self._client, key).bytes().to_bytes())

    def exists(self, key: str) -> bool:
        """Whether there is an object with this key."""
        try:
            self.size_bytes(key)
        except Missing:
            return False
        return True

    def size_bytes(self, key: str) -> int:
        """The size of an object. Raises Missing."""
        return self._try(key, lambda: obstore.head(self._client, key)["size"])

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        try:
            self._try(key, lambda: obstore.delete(self._client, key))
        except Missing:
            return

    def entries(self, prefix: str) -> list[Entry]:
        """The objects whose keys begin with the prefix and a slash."""
        return self._try(prefix, lambda: list(self._listed(prefix)))

    def _listed(self, prefix: str) -> Iterator[Entry]:
        for page in obstore.list(self._client, prefix):
            for found in page:
                put_at: datetime = found["last_modified"]
                yield Entry(found["path"], put_at.timestamp())

    def put_file(self, key: str, path: Path) -> None:
        """Store the content of a file, in parts if it is large."""
        self._try(key, lambda: obstore.put(self._client, key, path, chunk_size=PART_BYTES))
        self._sync(key)

    def _sync(self, key: str) -> None:
        """In a shared folder, write an object and the names on its path to the disk itself (fsync)."""
        if (root := self._folder) is None:
            return
        path = root / key
        try:
            for one in (path, *path.parents[: len(path.relative_to(root).parts)]):
                sync_path(one)
        except OSError as error:
            raise self._named(key, error) from None

    def get_file(self, key: str, path: Path, size_bytes: int) -> str:
        """Fetch an object of this size into a file, part by part; returns the sha256 of the fetched bytes.

        Raises Missing, and OSError when the disk refuses.
        """
        digest = hashlib.sha256()
        with path.open("wb") as file:
            for start in range(0, size_bytes, PART_BYTES):
                end = min(start + PART_BYTES, size_bytes)
                part = self._try(key, lambda span=(start, end): self._part(key, *span))  # type: ignore[misc]
                digest.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()

    def _part(self, key: str, start: int, end: int) -> bytes:
        return obstore.get_range(self._client, key, start=start, end=end).to_bytes()

    def _try(self, key: str, request: Callable[[], T]) -> T:
        """Make a request; repeat it up to `TRIES` times within `GIVE_UP_S` if the storage does not answer."""
        again = Retrying(
            retry=retry_if_exception_type(BlobsBusy),
            stop=stop_after_attempt(TRIES) | stop_after_delay(GIVE_UP_S),
            wait=wait_exponential(multiplier=0.1, max=0.5),
            reraise=True,
        )
        done: T = again(self._once, key, request)
        return done

    def _once(self, key: str, request: Callable[[], T]) -> T:
        try:
            return request()
        except (exceptions.BaseError, OSError) as error:
            raise self._named(key, error) from None  # its text may hold secrets

    def _named(self, key: str, error: Exception) -> Exception:
        """Translate the error of a request into one of this project, with the address and the remedy."""
        place, text = self.place(key), str(error)
        said = without_secrets(text) or type(error).__name__
        if "NoSuchBucket" in text:
            return BlobsUnavailable(
                f"{place}: there is no such bucket: create it, or name another one in run.blobs"
            )
        if isinstance(error, exceptions.AlreadyExistsError | FileExistsError):
            return Exists(f"{place} exists")
        if isinstance(error, exceptions.NotFoundError | FileNotFoundError):
            return Missing(f"{place} does not exist")
        if METADATA_SERVER in text:
            return BlobsUnavailable(
                f"{place}: no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                f"give the machine a role that may use the bucket ({said})"
            )
        if "RequestTimeTooSkewed" in text:
            return BlobsBusy(
                f"{place}: the clock of this machine differs too much from that of the object storage: run a "
                f"time service here, such as chrony or systemd-timesyncd ({said})"
            )
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            return BlobsUnavailable(
                f"{place}: the credentials are refused: correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                f"or allow their owner to read, write, list and delete there ({said})"
            )
        return BlobsBusy(
            f"{place}: the object storage does not answer: check AWS_ENDPOINT_URL, the network and the "
            f"server ({said})"
        )


def without_secrets(text: str) -> str:
    """The text of an error of obstore, on one line and without secrets.

    A password in AWS_ENDPOINT_URL is removed. Of the server's answer only the error code is kept, because the
    answer may quote the id of a key and a signature.
    """
    about, _, answer = text.partition("<")
    code = re.search(r"<Code>(\w+)</Code>", f"<{answer}")
    line = next(iter(about.splitlines()), "").strip()
    return re.sub(r"//[^/\s]*@", "//", f"{line} {code[1]}" if code else line)


class ObjectBlobs:
    """Blobs of one kind as objects <kind>/ab/abcd….png. Can be pickled."""

    is_remote = True

    def __init__(self, storage: ObjectStorage, kind: BlobKind) -> None:
        self.storage, self.kind = storage, kind

    def key(self, sha256: str) -> str:
        """The key of a blob, whether or not the object exists."""
        return f"{self.kind.prefix}/{sha256[:2]}/{sha256}{self.kind.suffix}"

    def place(self, sha256: str) -> str:
        return self.storage.place(self.key(sha256))

    def put(self, content: bytes) -> str:
        """Store a blob, even if it exists, so that a sweep sees it as new; returns its sha256."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.storage.put(self.key(sha256), content)
        return sha256

    def read(self, sha256: str) -> bytes:
        try:
            content = self.storage.get(self.key(sha256))
        except Missing as error:
            raise missing(self.kind, sha256, self.place(sha256)) from error
        return checked(self.kind, sha256, self.place(sha256), content)

    def exists(self, sha256: str) -> bool:
        return self.storage.exists(self.key(sha256))

    def delete(self, sha256: str) -> None:
        self.storage.delete(self.key(sha256))

    def entries(self, shard: int) -> Iterator[BlobEntry]:
        for entry in self.storage.entries(f"{self.kind.prefix}/{shard:02x}"):
            name = entry.key.rpartition("/")[2].removesuffix(self.kind.suffix)
            yield BlobEntry(name, entry.put_unix_s)
