"""Checkpoints in object storage: each version is published completely or not at all.

Below the address of the run's blobs::

    checkpoints/v000042/manifest.json     names, sizes and sha256 of the files; put last, and only created
    checkpoints/v000042/<attempt>/...     the files of the checkpoint; for version 0 those of the base policy
    checkpoints/v000043/uncommitted.json  the former manifest of a version that the record does not have

Each attempt to publish a version has files of its own. If two trainers try to publish the same version, only
one succeeds, and the other changes nothing. A version is removed by deleting its manifest first: files
without a manifest are no version.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dart.core.run_directory import make_private
from dart.store.blobs import sync_path
from dart.store.checkpoints import (
    STATE_FILE,
    TRAINERS_PARTS,
    CheckpointExists,
    CheckpointNotWritten,
    CorruptCheckpoint,
    checkpoint_name,
    files_of,
    hashes_of,
    kept_versions,
    load_checkpoint,
    sha256_of,
    version_named,
)
from dart.store.errors import BlobsBusy, StoreUnavailable
from dart.store.object_storage import PART_REQUEST_S, PART_TRIES, Exists, Missing, ObjectStorage
from dart.store.served_folder import ServedFolders, make_whole
from dart.store.transfers import transfer_each

PREFIX = "checkpoints"
MANIFEST = "manifest.json"
UNCOMMITTED = "uncommitted.json"
FORMAT = 1

NOTE = ".published"
"""A file beside the checkpoints of a machine: the version that it published or fetched last, and its hash."""

BASES = "bases"
"""Folder for base policies, beside the cache folder for other versions, where unused folders are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """One file of a published version."""

    name: str
    """Its path relative to the checkpoint's folder."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a published version consists of."""

    version: int
    attempt: str
    files: tuple[PublishedFile, ...]

    def to_json(self) -> bytes:
        """The manifest as the bytes of its object."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, sort_keys=True).encode()

    @classmethod
    def of_json(cls, content: bytes) -> "Manifest":
        """Read a manifest from the bytes of an object. Raises ValueError, TypeError, KeyError or
        AttributeError."""
        document = json.loads(content)
        if document["format"] != FORMAT:
            raise ValueError(f"expected format {FORMAT}, got {document['format']}")
        files = tuple(PublishedFile(**file) for file in document["files"])
        for path in (document["attempt"], *(file.name for file in files)):
            if path.startswith("/") or not {"", ".", ".."}.isdisjoint(path.split("/")):
                raise ValueError(f"{path!r} is no path within the folder of a version")
        return cls(version=document["version"], attempt=document["attempt"], files=files)


class PublishedCheckpoints:
    """The checkpoints of a run in object storage, and their copies on this machine."""

    is_remote = True

    def __init__(self, address: str, parent: Path, cache: Path) -> None:
        """
        address   address of the run's blobs, `run.blobs`
        parent    folder of complete checkpoints, which the trainer of this machine writes and resumes from
        cache     folder of the versions that engines of this machine load; base policies are in `bases`
                  beside it
        """
        self._storage = ObjectStorage(address, request_s=PART_REQUEST_S, part_tries=PART_TRIES)
        self._parent = parent
        self._served, self._bases = ServedFolders(cache), ServedFolders(cache.with_name(BASES))

    # for the trainer

    def publish(self, version: int, folder: Path) -> None:
        """Put the files of a checkpoint into the storage, and then its manifest.

        If a file cannot be put, removes those that were, as far as the storage answers. Succeeds, too, if the
        same files are published already. Raises CheckpointExists if another trainer has published this
        version with other files, and StoreUnavailable.
        """
        attempt = uuid.uuid4().hex
        files = tuple(_described(folder))
        manifest = Manifest(version=version, attempt=attempt, files=files)
        try:
            transfer_each(
                lambda file: self._storage.put_file(_key(manifest, file.name), folder / file.name), files
            )
        except BaseException:
            with suppress(StoreUnavailable):  # full storage needs the room
                self._remove_attempt(manifest)
            raise
        try:
            self._storage.put(_manifest_key(version), manifest.to_json(), only_create=True)
        except Exists as exists:
            published = self._manifest(version)
            if published.files != files:
                self._remove_attempt(manifest)
                place = self._storage.place(_manifest_key(version))
                raise CheckpointExists(
                    f"{place} exists: another trainer has published version {version}, so this trainer must "
                    "not publish it"
                ) from exists
            attempt = published.attempt
        self._note_published(version, folder)
        self._remove_files(version, but=attempt)  # of attempts that were interrupted

    def set_aside_uncommitted(self, committed: int) -> list[int]:
        """Set aside the published versions that are newer than `committed`; returns these versions.

        A version that is set aside is no longer published, but its files stay until the version is published
        anew. Newer versions that were published only in part are removed. Call this only in the trainer that
        holds the newest lease of the batch, because then no other trainer can commit these versions.

        committed   the newest version in the record
        """
        published = [version for version in self.versions() if version > committed]
        for version in published:
            self._storage.put(_uncommitted_key(version), self._storage.get(_manifest_key(version)))
            self._storage.delete(_manifest_key(version))
        for version in self._found_versions():
            if version > committed and not self._storage.exists(_uncommitted_key(version)):
                self.remove(version)
        return published

    def place_of_uncommitted(self, version: int) -> str:
        """The address of the manifest of a version that was set aside."""
        return self._storage.place(_uncommitted_key(version))

    def prune(self, keep: int, protect: frozenset[int] = frozenset()) -> list[int]:
        """Remove all published versions except the `keep` newest and those in `protect`.

        Returns the removed versions. Version 0 always stays: it is the base policy, to which evaluations
        compare other versions.
        """
        published = self.versions()
        kept = kept_versions(published, keep, protect | {0})
        doomed = [version for version in published if version not in kept]
        for version in doomed:
            self.remove(version)
        return doomed

    def remove(self, version: int) -> None:
        """Remove a version. Its manifest is removed first, so that no reader finds an incomplete version."""
        self._storage.delete(_manifest_key(version))
        self._remove_files(version)

    def _remove_files(self, version: int, but: str = "") -> None:
        for entry in self._storage.entries(f"{PREFIX}/{checkpoint_name(version)}"):
            if entry.key != _manifest_key(version) and entry.key.split("/")[2] != but:
                self._storage.delete(entry.key)

    def _remove_attempt(self, manifest: Manifest) -> None:
        for file in manifest.files:
            self._storage.delete(_key(manifest, file.name))

    # for everybody

    def versions(self) -> list[int]:
        """The published versions, oldest first."""
        keys = (entry.key for entry in self._storage.entries(PREFIX))
        return sorted(version_named(key.split("/")[1]) for key in keys if key.endswith(f"/{MANIFEST}"))

    def _found_versions(self) -> list[int]:
        """The versions that have any object in the storage, published or not; oldest first."""
        return sorted({version_named(entry.key.split("/")[1]) for entry in self._storage.entries(PREFIX)})

    def policy(self, version: int) -> Path:
        """A folder of this machine with the policy of a version, without the trainer's parts.

        The folder stays until this process asks for another version. Raises CorruptCheckpoint,
        CheckpointNotWritten if the disk of this machine refuses, and StoreUnavailable.
        """
        return self._held(self._served, version)

    def base(self) -> Path:
        """A folder of this machine with version 0, which stays as long as this process lives.

        Raises what `policy` raises.
        """
        return self._held(self._bases, 0)

    def discard(self, folder: Path) -> None:
        for folders in (self._served, self._bases):
            folders.discard(folder)

    def _held(self, folders: ServedFolders, version: int) -> Path:
        manifest = self._manifest(version)
        name = f"{checkpoint_name(version)}-{manifest.attempt}"  # another run may have left its own version
        return folders.hold(name, lambda folder: self._fetch(manifest, folder, but=TRAINERS_PARTS))

    def fetch(self, version: int) -> None:
        """Fetch the complete checkpoint of a version to this machine, unless it is here and undamaged.

        A version is not here if the folder holds other files than the published ones: a trainer of this
        machine wrote them and ended before it published them, and another one has published this version.

        Raises CorruptCheckpoint, CheckpointNotWritten, StoreUnavailable.
        """
        folder = self._parent / checkpoint_name(version)
        try:
            load_checkpoint(folder)
            is_here = self._is_published(version, folder)
        except CorruptCheckpoint:
            is_here = False
        if not is_here:
            manifest = self._manifest(version)
            make_whole(folder, lambda temporary: self._fetch(manifest, temporary))
            sync_path(self._parent)
            self._note_published(version, folder)

    def _is_published(self, version: int, folder: Path) -> bool:
        """Whether a folder holds the published files of a version; True if it has no readable manifest.

        While the storage does not answer, this machine's note of what it published or fetched last counts.
        Raises BlobsBusy if that is another version.
        """
        state = sha256_of(folder / STATE_FILE)  # it names the hashes of all other files
        try:
            files = self._manifest(version).files
        except CorruptCheckpoint:
            return True
        except BlobsBusy:
            if self._noted() == _note(version, state):
                return True
            raise
        return any(file.name == STATE_FILE and file.sha256 == state for file in files)

    def _note_published(self, version: int, folder: Path) -> None:
        with suppress(OSError):  # a note that is missing costs a wait when the storage is away
            (self._parent / NOTE).write_text(_note(version, sha256_of(folder / STATE_FILE)))

    def _noted(self) -> str:
        with suppress(OSError, ValueError):
            return (self._parent / NOTE).read_text()
        return ""

    def _manifest(self, version: int) -> Manifest:
        place = Path(self._storage.place(_manifest_key(version)))
        try:
            return Manifest.of_json(self._storage.get(_manifest_key(version)))
        except Missing as missing:
            raise CorruptCheckpoint(place.parent, MANIFEST, "an object", "nothing") from missing
        except (ValueError, TypeError, KeyError, AttributeError) as broken:
            raise CorruptCheckpoint(place.parent, MANIFEST, "a manifest", str(broken)) from broken

    def _fetch(self, manifest: Manifest, folder: Path, but: Sequence[str] = ()) -> None:
        """Fetch the files of a version, except those in `but`, into a new folder, and check their hashes."""
        try:
            make_private(folder)
            wanted = [file for file in manifest.files if Path(file.name).parts[0] not in but]
            transfer_each(lambda file: self._fetch_file(manifest, file, folder), wanted)
        except OSError as refused:
            raise CheckpointNotWritten(folder, refused) from refused

    def _fetch_file(self, manifest: Manifest, file: PublishedFile, folder: Path) -> None:
        path, key = folder / file.name, _key(manifest, file.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            size_bytes = self._storage.size_bytes(key)  # requests for parts beyond the end of an object fail
            if size_bytes != file.size_bytes:
                raise CorruptCheckpoint(folder, file.name, f"{file.size_bytes} bytes", f"{size_bytes} bytes")
            found = self._storage.get_file(key, path, size_bytes)
        except Missing as missing:
            raise CorruptCheckpoint(folder, file.name, "an object", "nothing") from missing
        if found != file.sha256:
            raise CorruptCheckpoint(folder, file.name, f"sha256 {file.sha256}", found)


def _described(folder: Path) -> Iterator[PublishedFile]:
    names = [path.relative_to(folder).as_posix() for path in files_of(folder)]
    for name, sha256 in hashes_of(folder, names).items():
        yield PublishedFile(name=name, size_bytes=(folder / name).stat().st_size, sha256=sha256)


def _note(version: int, state_sha256: str) -> str:
    return f"{version} {state_sha256}\n"


def _manifest_key(version: int) -> str:
    return f"{PREFIX}/{checkpoint_name(version)}/{MANIFEST}"


def _uncommitted_key(version: int) -> str:
    return f"{PREFIX}/{checkpoint_name(version)}/{UNCOMMITTED}"


def _key(manifest: Manifest, name: str) -> str:
    return f"{PREFIX}/{checkpoint_name(manifest.version)}/{manifest.attempt}/{name}"
