"""Lets torchvision's Python code be imported where its compiled operators cannot be loaded.

`scripts/setup-vllm.sh` puts this into the environment it makes, where a .pth file imports it at every start.
The torchvision of the package index is built for CUDA: under a CPU build of torch its library does not load,
and its import fails where it describes two operators that are not there. They are declared first and never
called.
"""

import sys
from typing import Any

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class _BeforeTorchvision:
    """Finds nothing; is asked just before torchvision is imported."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name != "torchvision":
            return
        sys.meta_path.remove(_BeforeTorchvision)  # type: ignore[arg-type]
        import torch

        for schema in SCHEMAS:
            operator, parenthesis, rest = schema.partition("(")
            torch.library.define(f"torchvision::{operator}", parenthesis + rest)


sys.meta_path.insert(0, _BeforeTorchvision)  # type: ignore[arg-type]
