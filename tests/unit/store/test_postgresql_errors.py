"""Which errors of PostgreSQL pass by themselves. They are raised by hand, so there is no server."""

import psycopg
import pytest

from dart.core.record_address import ServerAddress
from dart.store.errors import StoreBusy
from dart.store.postgresql import PostgresqlDatabase


@pytest.mark.parametrize("state", ["57P05", "57014", "25P04", "55P03", "08006"])
def test_what_the_server_ended_or_refused_for_now_is_tried_again(state: str) -> None:
    database = PostgresqlDatabase(ServerAddress("postgresql://user@db.example/run"))
    with (
        pytest.raises(StoreBusy, match=r"store postgresql://user@db\.example/run: .*ended there"),
        database.errors(),
    ):
        raise psycopg.errors.lookup(state)("ended there")
