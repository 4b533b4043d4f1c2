"""The program that finds in a guest whether there is a network, against sockets of this computer."""

import socket
from collections.abc import Iterator

import pytest

from dart.environments.osworld.guest_network import CONNECTS, Host, host_of


@pytest.fixture
def listening() -> Iterator[Host]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "127.0.0.1", server.getsockname()[1]


@pytest.fixture
def silent() -> Iterator[Host]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield "127.0.0.1", bound.getsockname()[1]


def printed(hosts: list[Host], capsys: pytest.CaptureFixture[str]) -> str:
    exec(CONNECTS.format(hosts=hosts, connect_s=5.0, within_s=10.0), {})
    return capsys.readouterr().out.strip()


def test_one_host_that_answers_is_enough(
    listening: Host, silent: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed([silent, listening], capsys) == "True"


def test_hosts_that_refuse_or_have_no_valid_name_are_not_reached(
    silent: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed([silent, ("x" * 100, 443)], capsys) == "False"


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("https://a.example/x#y", [("a.example", 443)]),
        ("http://a.example:8080", [("a.example", 8080)]),
        ("www.a.example/x", [("www.a.example", 80)]),
        ("http://localhost:8000/", []),
        ("http://127.0.0.2/", []),
        ("https://[::1]/", []),
        ("file:///home/user/x.html", []),
        ("chrome://settings", []),
    ],
)
def test_pages_of_the_machine_itself_need_no_network(address: str, hosts: list[Host]) -> None:
    assert list(host_of(address)) == hosts
