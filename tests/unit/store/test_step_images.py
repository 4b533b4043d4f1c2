"""The screenshots in the prompt of a step, and which versions answered, are recorded with it."""

import dataclasses

import pytest

from dart.core import messages as m
from dart.core.records import StoredResult
from dart.core.types import PromptImage, Step, VersionSpan
from dart.store.errors import StoreConflict
from dart.store.serialization import pack_steps, unpack_steps, unpack_without_prompts
from dart.store.store import Store
from dart.testing.trajectories import step_at, trajectory_for


def seeing(*screens: str) -> Step:
    """A step whose prompt shows these screenshots; its own is the last."""
    images = tuple(PromptImage(sha256=name, tokens=2691) for name in screens)
    return dataclasses.replace(step_at(0), screenshot_sha256=screens[-1], images=images)


def of_two_versions() -> Step:
    spans = (VersionSpan(version=0, end=1), VersionSpan(version=1, end=len(step_at(0).token_ids)))
    return dataclasses.replace(step_at(0), spans=spans)


def test_they_read_back_as_they_were(record: Store) -> None:
    leased = record.lease_rollout(record.open_group("click-test", 7, 2, 10, 0), "env-000", 6000.0)
    steps = (seeing("a"), seeing("a", "b"), of_two_versions(), step_at(0))
    trajectory = dataclasses.replace(trajectory_for(leased), steps=steps)
    assert record.finish_rollout(leased.rollout_id, leased.fence, trajectory) == StoredResult.ACCEPTED
    (stored,) = record.groups_to_trajectories([leased.group_id])[0].trajectories
    assert stored.steps == steps


def test_what_the_store_checks_of_reported_steps_is_all_but_their_prompts() -> None:
    steps = (seeing("a", "b"), of_two_versions(), step_at(3))
    without = tuple(dataclasses.replace(step, prompt_ids=()) for step in steps)
    assert unpack_without_prompts(pack_steps(steps)) == without
    with pytest.raises(ValueError, match="its steps cannot be read"):
        unpack_without_prompts(b"\xc1")


def test_reported_steps_are_trained_with_the_prompts_they_were_sampled_under(record: Store) -> None:
    leased = record.lease_rollout(record.open_group("click-test", 7, 2, 10, 0), "env-000", 6000.0)
    steps = (seeing("a", "b"), of_two_versions())
    trajectory = dataclasses.replace(trajectory_for(leased), steps=())
    sha256 = record._steps.put(pack_steps(steps))
    finish = m.FinishRollout(
        rollout_id=leased.rollout_id, fence=leased.fence, trajectory=trajectory, steps_sha256=sha256
    )
    assert record.write(finish) == StoredResult.ACCEPTED
    (stored,) = record.groups_to_trajectories([leased.group_id])[0].trajectories
    assert stored.steps == steps


def test_a_step_whose_prompt_does_not_end_with_its_own_screen_is_refused(record: Store) -> None:
    leased = record.lease_rollout(record.open_group("click-test", 7, 2, 10, 0), "env-000", 6000.0)
    foreign = dataclasses.replace(seeing("a", "b"), screenshot_sha256="c")
    trajectory = dataclasses.replace(trajectory_for(leased), steps=(foreign,))
    with pytest.raises(
        StoreConflict, match="expected its screenshot c as the last image of its prompt, got b"
    ):
        record.finish_rollout(leased.rollout_id, leased.fence, trajectory)


def test_steps_that_are_packed_read_back_as_they_were() -> None:
    steps = (seeing("a", "b"), of_two_versions(), step_at(0))
    assert unpack_steps(pack_steps(steps)) == steps
