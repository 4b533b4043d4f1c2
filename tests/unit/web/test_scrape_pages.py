"""The pages for scrapers and health checks, served alone."""

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dart.core.run_directory import RunPaths
from dart.web.scrape_pages import scrape_app
from tests.recorded_run import record_run


@pytest.fixture
def scraper(recorded: RunPaths) -> Iterator[TestClient]:
    with TestClient(scrape_app(recorded)) as opened:
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
    with TestClient(scrape_app(RunPaths(tmp_path))) as scraper:
        answer = scraper.get("/metrics")

    assert answer.status_code == 503
    assert "it appears when the run starts" in answer.text


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_command_names_its_address_and_ends_at_ctrl_c(tmp_path: Path, host: str) -> None:
    if host == "[::1]" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    run = record_run(tmp_path / "run")
    command = [sys.executable, "-m", "dart", "metrics", "--run-dir", str(run.root), "--listen", f"{host}:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = server.stderr.readline().split()[-1]
        assert url.startswith(f"http://{host}:")
        with urllib.request.urlopen(f"{url}metrics", timeout=60) as answer:
            assert b"dartrl_updates_total" in answer.read()
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == 0
