"""What `dartrl up` would start, for `--dry-run`, and whether it could."""

from typing import TYPE_CHECKING, Any

from dart.cli.continued import look_at_run
from dart.cli.output import say, say_left_out

if TYPE_CHECKING:
    from dart.config.config import Config
    from dart.config.hub import HubPolicy
    from dart.core.run_directory import RunPaths


def show_plan(settings: "Config", gpu_gib: float | None, *, resume: bool) -> None:
    """Print what a start would do, its tree and its needs; raise the errors that would keep it from starting.

    If the run is finished, say so and end the command with code 0, as the start would.

    gpu_gib   memory of a GPU for the plan; None: what this machine has
    """
    import psutil

    from dart.cli.gpu_plan import lines_of_this_machine
    from dart.config.gpus import assign_gpus, gpus_here
    from dart.core.run_directory import RunPaths
    from dart.preflight.disk_need import disk_lines
    from dart.preflight.hub_fetch import fetched_by_start
    from dart.preflight.idle_environments import idle_lines
    from dart.preflight.memory import memory_lines
    from dart.preflight.requirements import CHECKS, missing_policy, require_installation

    paths = RunPaths(settings.run.dir)
    would = what_it_would_do(settings, paths, resume=resume)
    if paths.config.exists():
        look_at_run(settings, paths, is_dry=True)
    say(would)
    say("\n".join([*_tree_lines(settings), *idle_lines(settings)]))
    if lines := lines_of_this_machine(settings, gpu_gib):
        say("\n".join(lines))
    assignment = assign_gpus(settings, gpus_here())
    say("\n".join(memory_lines(settings, psutil.virtual_memory().available, assignment)))
    if lines := disk_lines(settings):
        say("\n".join(lines))
    fetched = fetched_by_start(settings)
    require_installation(settings, [one for one in CHECKS if fetched is None or one is not missing_policy])
    say_left_out(settings)
    say(_all_is_there(gpu_gib, fetched))


def what_it_would_do(settings: "Config", paths: "RunPaths", *, resume: bool = False) -> str:
    """Return one line that says what a start would do: begin a run, or continue one.

    Raises RunDirectoryError or DiskError if the start would fail at once.
    """
    from dart.core.run_directory import refuse_at_once, refuse_untrained
    from dart.run.other_control_node import is_taken_over, refuse_nothing_to_take_over
    from dart.run.run_record import is_interrupted_start, refuse_without_record

    if resume and is_taken_over(settings, paths):
        refuse_nothing_to_take_over(settings, paths)
        return f"would continue the run of the record {settings.run.record} in {paths.root}"
    is_resumed = resume or paths.config.exists()
    refuse_at_once(paths, resume=is_resumed)
    refuse_untrained(paths)
    if is_resumed:
        refuse_without_record(settings, paths)
    elif settings.run.record:  # a record on a server; `refuse_at_once` has checked one in the directory
        is_interrupted_start(paths.record_at(settings.run.record), paths)
    return f"would {'continue the run in' if is_resumed else 'begin a run in'} {paths.root}"


def _tree_lines(settings: "Config") -> list[str]:
    """Return the supervision tree as indented lines, with one line for all children of a pool."""
    from dart.config.environment_kinds import KINDS
    from dart.run.definition import supervisors
    from dart.run.tree import root_spec
    from supervision.child_spec import ChildType

    tree = supervisors(root_spec(settings, {}))
    lines = [f"root  {tree['root'].flags.strategy}  {_budget(tree['root'].flags)}"]
    for id_, spec in tree["root"].children.items():
        if spec.type is not ChildType.SUPERVISOR:
            lines.append(f"  {id_}  {spec.restart}")
            continue
        names = list(tree[id_].children)
        lines.append(f"  {id_}  {tree[id_].flags.strategy}  {_budget(tree[id_].flags)}")
        lines.append(
            f"    {names[0]} … {names[-1]}  {len(names)} actors" if len(names) > 1 else f"    {names[0]}"
        )
    actors = sum(len(one.children) for one in tree.values()) + 1
    browsers = settings.environments.count if KINDS[settings.environments.kind].is_page else 0
    return [*lines, f"{actors} actors, {browsers} browsers"]


def _budget(flags: Any) -> str:
    return f"{flags.max_restarts} restarts in {flags.max_seconds:g} s"


def _all_is_there(gpu_gib: float | None, fetched: "HubPolicy | None") -> str:
    """Say that the run has what it needs, and what was not looked for.

    fetched   the policy that the start fetches; None if it fetches none
    """
    notes = []
    if gpu_gib is not None:
        notes.append(f"GPUs of {gpu_gib:g} GiB were assumed, not looked for")
    if fetched is not None:
        notes.append(f"{fetched} will be fetched into {fetched.folder}")
    return "; ".join([f"everything{' else' if notes else ''} that the run needs is there", *notes])
