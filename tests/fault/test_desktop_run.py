"""The bundled job of local desktops, made small, by its real command: episodes are played and judged.

It needs what `make desktop` installs; `make test-desktop` runs it.
"""

from pathlib import Path

import pytest

from dart.core.run_directory import RunPaths
from dart.environments.desktop.requirements import missing_for_desktops
from dart.store.reader import StoreReader
from tests.real_command import train

_MISSING = missing_for_desktops()
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.timeout(700),
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed (make desktop): {', '.join(_MISSING)}"),
]

DEADLINE_S = 600.0
SMALL = (
    *("run.minutes=3", "environments.count=2", 'tasks.train=["desktop/editor-write"]'),
    *("training.groups_per_update=1", "training.updates=1", "web.enabled=false"),
)


def test_a_run_on_desktops_plays_and_judges_episodes_until_its_update(tmp_path: Path) -> None:
    ended = train("configs/desktop.toml", tmp_path, SMALL, deadline_s=DEADLINE_S)
    assert ended.returncode == 0, ended.stderr
    with StoreReader(RunPaths(tmp_path).store) as record:
        assert record.integrity(staleness_bound=1) == ()
        rewards = {reward for _, reward, _ in record.rewards_over_time()}
    assert rewards == {0.0, 1.0}  # a group is trained only if its episodes differ
    assert [file for file in (tmp_path / "crash").glob("env-*") if file.stat().st_size] == []
