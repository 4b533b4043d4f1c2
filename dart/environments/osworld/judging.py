"""The evaluation of an OSWorld task: the score of each check, and of all of them together.

The functions that judge read files of a guest, which are not trusted. Each is called in a process of its own,
with a limit on its memory, and not beyond the deadline of the evaluation.

A file that the policy did not make, or that cannot be read, scores 0, as in OSWorld's own evaluation. If such
episodes had no reward, a policy that fails by leaving no file would look better than it is. Before a 0 is
given the machine is checked: a file that is missing on a broken machine says nothing about the policy.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dart.environments.deadlines import LeftS
from dart.environments.faults import EvaluatorFailed, TaskUnsupported
from dart.environments.limited_child import ChildFailed, in_child
from dart.environments.osworld import evidence_of_applications  # noqa: F401 - its looks make themselves known
from dart.environments.osworld.evidence import LOOKS, MISSING, look_at
from dart.environments.osworld.guest import AnswerTooLarge
from dart.environments.osworld.readiness import read_guest_state
from dart.environments.osworld.reading import Unreadable
from dart.environments.osworld.setup_steps import STEPS, Setting
from dart.environments.osworld.tasks import INFEASIBLE, Check, OSWorldTask

_PACKAGE = "dart.environments.osworld"

_NAMES: Mapping[str, tuple[str, ...]] = {
    "judges_of_text": (
        *("exact_match", "compare_answer", "fuzzy_match", "literal_match", "match_in_list", "is_in_list"),
        *("check_include_exclude", "is_extension_installed", "check_direct_json_object", "check_list"),
        *("check_csv", "compare_csv", "check_json", "check_json_settings", "check_json_keybindings"),
        *("compare_text_file", "diff_text_file", "compare_config", "file_contains", "run_sqlite3"),
        *("is_utc_0", "check_text_enlarged", "check_gnome_favorite_apps", "check_moved_jpgs"),
        *("is_in_vm_clickboard", "is_included_all_json_objects", "check_line_number"),
        *("compare_terminal_and_txt", "compare_time_in_speedtest_results", "compare_result_files"),
        *("compare_python_pure_text", "check_html_background_image", "compare_zip_files"),
    ),
    "judges_of_documents": (
        *("compare_docx_files", "compare_docx_files_and_ignore_new_lines", "compare_docx_lines"),
        *("compare_init_lines", "compare_references", "compare_unique_train_records"),
        *("check_no_duplicates", "fuzzy_place_math", "compare_docx_tables", "compare_docx_images"),
        *("compare_contains_image", "check_tabstops", "compare_line_spacing", "evaluate_spacing"),
        *("is_first_line_centered", "evaluate_alignment", "contains_page_break"),
        *("has_page_numbers_in_footers", "compare_font_names", "find_default_font"),
        *("compare_subscript_contains", "compare_insert_equation", "check_italic_font_size_14"),
        *("evaluate_strike_through_last_paragraph", "evaluate_conversion"),
        *("evaluate_colored_words_in_tables", "compare_highlighted_text", "check_highlighted_words"),
    ),
    "judges_of_tables": ("compare_table", "compare_conference_city_in_order"),
    "judges_of_slides": (
        *("compare_pptx_files", "check_strikethrough", "check_slide_orientation_Portrait"),
        *("check_image_stretch_and_center", "evaluate_presentation_fill_to_rgb_distance"),
        *("check_slide_numbers_color", "check_page_number_colors", "check_transition"),
        *("check_presenter_console_disable", "check_auto_saving_time", "check_left_panel"),
    ),
    "judges_of_pdf": (
        *("check_pdf_pages", "compare_pdfs", "compare_pdf_images", "is_gold_text_included_in_pdf"),
    ),
    "judges_of_images": (
        *("compare_images", "compare_image_list", "check_structure_sim", "check_structure_sim_resized"),
        *("check_file_exists_and_structure_sim", "check_image_mirror", "check_palette_and_structure_sim"),
        *("check_brightness_decrease_and_structure_sim", "decrease_brightness"),
        *("check_saturation_increase_and_structure_sim", "increase_saturation"),
        *("check_contrast_increase_and_structure_sim", "check_sharper", "check_green_background"),
        *("check_triangle_position", "check_textbox_on_leftside", "check_image_size"),
        "check_image_file_size",
    ),
    "judges_of_settings": (
        *("is_vlc_playing", "is_vlc_fullscreen", "is_vlc_recordings_folder", "check_qt_bgcone"),
        *("check_qt_max_volume", "check_qt_minimal_view", "check_global_key_play_pause"),
        *("check_one_instance_when_started_from_file", "check_qt_slider_colours", "check_config_status"),
        *("check_libre_locale", "check_thunderbird_prefs", "check_thunderbird_filter"),
        "check_thunderbird_folder",
    ),
    "judges_of_browsers": (
        *("is_expected_active_tab", "is_expected_active_tab_approximate", "is_expected_url_pattern_match"),
        *("is_expected_search_query", "is_expected_tabs", "is_expected_bookmarks", "is_cookie_deleted"),
        *("check_history_deleted", "is_shortcut_on_desktop", "check_enabled_experiments"),
        *("check_font_size", "is_expected_installed_extensions", "compare_htmls"),
        "check_accessibility_tree",
    ),
}

JUDGES: dict[str, str] = {name: f"{_PACKAGE}.{module}" for module, names in _NAMES.items() for name in names}
"""The module of each evaluation function, by the name of the function."""


async def judge(task: OSWorldTask, setting: Setting, left_s: LeftS) -> float:
    """Return the score of the machine's final state, in [0, 1].

    If ``is_any_enough``, the score is that of the best check. If not, it is 0 when any check scores 0, and
    else the mean of all checks. Raises EvaluatorFailed, TaskUnsupported or a fault of the machine.
    """
    scores = []
    for check in task.checks:
        if check.function != INFEASIBLE:  # what the policy declared decides that, not the machine
            scores.append(await _checked(check, setting, left_s))
    if not scores:
        return 0.0
    if task.is_any_enough:
        return max(scores)
    return 0.0 if min(scores) == 0.0 else math.fsum(scores) / len(scores)


async def _checked(check: Check, setting: Setting, left_s: LeftS) -> float:
    if check.function not in JUDGES:
        why = f"its evaluation needs the function {check.function!r}, which is not supported"
        raise TaskUnsupported(setting.task_id, why)
    result = await _result(check, setting, left_s)
    expected = await _expected(check, setting, left_s)
    if not _is_missing(result):
        arguments = (result,) if check.expected is None else (result, expected)
        try:
            return await _score(check, arguments, setting, left_s)
        except Unreadable as error:
            if _is_expected(error.path, expected):
                raise EvaluatorFailed(
                    setting.task_id, f"the expected value cannot be read: {error}"
                ) from error
    (await read_guest_state(setting.guest, deadline_s=left_s())).refuse_dead()
    return 0.0


async def _result(check: Check, setting: Setting, left_s: LeftS) -> Any:
    """Return what a check reads of the machine; `MISSING` too when it cannot be read or is too large."""
    if check.result is None:
        return None
    try:
        return await look_at(setting, check.result, left_s)
    except (AnswerTooLarge, Unreadable):
        return MISSING


async def _expected(check: Check, setting: Setting, left_s: LeftS) -> Any:
    """Return what the result of a check is compared with. Raises EvaluatorFailed when it is missing."""
    if check.expected is None:
        return None
    try:
        expected = await look_at(setting, check.expected, left_s)
    except Unreadable as error:
        raise EvaluatorFailed(setting.task_id, f"the expected value cannot be read: {error}") from error
    if _is_missing(expected):
        raise EvaluatorFailed(setting.task_id, f"the expected value {check.expected} is missing")
    return expected


async def _score(check: Check, arguments: Sequence[Any], setting: Setting, left_s: LeftS) -> float:
    """Return the score that an evaluation function gives to these arguments.

    Raises Unreadable for a file that cannot be read, TaskUnsupported when something is not implemented, and
    EvaluatorFailed for any other error of the function or of a library that it uses.
    """
    try:
        score = await in_child(
            f"{JUDGES[check.function]}:{check.function}",
            arguments,
            check.options,
            deadline_s=left_s(),
            passes_on=(Unreadable, NotImplementedError),
        )
        return float(score)
    except NotImplementedError as error:
        raise TaskUnsupported(setting.task_id, f"{check.function}: {error}") from error
    except Unreadable:
        raise
    except (ChildFailed, TypeError, ValueError) as error:
        raise EvaluatorFailed(setting.task_id, f"{check.function} {error}") from error


def _is_missing(value: Any) -> bool:
    return value is MISSING or (isinstance(value, list) and any(one is MISSING for one in value))


def _is_expected(path: Path, expected: Any) -> bool:
    """Whether a file is an expected value, or was made from an expected value and lies beside it."""
    files = [one for one in (expected if isinstance(expected, list) else [expected]) if isinstance(one, Path)]
    return any(path.parent == one.parent and path.name.startswith(one.stem) for one in files)


def not_known(task: OSWorldTask) -> list[str]:
    """Return the steps, looks and functions that a task needs and that are not supported; empty for none."""
    steps = [step.type for step in (*task.setup, *task.before_checks)]
    looks = [
        str(side.get("type")) for check in task.checks for side in (check.result, check.expected) if side
    ]
    return sorted(
        {f"step {name}" for name in steps if name not in STEPS}
        | {f"look {name}" for name in looks if name not in LOOKS}
        | {f"judge {check.function}" for check in task.checks if check.function not in (*JUDGES, INFEASIBLE)}
    )
