"""Every kind of environment has a row in the table of kinds, and a task of another kind is refused."""

from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_type_hints

import pytest

from dart.config.config import Config, ConfigError, load_config
from dart.config.environment_kinds import KINDS, kind_of
from dart.config.sections import EnvironmentsSettings
from dart.core.actions import Action
from dart.core.errors import ConfigurationError
from dart.core.run_directory import RunPaths
from dart.environments.factory import WITHOUT_DEFAULT, make_environment
from dart.environments.protocol import Environment, Observation, StepResult, WrappedEnvironment
from dart.environments.screen_io import Breakable

BUNDLED = [kind for kind, row in KINDS.items() if row.make]
OWN = ("environments.kind=own", 'tasks.train=["own/square"]')


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_of_a_row_is_a_value_of_environments_kind(kind: str) -> None:
    assert EnvironmentsSettings(kind=kind).kind == kind


@pytest.mark.parametrize("kind", BUNDLED)
def test_the_functions_that_a_row_names_exist(kind: str) -> None:
    row = KINDS[kind]
    assert callable(resolve_name(row.make))
    assert not row.task_ids or callable(resolve_name(row.task_ids))


@pytest.mark.parametrize("kind", BUNDLED)
def test_an_environment_of_each_kind_inherits_what_the_protocol_does_by_default(kind: str) -> None:
    made = get_type_hints(resolve_name(KINDS[kind].make))["return"]
    assert (Breakable if KINDS[kind].injectable else Environment) in made.__mro__


def test_a_kind_without_a_row_is_refused_and_does_not_become_another_one() -> None:
    with pytest.raises(ConfigError, match=r"environments\.kind must be 'miniwob', .*, got 'vnc'"):
        load_config(None, ["environments.kind=vnc"])


def test_a_row_that_is_missing_is_an_error_and_not_another_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(KINDS, "simulated")
    config = load_config().model_copy(
        update={"environments": EnvironmentsSettings().model_copy(update={"kind": "simulated"})}
    )
    with pytest.raises(KeyError, match="simulated"):
        make_environment(config, "env-000", 1, None, lambda: 0.0)  # type: ignore[arg-type]


def test_a_task_that_is_near_no_other_is_refused_with_the_command_that_lists_them() -> None:
    with pytest.raises(ConfigError, match="'shop', which is not a task; `dartrl tasks available` lists"):
        load_config(None, ['tasks.train=["shop"]'])


class Lookalike:
    """Has some of the methods of an environment and inherits none."""

    async def reset(self, *_: Any, **__: Any) -> None:
        """Never called."""


class Inheriting(Environment):
    """Inherits the methods of an environment that have a default, and has the others."""

    async def reset(self, *_: Any, **__: Any) -> Observation:
        raise NotImplementedError

    async def observe(self, *, deadline_s: float) -> Observation:
        raise NotImplementedError

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        raise NotImplementedError

    async def evaluate(self, *, deadline_s: float) -> float:
        raise NotImplementedError

    async def healthy(self, *, deadline_s: float) -> bool:
        raise NotImplementedError


def with_row(monkeypatch: pytest.MonkeyPatch, made: object) -> Config:
    """Return a configuration whose kind has a row that makes this object."""
    monkeypatch.setattr(f"{__name__}.make", lambda *_: made, raising=False)
    return load_config(None, [*OWN, f"environments.make={__name__}:make"])


class Incomplete(Inheriting):
    """Lacks two of the methods that have no default."""

    observe, healthy = Environment.observe, Environment.healthy


class AsynchronousJudge(Inheriting):
    """Its answer to whether a task is infeasible would always count as yes."""

    async def is_infeasible(self, task_id: str) -> bool:  # type: ignore[override]
        return False


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            Lookalike(),
            r"test_environment_kinds:make.*'own'.*must return .*Environment, got one of .*Lookalike: make "
            "this class a subclass of Environment",
        ),
        (
            Incomplete(),
            r"^Incomplete, of which .*test_environment_kinds:make makes environments, must define observe, "
            "healthy as dart.environments.protocol.Environment describes$",
        ),
        (AsynchronousJudge(), "must define is_infeasible with `def`, got an `async def`"),
    ],
)
def test_an_object_that_does_not_keep_to_the_protocol_is_refused_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: object, says: str
) -> None:
    config = with_row(monkeypatch, made)
    with pytest.raises(ConfigurationError, match=says):
        make_environment(config, "env-000", 1, RunPaths(tmp_path), lambda: 0.0)


@pytest.mark.parametrize("made", [Inheriting(), WrappedEnvironment(Inheriting())])
def test_a_subclass_of_the_protocol_and_a_wrapper_of_one_are_environments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: Environment
) -> None:
    config = with_row(monkeypatch, made)
    assert make_environment(config, "env-000", 1, RunPaths(tmp_path), lambda: 0.0) is made


@pytest.mark.parametrize("kind", BUNDLED)
def test_an_environment_of_each_kind_defines_the_methods_that_have_no_default(kind: str) -> None:
    made = get_type_hints(resolve_name(KINDS[kind].make))["return"]
    assert not [name for name in WITHOUT_DEFAULT if getattr(made, name) is getattr(Environment, name)]


async def later(config: Config, name: str, paths: RunPaths) -> Environment:
    return Inheriting()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Inheriting(), "too many positional arguments"),
        (lambda config, name, paths, port: Inheriting(), "missing a required argument: 'port'"),
        ("a text", "is not a callable object"),
        (later, "got an `async def`: let reset await what it needs"),
    ],
)
def test_what_cannot_be_called_as_make_is_refused_with_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: object, says: str
) -> None:
    config = with_row(monkeypatch, None)
    monkeypatch.setattr(f"{__name__}.make", make)
    with pytest.raises(
        ConfigurationError, match=r"make must be a function `def make\(config, name, paths\)`"
    ) as refused:
        make_environment(config, "env-000", 1, RunPaths(tmp_path), lambda: 0.0)
    assert says in str(refused.value)


def test_a_wrapper_passes_on_every_method_of_the_protocol() -> None:
    methods = {name for name in vars(Environment) if not name.startswith("_")}
    assert methods == {name for name in vars(WrappedEnvironment) if not name.startswith("_")}


@pytest.mark.parametrize("kind", ["simulated", "miniwob"])
@pytest.mark.parametrize("task", ["desktop/editor-write", "osworld/chrome/1", "vnc/one", "click-test"])
def test_a_task_that_environments_of_the_kind_do_not_play_is_refused(kind: str, task: str) -> None:
    with pytest.raises(ConfigError, match=f"tasks.train names '{task}'") as refused:
        load_config(None, [f"environments.kind={kind}", f'tasks.train=["{task}"]'])
    assert "do not play" in str(refused.value) or "is not a task" in str(refused.value)


@pytest.mark.parametrize(
    "made_by", ["square.py", "square", ":make", "square.py:", "a b:make", "a.b:c.d", "1a:make"]
)
def test_a_text_that_names_no_function_is_refused_with_an_example(made_by: str) -> None:
    with pytest.raises(
        ConfigError, match=r"make must be FILE\.py:FUNCTION or MODULE:FUNCTION, such as 'my_task"
    ):
        load_config(None, [*OWN, f"environments.make={made_by}"])


def test_the_kind_own_without_its_function_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"environments\.make must name the function that makes .* kind 'own', .*, got ''"
    ):
        load_config(None, OWN)


@pytest.mark.parametrize("overrides", [OWN, ()])
def test_faults_cannot_be_injected_into_environments_of_a_function_of_your_own(
    overrides: tuple[str, ...],
) -> None:
    faults = ["environments.faults.enabled=true", "environments.make=task:make"]
    with pytest.raises(
        ConfigError, match=r"environments\.faults\.hang must be 0: .* that task:make makes cannot"
    ):
        load_config(None, [*overrides, *faults])


def test_a_file_is_found_beside_the_configuration_and_in_the_working_directory_and_kept_with_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (beside := tmp_path / "beside").mkdir()
    (file := beside / "run.toml").write_text(
        '[tasks]\ntrain = ["own/1"]\n[environments]\nkind = "own"\nmake = "task.py:make"\n'
    )
    (here := tmp_path / "here").mkdir()
    (here / "task.py").touch()
    monkeypatch.chdir(here)
    assert load_config(file).environments.make == f"{here}/task.py:make"
    (beside / "task.py").touch()
    assert load_config(file).environments.make == f"{beside}/task.py:make"


def test_what_the_seed_determines_is_configured_for_environments_of_your_own_only() -> None:
    configured = "environments.own.content_follows_from_seed=false"
    own = load_config(None, [*OWN, "environments.make=task:make", configured])
    assert not kind_of(own.environments).content_follows_from_seed
    assert kind_of(load_config(None, [configured]).environments).content_follows_from_seed


def test_whether_environments_of_your_own_can_replay_is_configured_and_no_other_kind_changes() -> None:
    resumes, configured = "environments.turn_resumes=1", "environments.own.can_replay=true"
    own = [*OWN, "environments.make=task:make", resumes]
    assert kind_of(load_config(None, [*own, configured]).environments).can_replay
    with pytest.raises(
        ConfigError, match=r"turn_resumes must be 0 .* 'own' .*set environments\.own\.can_replay"
    ):
        load_config(None, own)
    assert not kind_of(
        EnvironmentsSettings.model_validate({"kind": "desktop", "own": {"can_replay": True}})
    ).can_replay


def test_a_function_of_your_own_takes_the_place_of_the_kinds_own_and_changes_nothing_else_but_faults() -> (
    None
):
    wrapped = kind_of(load_config(None, ["environments.make=my_reward:make"]).environments)
    bundled = KINDS["miniwob"]
    assert wrapped.make == "my_reward:make"
    assert replace(wrapped, make=bundled.make, injectable=bundled.injectable) == bundled
