"""Reading the files that evaluations are about, and the libraries that only some of them need.

What a file becomes is bounded where it is known before: pixels, members of archives, steps of a query. For
whatever is not, all of this runs in a process with a limit (`dart.environments.limited_child`).
"""

import contextlib
import importlib
import io
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from dart.core.png import refuse_huge

if TYPE_CHECKING:
    from PIL.Image import Image

OFFICE_REGISTRY = "{http://openoffice.org/2001/registry}"
"""Name space of the attributes in LibreOffice's settings."""


UNPACKED_MOST_BYTES = 256 * 2**20
"""Of the members of an archive together."""

QUERY_MOST_STEPS = 50_000
"""Of a thousand instructions of SQLite's each: some seconds."""

QUERY_MOST_ROWS = 100_000

_READS = {
    getattr(sqlite3, name) for name in ("SQLITE_SELECT", "SQLITE_READ", "SQLITE_RECURSIVE", "SQLITE_FUNCTION")
}
"""All that a query on a database may do."""


class Unreadable(ValueError):
    """A file is there and is not what it should be; ``path`` is the file."""

    def __init__(self, path: Path, what: str, why: str) -> None:
        super().__init__(path, what, why)
        self.path, self._what, self._why = path, what, why

    def __str__(self) -> str:
        return f"{self.path.name} is no {self._what}: {self._why}"


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Whatever a library raises about a file that a policy has made means that it is `Unreadable`."""
    try:
        yield
    except (NotImplementedError, Unreadable):
        raise
    except Exception as error:
        raise Unreadable(path, what, f"{type(error).__name__}: {error}") from error


def library(module: str, distribution: str) -> Any:
    """A library of the extra `desktop`, imported when a task first needs it.

    Raises NotImplementedError with what to do when it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        remedy = f"run `make desktop` or `pip install {distribution}`"
        raise NotImplementedError(f"the Python package {distribution} is not installed: {remedy}") from error


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def json_of(path: Path) -> Any:
    """Raises Unreadable."""
    with reading(path, "JSON file"):
        return json.loads(text_of(path))


def xml_of(path: Path) -> ElementTree.Element:
    """The root of an XML file. Raises Unreadable."""
    with reading(path, "XML file"):
        return ElementTree.fromstring(path.read_bytes())


def xml_in(path: Path, member: str) -> ElementTree.Element | None:
    """The root of an XML file in a zip file, None when there is no such member. Raises Unreadable."""
    content = member_of(path, member)
    if content is None:
        return None
    with reading(path, f"zip file with a sound {member}"):
        return ElementTree.fromstring(content)


def member_of(path: Path, member: str) -> bytes | None:
    """A member of a zip file, None when it is not in it. Raises Unreadable."""
    found = members_of(path, {member})
    return found.get(member)


def members_of(path: Path, names: set[str] | None = None) -> dict[str, bytes]:
    """Members of a zip file, all or those of these names. Raises Unreadable, also for more than may be."""
    found: dict[str, bytes] = {}
    with reading(path, "zip file"), zipfile.ZipFile(path) as archive:
        left = UNPACKED_MOST_BYTES
        for name in archive.namelist():
            if names is not None and name not in names:
                continue
            with archive.open(name) as member:
                found[name] = member.read(left + 1)
            left -= len(found[name])
            if left < 0:
                raise ValueError(f"its members have more than {UNPACKED_MOST_BYTES} bytes")
    return found


def picture_of(source: Path | bytes) -> "Image":
    """A picture, decoded. Raises ValueError for one of too many pixels, or what the library raises."""
    from PIL import Image

    with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
        refuse_huge(*image.size)
        image.load()
        return image.copy()


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query on a SQLite database gives; it may read that one file and nothing else. Raises Unreadable.

    Views and triggers of the database are a guest's, and so may the query be a task's.
    """

    def allowed(action: int, *_: Any) -> int:
        return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY

    steps = iter(range(QUERY_MOST_STEPS))
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with (
        reading(path, "SQLite database that has what is asked of it"),
        contextlib.closing(sqlite3.connect(address, uri=True)) as connection,
    ):
        connection.set_authorizer(allowed)
        connection.set_progress_handler(lambda: next(steps, None) is None, 1000)
        found = connection.execute(query).fetchmany(QUERY_MOST_ROWS + 1)
        if len(found) > QUERY_MOST_ROWS:
            raise ValueError(f"the query gives more than {QUERY_MOST_ROWS} rows")
    return found


def tree_of(text: str) -> Any:
    """The root of an XML text, as lxml has it: nothing that it declares or names is put into it."""
    etree = library("lxml.etree", "lxml")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    return etree.fromstring(text.encode(), parser)


def office_setting(path: Path, item: str, name: str) -> str | None:
    """A value of LibreOffice's ``registrymodifications.xcu``; the last one counts. Raises Unreadable."""
    found: str | None = None
    for element in xml_of(path).iter("item"):
        if element.get(f"{OFFICE_REGISTRY}path") != item:
            continue
        for prop in element.iter("prop"):
            value = prop.find("value")
            if prop.get(f"{OFFICE_REGISTRY}name") == name and value is not None:
                found = value.text or ""
    return found
