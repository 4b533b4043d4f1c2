"""Import of demonstrations into the experience pool before the supervision tree starts."""

from functools import partial

from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.run.child_task import in_fresh_process

DEADLINE_S = 600.0


def fill_pool(config: Config, paths: RunPaths) -> None:
    """Import the configured folders of demonstrations into a run that is not running, in a separate process.

    Raises the errors of `import_folders`, and TemporaryError if the import takes longer than DEADLINE_S.
    """
    if config.curation.experience_pool.folders:
        in_fresh_process(
            partial(import_folders, config, paths),
            deadline_s=DEADLINE_S,
            remedy="name fewer folders in curation.experience_pool.folders",
        )


def import_folders(config: Config, paths: RunPaths) -> None:
    """Import the demonstrations of the run's tasks. The policy's processor starts threads.

    Raises BadDemonstrations, CheckpointError, StoreUnavailable, ConfigurationError or RunDirectoryError.
    """
    from dart.policy.prompt_spec import prompt_spec_of
    from dart.store.run_blobs import blobs_of
    from dart.store.store import Store
    from dart.training.demonstration_format import BadDemonstrations
    from dart.training.demonstration_import import import_demonstrations

    policy, prompt_spec, blobs = config.training.policy, prompt_spec_of(config.context), blobs_of(paths)
    with Store(paths.record, create=False, steps=blobs.steps) as store:
        # Every start imports the folders, so demonstrations that were dropped since must stay dropped.
        add = partial(store.add_demonstrations, revive=False)
        for folder in config.curation.experience_pool.folders:
            try:
                import_demonstrations(
                    add, folder, policy, blobs.screenshots, prompt_spec, tasks=config.tasks.train
                )
            except BadDemonstrations as wrong:
                raise BadDemonstrations(
                    f"{wrong}; or take {folder} out of curation.experience_pool.folders: the run keeps what "
                    "an earlier start imported"
                ) from wrong
