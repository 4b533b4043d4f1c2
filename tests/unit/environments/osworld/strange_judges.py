"""Judges that misbehave, in place of one of the same name."""

import sqlite3
import time
from pathlib import Path
from typing import Any

from dart.environments.osworld import judges_of_text


def exact_match(result: Any, expected: Any) -> float:
    """As the result says."""
    if result == "takes memory":
        return float(len(b"x" * (5 * 2**30)))
    raise sqlite3.DatabaseError("deep inside")


def compare_text_file(result: Path, expected: Path, **options: Any) -> float:
    """Does not come to an end."""
    time.sleep(60)
    return 1.0


def diff_text_file(result: Path, expected: Path) -> float:
    """Takes the files the other way round."""
    return judges_of_text.is_included_all_json_objects(expected, result)
