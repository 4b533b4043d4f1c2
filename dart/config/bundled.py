"""The configurations that come with dartrl, by name.

A wheel carries them and the base policy in `dart/configs`; a clone has them in `configs` beside the packages.
"""

from pathlib import Path

from dart.core.suggestions import did_you_mean, near

PACKAGE = Path(__file__).resolve().parents[1]


def bundled_folder() -> Path:
    """The folder of the bundled configurations and of the base policy."""
    installed = PACKAGE / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def bundled_names() -> list[str]:
    """What a bundled configuration is called on the command line: its file's name without the suffix."""
    return sorted(file.stem for file in bundled_folder().glob("*.toml"))


def configuration_file(given: Path) -> Path:
    """The file that a command's argument means.

    The bare name of a bundled configuration, such as `laptop`, means that configuration, unless a file of
    this very name is there. Everything else is a path.
    """
    is_bundled = str(given) in bundled_names() and not given.is_file()
    return bundled_folder() / f"{given}.toml" if is_bundled else given


def no_such_file(given: Path) -> str:
    """What to name instead of a file that is not there."""
    names = bundled_names()
    hint = did_you_mean(near(given.stem, names))
    return f"there is no such file{hint}; the bundled configurations are {', '.join(names)}"
