"""What the configuration commands say of a configuration beyond whether it is good."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.config.config import field_rows, json_schema


def test_two_configurations_are_compared_key_by_key(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "run"
    one.write_text("[training]\nlr = 0.5\n")
    two.mkdir()
    (two / "config.toml").write_text('[training]\nlr = 0.25\n[environments]\nexecutable = "/x"\n')

    told = CliRunner().invoke(app, ["config", "diff", str(one), str(two), "-o", "jsonl"])
    shown = CliRunner().invoke(app, ["config", "diff", str(one), str(two)])
    same = CliRunner().invoke(app, ["config", "diff", str(one), str(one)])

    assert (told.exit_code, shown.exit_code, same.exit_code) == (1, 1, 0)
    found = {row["key"]: (row["before"], row["after"]) for row in map(json.loads, told.stdout.splitlines())}
    assert found["training.lr"] == (0.5, 0.25)
    assert found["environments.executable"][1] == "/x"
    assert len(found) == 2
    assert any(line.split() == ["training.lr", "0.5", "0.25"] for line in shown.stdout.splitlines())
    assert same.stdout == "the configurations are the same\n"


def test_values_are_shown_without_their_origin_when_nobody_wants_it() -> None:
    plain = CliRunner().invoke(app, ["config", "show", "--no-origin", "--set", "training.lr=0.5"])

    assert plain.exit_code == 0
    assert "lr = 0.5\n" in plain.stdout
    assert "#" not in plain.stdout


@pytest.mark.parametrize("key", ["training.lr", "supervision.environment_pool.max_restarts", "run.minutes"])
def test_the_schema_explains_every_kind_of_key(key: str) -> None:
    schema = json_schema()
    table = schema
    *sections, name = key.split(".")
    for section in sections:
        reference = table["properties"][section]
        target = reference.get("$ref") or reference["allOf"][0]["$ref"]
        table = schema["$defs"][target.rpartition("/")[2]]

    meaning = {row[0]: " ".join(row[1].split()) for row in field_rows()}[key]
    assert table["properties"][name]["description"] == meaning
