"""The steps of an episode on their way to the store: in a file, named in the message by path and hash.

Mail carries 64 KiB. Thirty steps of a 7 B policy with 14,000 prompt ids each take two megabytes.
"""

import hashlib
from pathlib import Path

from dart import messages as m
from dart.store.blobs import write_whole
from dart.store.errors import StoreConflict
from dart.store.rows import pack_steps, unpack_steps
from dart.types import Step


def send(folder: Path, name: str, steps: tuple[Step, ...]) -> m.Parcel:
    """Write the steps under a name nobody else uses. Raises StoreUnavailable when there is no room."""
    content = pack_steps(steps)
    path = folder / f"{name}.steps"
    write_whole(path, content)
    return m.Parcel(path=str(path), sha256=hashlib.sha256(content).hexdigest())


def opened(parcel: m.Parcel) -> tuple[Step, ...]:
    """The steps, exactly as they were sent. Raises StoreConflict when the file is not what was sent."""
    try:
        content = Path(parcel.path).read_bytes()
    except FileNotFoundError as missing:
        raise StoreConflict(
            f"the steps in {parcel.path} are gone: their sender was started again"
        ) from missing
    found = hashlib.sha256(content).hexdigest()
    if found != parcel.sha256:
        raise StoreConflict(f"the steps in {parcel.path} have sha256 {found}, sent were {parcel.sha256}")
    return unpack_steps(content)


def discard(parcel: m.Parcel) -> None:
    """It arrived, or is not wanted any more."""
    Path(parcel.path).unlink(missing_ok=True)
