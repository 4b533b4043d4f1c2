"""`dartrl pool`: the experience pool of a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode, end, errors_as_exit_codes
from dart.cli.options import ID_MOST, OfTask, RunDir, chosen_here, reads_run, recorded, with_blobs
from dart.cli.output import Format, Output, print_data, print_list, say
from dart.inspect.formatting import counted
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.core.records import DemonstrationSummary
    from dart.core.run_directory import RunPaths
    from dart.store.store import Store

pool_app = typer.Typer(
    help="The experience pool: successes that were not played by a rollout of the run, for groups in which "
    "every rollout failed.",
    no_args_is_help=True,
)

PoolId = Annotated[
    int,
    typer.Argument(metavar="ID", help="Number of a demonstration, from `pool list`.", min=0, max=ID_MOST),
]


@pool_app.command("import")
@reads_run
def import_folder(
    folder: Annotated[Path, typer.Argument(help="Folder with a demonstrations.jsonl and its screenshots.")],
    run_dir: RunDir = None,
) -> None:
    """Add the successes in a folder to the pool. One that the pool has already is not added again;
    its steps and screenshots are written again, in case they were lost or damaged.

    In demonstrations.jsonl, each step has an `action`, or the whole `answer` as the policy writes it, or the
    answer's `token_ids`, with their `logprobs` if these are known. The output says how many demonstrations
    lack the thoughts that the policy writes before actions, and how many are not used because their reward is
    no success (`curation.success_above`).

    The run must not be running: end it, import, and continue it with `dartrl train --resume`. Or name the
    folder in `curation.experience_pool.folders`; then every start imports the demonstrations of its tasks.

    **Examples**

    * `dartrl pool import runs/base-policy/demonstrations --run-dir runs/hard`
    * `python -m dart.environments.miniwob.demonstrations --tasks miniwob/click-tab --out DIR` makes one
    """
    from dart.config.config import kept_config
    from dart.inspect.task_reports import about_pool

    paths = recorded(chosen_here(run_dir))
    config = kept_config(paths.config)
    with _held(paths, "import") as store:
        from dart.policy.prompt_spec import (
            prompt_spec_of,
        )  # the import takes seconds; `_held` refuses a running run before that
        from dart.store.run_blobs import blobs_of
        from dart.training.demonstration_import import import_demonstrations

        prompt_spec = prompt_spec_of(config.context)
        blobs = blobs_of(paths)
        added, known = import_demonstrations(
            store.add_demonstrations, folder, config.training.policy, blobs.screenshots, prompt_spec
        )
        held = [one for one in store.demonstrations() if not one.dropped]
    new = counted(added, "demonstration")
    say(f"{new} added from {folder}, {known} were in the pool; {len(held)} are in use")
    for line in about_pool(held, config):
        say(line)


@pool_app.command("list")
@reads_run
def list_pool(
    run_dir: RunDir = None,
    task: OfTask = None,
    output: Output = Format.TABLE,
) -> None:
    """Show every demonstration: its task, its number of steps, the number of groups that it was added to, its
    origin, and whether it lacks the thoughts that the policy writes.

    **Examples**

    * `dartrl pool list`
    * `dartrl pool list --task click-tab --run-dir runs/hard`
    """
    from dart.config.config import kept_config
    from dart.inspect import task_reports
    from dart.store.reader import StoreReader

    paths = recorded(run_dir)
    with StoreReader(paths.record) as store:
        held = store.demonstrations()
    if task is not None:
        known = dict.fromkeys([*kept_config(paths.config).tasks.train, *(one.task_id for one in held)])
        task_id = task_reports.find_task(task, list(known))
        held = tuple(one for one in held if one.task_id == task_id)
    print_list(held, columns(), output, empty="the pool is empty: `dartrl pool import FOLDER` adds to it")


@pool_app.command()
@reads_run
def show(pool_id: PoolId, run_dir: RunDir = None, output: Output = Format.TABLE) -> None:
    """Show one demonstration step by step.

    **Examples**

    * `dartrl pool show 3`
    * `dartrl pool show 3 -o json | jq -r '.steps[].screenshot_sha256'`
    """
    from dart.inspect.task_reports import check_demonstration
    from dart.inspect.terminal_safe import one_line
    from dart.store.reader import StoreReader
    from dart.store.run_blobs import blobs_of

    paths = recorded(with_blobs(run_dir))
    with StoreReader(paths.record, steps=blobs_of(paths).steps) as store:
        check_demonstration(pool_id, store.demonstrations())
        found = store.demonstration(pool_id)
    if output.is_data:
        print_data(found, output)
        return
    say(f"{found.pool_id}  {found.task_id}  seed {found.seed}  by {found.origin}  {found.instruction}")
    for number, step in enumerate(found.steps, start=1):
        say(f"{number:3}  {one_line(step.answer)}  (screen {step.screenshot_sha256[:12]})")


@pool_app.command()
@reads_run
def drop(pool_id: PoolId, run_dir: RunDir = None) -> None:
    """Take a demonstration out of use: no further group gets it.

    Groups that have the demonstration keep it. Later starts leave it out of use, also if its folder is in
    `curation.experience_pool.folders`. To use it again, import it with `dartrl pool import`.

    **Examples**

    * `dartrl pool drop 3 --run-dir runs/hard`
    """
    from dart.inspect.task_reports import check_demonstration

    paths = recorded(chosen_here(run_dir))
    with _held(paths, "drop") as store:
        check_demonstration(pool_id, store.demonstrations())
        store.drop_demonstration(pool_id)
        left = sum(not one.dropped for one in store.demonstrations())
    say(f"demonstration {pool_id} is out of use; {left} are in use")


def columns() -> "list[Column[DemonstrationSummary]]":
    """Return the columns of the table of demonstrations."""
    from dart.inspect.task_reports import remarks

    return [
        Column("id", lambda one: str(one.pool_id)),
        Column("seed", lambda one: one.seed, is_number=True),
        Column("steps", lambda one: one.num_steps, is_number=True),
        Column("uses", lambda one: one.uses, is_number=True),
        Column("task", lambda one: one.task_id),
        Column("origin", lambda one: one.origin),
        Column("", remarks),
    ]


@contextmanager
def _held(paths: "RunPaths", what: str) -> Iterator["Store"]:
    """Open the record of a run for writing. Until the block ends, the run cannot be started.

    If the run is running, here or on another machine, the command ends with a message.

    what   verb for this message, such as "import": what the user can do after the run has ended
    """
    from dart.core.run_directory import claimed, holder

    if (pid := holder(paths.root)) is not None:
        end(
            f"the run in {paths.root} is running as process {pid}, and only it may write its record: end it "
            f"(Ctrl-C, or `kill {pid}`), then {what} and continue with `dartrl train --resume "
            f"{paths.option}`. You can also name a folder in curation.experience_pool.folders; every start "
            "and every --resume imports the demonstrations of its tasks",
            ExitCode.CANNOT_CREATE,
        )
    from dart.config.config import kept_config
    from dart.run.other_control_node import refuse_running_elsewhere
    from dart.store.run_blobs import blobs_of
    from dart.store.store import Store
    from dart.store.write_ahead_log import keep_damaged_log

    refuse_running_elsewhere(kept_config(paths.config), paths)
    unchanged = paths.config.read_text(encoding="utf-8")
    with (
        errors_as_exit_codes(paths.root),  # not around the whole command, whose output may go to another disk
        claimed(paths.root, resume=True, config_toml=unchanged) as held,
    ):
        keep_damaged_log(held.paths.record)
        with Store(held.paths.record, create=False, steps=blobs_of(held.paths).steps) as store:
            yield store
