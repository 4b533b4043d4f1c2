"""Files and trees of a hostile guest, read by OSWorld's own evaluators in their sandbox: bombs and links.

They need `make osworld-score`. Whatever a file does to an evaluator, it earns nothing, touches nothing of
this computer, takes no more memory than the sandbox may, and the next evaluation is judged as before.
"""

import asyncio
import contextlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dart.environments.faults import EvaluatorFailed
from dart.environments.osworld.scoring_child import MOST_MEMORY_BYTES
from dart.environments.osworld.scoring_environment import ScoringEnvironment, find_evaluators
from dart.environments.osworld.setup_steps import Setting
from tests.fault import test_osworld_evaluators
from tests.fault.test_osworld_evaluators import (
    EVALUATORS,
    SHELL,
    desktop,
    file,
    rule,
    score,
    setting_of,
)
from tests.unit.environments.osworld.guest_server import FakeDesktop

__all__ = ["desktop"]

pytestmark = [*test_osworld_evaluators.pytestmark, pytest.mark.timeout(1200)]

MIB = 2**20
BOMB_MIB = 36 * 64
"""Size of what a bomb unpacks to. Put together once it is more than a process in the sandbox may have."""

SAMPLE_S = 0.2
NAMESPACE = "http://schemas.openxmlformats.org"
REACHED = EVALUATORS / "reached"
"""A place of this computer that the sandbox shows."""


def zipped(members: Mapping[str, str], bomb: str = "") -> bytes:
    """Return an archive with these members and, under the name `bomb`, one of blanks."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            if name != bomb:
                archive.writestr(name, content)
        if bomb:
            with archive.open(bomb, "w", force_zip64=True) as member:
                for _ in range(BOMB_MIB // 64):
                    member.write(b" " * (64 * MIB))
    return made.getvalue()


RELATIONS = f"{NAMESPACE}/officeDocument/2006/relationships"


def relation(kind: str, target: str) -> str:
    """Return the list of relations of a part that has one."""
    return (
        f'<Relationships xmlns="{NAMESPACE}/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{RELATIONS}/{kind}" Target="{target}"/></Relationships>'
    )


def content_types(**parts: str) -> str:
    """Return the list of the kinds of an office file's parts, by their paths with `__` for a slash."""
    named = "".join(
        f'<Override PartName="/{path.replace("__", "/")}.xml" '
        f'ContentType="application/vnd.openxmlformats-officedocument.{kind}+xml"/>'
        for path, kind in parts.items()
    )
    return (
        f'<Types xmlns="{NAMESPACE}/package/2006/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{named}</Types>'
    )


def document(bomb: str = "") -> bytes:
    """Return the fewest parts that make a document, one of them a bomb if it is named."""
    members = {
        "[Content_Types].xml": content_types(word__document="wordprocessingml.document.main"),
        "_rels/.rels": relation("officeDocument", "word/document.xml"),
        "word/document.xml": f'<w:document xmlns:w="{NAMESPACE}/wordprocessingml/2006/main"><w:body><w:p>'
        "<w:r><w:t>done</w:t></w:r></w:p></w:body></w:document>",
    }
    return zipped(members, bomb)


def workbook(bomb: str = "") -> bytes:
    """Return the fewest parts that make a workbook, one of them a bomb if it is named."""
    main = f"{NAMESPACE}/spreadsheetml/2006/main"
    members = {
        "[Content_Types].xml": content_types(
            xl__workbook="spreadsheetml.sheet.main", xl__worksheets__sheet1="spreadsheetml.worksheet"
        ),
        "_rels/.rels": relation("officeDocument", "xl/workbook.xml"),
        "xl/_rels/workbook.xml.rels": relation("worksheet", "worksheets/sheet1.xml"),
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{RELATIONS}"><sheets>'
        '<sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData><row r="1"><c r="A1"><v>1</v></c>'
        '</row><row r="2"><c r="A2"><v>2</v></c></row></sheetData></worksheet>',
    }
    return zipped(members, bomb)


def picture(width: int, height: int, *, is_whole: bool = True) -> bytes:
    """Return a black picture in grey; one that is not whole has no pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    packer, packed = zlib.compressobj(1), b""
    for _ in range(height if is_whole else 1):
        packed += packer.compress(bytes(width + 1))
    pixels = chunk(b"IDAT", packed + packer.flush())
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


def links_out() -> bytes:
    """Return an archive that writes through a link and above its folder, and links to a system file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, target, kind in (
            ("out", str(EVALUATORS), tarfile.SYMTYPE),
            ("a.txt", "/etc/passwd", tarfile.SYMTYPE),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, target
            archive.addfile(link)
        for name in ("out/reached", f"../../../../..{REACHED}"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"done"))
    return made.getvalue()


def archive() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"done"))
    return made.getvalue()


def laughs(depth: int = 12) -> str:
    """Return a tree whose text is ten times itself, `depth` times over."""
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(depth))
    return f'<!DOCTYPE at [<!ENTITY e0 "done">{entities}]><at><a>&e{depth};</a></at>'


def foreign(path: Path) -> str:
    """Return a tree whose text is that of a file."""
    return f'<!DOCTYPE at [<!ENTITY e SYSTEM "file://{path}">]><at><a>&e;</a></at>'


@dataclass(frozen=True, kw_only=True)
class Case:
    """A function that reads a file, the file of the guest, and the one that earns a 1."""

    function: str
    name: str
    hostile: Callable[[], bytes]
    honest: Callable[[], bytes]
    options: Mapping[str, Any] = field(default_factory=dict)


FILES = {
    "a document with a bomb as its text": Case(
        function="compare_docx_files",
        name="a.docx",
        hostile=lambda: document(bomb="word/document.xml"),
        honest=document,
    ),
    "a workbook with a bomb as its list of sheets": Case(
        function="compare_table",
        name="a.xlsx",
        hostile=lambda: workbook(bomb="xl/workbook.xml"),
        honest=workbook,
        options={"rules": [{"type": "sheet_data", "sheet_idx0": "RI0", "sheet_idx1": "EI0"}]},
    ),
    "an archive with a bomb as its file": Case(
        function="compare_zip_files",
        name="a.zip",
        hostile=lambda: zipped({}, "a.txt"),
        honest=lambda: zipped({"a.txt": "done"}),
    ),
    "a picture that claims 60000 by 60000 points": Case(
        function="compare_images",
        name="a.png",
        hostile=lambda: picture(60000, 60000, is_whole=False),
        honest=lambda: picture(64, 64),
    ),
    "a picture that is just small enough for its library": Case(
        function="compare_images",
        name="b.png",
        hostile=lambda: picture(13000, 13000),
        honest=lambda: picture(12999, 13000),
    ),
    "an archive with links that lead out": Case(
        function="compare_archive",
        name="a.tar",
        hostile=links_out,
        honest=archive,
        options={"file_type": "text"},
    ),
}

TREES: dict[str, Callable[[Path], str]] = {
    "entities of entities": lambda _: laughs(),
    "a file of this computer as an entity": foreign,
}


class Peak:
    """The most memory that the processes below this one had at once."""

    most_bytes = 0

    def sample(self) -> None:
        found = 0
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found += child.memory_info().rss
        self.most_bytes = max(self.most_bytes, found)


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[Peak]:
    """Watch the memory of all children while the block lasts."""
    peak = Peak()

    async def watch() -> None:
        while True:
            peak.sample()
            await asyncio.sleep(SAMPLE_S)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch())
        yield peak
        task.cancel()


def kind_of(case: Case) -> tuple[str, Any, Any]:
    return case.function, file(case.name), file(f"gold-{case.name}")


def able_to_unpack() -> ScoringEnvironment:
    """Return the evaluators; the function that unpacks archives asks for PyMuPDF, which texts do not need."""
    found = find_evaluators(EVALUATORS)
    return replace(found, functions={**found.functions, "compare_archive": frozenset()})


WANTED = {"type": "rule", "rules": [{"xpath": "//a", "text": "done", "exact": True}]}
TREE = ("check_accessibility_tree", {"type": "accessibility_tree"}, WANTED)


async def earns_nothing(
    kind: tuple[str, Any, Any], setting: Setting, desktop: FakeDesktop, **options: Any
) -> None:
    """Judge it, and something honest after it."""
    async with watched() as peak:
        with contextlib.suppress(EvaluatorFailed):
            assert await score(kind, setting, scoring=able_to_unpack(), **options) == 0.0
    assert 0 < peak.most_bytes <= MOST_MEMORY_BYTES
    assert not REACHED.exists()
    (desktop.home / "said").write_text("x")
    assert await score(("exact_match", SHELL, rule(expected="x")), setting) == 1.0


@pytest.mark.parametrize("name", FILES)
async def test_a_hostile_file_earns_nothing_and_the_next_evaluation_goes_on(
    desktop: FakeDesktop, tmp_path: Path, name: str
) -> None:
    case = FILES[name]
    (desktop.home / case.name).write_bytes(case.hostile())
    (desktop.home / f"gold-{case.name}").write_bytes(case.honest())
    await earns_nothing(kind_of(case), setting_of(desktop, tmp_path), desktop, **case.options)


@pytest.mark.parametrize("name", TREES)
async def test_a_hostile_tree_earns_nothing_and_the_next_evaluation_goes_on(
    desktop: FakeDesktop, tmp_path: Path, name: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("done")
    desktop.tree = TREES[name](secret)
    await earns_nothing(TREE, setting_of(desktop, tmp_path), desktop)


@pytest.mark.parametrize("case", [case for case in FILES.values() if case.name != "b.png"])
async def test_the_honest_file_beside_each_earns_it_all(
    desktop: FakeDesktop, tmp_path: Path, case: Case
) -> None:
    for name in (case.name, f"gold-{case.name}"):
        (desktop.home / name).write_bytes(case.honest())
    setting = setting_of(desktop, tmp_path)
    assert await score(kind_of(case), setting, scoring=able_to_unpack(), **case.options) == 1.0


async def test_an_honest_tree_earns_it_all(desktop: FakeDesktop, tmp_path: Path) -> None:
    desktop.tree = "<at><a>done</a></at>"
    assert await score(TREE, setting_of(desktop, tmp_path)) == 1.0
