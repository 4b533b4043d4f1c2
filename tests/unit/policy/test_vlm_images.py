"""Prepared screenshots are kept for their later uses, within a limit."""

from collections.abc import Mapping
from typing import Any

import torch

from dart.policy.vlm_images import ImageCache

MADE_BYTES = 4 * 10


class Made:
    """Makes tensors of 40 bytes and remembers for which screenshots."""

    def __init__(self, cache: ImageCache) -> None:
        self.cache = cache
        self.names: list[str] = []

    def get(self, *names: str) -> None:
        for name in names:
            self.cache.get(name, lambda name=name: self._make(name))  # type: ignore[misc]

    def _make(self, name: str) -> Mapping[str, Any]:
        self.names.append(name)
        return {"pixel_values": torch.zeros(10)}


def test_a_screenshot_is_made_once_for_all_its_uses() -> None:
    made = Made(ImageCache({"a": 3, "b": 2}, 10 * MADE_BYTES))
    made.get("a", "b", "a", "b", "a")
    assert made.names == ["a", "b"]


def test_after_its_last_use_a_screenshot_leaves_its_room_to_others() -> None:
    made = Made(ImageCache({"a": 2, "b": 2}, MADE_BYTES))
    made.get("a", "a", "b", "b")
    assert made.names == ["a", "b"]


def test_what_does_not_fit_is_made_again_and_displaces_nothing() -> None:
    made = Made(ImageCache({"a": 3, "b": 3}, MADE_BYTES))
    made.get("a", "b", "a", "b", "a", "b")
    assert made.names == ["a", "b", "b", "b"]


def test_what_was_not_announced_is_made_and_not_kept() -> None:
    made = Made(ImageCache({}, 10 * MADE_BYTES))
    made.get("a", "a")
    assert made.names == ["a", "a"]
