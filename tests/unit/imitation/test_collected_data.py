"""The data of `dartrl pretrain`: what a call that failed leaves to the next one. No browser plays here."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.core.screenspot import GroundingDataError
from dart.environments.faults import PageHung
from dart.imitation import pretrain as job
from dart.imitation.pretrain import PretrainConfig, main_job
from dart.preflight import requirements

CONFIG = PretrainConfig(episodes=(("miniwob/click-test", 2), ("miniwob/focus-text", 1)))


class Trained(Exception):
    """The data is there and a policy would be trained on it."""


def trained(config: PretrainConfig, folder: Path, report: object) -> Any:
    raise Trained(folder)


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of episodes of the collections that were made; the second one fails."""
    counts: list[int] = []

    def collect(kind: object, tasks: object, count: int, folder: Path, **_: object) -> None:
        counts.append(count)
        with (folder / "demonstrations.jsonl").open("a") as file:
            file.write(f"{count}\n")
        if len(counts) == 2:
            raise PageHung("step", 60.0)

    monkeypatch.setattr(job, "collect", collect)
    monkeypatch.setattr(job, "pretrain", trained)
    return counts


def test_data_of_an_earlier_call_is_not_collected_again(tmp_path: Path, collected: list[int]) -> None:
    (tmp_path / "demonstrations").mkdir()
    said: list[str] = []

    with pytest.raises(Trained, match="demonstrations"):
        main_job(CONFIG, tmp_path, report=said.append)
    assert collected == []
    assert said == [f"using the data in {tmp_path / 'demonstrations'}"]


def test_a_collection_that_failed_is_made_anew_and_leaves_nothing(
    tmp_path: Path, collected: list[int]
) -> None:
    folder = tmp_path / "policy" / "demonstrations"
    with pytest.raises(PageHung):
        main_job(CONFIG, folder.parent, report=lambda _: None)
    assert not folder.exists()

    with pytest.raises(Trained):
        main_job(CONFIG, folder.parent, report=lambda _: None)
    assert [one.name for one in folder.parent.iterdir()] == ["demonstrations"]
    assert (folder / "demonstrations.jsonl").read_text() == "1\n2\n"


def test_the_command_says_that_it_can_be_repeated_after_a_browser_failed(
    tmp_path: Path, collected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "require_installation", lambda *_, **__: None)
    words = ("--task", "miniwob/click-test", "--out", str(tmp_path / "policy"))
    collected.append(0)
    result = CliRunner().invoke(app, ["pretrain", *words])

    assert result.exit_code == 75
    told = " ".join(result.stderr.split())
    assert "the page did not respond during step within 60 s" in told
    assert "repeat the command" in told


def test_data_for_a_policy_that_does_not_read_is_refused_for_one_that_does(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "demonstrations.jsonl").touch()
    config = PretrainConfig(episodes=(), pages=1, drawn_pages=1, read_pages=1)

    with pytest.raises(GroundingDataError, match=r"words\.jsonl.*without --demonstrations"):
        job.pretrain(config, data, lambda _: None)
