"""The pages for scrapers and health checks, served alone."""

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dart.core.run_directory import RunPaths
from dart.web.auth import open_access
from dart.web.scrape_pages import scrape_app
from dart.web.server import own_names
from tests.recorded_run import record_run

LOCAL = "http://localhost:9109"


@pytest.fixture
def scraper(recorded: RunPaths) -> Iterator[TestClient]:
    with TestClient(scrape_app(recorded, open_access("127.0.0.1")), base_url=LOCAL) as opened:
        yield opened


def test_the_pages_are_served_and_nothing_else_is(scraper: TestClient) -> None:
    metrics = scraper.get("/metrics")

    assert metrics.status_code == 200
    assert "dartrl_updates_total" in metrics.text
    assert metrics.headers["content-type"].startswith("text/plain; version=")
    codes = [scraper.get(path).status_code for path in ("/livez", "/readyz", "/store.db", "/%2e%2e/key", "/")]
    assert codes == [503, 503, 404, 404, 404]
    assert scraper.get("/store.db").text == "the pages are /metrics, /livez, /readyz\n"
    assert scraper.post("/metrics").status_code == 405


def test_a_run_without_a_record_is_an_answer_and_no_crash(tmp_path: Path) -> None:
    with TestClient(scrape_app(RunPaths(tmp_path), open_access("127.0.0.1")), base_url=LOCAL) as scraper:
        answer = scraper.get("/metrics")

    assert answer.status_code == 503
    assert "it appears when the run starts" in answer.text


def test_a_foreign_name_that_resolves_to_this_machine_cannot_read_the_metrics(scraper: TestClient) -> None:
    rebound = {"host": "rebound.evil.example:9109", "origin": "http://rebound.evil.example:9109"}

    answers = [scraper.get(path, headers=rebound) for path in ("/metrics", "/livez", "/readyz", "/")]

    assert [answer.status_code for answer in answers] == [421] * 4
    assert "allow it with --allow-host" in answers[0].text
    foreign = scraper.get("/metrics", headers={"origin": "http://evil.example"})
    assert foreign.status_code == 403
    assert "dartrl_" not in foreign.text


@pytest.mark.parametrize(
    ("listens_at", "host", "status"),
    [
        ("0.0.0.0", "192.0.2.7:9109", 200),
        ("::", "[2001:db8::7]:9109", 200),
        ("0.0.0.0", f"{socket.gethostname()}:9109", 200),
        ("0.0.0.0", "Scraped.example:9109", 200),
        ("trainer.example", "trainer.example:9109", 200),
        ("0.0.0.0", "evil.example:9109", 421),
        ("127.0.0.1", "127.0.0.1:9109", 200),
        ("127.0.0.1", "192.0.2.7:9109", 421),
    ],
)
def test_prometheus_reads_by_address_or_by_a_known_name(
    recorded: RunPaths, listens_at: str, host: str, status: int
) -> None:
    access = open_access(listens_at, [*own_names(listens_at), "scraped.example"])
    with TestClient(scrape_app(recorded, access), base_url=LOCAL) as scraper:
        assert scraper.get("/metrics", headers={"host": host}).status_code == status


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_command_names_its_address_and_ends_at_ctrl_c(tmp_path: Path, host: str) -> None:
    if host == "[::1]" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    run = record_run(tmp_path / "run")
    command = [sys.executable, "-m", "dart", "metrics", "--run-dir", str(run.root), "--listen", f"{host}:0"]
    command += ["--allow-host", "scraped.example"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = server.stderr.readline().split()[-1]
        assert url.startswith(f"http://{host}:")
        named = urllib.request.Request(f"{url}metrics", headers={"Host": "scraped.example:9109"})
        for asked in (f"{url}metrics", named):
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert b"dartrl_updates_total" in answer.read()
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == 0
