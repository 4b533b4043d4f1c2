"""Functions that a configuration names are found, and what is wrong with a name is known before an import."""

from pathlib import Path

import pytest

from dart.core.errors import ConfigurationError
from dart.environments.function_names import named_function, why_not_callable

CODE = """
import json as reader
from dataclasses import dataclass
try:
    from beside import value
except ImportError:
    value = 0
if True:
    def make(*_):
        return value
assigned = make
async def later(): ...
@dataclass
class Made:
    value: int = 1
def outer():
    def inner(): ...
"""


def written(folder: Path, text: str, name: str = "task.py") -> Path:
    (file := folder / name).write_text(text)
    return file


def test_the_function_of_a_file_may_use_a_module_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")  # restores sys.path after the test
    written(tmp_path, "value = 7", "beside.py")
    assert named_function(f"{written(tmp_path, CODE)}:make")() == 7


def test_a_file_with_the_name_of_an_installed_module_takes_no_place_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    made = named_function(f"{written(tmp_path, CODE, 'json.py')}:Made")
    assert made().value == 1
    assert named_function("json:dumps")([1]) == "[1]"


@pytest.mark.parametrize("function", ["make", "assigned", "later", "Made", "reader", "value", "outer"])
def test_whatever_a_module_defines_at_its_top_level_can_be_named(tmp_path: Path, function: str) -> None:
    assert why_not_callable(f"{written(tmp_path, CODE)}:{function}") == ""


@pytest.mark.parametrize("function", ["inner", "mke", "json"])
def test_a_name_that_a_file_does_not_define_is_refused_without_importing_it(
    tmp_path: Path, function: str
) -> None:
    file = written(tmp_path, CODE + "raise SystemExit")
    assert why_not_callable(f"{file}:{function}") == f"{file} has no function {function}"


@pytest.mark.parametrize("text", ["from os.path import *", "def __getattr__(name): ..."])
def test_a_module_that_may_define_any_name_is_not_refused(tmp_path: Path, text: str) -> None:
    assert why_not_callable(f"{written(tmp_path, text)}:make") == ""


def test_a_missing_file_or_module_and_one_that_is_no_python_are_named(tmp_path: Path) -> None:
    assert why_not_callable(f"{tmp_path}/no.py:make") == f"there is no file {tmp_path}/no.py"
    assert why_not_callable("no.such:make").startswith("there is no Python module no.such for /")
    assert "cannot be read as Python (" in why_not_callable(f"{written(tmp_path, 'def make(')}:make")


@pytest.mark.parametrize(
    "code", ["import no_such_library", "from json import no_such_name", "def make(", "1 / 0"]
)
def test_a_module_whose_package_cannot_be_imported_is_refused_with_the_reason(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (package := tmp_path / "own_package").mkdir()
    written(package, code, "__init__.py")
    written(package, CODE, "tasks.py")

    why = why_not_callable("own_package.tasks:make")

    assert why.startswith("a package around own_package.tasks cannot be imported in /")
    assert "no_such" in why or "never closed" in why or "ZeroDivisionError: division by zero" in why


def test_what_cannot_be_imported_is_a_wrong_configuration_and_a_defect_of_the_code_is_none(
    tmp_path: Path,
) -> None:
    for text in ("import no_such_library", "other = 1"):
        with pytest.raises(ConfigurationError, match=r"task\.py:make cannot be"):
            named_function(f"{written(tmp_path, text)}:make")
    with pytest.raises(ConfigurationError, match="No such file"):
        named_function(f"{tmp_path}/no.py:make")
    with pytest.raises(ZeroDivisionError):
        named_function(f"{written(tmp_path, '1 / 0')}:make")


@pytest.mark.parametrize("error", ["OSError(5, 'a bad disk')", "ConnectionRefusedError", "TimeoutError"])
def test_a_disk_or_a_server_that_fails_while_a_module_is_imported_is_no_wrong_configuration(
    tmp_path: Path, error: str
) -> None:
    with pytest.raises(OSError) as raised:
        named_function(f"{written(tmp_path, f'raise {error}')}:make")
    assert not isinstance(raised.value, ConfigurationError)


@pytest.mark.parametrize("code", ["open('no.json')", "open('/')"])
def test_a_module_that_needs_a_file_that_is_not_there_is_a_wrong_configuration(
    tmp_path: Path, code: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"task\.py:make cannot be imported in"):
        named_function(f"{written(tmp_path, code)}:make")
