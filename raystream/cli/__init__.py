"""The command `raystream`: plan, run, jobs, status, top, story, scale, move, drain, stop, version.

Nothing heavy is imported here: a command imports what it needs, so that `--help` is quick.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from raystream.errors import (
    ConfigError,
    GraphError,
    InputError,
    InternalError,
    OutputError,
    RaystreamError,
    Stopped,
    notes,
    user_traceback,
)

if TYPE_CHECKING:
    from raystream.controller.moves import Mode
    from raystream.controller.report import Moved

FAILED, REFUSED, STOPPED, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: the job failed; the flow, an option, the input, the output or the machine is wrong;
the job was stopped (`raystream stop`); Ctrl-C."""

RUN, WATCH, CHANGE = "Run a flow", "Look at jobs of a cluster", "Change a running job"
"""Groups of commands."""
ON_CLUSTER, CHECKPOINTS = "On a cluster", "Checkpoints"
"""Groups of options."""

LOOK_SECONDS = 1.0
"""How long `status` watches a job: rates are of this time."""

app = typer.Typer(
    name="raystream",
    help="Runs dataflows of stateful operators, in this process or on a Ray cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FLOW",
        help="An rs.Flow, or a function without arguments that returns one. The module is looked"
        " for in the current folder first.",
        show_default=False,
    ),
]


def _unless_given(panel: str, metavar: str, said: str, least: int | None = None) -> Any:
    """An option without a default that is worth showing."""
    return typer.Option(
        metavar=metavar, help=said, min=least, show_default=False, rich_help_panel=panel
    )


Cluster = Annotated[
    str | None,
    _unless_given(
        ON_CLUSTER,
        "ADDRESS",
        "Of a Ray cluster. Unless given (or `auto`), that of the submitted job or of this"
        " machine; where there is none, one is started for this run.",
    ),
]
PolicyName = Annotated[
    str | None,
    _unless_given(
        ON_CLUSTER,
        "cpu|rate|none",
        "What scales operators by itself: their CPU above 70 %, or rates; or nothing. With --pool"
        " it is cpu unless given.",
    ),
]
Bounds = Annotated[
    str,
    _unless_given(
        ON_CLUSTER,
        "NAME=LEAST-MOST,...",
        "How few and how many instances the policy may give.",
    ),
]
Pool = Annotated[
    int | None,
    _unless_given(
        ON_CLUSTER, "N", "With Ray's autoscaler: spare nodes beside those in use.", least=0
    ),
]
NodesMax = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="With --pool: nodes at most, not more than the cluster may have.",
        rich_help_panel=ON_CLUSTER,
    ),
]
Copies = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Nodes that hold a checkpoint.", rich_help_panel=ON_CLUSTER
    ),
]
Spares = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Warm processes that stand by for those that die.",
        rich_help_panel=ON_CLUSTER,
    ),
]
CheckpointSeconds = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.001,
        help="From one cut to the next, about.",
        rich_help_panel=CHECKPOINTS,
    ),
]
Durable = Annotated[
    str | None,
    _unless_given(
        CHECKPOINTS, "URL", "A folder or s3://bucket/prefix to which committed cuts are copied."
    ),
]
Resume = Annotated[
    bool | None,
    typer.Option(
        "--resume/--fresh",
        help="With --durable: go on from the newest whole cut there (none: from the beginning), or"
        " begin anew. Where there are cuts, say which.",
        show_default=False,
        rich_help_panel=CHECKPOINTS,
    ),
]


@app.command(rich_help_panel=RUN)
def plan(
    flow: Target,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the graph of a flow; starts and reads nothing.

    Operators, which of them are fused, keys, states and record types.

    Example: raystream plan examples.word_count:flow
    """
    with _errors_told():
        from raystream.cli.load import load_flow
        from raystream.cli.plan import describe, show

        show(describe(load_flow(flow)), as_json=json)


@app.command(rich_help_panel=RUN)
def run(
    flow: Target,
    local: Annotated[
        bool, typer.Option("--local", help="Run in this process, without Ray.")
    ] = False,
    instances: Annotated[
        str,
        typer.Option(
            metavar="NAME=N,...", help="Instances of operators, 1 unless given.", show_default=False
        ),
    ] = "",
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Checking mode: find operators that are not deterministic. Slower.",
        ),
    ] = False,
    rows: Annotated[
        str,
        typer.Option(
            metavar="NAME=N,...",
            help="Rows that compiled and batch operators are expected to keep: room for them is"
            " made before the first record.",
            show_default=False,
        ),
    ] = "",
    address: Cluster = None,
    policy: PolicyName = None,
    bounds: Bounds = "",
    pool: Pool = None,
    nodes_max: NodesMax = 100,
    copies: Copies = 1,
    spares: Spares = 2,
    checkpoint_seconds: CheckpointSeconds = 5.0,
    durable: Durable = None,
    resume: Resume = None,
) -> None:
    """Run a flow to the end of its input, and show how it goes.

    Example: raystream run examples.word_count:flow --instances CountWords=2
    """
    with _errors_told("interrupted: the job was ended"):
        if local and address is not None:
            raise ConfigError("--local and --address exclude each other")
        from raystream.actors.late_pandas import put_off_pandas
        from raystream.cli.live import Screen
        from raystream.cli.load import load_flow, parse_bounds, parse_numbers, policy_of
        from raystream.controller.pool import PoolOptions
        from raystream.run import run as run_flow

        put_off_pandas()
        counts, limits = parse_numbers(instances), parse_bounds(bounds)
        scaling = policy_of(policy)
        loaded = load_flow(flow)
        with Screen(loaded.name) as screen:
            report = run_flow(
                loaded,
                cluster=None if local else address or "auto",
                instances=counts,
                rows=parse_numbers(rows),
                checkpoint_seconds=checkpoint_seconds,
                copies=copies,
                spares=spares,
                policy=scaling,
                bounds=limits,
                pool=None if pool is None else PoolOptions(pool, nodes_max=nodes_max),
                check=check,
                durable=durable,
                resume=resume,
                on_progress=screen.update,
                on_note=screen.note,
            )
        screen.totals(report)


Job = Annotated[
    str, typer.Argument(metavar="JOB", help="The name of a job, or of one of its runs.")
]
JobSeen = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The name of a job, or of one of its runs; unless given, the only job that runs.",
    ),
]
Address = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Of a Ray cluster; `auto`: that of the submitted job, of this machine, or the one"
        " that a run here has started for itself.",
    ),
]


@app.command(rich_help_panel=WATCH)
def jobs(address: Address = "auto") -> None:
    """List the runs of jobs in a Ray cluster."""
    with _errors_told():
        from raystream.actors.stopping import jobs as find

        found = find(address)
        for run in found:
            typer.echo(run)
        if not found:
            typer.echo("no job is running", err=True)


Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


@app.command(rich_help_panel=WATCH)
def status(job: JobSeen = "", json: Json = False, address: Address = "auto") -> None:
    """Show what of a job runs where, how fast, and what was decided last.

    Rates and shares are of one second. Of an operator the highest share of its instances is shown.
    """
    with _errors_told():
        from itertools import islice

        from raystream.actors.looking import looks
        from raystream.cli.status import as_data, console_for, status_view

        seen = list(islice(looks(job, address, LOOK_SECONDS), 2))
        if not seen:
            raise ConfigError(f"{job or 'the job'} has just ended, or has not begun yet")
        (before, _), (now, nodes) = seen[0], seen[-1]
        if json:
            _print_json(as_data(now, before, nodes))
        else:
            console_for().print(status_view(now, before, nodes))


@app.command(rich_help_panel=WATCH)
def top(
    job: JobSeen = "",
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="From one look to the next.")
    ] = 2.0,
    address: Address = "auto",
) -> None:
    """Watch a job: `status` again and again.

    Until the job ends, or you leave with Ctrl-C. Where there is little room, it shows the
    instances that use most of their CPU; where there is no terminal, one look below the other.
    """
    with _errors_told():
        from contextlib import nullcontext

        from rich.live import Live

        from raystream.actors.looking import looks
        from raystream.cli.status import console_for, status_view, top_view

        console = console_for()
        before = None
        shown = Live(console=console, screen=True, auto_refresh=False)
        with shown if console.is_interactive else nullcontext() as live:
            for now, nodes in looks(job, address, seconds):
                if live is None:
                    console.print(status_view(now, before, nodes))
                else:
                    live.update(top_view(now, before, nodes, console.height), refresh=True)
                before = now
        typer.echo(f"{job or 'the job'} has ended")


@app.command(rich_help_panel=WATCH)
def story(job: JobSeen = "", json: Json = False, address: Address = "auto") -> None:
    """Tell what was decided for a job, why, and how long it took."""
    with _errors_told():
        from raystream.actors.looking import looks
        from raystream.cli.status import as_data, console_for, headline, story_view

        for now, nodes in looks(job, address, 0.0):
            if json:
                _print_json(as_data(now, None, nodes)["story"])
            else:
                console_for().print(headline(now), story_view(now.story), sep="\n\n")
            return
        raise ConfigError(f"{job or 'the job'} has just ended, or has not begun yet")


@app.command(rich_help_panel=CHANGE)
def stop(
    job: Job,
    save: Annotated[
        bool,
        typer.Option(
            "--save", help="End it once a cut that is taken now is saved in its durable tier."
        ),
    ] = False,
    address: Address = "auto",
) -> None:
    """End a job; with --save so that `run --resume` can go on from there.

    Whatever submitted it ends with exit code 3.

    Example: raystream stop counts --save
    """
    with _errors_told():
        from raystream.actors.stopping import stop as end

        typer.echo(end(job, address, save=save, tell=partial(typer.echo, err=True)))


Node = Annotated[
    str, typer.Argument(metavar="NODE", help="The beginning of a node's id, or its address.")
]


Handover = Annotated[
    bool,
    typer.Option(
        "--handover",
        help="Take from the old instances what has changed since the last cut, instead of"
        " computing it again.",
    ),
]


@app.command(rich_help_panel=CHANGE)
def scale(
    job: Job,
    instances: Annotated[
        str, typer.Argument(metavar="NAME=N,...", help="Instances of operators or sources.")
    ],
    handover: Handover = False,
    address: Address = "auto",
) -> None:
    """Give operators more or fewer instances, while the job goes on.

    Example: raystream scale counts CountWords=4
    """
    with _errors_told():
        from raystream.actors.rescaling import scale as ask
        from raystream.cli.load import parse_numbers

        mode: Mode = "handover" if handover else "replay"
        _tell_moves(ask(job, address, parse_numbers(instances), mode))


@app.command(rich_help_panel=CHANGE)
def move(
    job: Job,
    instance: Annotated[str, typer.Argument(metavar="NAME/I", help="An instance.")],
    to: Annotated[
        str, typer.Option(metavar="NODE", help="The beginning of a node's id, or its address.")
    ] = "",
    handover: Handover = False,
    address: Address = "auto",
) -> None:
    """Let another process, or another node, do the work of an instance.

    Example: raystream move counts CountWords/0 --to 10.0.0.7
    """
    with _errors_told():
        from raystream.actors.rescaling import move as ask

        mode: Mode = "handover" if handover else "replay"
        _tell_moves(ask(job, address, instance, to, mode))


@app.command(rich_help_panel=CHANGE)
def drain(job: Job, node: Node, address: Address = "auto") -> None:
    """Have a job leave a node, and not use it again.

    Example: raystream drain counts 10.0.0.7
    """
    with _errors_told():
        from raystream.actors.rescaling import drain as ask

        _tell_moves(ask(job, address, node))


def _tell_moves(moves: Sequence[Moved]) -> None:
    """Say what was done; the exit code is that of a failure if something was not."""
    from raystream.cli.live import moved_line

    for moved in moves:
        typer.echo(moved_line(moved).strip())
    if not moves:
        typer.echo("nothing had to be moved")
    if any(m.failed for m in moves):
        raise SystemExit(FAILED)


@app.command(rich_help_panel=RUN)
def version() -> None:
    """Print the versions of raystream, Python, and what they stand on."""
    import platform
    from importlib import metadata

    from raystream import __version__

    lines = [("raystream", __version__), ("python", platform.python_version())]
    lines += [(p, metadata.version(p)) for p in ("ray", "pyarrow", "numpy", "numba")]
    for name, found in lines:
        typer.echo(f"{name} {found}")


@contextmanager
def _errors_told(interrupted: str = "interrupted") -> Iterator[None]:
    """End the process with one clear message and the exit code that goes with it.

    Args:
        interrupted: what to say of Ctrl-C.
    """
    try:
        yield
    except Stopped as error:
        _say(str(error))
        raise SystemExit(STOPPED) from None
    except RaystreamError as error:
        refused = isinstance(error, GraphError | ConfigError | InputError | OutputError)
        _end(error, REFUSED if refused else FAILED)
    except Exception as error:
        bug = InternalError(
            f"{type(error).__name__}: {error}", hint="A bug of raystream: please report it."
        )
        bug.add_note(traceback.format_exc().rstrip())
        _end(bug, FAILED)
    except KeyboardInterrupt:
        _say(interrupted)
        raise SystemExit(INTERRUPTED) from None


def _end(error: RaystreamError, code: int) -> NoReturn:
    """The message, and dimmed below it the traceback of the user's code, where there is one."""
    _say(f"error: {error}", style="red")
    below = notes(error)
    if not below and error.__cause__ is not None:
        below = [user_traceback(error.__cause__)]
    for note in filter(None, below):
        _say(note, style="dim")
    raise SystemExit(code)


def _print_json(data: object) -> None:
    import json

    typer.echo(json.dumps(data, indent=2))


def _say(text: str, style: str = "") -> None:
    from rich.console import Console

    Console(stderr=True).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """The entry point of `raystream`."""
    app()
