"""Policies on the Hugging Face hub, `hf://owner/name@revision` as `training.policy`, and their folders."""

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("models/hub")
"""Where fetched checkpoints lie, in the working directory."""

NOTE = "hub.json"
"""File in the folder of a fetched checkpoint that names its commit."""

_ADDRESS = re.compile(r"hf:/{1,2}(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[\w./-]+)")
"""Matches an address; as a path it has lost one of its slashes."""

_FOLDER_NAME = re.compile(r"(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)@(?P<revision>[\w.-]+)")


@dataclass(frozen=True, slots=True)
class HubPolicy:
    """A checkpoint on the hub."""

    repo: str
    revision: str
    """A commit, a tag or a branch."""

    def __str__(self) -> str:
        return f"hf://{self.repo}@{self.revision}"

    @property
    def folder(self) -> Path:
        """The folder of the fetched checkpoint."""
        name = f"{self.repo.replace('/', '--')}@{self.revision.replace('/', '--')}"
        return FOLDER.absolute() / name


def is_address(policy: Path | str) -> bool:
    """Whether a policy is meant to be on the hub."""
    return str(policy).startswith("hf:/")


def hub_policy(policy: Path | str) -> HubPolicy | None:
    """Return the checkpoint that an address names; None if it is not of the form `hf://owner/name@revision`."""
    found = _ADDRESS.fullmatch(str(policy))
    return HubPolicy(found["repo"], found["revision"]) if found else None


def fetched_from(folder: Path) -> HubPolicy | None:
    """Return what belongs into a folder below `models/hub`; None for another folder."""
    found = _FOLDER_NAME.fullmatch(folder.name) if folder.parent.parts[-2:] == FOLDER.parts else None
    return HubPolicy(f"{found['owner']}/{found['name']}", found["revision"]) if found else None
