"""Pages of your own in MiniWoB++'s form (`environments.miniwob.pages`): their task ids, places and checks.

Such a page loads `../core/core.js` of the installed package, and may lie anywhere. So its folder is linked
beside the installed folders, and the browser opens the page below that link.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from dart.config.config import Config
from dart.core.errors import ConfigurationError
from dart.environments.faults import PagesMissing
from dart.environments.miniwob.pages import miniwob_html_dir, task_ids

NEEDED: Mapping[str, str] = {
    r"core/core\.js": 'does not load core.js: add <script src="../core/core.js"></script> to its head',
    r"\bgenProblem\b": "has no genProblem: define this function; it draws the problem of an episode",
    r"\bstartEpisode\b": "never calls core.startEpisode: call it in window.onload",
    r"\bendEpisode\b": "never calls core.endEpisode, so no episode ends: call core.endEpisode(1) when "
    "the task is done, and core.endEpisode(-1) when it has failed",
    r"""\bid\s*=\s*["']?query\b""": 'has no element for the instruction: add <div id="query"></div>',
}
"""What the text of a page must contain, as regular expressions, with what is wrong with a page without it."""

_SCRIPT = re.compile(r"""<script[^>]*\ssrc=["']?([^"'>\s]+)""")


def tasks_of(config: Config) -> tuple[str, ...]:
    """Return the ids of all installed tasks and of the own pages, sorted; no ids when the installed pages are
    missing. Raises ConfigurationError as `own_pages` does."""
    try:
        return tuple(sorted((*task_ids(), *own_pages(config))))
    except PagesMissing:
        return ()


def own_pages(config: Config) -> dict[str, Path]:
    """Return the files of the own pages by task id; none if the configuration names no folder.

    Raises ConfigurationError if there is no such folder, if it has no page, or if a page has the name of an
    installed one. Raises PagesMissing.
    """
    folder = Path(config.environments.miniwob.pages)
    if not config.environments.miniwob.pages:
        return {}
    pages = (page for page in sorted(folder.glob("*.html")) if not page.name.startswith("."))
    found = {f"miniwob/{page.stem}": page for page in pages}
    if not found:
        raise ConfigurationError(f"there is no page in {folder}: name a folder with files NAME.html")
    if taken := sorted(found.keys() & set(task_ids())):
        raise ConfigurationError(f"{found[taken[0]]} has the name of an installed page: rename the file")
    return found


def linked_pages(config: Config, place: Path) -> dict[str, Path]:
    """Link the own pages beside the installed folders, and return their linked files by task id.

    place   the folder for the links; it is created
    """
    pages = own_pages(config)
    if not pages:
        return {}
    installed = [folder for folder in miniwob_html_dir().parent.iterdir() if folder.is_dir()]
    own = next(iter(pages.values())).parent.absolute()
    place.mkdir(parents=True)
    for name, folder in {"own": own, **{one.name: one for one in installed}}.items():
        (place / name).symlink_to(folder)
    return {task_id: place.absolute() / "own" / page.name for task_id, page in pages.items()}


def page_problems(config: Config) -> Iterator[str]:
    """Yield a message with a remedy for each thing that an own page of `tasks.train` lacks."""
    try:
        pages = own_pages(config)
    except ConfigurationError as error:
        yield f"environments.miniwob.pages: {error}"
        return
    for page in (pages[task] for task in config.tasks.train if task in pages):
        try:
            text = _text_of(page)
        except OSError as error:
            yield f"{page} cannot be read: {error.strerror}"
            continue
        yield from (f"{page} {why}" for needed, why in NEEDED.items() if not re.search(needed, text))


def _text_of(page: Path) -> str:
    """Return the text of a page and of the scripts that it loads, but for those of MiniWoB++'s core."""
    text = page.read_text(encoding="utf-8", errors="replace")
    loaded = [source for source in _SCRIPT.findall(text) if not source.startswith("../core/")]
    places = [page.parent / source for source in loaded]
    scripts = (one.read_text(encoding="utf-8", errors="replace") for one in places if one.is_file())
    return "\n".join((text, *scripts))
