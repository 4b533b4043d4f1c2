"""Two real processes (gloo) write one checkpoint, each of them half of the weights."""

import errno
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystem

from dart.inference.tensor_layout import layout_of, refuse_other_layout, weight_files
from dart.policy.written_weights import write_share
from dart.store.checkpoints import CheckpointNotWritten, load_checkpoint
from dart.training import checkpoint_copy
from dart.training.checkpoint_copy import read_master
from dart.training.distributed import SHARDS_FOLDER, ProcessGroup, write_parts
from dart.training.learner import Learner, LearnerConfig
from dart.training.rank_checkpoints import write_together
from tests.unit.training.test_vlm_learner import held, weights

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

RANKS = 2

LAYERS, WIDTH = 24, 1_500
"""Of a module that is large enough to see its copies in the memory of a process: 9 MB a layer."""


class Odd(nn.Module):
    """Weights of which two ranks do not hold the same number of rows, some in bfloat16, two of them tied."""

    def __init__(self) -> None:
        super().__init__()
        self.one_row = nn.Linear(4, 1)
        self.rows = nn.Linear(3, 5, dtype=torch.bfloat16)
        self.embedding = nn.Embedding(7, 3)
        self.head = nn.Linear(3, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(3.0))


def most_resident_bytes() -> int:
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def growth_while_copying(ranks: ProcessGroup) -> tuple[int, int]:
    """Bytes of the weights of a module, and by how much this process grows at most while they are copied."""
    layers = (nn.utils.skip_init(nn.Linear, WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
    module = nn.Sequential(*layers)
    whole_bytes = sum(weight.numel() * weight.element_size() for weight in module.parameters())
    ranks.shard(module)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = most_resident_bytes()
    copies = ranks.copied_weights(module, only_trained=False, is_shared=True)
    assert copies is not None
    return whole_bytes, most_resident_bytes() - before


def failing(real: Callable[..., None]) -> Callable[..., None]:
    """`write_share` that finds the disk full, then writes, then ends its process before it writes."""
    events = iter(("full", "", "dies"))

    def write(*arguments: Any) -> None:
        event = next(events)
        if event == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if event == "dies":
            os._exit(0)
        real(*arguments)

    return write


def without_room(group: Any, rank: int, folder: Path) -> str:
    """The error of this rank where the disk is full for rank 1 while both write the optimizer's state."""
    state = {"state": {f"weight of {rank}": {"exp_avg": torch.ones(4)}}}
    open_file = FileSystem.create_stream

    def open_full(self: FileSystem, path: Path, mode: str) -> Any:
        return open_file(self, Path("/dev/full") if path.suffix == ".distcp" else path, mode)

    with pytest.MonkeyPatch.context() as patched:
        if rank == 1:
            patched.setattr(FileSystem, "create_stream", open_full)
        failure = failure_of(lambda: write_parts(state, folder, group))
    write_parts(state, folder, group)
    return failure


def failure_of(write: Callable[[], object]) -> str:
    try:
        write()
    except (CheckpointNotWritten, OSError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def as_rank(rank: int, policy: Path, folder: Path) -> None:
    """What one of the processes does. It writes what it finds into `folder`, and versions below it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    ranks = ProcessGroup(torch.device("cpu"))
    torch.manual_seed(0)  # the same weights in both
    odd = Odd()
    torch.save(odd.state_dict(), folder / f"odd-{rank}.pt")
    ranks.shard(odd)
    copies = ranks.copied_weights(odd, only_trained=False, is_shared=True)
    torch.save(copies, folder / f"copies-{rank}.pt")
    whole_bytes, growth_bytes = growth_while_copying(ranks)

    config = LearnerConfig(kl_beta=0.0, published_dtype="bfloat16", placement=held())
    learner = Learner(policy, config, ranks=ranks)
    without = without_room(ranks.writers, rank, folder / "optimizer-alone")
    state, files = learner.state(), learner.copy_files()
    assert files.weights is not None
    found: dict[str, Any] = {
        "without_room": without,
        "whole_bytes": whole_bytes,
        "growth_bytes": growth_bytes,
        "copied_bytes": sum(tensor.numel() * tensor.element_size() for tensor in files.weights.values()),
    }
    checkpoint_copy.write_share = failing(write_share)  # only rank 1 calls it
    write = partial(write_together, ranks, state=state, files=files)
    found["full"] = failure_of(lambda: write(folder / "versions"))
    found["left"] = [path.name for path in (folder / "versions").iterdir()] if rank == 0 else []
    dist.barrier(group=ranks.writers)
    write(folder / "versions")
    save(folder, rank, found)
    found["dead"] = failure_of(lambda: write(folder / "interrupted"))
    save(folder, rank, found)
    os._exit(0)  # a group that has lost a process cannot be closed


def save(folder: Path, rank: int, found: dict[str, Any]) -> None:
    (folder / f"{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def written(tiny_qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what both processes found and wrote."""
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")  # what is freed leaves the process at once
        torch.multiprocessing.spawn(as_rank, args=(tiny_qwen, folder), nprocs=RANKS)
    return folder


def found_by(written: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((written / f"{rank}.json").read_text())
    return found


def test_the_copies_of_both_ranks_are_the_weights_bit_for_bit(written: Path) -> None:
    whole = torch.load(written / "odd-0.pt")
    copies = [torch.load(written / f"copies-{rank}.pt") for rank in range(RANKS)]
    assert all(copies)
    assert not copies[0].keys() & copies[1].keys()
    joined = copies[0] | copies[1]
    assert joined.keys() == whole.keys()
    for name, weight in whole.items():
        assert joined[name].dtype == weight.dtype
        assert torch.equal(joined[name], weight), name
    assert joined["head.weight"].data_ptr() == joined["embedding.weight"].data_ptr(), "tied, and held once"


def test_no_rank_holds_all_weights_while_they_are_copied(written: Path) -> None:
    for rank in range(RANKS):
        found = found_by(written, rank)
        assert found["growth_bytes"] < 0.75 * found["whole_bytes"]


def test_both_ranks_write_half_of_a_checkpoint_that_engines_read(tiny_qwen: Path, written: Path) -> None:
    folder = load_checkpoint(written / "versions" / "v000000").folder
    assert [path.name for path in weight_files(folder)] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    refuse_other_layout(layout_of(tiny_qwen), folder)
    sizes = [path.stat().st_size for path in weight_files(folder)]
    assert max(sizes) < 1.2 * min(sizes)
    copied = [found_by(written, rank)["copied_bytes"] for rank in range(RANKS)]
    assert max(copied) < 1.2 * min(copied)
    base = weights(tiny_qwen)
    engines, trainers = weights(folder), read_master(folder)
    assert trainers.keys() == engines.keys() == base.keys()
    for name, weight in base.items():
        assert torch.equal(trainers[name], weight), name
        assert torch.equal(engines[name], weight.to(torch.bfloat16).to(engines[name].dtype)), name


def test_what_one_rank_cannot_write_fails_on_all_and_leaves_nothing(written: Path) -> None:
    assert [found_by(written, rank)["full"].split(":")[0] for rank in range(RANKS)] == [
        "CheckpointNotWritten",
        "OSError",
    ]
    assert "No space left on device" in found_by(written, 0)["full"]
    assert found_by(written, 0)["left"] == []


def test_a_full_disk_under_one_ranks_optimizer_is_that_error_on_all_and_with_room_they_write(
    written: Path,
) -> None:
    for rank in range(RANKS):
        error = found_by(written, rank)["without_room"]
        assert error.startswith("OSError: [Errno 28] No space left on device"), error
        assert "rank 1" in error
    parts = {path.name for path in (written / "optimizer-alone" / SHARDS_FOLDER).iterdir()}
    assert parts == {".metadata", "__0_0.distcp", "__1_0.distcp"}


def test_a_rank_that_dies_while_it_writes_leaves_no_version(written: Path) -> None:
    assert "dead" not in found_by(written, 1), "it died"
    assert found_by(written, 0)["dead"].startswith("RuntimeError")
    assert list((written / "interrupted").iterdir()) == []
