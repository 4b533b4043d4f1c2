"""What `dartrl train --resume` and `dartrl up` say at once about the run that they continue."""

from typing import TYPE_CHECKING

import typer

from dart.cli.output import say

if TYPE_CHECKING:
    from dart.config.config import Config
    from dart.core.run_directory import RunPaths

KEYS_SHOWN = 4
"""Number of changed keys that a message names; it counts the others."""

VALUE_CHARACTERS = 60
"""Largest number of characters of a value that such a message quotes."""


def look_at_run(config: "Config", paths: "RunPaths", *, is_dry: bool = False) -> None:
    """Say on standard error what a user should know before a run is continued.

    If the run is finished, give back the machines that it has left, and end the command with code 0.

    is_dry   whether nothing may be changed, so that machines are left
    """
    from dart.run.daemon import notify
    from dart.run.finished import why_finished
    from dart.run.listener import RunListener
    from dart.run.machines import give_back_of_ended

    if why := why_finished(config, paths):
        say(why, err=True)
        if not is_dry:
            give_back_of_ended(paths, RunListener())
            notify(READY=1)  # systemd takes a service for failed that ends before it is ready
        raise typer.Exit
    _say_other_values(config, paths)


def _say_other_values(config: "Config", paths: "RunPaths") -> None:
    """Say which values differ from those with which the run was started the last time.

    The start writes the new values into config.toml, so the message names the earlier ones. It says nothing
    if the values are the same, or if the earlier configuration is damaged.
    """
    from dart.config.config import ConfigError, differences, kept_config
    from dart.config.layers import literal
    from dart.config.problems import shortened

    try:
        changed = [one for one in differences(kept_config(paths.config), config) if one[0] != "run.dir"]
    except ConfigError:
        return
    if not changed:
        return
    words = [f"{key} (before: {shortened(literal(old), VALUE_CHARACTERS)})" for key, old, _ in changed]
    keep = f"continue it with {paths.option} and without a configuration"
    if paths.cluster.exists():
        keep = "write them into the file that you start it with"
    more = f" and {len(words) - KEYS_SHOWN} more" if len(words) > KEYS_SHOWN else ""
    say(
        f"this run goes on with other values than before: {', '.join(words[:KEYS_SHOWN])}{more}. To "
        f"keep the values of a run, {keep}",
        err=True,
    )
