"""Policies on the Hugging Face hub: their addresses (`training.policy = "hf://owner/name@revision"`) and the
folders into which they are fetched."""

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("models/hub")
"""Folder of the fetched checkpoints, relative to the working directory."""

NOTE = "hub.json"
"""Name of the file in the folder of a fetched checkpoint that says which commit was fetched."""

_ADDRESS = re.compile(r"hf:/{1,2}(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[\w./-]+)")
"""Matches an address, also with one slash after `hf:`, because `Path` removes the second one."""

_FOLDER_NAME = re.compile(r"(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)@(?P<revision>[\w.@-]+)")
"""Matches the name of a folder. An `@` in the revision stands for a slash; no address has an `@` there."""


@dataclass(frozen=True, slots=True)
class HubPolicy:
    """A checkpoint on the hub."""

    repo: str
    revision: str
    """A commit, a tag or a branch."""
    folder: Path
    """The absolute path of the folder into which this checkpoint is fetched."""

    def __str__(self) -> str:
        return f"hf://{self.repo}@{self.revision}"


def is_address(policy: Path | str) -> bool:
    """Whether a policy begins with `hf:/`, so that an address on the hub is meant, valid or not."""
    return str(policy).startswith("hf:/")


def hub_policy(policy: Path | str) -> HubPolicy | None:
    """Return the checkpoint that an address names; None if it is not of the form
    `hf://owner/name@revision`."""
    found = _ADDRESS.fullmatch(str(policy))
    if found is None:
        return None
    name = f"{found['repo'].replace('/', '--')}@{found['revision'].replace('/', '@')}"
    return HubPolicy(found["repo"], found["revision"], FOLDER.absolute() / name)


def fetched_from(folder: Path) -> HubPolicy | None:
    """Return the checkpoint that a folder in a `models/hub` holds, by its name; None for any other folder.

    The folder stays the one that is given: a run keeps it, and can be continued from another directory.
    """
    found = _FOLDER_NAME.fullmatch(folder.name) if folder.parent.parts[-2:] == FOLDER.parts else None
    if found is None:
        return None
    return HubPolicy(f"{found['owner']}/{found['name']}", found["revision"].replace("@", "/"), folder)
