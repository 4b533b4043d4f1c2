"""Names what a run of CI left out: `python .ci/not_run.py FOLDER`, with the reports and logs of its stages.

A test that one stage skipped and another ran counts as run. What a stage says it left out is repeated.
"""

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path


def outcomes(report: Path) -> tuple[set[str], dict[str, str]]:
    """The tests of one report that ran, and those that were skipped with the reason of each."""
    ran, skipped = set(), {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}".strip(".")
        found = case.find("skipped")
        if found is None:
            ran.add(name)
        else:
            skipped[name] = found.get("message") or "no reason given"
    return ran, skipped


def left_out(reports: list[Path]) -> dict[str, set[str]]:
    """By reason: the tests that no stage ran."""
    every = [outcomes(report) for report in reports]
    ran = {name for names, _ in every for name in names}
    modules = {name.rpartition(".")[0] for name in ran}
    by_reason: dict[str, set[str]] = defaultdict(set)
    for _, skipped in every:
        for name, reason in skipped.items():
            if name not in ran and name not in modules:
                by_reason[reason].add(name)
    return by_reason


def words(log: Path) -> list[str]:
    """What a stage itself says it did not run."""
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if "NOT RUN" in line or line.startswith("setup-vllm: SKIPPED")]


def main() -> None:
    folder = Path(sys.argv[1])
    reports = sorted(folder.glob("*.xml"))
    print(f"{len({name for report in reports for name in outcomes(report)[0]})} tests ran")
    for reason, names in sorted(left_out(reports).items()):
        print(
            f"NOT RUN: {len(names)} tests, {reason}: {', '.join(sorted(names)[:3])}{' …' * (len(names) > 3)}"
        )
    for line in dict.fromkeys(line for log in sorted(folder.glob("*.log")) for line in words(log)):
        print(line)
    print("NOT RUN: the long forms of the benchmarks (docs/benchmarks.md), and anything on a GPU")


if __name__ == "__main__":
    main()
