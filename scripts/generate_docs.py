"""Write the reference pages that come from the code: `python scripts/generate_docs.py`.

`tests/unit/docs/test_generated_docs.py` fails when a page is not what this would write.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel

from dart.cli.exit_codes import ExitCode
from dart.cli.main import app
from dart.config.cluster import ClusterConfig, cluster_field_rows
from dart.config.config import Config, field_rows
from dart.config.layers import literal
from dart.config.problems import field_docstrings
from dart.inspect.metrics import METRICS, Metric
from dart.telemetry.events import KINDS, REPORT_FIELDS, REPORTS, EventKind
from dart.training.update_report import UpdateReport, UpdateSummary

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference"

CONFIGURATION_HEAD = """\
# Configuration

Generated from `dart/config/sections.py` by `python scripts/generate_docs.py`.

For everyone who writes a configuration file. A value comes from these defaults, from one TOML file, or from
`--set section.key=value`; the last of them wins. An empty file will do. `dartrl config check FILE` reports
every problem at once; `dartrl config show FILE` prints the result with the origin of each value. Keys that
end in `_s` are seconds. Terms are in the [glossary](../glossary.md).
"""

CLUSTER_FILE_HEAD = """\
# Cluster file

Generated from `dart/config/cluster.py` by `python scripts/generate_docs.py`.

For everyone who runs on [many machines](../cluster.md). `dartrl up FILE` tells a cluster file from a run file
by its keys. It names a run file and says where the run's record, its blobs and its parts are. Terms are in
the [glossary](../glossary.md).
"""

EXIT_CODES_HEAD = """\
# Exit codes

Generated from `dart/cli/exit_codes.py` by `python scripts/generate_docs.py`. For scripts and service
managers that run `dartrl`.

| code | name | meaning |
|---|---|---|
"""


CLI_HEAD = """\
# Commands

Generated from `dart/cli/` by `python scripts/generate_docs.py`: what `--help` prints. Exit codes:
[exit-codes.md](exit-codes.md).
"""

EVENTS_HEAD = """\
# Events

Generated from `dart/telemetry/events.py` by `python scripts/generate_docs.py`.

For programs that follow a run, and for readers of `dartrl events`. Each event is a row of the table
`events` in the run's `store.db`: `unix_s`, `kind`, `subject`, and `data`, a JSON object with the fields
below. Fields that end in `_s` are seconds. An event is also a line in the log of the actor that emits it,
under the same name and with the same fields, and is counted in the metric `dartrl_events_total`; `load`,
which comes every few seconds, is neither.
"""


REPORTS_HEAD = """
# Reports of supervisors

`dartrl events` shows them among the events. They are in `reports/<supervisor>.jsonl` of the run, because
supervisors write them also while the record is down. Each has these fields:
"""

METRICS_HEAD = """\
# Metrics

Generated from `dart/inspect/metrics.py` by `python scripts/generate_docs.py`.

For operators who collect metrics. `dartrl metrics` prints them, `dartrl metrics --listen HOST:PORT` serves
them on `/metrics`. They are read from the board and the record at each scrape. Units are in the names; a
ratio is between 0 and 1. `contrib/grafana/dartrl.json` is a dashboard for Grafana.

| metric | kind | labels | meaning |
|---|---|---|---|
"""


UPDATE_HEAD = """
## Figures of an update

Each is a label of `dartrl_update_figure` and a curve in TensorBoard ([tracking](../tracking.md)). A figure
that an update could not compute is left out. Means are over the step samples in the loss unless it says
otherwise.
"""


def configuration_page() -> str:
    """One table per section, in file order."""
    return CONFIGURATION_HEAD + "".join(_configuration_lines(Config, field_rows()))


def cluster_file_page() -> str:
    """The same for cluster files; keys without a section come first."""
    return CLUSTER_FILE_HEAD + "".join(_configuration_lines(ClusterConfig, cluster_field_rows()))


def _configuration_lines(model: type[BaseModel], rows: Iterable[tuple[str, str, Any]]) -> Iterator[str]:
    current = None
    for key, description, default in rows:
        section, _, name = key.rpartition(".")
        if section != current:
            current = section
            title = f"`[{section}]`" if section else "Top level"
            yield f"\n## {title}\n{_about(model, section)}\n| key | default | meaning |\n|---|---|---|\n"
        yield f"| `{name}` | `{literal(default)}` | {' '.join(description.split())} |\n"


def _about(config: type[BaseModel], section: str) -> str:
    """The docstring of a top-level section's model."""
    field = config.model_fields.get(section)
    model = field.annotation if field else None
    return f"{cleandoc(model.__doc__)}\n" if model and model.__doc__ else ""


def exit_codes_page() -> str:
    """The table of exit codes."""
    return EXIT_CODES_HEAD + "".join(f"| {code} | {code.name} | {code.meaning} |\n" for code in ExitCode)


def cli_page() -> str:
    """Every command with its options, in the order of the help."""
    return CLI_HEAD + "".join(_command_lines(typer.main.get_command(app), "dartrl"))


def _command_lines(command: Any, path: str) -> Iterator[str]:
    """A section for a command; for a group, one for each of its own."""
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from _command_lines(below, f"{path} {name}")
        return
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    usage = " ".join([path, *map(_argument, arguments)])
    yield f"\n## `{usage}`\n\n{cleandoc(command.help)}\n"
    described = [param for param in options if param.name != "help" and not param.hidden]
    if arguments or described:
        yield "\n| | |\n|---|---|\n"
    for param in arguments:
        yield f"| `{_argument(param)}` | {_help(param)} |\n"
    for param in described:
        yield f"| {', '.join(f'`{name}`' for name in param.opts)} | {_help(param)} |\n"


def _argument(param: Any) -> str:
    """As in the usage line: `FILES...`, `[CONFIG]`."""
    name = (param.metavar or param.name).upper() + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def _help(param: Any) -> str:
    return re.sub(r"\s+", " ", param.help or "")


def events_page() -> str:
    """Every kind of event with its fields."""
    return EVENTS_HEAD + "".join(_event_lines())


def _event_lines() -> Iterator[str]:
    for kind, event in KINDS.items():
        yield from _one_event(kind, event, f" Log: {event.level or 'none'}.")
    yield REPORTS_HEAD
    yield from _table_of("field", REPORT_FIELDS)
    for kind, about in REPORTS.items():
        yield from _one_event(kind, EventKind(about=about, subject="the actor", fields={}))


def _one_event(kind: str, event: EventKind, level: str = "") -> Iterator[str]:
    yield f"\n## `{kind}`\n{event.about}\n\nSubject: {event.subject}.{level}\n"
    if event.fields:
        yield from _table_of("field", event.fields)


def _table_of(name: str, rows: Mapping[str, str]) -> Iterator[str]:
    yield f"\n| {name} | meaning |\n|---|---|\n"
    yield from (f"| `{key}` | {meaning} |\n" for key, meaning in rows.items())


def metrics_page() -> str:
    """Every metric, in the order of its table."""
    fields = field_docstrings(UpdateSummary) | field_docstrings(UpdateReport)
    figures = {name: " ".join(text.split()) for name, text in fields.items()}
    return (
        METRICS_HEAD
        + "".join(map(_metric_row, METRICS))
        + UPDATE_HEAD
        + "".join(_table_of("figure", figures))
    )


def _metric_row(metric: Metric) -> str:
    labels = "; ".join(f"`{label}`: {meaning}" for label, meaning in metric.labels.items())
    return f"| `{metric.exposed}` | {metric.kind} | {labels} | {metric.about} |\n"


def pages() -> dict[Path, str]:
    """What every generated page should hold."""
    return {
        PAGES / "configuration.md": configuration_page(),
        PAGES / "cluster-file.md": cluster_file_page(),
        PAGES / "exit-codes.md": exit_codes_page(),
        PAGES / "cli.md": cli_page(),
        PAGES / "events.md": events_page(),
        PAGES / "metrics.md": metrics_page(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
