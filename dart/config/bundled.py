"""The configurations that come with dartrl, by name.

A wheel carries them and the base policy in `dart/configs`; a clone has them in `configs` beside the packages.
"""

from pathlib import Path

from dart.core.suggestions import did_you_mean, near

PACKAGE = Path(__file__).resolve().parents[1]


def bundled_folder() -> Path:
    """Return the folder that holds the bundled configurations and the base policy."""
    installed = PACKAGE / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def bundled_names() -> list[str]:
    """Return the names of the bundled configurations: the names of their files without the suffix."""
    return sorted(file.stem for file in bundled_folder().glob("*.toml"))


def configuration_file(given: Path) -> Path:
    """Return the path of the configuration file that a user gave on the command line.

    `given` is the name of a bundled configuration, such as `laptop`, or a path. A file with that name in the
    working directory takes precedence over the bundled configuration. Whether a path exists is not checked.
    """
    is_bundled = str(given) in bundled_names() and not given.is_file()
    return bundled_folder() / f"{given}.toml" if is_bundled else given


def no_such_file(given: Path) -> str:
    """Return the message for a configuration file that does not exist, with the names that would be valid."""
    names = bundled_names()
    hint = did_you_mean(near(given.stem, names))
    return f"there is no such file{hint}; the bundled configurations are {', '.join(names)}"
