"""How an oracle's episode is written down."""

import hashlib
import json
from pathlib import Path

from dart.core.actions import Click, Type
from dart.environments.miniwob.demonstrations import OracleEpisode, episode_record
from dart.environments.miniwob.oracles import ORACLES


def test_an_episode_keeps_the_screen_and_the_action(tmp_path: Path) -> None:
    steps = (
        (b"first", Click(3, 4)),
        (b"second", Type("x")),
        (b"first", Click(9, 9)),
    )
    record = episode_record(OracleEpisode("miniwob/enter-text", 7, "Type it.", steps, 1.0), tmp_path)
    assert json.loads(json.dumps(record))["steps"][0] == {
        "screenshot_sha256": hashlib.sha256(b"first").hexdigest(),
        "action": "click(start_box='(3,4)')",
    }


def test_a_screen_seen_twice_is_written_once(tmp_path: Path) -> None:
    step = (b"same", Click(3, 4))
    episode_record(OracleEpisode("miniwob/click-test", 7, "Click.", (step, step), 1.0), tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == b"same"


def test_there_are_oracles_for_at_least_twenty_tasks() -> None:
    assert len(ORACLES) >= 20
