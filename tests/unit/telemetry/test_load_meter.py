"""How busy an actor was."""

from dart.telemetry.load_meter import LoadMeter


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_seconds_add_up_by_activity_and_what_still_runs_counts() -> None:
    time = Time()
    meter = LoadMeter(time)
    with meter.during("in_episode_s"):
        time.now_s += 3
        with meter.during("strict_s"):
            time.now_s += 2
    meter.weigh("in_episode_s", 1.0)
    time.now_s += 5

    assert meter.totals() == {"in_episode_s": 10.0, "strict_s": 2.0, "wall_s": 10.0}


def test_a_partly_filled_engine_counts_its_share() -> None:
    time = Time()
    meter = LoadMeter(time)
    for in_flight, lasts_s in ((4, 1.0), (2, 1.0), (0, 1.0)):
        meter.weigh("weighted_s", in_flight / 4)
        time.now_s += lasts_s
    meter.add("requests", 3)

    assert meter.totals() == {"weighted_s": 1.5, "requests": 3.0, "wall_s": 3.0}
