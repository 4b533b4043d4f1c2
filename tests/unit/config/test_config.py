"""Configuration: complete defaults, layers, and every problem at once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dart.config.config import (
    WRITTEN_LATER,
    Config,
    ConfigError,
    contradictions,
    field_rows,
    kept_config,
    known_tasks,
    load_config,
    resolve,
)
from dart.config.failing_time import failing_s
from dart.run.tree import limits_of
from supervision.child_spec import Budget, Failure, Retirement

OSWORLD_TASK = 'tasks.train=["osworld/os/b6781586-6346-41cd-935a-a6b1487918fc"]'

REPOSITORY = Path(__file__).resolve().parents[3]


def written(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(path: Path | None, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return [str(problem) for problem in caught.value.problems]


def test_an_empty_file_is_a_complete_configuration(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "")) == load_config(None)


def test_every_key_has_a_description() -> None:
    assert [key for key, description, _ in field_rows() if not description] == []


def test_the_file_wins_over_defaults_and_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[training]\nlr = 1e-5\nthreads = 2\n")

    config, origins = resolve(path, ["training.lr=2e-5"])

    assert (config.training.lr, config.training.threads) == (2e-5, 2)
    assert origins["training.lr"] == "--set"
    assert origins["training.threads"] == str(path)
    assert origins["training.clip_low"] == "default"


def test_an_origin_to_explore_has_no_path(tmp_path: Path) -> None:
    named = load_config(None, ['exploration.origins=["https://shop.example", "http://[::1]:8080"]'])
    assert named.exploration.origins == ("https://shop.example", "http://[::1]:8080")
    (problem,) = problems_of(None, 'exploration.origins=["https://shop.example/"]')
    assert "'https://shop.example/' is not an origin of the web: write https://host or" in problem


def test_setting_one_field_of_a_child_keeps_that_childs_other_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, "[supervision.trainer.backoff]\ninitial_s = 1.0\n")

    trainer = load_config(path).supervision.trainer

    default = Config().supervision.trainer
    assert trainer.backoff.initial_s == 1.0
    assert trainer.model_copy(update={"backoff": default.backoff}) == default


@pytest.mark.parametrize(
    ("key", "new"),
    [
        ("modelled.success", "simulation"),
        ("observe.load_every_s", "telemetry"),
        ("curation.quarantine.rest_s", "curation.task_quarantine"),
        ("curation.quarantine.fruitless_groups", "curation.task_quarantine"),
    ],
)
def test_the_hint_of_a_renamed_key_is_its_new_name(key: str, new: str) -> None:
    (problem,) = problems_of(None, f"{key}=1")
    assert f"is not a key; did you mean {new}?" in problem


@pytest.mark.parametrize("text", ["environments = 3", "[environments]\nosworld = 3"])
def test_a_value_in_the_place_of_a_section_is_refused(tmp_path: Path, text: str) -> None:
    assert problems_of(written(tmp_path, text))


def test_an_unknown_key_names_the_nearest_one(tmp_path: Path) -> None:
    path = written(tmp_path, "[curation]\nstalenes = 3\n")

    assert problems_of(path) == [f"{path}: curation.stalenes is not a key; did you mean curation.staleness?"]


@pytest.mark.parametrize("read", [load_config, kept_config])
def test_a_key_in_the_configuration_of_a_run_that_is_not_known_may_be_that_of_a_later_version(
    tmp_path: Path, read: Callable[[Path], Config]
) -> None:
    (tmp_path / "lock").touch()
    path = written(tmp_path, "[curation]\nlater = 3\n").rename(tmp_path / "config.toml")

    with pytest.raises(ConfigError) as caught:
        read(path)

    first, second = map(str, caught.value.problems)
    assert first == f"{path}: {WRITTEN_LATER}"
    assert second.startswith(f"{path}: curation.later is not a key")


def test_a_key_in_the_wrong_section_names_the_right_one(tmp_path: Path) -> None:
    path = written(tmp_path, "[run]\nlr = 1e-5\n")

    assert problems_of(path) == [f"{path}: run.lr is not a key; did you mean training.lr or grounding.lr?"]


def test_an_unknown_alarm_names_the_nearest_one() -> None:
    assert problems_of(None, 'alarms.pause=["evaluator_stuk"]') == [
        "--set: alarms.pause names 'evaluator_stuk', which is no alarm; did you mean evaluator_stuck?"
    ]
    (problem,) = problems_of(None, 'alarms.off=["xyz"]')
    assert "'xyz', which is no alarm; there are entropy_collapse, kl_runaway" in problem


def test_a_section_like_no_other_lists_what_there_is() -> None:
    assert problems_of(None, "supervision.xyz.max_seconds=3") == [
        "--set: supervision.xyz is not a key; there are root, store, curator, rollout_pool, weight_sync, "
        "environment_pool, exploration, explorer_pool, trainer, children"
    ]


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path, "[training]\nlr = -1.0\nclip_hihg = 0.3\n[tasks]\ntrain = ['miniwob/clik-test']\n"
    )

    found = problems_of(path, "environments.count=none", "nonsense")

    assert found == [
        "--set: expected section.key=value, got 'nonsense'",
        "--set: environments.count must be a whole number, got 'none' "
        "(default 8; Number of environment actors, each with a browser or desktop of its own)",
        f"{path}: training.lr must be greater than 0, got -1.0 (default 1e-06; Learning rate of AdamW)",
        f"{path}: training.clip_hihg is not a key; did you mean training.clip_high or training.clip_low?",
        f"{path}: tasks.train names 'miniwob/clik-test', which is not a task; "
        "did you mean miniwob/click-test or miniwob/click-test-2?",
    ]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("miniwob/click-test", '["miniwob/click-test"]'),
        ("[miniwob/click-test, miniwob/click-test-2]", '["miniwob/click-test", "miniwob/click-test-2"]'),
        ("3", "[3]"),
    ],
)
def test_a_list_that_lost_its_quotes_in_the_shell_is_shown_as_it_is_to_be_written(
    given: str, meant: str
) -> None:
    (problem,) = problems_of(None, f"tasks.train={given}")

    assert f"; write it as --set 'tasks.train={meant}', with the outer quotes (" in problem


def test_a_file_with_a_value_in_place_of_a_list_is_not_shown_an_option(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, "[tasks]\ntrain = 'miniwob/click-test'\n"))

    assert "must be a list, got 'miniwob/click-test' (" in problem


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("evaluation.before=1", "must be true or false"),
        ("training.threads=1.5", "must be a whole number"),
        ("training.lr='fast'", "must be a number"),
        ("run.minutes=nan", "must be a finite number"),
        ("rollout.engine=tgi", "must be 'transformers', 'vllm', 'simulated' or 'oracle'"),
        ("tasks.train=[]", "must have at least 1 entries"),
        ("tasks.train=[3]", "must be a string"),
        ("training=3", "must be a section (a TOML table)"),
        ("curation.rollouts_per_group=1", "must be at least 2"),
        ("training.clip_low=1.0", "must be less than 1"),
    ],
)
def test_a_wrong_value_says_what_would_be_right(override: str, rule: str) -> None:
    (problem,) = problems_of(None, override)

    assert f" {rule}, got " in problem


@pytest.mark.parametrize("device", ["gpu", "GPU", "cuda:", "cuda:x", "cpu ", "cpu:0", "", "auto\\n"])
def test_a_device_that_torch_cannot_train_on_is_refused_with_its_key(device: str) -> None:
    (problem,) = problems_of(None, f'training.device="{device}"')

    assert problem.startswith("--set: training.device must match ^(auto|cpu|cuda(:[0-9]+)?)$, got '")


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1"])
def test_a_device_is_chosen_by_torchs_name_or_automatically(device: str) -> None:
    assert load_config(None, [f"training.device='{device}'"]).training.device == device


@pytest.mark.parametrize("override", ["", "=3", "training.=3", "training.lr"])
def test_an_override_without_key_or_value_is_refused(override: str) -> None:
    assert problems_of(None, override) == [f"--set: expected section.key=value, got {override!r}"]


def test_overrides_that_make_one_key_a_value_and_a_section_are_refused() -> None:
    found = problems_of(None, "training.lr=1e-5", "training.lr.x=1")

    assert found == ["--set: training.lr.x is given both as a value and as a section; give it once"]


def test_broken_toml_says_where(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, "[training\nlr = 1"))

    assert "not valid TOML" in problem
    assert "line 1" in problem


def test_a_missing_file_says_what_to_name_instead(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path / "no.toml")

    assert problem.startswith(f"{tmp_path / 'no.toml'}: there is no such file; ")
    assert (
        "the bundled configurations are align, chaos, cluster, decoupling, demo, desktop, explore, "
        "grounding, grounding-rl, hard" in problem
    )


def test_a_folder_or_binary_file_is_refused_in_words(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")

    assert "cannot be read" in problems_of(tmp_path)[0]
    assert "not UTF-8 text" in problems_of(binary)[0]


def test_the_longest_backoff_is_not_below_the_first() -> None:
    (problem,) = problems_of(None, "supervision.store.backoff.max_s=0.1")

    assert problem == "--set: supervision.store.backoff.max_s must be at least initial_s (0.2), got 0.1"


@pytest.mark.parametrize("child", ["store", "curator", "weight_sync", "rollout_pool", "children.env-000"])
def test_an_actor_that_would_be_missing_after_its_end_is_refused(child: str) -> None:
    (problem,) = problems_of(None, f"supervision.{child}.restart=transient")

    assert problem == (
        f"--set: supervision.{child}.restart must be 'permanent', got 'transient': without a restart, the "
        "actor is missing until the run ends; leave the key out"
    )


@pytest.mark.parametrize("child", ["trainer", "exploration"])
def test_an_actor_that_ends_the_run_is_never_permanent(child: str) -> None:
    (problem,) = problems_of(None, f"supervision.{child}.restart=permanent")

    assert problem.startswith(f"--set: supervision.{child}.restart must be 'transient', got 'permanent'")
    assert problem.endswith("; leave the key out")


@pytest.mark.parametrize(
    ("child", "default"),
    [("store", "permanent"), ("trainer", "transient"), ("children.env-000", "permanent")],
)
def test_no_actor_is_temporary_and_its_default_is_accepted(child: str, default: str) -> None:
    (problem,) = problems_of(None, f"supervision.{child}.restart=temporary")

    assert f"supervision.{child}.restart must be 'permanent' or 'transient', got 'temporary'" in problem
    assert f"default '{default}'" in problem
    assert load_config(None, [f"supervision.{child}.restart={default}"])


def test_a_task_named_twice_is_refused() -> None:
    (problem,) = problems_of(None, "tasks.train=['miniwob/click-tab', 'miniwob/click-tab']")

    assert problem == "--set: tasks.train names 'miniwob/click-tab' 2 times; name it once"


def test_the_defaults_do_not_contradict_each_other() -> None:
    assert list(contradictions(Config())) == []


def test_the_pages_of_the_package_are_the_known_tasks() -> None:
    assert len(known_tasks(Config())) > 100
    assert "miniwob/click-test" in known_tasks(Config())


def test_the_shown_configuration_resolves_to_itself(tmp_path: Path) -> None:
    odd = 'run.dir="a \\"b\\" \\u007f ü"'
    config, origins = resolve(None, [odd, "training.lr=1e-9", "evaluation.after=false"])

    path = written(tmp_path, config.to_toml(origins))

    assert load_config(path) == config


def test_shown_values_carry_their_origin() -> None:
    config, origins = resolve(None, ["training.lr=1e-9"])
    text = config.to_toml(origins)

    assert "lr = 1e-09  # --set\n" in text
    assert "clip_low = 0.2  # default\n" in text


@pytest.mark.parametrize("name", ["laptop", "smoke", "demo"])
def test_the_shipped_files_are_valid_and_find_the_base_policy(name: str) -> None:
    config = load_config(REPOSITORY / "configs" / f"{name}.toml")

    assert config.training.policy == REPOSITORY / "configs" / "base-policy"


@pytest.mark.parametrize("name", ["laptop-pointer", "grounding-rl"])
def test_the_shipped_files_for_the_pointer_head_are_valid_and_find_its_base_policy(name: str) -> None:
    config = load_config(REPOSITORY / "configs" / f"{name}.toml")

    assert config.training.policy == REPOSITORY / "configs" / "base-policy-pointer"


def test_folders_of_demonstrations_are_paths_wherever_they_are_given(tmp_path: Path) -> None:
    given, origins = resolve(None, ["curation.experience_pool.folders=['a', '/b']"])

    assert given.curation.experience_pool.folders == (Path("a"), Path("/b"))
    assert load_config(written(tmp_path, given.to_toml(origins))) == given
    assert Config.model_validate(given.model_dump(mode="json")) == given


def test_a_folder_of_demonstrations_beside_the_file_is_found_first(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    path = written(tmp_path, "[curation.experience_pool]\nfolders = ['mine', 'not-there']\n")

    assert load_config(path).curation.experience_pool.folders == (tmp_path / "mine", Path("not-there"))


def test_a_policy_beside_the_file_is_found_first(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    path = written(tmp_path, "[training]\npolicy = 'mine'\n")

    assert load_config(path).training.policy == tmp_path / "mine"


@pytest.mark.parametrize(
    ("child_id", "section"),
    [("env-003", "environment_pool"), ("rollout-0", "rollout_pool"), ("trainer", "trainer")],
)
def test_limits_are_found_by_child_id(child_id: str, section: str) -> None:
    supervision = Config().supervision

    assert supervision.child(child_id) is getattr(supervision, section)


@pytest.mark.parametrize("child_id", ["root", "trainr", "rollout", "child"])
def test_limits_of_an_unknown_child_are_a_defect(child_id: str) -> None:
    with pytest.raises(KeyError, match="expected a child id"):
        Config().supervision.child(child_id)


def test_one_child_of_a_pool_can_differ_from_the_others() -> None:
    supervision = load_config(
        None,
        [
            "supervision.environment_pool.hang_deadline_s=4.0",
            "supervision.children.env-003.hang_deadline_s=9.0",
            "supervision.children.env-003.breaker.max_failures=1",
        ],
    ).supervision

    assert supervision.child("env-002").hang_deadline_s == 4.0
    assert supervision.child("env-003").hang_deadline_s == 9.0
    assert supervision.child("env-003").breaker.max_failures == 1
    assert supervision.child("env-003").breaker.enabled, "what is not named is as in its pool"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        (
            "supervision.children.env-03.shutdown_s=1.0",
            "supervision.children.env-03 is not a child of a pool; did you mean env-003 or env-007?",
        ),
        (
            "supervision.children.env-003.shutdwn_s=1.0",
            "supervision.children.env-003.shutdwn_s is not a key; did you mean shutdown_s?",
        ),
        (
            "supervision.children.env-003.breaker.open_s=0.0",
            "supervision.children.env-003.breaker.open_s must be greater than 0, got 0.0",
        ),
        (
            "supervision.store.breaker.enabled=true",
            "supervision.store.breaker.enabled must be false: only children of a pool can be quarantined",
        ),
        (
            "supervision.children.env-003.max_restarts=3",
            "supervision.children.env-003.max_restarts has no effect: it limits all children of a pool "
            "together; set supervision.environment_pool.max_restarts, or limits for kinds of failure of this "
            "child in supervision.children.env-003.budgets",
        ),
        (
            "supervision.children.rollout-0.max_failing=0.3",
            "supervision.children.rollout-0.max_failing has no effect: it limits all children of a pool "
            "together; set supervision.rollout_pool.max_failing",
        ),
        (
            "supervision.children.env-003.budgets.hang.max_restarts=3",
            "supervision.children.env-003.budgets.hang.max_seconds must be greater than 0: without a window, "
            "max_restarts = 3 has no effect",
        ),
        (
            "supervision.trainer.budgets.hang.max_restarts=3",
            "supervision.trainer.budgets.hang.max_seconds must be greater than 0: without a window, "
            "max_restarts = 3 has no effect",
        ),
        (
            "supervision.trainer.max_restarts=3",
            "supervision.trainer.max_restarts has no effect: trainer is a child of the root, whose limit is "
            "supervision.root.max_restarts; set that, or a limit for one kind of failure in "
            "supervision.trainer.budgets",
        ),
        (
            "supervision.store.max_failing=0.5",
            "supervision.store.max_failing has no effect: store is not a pool; remove it",
        ),
        *(
            (
                f"supervision.{child}.retirement.max_uses=100",
                f"supervision.{child}.retirement.max_uses has no effect: only environments and explorers "
                "count their uses; set retirement.max_age_s",
            )
            for child in (
                *("store", "curator", "rollout_pool", "weight_sync", "exploration", "trainer"),
                "children.rollout-0",
            )
        ),
    ],
)
def test_what_is_said_of_one_child_is_checked_like_the_rest(override: str, problem: str) -> None:
    (found,) = problems_of(None, override)

    assert found.startswith(f"--set: {problem}")


def test_policies_for_flaky_children_reach_their_specs() -> None:
    overrides = [
        "supervision.environment_pool.budgets.hang.max_restarts=2",
        "supervision.environment_pool.budgets.hang.max_seconds=60.0",
        "supervision.children.env-001.retirement.max_uses=50",
        "supervision.explorer_pool.retirement.max_uses=50",
        "supervision.children.rollout-0.retirement.max_age_s=3600",
    ]
    supervision = load_config(None, overrides).supervision

    plain, special, engine = (
        limits_of(supervision.child(name)) for name in ("env-000", "env-001", "rollout-0")
    )

    assert plain["budgets"] == {Failure.HANG: Budget(max_restarts=2, max_seconds=60.0)}
    assert plain["breaker"] is not None
    assert plain["retirement"] == Retirement()
    assert special["retirement"] == Retirement(max_uses=50)
    assert engine["retirement"] == Retirement(max_age_s=3600.0)


@pytest.mark.parametrize(
    ("overrides", "key", "text"),
    [
        (
            ["curation.rollout_number.enabled=true", "curation.rollout_number.minimum=9"],
            "curation.rollout_number.minimum",
            "must be at most rollouts_per_group (8), got 9",
        ),
        (["curation.over_provision=0.5"], "curation.over_provision", "or at least 1, got 0.5"),
        (["tasks.train=['simulated/0']"], "tasks.train", "kind 'miniwob' do not play"),
        (["environments.kind=simulated"], "tasks.train", "kind 'simulated' do not play"),
        (
            ["environments.latency.enabled=true"],
            "environments.reset_deadline_s",
            "longest wait that environments.latency adds (30 s), got 20",
        ),
        (
            ["environments.latency.enabled=true", "curation.step_cap=30"],
            "curation.lease_s",
            "longer than the 150 s that environments.latency may add to an episode of 30 steps",
        ),
        (
            ["curation.lease_s=20.0"],
            "curation.lease_s",
            "must be longer than environments.reset_deadline_s (20 s), which an episode may take to begin",
        ),
        (
            ["training.update_deadline_s=480.0"],
            "curation.batch_lease_s",
            "longer than training.update_deadline_s and training.checkpoint_deadline_s together (600 s)",
        ),
        (
            ["training.update_deadline_s=43000.0", "curation.batch_lease_s=44000.0"],
            "supervision.trainer.budgets.overdue.max_seconds",
            "must be at least 86480: a try of an update that overruns its deadline may take 43240 s "
            "(training.update_deadline_s, training.checkpoint_deadline_s, "
            "supervision.trainer.start_deadline_s), so no 86400 s hold 3 tries, and the run would repeat it "
            "for ever; got 86400",
        ),
        (
            [f"supervision.trainer.budgets.overdue.{key}=0" for key in ("max_restarts", "max_seconds")],
            "supervision.trainer.budgets.overdue.max_seconds",
            "must be greater than 0: a try of an update that overruns its deadline may take 540 s",
        ),
        (
            ["exploration.enabled=true", "exploration.lease_s=10", "exploration.settle_s=60"],
            "exploration.lease_s",
            "must be longer than the 100 s that a reset or an action and two screenshots after it may take",
        ),
        (
            ["exploration.tasks=['miniwob/click-tab']", "environments.step_deadline_s=100"],
            "exploration.lease_s",
            "longer than the 120.1 s",
        ),
        (
            ["rollout.engine=vllm", "rollout.vllm.max_tokens=500"],
            "rollout.vllm.max_tokens",
            "must be greater than context.answer_tokens (500)",
        ),
    ],
)
def test_settings_of_curation_that_do_not_go_together_are_refused(
    overrides: list[str], key: str, text: str
) -> None:
    problems = problems_of(None, *overrides)

    assert any(key in problem and text in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("learner", "engine", "fitting"),
    [
        ("simulated", "transformers", "'simulated' or 'oracle'"),
        ("simulated", "vllm", "'simulated' or 'oracle'"),
        ("grpo", "simulated", "'transformers' or 'vllm'"),
        ("grpo", "oracle", "'transformers' or 'vllm'"),
    ],
)
def test_a_learner_that_cannot_train_with_its_engines_is_refused(
    learner: str, engine: str, fitting: str
) -> None:
    (problem,) = problems_of(None, f"rollout.engine={engine}", f"training.learner={learner}")

    assert problem.startswith(f"--set: rollout.engine must be {fitting} with training.learner = {learner!r}")
    assert f"got {engine!r}" in problem


@pytest.mark.parametrize("engine", ["transformers", "vllm", "simulated", "oracle"])
def test_a_run_that_trains_nothing_can_have_any_engine(engine: str) -> None:
    load_config(None, [f"rollout.engine={engine}", "training.learner=none"])


def test_lengths_and_leases_that_are_just_enough_are_accepted() -> None:
    load_config(None, ["rollout.engine=vllm", "rollout.vllm.max_tokens=501", "curation.lease_s=20.1"])
    load_config(None, ["training.update_deadline_s=479.0"])
    load_config(None, ["exploration.enabled=true", "exploration.lease_s=40.2"])
    load_config(None, ["environments.step_deadline_s=100"])
    load_config(None, ["rollout.vllm.max_tokens=500"])
    load_config(None, ["training.update_deadline_s=480.0", "training.learner=none"])
    load_config(None, ["training.update_deadline_s=42960.0", "curation.batch_lease_s=44000.0"])


def test_a_refused_value_is_not_checked_against_the_others_as_if_it_were_the_default() -> None:
    osworld = ("environments.kind=osworld", "environments.osworld.renew=keep")
    addresses = f"environments.osworld.addresses={[f'a{index}' for index in range(8)]}"
    (problem,) = problems_of(None, *osworld, addresses, "tasks.train=[]")
    assert problem.startswith("--set: tasks.train must have at least 1 entries, got []")
    (problem,) = problems_of(None, "environments.kind=deskop", "tasks.train=['desktop/editor-write']")
    assert problem.startswith("--set: environments.kind must be")


# ---- desktops and virtual machines ----


def test_machines_have_other_limits_by_default_and_say_where_they_are_from() -> None:
    config, origins = resolve(None, ["environments.kind=desktop", 'tasks.train=["desktop/editor-write"]'])
    pool = config.supervision.environment_pool
    assert (pool.backoff.initial_s, pool.backoff.max_s) == (1.0, 60.0)
    assert (pool.breaker.enabled, pool.breaker.max_failures, pool.breaker.within_s) == (True, 5, 600.0)
    assert pool.max_failing == 0.5
    assert pool.retirement.max_uses > 0
    assert pool.retirement.max_age_s > 0
    assert origins["supervision.environment_pool.backoff.max_s"] == "default for desktop"
    assert Config().supervision.environment_pool.max_failing == 1.0


def test_virtual_machines_are_left_alone_and_trusted_again_by_the_time_their_boots_take() -> None:
    machines = ["environments.kind=osworld", "environments.osworld.provider=docker"]
    config = load_config(None, [*machines, 'tasks.train=["osworld/os/x"]'])
    pool, boot_s = config.supervision.environment_pool, config.environments.reset_deadline_s
    failures = pool.breaker.max_failures + 1
    assert pool.breaker.within_s > failures * failing_s(boot_s), (
        "each is of three episodes, each of two boots"
    )
    assert pool.max_failing == 0.5


@pytest.mark.parametrize(
    "job",
    [
        ("environments.kind=desktop", 'tasks.train=["desktop/editor-write"]'),
        ("environments.kind=osworld", "environments.osworld.provider=docker", 'tasks.train=["osworld/os/x"]'),
    ],
)
def test_a_machine_counts_as_healthy_only_after_the_time_that_it_takes_to_fail(job: tuple[str, ...]) -> None:
    config = load_config(None, job)
    fails_s = failing_s(config.environments.reset_deadline_s)
    assert config.supervision.environment_pool.breaker.healthy_s > fails_s
    healthy = f"supervision.environment_pool.breaker.healthy_s={fails_s}"
    (problem,) = problems_of(None, *job, healthy)
    assert problem == (
        f"--set: supervision.environment_pool.breaker.healthy_s must be greater than {fails_s:g}: an "
        "environment fails after 3 episodes with 2 resets each, and a reset may take "
        f"{config.environments.reset_deadline_s:g} s (environments.reset_deadline_s) and a tenth more, so "
        f"it would count as healthy before; got {fails_s:g}"
    )
    load_config(None, [*job, healthy, "supervision.environment_pool.breaker.enabled=false"])


def test_a_desktop_has_longer_deadlines_than_a_page_by_default() -> None:
    desktop = load_config(None, ["environments.kind=desktop", 'tasks.train=["desktop/editor-write"]'])
    assert desktop.environments.reset_deadline_s > Config().environments.reset_deadline_s
    assert desktop.environments.evaluate_deadline_s > Config().environments.evaluate_deadline_s


def test_a_file_has_the_last_word_on_the_limits_of_machines(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        [tasks]
        train = ["desktop/editor-write"]
        [environments]
        kind = "desktop"
        [supervision.environment_pool.backoff]
        max_s = 5.0
        """,
    )
    pool = load_config(path).supervision.environment_pool
    assert (pool.backoff.initial_s, pool.backoff.max_s) == (1.0, 5.0)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["environments.faults.enabled=true", "environments.faults.popup=0.1"],
            "environments.faults.popup must be 0: environments of kind 'miniwob' cannot have this fault",
        ),
        (
            ["environments.kind=desktop", 'tasks.train=["desktop/editor-wirte"]'],
            "names 'desktop/editor-wirte', which is not a task; did you mean desktop/editor-write",
        ),
        (["environments.kind=desktop"], "which environments of kind 'desktop' do not play"),
        (
            ["environments.kind=osworld", 'environments.osworld.addresses=["a:1"]', "environments.count=2"],
            "must name a machine for each of the 2 environments, got 1",
        ),
        (
            ["environments.kind=osworld", "environments.osworld.provider=local"],
            "environments.osworld.local.server must be the command of a guest server",
        ),
        (
            ["environments.kind=osworld", "environments.osworld.renew=revert"],
            "environments.osworld.renew is 'revert', which needs provider 'addresses' and a revert_command",
        ),
        (
            ["environments.kind=osworld", "environments.osworld.provider=addresses"],
            "environments.osworld.renew must be 'revert' or 'keep' with provider",
        ),
    ],
)
def test_what_does_not_go_together_on_desktops_is_said(overrides: list[str], says: str) -> None:
    assert any(says in problem for problem in problems_of(None, *overrides))


def test_an_evaluation_that_cannot_wait_twice_for_a_page_is_refused() -> None:
    pool = ["environments.kind=osworld", "environments.osworld.provider=docker", OSWORLD_TASK]
    (found,) = problems_of(None, *pool, "environments.evaluate_deadline_s=171")
    assert found == (
        "--set: environments.evaluate_deadline_s must be at least 172 with environments.kind = 'osworld', "
        "got 171: a getter of an evaluation may wait 125 s for a page, and the steps before and after it "
        "need a quarter of the time"
    )
    load_config(None, [*pool, "environments.evaluate_deadline_s=172"])
    load_config(None, ["environments.evaluate_deadline_s=171"])


def test_a_run_that_began_with_what_is_refused_now_can_be_read_but_not_started(tmp_path: Path) -> None:
    key, earlier = "environments.evaluate_deadline_s", "120.0"
    machines = f'environments.kind = "osworld"\nenvironments.osworld.provider = "docker"\n{OSWORLD_TASK}\n'
    path = written(tmp_path, f"{machines}{key} = {earlier}\n")
    (problem,) = problems_of(path)
    assert f" {key} must be " in problem
    assert kept_config(path).environments.kind == "osworld"


def test_a_run_goes_on_whose_configuration_says_that_no_child_has_a_warm_spare(tmp_path: Path) -> None:
    kept = (
        Config()
        .to_toml()
        .replace("[supervision.store.retirement]\n", "[supervision.store.retirement]\nwarm_spare = false\n")
    )
    assert "warm_spare" in kept
    path = written(tmp_path, kept)
    assert load_config(path).supervision == kept_config(path).supervision == Config().supervision
    (problem,) = problems_of(written(tmp_path, kept.replace("warm_spare = false", "warm_spare = true")))
    assert "supervision.store.retirement.warm_spare is not a key" in problem


def test_a_wrong_value_in_the_configuration_of_a_run_is_refused_by_who_reads_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="evaluate_deadline_s must be"):
        kept_config(written(tmp_path, "[environments]\nevaluate_deadline_s = -1\n"))


@pytest.mark.parametrize("addresses", ['["a:1", "a:1"]', '["a:1", "A:1:9222"]', '["a", "a:5000"]'])
def test_two_environments_are_not_given_the_same_machine(addresses: str) -> None:
    osworld = ["environments.kind=osworld", "environments.osworld.renew=keep", "environments.count=2"]
    found = problems_of(None, *osworld, f"environments.osworld.addresses={addresses}", OSWORLD_TASK)
    machine = "a:5000" if "5000" in addresses else "a:1"
    assert found == [
        f"--set: environments.osworld.addresses names the machine {machine} 2 times, and two environments "
        "cannot share one: name it once"
    ]


@pytest.mark.parametrize("server", ["foo", "foo:50003", "http://", "ftp://foo", "http://foo:port", ""])
def test_a_server_of_machines_that_has_no_url_is_refused(server: str) -> None:
    pool = ["environments.kind=osworld", "environments.osworld.provider=pool", OSWORLD_TASK]
    (found,) = problems_of(None, *pool, f"environments.osworld.pool.server={server!r}")
    assert found == (
        "--set: environments.osworld.pool.server must be the address of a server, such as "
        f"'http://127.0.0.1:50003', got {server!r}"
    )
    load_config(None, [*pool, "environments.osworld.pool.server=https://vms.example/dart"])


def test_a_server_of_machines_with_a_password_is_refused_and_the_password_not_shown() -> None:
    pool = ["environments.kind=osworld", "environments.osworld.provider=pool", OSWORLD_TASK]
    (found,) = problems_of(None, *pool, "environments.osworld.pool.server='http://me:hunter2@vms.example'")
    assert found.endswith("got one with a user or a password")


def test_a_kind_of_environment_nobody_knows_changes_no_defaults() -> None:
    assert any("environments.kind must be" in problem for problem in problems_of(None, "environments.kind=3"))


def test_the_desktop_job_is_a_configuration() -> None:
    config = load_config(Path(__file__).parents[3] / "configs" / "desktop.toml")
    assert config.environments.kind == "desktop"
    assert len(config.tasks.train) >= 15
