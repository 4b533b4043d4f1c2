"""Whether a policy folder is what was written for a version, before an engine takes it over."""

from pathlib import Path

from dart.training.checkpoint import STATE_FILE, CorruptCheckpoint, load_checkpoint


def verify_policy(folder: Path, version: int) -> None:
    """Every file against its sha256, and the version against the one that was asked for.

    Version 0 is the policy training starts from: a plain folder without hashes, or the checkpoint of another
    run, whatever its version there. Raises CorruptCheckpoint.
    """
    if version == 0 and not (folder / STATE_FILE).exists():
        return
    found = load_checkpoint(folder).state.version
    if version not in (0, found):
        raise CorruptCheckpoint(folder, STATE_FILE, f"version {version}", f"version {found}")
