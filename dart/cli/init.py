"""`dartrl init`: write a project to start from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from dart.cli.exit_codes import ExitCode, end, errors_as_exit_codes
from dart.cli.output import say
from dart.core.disk_errors import FULL_DISK

CONFIG_FILE, README_FILE = "train.toml", "README.md"

README = """\
# {name}

`train.toml` says what is done, on which tasks and for how long. In this folder:

    dartrl setup train.toml      # {setup}
{commands}
`dartrl config check train.toml` reports every mistake; `dartrl config show train.toml` prints every key.
"""

TRAIN = """\
    dartrl train train.toml      # train, with a live view; runs/ gets the record and the checkpoints
    dartrl status                # in a second terminal: how the run is
"""

COMMANDS = {
    "explore": """\
    dartrl explore sites/shop -c train.toml      # find the screens of the site; runs/ gets the record
    dartrl status                # in a second terminal: how the exploration is
""",
    "align": """\
    dartrl align sites/shop -c train.toml        # explore the site, align a policy to it, train the policy
""",
    "grounding": """\
    python -m dart.grounding.pages runs/pages/train --pages 2040      # make the data, once
    dartrl ground train train.toml               # train; runs/grounding gets the checkpoint
""",
}
"""The commands for a bundled configuration that `dartrl train` does not take, by its name."""

CLUSTER_README = """\
# {name}

`train.toml` is a cluster file, for a run on many machines: it names the run file `{run}`, and says where the
record, the blobs and the parts of the run are. In this folder:

    dartrl config check train.toml    # report every mistake, after you have written your addresses into it
    dartrl up train.toml --dry-run    # show which part runs on which machine, and what is missing
    dartrl up train.toml              # run, until Ctrl-C
    dartrl status                     # in a second terminal: how the run is

`dartrl config show {run}` prints every key of the run file; `[set]` in `train.toml` changes them.
"""


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project; created if it does not exist.")],
    template: Annotated[
        str, typer.Option("--from", metavar="NAME", help="Bundled configuration to begin with.")
    ] = "laptop",
) -> None:
    """Write a project to start from: train.toml, a configuration with comments, and README.md.

    Nothing is overwritten: if one of the two files exists already, none is written and the exit code is 73.

    **Examples**

    * `dartrl init my-agent`
    * `dartrl init my-desktop-agent --from desktop`
    """
    with errors_as_exit_codes(folder):
        configuration = _configuration(template)
        files = {
            CONFIG_FILE: configuration,
            README_FILE: _readme(template, configuration, folder.resolve().name),
        }
        _write(folder, files)
    say(f"wrote {' and '.join(str(folder / name) for name in files)}")


def _configuration(name: str) -> str:
    """Read the text of a bundled configuration. Raises UsageError if there is none with this name."""
    from dart.config.bundled import bundled_folder, bundled_names, no_such_file
    from dart.core.errors import UsageError

    if name not in bundled_names():
        raise UsageError(f"--from {name}: {no_such_file(Path(name))}")
    return (bundled_folder() / f"{name}.toml").read_text(encoding="utf-8")


def _readme(template: str, configuration: str, name: str) -> str:
    """Return the README.md of a project: how to use this configuration, a run file or a cluster file.

    template   name of the bundled configuration
    name       name of the project
    """
    import tomllib

    from dart.config.config import is_cluster_table
    from dart.config.environment_kinds import KINDS
    from dart.config.sections import EnvironmentsSettings

    data = tomllib.loads(configuration)
    if is_cluster_table(data):
        return CLUSTER_README.format(name=name, run=data["run"])
    kind = data.get("environments", {}).get("kind", EnvironmentsSettings().kind)
    setup = "install the browser, once" if KINDS[kind].is_page else "say what is missing, and the remedy"
    if kind == "miniwob":
        setup = "install the browser and the pages of the tasks, once"
    return README.format(name=name, setup=setup, commands=COMMANDS.get(template, TRAIN))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write all of the files, or none: if one exists already, end the command with a message.

    Raises OSError if the disk is full.
    """
    there = [str(folder / name) for name in files if (folder / name).exists()]
    if there:
        end(f"{' and '.join(there)} exists already; name another folder", ExitCode.CANNOT_CREATE)
    made = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                made.append(folder / name)
                file.write(text)
    except OSError as error:
        for file_made in made:  # an empty train.toml would be a valid configuration
            file_made.unlink()
        if error.errno in FULL_DISK:
            raise
        place = error.filename or folder
        end(f"{error.strerror}: {place}; name another folder", ExitCode.CANNOT_CREATE)
