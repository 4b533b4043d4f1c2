"""`dartrl align`: what is wrong is one error before anything starts."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.alignment.folder import AlignmentFolder
from dart.alignment.stages import AlignmentStage
from dart.cli.main import app

pytestmark = pytest.mark.slow


def align(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["align", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.stderr.split())


def begun(root: Path) -> AlignmentFolder:
    """The folder of an alignment whose exploration is finished."""
    folder = AlignmentFolder(root)
    root.mkdir()
    folder.keep_config('[environments]\nkind = "sites"\n[tasks]\ntrain = ["sites/shop/easy"]\n')
    folder.finish(AlignmentStage.EXPLORE, {"screens": 3})
    return folder


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        ((), 2, "name the site, as in `dartrl align sites/shop`"),
        (("--resume",), 2, "continue an alignment with --resume --run-dir DIR"),
        (("shop",), 2, "there is no site 'shop': its name begins with one of miniwob, sites"),
        (("sites/shap",), 2, "there is no site 'sites/shap'; did you mean sites/shop or"),
        (("desktop/calculator-sum",), 2, "cannot be explored: their screens are not web pages"),
        (("sites/shop", "--set", "grounding.update=3"), 78, "did you mean grounding.updates or"),
        (("sites/shop", "--set", "run.record=postgresql://a@b/c"), 78, "run.record must be empty"),
        (("sites/shop", "--set", "grounding.head=attention"), 78, "grounding.head must be 'pointer'"),
        (("sites/shop", "--set", "grounding.base=no/checkpoint"), 69, "no policy checkpoint in"),
        (("sites/shop", "--set", "grounding.base=configs/base-policy"), 69, "has no pointer head"),
        (("sites/shop", "--generic", "no/data"), 69, "no/data has no annotations"),
        (("sites/shop", "--held-out", "no/data"), 69, "no/data has no annotations"),
    ],
)
def test_what_is_wrong_is_one_error_before_anything_starts(
    tmp_path: Path, words: tuple[str, ...], code: int, problem: str
) -> None:
    place = ("--run-dir", str(tmp_path / "run")) if words and words[0] != "--resume" else ()
    found, error = align(*words, *place)

    assert problem in error
    assert found == code
    assert not (tmp_path / "run").exists()


def test_generic_data_without_its_screenshots_is_named(tmp_path: Path) -> None:
    entry = {"img_filename": "gone.png", "bbox": [0, 0, 9, 9], "instruction": "click it", "data_type": "icon"}
    data = tmp_path / "data"
    data.mkdir()
    (data / "annotations.json").write_text(json.dumps([entry]))

    code, error = align("sites/shop", "--generic", data, "--run-dir", tmp_path / "run")

    assert code == 69
    assert "the screenshot 'gone.png' is missing: searched in" in error


def test_a_second_alignment_never_begins_over_another(tmp_path: Path) -> None:
    begun(tmp_path / "run")

    code, error = align("sites/shop", "--run-dir", tmp_path / "run")

    assert code == 73
    assert "holds an alignment or another run already; continue an alignment with --resume" in error


def test_nothing_is_resumed_where_nothing_began(tmp_path: Path) -> None:
    code, error = align("--resume", "--run-dir", tmp_path / "run")

    assert code == 73
    assert "holds no alignment to resume" in error


def test_options_for_a_finished_exploration_are_refused(tmp_path: Path) -> None:
    begun(tmp_path / "run")

    code, error = align("--resume", "--run-dir", tmp_path / "run", "--actions", "500")

    assert code == 2
    assert "is finished, and later stages build on it: leave out --actions" in error
