"""The Python environment with OSWorld's own evaluators: its folder, its version, and what its functions need.

What a function needs is read from the source of the installed package. Nothing of the package is imported, so
a report about hundreds of tasks takes a second. No table has to be kept for each version.
"""

import ast
import configparser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from dart.environments.faults import InstallationIncomplete
from dart.environments.osworld.scoring_child import EVALUATORS, OPTIONAL, PACKAGE, PARTS, exported

DISTRIBUTION = "desktop-env"

RUNS_CODE = "runs code"
"""Need of a function that runs code from the guest, which the policy may have written (see
`ScoringEnvironment.functions`)."""

RUNNERS = ("eval", "exec", "exec_module")
"""Names of the calls that run code."""

LEFT_OUT = {
    "fitz": "PyMuPDF, which is licensed under the AGPL: run `scripts/setup-osworld-score.sh pymupdf`",
    "librosa": "librosa and fastdtw: run `scripts/setup-osworld-score.sh audio`",
    "fastdtw": "librosa and fastdtw: run `scripts/setup-osworld-score.sh audio`",
    "easyocr": "easyocr, which needs torch: install it into the environment with the evaluators",
    "pydrive": "a Google account",
    RUNS_CODE: "bubblewrap, because its evaluation runs code that the policy wrote: install bubblewrap",
}
"""For each missing library, and for `RUNS_CODE`: what a task needs and how to install it. The texts end a
sentence such as "its evaluation needs ..."."""


class EvaluatorsMissing(InstallationIncomplete):
    """OSWorld's evaluators are not installed."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(
            f"OSWorld's evaluators are not installed in {folder} ({why}): run `make osworld-score` in a "
            "clone of the repository, or name their environment in environments.osworld.evaluators"
        )


@dataclass(frozen=True, slots=True)
class ScoringEnvironment:
    """A virtual environment of Python with the package ``desktop-env``."""

    folder: Path
    packages: Path
    """Its folder ``site-packages``."""
    version: str
    """Version of ``desktop-env``."""
    base: Path
    """Folder of the installation of Python from which the environment was made."""
    functions: Mapping[str, frozenset[str]] = field(repr=False)
    """What each metric and each getter (``get_…``) needs: libraries of `OPTIONAL`, or `RUNS_CODE`."""

    @property
    def name(self) -> str:
        """The name of the evaluators in a record, such as ``desktop-env 1.0.2``."""
        return f"{DISTRIBUTION} {self.version}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def has(self, library: str) -> bool:
        return any((self.packages / f"{library}{ending}").exists() for ending in ("", ".py"))


def find_evaluators(folder: Path) -> ScoringEnvironment:
    """Return the environment in a folder. Raises EvaluatorsMissing when it is not complete."""
    return _found(folder.absolute())


@cache
def _found(folder: Path) -> ScoringEnvironment:
    packages = next(iter(folder.glob("lib/python3*/site-packages")), None)
    if packages is None or not (folder / "bin" / "python").exists():
        raise EvaluatorsMissing(folder, "it is not a virtual environment")
    root = packages.joinpath(*EVALUATORS.split("."))
    versions = [path.stem.partition("-")[2] for path in packages.glob(f"{PACKAGE}-*.dist-info")]
    if not versions or not root.is_dir():
        raise EvaluatorsMissing(folder, f"it has no {DISTRIBUTION}")
    functions: dict[str, frozenset[str]] = {}
    for part in PARTS:
        functions |= _functions(root / part)
    return ScoringEnvironment(folder, packages, versions[0], _base_of(folder), functions)


def _base_of(folder: Path) -> Path:
    """Return the folder of the installation of Python from which a virtual environment was made."""
    parser = configparser.ConfigParser()
    try:
        parser.read_string(f"[venv]\n{(folder / 'pyvenv.cfg').read_text()}")
        return Path(parser["venv"]["home"]).parent
    except (OSError, KeyError, configparser.Error) as error:
        raise EvaluatorsMissing(folder, f"its pyvenv.cfg cannot be read: {error}") from error


# ---- what functions need, from their source ----


def _functions(folder: Path) -> dict[str, frozenset[str]]:
    modules = exported(folder)
    needs = {
        module: needs_of_functions((folder / f"{module}.py").read_text(encoding="utf-8"))
        for module in set(modules.values())
    }
    return {name: needs[module].get(name, frozenset()) for name, module in modules.items()}


def needs_of_functions(source: str) -> Mapping[str, frozenset[str]]:
    """Map each function of a module to what it needs, itself or through other functions of the module.

    The needs are libraries of `OPTIONAL` and `RUNS_CODE`."""
    tree = ast.parse(source)
    libraries = dict(_imported(tree))
    names = {
        node.name: {one for inner in ast.walk(node) for one in _names_in(inner)}
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    needs = {}
    for function in names:
        reached, ahead = set(), {function}
        while ahead:
            reached |= ahead
            ahead = {one for name in ahead for one in names[name] if one in names} - reached
        used = set().union(*(names[name] for name in reached))
        runs = {RUNS_CODE} if used & set(RUNNERS) else set()
        needs[function] = frozenset({libraries[name] for name in used if name in libraries} | runs)
    return needs


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name under which a module imports something of an `OPTIONAL` library, with the library."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OPTIONAL:
            library = (node.module or "").partition(".")[0]
            yield from ((alias.asname or alias.name, library) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in OPTIONAL:
                    yield alias.asname or alias.name.partition(".")[0], alias.name.partition(".")[0]


def _names_in(node: ast.AST) -> Iterator[str]:
    """Yield the name that a syntax node uses. Of attributes, only ``exec_module`` counts: it runs code."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute) and node.attr == "exec_module":
        yield node.attr
