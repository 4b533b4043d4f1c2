"""Write the reference pages that come from the code: `python scripts/generate_docs.py`.

`tests/unit/dart/test_generated_docs.py` fails when a page is not what this would write.
"""

from collections.abc import Iterator
from pathlib import Path

from dart.cli.exit_codes import MEANING
from dart.config import Config, field_rows
from dart.config_layers import literal

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference"

CONFIGURATION_HEAD = """\
# Configuration

Generated from `dart/config.py` by `python scripts/generate_docs.py`.

Layers, the last one wins: these defaults, one TOML file, `--set section.key=value`. An empty file will do.
`dartrl config check FILE` reports every problem at once; `dartrl config show FILE` prints the result with the
origin of each value. Times are seconds, as the names say.
"""

EXIT_CODES_HEAD = """\
# Exit codes

Generated from `dart/cli/exit_codes.py` by `python scripts/generate_docs.py`.

| code | name | meaning |
|---|---|---|
"""


def configuration_page() -> str:
    """One table per section, in file order."""
    return CONFIGURATION_HEAD + "".join(_configuration_lines())


def _configuration_lines() -> Iterator[str]:
    current = ""
    for key, description, default in field_rows():
        section, _, name = key.rpartition(".")
        if section != current:
            current = section
            yield f"\n## `[{section}]`\n{_about(section)}\n| key | default | meaning |\n|---|---|---|\n"
        yield f"| `{name}` | `{literal(default)}` | {' '.join(description.split())} |\n"


def _about(section: str) -> str:
    """The docstring of a top-level section's model."""
    field = Config.model_fields.get(section)
    model = field.annotation if field else None
    return f"{model.__doc__}\n" if model and model.__doc__ else ""


def exit_codes_page() -> str:
    """The table of exit codes."""
    return EXIT_CODES_HEAD + "".join(f"| {code} | {code.name} | {text} |\n" for code, text in MEANING.items())


def pages() -> dict[Path, str]:
    """What every generated page should hold."""
    return {PAGES / "configuration.md": configuration_page(), PAGES / "exit-codes.md": exit_codes_page()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
