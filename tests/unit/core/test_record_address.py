"""Where a record is: a path or a database, and never with a password."""

from pathlib import Path

import pytest

from dart.config.config import ConfigError, load_config
from dart.core.errors import ConfigurationError
from dart.core.record_address import ServerAddress, parse_record_address
from dart.core.run_directory import RunPaths

DATABASE = "postgresql://trainer@db.example:5433/run_7?sslmode=verify-full"


@pytest.mark.parametrize("text", ["runs/laptop/store.db", "/var/50% of #1?mode=ro/store.db", DATABASE])
def test_an_address_is_read_back_from_its_text(text: str) -> None:
    address = parse_record_address(text)
    assert parse_record_address(str(address)) == address
    assert isinstance(address, ServerAddress) == text.startswith("postgresql")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://trainer:hunter2@db.example/run_7",
        "postgres://trainer:hunter2@db.example/run_7",
        "postgresql://db.example/run_7?user=trainer&password=hunter2",
        "postgresql://db.example/run_7?sslpassword=hunter2",
        "postgresql://db.example/run_7?oauth_client_secret=hunter2",
        "postgresql://trainer:hunter2/8@db.example/run_7",
        "postgresql://trainer:hunter2#8@db.example/run_7",
        "postgresql://trainer:hunter2?8@db.example/run_7",
        "postgresql://trainer:8/hunter2@db.example/run_7",
        "postgresql://trainer:8#hunter2@db.example/run_7",
        "postgresql://trainer:8?hunter2@db.example/run_7",
        "postgresql://trainer:hunter2@[db.example/run_7",
        "mysql://trainer:hunter2@db.example/run_7",
    ],
)
def test_an_address_with_a_password_is_refused_and_never_shown(address: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.record") as refused:
        load_config(None, [f"run.record={address!r}"])
    assert "hunter2" not in str(refused.value)


def test_the_remedy_for_a_password_is_named() -> None:
    with pytest.raises(ConfigError, match=r"holds a password.*\.pgpass.*PGPASSWORD"):
        load_config(None, ["run.record='postgresql://a:b@c/d'"])


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("mysql://db.example/run_7", "expected postgresql://USER@HOST:PORT/DATABASE, got 'mysql"),
        ("other.db", "expected postgresql://"),
        ("postgresql://db.example", "names no database"),
        ("postgresql://db.example/?sslmode=require", "names no database"),
    ],
)
def test_any_other_wrong_address_is_refused_with_what_is_expected(address: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        load_config(None, [f"run.record={address!r}"])


@pytest.mark.parametrize(
    "address",
    [
        "postgresql:///?service=runs",
        "postgresql://?host=/run/pg&dbname=run_7",
        "postgresql://a.example:5432,b.example,[::1]:5433/run_7?application_name=me@here",
        "postgresql://db.example:5432?dbname=run_7&user=me@here",
    ],
)
def test_a_database_may_be_named_by_a_parameter_or_a_service_file_and_hosts_have_ports(address: str) -> None:
    assert load_config(None, [f"run.record={address!r}"]).run.record == address


def test_a_run_directory_says_where_its_record_is(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    assert paths.record == tmp_path / "store.db"
    paths.config.write_text(load_config().to_toml())
    assert paths.record == tmp_path / "store.db"
    paths.config.write_text(load_config(None, [f"run.record={DATABASE!r}"]).to_toml())
    assert paths.record == ServerAddress(DATABASE)


def test_a_damaged_configuration_is_named_when_the_record_is_looked_for(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.config.write_text("run = [")
    with pytest.raises(ConfigurationError, match=r"config\.toml is damaged.*restore it"):
        _ = paths.record
