"""The configuration: its sections, loading and checks. An empty file runs the laptop job.

The layers are the defaults, one TOML file and `--set section.key=value`; later layers win. They are merged
key by key before anything is validated. Unknown keys are refused, old names have no aliases, and all problems
are reported at once. Only this module and `dart.config.layers` parse text; the rest of the system uses these
frozen models or plain data. No heavy library is imported here, so that commands start quickly.
"""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from pydantic import ValidationError

from dart.config import sections
from dart.config.alarm_names import LearningAlarm
from dart.config.bundled import bundled_folder, configuration_file
from dart.config.environment_kinds import KINDS, kind_of
from dart.config.gpus import RUN_ON_GPUS, shared_gpu_problems
from dart.config.hub import fetched_from, hub_policy, is_address
from dart.config.injected_faults import InjectedFault
from dart.config.layers import Layer, file_layer, merge, overrides_layer, to_toml
from dart.config.machine_address import is_server_url, machine_of, parse_address
from dart.config.osworld_evaluation import PAGE_CALL_S, least_deadline_s
from dart.config.problems import (
    Problem,
    describe,
    dotted,
    explain,
    field_docstrings,
    given_by,
    has_unknown_key,
    is_about,
    refused_keys,
    shortened,
    without_refused,
)
from dart.config.sections import MACHINE_DEFAULTS, Section, why_unfit
from dart.config.supervision_checks import supervision_problems
from dart.core.blob_address import check_blob_address
from dart.core.errors import ConfigurationError
from dart.core.record_address import ServerAddress
from dart.core.run_directory import RunPaths
from dart.core.suggestions import did_you_mean, near
from dart.core.types import ACTORS_MOST

UNKNOWN_TASKS_SHOWN = 5

OWN_FUNCTION = re.compile(r"(.+\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):[^\W\d]\w*")
"""Pattern of `environments.make`."""

PATHS_AS_TEXT = (
    "environments.executable",
    "environments.make",
    "environments.miniwob.pages",
    "context.prompt",
    "grounding.base",
)
"""Keys whose text is a path. It may be empty, which a path may not."""

REVERT_FIELDS = ("address", "host", "port", "snapshot")
SERVER_FIELDS = ("port",)
"""Placeholders that the command `environments.osworld.local.server` may contain; `REVERT_FIELDS` are those of
`environments.osworld.revert_command`."""

PROBLEMS_SHOWN = 20
"""Largest number of problems that one error message lists: as many as fit on a screen."""


WRITTEN_LATER = (
    "this configuration of a run has keys that this version of dartrl does not know: if a later version "
    "wrote it, go on with that one; else remove the keys"
)


class ConfigError(ConfigurationError):
    """The configuration has problems. The message lists the first ones; ``problems`` holds all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        lines = [str(problem) for problem in problems[:PROBLEMS_SHOWN]]
        if len(problems) > PROBLEMS_SHOWN:
            lines.append(f"and {len(problems) - PROBLEMS_SHOWN} more problems; {len(problems)} in all")
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


class Config(Section):
    """The whole configuration."""

    run: sections.RunSettings = sections.RunSettings()
    tasks: sections.TasksSettings = sections.TasksSettings()
    environments: sections.EnvironmentsSettings = sections.EnvironmentsSettings()
    rollout: sections.RolloutSettings = sections.RolloutSettings()
    context: sections.ContextSettings = sections.ContextSettings()
    curation: sections.CurationSettings = sections.CurationSettings()
    training: sections.TrainingSettings = sections.TrainingSettings()
    evaluation: sections.EvaluationSettings = sections.EvaluationSettings()
    grounding: sections.GroundingSettings = sections.GroundingSettings()
    alarms: sections.AlarmsSettings = sections.AlarmsSettings()
    telemetry: sections.TelemetrySettings = sections.TelemetrySettings()
    web: sections.WebSettings = sections.WebSettings()
    inspection: sections.InspectionSettings = sections.InspectionSettings()
    tracking: sections.TrackingSettings = sections.TrackingSettings()
    exploration: sections.ExplorationSettings = sections.ExplorationSettings()
    simulation: sections.SimulationSettings = sections.SimulationSettings()
    supervision: sections.SupervisionSettings = sections.SupervisionSettings()

    def to_toml(self, origins: Mapping[str, str] | None = None) -> str:
        """Return this configuration as TOML text.

        origins   where values come from, by dotted key; each becomes a comment beside its value
        """
        return to_toml(self.model_dump(mode="json"), origins or {})


CLUSTER_KEYS = frozenset({"record", "blobs", "trusted_network", "engine", "place", "set"})
"""Top-level keys that only a cluster file has (`dart.config.cluster`)."""


def is_cluster_table(data: Mapping[str, Any]) -> bool:
    """Whether these top-level tables are those of a cluster file: `run` is a string, or a key of
    `CLUSTER_KEYS` is present. In a run file `run` is a section."""
    return isinstance(data.get("run"), str) or not CLUSTER_KEYS.isdisjoint(data)


def resolve(
    path: Path | None,
    overrides: Sequence[str] = (),
    *,
    above_file: Sequence[Layer] = (),
    is_kept: bool = False,
) -> tuple[Config, Mapping[str, str]]:
    """Merge the defaults, the file, the layers `above_file` and the overrides, and check the result.

    path      a run file or the name of a bundled configuration; None: no file
    is_kept   whether the configuration is only read, as that of a run; see `kept_config`
    returns   the configuration, and the origin of each dotted key: `default`, `default for` a kind of
              environment, the file as it was named, or `--set`
    raises    ConfigError with every problem found, also if the file is a cluster file
    """
    in_file, problems = file_layer(path) if path else (Layer("default", {}), [])
    if is_cluster_table(in_file.data):
        what = (
            "is a cluster file, and a run file is needed here; `dartrl up` and `dartrl config check` take "
            "cluster files"
        )
        raise ConfigError([Problem(in_file.origin, "", what)])
    in_overrides, wrong = overrides_layer(overrides)
    problems += wrong
    layers = [in_file, *above_file, in_overrides]
    defaults = Config().model_dump(mode="json")
    data, origins = merge([Layer("default", defaults), *_for_machines(layers), *layers])
    refused: frozenset[str] = frozenset()
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        if path and is_kept_by_run(path) and has_unknown_key(error):
            problems.append(Problem(in_file.origin, "", WRITTEN_LATER))
        problems += explain(error, Config, origins, defaults)
        refused = refused_keys(error)
        # Check the rest of the file too: a refused value counts as not given.
        config = Config.model_validate(without_refused(data, error, defaults))
    config = _with_own_files_found(config, path)  # pages are tasks, which the check below needs
    problems += [
        Problem(given_by(keys, origins), keys[0], text)
        for keys, text in (() if is_kept else contradictions(config))
        if not any(is_about(key, refused) for key in keys)
    ]
    if problems:
        raise ConfigError(problems)
    found = _with_files_found(config, path)
    if unfit := [
        Problem(given_by([key], origins), key, f"is wrong: {why}, got {str(place)!r}")
        for key, place in _places_of(found)
        if (why := why_unfit(place))
    ]:
        raise ConfigError(unfit)
    return found, origins


def _for_machines(layers: Sequence[Layer]) -> list[Layer]:
    """Return one layer with the defaults that differ for the configured kind of environment; an empty list
    for a kind that has none (only desktops and virtual machines have them).
    """
    given, _ = merge(layers)
    environments = given.get("environments")
    kind = environments.get("kind") if isinstance(environments, dict) else None
    if not isinstance(kind, str) or kind not in MACHINE_DEFAULTS:
        return []
    return [Layer(f"default for {kind}", MACHINE_DEFAULTS[kind])]


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Return the configuration of a file and `--set` overrides; the defaults without either.

    raises    ConfigError with every problem found
    """
    config, _ = resolve(path, overrides)
    return config


def kept_config(path: Path) -> Config:
    """Return the configuration that a run keeps in its directory, for what only reads the run.

    Its values may contradict each other: the version of this package with which the run began may have
    accepted what a start or a resume refuses now.

    raises    ConfigError for a key or a value that is refused by itself
    """
    config, _ = resolve(path, is_kept=True)
    return config


def is_kept_by_run(path: Path) -> bool:
    """Whether a configuration file is the one that a run keeps in its directory."""
    paths = RunPaths(path.parent)
    return path.name == paths.config.name and paths.lock.exists()


def _places_of(config: Config) -> tuple[tuple[str, Path | str], ...]:
    """Return the files and folders that `_with_files_found` and `_with_own_files_found` replace, by key."""
    return (
        ("training.policy", config.training.policy),
        ("grounding.base", config.grounding.base),
        ("context.prompt", config.context.prompt),
        ("environments.miniwob.pages", config.environments.miniwob.pages),
        ("environments.make", config.environments.make),
    )


def _with_files_found(config: Config, path: Path | None) -> Config:
    """Replace the paths of checkpoints, demonstrations and the prompt by the places where these exist.

    A relative path is looked up in the folder of the configuration file, then in the folder that contains the
    bundled configurations' folder. If it exists in neither, it is relative to the working directory. The
    address of a policy on the Hugging Face hub becomes the folder into which it is fetched.
    """
    places = _places_of_files(path)
    given_policy = config.training.policy
    on_hub = hub_policy(given_policy)
    policy = on_hub.folder if on_hub else _found(given_policy, places) or given_policy.absolute()
    base, prompt = (_text_found(given, places) for given in (config.grounding.base, config.context.prompt))
    training = config.training.model_copy(update={"policy": policy})
    context = config.context.model_copy(update={"prompt": prompt})
    grounding = config.grounding.model_copy(update={"base": base})
    pool = config.curation.experience_pool
    folders = tuple(_found(folder, places) or folder for folder in pool.folders)
    curation = config.curation.model_copy(
        update={"experience_pool": pool.model_copy(update={"folders": folders})}
    )
    return config.model_copy(
        update={"training": training, "context": context, "grounding": grounding, "curation": curation}
    )


def _with_own_files_found(config: Config, path: Path | None) -> Config:
    """Replace the folder of own pages and the file of own environments by their whole paths, if they exist in
    one of the places where `_with_files_found` looks. A run keeps them, and may be continued from another
    folder."""
    environments = config.environments
    if not environments.miniwob.pages and not environments.make:
        return config  # also in a working directory that was deleted
    places = [*_places_of_files(path), Path.cwd()]
    pages = _text_found(environments.miniwob.pages, places)
    file, colon, function = environments.make.rpartition(":")
    make = _text_found(file, places) + colon + function if file.endswith(".py") else environments.make
    miniwob = environments.miniwob.model_copy(update={"pages": pages})
    return config.model_copy(
        update={"environments": environments.model_copy(update={"miniwob": miniwob, "make": make})}
    )


def _places_of_files(path: Path | None) -> list[Path]:
    """Return the folders in which a relative path is looked up: that of the configuration file, then the one
    that contains the bundled configurations' folder."""
    beside = [configuration_file(path).resolve().parent] if path else []
    return [*beside, bundled_folder().parent]


def for_another_machine(config: Config) -> dict[str, Any]:
    """Return a configuration as plain data in which `resolve` finds the files of dartrl on another machine.

    Paths in the bundled configurations' folder become relative, and the folder of a policy from the hub
    becomes its address. Other absolute paths stay.
    """
    plain, bundled = config.model_dump(mode="json"), bundled_folder()
    for key, place in _places_of(config):
        if Path(place).is_relative_to(bundled):
            *sections, name = key.split(".")
            reduce(getitem, sections, plain)[name] = str(Path(place).relative_to(bundled.parent))
    if (on_hub := fetched_from(config.training.policy)) is not None:
        plain["training"]["policy"] = str(on_hub)
    return plain


def _text_found(given: str, places: Sequence[Path]) -> str:
    """Return the path that `_found` finds; the given text if it finds none, or if the text is empty."""
    return str(_found(Path(given), places) or given) if given else ""


def _found(path: Path, places: Sequence[Path]) -> Path | None:
    """Return the path within the first of the folders `places` that contains it; None if none does.

    An absolute path is returned unchanged if it exists. A path that the operating system refuses counts as
    one that does not exist.
    """
    return next((place / path for place in places if os.path.exists(place / path)), None)  # noqa: PTH110


Contradiction = tuple[tuple[str, ...], str]
"""The keys that contradict each other, the key to change first, and what is wrong with this key."""


def contradictions(config: Config) -> Iterator[Contradiction]:
    """Yield a problem for each combination of values that are valid alone but not together."""
    yield from home_problems(config)
    yield from _record_problems(config.run)
    yield from _blobs_problems(config.run)
    yield from _policy_problems(config)
    yield from _task_problems(config)
    yield from _fault_problems(config.environments)
    yield from _replay_problems(config.environments)
    yield from _make_problems(config.environments)
    yield from _provider_problems(config.environments)
    yield from _evaluation_problems(config.environments)
    yield from _size_problems(config)
    yield from _learner_problems(config)
    yield from shared_gpu_problems(config)
    yield from supervision_problems(config)
    yield from _curation_problems(config.curation)
    yield from _precision_problems(config.training)
    yield from _kind_problems(config)
    yield from _latency_problems(config)
    yield from _time_problems(config)
    yield from _answer_problems(config)
    yield from _exploration_problems(config)
    yield from _data_set_problems(config)
    yield from _alarm_problems(config.alarms)


def home_problems(table: Section) -> Iterator[Contradiction]:
    """Yield a problem for each path of a run file or a cluster file that begins with `~`.

    Only a shell replaces this by a home folder. A run directory of this name would be made in the working
    directory.
    """
    for key, value in dotted(table.model_dump()):
        for place in value if isinstance(value, tuple) else (value,):
            if (isinstance(place, Path) or key in PATHS_AS_TEXT) and str(place).startswith("~"):
                got = shortened(repr(str(place)))
                yield (
                    (key,),
                    f"is wrong: ~ is not replaced by a home folder here; write the whole path, got {got}",
                )


def _alarm_problems(alarms: sections.AlarmsSettings) -> Iterator[Contradiction]:
    """Yield a problem for each name in `alarms.off` and `alarms.pause` that is not the name of an alarm."""
    known = [alarm.value for alarm in LearningAlarm]
    for key, names in (("alarms.off", alarms.off), ("alarms.pause", alarms.pause)):
        for name in set(names).difference(known):
            hint = did_you_mean(near(name, known)) or f"; there are {', '.join(known)}"
            yield (key,), f"names {shortened(repr(name))}, which is no alarm{hint}"


def _data_set_problems(config: Config) -> Iterator[Contradiction]:
    """Yield a problem if the kind `grounding` has no data set, and for each name that two data sets share."""
    if config.environments.kind != "grounding":
        return
    tasks = Counter(known_tasks(config))
    if not tasks:
        yield (
            ("environments.grounding.data", "environments.kind"),
            "is empty: name folders in ScreenSpot's format; `python -m dart.grounding.pages OUT` makes one",
        )
    for task, times in tasks.items():
        if times > 1:
            yield (
                ("environments.grounding.data",),
                f"has {times} data sets for the task {shortened(repr(task))}: rename a folder",
            )


def _exploration_problems(config: Config) -> Iterator[Contradiction]:
    """Yield a problem if the environments show no pages to explore, and for each task to explore that does
    not exist."""
    if config.exploration.enabled and not KINDS[config.environments.kind].is_page:
        yield (
            ("exploration.enabled", "environments.kind"),
            f"must be false: the screens of environments of kind {config.environments.kind!r} are not pages "
            "in a browser",
        )
    known = known_tasks(config) if config.exploration.tasks and config.environments.kind != "osworld" else ()
    for task in config.exploration.tasks:
        if known and task not in known:
            hint = did_you_mean(near(task, known))
            yield ("exploration.tasks",), f"names {shortened(repr(task))}, which is not a task{hint}"


def _policy_problems(config: Config) -> Iterator[Contradiction]:
    policy = str(config.training.policy)
    if is_address(policy) and hub_policy(policy) is None:
        yield (
            ("training.policy",),
            "must be a folder or hf://OWNER/NAME@REVISION, where the revision is a commit, a tag or a "
            f"branch, got {policy!r}",
        )


def _size_problems(config: Config) -> Iterator[Contradiction]:
    actors = config.environments.count + config.rollout.count
    if actors > ACTORS_MOST:
        yield (
            ("environments.count", "rollout.count"),
            f"and rollout.count must be at most {ACTORS_MOST} together, got {actors}",
        )
    training = config.training
    if training.ranks > 1 and training.learner != "grpo":
        problem = f"must be 1 with training.learner = {training.learner!r}, got {training.ranks}"
        yield ("training.ranks",), problem


def _learner_problems(config: Config) -> Iterator[Contradiction]:
    """Yield a problem if the learner cannot use what the engines play, or the engines not what it writes."""
    engine, learner = config.rollout.engine, config.training.learner
    keys = ("rollout.engine", "training.learner")
    if learner == "grpo" and engine not in RUN_ON_GPUS:
        yield (
            keys,
            "must be 'transformers' or 'vllm' with training.learner = 'grpo', which trains a policy with its "
            f"own answers, got {engine!r}; or set training.learner = 'simulated'",
        )
    if learner == "simulated" and engine in RUN_ON_GPUS:
        yield (
            keys,
            "must be 'simulated' or 'oracle' with training.learner = 'simulated', which writes no weights "
            f"that another engine could load, got {engine!r}; or set training.learner = 'grpo'",
        )


def _latency_problems(config: Config) -> Iterator[Contradiction]:
    """Yield a problem if the added waits exceed a deadline, or those of an episode exceed its lease."""
    waits, environments = config.environments.latency, config.environments
    if not waits.enabled:
        return
    reset_s, step_s = waits.reset_max_s * waits.scale, waits.step_max_s * waits.scale
    for longest_s, key, deadline_s in (
        (reset_s, "reset_deadline_s", environments.reset_deadline_s),
        (step_s, "step_deadline_s", environments.step_deadline_s),
    ):
        if longest_s >= deadline_s:
            yield (
                (f"environments.{key}", "environments.latency.enabled"),
                f"must be longer than the longest wait that environments.latency adds ({longest_s:g} s), "
                f"got {deadline_s:g}",
            )
    episode_s = reset_s + config.curation.step_cap * step_s
    if episode_s >= config.curation.lease_s:
        yield (
            ("curation.lease_s", "environments.latency.enabled"),
            f"must be longer than the {episode_s:g} s that environments.latency may add to an episode of "
            f"{config.curation.step_cap} steps (curation.step_cap), got {config.curation.lease_s:g}",
        )


def _time_problems(config: Config) -> Iterator[Contradiction]:
    """Yield a problem for each lease that is shorter than what its holder may take while it is healthy."""
    curation, training, reset_s = config.curation, config.training, config.environments.reset_deadline_s
    if curation.lease_s <= reset_s:
        yield (
            ("curation.lease_s", "environments.reset_deadline_s"),
            f"must be longer than environments.reset_deadline_s ({reset_s:g} s), which an episode may "
            f"take to begin, got {curation.lease_s:g}",
        )
    longest_s = training.update_deadline_s + training.checkpoint_deadline_s
    if training.learner != "none" and curation.batch_lease_s <= longest_s:
        yield (
            ("curation.batch_lease_s", "training.update_deadline_s", "training.checkpoint_deadline_s"),
            f"must be longer than training.update_deadline_s and training.checkpoint_deadline_s together "
            f"({longest_s:g} s), because the trainer holds a batch until its checkpoint is written, got "
            f"{curation.batch_lease_s:g}",
        )
    explores = config.exploration.enabled or config.exploration.tasks
    if explores and KINDS[config.environments.kind].is_page:
        yield from _exploration_time_problems(config)


def _exploration_time_problems(config: Config) -> Iterator[Contradiction]:
    """Yield a problem if the lease of a screen may end before its explorer can report a reset or an action.

    After each of them the explorer takes two screenshots.
    """
    environments, exploration = config.environments, config.exploration
    act_s = max(environments.reset_deadline_s, environments.step_deadline_s)
    report_s = act_s + 2 * environments.observe_deadline_s + exploration.settle_s
    if exploration.lease_s <= report_s:
        yield (
            (
                *("exploration.lease_s", "exploration.settle_s", "environments.reset_deadline_s"),
                *("environments.step_deadline_s", "environments.observe_deadline_s"),
            ),
            f"must be longer than the {report_s:g} s that a reset or an action and two screenshots after it "
            "may take (environments.reset_deadline_s or step_deadline_s, observe_deadline_s, "
            f"exploration.settle_s), got {exploration.lease_s:g}",
        )


def _answer_problems(config: Config) -> Iterator[Contradiction]:
    """Yield a problem if vLLM has no token left for a prompt beside the longest answer."""
    most, answer = config.rollout.vllm.max_tokens, config.context.answer_tokens
    if config.rollout.engine == "vllm" and most <= answer:
        yield (
            ("rollout.vllm.max_tokens", "context.answer_tokens"),
            f"must be greater than context.answer_tokens ({answer}), because prompt and answer share these "
            f"tokens, got {most}",
        )


def _blobs_problems(run: sections.RunSettings) -> Iterator[Contradiction]:
    try:
        if run.blobs:
            check_blob_address(run.blobs)
    except ValueError as error:
        yield ("run.blobs",), f"is refused: {error}"


def _record_problems(run: sections.RunSettings) -> Iterator[Contradiction]:
    try:
        if run.record:
            ServerAddress(run.record)
    except ValueError as error:
        yield ("run.record",), f"is refused: {error}"


def _curation_problems(curation: sections.CurationSettings) -> Iterator[Contradiction]:
    fewest, most = curation.rollout_number.minimum, curation.rollouts_per_group
    if curation.rollout_number.enabled and fewest > most:
        yield (
            ("curation.rollout_number.minimum", "curation.rollouts_per_group"),
            f"must be at most rollouts_per_group ({most}), got {fewest}",
        )
    if 0 < curation.over_provision < 1:
        yield (
            ("curation.over_provision",),
            f"must be 0, which sets no limit, or at least 1, got {curation.over_provision:g}",
        )


def _precision_problems(training: sections.TrainingSettings) -> Iterator[Contradiction]:
    """Yield a problem if weights would be kept in bfloat16 and computed in float32."""
    if training.weight_precision == "bfloat16" and training.precision == "float32":
        yield (
            ("training.weight_precision", "training.precision"),
            'must be "float32" if training.precision is "float32", got "bfloat16"; '
            'or set training.precision = "bfloat16" as well',
        )


def _kind_problems(config: Config) -> Iterator[Contradiction]:
    """Yield a problem for each task that the configured kind of environment does not play.

    Task ids begin with the name of their kind."""
    kind = config.environments.kind
    for task in config.tasks.train:
        prefix = task.partition("/")[0]
        if prefix != kind and (prefix in KINDS or not KINDS[kind].task_ids):
            yield (
                ("tasks.train", "environments.kind"),
                f"names {shortened(repr(task))}, which environments of kind {kind!r} do not play: "
                f"their task ids begin with '{kind}/'",
            )


def _fault_problems(environments: sections.EnvironmentsSettings) -> Iterator[Contradiction]:
    """Yield a problem for each enabled fault that the configured kind of environment cannot have."""
    if not environments.faults.enabled:
        return
    made = f" that {environments.make} makes" if environments.make else ""
    for kind in set(InjectedFault) - kind_of(environments).injectable:
        if getattr(environments.faults, kind.value):
            yield (
                (f"environments.faults.{kind.value}", "environments.kind"),
                f"must be 0: environments of kind {environments.kind!r}{made} cannot have this fault",
            )


def _make_problems(environments: sections.EnvironmentsSettings) -> Iterator[Contradiction]:
    """Yield a problem if `environments.make` names no function, or is missing where it is needed."""
    if not environments.make and environments.kind == "own":
        yield (
            ("environments.make", "environments.kind"),
            "must name the function that makes environments of kind 'own', such as 'my_task.py:make', got ''",
        )
    elif environments.make and not OWN_FUNCTION.fullmatch(environments.make):
        yield (
            ("environments.make",),
            "must be FILE.py:FUNCTION or MODULE:FUNCTION, such as 'my_task.py:make', got "
            f"{shortened(repr(environments.make))}",
        )


def _replay_problems(environments: sections.EnvironmentsSettings) -> Iterator[Contradiction]:
    """Yield a problem if `environments.turn_resumes` is set for a kind whose episodes cannot be replayed."""
    if environments.turn_resumes and not kind_of(environments).can_replay:
        declare = " (if it does not, set environments.own.can_replay)" if environments.kind == "own" else ""
        yield (
            ("environments.turn_resumes", "environments.kind"),
            f"must be 0 because an environment of kind {environments.kind!r} may show other screens when its "
            f"actions are replayed{declare}, got {environments.turn_resumes}",
        )


def _provider_problems(environments: sections.EnvironmentsSettings) -> Iterator[Contradiction]:
    """Yield a problem for each setting of OSWorld's provider that is missing or that it cannot use."""
    osworld = environments.osworld
    if environments.kind != "osworld":
        return
    yield from _template_problems("revert_command", osworld.revert_command, REVERT_FIELDS)
    yield from _template_problems("local.server", osworld.local.server, SERVER_FIELDS)
    for address in osworld.addresses if osworld.provider == "addresses" else ():
        try:
            parse_address(address)
        except ValueError as error:
            yield ("environments.osworld.addresses",), f"has {shortened(repr(address))}: {error}"
    if osworld.provider == "addresses":
        yield from _shared_machines(osworld.addresses)
    if osworld.provider == "pool" and not is_server_url(server := osworld.pool.server):
        got = "one with a user or a password" if "@" in server else shortened(repr(server))
        yield (
            ("environments.osworld.pool.server",),
            f"must be the address of a server, such as 'http://127.0.0.1:50003', got {got}",
        )
    if osworld.provider == "addresses" and len(osworld.addresses) < environments.count:
        yield (
            ("environments.osworld.addresses", "environments.count"),
            f"must name a machine for each of the {environments.count} environments, "
            f"got {len(osworld.addresses)}",
        )
    if osworld.provider == "local" and not osworld.local.server:
        yield (
            ("environments.osworld.local.server", "environments.osworld.provider"),
            "must be the command of a guest server, got an empty list",
        )
    can_revert = osworld.provider == "addresses" and bool(osworld.revert_command)
    if osworld.renew == "revert" and not can_revert:
        yield (
            ("environments.osworld.renew",),
            "is 'revert', which needs provider 'addresses' and a revert_command; set both or use 'recreate'",
        )
    if osworld.renew == "recreate" and osworld.provider == "addresses":
        yield (
            ("environments.osworld.renew", "environments.osworld.provider"),
            "must be 'revert' or 'keep' with provider 'addresses', which cannot create machines, "
            "got 'recreate'",
        )


def _evaluation_problems(environments: sections.EnvironmentsSettings) -> Iterator[Contradiction]:
    """Yield a problem if an evaluation by OSWorld's evaluators ends before a getter that waits for a page."""
    least_s, got_s = least_deadline_s(), environments.evaluate_deadline_s
    if environments.kind == "osworld" and got_s < least_s:
        yield (
            ("environments.evaluate_deadline_s", "environments.kind"),
            f"must be at least {least_s} with environments.kind = 'osworld', got {got_s:g}: a getter of an "
            f"evaluation may wait {PAGE_CALL_S:g} s for a page, and the steps before and after it need a "
            "quarter of the time",
        )


def _shared_machines(addresses: Sequence[str]) -> Iterator[Contradiction]:
    """Yield a problem for each machine that the list names several times, in the same words or in others."""
    for machine, times in Counter(filter(None, map(machine_of, addresses))).items():
        if times > 1:
            yield (
                ("environments.osworld.addresses",),
                f"names the machine {machine} {times} times, and two environments cannot share one: name it "
                "once",
            )


def _template_problems(key: str, command: Sequence[str], known: Collection[str]) -> Iterator[Contradiction]:
    """Yield a problem for each part of a command that has an unknown placeholder. Without this check the
    command would fail only when a machine is reset."""
    placeholders = ", ".join(f"{{{name}}}" for name in sorted(known))
    for part in command:
        try:
            part.format(**dict.fromkeys(known, ""))
        except (ValueError, LookupError, AttributeError):
            yield (
                (f"environments.osworld.{key}",),
                f"has an unknown placeholder in {shortened(repr(part))}; known are {placeholders}; "
                "and {{ stands for a brace",
            )


def _task_problems(config: Config) -> Iterator[Contradiction]:
    tasks = config.tasks.train
    for task, times in Counter(tasks).items():
        if times > 1:
            yield ("tasks.train",), f"names {shortened(repr(task))} {times} times; name it once"
    if not trained_tasks(config):
        yield (
            ("tasks.train",),
            "names only tasks that training leaves out, because their evaluation is wrong "
            "(dart/environments/osworld/misjudged.py); name another task",
        )
    try:
        known = set(known_tasks(config))
    except ConfigurationError as error:
        yield (KINDS[config.environments.kind].tasks_key,), f"is wrong: {error}"
        return
    foreign = set(KINDS) - {config.environments.kind}
    unknown = [
        task for task in tasks if known and task not in known and task.partition("/")[0] not in foreign
    ]
    for task in unknown[:UNKNOWN_TASKS_SHOWN]:
        hint = did_you_mean(near(task, known)) or "; `dartrl tasks available` lists them"
        yield (
            ("tasks.train", "environments.kind"),
            f"names {shortened(repr(task))}, which is not a task{hint}",
        )
    if len(unknown) > UNKNOWN_TASKS_SHOWN:
        yield ("tasks.train",), f"names {len(unknown) - UNKNOWN_TASKS_SHOWN} more ids that are not tasks"


def trained_tasks(config: Config) -> tuple[str, ...]:
    """Return the tasks of `tasks.train` without those that the kind of environment leaves out of training.
    Evaluations play all tasks of `tasks.train`."""
    left_out = left_out_of_training(config)
    return tuple(task for task in config.tasks.train if task not in left_out)


def left_out_of_training(config: Config) -> dict[str, str]:
    """Return the tasks of `tasks.train` that training leaves out, with the reason of each."""
    name = KINDS[config.environments.kind].left_out
    reasons: Mapping[str, str] = resolve_name(name)(config) if name else {}
    return {task: reasons[task] for task in config.tasks.train if task in reasons}


def known_tasks(config: Config) -> Collection[str]:
    """Return all task ids of the configured kind of environment; empty if the kind cannot list them on this
    machine. Raises ConfigurationError if the configured tasks cannot be read."""
    name = KINDS[config.environments.kind].task_ids
    ids: Collection[str] = resolve_name(name)(config) if name else ()
    return ids


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file, with the meaning of every key. Editors use it."""
    schema = Config.model_json_schema()
    for table in (schema, *schema["$defs"].values()):
        meaning = field_docstrings(getattr(sections, table["title"], Config))
        for key, about in table["properties"].items():
            if key in meaning:
                about["description"] = " ".join(meaning[key].split())
    return {**schema, "title": "dartrl configuration"}


def differences(before: Config, after: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yield every dotted key whose values differ: (key, value before, value after). A value is None if that
    configuration does not have the key."""
    old, new = (dict(dotted(config.model_dump(mode="json"))) for config in (before, after))
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def field_rows() -> Iterator[tuple[str, str, Any]]:
    """Yield every key of a run file, in its order: (dotted key, description, default)."""
    for key, default in dotted(Config().model_dump(mode="json")):
        yield key, describe(Config, key), default
