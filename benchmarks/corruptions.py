"""What damage to the data of a finished run does: each is named or harmless, and none deletes anything.

``python -m benchmarks.corruptions`` makes a run with `configs/smoke.toml` (or takes ``--run-dir``), damages
one file of a copy at a time (a flipped bit, a cut end, a missing file; of the record, the screenshots or the
checkpoints) and asks four questions:

named       does `dartrl doctor --data --full` fail and say what is damaged?
harmless    if it does not: are all rows the same and the record writable, or does nothing refer to the file?
explained   do all commands that look at the run, and its pages, do without a traceback?
kept        is every file of the run still there after all that, and after taking the run up again?

The corruptions are drawn from ``--seed``. Prints a table, writes ``benchmarks/results/corruptions.json`` and
ends with 1 when a corruption is neither named nor harmless, gives a traceback, or costs a file.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from dart.config.config import load_config
from dart.core.errors import DartError
from dart.core.run_directory import RunPaths
from dart.store.errors import StoreError
from dart.store.reader import StoreReader
from dart.store.store import Store

RESULTS = Path(__file__).parent / "results" / "corruptions.json"
CONFIG = Path(__file__).parents[1] / "configs" / "smoke.toml"

CORRUPTIONS = 200
QUICK = 25

AREAS = ("record", "record", "record", "screenshot", "steps", "checkpoint")
"""One is drawn for each corruption; most of what a run knows is in its record."""
KINDS = ("flipped bit", "flipped bit", "flipped bit", "flipped bit", "cut end", "missing file")

COMMANDS = (
    *("status", "status -o json", "tree", "top", "actors list", "actors show env-000", "why env-000"),
    *("events", "tasks list", "tasks show click-test-2", "trajectories list", "trajectories show 1"),
    *("pool list", "policy versions", "checkpoints list", "metrics", "doctor --data"),
)
PAGES = ("/", "/tree", "/actor?name=env-000", "/tasks", "/task?name=miniwob/click-test-2", "/trajectories")
PAGES_OF_ROLLOUT = ("/trajectory?id=1", "/compare?a=1&b=2", "/export?id=1", "/metrics", "/readyz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """One damage to one file."""

    number: int
    area: str
    kind: str
    file: str
    """Relative to the run directory."""
    place: int
    """The bit that is flipped, or the bytes that are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of it."""

    corruption: Corruption
    fate: str
    """named, harmless or UNNAMED."""
    because: str
    """The first finding, or why it is harmless."""
    tracebacks: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    """Files that were deleted."""

    @property
    def is_good(self) -> bool:
        """Whether nothing has to be repaired."""
        return self.fate != "UNNAMED" and not self.tracebacks and not self.lost


# ---- drawing ----


def drawn(paths: RunPaths, count: int, seed: int) -> Iterator[Corruption]:
    """Corruptions of a run, the same for the same seed and run."""
    files = {
        "record": [paths.store],
        "screenshot": sorted(paths.blobs.rglob("*.png")),
        "steps": sorted(paths.blobs.rglob("*.steps")),
        "checkpoint": sorted(path for path in paths.checkpoints.rglob("*") if path.is_file()),
    }
    for number in range(count):
        draw = random.Random(f"{seed}/{number}")
        area, kind = draw.choice(AREAS), draw.choice(KINDS)
        file = draw.choice(files[area])
        size = file.stat().st_size
        place = {"flipped bit": draw.randrange(8 * size), "cut end": draw.randrange(size), "missing file": 0}
        name = str(file.relative_to(paths.root))
        yield Corruption(number=number, area=area, kind=kind, file=name, place=place[kind])


def apply(corruption: Corruption, root: Path) -> None:
    """Damage the file."""
    path = root / corruption.file
    content = bytearray(path.read_bytes())
    path.unlink()  # it may be linked to the original
    match corruption.kind:
        case "flipped bit":
            content[corruption.place // 8] ^= 1 << corruption.place % 8
        case "cut end":
            del content[corruption.place :]
        case "missing file":
            return
    path.write_bytes(content)


# ---- judging ----


def judge(original: RunPaths, corruption: Corruption, folder: Path) -> Verdict:
    """Damage a copy of the run and look at it in every way."""
    paths = RunPaths(folder / "run")
    copy(original, paths)
    apply(corruption, paths.root)
    before = files_of(paths)
    fate, because = named_or_harmless(original, paths, corruption)
    tracebacks = (*failing_commands(paths), *failing_pages(paths), *failing_resume(paths))
    lost = tuple(sorted(before.keys() - files_of(paths).keys()))
    shutil.rmtree(paths.root)
    named_lost = tuple(before[key] for key in lost)
    return Verdict(corruption=corruption, fate=fate, because=because, tracebacks=tracebacks, lost=named_lost)


def copy(original: RunPaths, paths: RunPaths) -> None:
    """A copy of the run; files that are never written again are linked."""
    written_again = {original.store.name, original.board.name, original.lock.name, original.config.name}

    def link_or_copy(source: str, target: str) -> None:
        (shutil.copy2 if Path(source).name in written_again else os.link)(source, target)

    left_out = shutil.ignore_patterns("*.db-wal", "*.db-shm")
    shutil.copytree(original.root, paths.root, copy_function=link_or_copy, ignore=left_out)


def files_of(paths: RunPaths) -> dict[int, str]:
    """The files that hold data, by what they are on the disk: one that is renamed is still there."""
    folders = (paths.blobs, paths.checkpoints)
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    found += [paths.store] if paths.store.exists() else []
    return {path.stat().st_ino: str(path.relative_to(paths.root)) for path in found}


def named_or_harmless(original: RunPaths, paths: RunPaths, corruption: Corruption) -> tuple[str, str]:
    """What `dartrl doctor --data --full` says of a corruption, or why it need not say anything."""
    ended = invoke(["doctor", "--data", "--full", "--run-dir", str(paths.root)])
    lines = [line for line in ended.output.splitlines() if is_about(corruption, line)]
    if ended.exit_code and lines:
        return "named", lines[0].replace(str(paths.root), "RUN")
    why = why_harmless(original, paths, corruption)
    return ("harmless", why) if why else ("UNNAMED", f"exit code {ended.exit_code}: {ended.output[-300:]}")


def is_about(corruption: Corruption, line: str) -> bool:
    """Whether a line of the check speaks of what was damaged."""
    path = Path(corruption.file)
    match corruption.area:
        case "screenshot" | "steps":
            return path.stem in line
        case "checkpoint":
            return path.parts[1] in line
    return line.startswith("error:") or (": " in line and not line.startswith("  what to do"))


def why_harmless(original: RunPaths, paths: RunPaths, corruption: Corruption) -> str:
    """Why a corruption changes nothing, where that can be shown; else empty."""
    match corruption.area:
        case "screenshot":
            with StoreReader(original.store) as record:
                is_needed = Path(corruption.file).stem in record.screenshots(full=True)
            return "" if is_needed else "no row names the screenshot: an evaluation saw it"
        case "steps":
            sha256 = Path(corruption.file).stem
            with StoreReader(original.store) as record:
                is_needed = not record.unnamed_steps([sha256])
            return "" if is_needed else "no row names the steps: they were continued or not reported"
        case "checkpoint":
            return ""
    if corruption.kind != "missing file" and rows_of(paths.store) == rows_of(original.store):
        return (
            "every row and definition is the same, and the record takes a write" if is_writable(paths) else ""
        )
    return ""


def rows_of(path: Path) -> str:
    """A hash of everything that a record holds, read past the log and the locks."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
            connection.text_factory = bytes
            schema = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
            content = hashlib.sha256(repr(connection.execute(schema).fetchall()).encode())
            tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            for (name,) in connection.execute(tables).fetchall():
                rows = connection.execute(
                    f'SELECT rowid, * FROM "{name.decode()}" NOT INDEXED ORDER BY rowid'
                )
                content.update(repr((name, rows.fetchall())).encode())
            return content.hexdigest()
    except (sqlite3.Error, ValueError) as error:
        return f"unreadable: {error}"


def is_writable(paths: RunPaths) -> bool:
    """Whether the record takes an event, tried on a copy."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(shutil.copy(paths.store, Path(folder) / "store.db"))
        try:
            with Store(copied) as store:
                return store.record_event("tried", "corruptions") > 0
        except StoreError:
            return False


# ---- looking ----


class Ended:
    """How a command ended that ran in this process."""

    def __init__(self, exit_code: int, output: str, traceback: str) -> None:
        self.exit_code, self.output, self.traceback = exit_code, output, traceback


def invoke(arguments: Sequence[str]) -> Ended:
    """Run a `dartrl` command in this process."""
    from typer.testing import CliRunner

    from dart.cli.main import app

    ended = CliRunner().invoke(app, list(arguments))
    error = ended.exception
    is_defect = error is not None and not isinstance(error, SystemExit)
    return Ended(ended.exit_code, ended.output, repr(error) if is_defect else "")


def failing_commands(paths: RunPaths) -> Iterator[str]:
    """Commands that end with a traceback instead of an explanation."""
    for command in COMMANDS:
        arguments = command.split()
        ended = invoke([*arguments, "--run-dir", str(paths.root)])
        if ended.traceback:
            yield f"dartrl {command}: {ended.traceback}"


def failing_pages(paths: RunPaths) -> Iterator[str]:
    """Pages that fail without an explanation."""
    from starlette.testclient import TestClient

    from dart.web.app import web_app
    from dart.web.auth import access_for

    with TestClient(
        web_app(paths, access_for("127.0.0.1", None)),
        base_url="http://localhost:8700",
        raise_server_exceptions=False,
    ) as client:
        for page in (*PAGES, *PAGES_OF_ROLLOUT):
            answer = client.get(page)
            if answer.status_code == 500 and answer.text == "Internal Server Error":
                yield f"GET {page}: {answer.text}"


def failing_resume(paths: RunPaths) -> Iterator[str]:
    """What fails without an explanation when the run is taken up again, up to the start of its actors."""
    from dart.run.run_record import prepare_record

    try:
        prepare_record(load_config(paths.config, [f"run.dir='{paths.root}'"]), paths)
    except DartError:
        return
    except Exception as error:  # what a command would show as a traceback
        yield f"--resume: {error!r}"


# ---- the whole ----


def finished_run(folder: Path) -> RunPaths:
    """A run that trained, made as a user would."""
    paths = RunPaths(folder / "finished")
    command = [sys.executable, "-m", "dart", "train", str(CONFIG), "--run-dir", str(paths.root)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return paths


def measured(paths: RunPaths, count: int, seed: int, told: Callable[[Verdict], None]) -> list[Verdict]:
    """All corruptions, one after the other. Raises ValueError for a run that is not sound before them."""
    verdicts = []
    with tempfile.TemporaryDirectory(dir=paths.root.parent, prefix="corrupted-") as folder:
        whole = RunPaths(Path(folder) / "whole")
        copy(paths, whole)
        ended = invoke(["doctor", "--data", "--full", "--run-dir", str(whole.root)])
        if ended.exit_code:
            raise ValueError(
                f"the data in {paths.root} is not sound before anything is damaged: {ended.output}"
            )
        for corruption in drawn(paths, count, seed):
            verdicts.append(judge(paths, corruption, Path(folder)))
            told(verdicts[-1])
    return verdicts


def table(verdicts: Sequence[Verdict]) -> str:
    """Fates by area and kind."""
    counted = Counter((v.corruption.area, v.corruption.kind, v.fate) for v in verdicts)
    lines = [f"{'area':12} {'kind':14} {'corruptions':>11} {'named':>6} {'harmless':>9} {'UNNAMED':>8}"]
    for area, kind in sorted({key[:2] for key in counted}):
        fates = [counted[area, kind, fate] for fate in ("named", "harmless", "UNNAMED")]
        lines.append(f"{area:12} {kind:14} {sum(fates):11} {fates[0]:6} {fates[1]:9} {fates[2]:8}")
    tracebacks = sum(bool(verdict.tracebacks) for verdict in verdicts)
    lost = sum(bool(verdict.lost) for verdict in verdicts)
    return "\n".join([*lines, "", f"with a traceback: {tracebacks}, with a deleted file: {lost}"])


def told_if_bad(verdict: Verdict) -> None:
    """Print what has to be repaired, as it is found."""
    if not verdict.is_good:
        print(json.dumps(asdict(verdict)), file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run-dir", type=Path, help="a finished run; default: one is made")
    parser.add_argument("--count", type=int, default=CORRUPTIONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} corruptions, and no file is written")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="corruptions-") as folder:
        paths = RunPaths(asked.run_dir.resolve()) if asked.run_dir else finished_run(Path(folder))
        verdicts = measured(paths, QUICK if asked.quick else asked.count, asked.seed, told_if_bad)
    print(table(verdicts))
    if not asked.quick:
        content = {"seed": asked.seed, "verdicts": [asdict(verdict) for verdict in verdicts]}
        asked.out.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
