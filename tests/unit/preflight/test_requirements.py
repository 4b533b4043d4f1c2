"""What is missing is named before anything starts, all of it, with the remedies."""

import json
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from dart.config.bundled import bundled_folder
from dart.config.config import Config, load_config
from dart.core.errors import ConfigurationError, UnavailableError
from dart.policy.adapter_files import BasePolicy, write_base
from dart.preflight import requirements
from dart.preflight.requirements import (
    damage_of,
    missing_browser,
    missing_gpu_of_trainer,
    missing_packages,
    missing_policy,
    not_for_vllm,
    policy_without_hints,
    require_installation,
    unreadable_prompt,
)
from dart.store.checkpoints import CheckpointState, write_checkpoint


def config_with(*overrides: str) -> Config:
    return load_config(None, overrides)


def test_a_missing_browser_names_its_path_the_package_and_the_key() -> None:
    (message,) = missing_browser(config_with("environments.executable=/no/browser"))

    assert "/no/browser" in message
    assert "chromium-headless-shell" in message
    assert "environments.executable" in message


@pytest.mark.parametrize("make", ["mytask.page_en:make", "examples.own_environment:mke"])
def test_a_function_of_your_own_that_does_not_exist_is_refused_before_the_start(make: str) -> None:
    config = config_with("environments.kind=own", "tasks.train=['own/0']", f"environments.make={make}")

    (message,) = missing_browser(config)

    assert (
        f": {make} is to make the environments of the kind 'own'; correct the name in environments.make, "
        "or define the function" in message
    )
    with pytest.raises(ConfigurationError, match="correct the name"):
        require_installation(config, checks=(missing_browser,))


def program(folder: Path, text: str) -> Path:
    file = folder / "program"
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_a_folder_is_no_browser(tmp_path: Path) -> None:
    (message,) = missing_browser(config_with(f"environments.executable={tmp_path}"))

    assert "is not a Chromium that starts: no such program" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/bin/sh\nexec /bin/true --version\n", "it said 'true (GNU coreutils)"),
        ("#!/bin/sh\n", "it said nothing;"),
        ("#!/bin/sh\nkill -TRAP $$\n", "it said nothing and ended: "),
        ("#!/bin/sh\nkill -TRAP $$\n", "SIGTRAP"),
        ("#!/bin/sh\necho no such library >&2; exit 127\n", "it said 'no such library'"),
        ("no program at all", "Exec format error"),
        ("#!/bin/sh\nprintf '\\377\\033[31m'\n", "it said "),
    ],
)
def test_a_program_that_is_no_browser_is_told_by_what_it_answers(
    tmp_path: Path, text: str, said: str
) -> None:
    file = program(tmp_path, text)
    (message,) = missing_browser(config_with(f"environments.executable={file}"))

    assert f"{file} is not a Chromium that starts" in message
    assert said in message
    assert "environments.executable" in message


def test_a_browser_that_a_limit_of_addresses_ends_is_named_with_the_limit(tmp_path: Path) -> None:
    file = program(tmp_path, "#!/bin/sh\nkill -TRAP $$\n")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**46, before[1]))
    try:
        (message,) = missing_browser(config_with(f"environments.executable={file}"))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)

    assert "ulimit -v unlimited" in message


def test_a_browser_that_says_nothing_for_too_long_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "BROWSER_DEADLINE_S", 0.2)
    file = program(tmp_path, "#!/bin/sh\nexec sleep 60\n")
    (message,) = missing_browser(config_with(f"environments.executable={file}"))

    assert "did not print its version within 0.2 s" in message


@pytest.mark.parametrize("name", ["Chromium 156.0.8078.79", "Google Chrome 120.0.6099.109 unknown"])
def test_a_program_that_answers_as_chromium_does_is_one(tmp_path: Path, name: str) -> None:
    file = program(tmp_path, f"#!/bin/sh\necho {name}\n")

    assert list(missing_browser(config_with(f"environments.executable={file}"))) == []


@pytest.mark.parametrize(
    "said",
    [
        "FATAL: No usable sandbox! If this is a Debian",
        "Failed to move to new namespace: PID namespaces supported, Network namespace supported, but failed",
    ],
)
def test_a_browser_whose_sandbox_the_system_refuses_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    refused = "#!/bin/sh\n[ $1 = --version ] && exec echo Chromium 156.0.8078.79\n"
    file = program(tmp_path, f"{refused}echo '{said}' >&2; exit 1\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (message,) = missing_browser(config_with(f"environments.executable={file}"))

    assert "the system refuses its sandbox; permit user namespaces" in message
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert list(missing_browser(config_with(f"environments.executable={file}"))) == []


def test_a_folder_without_a_checkpoint_names_the_command_that_makes_one(tmp_path: Path) -> None:
    (message,) = missing_policy(config_with(f"training.policy={tmp_path}"))

    assert str(tmp_path) in message
    assert "dartrl pretrain" in message


def written_checkpoint(folder: Path) -> Path:
    """A small, whole checkpoint."""
    save_file({"weight": np.zeros((4, 4), np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder


def test_an_adapter_is_no_policy_to_start_from_and_the_message_says_how_to_make_one(tmp_path: Path) -> None:
    write_base(tmp_path, BasePolicy(name="base", sha256="0" * 64))
    (message,) = missing_policy(config_with(f"training.policy={tmp_path}"))

    assert f"python -m dart.policy.merge_adapter {tmp_path} OUT" in message


@pytest.mark.parametrize(("folder", "is_named"), [("configs", True), ("mine", False)])
def test_a_bundled_policy_of_an_installation_that_is_gone_is_named_where_it_is_now(
    tmp_path: Path, folder: str, is_named: bool
) -> None:
    (message,) = missing_policy(config_with(f"training.policy={tmp_path / folder / 'base-policy'}"))

    assert message.endswith(f"that is gone, it is in {bundled_folder() / 'base-policy'} now") is is_named


def test_a_folder_with_a_whole_checkpoint_is_not_missing(tmp_path: Path) -> None:
    config = config_with(f"training.policy={written_checkpoint(tmp_path)}")

    assert list(missing_policy(config)) == []


@pytest.mark.parametrize(
    ("model_type", "is_self_rolled", "is_refused"),
    [("gui_policy", True, True), ("gui_policy", False, False), ("qwen2_5_vl", True, False)],
)
def test_a_policy_that_can_be_shown_no_hint_is_refused_where_demonstrations_are_to_be_self_rolled(
    tmp_path: Path, model_type: str, is_self_rolled: bool, is_refused: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    pool = "curation.experience_pool"
    config = config_with(
        f"training.policy={tmp_path}",
        f"{pool}.enabled=true",
        f"{pool}.self_rolled={str(is_self_rolled).lower()}",
    )
    said = list(policy_without_hints(config))
    assert bool(said) is is_refused
    assert all("curation.experience_pool.self_rolled = false" in message for message in said)


def test_a_truncated_checkpoint_is_called_damaged(tmp_path: Path) -> None:
    weights = written_checkpoint(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])

    (message,) = missing_policy(config_with(f"training.policy={tmp_path}"))

    assert f"the policy checkpoint in {tmp_path} is damaged" in message
    assert "dartrl pretrain" in message


def test_a_folder_with_only_a_config_has_no_weights_yet_and_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    (message,) = missing_policy(config_with(f"training.policy={tmp_path}"))

    assert message.startswith(
        f"the policy checkpoint in {tmp_path} has a config.json and no weights yet: copy "
    )
    assert "dartrl policy fetch hf://OWNER/NAME@REVISION" in message
    assert "damaged" not in message


def test_a_config_that_was_fetched_alone_names_the_command_that_fetches_its_weights(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "hub" / "a--b@main"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")

    (message,) = missing_policy(config_with(f"training.policy={folder}"))

    assert message.startswith(f"no weights in {folder}: fetch them with 'dartrl policy fetch hf://a/b@main'")


def test_a_training_checkpoint_with_a_flipped_bit_is_called_damaged(tmp_path: Path) -> None:
    state = CheckpointState(version=1, learner={})
    folder = write_checkpoint(tmp_path, state, written_checkpoint)
    assert damage_of(folder) is None
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)

    assert "model.safetensors is corrupt" in (damage_of(folder) or "")


def test_a_policy_in_several_files_is_whole_when_all_of_them_are_there(tmp_path: Path) -> None:
    written_checkpoint(tmp_path)
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    (tmp_path / "model.safetensors").rename(tmp_path / shards[0])
    shutil.copy(tmp_path / shards[0], tmp_path / shards[1])
    index = {"weight_map": {"first": shards[0], "second": shards[1]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert damage_of(tmp_path) is None
    (tmp_path / shards[1]).unlink()
    assert f"lacks {shards[1]}" in (damage_of(tmp_path) or "")


def test_missing_packages_name_the_extra_that_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "TRAIN_PACKAGES", ("json", "no_such_package"))

    assert list(missing_packages(config_with())) == [
        "not installed: no_such_package; run 'make setup' or pip install 'dartrl[train]'"
    ]


def test_an_engine_that_is_not_installed_is_missed_only_where_it_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == "vllm" else object())

    assert list(missing_packages(config_with())) == []
    [message] = missing_packages(config_with("rollout.engine=vllm"))
    assert "dartrl[vllm]" in message


@pytest.mark.parametrize(
    ("engine", "is_read"), [("transformers", True), ("vllm", True), ("simulated", False)]
)
def test_a_prompt_that_cannot_be_read_is_missed_where_an_engine_would_read_it(
    engine: str, is_read: bool
) -> None:
    chosen = ("context.prompt=uitars-15", f"rollout.engine={engine}", "training.learner=none")
    found = list(unreadable_prompt(config_with(*chosen)))

    assert len(found) == is_read
    for message in found:
        assert message.startswith("context.prompt names 'uitars-15', which cannot be read")
        assert "name a text file, or uitars-1.5" in message
    assert list(unreadable_prompt(config_with("context.prompt=uitars-1.5"))) == []


def test_a_wrong_prompt_is_an_error_of_the_configuration_that_names_all_else_that_is_missing() -> None:
    config = config_with("context.prompt=uitars-15", "environments.executable=/no/browser")

    with pytest.raises(ConfigurationError) as caught:
        require_installation(config, checks=(missing_browser, unreadable_prompt))

    assert "context.prompt names 'uitars-15'" in str(caught.value)
    assert "/no/browser" in str(caught.value)


def test_everything_that_is_missing_is_named_at_once() -> None:
    config = config_with("environments.executable=/no/browser", "training.policy=/no/policy")

    with pytest.raises(UnavailableError) as caught:
        require_installation(config, checks=(missing_browser, missing_policy))

    assert len(str(caught.value).splitlines()) == 2


def test_a_simulated_run_needs_neither_browser_nor_policy(tmp_path: Path) -> None:
    simulated = config_with(
        "environments.kind=simulated",
        "tasks.train=['simulated/0']",
        "environments.executable=/no/browser",
        "rollout.engine=simulated",
        "training.learner=simulated",
        f"training.policy={tmp_path}",
    )

    assert [*missing_browser(simulated), *missing_policy(simulated)] == []


OSWORLD = ("environments.kind=osworld", "environments.count=1")


def test_machines_need_their_tasks_their_evaluators_and_their_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DARTRL_POOL_TOKEN", raising=False)
    without = "environments.osworld.evaluators=/no/evaluators"
    pool = load_config(
        None, [*OSWORLD, without, "environments.osworld.provider=pool", 'tasks.train=["osworld/os/x"]']
    )
    docker = load_config(
        None,
        [
            *OSWORLD,
            'tasks.train=["osworld/os/x"]',
            "environments.osworld.provider=docker",
            "environments.osworld.docker.program=/no/docker",
        ],
    )
    tasks, evaluators, token = missing_browser(pool)
    assert "no tasks in evaluation_examples/examples" in tasks
    assert "run `make osworld-score`" in evaluators
    assert "DARTRL_POOL_TOKEN is empty" in token
    assert any("no program /no/docker" in message for message in missing_browser(docker))
    assert any("no disk image Ubuntu.qcow2" in message for message in missing_browser(docker))


def test_desktops_need_their_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "missing_for_desktops", lambda: ["Xvfb (Debian package xvfb)"])
    config = load_config(None, ["environments.kind=desktop", 'tasks.train=["desktop/editor-write"]'])
    (message,) = missing_browser(config)
    assert (
        "Xvfb (Debian package xvfb): install them through apt and pip, or run `make desktop` in a clone"
        in message
    )


def test_a_trainer_that_needs_a_gpu_misses_it_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    large = (f"training.policy={tmp_path}", "training.device='cuda'")
    (said,) = missing_gpu_of_trainer(config_with(*large))
    assert said.startswith(
        "training.device is 'cuda', and this process can use no GPU: set training.device ="
    )
    assert not list(missing_gpu_of_trainer(config_with(*large, "training.learner=none")))
    assert not list(missing_gpu_of_trainer(config_with(large[0])))
    assert not list(missing_gpu_of_trainer(config_with(large[1]))), "the small policy is always on the CPU"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert not list(missing_gpu_of_trainer(config_with(*large)))


def test_the_small_policy_is_refused_on_vllm_with_the_remedy() -> None:
    (said,) = not_for_vllm(load_config(None, ["rollout.engine=vllm"]))
    assert "cannot serve the small policy" in said
    assert "rollout.engine = 'transformers'" in said
    assert not list(not_for_vllm(load_config()))


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ('{"max_position_embeddings": 8191}', 8191),
        ('{"max_position_embeddings": 8192}', None),
        ('{"max_position_embeddings": 1, "text_config": {"max_position_embeddings": 8191}}', 8191),
        ('{"max_position_embeddings": 2048, "rope_scaling": {"type": "yarn", "factor": 2.0}}', 4096),
        ('{"max_position_embeddings": 2048, "rope_scaling": {"type": "yarn", "factor": 4.0}}', None),
        ('{"max_position_embeddings": "many"}', None),
        ('{"max_position_embeddings": 1, "rope_scaling": 7}', None),
        ("{}", None),
        ("[]", None),
        ("no JSON", None),
    ],
)
def test_more_tokens_than_the_model_reads_are_refused_on_vllm_with_the_most(
    tmp_path: Path, text: str, most: int | None
) -> None:
    (tmp_path / "config.json").write_text(text)
    settings = [f"training.policy={tmp_path}", "rollout.vllm.max_tokens=8192"]
    said = list(not_for_vllm(load_config(None, [*settings, "rollout.engine=vllm"])))
    assert bool(said) == (most is not None)
    for one in said:
        assert one.startswith("rollout.vllm.max_tokens is 8192, ")
        assert str(tmp_path) in one
        assert one.endswith(f"set it to {most} or less, or name a policy for longer texts")
    assert not list(not_for_vllm(load_config(None, settings)))


@pytest.mark.parametrize(
    "text", ['{"pointer_pad_token_id": 512}', '{"pointer_token_id": 37}', "{}", "no JSON"]
)
def test_a_policy_with_a_pointer_head_is_refused_on_vllm_with_the_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    policy = f"training.policy={tmp_path}"
    on_vllm = load_config(None, [policy, "rollout.engine=vllm"])
    said = list(not_for_vllm(on_vllm))
    assert len(said) == ("pointer" in text)
    assert all("rollout.engine = 'transformers'" in one for one in said)
    assert not list(not_for_vllm(load_config(None, [policy])))
