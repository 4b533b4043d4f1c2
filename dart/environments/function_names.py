"""Functions that a configuration names: `MODULE:FUNCTION` or, for a file of one's own, `FILE.py:FUNCTION`."""

import ast
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from dart.core.errors import ConfigurationError

FILE_SUFFIX = ".py"

NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Errors of a file for which trying again does not help. Other errors of the system may be over at the next
start, such as those of a disk or of a server that the code reaches."""


def named_function(name: str) -> Callable[..., Any]:
    """Import the module or the file that `name` names, and return its function.

    Raises ConfigurationError if it does not exist or needs a module or a file that does not exist or must not
    be read. Any other error of the imported code propagates.
    """
    place, _, function = name.rpartition(":")
    try:
        module = _module_of_file(Path(place)) if place.endswith(FILE_SUFFIX) else import_module(place)
    except (ImportError, *NOT_THERE) as error:
        raise ConfigurationError(f"{name} cannot be imported in {sys.executable}: {error}") from error
    found: Callable[..., Any] | None = getattr(module, function, None)
    if found is None:
        raise ConfigurationError(f"{name} cannot be called: {place} has no function {function}")
    return found


def _module_of_file(file: Path) -> ModuleType:
    """Import a file under a name that no installed module has. It may import the files beside it."""
    loader = SourceFileLoader(f"own_{file.stem}", str(file))
    module = sys.modules[loader.name] = ModuleType(loader.name)
    module.__file__ = loader.path
    sys.path.append(str(file.parent))
    loader.exec_module(module)
    return module


def why_not_callable(name: str) -> str:
    """Return why `named_function` would fail, without importing anything but packages; empty if nothing is
    known to be wrong. The code itself is only read."""
    place, _, function = name.rpartition(":")
    if place.endswith(FILE_SUFFIX):
        if not Path(place).is_file():
            return f"there is no file {place}"
        file = place
    else:
        try:
            spec = find_spec(place)
        except Exception as error:  # the code of a package may raise anything
            absent = error.name if isinstance(error, ModuleNotFoundError) else None
            if not f"{place}.".startswith(f"{absent}."):
                why = f"{type(error).__name__}: {error}"
                return f"a package around {place} cannot be imported in {sys.executable} ({why})"
            spec = None  # a package around it does not exist
        if spec is None:
            return f"there is no Python module {place} for {sys.executable}"
        file = spec.origin or ""
    if not file.endswith(FILE_SUFFIX):
        return ""  # compiled
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        return f"{file} cannot be read as Python ({error})"
    names = set(_names_of(tree))
    return "" if function in names or "*" in names else f"{file} has no function {function}"


def _names_of(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module defines at its top level, also in branches; "*" if it may define any."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
                if node.name == "__getattr__":
                    yield "*"
            case ast.Import() | ast.ImportFrom():
                yield from (one.asname or one.name.partition(".")[0] for one in node.names)
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case _:
                yield from _names_of(node)
