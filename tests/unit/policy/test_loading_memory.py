"""Loading a policy: its weights go straight to their device."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from dart.policy.load import load
from dart.policy.placement import ModelPlacement

pytestmark = pytest.mark.slow

MIB = 2**20
SAMPLE_S = 0.002
ANONYMOUS = re.compile(r"RssAnon:\s+(\d+) kB")
"""Memory that the process has written to; the pages of the checkpoint's mapped files are not in it."""


def larger(tiny: Path, folder: Path) -> int:
    """Write a checkpoint of the layout `tiny` with larger layers; return its bytes in float32."""
    config = AutoConfig.from_pretrained(tiny)
    config.text_config.vocab_size = 32768
    config.text_config.hidden_size = config.vision_config.out_hidden_size = 512
    model = AutoModelForImageTextToText.from_config(config).bfloat16()  # loading converts it
    model.save_pretrained(folder)
    for file in tiny.iterdir():
        if not (folder / file.name).exists():
            (folder / file.name).write_bytes(file.read_bytes())
    return sum(4 * weight.numel() for weight in model.parameters())


def written_bytes() -> int:
    found = ANONYMOUS.search(Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


@contextmanager
def sampled() -> Iterator[list[int]]:
    """Sample the memory of this process while the block lasts; yield the samples."""
    found, ended = [written_bytes()], threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_S):
            found.append(written_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield found
    finally:
        ended.set()
        sampler.join()


@pytest.mark.parametrize(("device", "is_held"), [("cpu", True), ("meta", False)])
def test_main_memory_never_holds_a_model_of_another_device(
    tiny_qwen: Path, tmp_path: Path, device: str, is_held: bool
) -> None:
    size_bytes = larger(tiny_qwen, tmp_path / "larger")
    assert size_bytes > 100 * MIB
    with sampled() as samples:
        policy = load(tmp_path / "larger", placement=ModelPlacement(device=device))
    assert {weight.device for weight in policy.module.parameters()} == {torch.device(device)}
    assert (max(samples) - samples[0] > size_bytes // 2) is is_held


@pytest.mark.long
def test_loading_prints_no_progress_bar(tiny_qwen: Path) -> None:
    program = "import sys, pathlib; from dart.policy.load import load; load(pathlib.Path(sys.argv[1]))"
    ended = subprocess.run(
        [sys.executable, "-c", program, tiny_qwen], capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("", "")
