"""The small policy's special tokens: actions, coordinates, copies, step counters. Pure data, no torch.

An answer is a few tokens: `<click> <x_21> <y_30> <eos>`. Coordinates are bins of
`BIN_PX` pixels of the policy's frame, the cells of the feature map that the model points into
(`dart.policy.modeling`); a bin stands for its middle. A policy with the pointer head
writes `<click> <pointer> <patch_305> <eos>` instead; a patch stands for its centre. A text to type can
be copied from the instruction: `<q1>` is its first double-quoted span.
"""

import re
from functools import cache
from typing import Literal

FRAME_WIDTH_PX = 160
"""Width of the frame: the size in which the policy sees every screenshot."""
FRAME_HEIGHT_PX = 210
BIN_PX = 4
X_BINS = FRAME_WIDTH_PX // BIN_PX
Y_BINS = -(-FRAME_HEIGHT_PX // BIN_PX)

PATCH_PX = 8
"""Side of the patches of the pointer head; those of the last row lie partly below the screen."""

PATCH_COLUMNS = FRAME_WIDTH_PX // PATCH_PX
PATCH_ROWS = -(-FRAME_HEIGHT_PX // PATCH_PX)
PATCHES = PATCH_ROWS * PATCH_COLUMNS

Coordinates = Literal["bins", "pointer"]
"""How a policy writes a point: a token for its column and one for its row, or `<pointer>` and a patch."""

MAX_COPIES = 4
"""Number of quoted spans of an instruction that can be copied."""

STEP_COUNTERS = 16
"""Number of step counters; the last one also stands for all later steps."""

PAD, EOS, IMAGE, ANSWER = "<pad>", "<eos>", "<image>", "<answer>"
POINTER = "<pointer>"

POINTER_KEY = "pointer_pad_token_id"
"""Key of a vision-language checkpoint's config.json that names the token `<pointer>`; checkpoints without a
pointer head lack it. GUI-Actor's checkpoints have the same key."""

ACTIONS = ("click", "left_double", "right_single", "drag", "hotkey", "type", "scroll", "wait", "finished")
DIRECTIONS = ("up", "down", "left", "right")

_QUOTED = re.compile(r'"([^"]+)"')


def copy_token(index: int) -> str:
    """Return the token of the `index`-th quoted span, counted from 0: `<q1>` is the first."""
    return f"<q{index + 1}>"


def step_token(steps_done: int) -> str:
    """Return the token for the number of answers so far in this episode."""
    return f"<step_{min(steps_done, STEP_COUNTERS - 1)}>"


def x_token(column: int) -> str:
    """Return the token of a column of bins, counted from 0 at the left."""
    return f"<x_{column}>"


def y_token(row: int) -> str:
    """Return the token of a row of bins, counted from 0 at the top."""
    return f"<y_{row}>"


def patch_token(patch: int) -> str:
    """Return the token of a patch; patches are numbered row by row from the top left."""
    return f"<patch_{patch}>"


@cache
def special_tokens(coordinates: Coordinates = "bins") -> tuple[str, ...]:
    """Return all special tokens; the position in this tuple is the token's id.

    The tokens of coordinates come last, so the ids of all others do not depend on `coordinates`.
    """
    bins = (*map(x_token, range(X_BINS)), *map(y_token, range(Y_BINS)))
    patches = (POINTER, *(patch_token(patch) for patch in range(PATCHES)))
    return (
        *(PAD, EOS, IMAGE, ANSWER),
        *(f"<{name}>" for name in ACTIONS),
        *(f"<{name}>" for name in DIRECTIONS),
        *(copy_token(index) for index in range(MAX_COPIES)),
        *(step_token(count) for count in range(STEP_COUNTERS)),
        *(bins if coordinates == "bins" else patches),
    )


@cache
def special_ids(coordinates: Coordinates = "bins") -> dict[str, int]:
    """Return the id of every special token."""
    return {token: index for index, token in enumerate(special_tokens(coordinates))}


def quoted_spans(instruction: str) -> tuple[str, ...]:
    """Return the first `MAX_COPIES` double-quoted spans of the instruction, without their quotes."""
    return tuple(_QUOTED.findall(instruction)[:MAX_COPIES])
