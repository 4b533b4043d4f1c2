"""Loading the grounding model of a checkpoint, chosen by its model type and its head. Imports torch."""

from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file

from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.policy.pointer.model import GroundingModel
from dart.policy.pointer.settings import HeadKind, HeadSettings, read_settings
from dart.policy.pointer.small_grounding import CoordinateHead, SmallAttention, SmallCoordinates, SmallPointer
from dart.policy.pointer.vlm_grounding import VlmAttention, VlmPointer
from dart.policy.protocols import UnsupportedCheckpoint
from dart.policy.small_policy import BASELINE_HEAD, SmallPolicy
from dart.policy.vlm import VisionLanguagePolicy


def load_grounding(
    folder: Path, head: HeadKind | None = None, placement: ModelPlacement | None = None
) -> GroundingModel:
    """Load the grounding model of a checkpoint.

    head        the head to ground with; None: the one that the checkpoint was trained with
    placement   device and precision; for a model that is trained, a head `coordinates` may be a new one

    Raises CheckpointError, or UnsupportedCheckpoint when the checkpoint lacks the head or cannot have it.
    """
    settings = read_settings(folder)
    if head is not None:
        settings = replace(settings, head=head)
    policy = load(folder, placement=placement)
    if isinstance(policy, SmallPolicy):
        return of_small_policy(policy, folder, settings, is_trained=bool(placement and placement.is_trained))
    assert isinstance(policy, VisionLanguagePolicy)
    return _of_vlm(policy, folder, settings)


def of_small_policy(
    policy: SmallPolicy, folder: Path, settings: HeadSettings, *, is_trained: bool
) -> GroundingModel:
    """Return a grounding model of a small policy.

    folder       the policy's checkpoint, from which a trained coordinate head is read
    is_trained   whether the model is trained next, so that a coordinate head may be a new one

    Raises UnsupportedCheckpoint for a policy without the token `<pointer>` or without the head.
    """
    if policy.codec.coordinates != "pointer":
        raise UnsupportedCheckpoint(
            f"{folder} is a small policy without <pointer>, a token that every head for grounding needs; "
            "train a policy with `dartrl ground train`"
        )
    if settings.head == "pointer":
        return SmallPointer(policy, settings)
    if settings.head == "attention":
        return SmallAttention(policy, settings)
    return SmallCoordinates(policy, settings, _coordinate_head(policy, folder, is_trained))


def _coordinate_head(policy: SmallPolicy, folder: Path, is_trained: bool) -> CoordinateHead:
    """Return the trained head of a checkpoint; a new one if it has none and is trained next."""
    head = CoordinateHead(policy.module.config.hidden_size)
    first = f"{BASELINE_HEAD}."
    weights = load_file(folder / "model.safetensors")
    found = {name.removeprefix(first): value for name, value in weights.items() if name.startswith(first)}
    if found:
        head.load_state_dict(found)
    elif not is_trained:
        raise UnsupportedCheckpoint(
            f"{folder} has no trained coordinate head; train one with `dartrl ground train --set "
            f"grounding.base={folder} --set grounding.head=coordinates --set 'grounding.data=[\"DATA\"]' "
            "--out OUT`, or ground with --head pointer"
        )
    return head


def _of_vlm(policy: VisionLanguagePolicy, folder: Path, settings: HeadSettings) -> GroundingModel:
    if settings.head == "attention":
        return VlmAttention(policy, folder, settings)
    if settings.head == "coordinates":
        raise UnsupportedCheckpoint(
            f"{folder} is a vision-language checkpoint, which writes coordinates as text and has no head "
            "`coordinates`; use the head `pointer` or `attention`"
        )
    if policy.codec.pointer is None:
        raise UnsupportedCheckpoint(
            f"{folder} has no pointer head; add one with `python -m dart.policy.pointer_checkpoint "
            f"{folder} OUT`, or ground with --head attention"
        )
    return VlmPointer(policy, folder, settings)
