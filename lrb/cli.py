"""The commands: run, validate, demo, elastic, rate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console

import raystream as rs
from lrb import options
from raystream.errors import (
    ConfigError,
    GraphError,
    InputError,
    OutputError,
    RaystreamError,
    notes,
)

app = typer.Typer(
    name="python -m lrb",
    help="Linear Road: tolls, accident alerts and accounts of simulated motorways, answered by"
    " raystream on Ray. `python -m spark_ingest` makes the input.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_screen = Console()
_errors = Console(stderr=True)

DATA, ANSWERS, REPORT = "data", "answers", "report"
"""Folders that `demo` and `elastic` make."""

_FAILED, _REFUSED, _INTERRUPTED = 1, 2, 130
"""Exit codes: the job failed, or answers are wrong; the input, an option or the machine is wrong;
Ctrl-C."""

_PLAIN_WIDTH = 120
"""Columns of a table that goes into a file or a log."""

Input = Annotated[
    Path,
    typer.Option(
        help="Folder that `python -m spark_ingest` wrote, or a published file (CSV, also .gz).",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        help="Folder for the answers: new, empty, or with earlier answers, which are replaced.",
        show_default=False,
    ),
]
Speed = Annotated[
    str,
    typer.Option(help="Simulated seconds per second: 1 is real time, max is as fast as it goes."),
]
Instances = Annotated[
    str,
    typer.Option(
        metavar="NAME=N,...",
        help="Instances of operators, 1 unless given: vehicles=2,segments=2,accounts=2",
        show_default=False,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster; unless given, that of the submitted job or of this"
        " machine, and where there is none one is started for this run.",
        show_default=False,
    ),
]


@app.command()
def run(
    input: Input,
    out: Out,
    speed: Speed = "max",
    instances: Instances = "",
    local: Annotated[
        bool, typer.Option("--local", help="Run in this process, without Ray.")
    ] = False,
    address: Address = None,
    pool: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="With Ray's autoscaler: operators scale by themselves, with so many spare nodes.",
            show_default=False,
        ),
    ] = None,
    nodes_max: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="With --pool: nodes at most, not more than the cluster may have.",
        ),
    ] = 100,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Toll history of a published file (VID,Day,XWay,Toll), else nothing was spent.",
            show_default=False,
        ),
    ] = None,
    on_bad_row: Annotated[
        Literal["fail", "quarantine"],
        typer.Option(help="Bad rows of a published file: stop at the first, or put them aside."),
    ] = "fail",
) -> None:
    """Answer the input; write the answers and what the run was (run.json).

    A published file is prepared first, into OUT/data. Type 4 requests (travel times) are counted
    and not answered: the published files leave their fields empty, and no validator judges them.

    Example: python -m lrb run --input data/ --out answers/ --speed 20 --instances vehicles=2
    """
    with _errors_told():
        if local and address is not None:
            raise ConfigError("--local and --address exclude each other")
        pace, counts = options.speed(speed), options.instances(instances)
        target = options.absolute(out, "--out")
        data = _prepared(options.absolute(input, "--input"), target, history, on_bad_row)
        kept = None if pool is None else rs.PoolOptions(pool, nodes_max=nodes_max)
        record = _run(data, target, pace, None if local else address or "auto", counts, kept)
        _print_table(record, None)


@app.command()
def validate(
    input: Input,
    answers: Annotated[
        Path, typer.Option(help="Folder that `python -m lrb run` wrote.", show_default=False)
    ],
) -> None:
    """Hold every answer against an oracle: a batch computation of the same rules in Spark SQL.

    Ends with exit code 1 if an answer is wrong, missing, given twice or late.

    Example: python -m lrb validate --input data/ --answers answers/
    """
    with _errors_told():
        given = options.absolute(answers, "--answers")
        data = _prepared_before(options.absolute(input, "--input"), given)
        from lrb.validate import show

        verdict = _validate(data, given)
        show(verdict, _screen)
    raise SystemExit(0 if verdict.ok else _FAILED)


@app.command()
def demo(
    xways: Annotated[int, typer.Option(min=1, help="Expressways, of about 37,000 cars each.")] = 1,
    seconds: Annotated[int, typer.Option(min=60, help="Length of the traffic.")] = 5400,
    speed: Speed = "60",
    seed: Annotated[int, typer.Option(min=0, help="Of the traffic.")] = 0,
    instances: Instances = "",
    address: Address = None,
    out: Annotated[
        Path, typer.Option(help="Folder in which data/, answers/ and report/ are made.")
    ] = Path(),
) -> None:
    """Generate traffic, answer it on Ray, check every answer, write a report.

    Example: python -m lrb demo --xways 1 --seconds 5400 --speed 60
    """
    with _errors_told():
        pace, counts = options.speed(speed), options.instances(instances)
        home = options.absolute(out, "--out")
        _reserve(home / ANSWERS)
        _generate(home / DATA, xways, seconds, seed)
        record = _run(home / DATA, home / ANSWERS, pace, address or "auto", counts)
        good = _judged(home, record)
    raise SystemExit(0 if good else _FAILED)


@app.command()
def elastic(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long the run takes.")] = 10.0,
    hours: Annotated[
        float, typer.Option(min=0.02, help="Hours of traffic that go into these minutes.")
    ] = 3.0,
    cores: Annotated[
        float,
        typer.Option(
            help="The part of a core that an instance counts as having. It is split when it uses"
            " more than 70 % of that, and merged with a neighbour when together they"
            " use less than 35 %."
        ),
    ] = 0.2,
    epoch: Annotated[
        float,
        typer.Option(
            min=0.01,
            help="Real seconds of an epoch. What an instance costs without any traffic is by epoch"
            " and by instance that it reads from or feeds: in short ones that alone keeps many"
            " instances busy.",
        ),
    ] = 0.25,
    most: Annotated[
        int, typer.Option(min=1, max=options.INSTANCES_MAX, help="Instances of an operator.")
    ] = 8,
    interval: Annotated[
        float, typer.Option(min=0.5, help="Seconds between reports of instances.")
    ] = 5.0,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Compile operators, as the other commands do.")
    ] = False,
    xways: Annotated[int, typer.Option(min=1, help="Expressways.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the traffic.")] = 0,
    address: Address = None,
    out: Annotated[
        Path, typer.Option(help="Folder in which data/, answers/ and report/ are made.")
    ] = Path(),
) -> None:
    """Answer growing traffic with as many instances as it needs, one each at first.

    As `demo`, with the rate curve of hours in minutes: all tuples of three hours come in ten
    minutes, at 18 times real time, and epochs are cut by the time of the traffic. Nobody says how
    many instances there are to be. Deadlines are held in real seconds.

    Traffic that an earlier run left in OUT/data is used again.

    Where instances are many and cores few, their CPU shares are emulated: with --cores 0.2 an
    instance that uses more than 14 % of a core counts as one that uses 70 % of what it has.
    Nothing holds it back there. Operators run as plain Python: compiled, one instance of each would
    do for the traffic of many expressways, and its CPU would hardly depend on the traffic.

    Example: python -m lrb elastic --minutes 1.5 --hours 0.5 --interval 2 --out trial/
    """
    with _errors_told():
        from lrb.elastic import (
            bounds_of,
            decisions_of,
            decisions_table,
            epoch_of,
            policy_of,
            speed_of,
        )

        policy, (seconds, pace) = policy_of(cores, interval), speed_of(hours, minutes)
        home = options.absolute(out, "--out")
        _reserve(home / ANSWERS)
        _generate_once(home / DATA, xways, seconds, seed)
        _say(f"An instance is split above {policy.threshold:.1%} of a core, merged below half")
        record = _run(
            home / DATA,
            home / ANSWERS,
            pace,
            address or "auto",
            {},
            policy,
            bounds_of(most),
            interpreted=not compiled,
            epoch=epoch_of(epoch, pace),
        )
        good = _judged(home, record, decisions_table(decisions_of(record)))
    raise SystemExit(0 if good else _FAILED)


@app.command()
def rate(
    data: Annotated[
        Path, typer.Option(help="Folder for the traffic, made once and kept.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for rate.json: new, empty, or with earlier answers.")
    ] = Path("rate"),
    seconds: Annotated[int, typer.Option(min=1, help="How much of the end is replayed.")] = 600,
    speed: Speed = "1",
    begin: Annotated[int, typer.Option("--from", min=1, help="Expressways to begin with.")] = 1,
    most: Annotated[int, typer.Option(min=1, help="Expressways at most.")] = 1000,
    p99: Annotated[
        float, typer.Option(min=0.001, help="Seconds in which 99 of 100 answers have to come.")
    ] = 1.0,
    xways: Annotated[int, typer.Option(min=1, help="Expressways generated.")] = 1,
    whole: Annotated[int, typer.Option(min=60, help="Seconds generated.")] = 10_800,
    seed: Annotated[int, typer.Option(min=0, help="Of the traffic.")] = 0,
    instances: Instances = "",
    local: Annotated[
        bool, typer.Option("--local", help="Run in this process, without Ray.")
    ] = False,
    address: Address = None,
) -> None:
    """Find the largest number of expressways with every answer right and in time.

    The last minutes of three hours of generated traffic are replayed at their own pace from a cold
    start. One expressway is generated, unless asked otherwise, and replayed as many, with other
    cars on other expressways. The number is doubled until a step fails, then the gap is halved. An
    oracle judges all answers to what was generated; those to replicas must have its checksum.
    Ends with exit code 1 if an answer is wrong, or no step passes.

    Example: python -m lrb rate --data traffic/ --from 10
    """
    with _errors_told():
        if local and address is not None:
            raise ConfigError("--local and --address exclude each other")
        pace, counts = options.speed(speed), options.instances(instances)
        if pace is None:
            raise ConfigError("--speed max: a rating needs a pace", hint="1 is real time.")
        home, target = options.absolute(data, "--data"), options.absolute(out, "--out")
        from lrb import rating
        from lrb.rate import Search, Traffic, share_memory

        share_memory()
        traffic = Traffic(xways, whole, seconds, seed)
        cluster = None if local else address or "auto"
        asked = Search(begin, most, p99, pace, cluster, counts)
        record = rating.found(home, target, traffic, asked, _say, _generate)
        _show_rating(record)
    wrong = any(step["right"] is False for step in record["steps"])
    raise SystemExit(0 if record["L"] and not wrong else _FAILED)


# ---- the steps --------------------------------------------------------------------------------


def _judged(home: Path, record: dict[str, Any], *more: Any) -> bool:
    """Checks the answers below a folder and writes the report; whether all are right and in time.

    more: what is shown after the table.
    """
    verdict = _validate(home / DATA, home / ANSWERS)
    from lrb.report import write_report

    page = write_report(home / ANSWERS, verdict, home / REPORT)
    _print_table(record, verdict)
    for table in more:
        _screen.print(table)
    for path in (page, *sorted((home / REPORT).glob("*.png"))):
        _screen.print(str(path), markup=False, highlight=False, soft_wrap=True)
    return bool(verdict.ok)


def _reserve(answers: Path) -> None:
    """Make the folder of answers: what it refuses is refused before traffic is generated."""
    from lrb import folder

    folder.make(answers)


def _generate(data: Path, xways: int, seconds: int, seed: int) -> None:
    with options.spark_needed():
        from spark_ingest.generate import generate
        from spark_ingest.screen import shown

    _say(f"Generating {seconds:,} s of traffic on {xways} expressway{'s' * (xways > 1)}")
    with shown(_errors) as progress:
        generate(data, xways=xways, seconds=seconds, seed=seed, progress=progress)


def _generate_once(data: Path, xways: int, seconds: int, seed: int) -> None:
    """As `_generate`, unless the folder holds that very traffic."""
    from lrb.rate import Traffic
    from spark_ingest import layout

    asked = Traffic(xways, seconds, seconds, seed)
    if (data / "meta.json").exists() and asked.is_that_of(layout.read_meta(data)):
        _say(f"The traffic in {data} was generated before")
    else:
        _generate(data, xways, seconds, seed)


def _prepared(given: Path, out: Path, history: Path | None, on_bad_row: Any) -> Path:
    """The folder of prepared rows that was given, or that is made of a published file."""
    if given.is_dir():
        if history is not None:
            raise ConfigError("--history belongs to a published file; prepared data have their own")
        return given
    if not given.exists():
        raise InputError(
            f"--input {given} does not exist",
            hint="Make some with: python -m spark_ingest generate --out data/",
        )
    from lrb import folder

    with options.spark_needed():
        from spark_ingest.prepare import prepare
        from spark_ingest.screen import shown

    folder.make(out)
    past = options.absolute(history, "--history") if history else None
    _say(f"Preparing {given}")
    with shown(_errors) as progress:
        summary = prepare(
            [given], out / folder.PREPARED, history=past, on_bad_row=on_bad_row, progress=progress
        )
    if summary.quarantined:
        _say(f"{summary.quarantined:,} bad rows are listed in {summary.data / 'quarantine.csv'}")
    return summary.data


def _prepared_before(given: Path, answers: Path) -> Path:
    """The prepared folder that answers belong to, if a published file is given."""
    from lrb.folder import PREPARED

    made = answers / PREPARED
    return made if given.is_file() and made.is_dir() else given


def _run(
    rows: Path,
    out: Path,
    speed: float | None,
    cluster: str | None,
    instances: dict[str, int],
    policy: Any = None,
    bounds: dict[str, tuple[int, int]] | None = None,
    interpreted: bool = False,
    pool: rs.PoolOptions | None = None,
    epoch: float | None = None,
) -> dict[str, Any]:
    from lrb import progress
    from lrb.run import run as run_flow
    from lrb.source import look_through

    data = look_through(rows)
    pace = "as fast as it goes" if speed is None else f"{speed:g} times real time"
    where = "in this process" if cluster is None else "on Ray"
    _say(f"Answering {data.meta.rows_total:,} rows {where}, {pace}")
    with progress.shown(_errors, data, speed, epoch) as told:
        return run_flow(
            data,
            out,
            speed=speed,
            cluster=cluster,
            instances=instances,
            policy=policy,
            bounds=bounds,
            interpreted=interpreted,
            pool=pool,
            epoch=epoch,
            on_progress=told,
        )


def _validate(data: Path, answers: Path) -> Any:
    with options.spark_needed():
        from lrb.validate import validate as compare

    _say("Checking every answer")
    if not _errors.is_terminal:
        return compare(data, answers, progress=lambda stage: _say(f"  {stage}"))
    with _errors.status("") as status:
        return compare(data, answers, progress=status.update)


def _show_rating(record: dict[str, Any]) -> None:
    from lrb.rating import table

    if not _screen.is_terminal:
        _screen.width = max(_screen.width, _PLAIN_WIDTH)
    _screen.print(table(record))


def _print_table(record: dict[str, Any], verdict: Any) -> None:
    from lrb.report import summary_table

    if not _screen.is_terminal:
        _screen.width = max(_screen.width, _PLAIN_WIDTH)
    _screen.print(summary_table(record, verdict))


# ---- the end ----------------------------------------------------------------------------------


@contextmanager
def _errors_told() -> Iterator[None]:
    """Ends the process with one message and the exit code that goes with it."""
    try:
        yield
    except (ConfigError, GraphError, InputError, OutputError) as error:
        _end(error, _REFUSED)
    except RaystreamError as error:
        _end(error, _FAILED)
    except KeyboardInterrupt:
        _say("interrupted: the job was ended, and its answers are discarded")
        raise SystemExit(_INTERRUPTED) from None


def _end(error: RaystreamError, code: int) -> NoReturn:
    """The message, and dimmed below it what else is known."""
    _say(f"error: {error}", style="red")
    for note in notes(error):
        _say(note, style="dim")
    raise SystemExit(code)


def _say(text: str, style: str = "") -> None:
    _errors.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    """The entry point of `python -m lrb`."""
    app()
