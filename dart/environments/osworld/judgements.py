"""What is kept of each evaluation in a run: its score, who gave it, and all that it read.

``judgements/<environment>.jsonl`` of the run directory has a line for each score, with the version of the
evaluators, the hash of the task's file and the episode. What was read lies beside it by its hash, so that the
same episode can be judged again by another version (`RecordedAnswers`).
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from dart.environments.faults import EvaluatorFailed
from dart.environments.osworld.guest_answers import FILE, LOOK
from dart.environments.osworld.judging import Judgement
from dart.environments.protocol import EpisodeKey
from dart.store.blobs import BlobKind, FolderBlobs

FOLDER, READ = "judgements", "read"

READINGS = BlobKind(
    name="answer of a guest",
    folder=READ,
    prefix=READ,
    suffix=".answer",
    without="the episode cannot be judged again",
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A judgement and the episode that it is about."""

    judgement: Judgement
    task_id: str
    seed: int
    key: EpisodeKey


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReading:
    """A question of an evaluation; the answer is the blob ``sha256``, a msgpack value."""

    question: str
    arguments: Mapping[str, Any]
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptJudgement:
    """One line of a file of judgements."""

    unix_s: float
    environment: str
    task_id: str
    seed: int
    rollout_id: int
    """Id of the rollout; 0 for an evaluation."""
    attempt: int
    fence: int
    score: float
    evaluator: str
    task_sha256: str
    readings: tuple[KeptReading, ...]


class JudgementLog:
    """Writes the judgements of one environment."""

    def __init__(self, run_dir: Path, environment: str, unix_s: Callable[[], float] = time.time) -> None:
        self._folder = run_dir / FOLDER
        self._environment = environment
        self._unix_s = unix_s
        self._blobs = FolderBlobs(self._folder / READ, READINGS)

    def add(self, judged: Judged) -> None:
        """Write a judgement, what it read first. Raises StoreUnavailable or OSError when the disk refuses."""
        judgement = judged.judgement
        kept = KeptJudgement(
            unix_s=self._unix_s(),
            environment=self._environment,
            task_id=judged.task_id,
            seed=judged.seed,
            score=judgement.score,
            evaluator=judgement.evaluator,
            task_sha256=judgement.task_sha256,
            readings=tuple(
                KeptReading(
                    question=one.question,
                    arguments=one.arguments,
                    sha256=self._blobs.put(msgspec.msgpack.encode(one.answer)),
                )
                for one in judgement.readings
            ),
            **asdict(judged.key),
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{self._environment}.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(kept) + b"\n")


def read_judgements(run_dir: Path) -> Iterator[KeptJudgement]:
    """Yield the judgements of a run, by environment and in the order in which they were given.

    The last line of a file whose writer was killed may be cut off; it is left out."""
    for path in sorted((run_dir / FOLDER).glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield msgspec.json.decode(line, type=KeptJudgement)


class RecordedAnswers:
    """The answers that an evaluation got, for another evaluation of the same episode.

    The same question gets the answers in their order, and the last one again. Another version may ask what
    this one did not: such an episode cannot be judged again."""

    def __init__(self, run_dir: Path, kept: KeptJudgement) -> None:
        self.lacks: list[str] = []
        self._task_id = kept.task_id
        self._blobs = FolderBlobs(run_dir / FOLDER / READ, READINGS)
        self._files = {one.arguments["name"]: one.sha256 for one in kept.readings if one.question == FILE}
        self._answers: defaultdict[bytes, deque[str]] = defaultdict(deque)
        for one in kept.readings:
            self._answers[_key(one.question, one.arguments)].append(one.sha256)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files that lay in the cache folder of the evaluators."""
        for name, sha256 in self._files.items():
            yield name, msgspec.msgpack.decode(self._blobs.read(sha256))

    async def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        if question == LOOK:
            return None
        answers = self._answers.get(_key(question, arguments))
        if not answers:
            why = f"the evaluator asks what was not read when the episode was played: {question} {arguments}"
            raise EvaluatorFailed(self._task_id, why)
        sha256 = answers.popleft() if len(answers) > 1 else answers[0]
        answer = msgspec.msgpack.decode(self._blobs.read(sha256))
        if answer is None or (isinstance(answer, dict) and answer.get("status", 200) != 200):
            self.lacks.append(question)
        return answer


def _key(question: str, arguments: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode([question, dict(sorted(arguments.items()))])
