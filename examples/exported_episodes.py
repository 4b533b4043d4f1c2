"""Reads the episodes that `dartrl trajectories export --jsonl FILE` has written, one at a time."""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path


def main(file: str) -> None:
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    answers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with Path(file).open(encoding="utf-8") as lines:
        for line in lines:
            episode = json.loads(line)["trajectory"]
            rewards[episode["task_id"]].append(episode["reward"])
            answers[episode["task_id"]].update(step["answer"] for step in episode["steps"])
    for task, values in sorted(rewards.items()):
        ((answer, times),) = answers[task].most_common(1)
        mean = sum(values) / len(values)
        print(f"{task}: {len(values)} episodes, mean reward {mean:.2f}, {times} times {answer}")


if __name__ == "__main__":
    main(sys.argv[1])
