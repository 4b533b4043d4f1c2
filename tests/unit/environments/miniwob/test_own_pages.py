"""Pages of one's own as tasks: their ids, their places, and what is said of a page that cannot be played."""

from pathlib import Path

import pytest

from dart.config.config import Config, ConfigError, load_config
from dart.environments.miniwob.own_pages import linked_pages, page_problems, tasks_of
from dart.environments.miniwob.pages import page_url

SHOP = Path(__file__).resolve().parents[4] / "examples" / "own_pages" / "shop.html"


def config_of(folder: Path, task: str = "miniwob/shop") -> Config:
    return load_config(None, [f"environments.miniwob.pages={folder}", f'tasks.train=["{task}"]'])


def page_without(folder: Path, text: str) -> Config:
    (folder / "shop.html").write_text(SHOP.read_text().replace(text, "..."))
    return config_of(folder)


def test_a_page_of_the_folder_is_a_task_beside_the_installed_ones() -> None:
    tasks = tasks_of(config_of(SHOP.parent))

    assert {"miniwob/shop", "miniwob/click-test"} <= set(tasks)
    assert list(page_problems(config_of(SHOP.parent))) == []


def test_a_page_stands_beside_the_installed_core_wherever_it_lies(tmp_path: Path) -> None:
    pages = linked_pages(config_of(SHOP.parent), tmp_path / "links")

    page = pages["miniwob/shop"]
    assert page_url("miniwob/shop", 7, pages) == f"{page.as_uri()}?seed=7"
    assert page.read_text() == SHOP.read_text()
    assert (page.parent.parent / "core" / "core.js").is_file()


def test_a_folder_beside_the_configuration_file_is_found_and_kept_with_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "shop.html").write_text(SHOP.read_text())
    file = tmp_path / "shop.toml"
    file.write_text('tasks.train = ["miniwob/shop"]\n[environments.miniwob]\npages = "own"\n')

    assert load_config(file).environments.miniwob.pages == str(tmp_path / "own")


def test_without_own_pages_a_configuration_is_read_in_a_folder_that_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert load_config(None, [f"run.dir={tmp_path}"]).environments.miniwob.pages == ""


def test_hidden_files_are_no_pages(tmp_path: Path) -> None:
    for name in ("shop.html", "._shop.html", ".html"):
        (tmp_path / name).write_text(SHOP.read_text())

    assert set(tasks_of(config_of(tmp_path))) - set(tasks_of(load_config())) == {"miniwob/shop"}


def test_without_a_folder_nothing_is_linked(tmp_path: Path) -> None:
    assert linked_pages(load_config(), tmp_path / "links") == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("../core/core.js", "does not load core.js: add <script"),
        ("genProblem", "has no genProblem: define"),
        ("startEpisode", "never calls core.startEpisode: call it in window.onload"),
        ("endEpisode", "never calls core.endEpisode, so no episode ends"),
        ('id="query"', 'add <div id="query"></div>'),
    ],
)
def test_what_a_page_lacks_is_named_with_the_remedy(tmp_path: Path, text: str, said: str) -> None:
    (problem,) = page_problems(page_without(tmp_path, text))

    assert f"{tmp_path / 'shop.html'} " in problem
    assert said in problem


def test_a_script_beside_the_page_may_have_what_the_page_needs(tmp_path: Path) -> None:
    config = page_without(tmp_path, "core.endEpisode(name === 'Buy' ? 1 : -1)")
    page = tmp_path / "shop.html"
    page.write_text(page.read_text().replace("<style>", '<script src="ends.js"></script><style>'))
    (tmp_path / "ends.js").write_text("core.endEpisode(1)")

    assert list(page_problems(config)) == []


def test_a_page_that_is_not_trained_on_may_be_unfinished(tmp_path: Path) -> None:
    (tmp_path / "draft.html").touch()

    assert list(page_problems(page_without(tmp_path, "no such text"))) == []


def test_a_folder_without_pages_is_refused_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"environments\.miniwob\.pages is wrong: there is no page in"):
        config_of(tmp_path / "missing")


def test_a_page_with_the_name_of_an_installed_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "click-test.html").touch()

    with pytest.raises(ConfigError, match=r"click-test\.html has the name of an installed page: rename"):
        config_of(tmp_path, "miniwob/click-test")
