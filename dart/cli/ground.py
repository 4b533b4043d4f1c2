"""`dartrl ground`: train policies to find elements on screenshots, and measure how often they do."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dart.cli.exit_codes import ExitCode, end
from dart.cli.options import CONFIGURATION, Overrides
from dart.cli.output import Format, Output, print_data, print_list, say
from dart.inspect.formatting import percent
from dart.inspect.tables import Column

if TYPE_CHECKING:
    from dart.grounding.evaluation import AccuracyReport, AccuracyRow

ground_app = typer.Typer(
    help="Finding the element of a screenshot that an instruction means.", no_args_is_help=True
)


@ground_app.command()
def train(
    config: Annotated[
        Path | None, typer.Argument(help=f"{CONFIGURATION} Only its section [grounding] is used.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write the checkpoint to; it must not exist.")
    ] = Path("runs/grounding"),
    verifier: Annotated[
        bool, typer.Option("--verifier", help="Train a verifier instead of a policy, on the same data.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Train a policy to find elements, on screenshots with the boxes of the elements.

    With `grounding.base`, a warm-up first trains only the head and the embedding rows of new tokens; then all
    weights are trained.

    **Examples**

    * `python -m dart.grounding.pages runs/pages/train --pages 2040` makes data of MiniWoB++ pages
    * `dartrl ground train grounding --out runs/grounding`
    * `dartrl ground train grounding --verifier --out runs/verifier`
    * `dartrl ground train --set grounding.data='["runs/pages/train"]' --set grounding.labels=gaussian`
    """
    from dart.config.config import load_config
    from dart.preflight.requirements import missing_packages, require_installation

    if out.exists():
        end(f"{out} exists already; choose another folder with --out", ExitCode.CANNOT_CREATE)
    settings = load_config(config, overrides or [])
    require_installation(settings, checks=(missing_packages,))
    from dart.grounding.jobs import train_job, train_verifier_job

    if verifier:
        train_verifier_job(settings.grounding, out, say)
    else:
        train_job(settings.grounding, out, say)
    say(f"wrote {out}")


@ground_app.command("eval")
def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a checkpoint.")],
    data: Annotated[Path, typer.Argument(help="ScreenSpot annotation file, or a folder of them.")],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help=f"{CONFIGURATION} Its key evaluation.verifier can name a verifier."
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the screenshots. Default: beside the annotations.")
    ] = None,
    head: Annotated[
        Literal["pointer", "attention", "coordinates"] | None,
        typer.Option(help="Head that grounds. Default: the head with which the checkpoint was trained."),
    ] = None,
    k: Annotated[
        int,
        typer.Option(
            "--top", min=1, help="The last row counts a sample as hit if any of the first K regions is right."
        ),
    ] = 3,
    zoom: Annotated[
        bool, typer.Option("--zoom", help="Ground a second time, in a crop around the first answer.")
    ] = False,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
) -> None:
    """Measure how often a checkpoint points into the right box, by kind and size of the element.

    The output names the prompt and the sizes of the images. Compare accuracies only if both are the same.

    **Examples**

    * `dartrl ground eval runs/grounding runs/pages/held-out`
    * `dartrl ground eval runs/grounding runs/pages/held-out --set evaluation.verifier=runs/verifier -o json`
    * `dartrl ground eval GUI-Actor-3B ScreenSpot-Pro --zoom`
    """
    from dart.config.config import load_config
    from dart.preflight.requirements import missing_packages, require_installation

    settings = load_config(config, overrides or [])
    require_installation(settings, checks=(missing_packages,))
    from dart.grounding.jobs import evaluate_job

    if zoom and settings.evaluation.verifier:
        end("--zoom and evaluation.verifier exclude each other; choose one", ExitCode.USAGE)
    report = evaluate_job(
        checkpoint,
        data,
        settings.evaluation,
        head=head,
        images=images,
        k=k,
        is_zoomed=zoom,
        report=partial(say, err=True),
    )
    if output.is_data:
        print_data(report, output)
    else:
        show(report, output)


def show(report: "AccuracyReport", output: Format) -> None:
    """Print a report as a table, and below it the settings that are needed to repeat the measurement."""
    print_list([*report.rows, report.hits_of_k], columns(), output)
    lines = [
        f"head {report.head}, screenshots {', '.join(report.screen_sizes_px)} shown as "
        f"{', '.join(report.shown_sizes_px)}" + (", zoomed" if report.is_zoomed else ""),
        f"prompt {report.prompt!r}",
        f"{report.seconds_per_query:.2f} s a query",
    ]
    if report.verifier:
        lines.append(
            f"verifier {report.verifier} scored {report.candidates_per_query:.1f} candidates a query"
        )
    say("\n".join(lines))


def columns() -> "list[Column[AccuracyRow]]":
    """Return the columns of the table of accuracies."""
    return [
        Column("group", lambda row: row.group),
        Column("name", lambda row: row.name),
        Column("hits", lambda row: row.hits, is_number=True),
        Column("of", lambda row: row.samples, is_number=True),
        Column("accuracy", lambda row: percent(row.accuracy), is_number=True),
        Column("95 %", lambda row: f"{percent(row.low)} to {percent(row.high)}"),
    ]
