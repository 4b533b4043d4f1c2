"""Environment variables that the control node passes to every other node: credentials and the like. Pure."""

from collections.abc import Mapping

from dart.config.config import Config

SECRETS = ("PGPASSWORD", "PGUSER", "PGSSLMODE")
SECRET_PREFIXES = ("AWS_",)


def forwarded(run: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that are passed to every node.

    A node keeps its own value of a variable. The variables are passed in a Ray call and in the environment of
    the node's actor system, never in a command line, a file or a log.
    """
    names = {*SECRETS, run.environments.osworld.pool.token_variable}
    return {
        name: value
        for name, value in environment.items()
        if name in names or name.startswith(SECRET_PREFIXES)
    }
