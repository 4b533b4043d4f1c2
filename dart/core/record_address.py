"""Where the record of a run is: in a file (SQLite), or in a database of a PostgreSQL server."""

import reprlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, urlsplit

SCHEMES = ("postgresql", "postgres")
SECRETS = ("password", "sslpassword", "oauth_client_secret")
"""Parameters of a URI that hold passwords."""
NAMES_DATABASE = ("dbname", "service")
"""Parameters of a URI that name the database if the path does not."""

NO_PASSWORD = (
    "it holds a password, which would be kept in config.toml, logs and the list of processes: leave it out, "
    "and give it in ~/.pgpass (PGPASSFILE), in PGPASSWORD or in a service file"
)

_QUOTED = reprlib.Repr()
_QUOTED.maxstring = 160


def _shown(uri: str) -> str:
    """Return an address in quotes for a message, with its middle left out if it is long."""
    return _QUOTED.repr(uri)


def _is_cut(parts: SplitResult) -> bool:
    """Whether a password with an unescaped /, ? or # has ended the part with user, password and host.

    Its beginning then looks like a port, and its end, with the real host, like a path.
    """
    query = "" if parts.path else parts.query.partition("=")[0]
    return ":" in parts.netloc and "@" in f"{parts.path}{query}{parts.fragment}"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A database of a PostgreSQL server, given by a URI of libpq without a password.

    https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS
    Raises ValueError for any other text. Its message never quotes an address with a password.
    """

    uri: str

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.uri)
            given = parse_qs(parts.query)
        except ValueError as error:
            raise ValueError(f"it is no address: {error}") from error
        if parts.password is not None or _is_cut(parts) or any(name in given for name in SECRETS):
            raise ValueError(NO_PASSWORD)
        if parts.scheme not in SCHEMES:
            raise ValueError(f"expected postgresql://USER@HOST:PORT/DATABASE, got {_shown(self.uri)}")
        if not parts.path.strip("/") and not any(name in given for name in NAMES_DATABASE):
            raise ValueError(
                "it names no database: expected postgresql://USER@HOST:PORT/DATABASE, got "
                f"{_shown(self.uri)}; "
                "each run has a database of its own"
            )

    def __str__(self) -> str:
        return self.uri


RecordAddress = Path | ServerAddress
"""The address of a record. `parse_record_address` makes an equal address from its text."""


def parse_record_address(text: str) -> RecordAddress:
    """Read an address from its text: a URI of a PostgreSQL database, else a path. Raises ValueError."""
    return ServerAddress(text) if "://" in text else Path(text)
