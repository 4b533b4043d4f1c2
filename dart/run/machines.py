"""Give back the machines that environments have left, when no actor of the run lives."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dart.config.config import Config, kept_config
from dart.core.errors import ConfigurationError
from dart.core.run_directory import RunPaths, is_own, kept_ended
from dart.environments.leftovers import GIVE_BACK_S, GivenBack, give_back, left_behind
from dart.run.listener import RunListener


@contextmanager
def given_back(config: Config, paths: RunPaths, listener: RunListener, *, remedy: str = "") -> Iterator[None]:
    """Give back what an earlier start has left, and after the block what this one has left, however it ends.

    Environments that end in order leave nothing, so nothing is waited for then.

    remedy   what to do about machines that cannot be given back; by default the command that tries again
    """
    _give_back(config, paths, listener, remedy)
    try:
        yield
    finally:
        _give_back(config, paths, listener, remedy)


def give_back_of_ended(paths: RunPaths, listener: RunListener) -> GivenBack:
    """Give back what a run has left that does not run. No start of it succeeds meanwhile.

    Returns nothing given back for a run that runs, for one of another user (`is_own`), and for one without a
    readable configuration."""
    with kept_ended(paths.root) as has_ended, suppress(ConfigurationError):
        if has_ended and is_own(paths.root):
            return _give_back(kept_config(paths.config), paths, listener)
    return GivenBack()


def try_again(paths: RunPaths) -> str:
    """Say which command gives back what a run has left that does not run."""
    return f"try again with `dartrl down {paths.option}`"


def _give_back(config: Config, paths: RunPaths, listener: RunListener, remedy: str = "") -> GivenBack:
    found = left_behind(config, paths)
    if not found:
        return GivenBack()
    listener.giving_back(found, GIVE_BACK_S)
    given = give_back(config, paths)
    listener.gave_back(given.count, [f"{one}; {remedy or try_again(paths)}" for one in given.left])
    return given
