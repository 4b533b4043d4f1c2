"""Reading what a run wrote for TensorBoard, as TensorBoard does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def scalars(folder: Path, tag: str) -> dict[int, tuple[float, float]]:
    """Time and value of a figure by its step. What a later file purges is gone; a step that is there twice is
    an error."""
    found: dict[int, tuple[float, float]] = {}
    for file in sorted(folder.glob("events.out.tfevents.*")):
        for event in _events(file):
            if event.HasField("session_log"):
                found = {step: value for step, value in found.items() if step < event.step}
            for value in event.summary.value:
                if value.tag == tag:
                    assert event.step not in found, f"step {event.step} is there twice"
                    found[event.step] = event.wall_time, value.simple_value
    return found


def _events(file: Path) -> Iterator[Any]:
    """Records of an event file: length (8 bytes), its checksum (4), content, its checksum (4).

    The last one may be half a record, of a writer that was killed."""
    from tensorboardX.proto.event_pb2 import Event

    content = file.read_bytes()
    while content:
        length = int.from_bytes(content[:8], "little")
        if len(content) < 16 + length:
            return
        yield Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]
