"""The texts of a policy's tokens, read from its `tokenizer.json` without its tokenizer."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = "tokenizer.json"
FILE_BYTES_MOST = 64 << 20
"""Tokenizers of 7 B policies take about 11 MB."""

_BYTES_AS_LETTERS = str.maketrans({"Ġ": "␣", "Ċ": "⏎"})
"""Byte-level tokenizers write a space and a line break as these letters."""


def token_texts(policy: Path) -> dict[int, str]:
    """Texts by token id; empty where the policy's folder has no readable tokenizer.json."""
    path = policy / FILE
    try:
        status = path.stat()
    except OSError:
        return {}
    return _read(path, status.st_mtime_ns) if status.st_size <= FILE_BYTES_MOST else {}


@lru_cache(maxsize=2)
def _read(path: Path, mtime_ns: int) -> dict[int, str]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        texts = {int(number): text for text, number in content["model"]["vocab"].items()}
        texts |= {int(token["id"]): token["content"] for token in content.get("added_tokens", ())}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}  # a tokenizer of another kind: its tokens are shown by their numbers
    return {number: str(text).translate(_BYTES_AS_LETTERS) for number, text in texts.items()}
