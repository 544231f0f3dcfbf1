"""What the commands have in common: generate, prepare, answer, judge, and show each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

import raystream as rs
from lrb import options
from raystream.cli.errors import say
from raystream.errors import ConfigError, InputError, JobError

SCREEN = Console()
ERRORS = Console(stderr=True)

DATA, ANSWERS, REPORT = "data", "answers", "report"
"""Folders that `demo` and `elastic` make."""
PUSHED = "push"
"""What `--input` says of rows that are pushed."""
PLAIN_WIDTH = 120
"""Columns of a table that goes into a file or a log."""


def judged(home: Path, record: dict[str, Any], *more: Any) -> bool:
    """Check the answers below a folder and write the report.

    Args:
        home: holds the folders of traffic, answers and report. record: of the run. more: what is
            shown after the table.

    Returns:
        Whether all answers are right and in time.
    """
    verdict = validated(home / DATA, home / ANSWERS)
    from lrb.reporting.report import write_report

    page = write_report(home / ANSWERS, verdict, home / REPORT)
    show_run(record, verdict)
    for table in more:
        SCREEN.print(table)
    for path in (page, *sorted((home / REPORT).glob("*.png"))):
        SCREEN.print(str(path), markup=False, highlight=False, soft_wrap=True)
    if verdict.objection:
        say(verdict.objection)
    return bool(verdict.ok)


def reserve(answers: Path) -> None:
    """Make the folder of answers: what it refuses is refused before traffic is generated."""
    from lrb.query import folder

    folder.make(answers)


def generate(data: Path, xways: int, seconds: int, seed: int) -> None:
    """Generate traffic into a folder, and show how far that is."""
    with options.spark_needed():
        from spark_ingest.generate import generate as made
        from spark_ingest.screen import shown

    say(f"Generating {seconds:,} s of traffic on {xways} expressway{'s' * (xways > 1)}")
    with shown(ERRORS) as progress:
        made(data, xways=xways, seconds=seconds, seed=seed, progress=progress)


def generate_once(data: Path, xways: int, seconds: int, seed: int) -> None:
    """As `generate`, unless the folder holds exactly that traffic already."""
    from lrb.rating.rate import Traffic
    from spark_ingest import layout

    asked = Traffic(xways, seconds, seconds, seed)
    if (data / "meta.json").exists() and asked.is_that_of(layout.read_meta(data)):
        say(f"The traffic in {data} was generated before")
    else:
        generate(data, xways, seconds, seed)


def prepared(given: Path, out: Path, history: Path | None, on_bad_row: Any) -> Path:
    """The folder of prepared rows: the given one, or a new one made from a published file.

    Args:
        given: a prepared folder or a published file. out: the folder of answers, in which prepared
            rows are put. history: the published toll history. on_bad_row: `fail` or `quarantine`.

    Raises:
        ConfigError: a history was given for prepared rows. InputError: nothing was given.
    """
    if given.is_dir():
        if history is not None:
            raise ConfigError("--history belongs to a published file; prepared data have their own")
        return given
    if not given.exists():
        raise InputError(
            f"--input {given} does not exist",
            hint="Make some with: python -m spark_ingest generate --out data/",
        )
    from lrb.query import folder

    with options.spark_needed():
        from spark_ingest.published.prepare import prepare
        from spark_ingest.screen import shown

    folder.make(out)
    past = options.absolute(history, "--history") if history else None
    say(f"Preparing {given}")
    with shown(ERRORS) as progress:
        summary = prepare(
            [given], out / folder.PREPARED, history=past, on_bad_row=on_bad_row, progress=progress
        )
    if summary.quarantined:
        say(f"{summary.quarantined:,} bad rows are listed in {summary.data / 'quarantine.csv'}")
    return summary.data


def prepared_before(given: Path, answers: Path) -> Path:
    """The prepared folder that answers belong to, if a published file is given."""
    from lrb.query.folder import PREPARED

    made = answers / PREPARED
    return made if given.is_file() and made.is_dir() else given


def answered(
    rows: Path,
    out: Path,
    *,
    speed: float | None,
    cluster: str | None,
    instances: dict[str, int] | None = None,
    policy: Any = None,
    bounds: dict[str, tuple[int, int]] | None = None,
    interpreted: bool = False,
    pool: rs.PoolOptions | None = None,
    epoch: float | None = None,
) -> dict[str, Any]:
    """Run the flow over prepared rows and show how far it is; what there is to say of the run.

    Args:
        rows: the prepared folder. out: the folder of answers. speed: simulated seconds a second;
            None for as fast as it goes. cluster: the address of a cluster; None for this process.
            The others are those of `lrb.query.run.run`.
    """
    from lrb.query.run import run as run_flow
    from lrb.query.source import look_through
    from lrb.reporting import progress

    data = look_through(rows)
    pace = "as fast as it goes" if speed is None else f"{speed:g} times real time"
    where = "in this process" if cluster is None else "on Ray"
    say(f"Answering {data.meta.rows_total:,} rows {where}, {pace}")
    with progress.shown(ERRORS, data, speed, epoch) as told:
        return run_flow(
            data,
            out,
            speed=speed,
            cluster=cluster,
            instances=instances or {},
            policy=policy,
            bounds=bounds,
            interpreted=interpreted,
            pool=pool,
            epoch=epoch,
            on_progress=told,
        )


def fed(
    history: Path | None,
    out: Path,
    *,
    port: int,
    token: str | None = None,
    cluster: str | None,
    instances: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Answer rows that are pushed, and show how far it is; what there is to say of the run.

    Args:
        history: the prepared folder with the tolls of earlier days. port, token: of the source.
            The others are as of `answered`.

    Raises:
        InputError: the folder is none.
    """
    from lrb.query.fed import PATH, Feed
    from lrb.query.fed_run import run_fed
    from lrb.reporting import progress
    from spark_ingest.layout import history_files, read_meta

    if history is not None:
        read_meta(history)
    files = () if history is None else tuple(history_files(history))
    where = "in this process" if cluster is None else "on Ray"
    say(f"Answering what is pushed to port {port}, path {PATH}, {where}")
    with progress.shown(ERRORS, None, None) as told:
        return run_fed(
            Feed(port=port, token=token, history=files),
            out,
            cluster=cluster,
            instances=instances or {},
            on_progress=told,
        )


def answered_as_fed(
    data: Path,
    out: Path,
    *,
    speed: float | None,
    cluster: str | None,
    instances: dict[str, int] | None = None,
) -> dict[str, Any]:
    """As `answered`, with Spark feeding the rows meanwhile instead of the job reading them.

    Raises:
        JobError: the feed has failed, or the job did not get all rows.
    """
    from lrb.query.feeder import feeding
    from spark_ingest.layout import read_meta

    rows = read_meta(data).rows_total
    pace = "as fast as it goes" if speed is None else f"{speed:g} times real time"
    say(f"Spark starts, and then feeds {rows:,} rows, {pace}")
    with feeding(data, speed) as feeder:
        record = fed(
            data,
            out,
            port=feeder.port,
            token=feeder.token,
            cluster=cluster,
            instances=instances,
        )
        feeder.refuse_failed()
    came = sum(record["rows_in"].values())
    if came != rows:
        raise JobError(f"the job was given {came:,} of {rows:,} rows")
    return record


def validated(data: Path, answers: Path) -> Any:
    """The verdict of the oracle on the answers to prepared rows."""
    with options.spark_needed():
        from lrb.oracle.validate import validate as compare

    say("Checking every answer")
    if not ERRORS.is_terminal:
        return compare(data, answers, progress=lambda stage: say(f"  {stage}"))
    with ERRORS.status("") as status:
        return compare(data, answers, progress=status.update)


def show_rating(record: dict[str, Any]) -> None:
    """Print what a search for the L-rating has found."""
    from lrb.rating.command import table

    show(table(record))


def show_run(record: dict[str, Any], verdict: Any) -> None:
    """Print what a run was, and the verdict if there is one."""
    from lrb.reporting.report import summary_table

    show(summary_table(record, verdict))


def show(table: Any) -> None:
    """Print a table; where there is no terminal it is wide enough for all its columns."""
    if not SCREEN.is_terminal:
        SCREEN.width = max(SCREEN.width, PLAIN_WIDTH)
    SCREEN.print(table)
