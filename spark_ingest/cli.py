"""The commands: generate, prepare, feed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from raystream.cli.errors import errors_reported
from spark_ingest.screen import shown, summary_table

app = typer.Typer(
    name="python -m spark_ingest",
    help="Prepares input for the Linear Road benchmark with Spark: simulated traffic, or the"
    " published files. Both commands write the same folder of Parquet files, which"
    " `python -m lrb run` reads.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_errors = Console(stderr=True)

INTERRUPTED = "Interrupted: what was written so far is deleted."

Out = Annotated[
    Path,
    typer.Option(
        help="Folder to write: new, empty, or with prepared data, which is replaced.",
        show_default=False,
    ),
]


@app.command()
def generate(
    out: Out,
    xways: Annotated[
        int, typer.Option(min=1, help="Expressways of 100 miles, each with two directions.")
    ] = 1,
    seconds: Annotated[
        int, typer.Option(min=60, help="How long cars enter and drive. The benchmark: 10800.")
    ] = 10_800,
    seed: Annotated[
        int, typer.Option(min=0, help="Same seed, same rows, on any machine with any cores.")
    ] = 0,
) -> None:
    """Simulate traffic, and write its position reports, requests and toll history.

    The simulation is calibrated on the data of the original benchmark: about 12 million rows per
    expressway in three hours, 3.7 million in the first 90 minutes. Traffic thickens until half of
    the segments are jammed and tolled, and an accident happens about every 20 minutes. Some cars
    leave and come back later, on the same expressway or another one.

    Example: python -m spark_ingest generate --xways 2 --seconds 3600 --seed 7 --out data/
    """
    from spark_ingest.generate import generate as run  # Spark: not needed for --help

    with errors_reported(INTERRUPTED), shown(_errors) as progress:
        summary = run(out, xways=xways, seconds=seconds, seed=seed, progress=progress)
    Console().print(summary_table(summary))


@app.command()
def prepare(
    input: Annotated[
        list[Path],
        typer.Option(
            help="Published file of fifteen columns without a header, plain or gzipped."
            " May be given several times.",
            show_default=False,
        ),
    ],
    out: Out,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Published toll history (VID,Day,XWay,Toll), such as historical-tolls.out."
            " Without it every daily expenditure is 0.",
            show_default=False,
        ),
    ] = None,
    on_bad_row: Annotated[
        Literal["fail", "quarantine"],
        typer.Option(help="Stop at the first bad row, or list bad rows in OUT/quarantine.csv."),
    ] = "fail",
) -> None:
    """Check and sort published Linear Road files, and write them as Parquet.

    Every row is checked: whole numbers, in range for its type, no row twice, at most one report of
    a car in a second, and in a minute two from a segment and four segments. Bad rows are told with
    file, line and reason. The order of the rows does not matter.

    Example: python -m spark_ingest prepare --input datafile3hours.dat --out data/
    """
    from spark_ingest.published.prepare import prepare as run  # Spark: not needed for --help

    with errors_reported(INTERRUPTED), shown(_errors) as progress:
        summary = run(input, out, history=history, on_bad_row=on_bad_row, progress=progress)
    Console().print(summary_table(summary))


@app.command()
def feed(
    address: Annotated[
        str, typer.Option(help="Where the job listens; several with commas.")
    ] = "http://127.0.0.1:7700",
    input: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder that `generate` or `prepare` wrote, or published files. Unless given,"
            " traffic is generated.",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[
        str, typer.Option(help="Event seconds per second; max is as fast as the job takes them.")
    ] = "1",
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder in which the feed keeps how far it is: after it was killed it goes on from"
            " there. Unless given, it cannot.",
            show_default=False,
        ),
    ] = None,
    xways: Annotated[int, typer.Option(min=1, help="Expressways of generated traffic.")] = 1,
    seconds: Annotated[int, typer.Option(min=60, help="Length of generated traffic.")] = 10_800,
    seed: Annotated[int, typer.Option(min=0, help="Of generated traffic.")] = 0,
    token: Annotated[
        str | None, typer.Option(envvar="RAYSTREAM_PUSH_TOKEN", help="That of the job.")
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.05, help="Seconds from one batch to the next, at least.")
    ] = 0.5,
    cores: Annotated[int | None, typer.Option(min=1, help="Of Spark; all unless given.")] = None,
    tasks: Annotated[
        int | None,
        typer.Option(min=1, help="About how many tasks read a batch (spark.default.parallelism)."),
    ] = None,
    spark: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="A setting of Spark. May be given again.", show_default=False
        ),
    ] = None,
) -> None:
    """Feed a running job with Linear Road by Spark Structured Streaming, at a pace.

    The job is `python -m lrb run --input push`. Rows are released second by second, in batches;
    what Spark has committed counts once, whatever is killed and started again. Rows that do not lie
    prepared are made first, into STATE/data.

    Example: python -m spark_ingest feed --input data/ --speed 20
    """
    from spark_ingest.feed.command import How, Wanted, fed  # Spark: not needed for --help

    with errors_reported("Interrupted: the job waits for more."):
        wanted = Wanted(tuple(input or ()), xways=xways, seconds=seconds, seed=seed)
        how = How(speed=speed, every=every, cores=cores, tasks=tasks, settings=tuple(spark or ()))
        fed(address, token, wanted, state, how)


def main() -> None:
    """The entry point of `python -m spark_ingest`."""
    # Asked to end from outside, clean up as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
