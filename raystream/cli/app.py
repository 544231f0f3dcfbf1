"""The command `raystream`: new, demo, plan, check, run, replay, fork, jobs, status, top, story, ui,
state, checkpoint, scale, move, drain, upgrade, push, stop, certificates, token, version.

Nothing heavy is imported here: a command imports what it needs, so that `--help` is quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raystream.cli import jobs, replay, security, state
from raystream.cli.errors import FAILED, errors_reported
from raystream.cli.options import (
    RESUMING,
    SECURITY,
    BoundsOption,
    Check,
    CheckpointMemory,
    CheckpointSeconds,
    Cluster,
    Copies,
    Drops,
    DurableOption,
    ExpectedRows,
    FlowTarget,
    Instances,
    Keep,
    Local,
    NodesMax,
    PolicyName,
    PoolOption,
    Renames,
    Resume,
    Spares,
    StateFolder,
    StateMemory,
    Tls,
    Together,
    Traces,
    Values,
    WithPage,
    unless_given,
)
from raystream.errors import ConfigError

if TYPE_CHECKING:
    from raystream.api.flow import Flow

BEGIN, RUN = "Begin", "Run a flow"
WATCH, CHANGE = "Look at jobs of a cluster", "Change a running job"
"""Groups of commands."""


app = typer.Typer(
    name="raystream",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def raystream(
    told: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_tell_version, help="The same as `version`."
        ),
    ] = False,
) -> None:
    """Runs dataflows of stateful operators, in this process or on a Ray cluster."""


@app.command(rich_help_panel=BEGIN)
def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the project and of its folder, which is made.")
    ],
) -> None:
    """Make a project: a flow that runs, its tests, an image, and a job for Kubernetes.

    Example: raystream new sensors
    """
    with errors_reported():
        from pathlib import Path

        from raystream.cli.project import make_project

        made = make_project(Path(name))
        for path in made:
            typer.echo(path)
        flow = f"{made[1].parent.name}.flow:flow"
        typer.echo(f"\ncd {name} && raystream run {flow} --local")


@app.command(rich_help_panel=BEGIN)
def demo(
    local: Annotated[
        bool, typer.Option("--local", help="Run in this process, without Ray.")
    ] = False,
    seconds: Annotated[
        int, typer.Option(metavar="SECONDS", min=1, help="How long it takes.")
    ] = 300,
    ui: Annotated[bool, typer.Option("--ui", help="Show it on a page in a browser, too.")] = False,
) -> None:
    """Run a job to look at: taxis of a town, 2,000 trips a second, two operators with state."""
    with errors_reported("interrupted: the job was ended"):
        from raystream.cli.demo import HINTS, taxis
        from raystream.native.lazy_pandas import put_off_pandas

        put_off_pandas()
        if not local:
            typer.echo(HINTS)
        where = None if local else "auto"
        _run_on_screen(taxis(seconds), cluster=where, checkpoint_seconds=2.0, ui=ui)


@app.command(rich_help_panel=RUN)
def plan(
    flow: FlowTarget,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    resume: Annotated[
        str | None,
        unless_given(
            RESUMING,
            "URL",
            "Say what the flow would make of its newest checkpoint in this folder or bucket.",
        ),
    ] = None,
    rename: Renames = "",
    drop: Drops = "",
) -> None:
    """Show the graph of a flow; starts and reads nothing.

    Operators, which of them are fused, keys, states and record types. With --resume, what of a
    flow that has changed begins empty, goes or moves.

    Example: raystream plan examples.word_count:flow
    """
    with errors_reported():
        from raystream.cli.load import load_flow, parse_drops, parse_renames
        from raystream.cli.plan import describe, show

        made = load_flow(flow)
        described = describe(made)
        if resume is None:
            if rename or drop:
                raise ConfigError("--rename and --drop need --resume URL")
            show(described, as_json=json)
            return
        from raystream.cli import resumed
        from raystream.controller.planning.changes import ResumeWishes

        wishes = ResumeWishes(parse_renames(rename), parse_drops(drop))
        found = resumed.resumed(made, resume, wishes)
        show({**described, "resume": found}, as_json=json)
        if not json:
            resumed.show(found)


@app.command(rich_help_panel=RUN)
def check(
    flow: FlowTarget,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, help="How long sources and sinks may take to answer."
        ),
    ] = 30.0,
) -> None:
    """Try all that a flow reads and writes; starts no job and changes nothing.

    Connects to each source and reads a record, and sees whether each sink can be written. Ends with
    exit code 1 if one of them fails.

    Example: raystream check examples.word_count:flow
    """
    with errors_reported():
        from raystream.cli.check import check as ask
        from raystream.cli.check import show
        from raystream.cli.load import load_flow

        made = load_flow(flow)
        answers = ask(made, wait)
        show(made.name, answers, as_json=json)
        if not all(answer.ok for answer in answers):
            raise SystemExit(FAILED)


@app.command(rich_help_panel=RUN)
def run(
    flow: FlowTarget,
    local: Local = False,
    instances: Instances = "",
    check: Check = False,
    rows: ExpectedRows = "",
    address: Cluster = None,
    policy: PolicyName = None,
    bounds: BoundsOption = "",
    pool: PoolOption = None,
    nodes_max: NodesMax = 100,
    copies: Copies = 1,
    spares: Spares = 2,
    together: Together = False,
    traces: Traces = None,
    checkpoint_seconds: CheckpointSeconds = 5.0,
    state_folder: StateFolder = None,
    state_memory: StateMemory = None,
    checkpoint_memory: CheckpointMemory = None,
    durable: DurableOption = None,
    resume: Resume = None,
    rename: Renames = "",
    drop: Drops = "",
    keep: Keep = 2,
    tls: Tls = None,
    ui: WithPage = False,
    values: Values = None,
) -> None:
    """Run a flow to the end of its input, and show how it goes.

    Example: raystream run examples.word_count:flow --instances CountWords=2
    """
    with errors_reported("interrupted: the job was ended"):
        from raystream.cli import load
        from raystream.controller.elastic.pool import PoolOptions
        from raystream.native.lazy_pandas import put_off_pandas

        put_off_pandas()
        _run_on_screen(
            load.load_flow(flow),
            cluster=load.cluster_of(local, address),
            instances=load.parse_numbers(instances),
            rows=load.parse_numbers(rows),
            checkpoint_seconds=checkpoint_seconds,
            copies=copies,
            spares=spares,
            together=together,
            traces=traces,
            policy=load.policy_of(policy),
            bounds=load.parse_bounds(bounds),
            pool=None if pool is None else PoolOptions(pool, nodes_max=nodes_max),
            check=check,
            state_folder=state_folder,
            state_memory=state_memory,
            checkpoint_memory=checkpoint_memory,
            durable=durable,
            resume=resume,
            rename=load.parse_renames(rename),
            drop=load.parse_drops(drop),
            keep=keep,
            tls=tls,
            ui=ui,
            values=values,
        )


def _run_on_screen(flow: Flow, **options: Any) -> None:
    """Run a flow, and draw how it goes."""
    from raystream.cli.live import Screen
    from raystream.run import run as run_flow

    with Screen(flow.name) as screen:
        report = run_flow(flow, on_progress=screen.update, on_note=screen.note, **options)
    screen.totals(report)


_OF_JOBS: dict[str, list[Callable[..., None]]] = {
    RUN: [replay.replay, replay.fork],
    WATCH: [jobs.jobs, jobs.status, jobs.top, jobs.story, state.state, jobs.ui],
    CHANGE: [
        jobs.stop,
        jobs.checkpoint,
        jobs.scale,
        jobs.move,
        jobs.drain,
        jobs.upgrade,
        jobs.push,
    ],
    SECURITY: [security.certificates, security.token],
}
for _panel, _commands in _OF_JOBS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)


@app.command(rich_help_panel=RUN)
def version() -> None:
    """Print the versions of raystream, Python, and what it stands on."""
    import platform
    from importlib import metadata

    from raystream import __version__

    lines = [("raystream", __version__), ("python", platform.python_version())]
    lines += [(p, metadata.version(p)) for p in ("ray", "pyarrow", "numpy", "numba")]
    for name, found in lines:
        typer.echo(f"{name} {found}")


for _command_info in app.registered_commands:  # lines of a docstring are no lines of a terminal
    _said = inspect.cleandoc(getattr(_command_info.callback, "__doc__", None) or "")
    _command_info.help = "\n\n".join(p.replace("\n", " ") for p in _said.split("\n\n"))
