"""Steps on their way to the store: whole, or refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from actors.codec import MAX_MESSAGE_BYTES
from dart.store import parcels
from dart.store.errors import StoreConflict
from dart.store.testing import step_at

LONG = tuple(
    replace(
        step_at(3, number),
        prompt_ids=tuple(range(14_000)),
        token_ids=tuple(range(150)),
        logprobs=(-1.0 / 3.0,) * 150,
        entropies=(1.0 / 7.0,) * 150,
    )
    for number in range(30)
)
"""An episode of a 7 B policy on a desktop."""


def test_an_episode_that_is_more_than_mail_carries_arrives_as_it_was_sent(tmp_path: Path) -> None:
    parcel = parcels.send(tmp_path, "7-1", LONG)

    assert Path(parcel.path).stat().st_size > 10 * MAX_MESSAGE_BYTES
    assert parcels.opened(parcel) == LONG
    parcels.discard(parcel)
    parcels.discard(parcel)
    assert list(tmp_path.iterdir()) == []


def test_steps_that_are_gone_or_damaged_are_refused_by_name(tmp_path: Path) -> None:
    parcel = parcels.send(tmp_path, "7-1", LONG[:1])
    path = Path(parcel.path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreConflict, match=r"7-1\.steps have sha256"):
        parcels.opened(parcel)
    path.unlink()
    with pytest.raises(StoreConflict, match=r"7-1\.steps are gone"):
        parcels.opened(parcel)
