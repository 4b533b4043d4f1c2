"""Two processes train as one does, and a rank that is killed costs nothing that was committed.

Every weight, and an adapter beside a frozen model in bfloat16; what one of both wrote the other goes on from.
Each start of two ranks imports torch three times: over a minute of processor time in all. `make test-ranks`
runs it; `make test` says that it was left out.
"""

import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from safetensors.torch import load_file

from dart.config.config import Config, load_config
from dart.config.published import published_dtype, publishes_adapter
from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest, Group, Outcome, Trajectory
from dart.inference.transformers_engine import TransformersEngine
from dart.policy.load import load
from dart.policy.lora import ADAPTER_FILE
from dart.policy.placement import ModelPlacement
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import ForeignPrompt
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import CheckpointNotWritten, checkpoint_name, load_checkpoint
from dart.store.disk_wait import is_no_room
from dart.store.errors import BlobCorrupt, BlobMissing
from dart.training.distributed import ProcessGroup
from dart.training.distributed_learner import DistributedLearner, RankDied, _torchrun
from dart.training.learner import Learner
from dart.training.learner_factory import learner_config
from dart.training.update_report import UpdateReport
from tests.pictures import png_of
from tests.sampled import recorded
from tests.small_disk import enlarge, small_disk

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("DARTRL_TEST_RANKS"),
        reason="two ranks take half a minute of processor time to start: make test-ranks",
    ),
    pytest.mark.timeout(1800),
    # peft still asks for the old name
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning"),
]

READING = PromptSpec(context=ContextSettings(screenshots=2, turns=4, answer_tokens=5))

NEEDS_PEFT = pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="an adapter needs peft: pip install 'dartrl[lora]'"
)

ADAPTER = ("training.lora.rank=3", "training.lora.alpha=6.0")
"""An odd rank: no two processes hold the same share of it."""

AS_ON_A_GPU = ("training.precision='bfloat16'", "training.gradient_checkpointing=true")

TOLERANCE = 5e-5
"""Of weights after an update with a learning rate of 1e-3. The same terms are added in another order, and
AdamW makes a step as large of a small gradient as of a large one."""

SAME_FIGURES = ("loss", "policy_loss", "kl", "entropy", "mismatch_engine", "ratio")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends what a test started, however it ends."""
    with ExitStack() as entered:
        yield entered


Started = Callable[..., DistributedLearner]


@pytest.fixture
def started(stack: ExitStack, tmp_path: Path) -> Started:
    """`started(config, resume=None)`: ranks, which end with the test. Their folder has a short path, as that
    for the sockets of a run."""
    mail_dir = Path(stack.enter_context(TemporaryDirectory(prefix="mail-", dir="/tmp")))

    def start(config: Config, resume: Path | None = None) -> DistributedLearner:
        ranks = DistributedLearner(config, resume, tmp_path / "ranks.log", mail_dir)
        return stack.enter_context(closing(ranks))

    return start


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


@pytest.fixture
def group(tiny_qwen: Path, blobs: FolderBlobs) -> Group:
    """Four episodes of one step each, really sampled; two of them succeed.

    The first two see one screenshot, the others another one, so that each of two ranks needs its own.
    """
    asked = [
        GenerateRequest(
            screenshot_sha256=screenshot(blobs, number // 2),
            instruction="Click the button.",
            history=(),
            temperature=1.0,
        )
        for number in range(4)
    ]
    engine = TransformersEngine(tiny_qwen, 0, screenshots=blobs, seed=1, prompt_spec=READING)
    answers = list(zip(asked, engine.generate(asked), strict=True))
    trajectories = tuple(
        Trajectory(
            rollout_id=number,
            group_id=1,
            task_id="boxes",
            seed=0,
            environment="env-000",
            instruction="Click the button.",
            outcome=Outcome.FINISHED,
            reward=float(number < 2),
            steps=(recorded(one, made),),
            started_unix_s=0.0,
            duration_s=1.0,
        )
        for number, (one, made) in enumerate(answers)
    )
    return Group(group_id=1, task_id="boxes", seed=0, trajectories=trajectories)


def screenshot(blobs: FolderBlobs, seed: int) -> str:
    noise = np.random.default_rng(seed).integers(0, 256, (210, 160, 3), dtype=np.uint8)
    return blobs.put(png_of(Image.fromarray(noise)))


Configured = Callable[..., Config]


@pytest.fixture
def configured(tiny_qwen: Path) -> Configured:
    """`configured(ranks, *overrides)`."""

    def make(ranks: int, *overrides: str) -> Config:
        fixed = [f"training.policy='{tiny_qwen}'", "training.lr=1e-3", "training.kl_beta=0.05"]
        return load_config(None, [*fixed, f"training.ranks={ranks}", "training.micro_batch=1", *overrides])

    return make


def alone(config: Config, resume: Path | None = None) -> Learner:
    checkpoint = None if resume is None else load_checkpoint(resume)
    return Learner(config.training.policy, learner_config(config), resume=checkpoint)


def assert_same(made: UpdateReport, wanted: UpdateReport) -> None:
    assert made.version == wanted.version
    for name in SAME_FIGURES:
        assert getattr(made, name) == pytest.approx(getattr(wanted, name), abs=1e-5), name
    assert made.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-3)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    whole = {f"whole {name}": weight for name, weight in plain(folder).items()}
    adapter = folder / ADAPTER_FILE
    return whole | (load_file(adapter) if adapter.exists() else {})


def plain(folder: Path) -> dict[str, torch.Tensor]:
    """The whole weights of a checkpoint; none of a version that is an adapter."""
    if not (folder / "config.json").exists():
        return {}
    return dict(load(folder, placement=ModelPlacement(device="cpu")).module.state_dict())  # type: ignore[attr-defined]


def assert_close(one: Path, other: Path, config: Config) -> None:
    """Whole weights that are written in bfloat16 may be rounded to the next of its numbers."""
    is_rounded = config.training.precision == "bfloat16" or published_dtype(config) == "bfloat16"
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        rtol = 2**-7 if is_rounded and name.startswith("whole") else 0.0
        torch.testing.assert_close(ours[name], theirs[name], atol=TOLERANCE, rtol=rtol, msg=name)


def with_foreign_step(group: Group) -> Group:
    first = group.trajectories[0]
    image = dataclasses.replace(first.steps[0].images[0], tokens=7)
    foreign = dataclasses.replace(first.steps[0], images=(image,))
    return dataclasses.replace(
        group, trajectories=(dataclasses.replace(first, steps=(foreign,)), *group.trajectories[1:])
    )


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(("training.minibatches=2",), id="every weight"),
        pytest.param((*ADAPTER, *AS_ON_A_GPU), id="an adapter", marks=NEEDS_PEFT),
    ],
)
def test_two_ranks_do_as_one_process_and_recover_when_one_is_killed(
    kind: tuple[str, ...],
    tiny_qwen: Path,
    group: Group,
    blobs: FolderBlobs,
    configured: Configured,
    started: Started,
    tmp_path: Path,
) -> None:
    config = configured(2, *kind)
    one = alone(configured(1, *kind))
    ranked = started(config)
    wanted, made = one.update([group], blobs), ranked.update([group], blobs)
    assert (made.version, made.samples) == (1, 4)
    assert made.optimizer_steps == config.training.minibatches
    assert_same(made, wanted)
    folder = ranked.copy()(tmp_path / "ranked")
    assert_close(folder, one.save(tmp_path / "alone"), config)
    assert plain(folder).keys() == (set() if publishes_adapter(config) else plain(tiny_qwen).keys())

    ranks = psutil.Process(ranked._torchrun.pid).children()
    assert len(ranks) == 2
    os.kill(ranks[1].pid, signal.SIGKILL)
    with pytest.raises(RankDied, match="a rank of the trainer ended"):
        ranked.update([group], blobs)
    assert psutil.wait_procs(ranks, timeout=60)[1] == []

    again = started(config, folder)
    assert again.version == 1
    bad = with_foreign_step(group)
    with pytest.raises(ForeignPrompt) as refused:
        again.update([bad], blobs)
    assert refused.value.step == bad.trajectories[0].steps[0]
    single = alone(configured(1, *kind), resume=folder)
    wanted = one.update([group], blobs)
    assert wanted.kl > 0
    assert_same(again.update([group], blobs), wanted)
    assert_same(single.update([group], blobs), wanted)
    second = one.save(tmp_path / "alone")
    assert_close(again.copy()(tmp_path / "ranked"), second, config)
    assert_close(single.save(tmp_path / "single"), second, config)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(("rollout.engine='vllm'",), id="every weight, rounded for vLLM"),
        pytest.param((*ADAPTER, "training.lora.publish='merged'"), id="a merged adapter", marks=NEEDS_PEFT),
    ],
)
def test_two_ranks_go_on_from_what_one_process_wrote(
    kind: tuple[str, ...],
    group: Group,
    blobs: FolderBlobs,
    configured: Configured,
    started: Started,
    tmp_path: Path,
) -> None:
    one = alone(configured(1, *kind))
    one.update([group], blobs)
    folder = one.save(tmp_path / "alone")
    config = configured(2, *kind)
    ranked = started(config, folder)
    assert ranked.version == 1
    assert_same(ranked.update([group], blobs), one.update([group], blobs))
    assert_close(ranked.copy()(tmp_path / "ranked"), one.save(tmp_path / "alone"), config)


def test_what_one_rank_cannot_read_fails_all_of_them_and_changes_nothing(
    group: Group,
    blobs: FolderBlobs,
    configured: Configured,
    started: Started,
    tmp_path: Path,
) -> None:
    """In bfloat16: what ranks compute with bfloat16 weights is near to what one process does in float32."""
    config = configured(2, "training.precision='bfloat16'")
    ranked = started(config)
    wanted = alone(configured(1)).update([group], blobs)
    of_second_rank = blobs.path(group.trajectories[3].steps[0].screenshot_sha256)
    content = of_second_rank.read_bytes()
    of_second_rank.unlink()
    with pytest.raises(BlobMissing) as missing:
        ranked.update([group], blobs)
    assert missing.value.sha256 == of_second_rank.name.partition(".")[0]
    of_second_rank.write_bytes(content[:-1])
    with pytest.raises(BlobCorrupt):
        ranked.update([group], blobs)
    of_second_rank.write_bytes(content)
    made = ranked.update([group], blobs)
    assert made.version == 1
    assert made.entropy == pytest.approx(wanted.entropy, rel=1e-2)
    assert made.grad_norm == pytest.approx(wanted.grad_norm, rel=0.1)
    assert {weight.dtype for weight in plain(ranked.copy()(tmp_path / "one")).values()} == {torch.float32}


def test_a_version_for_which_a_disk_has_no_room_is_written_when_it_has_it(
    group: Group,
    blobs: FolderBlobs,
    configured: Configured,
    started: Started,
    stack: ExitStack,
    tmp_path: Path,
) -> None:
    config = configured(2)
    disk = stack.enter_context(small_disk(tmp_path / "disk", "64k"))
    ranked = started(config)
    ranked.update([group], blobs)
    write = ranked.copy()
    for _ in range(2):
        with pytest.raises(CheckpointNotWritten, match="No space left on device") as full:
            write(disk)
        assert is_no_room(full.value)  # the trainer waits, and repeats the write
        assert not (disk / checkpoint_name(1)).exists()
    ahead = ranked.update([group], blobs)  # the trainer goes on meanwhile
    enlarge(disk, "64m")
    folder = write(disk)
    one = alone(configured(1))
    one.update([group], blobs)
    assert_close(folder, one.save(tmp_path / "alone"), config)
    resumed = alone(configured(1), resume=folder)
    assert_same(resumed.update([group], blobs), ahead)


SMALL_SHARE = 2.0**-10
"""Too small to be seen beside 1 in bfloat16."""


def sum_gradients(rank: int, folder: str) -> None:
    """As one of two processes, add 1 or SMALL_SHARE to the gradient of a split weight; write the result."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    module = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(module.weight, 1.0 + SMALL_SHARE)
    ProcessGroup(torch.device("cpu"), compute=torch.bfloat16).shard(module)
    made = module(torch.ones(1, 2, dtype=torch.bfloat16))
    (made.float() * (SMALL_SHARE if rank else 1.0)).sum().backward()
    weight: Any = module.weight
    found = {"weight": weight.full_tensor().detach(), "gradient": weight.grad.full_tensor(), "made": made}
    torch.save({name: value.detach() for name, value in found.items()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_no_port_of_torchrun_is_open_and_those_of_ranks_to_this_machine_alone(
    configured: Configured, started: Started
) -> None:
    """torchrun unpickles what it finds at the port that it has by default, and that port needs no key."""
    ranked = started(configured(2))
    torchrun = psutil.Process(ranked._torchrun.pid)
    assert listened_at(torchrun) == set()
    ranks = torchrun.children()
    assert len(ranks) == 2
    assert set().union(*map(listened_at, ranks)) == {"127.0.0.1"}


def listened_at(process: psutil.Process) -> set[str]:
    """The addresses at which a process listens."""
    sockets = process.net_connections("inet")
    return {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN}


MEET = """
import sys
from pathlib import Path
from dart.training.distributed import join_ranks
join_ranks("cpu", Path(sys.argv[1]))
"""


def test_ranks_meet_on_a_machine_whose_own_name_has_no_address(tmp_path: Path) -> None:
    (tmp_path / "meet.py").write_text(MEET)
    renamed = ["unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname no-address && exec "$0" "$@"']
    if subprocess.run([*renamed, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not give a process another name of the machine")
    command = [*renamed, *_torchrun(2, tmp_path)[:-1], "meet", str(tmp_path / "meeting")]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, timeout=100.0, check=True)


def test_weights_and_sums_of_gradients_are_float32_and_the_computation_is_bfloat16(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(sum_gradients, args=(str(tmp_path),), nprocs=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found["made"].dtype == torch.bfloat16
        assert found["made"].item() == 2.0  # computed with the weight that bfloat16 has for it
        assert found["weight"].dtype == found["gradient"].dtype == torch.float32
        assert found["weight"].tolist() == [[1.0 + SMALL_SHARE] * 2]
        assert found["gradient"].tolist() == [[(1.0 + SMALL_SHARE) / 2] * 2]
