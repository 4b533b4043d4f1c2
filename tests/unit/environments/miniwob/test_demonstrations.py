"""How an oracle's episode is written down."""

import hashlib
import json
from pathlib import Path

from dart.core.actions import Click, Type
from dart.environments.browser.demonstrations import OracleEpisode, episode_record
from dart.environments.miniwob.oracles import ORACLES


def test_an_episode_keeps_the_screen_and_the_action(tmp_path: Path) -> None:
    steps = (
        (b"first", Click(3, 4), [1.0, 2.0, 8.5, 9.0]),
        (b"second", Type("x"), None),
        (b"first", Click(9, 9), None),
    )
    record = episode_record(OracleEpisode("miniwob/enter-text", 7, "Type it.", steps, 1.0), tmp_path)
    first, second, _ = json.loads(json.dumps(record))["steps"]
    assert first == {
        "screenshot_sha256": hashlib.sha256(b"first").hexdigest(),
        "action": "click(start_box='(3,4)')",
        "box": [1.0, 2.0, 8.5, 9.0],
    }
    assert "box" not in second


def test_a_screen_seen_twice_is_written_once(tmp_path: Path) -> None:
    step = (b"same", Click(3, 4), None)
    episode_record(OracleEpisode("miniwob/click-test", 7, "Click.", (step, step), 1.0), tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == b"same"


def test_there_are_oracles_for_at_least_twenty_tasks() -> None:
    assert len(ORACLES) >= 20
