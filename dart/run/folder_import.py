"""Import of demonstrations into the experience pool before the supervision tree starts."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dart.config.sections import ContextSettings
from dart.core.run_directory import RunPaths
from dart.run.child_task import in_fresh_process

DEADLINE_S = 600.0


def fill_pool(folders: Sequence[Path], policy: Path, paths: RunPaths, context: ContextSettings) -> None:
    """Import folders of demonstrations into a run that is not running, in a separate process.

    context   settings of a vision-language policy's prompts

    Raises the errors of `import_folders`, and TemporaryError if the import takes longer than DEADLINE_S.
    """
    if folders:
        in_fresh_process(
            partial(import_folders, folders, policy, paths, context),
            deadline_s=DEADLINE_S,
            remedy="name fewer folders in curation.experience_pool.folders",
        )


def import_folders(folders: Sequence[Path], policy: Path, paths: RunPaths, context: ContextSettings) -> None:
    """Import folders of demonstrations with the policy's processor, whose libraries start threads.

    Raises BadDemonstrations, CheckpointError, StoreUnavailable, ConfigurationError or RunDirectoryError.
    """
    from dart.policy.prompt_spec import prompt_spec_of
    from dart.store.run_blobs import blobs_of
    from dart.store.store import Store
    from dart.training.demonstration_import import import_demonstrations

    prompt_spec, blobs = prompt_spec_of(context), blobs_of(paths)
    with Store(paths.record, create=False, steps=blobs.steps) as store:
        # Every start imports the folders, so demonstrations that were dropped since must stay dropped.
        add = partial(store.add_demonstrations, revive=False)
        for folder in folders:
            import_demonstrations(add, folder, policy, blobs.screenshots, prompt_spec)
