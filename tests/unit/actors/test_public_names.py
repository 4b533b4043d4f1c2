"""What a user imports from `actors`, and what that costs."""

import subprocess
import sys

import pytest

import actors


@pytest.mark.parametrize("name", actors.__all__)
def test_every_public_name_is_importable_and_documented(name: str) -> None:
    found = getattr(actors, name)
    assert found.__doc__
    assert found.__module__.startswith("actors.")


def test_the_public_names_are_all_there_is_and_in_order() -> None:
    assert actors.__all__ == sorted(actors.__all__)
    assert set(actors.__all__) <= set(dir(actors))


def test_a_name_that_does_not_exist_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'actors' has no attribute 'Akteur'"):
        actors.Akteur  # noqa: B018


def test_importing_the_package_imports_neither_thespian_nor_zeromq() -> None:
    code = (
        "import sys, actors, actors.errors; from actors import ActorError; "
        "heavy = {'thespian', 'zmq', 'msgspec', 'structlog'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=".")
