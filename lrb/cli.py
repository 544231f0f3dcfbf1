"""The commands: run, validate, demo, elastic, rate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import raystream as rs
from lrb import options, steps
from lrb.steps import ANSWERS, DATA
from raystream.cli.errors import FAILED, errors_reported, say
from raystream.errors import ConfigError

app = typer.Typer(
    name="python -m lrb",
    help="Linear Road: tolls, accident alerts and accounts of simulated motorways, answered by"
    " raystream on Ray. `python -m spark_ingest` makes the input.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

INTERRUPTED = "interrupted: the job was ended, and its answers are discarded"

Input = Annotated[
    Path,
    typer.Option(
        help="Folder that `python -m spark_ingest` wrote, or a published file (CSV, also .gz).",
        show_default=False,
    ),
]
InputOrPush = Annotated[
    Path,
    typer.Option(
        help="Folder that `python -m spark_ingest` wrote, or a published file (CSV, also .gz);"
        " `push` for rows that come while the job runs.",
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
Xways = Annotated[int, typer.Option(min=1, help="Expressways, of about 37,000 cars each.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the traffic.")]
Home = Annotated[Path, typer.Option(help="Folder in which data/, answers/ and report/ are made.")]
Local = Annotated[bool, typer.Option("--local", help="Run in this process, without Ray.")]
Address = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster; unless given, that of the submitted job or of this"
        " machine, and where there is none one is started for this run.",
        show_default=False,
    ),
]

Pool = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="With Ray's autoscaler: operators scale by themselves, with this many spare nodes.",
        show_default=False,
    ),
]
NodesMax = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="With --pool: nodes at most, not more than the cluster may have."
    ),
]
History = Annotated[
    Path | None,
    typer.Option(
        help="Toll history of a published file (VID,Day,XWay,Toll), or with --input push the"
        " folder of prepared data that has it; else nothing was spent.",
        show_default=False,
    ),
]
OnBadRow = Annotated[
    Literal["fail", "quarantine"],
    typer.Option(help="Bad rows of a published file: stop at the first, or put them aside."),
]
Port = Annotated[
    int, typer.Option(min=1, max=65_535, help="With --input push: where the job listens.")
]


@app.command()
def run(
    input: InputOrPush,
    out: Out,
    speed: Speed = "max",
    instances: Instances = "",
    local: Local = False,
    address: Address = None,
    pool: Pool = None,
    nodes_max: NodesMax = 100,
    history: History = None,
    on_bad_row: OnBadRow = "fail",
    port: Port = 7700,
) -> None:
    """Answer the input; write the answers and what the run was (run.json).

    A published file is prepared first, into OUT/data. Type 4 requests (travel times) are counted
    and not answered: the published files leave their fields empty, and no validator judges them.

    With --input push the job waits for what `python -m spark_ingest feed` pushes, at the pace of
    the feed, until that has ended. Requests show the token in RAYSTREAM_PUSH_TOKEN, or the one
    that is said.

    Example: python -m lrb run --input data/ --out answers/ --speed 20 --instances vehicles=2
    """
    with errors_reported(INTERRUPTED):
        if local and address is not None:
            raise ConfigError("--local and --address exclude each other")
        pace, counts = options.speed(speed), options.instances(instances)
        target = options.absolute(out, "--out")
        cluster = None if local else address or "auto"
        if str(input) == steps.PUSHED:
            if pace is not None or pool is not None:
                raise ConfigError("--input push goes without --speed and --pool")
            past = options.absolute(history, "--history") if history else None
            record = steps.fed(past, target, port=port, cluster=cluster, instances=counts)
            steps.show_run(record, None)
            return
        data = steps.prepared(options.absolute(input, "--input"), target, history, on_bad_row)
        kept = None if pool is None else rs.PoolOptions(pool, nodes_max=nodes_max)
        record = steps.answered(
            data,
            target,
            speed=pace,
            cluster=cluster,
            instances=counts,
            pool=kept,
        )
        steps.show_run(record, None)


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
    with errors_reported(INTERRUPTED):
        given = options.absolute(answers, "--answers")
        data = steps.prepared_before(options.absolute(input, "--input"), given)
        from lrb.oracle.validate import show

        verdict = steps.validated(data, given)
        show(verdict, steps.SCREEN)
    raise SystemExit(0 if verdict.ok else FAILED)


@app.command()
def demo(
    xways: Xways = 1,
    seconds: Annotated[int, typer.Option(min=60, help="Length of the traffic.")] = 5400,
    speed: Speed = "60",
    seed: Seed = 0,
    instances: Instances = "",
    address: Address = None,
    out: Home = Path(),
    feed: Annotated[
        Literal["files", "spark"],
        typer.Option(help="Does the job read files, or does Spark feed it while it runs?"),
    ] = "files",
) -> None:
    """Generate traffic, answer it on Ray, check every answer, write a report.

    Example: python -m lrb demo --xways 1 --seconds 5400 --speed 60
    """
    with errors_reported(INTERRUPTED):
        pace, counts = options.speed(speed), options.instances(instances)
        home = options.absolute(out, "--out")
        steps.reserve(home / ANSWERS)
        steps.generate(home / DATA, xways, seconds, seed)
        answer = steps.answered_as_fed if feed == "spark" else steps.answered
        record = answer(
            home / DATA,
            home / ANSWERS,
            speed=pace,
            cluster=address or "auto",
            instances=counts,
        )
        good = steps.judged(home, record)
    raise SystemExit(0 if good else FAILED)


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
    xways: Xways = 1,
    seed: Seed = 0,
    address: Address = None,
    out: Home = Path(),
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
    with errors_reported(INTERRUPTED):
        from lrb.reporting.elastic import decisions_of, decisions_table, policy_of, speed_of

        policy, (seconds, pace) = policy_of(cores, interval), speed_of(hours, minutes)
        home = options.absolute(out, "--out")
        steps.reserve(home / ANSWERS)
        steps.generate_once(home / DATA, xways, seconds, seed)
        record = _answered_by_as_many_as_needed(
            home, pace, policy, most=most, epoch=epoch, compiled=compiled, address=address
        )
        good = steps.judged(home, record, decisions_table(decisions_of(record)))
    raise SystemExit(0 if good else FAILED)


def _answered_by_as_many_as_needed(
    home: Path,
    pace: float,
    policy: rs.CpuThreshold,
    *,
    most: int,
    epoch: float,
    compiled: bool,
    address: str | None,
) -> dict[str, Any]:
    """Answer the traffic below a folder while the policy splits and merges instances.

    Args:
        home: holds the folders of traffic and answers. pace: simulated seconds a second.
            most: instances of an operator, at most. epoch: real seconds of an epoch.
    """
    from lrb.reporting.elastic import bounds_of, epoch_of

    say(f"An instance is split above {policy.threshold:.1%} of a core, merged below half")
    return steps.answered(
        home / DATA,
        home / ANSWERS,
        speed=pace,
        cluster=address or "auto",
        policy=policy,
        bounds=bounds_of(most),
        interpreted=not compiled,
        epoch=epoch_of(epoch, pace),
    )


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
    seed: Seed = 0,
    instances: Instances = "",
    local: Local = False,
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
    with errors_reported(INTERRUPTED):
        if local and address is not None:
            raise ConfigError("--local and --address exclude each other")
        pace, counts = options.speed(speed), options.instances(instances)
        if pace is None:
            raise ConfigError("--speed max: a rating needs a pace", hint="1 is real time.")
        home, target = options.absolute(data, "--data"), options.absolute(out, "--out")
        from lrb.rating import command as rating
        from lrb.rating.rate import Search, Traffic, share_memory

        share_memory()
        traffic = Traffic(xways, whole, seconds, seed)
        cluster = None if local else address or "auto"
        asked = Search(begin, most, p99, pace, cluster, counts)
        record = rating.found(home, target, traffic, asked, say, steps.generate)
        steps.show_rating(record)
    wrong = any(step["right"] is False for step in record["steps"])
    raise SystemExit(0 if record["L"] and not wrong else FAILED)


def main() -> None:
    """The entry point of `python -m lrb`."""
    app()
