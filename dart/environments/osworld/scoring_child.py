"""The program that runs OSWorld's own evaluators: under another Python, in a sandbox without a network.

It imports the standard library, msgpack, and the package ``desktop_env``, and nothing of this project. It
reads orders from stdin and writes messages to stdout, each a length (4 bytes, big endian) and a msgpack map.
An order has the ``evaluator`` of a task's file, the ``files`` that the cache folder has at the beginning, and
``page_getters``, the getters that read pages of the guest's browser. The messages are:

* ``ask`` with ``arguments``: a question about the guest, or about a call of a getter that reads pages
  (``call`` before it, ``returned`` after it); the parent replies with ``answer``
* ``score``, or ``raised`` with the error of an evaluator: the end of the evaluation, with ``needs``, the
  missing libraries that evaluators called

The parent decides what a missing answer means, and only the parent knows whether the machine failed
(`dart.environments.osworld.judging`). The parent trusts nothing that this program writes.
"""

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import shutil
import socket
import struct
import sys
import threading
import types
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from urllib.parse import urlsplit

import msgpack

PACKAGE = "desktop_env"
EVALUATORS = f"{PACKAGE}.evaluators"
PARTS = ("metrics", "getters")

OPTIONAL = ("acoustid", "borb", "easyocr", "fastdtw", "fitz", "librosa", "playwright", "pydrive")
"""Libraries that only some evaluators call. In place of a library that is not installed, a module is imported
whose functions raise `LibraryAbsent`, so that other evaluators that import the library can still be used."""

LATE = ("pandas",)
"""Libraries that modules of the evaluators import and few functions call: loaded at their first use."""

MOST_MEMORY_BYTES = 4 * 2**30
MOST_FILE_BYTES = 2**30
MOST_PROCESSES = 256
RELAY_BYTES = 2**16

MOST_VALUE_BYTES = 15 * 2**16
"""Limit of a kept value of a getter, with the files that the getter wrote, after compression."""

MOST_WRITTEN_BYTES = 2**26
"""Limit of the files that a getter wrote, before compression."""

HOST, SERVER_PORT, CHROMIUM_PORT, VLC_PORT = "127.0.0.1", 5000, 9222, 8080
"""Address and ports of the guest, as evaluators see them. Only the browser's port is open: `relay_browser`
serves it. Requests to the other ports become questions to the parent (`Requests`)."""

IMPORTS = "import pyautogui; import time; pyautogui.FAILSAFE = False; "
"""Statements that OSWorld's controller puts before each Python program for the guest."""


class LibraryAbsent(BaseException):
    """An evaluator called a library that is not installed.

    It derives from BaseException, so that no ``except Exception`` of an evaluator catches it."""


# ---- the evaluators ----


def exported(folder: Path) -> dict[str, str]:
    """Map the names that a package's ``__init__.py`` exports to the modules that define them.

    The source is parsed; nothing is imported."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for alias in node.names
    }


class Evaluators:
    """The getters and metrics of the installed package; each module is imported when it is first needed."""

    def __init__(self, root: Path, patch: Callable[[types.ModuleType], None]) -> None:
        """Prepare the imports from ``root/desktop_env``.

        patch   called with each imported module of the evaluators, possibly more than once
        """
        self.needs: list[str] = []
        self._patch = patch
        sys.meta_path.insert(0, _LateFinder())
        sys.meta_path.append(_AbsentFinder(self.needs))
        for name in (PACKAGE, EVALUATORS, *(f"{EVALUATORS}.{part}" for part in PARTS)):
            package = types.ModuleType(name)
            package.__path__ = [str(root.joinpath(*name.split(".")))]
            sys.modules[name] = package
        self._names = {part: exported(root.joinpath(*EVALUATORS.split("."), part)) for part in PARTS}

    def named(self, part: str, name: str) -> Any:
        """Return the getter (``part="getters"``) or the metric (``"metrics"``) of this name.

        Raises AttributeError when the package has none."""
        module = self._names[part].get(name)
        if module is None:
            raise AttributeError(f"there is no {name!r} in {EVALUATORS}.{part}")
        found = importlib.import_module(f"{EVALUATORS}.{part}.{module}")
        for loaded in [loaded for key, loaded in sys.modules.items() if key.startswith(f"{EVALUATORS}.")]:
            self._patch(loaded)
        return getattr(found, name)


class _LateFinder(importlib.abc.MetaPathFinder):
    """Finds the libraries of `LATE` and loads them at their first use."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name in LATE else None
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


class _AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes a stand-in for each of the `OPTIONAL` libraries that is not installed (see `_Absent`)."""

    def __init__(self, needs: list[str]) -> None:
        self._needs = needs

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in OPTIONAL:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__path__ = []
        library = spec.name.partition(".")[0]
        module.__getattr__ = lambda _: _Absent(library, self._needs)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Absent:
    """Any name in a library that is not installed. A call or the use of an attribute raises LibraryAbsent."""

    def __init__(self, library: str, needs: list[str]) -> None:
        self._library, self._needs = library, needs

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        self._needs.append(self._library)
        raise LibraryAbsent(f"the library {self._library} is not installed")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self()


# ---- one evaluation ----


def evaluated(evaluator: Mapping[str, Any], machine: "AskedGuest", evaluators: Evaluators) -> Any:
    """Return the score that ``DesktopEnv.evaluate`` of OSWorld gives for the ``evaluator`` of a task's file.

    A list of functions with ``conj`` "and" gives 0 as soon as one score is 0, else the mean; with "or" it
    gives 1 as soon as one score is 1, else the maximum. Of the errors, only a FileNotFoundError while reading
    a ``result`` is caught. After each metric the parent checks the machine (`AskedGuest.look`)."""
    function = evaluator["func"]
    if not isinstance(function, list):
        columns = {key: [evaluator.get(key)] for key in ("result", "expected", "options")}
        return _single(function, {key: value[0] for key, value in columns.items()}, machine, evaluators)
    conjunction, scores = evaluator.get("conj", "and"), []
    result = None
    for index, name in enumerate(function):
        row = {key: _entry(evaluator.get(key), index) for key in ("result", "expected", "options")}
        try:
            result = _looked_up(row["result"], machine, evaluators)
        except FileNotFoundError:
            if conjunction == "and":
                return 0.0
        score = _scored(name, result, row, machine, evaluators)
        if conjunction == "and" and float(score) == 0.0:
            return 0.0
        if conjunction == "or" and float(score) == 1.0:
            return 1.0
        scores.append(score)
    return sum(scores) / len(scores) if conjunction == "and" else max(scores)


def _single(function: str, row: Mapping[str, Any], machine: "AskedGuest", evaluators: Evaluators) -> Any:
    try:
        result = _looked_up(row["result"], machine, evaluators)
    except FileNotFoundError:
        return 0.0
    return _scored(function, result, row, machine, evaluators)


def _scored(
    metric: str, result: Any, row: Mapping[str, Any], machine: "AskedGuest", evaluators: Evaluators
) -> Any:
    expected = [_looked_up(row["expected"], machine, evaluators)] if row["expected"] else []
    score = evaluators.named("metrics", metric)(result, *expected, **(row["options"] or {}))
    machine.look()
    return score


def _looked_up(config: Any, machine: "AskedGuest", evaluators: Evaluators) -> Any:
    name = f"get_{config['type']}"
    getter = evaluators.named("getters", name)
    if name not in machine.page_getters:
        found = getter(machine, config)
    elif (kept := machine.kept_value(name, config)) is not None:
        found = unpacked(kept["packed"], Path(machine.cache_dir))
    else:
        found = _called(getter, config, machine)
    if machine.page_getters:  # calls to the browser do not pass through the parent
        machine.look()
    return found


def _called(getter: Callable[..., Any], config: Any, machine: "AskedGuest") -> Any:
    """Call a getter that reads pages, and let the parent keep what it returned."""
    cache = Path(machine.cache_dir)
    before = _states(cache)
    try:
        found = getter(machine, config)
    except BaseException as error:
        machine.returned({"unkept": f"it raised {type(error).__name__}"})
        raise
    after = _states(cache)
    machine.returned(packed(found, cache, [name for name in after if before.get(name) != after[name]]))
    return found


def packed(value: Any, cache: Path, written: Sequence[str]) -> dict[str, Any]:
    """Return the value of a getter with the files that it wrote, as ``packed`` bytes, or the reason why they
    cannot be kept, as a text ``unkept``. Only a value that `unpacked` gives back as it was is kept."""
    size = sum(cache.joinpath(name).stat().st_size for name in written)
    if size > MOST_WRITTEN_BYTES:
        return {"unkept": f"it wrote {size} bytes of files, and at most {MOST_WRITTEN_BYTES} are kept"}
    try:
        files = {name: cache.joinpath(name).read_bytes() for name in written}
        content = msgpack.packb({"value": value, "files": files}, unicode_errors=ERRORS)
        is_same = _unpack(content)["value"] == value
    except (TypeError, ValueError, OverflowError) as error:
        return {"unkept": f"it cannot be written down: {ascii(str(error))[:200]}"}
    if not is_same:
        return {"unkept": "it does not consist of texts, numbers, lists and maps"}
    compressed = zlib.compress(content)
    if len(compressed) > MOST_VALUE_BYTES:
        return {"unkept": f"it has {len(compressed)} bytes, and at most {MOST_VALUE_BYTES} are kept"}
    return {"packed": compressed}


def unpacked(compressed: bytes, cache: Path) -> Any:
    """Return the value that `packed` kept, and write the files of the getter into the cache folder."""
    kept = _unpack(zlib.decompress(compressed))
    _write(cache, kept["files"])
    return kept["value"]


def _unpack(content: bytes) -> Any:
    return msgpack.unpackb(content, strict_map_key=False, unicode_errors=ERRORS)


def _states(cache: Path) -> dict[str, tuple[int, int]]:
    """Return the time of the last change and the size of each file of the cache folder, by name."""
    found = {str(path.relative_to(cache)): path.stat() for path in cache.rglob("*") if path.is_file()}
    return {name: (state.st_mtime_ns, state.st_size) for name, state in found.items()}


def _entry(column: Any, index: int) -> Any:
    return column[index] if isinstance(column, list) else column


# ---- the guest as evaluators see it ----


class AskedGuest:
    """What getters use as ``env`` and ``env.controller``. Each call becomes a question to the parent."""

    vm_ip, server_port, chromium_port, vlc_port = HOST, SERVER_PORT, CHROMIUM_PORT, VLC_PORT
    vm_platform, vm_machine, current_use_proxy = "Linux", "x86_64", False

    def __init__(self, ask: Callable[..., Any], cache_dir: str) -> None:
        self._ask = ask
        self.cache_dir = cache_dir
        self.page_getters: Sequence[str] = ()
        """The getters of the present evaluation that read pages of the guest's browser."""
        self.controller = self

    def kept_value(self, getter: str, config: Any) -> Any:
        """Ask the parent for a kept value of a getter that reads pages; None when there is none. The limit of
        the call then begins."""
        return self._ask("call", getter=getter, config=config)

    def returned(self, found: Mapping[str, Any]) -> None:
        """Tell the parent that the getter returned, and what is to be kept of it (see `packed`)."""
        self._ask("returned", **found)

    def look(self) -> None:
        """Ask the parent to check that the machine still works."""
        self._ask("look")

    @property
    def vm_screen_size(self) -> Any:
        return self._ask("screen_size")

    def get_vm_platform(self) -> str:
        return self.vm_platform

    def get_file(self, file_path: str) -> Any:
        return self._ask("file", path=file_path)

    def get_terminal_output(self) -> Any:
        return self._ask("terminal")

    def get_accessibility_tree(self) -> Any:
        return self._ask("accessibility_tree")

    def get_vm_screen_size(self) -> Any:
        return self._ask("screen_size")

    def get_vm_window_size(self, app_class_name: str) -> Any:
        return self._ask("window_size", window_class=app_class_name)

    def get_vm_wallpaper(self) -> Any:
        return self._ask("wallpaper")

    def get_vm_desktop_path(self) -> Any:
        return self._ask("desktop_path")

    def get_vm_directory_tree(self, path: str) -> Any:
        return self._ask("directory", path=path)

    def execute_python_command(self, command: str) -> Any:
        return self._ask("execute", command=["python", "-c", IMPORTS + command], shell=False)["body"]


class Requests(types.ModuleType):
    """Replaces the library ``requests`` in evaluators. Requests to the guest and to the network become
    questions to the parent."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        super().__init__("requests")
        self._ask = ask

    def post(self, url: str, json: Any = None, data: Any = None, **_: Any) -> "Response":
        body = json if json is not None else _json_of(data)
        address = urlsplit(url)
        if (address.hostname, address.port) != (HOST, SERVER_PORT):
            raise ConnectionError(f"{url} cannot be reached from here")
        if address.path == "/execute":
            return Response(self._ask("execute", command=body["command"], shell=bool(body.get("shell"))))
        if address.path == "/setup/launch":
            return Response(self._ask("launch", command=body["command"], shell=bool(body.get("shell"))))
        raise ConnectionError(f"the route {address.path} is not served here")

    def get(self, url: str, auth: Any = None, **_: Any) -> "Response":
        address = urlsplit(url)
        if (address.hostname, address.port) == (HOST, VLC_PORT):
            answer = self._ask("player", password=str((auth or ("", ""))[1]))
        else:
            answer = self._ask("fetch", url=url)
        if answer is None:
            raise ConnectionError(f"nothing answers at {url}, or it is not a file of the task")
        return Response(answer)


class Response:
    """The part of a response of ``requests`` that evaluators use."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.status_code = answer["status"]
        self._body = answer["body"]
        self.content = self._body if isinstance(self._body, bytes) else json.dumps(self._body).encode()

    @property
    def text(self) -> str:
        return str(self.content.decode(errors="replace"))

    def json(self) -> Any:
        return self._body

    def raise_for_status(self) -> None:
        if self.status_code >= 400:
            raise OSError(f"the request was answered with HTTP status {self.status_code}")

    def iter_content(self, chunk_size: int = 1) -> list[bytes]:
        return [self.content]


def _json_of(data: Any) -> Any:
    return json.loads(data) if isinstance(data, str | bytes) else dict(data or {})


def relay_browser(path: str) -> None:
    """Relay connections to `CHROMIUM_PORT` of the sandbox's loopback to the parent's Unix socket ``path``."""
    listener = socket.create_server((HOST, CHROMIUM_PORT))

    def serve() -> None:
        while True:
            inner, _ = listener.accept()
            outer = socket.socket(socket.AF_UNIX)
            outer.connect(path)
            for source, sink in ((inner, outer), (outer, inner)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(RELAY_BYTES):
            sink.sendall(part)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


# ---- the pipes ----


class Pipes:
    """Messages to and from the parent, one at a time."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._one_at_a_time = threading.Lock()

    def read(self) -> Any:
        (length,) = struct.unpack(">I", self._incoming.read(4))
        return _unpack(self._incoming.read(length))

    def write(self, message: Mapping[str, Any]) -> None:
        packed = msgpack.packb(message, unicode_errors=ERRORS)
        self._outgoing.write(struct.pack(">I", len(packed)) + packed)
        self._outgoing.flush()

    def ask(self, name: str, **arguments: Any) -> Any:
        with self._one_at_a_time:
            self.write({"ask": name, "arguments": arguments})
            return self.read()["answer"]


ERRORS = "surrogatepass"


def limit_memory(browses: bool) -> None:
    """Limit memory, size of files and number of processes. When the machine runs out of memory, the kernel
    kills this process first.

    browses   whether a browser's driver runs here. A driver reserves addresses that it never uses, so the
              limit is then on data (RLIMIT_DATA) and not on the address space (RLIMIT_AS)
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    memory = resource.RLIMIT_DATA if browses else resource.RLIMIT_AS
    for limit, most in (
        (memory, MOST_MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, MOST_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, MOST_PROCESSES),
    ):
        resource.setrlimit(limit, (most, most))


def main(arguments: Sequence[str]) -> int:
    """Carry out orders until stdin ends. To evaluate an episode, the parent sends one order.

    arguments   the folder with ``desktop_env``, the cache folder, and the path of the browser's socket (empty
                for none)
    """
    root, cache, browser = Path(arguments[0]), Path(arguments[1]), arguments[2]
    pipes = Pipes(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # what evaluators print is no message
    limit_memory(bool(browser))
    if browser:
        relay_browser(browser)
    requests = Requests(pipes.ask)

    def patch(module: types.ModuleType) -> None:
        if hasattr(module, "requests"):
            module.requests = requests  # type: ignore[attr-defined]

    evaluators = Evaluators(root, patch)
    machine = AskedGuest(pipes.ask, str(cache))
    with contextlib.suppress(struct.error):  # the end of the orders
        while True:
            order = pipes.read()
            _fill(cache, order["files"])
            machine.page_getters = order["page_getters"]
            pipes.write(_end(order["evaluator"], machine, evaluators))
            evaluators.needs.clear()
    os._exit(0)  # neither a thread nor an exit function of theirs keeps it


def _fill(cache: Path, files: Mapping[str, bytes]) -> None:
    """Empty the cache folder and write these files into it."""
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    _write(cache, files)


def _write(cache: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        cache.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        cache.joinpath(name).write_bytes(content)


def _end(evaluator: Mapping[str, Any], machine: AskedGuest, evaluators: Evaluators) -> dict[str, Any]:
    try:
        return {"score": float(evaluated(evaluator, machine, evaluators)), "needs": list(evaluators.needs)}
    except BaseException as error:  # programs of policies raise SystemExit, too
        return {"raised": f"{type(error).__name__}: {error}"[:1000], "needs": list(evaluators.needs)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
