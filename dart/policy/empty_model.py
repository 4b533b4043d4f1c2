"""Names and shapes of a model's weights, from its configuration alone: no weights are read or made.

    python -m dart.policy.empty_model models/UI-TARS-1.5-7B

prints one JSON object: the shape of each weight by its name. `dart.preflight.planned_layout` runs this
command in a process of its own, because this module imports torch.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText
from transformers.utils import logging

from dart.policy.vlm_processor import load_config


def shapes(folder: Path) -> dict[str, list[int]]:
    """Return the shape of each weight by name; tied weights appear once.

    Raises OSError, or UnsupportedCheckpoint if the checkpoint cannot be a policy.
    """
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(load_config(folder))
    return {name: list(weight.shape) for name, weight in model.named_parameters()}


if __name__ == "__main__":
    logging.set_verbosity_error()
    print(json.dumps(shapes(Path(sys.argv[1]))))
