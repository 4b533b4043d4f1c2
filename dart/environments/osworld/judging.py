"""The evaluation of an OSWorld task: every check, and what they are worth together.

The functions that judge are looked up by name and imported when a task first needs them.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from dart.environments.deadlines import LeftS
from dart.environments.faults import EvaluatorFailed, TaskUnsupported
from dart.environments.osworld.evidence import MISSING, look_at
from dart.environments.osworld.setup_steps import Setting
from dart.environments.osworld.task_files import INFEASIBLE, Check, OSWorldTask

_TEXT = "dart.environments.osworld.judges_of_text"
_OFFICE = "dart.environments.osworld.judges_of_documents"

JUDGES = {
    **dict.fromkeys(
        (
            *("exact_match", "compare_answer", "fuzzy_match", "literal_match", "match_in_list", "is_in_list"),
            *("check_include_exclude", "is_extension_installed", "check_direct_json_object", "check_list"),
            *("check_csv", "compare_csv", "check_json", "check_json_settings", "compare_text_file"),
            *("diff_text_file", "compare_config", "file_contains", "run_sqlite3", "is_utc_0"),
            *("check_text_enlarged", "check_gnome_favorite_apps", "check_moved_jpgs"),
        ),
        _TEXT,
    ),
    **dict.fromkeys(("compare_table", "compare_docx_files", "compare_docx_lines"), _OFFICE),
}
"""Function to the module that has it."""


async def judge(task: OSWorldTask, setting: Setting, left_s: LeftS, *, missing_is_zero: bool) -> float:
    """The score in [0, 1].

    Raises EvaluatorFailed, TaskUnsupported or a fault of the machine. With ``conj`` ``or`` the best check
    counts; else one that fails wholly makes it 0, and the mean of the others counts.
    """
    scores = []
    for check in task.checks:
        if check.function != INFEASIBLE:  # what the policy declared decides that, not the machine
            scores.append(await _checked(check, setting, left_s, missing_is_zero=missing_is_zero))
    if not scores:
        return 0.0
    if task.is_any_enough:
        return max(scores)
    return 0.0 if min(scores) == 0.0 else math.fsum(scores) / len(scores)


async def _checked(check: Check, setting: Setting, left_s: LeftS, *, missing_is_zero: bool) -> float:
    function = judge_of(check.function, setting.task_id)
    result = await look_at(setting, check.result, left_s) if check.result is not None else None
    expected = await look_at(setting, check.expected, left_s) if check.expected is not None else None
    if _is_missing(expected):
        raise EvaluatorFailed(setting.task_id, "a file to compare with is not in the guest")
    if _is_missing(result):
        if missing_is_zero:
            return 0.0
        path = (check.result or {}).get("path")
        raise EvaluatorFailed(setting.task_id, f"the result {path} is not in the guest")
    arguments = (result,) if check.expected is None else (result, expected)
    try:
        score = function(*arguments, **check.options)
    except NotImplementedError as error:
        raise TaskUnsupported(setting.task_id, f"{check.function}: {error}") from error
    except (ValueError, TypeError, KeyError, LookupError, OSError, AttributeError) as error:
        why = f"{check.function} failed: {type(error).__name__}: {error}"
        raise EvaluatorFailed(setting.task_id, why) from error
    return float(score)


def _is_missing(value: Any) -> bool:
    return value is MISSING or (isinstance(value, Sequence) and any(one is MISSING for one in value))


def judge_of(name: str, task_id: str) -> Callable[..., float]:
    """The function of this name; raises TaskUnsupported when there is none here."""
    if name not in JUDGES:
        raise TaskUnsupported(task_id, f"its evaluation needs {name!r}, which is not known here")
    found: Callable[..., float] = getattr(importlib.import_module(JUDGES[name]), name)
    return found
