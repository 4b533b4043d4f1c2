"""A module that logs as libraries do, and its actor.

No test imports it, so that its logger is made in a process of the system under test.
"""

import json
import logging
from pathlib import Path

from actors.actor import Actor

_log = logging.getLogger(__name__)
_log.warning("imported")


class LoggingActor(Actor):
    """Opens files, logs, and writes to the folder `args["report"]` which descriptors changed with that."""

    def on_start(self) -> None:
        report = Path(self.args["report"])
        self._files = [(report / "opened").open("a") for _ in range(30)]
        before = _descriptors()
        _log.warning("started %d", self.identity.incarnation)
        _log.info("not worth a line")
        after = _descriptors()
        changed = sorted(fd for fd in before.keys() | after.keys() if before.get(fd) != after.get(fd))
        name, incarnation = self.identity.name, self.identity.incarnation
        (report / f"{name}.{incarnation}").write_text(json.dumps(changed))


def _descriptors() -> dict[int, str]:
    """What each open descriptor of this process stands for."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        try:
            found[int(link.name)] = str(link.readlink())
        except FileNotFoundError:  # the list itself was read from it
            continue
    return found
