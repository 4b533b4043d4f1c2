"""The cluster file: told from a run file by its keys, complete, and every problem at once."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.config.cluster import cluster_field_rows, is_cluster_file, load_cluster
from dart.config.config import ConfigError, load_config

WHOLE = """
run = "smoke"
record = "postgresql://me@db.example/runs"
blobs = "s3://bucket/prefix"
[engine]
address = "10.0.0.1:6379"
"""


def written(folder: Path, text: str, name: str = "cluster.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_cluster(path)
    return [str(problem).removeprefix(f"{path}: ") for problem in caught.value.problems]


def test_every_key_has_a_description() -> None:
    assert [key for key, description, _ in cluster_field_rows() if not description] == []


@pytest.mark.parametrize("name", ["cluster", "osworld-uitars-7b-two-nodes"])
def test_the_bundled_cluster_files_are_whole(name: str) -> None:
    assert is_cluster_file(Path(name))
    assert load_cluster(Path(name)).run.tasks.train


@pytest.mark.parametrize("name", ["laptop", "smoke", "osworld-uitars-7b"])
def test_a_run_file_is_no_cluster_file(name: str) -> None:
    assert not is_cluster_file(Path(name))


@pytest.mark.parametrize("text", ['run = "laptop"', "[engine]", 'record = ""', "trusted_network = true"])
def test_any_key_of_a_cluster_file_tells_it_apart(tmp_path: Path, text: str) -> None:
    assert is_cluster_file(written(tmp_path, text))


def test_a_cluster_file_where_a_run_file_is_needed_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a cluster file, and a run file is needed here"):
        load_config(written(tmp_path, WHOLE))


def test_the_run_is_a_bundled_configuration_or_a_file_beside_the_cluster_file(tmp_path: Path) -> None:
    places = ["run.record=postgresql://me@db.example/runs", "run.blobs=s3://bucket/prefix"]
    assert load_cluster(written(tmp_path, WHOLE)).run == load_config(Path("smoke"), places)
    written(tmp_path, "[run]\nseed = 7\n", "smoke")
    assert load_cluster(written(tmp_path, WHOLE)).run.run.seed == 7


def test_the_cluster_file_changes_the_run_and_set_changes_both(tmp_path: Path) -> None:
    path = written(tmp_path, f"{WHOLE}[set.environments]\ncount = 5\n[set.run]\nseed = 3\n")
    run = load_cluster(path, ["run.seed=4"]).run
    assert (run.environments.count, run.run.seed, run.training.updates) == (5, 4, 3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("record", ""),
        ("record", "postgresql://me@other.example/runs"),
        ("blobs", ""),
        ("blobs", "s3://other/prefix"),
    ],
)
def test_the_record_and_the_blobs_of_a_cluster_are_changed_in_its_file_only(
    tmp_path: Path, key: str, value: str
) -> None:
    path = written(tmp_path, WHOLE)
    with pytest.raises(ConfigError) as caught:
        load_cluster(path, [f"run.{key}={value}"])
    assert str(caught.value) == f"--set: run.{key} cannot be set for a cluster; change `{key}` in {path}"


def test_the_record_and_the_blobs_of_a_cluster_may_be_given_again(tmp_path: Path) -> None:
    again = ["run.record=postgresql://me@db.example/runs", "run.blobs=s3://bucket/prefix"]
    path = written(tmp_path, WHOLE)
    assert load_cluster(path, again) == load_cluster(path)


def test_a_wrong_change_of_the_run_is_refused_with_where_it_stands(tmp_path: Path) -> None:
    path = written(tmp_path, f"{WHOLE}[set.rollout]\ncont = 5\n")
    with pytest.raises(ConfigError, match=r"cluster.toml \[set\]: rollout.cont is not a key; did you"):
        load_cluster(path)


def test_an_unknown_key_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE.replace("blobs", "blob").replace("address", "adress"))
    assert problems_of(path)[:2] == [
        "engine.adress is not a key; did you mean engine.address?",
        "blob is not a key; did you mean blobs?",
    ]


def test_what_is_missing_is_named_with_what_to_write(tmp_path: Path) -> None:
    found = "\n".join(problems_of(written(tmp_path, "[engine]\n")))
    assert "run is missing: name a run file" in found
    assert "record is missing: the machines of a cluster share no file; name a database" in found
    assert "blobs is missing: the machines of a cluster share no folder; expected s3://BUCKET" in found
    assert (
        "engine.address is missing: give the address of a running Ray cluster, or else engine.ssh or" in found
    )


@pytest.mark.parametrize(
    "record",
    [
        "postgresql://me:hunter2@db/runs",
        "postgresql://db/runs?password=hunter2",
        "postgresql://me:hunter2@db",
        "mysql://me:hunter2@db/runs",
        "postgresql://me:hun@ter2@db:x/runs",
    ],
)
def test_a_password_is_refused_and_never_shown(tmp_path: Path, record: str) -> None:
    found = problems_of(written(tmp_path, WHOLE.replace("postgresql://me@db.example/runs", record)))
    assert any(text.startswith("record") for text in found)
    assert "hunter2" not in str(found)
    assert "ter2" not in str(found)


def test_credentials_of_object_storage_are_refused_and_never_shown(tmp_path: Path) -> None:
    found = problems_of(written(tmp_path, WHOLE.replace("s3://bucket", "s3://key:hunter2@bucket")))
    assert "holds credentials" in found[0]
    assert "hunter2" not in found[0]


@pytest.mark.parametrize("blobs", ["bucket/prefix", "s3://", "file://relative", "https://host/bucket"])
def test_blobs_are_object_storage_or_a_shared_folder(tmp_path: Path, blobs: str) -> None:
    (found,) = problems_of(written(tmp_path, WHOLE.replace("s3://bucket/prefix", blobs)))
    assert found.startswith("blobs is wrong: expected s3://BUCKET/PREFIX or file:///FOLDER, got ")


def test_a_cluster_starts_in_one_way(tmp_path: Path) -> None:
    (found,) = problems_of(written(tmp_path, f'{WHOLE}ssh = ["a"]\n'))
    assert found == "engine.ssh and engine.address are both given; give only one of them"


def test_a_folder_of_the_nodes_in_a_home_folder_is_refused(tmp_path: Path) -> None:
    (found,) = problems_of(written(tmp_path, f"{WHOLE}node_dir = '~/dartrl'\n"))
    assert found.startswith("engine.node_dir is wrong: ~ is not replaced by a home folder here")


def test_a_machine_is_named_once(tmp_path: Path) -> None:
    (found,) = problems_of(written(tmp_path, WHOLE.replace("address =", 'ssh = ["a", "b", "a"] #')))
    assert found == "engine.ssh names 'a' 2 times; name each machine once"


def test_a_name_that_kubernetes_does_not_take_is_refused(tmp_path: Path) -> None:
    (found,) = problems_of(written(tmp_path, f'{WHOLE}[engine.kubernetes]\nnamespace = "My Space"\n'))
    assert found.startswith("engine.kubernetes.namespace must have at most 63 lower-case letters")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (WHOLE.replace("s3://", "s4://"), "cluster.toml: blobs is wrong"),
        (WHOLE + "[set.rollout]\ncount = 0\n", "cluster.toml [set]: rollout.count must be at least 1, got 0"),
    ],
)
def test_a_check_of_a_cluster_file_reports_its_problems_and_those_of_its_run(
    tmp_path: Path, text: str, problem: str
) -> None:
    checked = CliRunner().invoke(app, ["config", "check", str(written(tmp_path, text))])

    assert checked.exit_code == 78
    assert problem in checked.output


def test_a_cluster_file_without_problems_passes_the_check(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)

    checked = CliRunner().invoke(app, ["config", "check", str(path), "--set", "run.seed=7"])

    assert (checked.exit_code, checked.output) == (0, f"{path}: valid\n")
