"""Fills the examples into the pages that show them: code from `examples/`, output from really running it.

    <!-- file: examples/counter.py, from: def main -->     the file from that line to its `if __name__`
    <!-- run: python examples/counter.py -->               what it prints

The fenced block after such a line is replaced. A test fills every page again and finds nothing to change.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]))
RUN_DEADLINE_S = 120.0

_DIRECTIVE = re.compile(
    r"<!-- (?P<what>file|run): (?P<target>.+?) -->\n(?:\n?```\w*\n.*?\n```\n)?", re.DOTALL
)


def filled(text: str) -> str:
    """A page with every example as it is now."""
    return _DIRECTIVE.sub(_fill, text)


def _fill(found: re.Match[str]) -> str:
    target = found["target"]
    written_in = "html" if target.endswith(".html") else "python"
    language, body = (written_in, excerpt(target)) if found["what"] == "file" else ("text", output_of(target))
    return f"<!-- {found['what']}: {target} -->\n```{language}\n{body.strip()}\n```\n"


def excerpt(target: str) -> str:
    """`path` for a whole file, `path, from: line` for the part from a line that begins so."""
    path, _, start = target.partition(", from: ")
    text = (ROOT / path).read_text()
    if start:
        text = text[text.index(f"\n{start}") + 1 :]
        text = text.partition('\nif __name__ == "__main__":')[0]
    return text


def output_of(command: str) -> str:
    """What a `python …` command prints, run in the repository."""
    interpreter, *arguments = command.split()
    if interpreter != "python":
        raise ValueError(f"only python commands are run, got {command!r}")
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TMPDIR": "/tmp"},
        capture_output=True,
        text=True,
        timeout=RUN_DEADLINE_S,
    )
    if done.returncode:
        raise RuntimeError(f"{command!r} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def main() -> None:
    for page in PAGES:
        text = page.read_text()
        page.write_text(filled(text))


if __name__ == "__main__":
    main()
