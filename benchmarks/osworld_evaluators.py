"""OSWorld's evaluators in the sandbox beside the same functions called directly, over a corpus of cases.

::

    python -m benchmarks.osworld_evaluators                  all cases; 0 differences are expected
    python -m benchmarks.osworld_evaluators --every 50       every 50th case
    python -m benchmarks.osworld_evaluators --other FOLDER   what another folder with ``desktop_env`` changes
    python -m benchmarks.osworld_evaluators --out FILE       the counts and every difference as JSON, too

A case goes the whole way of an evaluation: the task's order to the child, its getters, files through this
process, the metric, and the rules of `dart.environments.osworld.judging`. Direct calls have none of that.
They must agree on every score. Where a direct call raises, the evaluation either fails (it is counted and no
score), or is worth 0 because the guest lacks a file.
"""

import argparse
import asyncio
import itertools
import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dart.environments.deadlines import counting_down
from dart.environments.faults import EnvironmentFault, TaskUnsupported
from dart.environments.osworld.judging import ChildEvaluation
from dart.environments.osworld.scoring_environment import ScoringEnvironment, find_evaluators
from dart.environments.osworld.scoring_process import scoring_process
from dart.environments.osworld.tasks import parse_task

CORPUS = Path(__file__).with_name("osworld_corpus.py")
CASES = "cases.json"
CASES_OF_A_CHILD = 200
DIFFERENT = "DIFFERENT"
CASE_DEADLINE_S = 600.0
"""A case takes a fraction of a second; a busy machine must not end it."""

CHILDREN = 3
EXAMPLES = 20
"""Number of differences that are printed."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many cases were compared, and with what result."""

    evaluators: str
    cases: int
    functions: int
    relations: Mapping[str, int]


class CorpusAnswers:
    """Answers from the folder of the corpus, in place of a guest and of the network."""

    def __init__(self, folder: Path) -> None:
        self.lacks: list[str] = []
        self._folder = folder

    def files(self) -> Iterator[tuple[str, bytes]]:
        yield from ()

    async def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        if question == "fetch":
            return {"status": 200, "body": (self._folder / arguments["url"].rpartition("/")[2]).read_bytes()}
        if question == "file" and (path := self._folder / arguments["path"]).is_file():
            return path.read_bytes()
        self.lacks += [question] if question == "file" else []
        return None


def task_of(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a case as the JSON value of a task file."""
    evaluator = {"func": case["function"], "result": _look(case["result"]), "options": case["options"]}
    if "expected" in case:
        expected = _look(case["expected"])
        if "file" in case["expected"]:
            expected |= {"type": "cloud_file", "path": f"https://corpus.example/{expected['path']}"}
        evaluator["expected"] = expected
    return {"instruction": "Judge a case.", "evaluator": evaluator}


def _look(value: Mapping[str, Any]) -> dict[str, Any]:
    if "rule" in value:
        return {"type": "rule", "rules": value["rule"]}
    name = value.get("file", "missing")
    return {"type": "vm_file", "path": name, "dest": name}


async def evaluate(cases: Sequence[Any], folder: Path, scoring: ScoringEnvironment) -> list[Any]:
    """Return a score, or what came in its place, for each case; one child for `CASES_OF_A_CHILD` of them."""
    found: list[Any] = []
    while len(found) < len(cases):
        async with scoring_process(scoring, None) as process:
            for case in cases[len(found) :][:CASES_OF_A_CHILD]:
                task = parse_task("corpus", task_of(case))
                answers = CorpusAnswers(folder)
                evaluation = ChildEvaluation(task, process, answers, [])
                try:
                    score = await evaluation.score({}, counting_down(CASE_DEADLINE_S))
                except TaskUnsupported as error:
                    found.append(f"left out {error}")
                except EnvironmentFault as error:
                    found.append(f"fails {error}")
                    if "evaluator broke" not in str(error):
                        break  # the child is gone
                else:
                    found.append("nan" if math.isnan(score) else score)
        print(f"{len(found)} of {len(cases)}", file=sys.stderr)
    return found


def compared(direct: Any, judged: Any, lacks: bool) -> str:
    """Return how an evaluation relates to the direct call of its metric."""
    if isinstance(judged, str) and judged.startswith("left out"):
        return "left out, a library is not installed"
    raises = isinstance(direct, str) and direct.startswith("raises")
    if not raises:
        return "the same score" if direct == judged else DIFFERENT
    if isinstance(judged, str) and judged.startswith("fails"):
        return "raises: no score"
    return "raises over a missing file: 0" if lacks and judged == 0.0 else DIFFERENT


def call_directly(scoring: ScoringEnvironment, folder: Path, packages: Path | None = None) -> list[Any]:
    """Call all metrics of the corpus under the evaluators' Python."""
    results = folder / f"results-{packages is not None}.json"
    others = [str(packages)] if packages else []
    command = [str(scoring.python), str(CORPUS), "call", str(folder), str(results), *others]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found: list[Any] = json.loads(results.read_text())
    return found


async def in_children(cases: Sequence[Any], folder: Path, scoring: ScoringEnvironment) -> list[Any]:
    """Evaluate all cases, in `CHILDREN` at a time."""
    size = math.ceil(len(cases) / CHILDREN)
    parts = [cases[start : start + size] for start in range(0, len(cases), size)]
    found = await asyncio.gather(*(evaluate(part, folder, scoring) for part in parts))
    return list(itertools.chain(*found))


async def in_both_ways(
    cases: Sequence[Any], folder: Path, scoring: ScoringEnvironment
) -> tuple[list[Any], list[Any]]:
    """Call all metrics directly, and evaluate all cases beside it."""
    directly = asyncio.to_thread(call_directly, scoring, folder)
    direct, judged = await asyncio.gather(directly, in_children(cases, folder, scoring))
    return direct, judged


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.osworld_evaluators")
    parser.add_argument("--evaluators", type=Path, default=Path(".venv-osworld-score"))
    parser.add_argument("--every", type=int, default=1, help="take every Nth case")
    parser.add_argument("--other", type=Path, help="folder with another desktop_env, to say what it changes")
    parser.add_argument("--corpus", type=Path, help="folder for the corpus; a temporary one by default")
    parser.add_argument("--out", type=Path, help="file for the counts and all differences, as JSON")
    options = parser.parse_args(arguments)
    scoring = find_evaluators(options.evaluators)
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.corpus or Path(temporary)
        subprocess.run([str(scoring.python), str(CORPUS), "make", str(folder)], check=True)
        cases = json.loads((folder / CASES).read_text())[:: options.every]
        (folder / CASES).write_text(json.dumps(cases))
        if options.other:
            direct, judged = (call_directly(scoring, folder, other) for other in (None, options.other))
            relations = [
                "the same" if one == other else DIFFERENT for one, other in zip(direct, judged, strict=True)
            ]
        else:
            direct, judged = asyncio.run(in_both_ways(cases, folder, scoring))
            relations = [
                compared(one, other, "missing" in case["result"])
                for one, other, case in zip(direct, judged, cases, strict=True)
            ]
    differences = [row for row in zip(relations, cases, direct, judged, strict=True) if row[0] == DIFFERENT]
    counts = counted(scoring.name, cases, relations)
    report(counts, differences)
    if options.out:
        found = {**asdict(counts), "differences": [row[1:] for row in differences]}
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if DIFFERENT in relations and not options.other else 0


def counted(evaluators: str, cases: Sequence[Any], relations: Sequence[str]) -> Counts:
    functions = {case["function"] for case in cases}
    return Counts(evaluators, len(cases), len(functions), dict(Counter(relations).most_common()))


def report(counts: Counts, differences: Sequence[Sequence[Any]]) -> None:
    """Print the counts, and the first differences."""
    print(f"{counts.evaluators}: {counts.cases} cases of {counts.functions} functions")
    for relation, count in counts.relations.items():
        print(f"  {count:6}  {relation}")
    for _, case, one, other in differences[:EXAMPLES]:
        print(json.dumps(case)[:200], "|", one, "|", str(other)[:160])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
