"""Keeps each judgement of a run: the score, the version of the evaluators, and all answers that they read.

``judgements/<environment>.jsonl`` of the run directory has a line for each score, with the version of the
evaluators, the hash of the task's file and the episode. The folder ``judgements/read`` has the answers as
blobs. With them, another version of the evaluators can judge the same episode again (`RecordedAnswers`). Of
getters that read pages of a browser, the values are kept (`dart.environments.osworld.page_calls`).
"""

import json
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgpack
import msgspec

from dart.core.run_directory import append_line
from dart.environments.faults import EvaluatorFailed
from dart.environments.osworld.guest_answers import CALL, FILE, LACK, LOOK
from dart.environments.osworld.judging import Judgement
from dart.environments.osworld.scoring_child import ERRORS
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
        """Write the answers that a judgement is based on, then its line.

        Raises StoreUnavailable or OSError when the disk refuses; then no part of the line is written."""
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
                    sha256=self._blobs.put(_packed(one.answer)),
                )
                for one in judgement.readings
            ),
            **asdict(judged.key),
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        append_line(self._folder / f"{self._environment}.jsonl", _json(kept))


def read_judgements(run_dir: Path) -> Iterator[KeptJudgement]:
    """Yield the judgements of a run, by environment and in the order in which they were given.

    A line that was cut off when its writer was killed is left out."""
    for path in sorted((run_dir / FOLDER).glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                read = json.loads(line)
            except ValueError:
                continue
            yield msgspec.convert(read, KeptJudgement)


class RecordedAnswers:
    """The recorded answers of an evaluation, for another evaluation of the same episode.

    A question that was asked several times gets its answers in their order; after that, the last answer is
    repeated. If another version of the evaluators asks a question that was not recorded, `answer` raises
    EvaluatorFailed."""

    def __init__(self, run_dir: Path, kept: KeptJudgement) -> None:
        self.lacks: list[str] = [one.arguments["what"] for one in kept.readings if one.question == LACK]
        self._task_id = kept.task_id
        self._blobs = FolderBlobs(run_dir / FOLDER / READ, READINGS)
        self._files = {one.arguments["name"]: one.sha256 for one in kept.readings if one.question == FILE}
        self._answers: defaultdict[bytes, deque[str]] = defaultdict(deque)
        for one in kept.readings:
            self._answers[_key(one.question, one.arguments)].append(one.sha256)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the files that the evaluators' cache folder had at the beginning."""
        for name, sha256 in self._files.items():
            yield name, _unpacked(self._blobs.read(sha256))

    async def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        if question == LOOK:
            return None
        answers = self._answers.get(_key(question, arguments))
        if not answers:
            raise EvaluatorFailed(self._task_id, _not_recorded(question, arguments))
        sha256 = answers.popleft() if len(answers) > 1 else answers[0]
        answer = _unpacked(self._blobs.read(sha256))
        if question == CALL:
            if "unkept" in answer:
                why = f"the value of {arguments.get('getter')} was not kept: {answer['unkept']}"
                raise EvaluatorFailed(self._task_id, why)
            self.lacks += answer["lacks"]
        elif answer is None or (isinstance(answer, dict) and answer.get("status", 200) != 200):
            self.lacks.append(question)
        return answer


def _not_recorded(question: str, arguments: Mapping[str, Any]) -> str:
    if question == CALL:
        getter = arguments.get("getter")
        return f"{getter} reads pages of a browser, and its value was not kept while the episode ran"
    return f"the evaluators ask what was not recorded while the episode ran: {question} {arguments}"


def _key(question: str, arguments: Mapping[str, Any]) -> bytes:
    return _json([question, dict(sorted(arguments.items()))])


# Texts of a guest, such as names of files, may have lone surrogates, which msgspec cannot encode.


def _json(value: Any) -> bytes:
    return json.dumps(msgspec.to_builtins(value)).encode()


def _packed(answer: Any) -> bytes:
    return bytes(msgpack.packb(answer, unicode_errors=ERRORS))


def _unpacked(content: bytes) -> Any:
    return msgpack.unpackb(content, strict_map_key=False, unicode_errors=ERRORS)
