"""The program that reads the state of a guest: it runs where this package is not installed."""

import ast
import sys

from dart.environments.osworld.readiness import STATE_PROGRAM

OLDEST_PYTHON = (3, 8)
"""The oldest Python of a guest."""


def test_the_program_in_the_guest_needs_python_and_xlib_alone() -> None:
    program = ast.parse(STATE_PROGRAM, feature_version=OLDEST_PYTHON)
    imported = {
        name.name for node in ast.walk(program) if isinstance(node, ast.Import) for name in node.names
    }
    imported |= {str(node.module) for node in ast.walk(program) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} - set(sys.stdlib_module_names) == {"Xlib"}
