"""The file `grounding.json` of a checkpoint: its head, its labels and its prompt. Imports no torch.

Accuracies of grounding models differ by several points between prompts, so the prompt belongs to the
checkpoint and is part of every report. A checkpoint without the file is a published one, or a policy that was
never trained to ground: it gets the defaults.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from dart.core.errors import UnavailableError
from dart.policy.pointer.patches import LabelKind

FILE = "grounding.json"

HeadKind = Literal["pointer", "attention", "coordinates"]
"""`pointer`: GUI-Actor's head; `attention`: GUI-AIMA's attention; `coordinates`: a head that predicts bins of
x and y (the baseline)."""

LABEL_KINDS: tuple[LabelKind, ...] = ("overlap", "gaussian")

SYSTEM = "You see the screenshot of a screen. Point at the one element that the instruction means."

ANSWER = "\nAction: click("


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSettings:
    """How a checkpoint grounds instructions."""

    head: HeadKind = "pointer"
    labels: LabelKind = "overlap"
    """Kind of labels with which the head was trained (`dart.policy.pointer.patches.patch_labels`)."""
    system: str = SYSTEM
    """System message of a vision-language model's prompt; empty: none."""
    answer: str = ANSWER
    """Beginning of the model's answer, up to the token that points, but without the pointer token.

    This text replaces the line break at the end of the chat template's header of an answer. Therefore it can
    also continue this header, as GUI-Actor's `<|recipient|>os` does."""


class BadSettings(UnavailableError):
    """The file `grounding.json` of a checkpoint cannot be read, or has unknown keys or values."""


def read_settings(folder: Path) -> HeadSettings:
    """Read the settings of a checkpoint; the defaults if it has none. Raises BadSettings."""
    path = folder / FILE
    if not path.is_file():
        return HeadSettings()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadSettings(f"{path} cannot be read as JSON: {error}; correct or remove it") from error
    known = {field.name for field in fields(HeadSettings)}
    if not isinstance(found, dict) or not set(found) <= known:
        raise BadSettings(
            f"{path}: expected an object with some of the keys {sorted(known)}, got {found!r}; correct or "
            "remove the file"
        )
    for key, values in (("head", get_args(HeadKind)), ("labels", LABEL_KINDS)):
        if found.get(key, values[0]) not in values:
            raise BadSettings(
                f"{path}: expected {key} to be one of {', '.join(values)}, got {found[key]!r}; correct or "
                "remove the key"
            )
    return HeadSettings(**found)


def write_settings(folder: Path, settings: HeadSettings) -> None:
    """Write the settings into `grounding.json` in the folder of a checkpoint."""
    (folder / FILE).write_text(json.dumps(asdict(settings), indent=1) + "\n", encoding="utf-8")
