"""Whatever a configuration holds, it is refused on one clear screen, or it is taken; never a traceback."""

import json
import shutil
import socket
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dart.cli.main import app
from dart.cli.train import training_config
from dart.config.config import PROBLEMS_SHOWN, Config, ConfigError, load_config
from dart.config.problems import SHOWN_CHARACTERS, dotted
from dart.core.errors import RunDirectoryError
from dart.core.run_directory import RunPaths, refuse_unfit
from dart.inference.tensor_layout import OtherLayout
from dart.preflight import memory, requirements
from tests.examples import examples

SCREEN_BYTES = 12_000
"""Twenty lines of at most a few hundred letters."""

OSWORLD = "[environments]\nkind='osworld'\ncount=1\n[environments.osworld]\nrenew='keep'\n"
TRAINED = "[tasks]\ntrain=['osworld/a/b']\n"


def complaint(tmp_path: Path, text: str) -> str:
    file = tmp_path / "run.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refusal:
        load_config(file)
    told = str(refusal.value)
    assert len(told.encode()) < SCREEN_BYTES
    assert len(told.splitlines()) <= PROBLEMS_SHOWN + 1
    return told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nseed=" + "9" * 5000, "cannot be read: Exceeds the limit"),
        ("x=" + "[" * 3000 + "]" * 3000, "nested more than 16 deep"),
        ("[" + ".".join(["a"] * 3000) + "]\nx=1\n", "nested more than 16 deep"),
        ("[run]\nseed='" + "x" * 200_000 + "'", "(200002 characters)"),
        ("[run]\n" + "k" * 100_000 + "=1", "(100004 characters) is not a key"),
        ("x='" + "a" * 5 * 2**20 + "'", "longer than 4 MiB"),
        ('[run]\ndir="a\\u0000b"', "run.dir is wrong: it contains a NUL character"),
        ('[training]\npolicy="a\\u0000b"', "training.policy is wrong: it contains a NUL character"),
        ('[web]\nallow_hosts=["a\\u0000"]', "web.allow_hosts is wrong: it contains a NUL character"),
        ("[run]\ndir='" + "a" * 300 + "'", "a path has at most 4095 bytes, and a name in it 255"),
        ("[environments]\ncount=1000000000", "environments.count must be at most 1000, got 1000000000"),
        ("[environments]\ncount=900\n[rollout]\ncount=200", "must be at most 1000 together, got 1100"),
        ("[evaluation]\nseeds_per_task=999999999999", "must be at most 1e+06"),
        ("[rollout]\nthreads=100000000", "must be at most 1000"),
        ("[supervision.store]\nhang_deadline_s=1e11", "must be at most 1e+09"),
        ("[supervision.store]\nmax_restarts=10000000000", "must be at most 1e+09"),
    ],
)
def test_what_no_run_can_have_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, text)


@pytest.mark.parametrize("override", ["run.seed=" + "9" * 5000, "x=" + "[" * 3000, "a." * 3000 + "b=1"])
def test_what_is_set_on_the_command_line_is_refused_in_words_too(override: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(None, [override])
    assert len(str(refusal.value)) < SCREEN_BYTES


@pytest.mark.parametrize("name", ["runs/\udcff", "runs/'\udcff\""])
def test_a_run_directory_that_is_not_utf_8_is_refused_and_no_other_one_is_taken(name: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.dir is wrong: it is not UTF-8 text .*, got .*runs/"):
        training_config(None, (), Path(name), resume=False)


@pytest.mark.parametrize(
    "override",
    ["run.dir=runs/\udcff", "training.policy=\udcff", "inspection.host=\udcff", 'tasks.train=["\udcff"]'],
)
def test_text_that_is_not_utf_8_is_refused_whatever_key_it_is_for(override: str) -> None:
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"{key} is wrong: it is not UTF-8 text"):
        load_config(None, [override])


@pytest.mark.parametrize(
    "key", ["run.dir", "training.policy", "environments.osworld.cache", "context.prompt", "grounding.base"]
)
@pytest.mark.parametrize("place", ["~", "~/x", "~other-user/x"])
def test_a_path_in_a_home_folder_that_no_shell_has_replaced_is_refused(key: str, place: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(None, [f"{key}={place}"])
    assert f"{key} is wrong: ~ is not replaced by a home folder here; write the whole path" in str(
        refusal.value
    )
    load_config(None, [f"{key}=a{place}"])


def test_each_of_several_paths_in_a_home_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"folders is wrong: ~ is not replaced .* got '~/b'"):
        load_config(None, ["curation.experience_pool.folders=['a', '~/b']"])


def test_a_policy_below_a_folder_that_is_not_utf_8_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs-\udcff"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=r"training\.policy is wrong: it is not UTF-8 text"):
        load_config(None, ["training.policy='mine'"])


def test_of_thousands_of_problems_the_first_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    told = complaint(tmp_path, "[run]\n" + "".join(f"k{number}=1\n" for number in range(3000)))
    assert told.splitlines()[-1] == f"and {3000 - PROBLEMS_SHOWN} more problems; 3000 in all"


def test_of_thousands_of_unknown_tasks_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    told = complaint(tmp_path, f"[tasks]\ntrain={[f't{number}' for number in range(3000)]}")
    assert "tasks.train names 't4', which is not a task" in told
    assert told.splitlines()[-1].endswith("tasks.train names 2995 more ids that are not tasks")


@pytest.mark.parametrize(
    "content", [b"not json", b"[1,2]", b'{"a": 5}', b'{"a": [1]}', b"\xff\xfe", b"[" * 10**5]
)
def test_a_set_of_tasks_that_is_none_says_what_one_looks_like(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "set.json").write_bytes(content)
    told = complaint(tmp_path, f"{OSWORLD}addresses=['127.0.0.1:1']\ntasks='{tmp_path}/set.json'\n{TRAINED}")
    assert "environments.osworld.tasks is wrong: the " in told
    assert f"set of tasks {tmp_path}/set.json cannot be read" in told or (
        f"the file {tmp_path}/set.json is not a set of tasks" in told
    )
    assert 'expected JSON such as {"chrome": ["id", …]}' in told


@pytest.mark.parametrize("part", ["{nope}", "{", "{0}", "{address.nope}", "{port!x}", "{}"])
@pytest.mark.parametrize(("key", "provider"), [("revert_command", "addresses"), ("local", "local")])
def test_a_placeholder_that_is_not_filled_in_is_refused(
    tmp_path: Path, key: str, provider: str, part: str
) -> None:
    command = f"revert_command=['{part}']" if key == "revert_command" else f"local.server=['{part}']"
    settings_ = f"{OSWORLD}provider='{provider}'\naddresses=['127.0.0.1:1']\ntasks='{tmp_path}'\n{command}\n"
    assert f"has an unknown placeholder in {part!r}; known are {{" in complaint(tmp_path, settings_ + TRAINED)


@pytest.mark.parametrize(
    "address", ["host:port", "host:99999999", "[::1]:5000", "", ":5000", "a:1:2:3:4", "a:0"]
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    text = f"{OSWORLD}addresses=['{address}']\ntasks='{tmp_path}'\n{TRAINED}"
    assert f"environments.osworld.addresses has {address!r}: expected host:port" in complaint(tmp_path, text)


def osworld_at(tasks: Path, *addresses: str) -> Config:
    """Osworld environments at these addresses, with a folder of tasks."""
    settings_ = {
        "kind": "osworld",
        "count": 1,
        "osworld.addresses": list(addresses),
        "osworld.renew": "keep",
        "osworld.tasks": str(tasks),
    }
    chosen = [f"environments.{key}={json.dumps(value)}" for key, value in settings_.items()]
    return load_config(None, [*chosen, "tasks.train=['osworld/a/b']"])


def test_an_address_that_does_not_resolve_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, _: object) -> list[Any]:
        if host.startswith("127."):
            return []
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(requirements, "find_evaluators", lambda folder: folder)
    config = osworld_at(tmp_path, "127.0.0.1:5000", *(f"nope-{number}:5000" for number in range(9)))
    (message,) = requirements.missing_browser(config)
    assert "names hosts that have no address: nope-0 (Name or service not known), nope-1" in message
    assert "and 4 more" in message
    assert list(requirements.missing_browser(osworld_at(tmp_path, "127.0.0.1:5000"))) == []


def test_a_name_server_that_does_not_answer_is_not_waited_for() -> None:
    assert "the name server did not answer within" in requirements._why_unresolved(Future())


def test_hosts_whose_look_up_has_not_begun_are_named_when_the_name_server_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_over = Event()
    monkeypatch.setattr(requirements, "RESOLVE_S", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port: is_over.wait(10.0))
    try:
        (message,) = requirements._unresolved(f"h-{number}" for number in range(requirements.RESOLVERS + 8))
    finally:
        is_over.set()
    assert "h-0 (the name server did not answer within 0.05 s)" in message


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(load_config().training.policy, tmp_path / "policy"))


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b"[" * 10**5])
def test_a_policy_whose_configuration_is_garbage_is_called_damaged(policy: Path, content: bytes) -> None:
    (policy / "config.json").write_bytes(content)
    with pytest.raises((OSError, ValueError)):
        memory.policy_size(policy)
    file = policy.parent / "run.toml"
    file.write_text("[environments]\nkind='simulated'\n[tasks]\ntrain=['simulated/a']\n")
    chosen = ["--set", f"training.policy={policy}", "--set", f"run.dir={policy.parent}/run"]
    ran = CliRunner().invoke(app, ["up", str(file), "--dry-run", *chosen])
    assert isinstance(ran.exception, SystemExit | None)
    assert "memory cannot be estimated" in ran.stdout
    assert ran.exit_code == 69


def test_weights_that_say_they_have_a_header_of_exabytes_are_damaged_and_not_read(policy: Path) -> None:
    (policy / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(OtherLayout, match="no safetensors file"):
        memory.policy_size(policy)


@pytest.mark.parametrize("below", ["loop/x", "file/x"])
def test_a_run_directory_that_can_never_be_made_is_refused_before_anything_starts(
    tmp_path: Path, below: str
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="cannot be made"):
        refuse_unfit(RunPaths(tmp_path / below), resume=False)


KEYS = [key for key, _ in dotted(Config().model_dump(mode="json"))]
numbers = st.integers() | st.integers(-(10**30), 10**30) | st.floats()
scalars = st.none() | st.booleans() | numbers | st.text(max_size=300)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4), max_leaves=6)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(KEYS), values), min_size=1, max_size=5))
@example([("run.record", [None, "0" * 27 + "\x1f" * 250])])
def test_any_values_at_any_keys_are_taken_or_refused_on_one_screen(changes: list[tuple[str, Any]]) -> None:
    overrides = [f"{key}={json.dumps(value)}" for key, value in changes]
    try:
        load_config(None, overrides)
    except ConfigError as error:
        lines = str(error).splitlines()
        assert len(lines) <= PROBLEMS_SHOWN + 1
        assert all(len(line) < 8 * SHOWN_CHARACTERS for line in lines)
