"""Which checkpoints may be loaded over the weights of a running engine."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from dart.inference.tensor_layout import INDEX, OtherLayout, layout_of, refuse_other_layout


def checkpoint(folder: Path, **shapes: tuple[int, ...]) -> Path:
    folder.mkdir()
    for number, (name, shape) in enumerate(shapes.items()):  # a file each, as large checkpoints are written
        save_file(
            {name: np.zeros(shape, np.float32)}, folder / f"model-{number}.safetensors", {"format": "pt"}
        )
    return folder


def test_a_layout_is_read_from_all_files_of_a_checkpoint(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "v1", embed=(8, 4), head=(4, 8))
    assert layout_of(folder) == {"embed": (8, 4), "head": (4, 8)}


def test_a_checkpoint_of_the_same_layout_is_taken(tmp_path: Path) -> None:
    served = layout_of(checkpoint(tmp_path / "v1", embed=(8, 4)))
    refuse_other_layout(served, checkpoint(tmp_path / "v2", embed=(8, 4)))


@pytest.mark.parametrize(
    ("shapes", "difference"),
    [
        ({"embed": (8, 4)}, "head is missing"),
        ({"embed": (8, 4), "head": (4, 8), "extra": (1,)}, "extra is not in the policy that is served"),
        ({"embed": (9, 4), "head": (4, 8)}, r"embed has shape \[9, 4\], expected \[8, 4\]"),
    ],
)
def test_a_checkpoint_of_another_layout_is_refused_with_the_difference(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], difference: str
) -> None:
    served = layout_of(checkpoint(tmp_path / "v1", embed=(8, 4), head=(4, 8)))
    with pytest.raises(OtherLayout, match=difference):
        refuse_other_layout(served, checkpoint(tmp_path / "v2", **shapes))


def with_header(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        with_header(b"{abc}"),
        with_header(b"[]"),
        with_header(b'{"embed": []}'),
        with_header(b'{"embed": {"dtype": "F32"}}'),
    ],
)
def test_a_file_that_is_none_of_the_format_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(OtherLayout, match=r"model\.safetensors is no safetensors file"):
        layout_of(tmp_path)


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(OtherLayout, match=str(tmp_path)):
        layout_of(tmp_path)


def index(folder: Path, *names: str) -> None:
    weights = {f"tensor {number}": name for number, name in enumerate(names)}
    (folder / INDEX).write_text(json.dumps({"weight_map": weights}))


def test_a_checkpoint_in_several_files_has_those_its_index_names_and_no_others(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "v1", embed=(8, 4), head=(4, 8), another=(1,))
    index(folder, "model-0.safetensors", "model-1.safetensors", "model-0.safetensors")
    assert layout_of(folder) == {"embed": (8, 4), "head": (4, 8)}


def test_a_file_that_the_index_names_and_nobody_copied_is_missed_by_name(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "v1", embed=(8, 4))
    index(folder, "model-0.safetensors", "model-1.safetensors")
    with pytest.raises(OtherLayout, match=r"lacks model-1\.safetensors, which its"):
        layout_of(folder)


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_an_index_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    folder = checkpoint(tmp_path / "v1", embed=(8, 4))
    (folder / INDEX).write_text(content)
    with pytest.raises(OtherLayout, match="is no index of a checkpoint"):
        layout_of(folder)


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("is_old", [True, False])
def test_a_head_that_is_the_embedding_may_be_written_or_not(
    tmp_path: Path, is_tied: bool, is_old: bool
) -> None:
    """A configuration that transformers before 5 has written says it of the text."""
    with_head = checkpoint(tmp_path / "v1", **{"embed": (8, 4), "lm_head.weight": (8, 4)})
    without = checkpoint(tmp_path / "v2", embed=(8, 4))
    tie = {"tie_word_embeddings": is_tied}
    (with_head / "config.json").write_text(json.dumps({"text_config": tie} if is_old else tie))
    (without / "config.json").write_text(json.dumps(tie))
    if is_tied:
        refuse_other_layout(layout_of(with_head), without)
        refuse_other_layout(layout_of(without), with_head)
    else:
        with pytest.raises(OtherLayout, match=r"lm_head\.weight is missing"):
            refuse_other_layout(layout_of(with_head), without)
