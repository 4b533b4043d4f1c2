"""Data sets in ScreenSpot's format as tasks: which sample a seed shows, in training and in evaluations.

The task of a data set is ``grounding/NAME``, where NAME is the name of its folder, or of its annotation file
without ``.json``. Training and held-out seeds show different samples, and different screenshots too.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dart.config.config import Config
from dart.core.screenspot import GroundingDataError, GroundingSample, read_screenspot, split_by_image
from dart.core.seeds import is_held_out

PREFIX = "grounding/"

TRAIN, HELD_OUT = "train", "held-out"
"""Names of the two folders of a data set that comes with its own split."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """The samples of one task, split for training and for held-out seeds.

    Neither part is empty, and no screenshot is in both parts."""

    train: tuple[GroundingSample, ...]
    held_out: tuple[GroundingSample, ...]

    def sample_of(self, seed: int) -> GroundingSample:
        """Return the sample of a seed. Consecutive seeds show each sample once before any is repeated."""
        side = self.held_out if is_held_out(seed) else self.train
        return side[seed % len(side)]


def tasks_of(config: Config) -> tuple[str, ...]:
    """Return the ids of the tasks of the configured data sets, in their order. Reads no file."""
    return tuple(map(task_id, config.environments.grounding.data))


def task_id(path: Path) -> str:
    """Return the task id of the data set at ``path``, a folder or an annotation file."""
    return PREFIX + (path.stem if path.suffix == ".json" else path.absolute().name)


def load_data_set(path: Path, held_out_share: float, *, whole: bool = True) -> DataSet:
    """Read a data set and split it.

    A folder with the folders `train` and `held-out` is split already; training samples on held-out
    screenshots are left out. Any other data set is split by screenshot.

    held_out_share   share of the screenshots that is held out, for a data set without a split of its own
    whole            whether every screenshot is read to its end and checked (`read_screenspot`)

    Raises GroundingDataError when the data cannot be read (see `read_screenspot`) or a part has no sample.
    """
    if (path / TRAIN).is_dir() and (path / HELD_OUT).is_dir():
        held_out = read_screenspot(path / HELD_OUT, whole=whole)
        images = {sample.image.name for sample in held_out}
        found = read_screenspot(path / TRAIN, whole=whole)
        train = [sample for sample in found if sample.image.name not in images]
    else:
        train, held_out = split_by_image(read_screenspot(path, whole=whole), held_out_share)
    for side, samples in ((TRAIN, train), (HELD_OUT, held_out)):
        if not samples:
            raise GroundingDataError(
                f"{path} has no {side} samples: its {len({one.image for one in (*train, *held_out)})} "
                "screenshots are all in the other part; add screenshots, or change "
                "environments.grounding.held_out_share"
            )
    return DataSet(_mixed(train), _mixed(held_out))


def _mixed(samples: list[GroundingSample]) -> tuple[GroundingSample, ...]:
    """Return the samples shuffled, to separate those of one screenshot; the same on every machine."""

    def rank(sample: GroundingSample) -> bytes:
        return hashlib.sha256(f"{sample.image.name}/{sample.instruction}/{sample.box}".encode()).digest()

    return tuple(sorted(samples, key=rank))


def data_problems(config: Config) -> Iterator[str]:
    """Yield a message with a remedy for each configured data set that a run cannot use."""
    settings, evaluation = config.environments.grounding, config.evaluation
    for path in settings.data:
        try:
            data = load_data_set(path, settings.held_out_share)
        except GroundingDataError as error:
            yield f"environments.grounding.data: {error}"
            continue
        if evaluation.seeds_per_task > len(data.held_out):
            yield (
                f"{path} has {len(data.held_out)} held-out samples, but evaluation.seeds_per_task is "
                f"{evaluation.seeds_per_task}: lower it, so that no sample is shown twice"
            )
