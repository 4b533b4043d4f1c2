"""The sidecar that writes figures to TensorBoard or Weights & Biases (`tracking.writers`).

The main process starts it with `python -m dart.tracking.__main__ RUN_DIR PID`.
"""

import sys
import threading
from contextlib import ExitStack, suppress

from dart.config.config import Config, kept_config
from dart.core.errors import DartError, UnavailableError
from dart.core.run_directory import RunPaths, make_private
from dart.inspect.sidecar_status import TRACKING, Sidecar, beat, write_sidecar
from dart.preflight.requirements import missing_trackers
from dart.run.sidecars import begin_sidecar
from dart.store.browse_queries import RunBrowser
from dart.store.errors import StoreBusy
from dart.tracking.follower import Position, TrackingFollower
from dart.tracking.writers import TensorBoard, TrackingWriter, WeightsAndBiases

POLL_S = 2.0


def main(arguments: list[str]) -> None:
    """Write the figures of each update until SIGTERM; then write those of all remaining updates and return.

    arguments   the run directory, and the pid of the main process
    raises      DartError, such as UnavailableError if a library of a writer is not installed; StoreError if
                the record cannot be read
    """
    is_over = threading.Event()
    paths = begin_sidecar(TRACKING, arguments, on_end=is_over.set)
    config = kept_config(paths.config)
    if missing := list(missing_trackers(config)):
        raise UnavailableError("; ".join(missing))
    make_private(paths.tracking)
    with ExitStack() as stack:
        store = stack.enter_context(RunBrowser(paths.record))
        newest = store.latest_version()
        position = Position(paths.tracking / "position.json", newest.version if newest is not None else 0)
        writers: dict[str, TrackingWriter] = {
            name: opened(name, paths, config, position) for name in config.tracking.writers
        }
        for writer in writers.values():
            stack.callback(writer.close)
        text = f"{' and '.join(config.tracking.writers)} in {paths.tracking}"
        write_sidecar(paths, Sidecar(name=TRACKING, is_well=True, text=text))
        follower = TrackingFollower(store, config, writers, position)
        while not is_over.wait(POLL_S):
            with suppress(StoreBusy):  # the server of the record is away
                follower.catch_up()
            beat(paths, TRACKING)
        follower.catch_up(is_over=True)


def opened(name: str, paths: RunPaths, config: Config, position: Position) -> TrackingWriter:
    """Open the writer `name`, `tensorboard` or `wandb`, so that it continues after the newest policy version
    that it has written."""
    folder = paths.tracking / name
    if name == "tensorboard":
        return TensorBoard(folder, first=position.of(name) + 1)
    return WeightsAndBiases(folder, config, position.run_id)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DartError as error:
        sys.exit(str(error))
