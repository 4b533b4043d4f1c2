"""The tiny checkpoint loads like a real one."""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

from dart.testing.tiny_families import QWEN_IMAGE, make_tiny_qwen


def test_the_auto_classes_load_it_and_it_looks_at_a_picture(tiny_qwen: Path) -> None:
    model = AutoModelForImageTextToText.from_pretrained(tiny_qwen).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_qwen)
    processor = AutoImageProcessor.from_pretrained(tiny_qwen, backend="pil")
    assert type(model).__name__ == "Qwen2_5_VLForConditionalGeneration"
    assert model.get_output_embeddings().weight is not model.get_input_embeddings().weight
    assert len(tokenizer) == model.config.text_config.vocab_size == 512
    said = []
    for shade in (0, 255):
        seen = processor(images=[np.full((210, 160, 3), shade, np.uint8)], return_tensors="pt")
        ids = torch.tensor([tokenizer.encode(f"Look: {QWEN_IMAGE * 48}")])
        with torch.no_grad():
            logits = model(
                input_ids=ids, mm_token_type_ids=(ids == model.config.image_token_id).int(), **seen
            ).logits
        said.append(logits[0, -1])
    assert not torch.allclose(said[0], said[1])


def test_the_same_seed_gives_the_same_files(tiny_qwen: Path, tmp_path: Path) -> None:
    make_tiny_qwen(tmp_path / "again")
    make_tiny_qwen(tmp_path / "other", seed=1)
    for file in tiny_qwen.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    weights = "model.safetensors"
    assert (tmp_path / "other" / weights).read_bytes() != (tiny_qwen / weights).read_bytes()
