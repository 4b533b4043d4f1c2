"""What the benchmark of exploration keeps, goes on with and joins; no browser."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import exploration
from benchmarks.exploration import (
    Walk,
    area_under,
    differences,
    each_once,
    joined,
    main,
    measured_before,
    read_walks,
    rows_of,
    written,
)


def made(task: str = "sites/shop/explore", arm: str = "random", seed: int = 0, found: int = 9) -> Walk:
    return Walk(task, arm, seed, truth=[(0, 0), (5, 2), (100, found)], states=97, screens=found)


def file_of(path: Path, *walks: Walk, actions: int = 100) -> Path:
    written(path, actions, walks)
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    walks = [made(), made(arm="memory_q")]
    assert read_walks(file_of(tmp_path / "out.json", *walks)) == (100, walks)


def test_an_older_file_is_read_without_the_arms_that_it_could_not_run(tmp_path: Path) -> None:
    old = [asdict(made()) | {"not_run": ""}, asdict(made(arm="memory_q+model")) | {"not_run": "too large"}]
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"actions": 100, "rows": [], "walks": old}))
    assert read_walks(path) == (100, [made()])


def test_a_file_without_walks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps({"pairs": 3}))
    with pytest.raises(SystemExit, match=r"pairs\.json holds no walks"):
        read_walks(path)


def test_joined_files_have_each_walk_once_and_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = file_of(tmp_path / "shop.json", made(), made(seed=1, found=11))
    mail = file_of(tmp_path / "mail.json", made("sites/mail/explore"), made(found=50))
    assert main(["--join", str(shop), str(mail), "--out", str(tmp_path / "all.json")]) == 0
    assert read_walks(tmp_path / "all.json") == (
        100,
        [made(), made(seed=1, found=11), made("sites/mail/explore")],
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| sites/shop/explore", "| sites/mail/explore"]
    assert "10.0 ± 12.7 of 97" in lines[2]


def test_walks_of_two_lengths_are_not_joined(tmp_path: Path) -> None:
    short, long = file_of(tmp_path / "a", made()), file_of(tmp_path / "b", made(), actions=800)
    with pytest.raises(SystemExit, match=r"got 100 in .*a, 800 in .*b"):
        joined([short, long])


def test_arms_that_a_task_lacks_have_no_row() -> None:
    walks = [made(), made("sites/mail/explore", "memory_q")]
    rows = [(row["task"], row["arm"]) for row in rows_of(walks, [100])]
    assert rows == [("sites/shop/explore", "random"), ("sites/mail/explore", "memory_q")]


def test_the_first_of_two_walks_of_one_seed_counts() -> None:
    assert each_once([made(found=3), made(found=4), made(seed=1)]) == [made(found=3), made(seed=1)]


def test_a_measurement_goes_on_where_it_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, run = file_of(tmp_path / "out.json", made(seed=0), made("sites/mail/explore")), []

    async def walk(task_id: str, arm: str, seed: int, actions: int, folder: Path) -> Walk:
        run.append((task_id, arm, seed, actions))
        return made(task_id, arm, seed)

    monkeypatch.setattr(exploration, "walk", walk)
    chosen = ["--tasks", "sites/shop/explore", "--arms", "random", "memory_q", "--actions", "100"]
    assert main([*chosen, "--seeds", "2", "--out", str(out)]) == 0
    shop: list[tuple[Any, ...]] = [("random", 1), ("memory_q", 0), ("memory_q", 1)]
    assert sorted(run) == sorted(("sites/shop/explore", arm, seed, 100) for arm, seed in shop)
    assert len(read_walks(out)[1]) == 5


def test_walks_of_another_length_are_not_written_over(tmp_path: Path) -> None:
    out = file_of(tmp_path / "out.json", made(), actions=800)
    with pytest.raises(SystemExit, match="holds walks of 800 actions and these are of 100; name another"):
        measured_before(out, 100)
    assert measured_before(tmp_path / "new.json", 100) == []


def test_arms_are_compared_with_random_exploration_over_tasks() -> None:
    walks = [
        *(made(), made(arm="memory_q", found=29), made("sites/mail/explore", "memory_q", found=50)),
        *(made("sites/forum/explore"), made("sites/forum/explore", "memory_q", found=9)),
    ]
    fewer, more = (next(rows_of([walk], (100,)))["auc_100"][0] for walk in walks[:2])

    last = differences(list(rows_of(walks, (100,))), (100,)).splitlines()[-1]

    assert last.startswith(f"| memory_q | 2 | {(more - fewer) / 2:.1f} ± ")


def test_the_area_is_the_mean_count_over_the_actions() -> None:
    assert area_under([(0, 0), (2, 1), (6, 3)], actions=8) == pytest.approx((0 * 2 + 1 * 4 + 3 * 2) / 8)
    assert area_under([(0, 0), (2, 1), (60, 3)], actions=4) == pytest.approx(2 / 4)


def test_an_area_needs_actions() -> None:
    with pytest.raises(ValueError, match="at least one action, got 0"):
        area_under([(0, 0)], actions=0)
