"""The commands that look at jobs of a cluster, or change them: jobs, status, top, story, ui; stop,
scale, move, drain, upgrade, push. `app.py` puts them into the command `raystream`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from raystream.cli.errors import FAILED, errors_reported, print_json
from raystream.errors import ConfigError

if TYPE_CHECKING:
    from raystream.controller.protocol.history import MoveRecord
    from raystream.controller.protocol.move_requests import MoveMode

LOOK_SECONDS = 1.0
"""How long `status` watches a job: rates are of this time."""
JobOption = Annotated[
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


def jobs(address: Address = "auto") -> None:
    """List the runs of jobs in a Ray cluster."""
    with errors_reported():
        from raystream.actors.client.jobs import jobs as find

        found = find(address)
        for run in found:
            typer.echo(run)
        if not found:
            typer.echo("no job is running", err=True)


Json = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


def status(job: JobSeen = "", json: Json = False, address: Address = "auto") -> None:
    """Show where each part of a job runs, how fast, and the last decisions.

    Rates and shares are of one second. Of an operator the highest share of its instances is shown.
    """
    with errors_reported():
        from itertools import islice

        from raystream.actors.client.watching import looks
        from raystream.cli.status import as_data, console_for, status_view

        seen = list(islice(looks(job, address, LOOK_SECONDS), 2))
        if not seen:
            raise ConfigError(f"{job or 'the job'} has just ended, or has not begun yet")
        (before, _), (now, nodes) = seen[0], seen[-1]
        if json:
            print_json(as_data(now, before, nodes))
        else:
            console_for().print(status_view(now, before, nodes))


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
    with errors_reported():
        from contextlib import nullcontext

        from rich.live import Live

        from raystream.actors.client.watching import looks
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


def story(job: JobSeen = "", json: Json = False, address: Address = "auto") -> None:
    """Show what was decided for a job, why, and how long it took."""
    with errors_reported():
        from raystream.actors.client.watching import looks
        from raystream.cli.status import as_data, console_for, headline, story_view

        for now, nodes in looks(job, address, 0.0):
            if json:
                print_json(as_data(now, None, nodes)["story"])
            else:
                console_for().print(headline(now), story_view(now.story), sep="\n\n")
            return
        raise ConfigError(f"{job or 'the job'} has just ended, or has not begun yet")


def checkpoint(job: JobOption, address: Address = "auto") -> None:
    """Take a checkpoint of a job now, and say which one it is once it is stored.

    Where the job has a durable tier it is saved there, too. The job goes on.

    Example: raystream checkpoint counts
    """
    with errors_reported():
        from raystream.actors.client.stopping import checkpoint as ask

        typer.echo(ask(job, address))


def stop(
    job: JobOption,
    save: Annotated[
        bool,
        typer.Option(
            "--save",
            help="Take a checkpoint now, and end the job once it is saved in the durable tier.",
        ),
    ] = False,
    address: Address = "auto",
) -> None:
    """End a job; with --save so that `run --resume` can go on from there.

    Whatever submitted it ends with exit code 3.

    Example: raystream stop counts --save
    """
    with errors_reported():
        from raystream.actors.client.stopping import stop as end

        typer.echo(end(job, address, save=save, tell=partial(typer.echo, err=True)))


def ui(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="The only job to be shown; unless given, all.")
    ] = "",
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="Where the page listens. Beyond this machine use --tls, or a network that you"
            " trust.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="0 for any that is free.")] = 0,
    no_values: Annotated[
        bool, typer.Option("--no-values", help="Show no keys and values of rows of state.")
    ] = False,
    tls: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Serve https with the certificate in this folder (`raystream certificates`).",
            show_default=False,
        ),
    ] = None,
    hours: Annotated[
        float,
        typer.Option(
            metavar="HOURS", min=0.01, help="How long the address that can only look is valid."
        ),
    ] = 24.0,
    address: Address = "auto",
) -> None:
    """Show jobs on a page in a browser, live; its buttons scale, move, drain, checkpoint and stop.

    It ends with Ctrl-C. It prints two addresses, each with a token that the page asks for: with the
    first one you may do all, with the second one only look.
    """
    with errors_reported():
        from raystream.actors.cluster.connecting import visited
        from raystream.page.serving import refuse_without_nicegui, serve

        refuse_without_nicegui()
        with visited(address):
            serve(
                address,
                job,
                host=host,
                port=port,
                tls=tls,
                hours=hours,
                values=not no_values,
                tell=_tell_page,
            )


def _tell_page(operates: str, looks: str) -> None:
    typer.echo(operates)
    typer.echo(f"only to look: {looks}")


NodeOption = Annotated[
    str, typer.Argument(metavar="NODE", help="The beginning of a node's id, or its address.")
]
Handover = Annotated[
    bool,
    typer.Option(
        "--handover",
        help="Take from the old instances what has changed since the committed checkpoint, instead"
        " of computing it again.",
    ),
]


def scale(
    job: JobOption,
    instances: Annotated[
        str, typer.Argument(metavar="NAME=N,...", help="Instances of operators or sources.")
    ],
    handover: Handover = False,
    address: Address = "auto",
) -> None:
    """Give operators more or fewer instances, while the job goes on.

    Example: raystream scale counts CountWords=4
    """
    with errors_reported():
        from raystream.actors.client.rescaling import scale as ask
        from raystream.cli.load import parse_numbers

        mode: MoveMode = "handover" if handover else "replay"
        _tell_moves(ask(job, address, parse_numbers(instances), mode))


def move(
    job: JobOption,
    instance: Annotated[str, typer.Argument(metavar="NAME/I", help="An instance.")],
    to: Annotated[
        str, typer.Option(metavar="NODE", help="The beginning of a node's id, or its address.")
    ] = "",
    handover: Handover = False,
    address: Address = "auto",
) -> None:
    """Move an instance to another process, or to another node.

    Example: raystream move counts CountWords/0 --to 10.0.0.7
    """
    with errors_reported():
        from raystream.actors.client.rescaling import move as ask

        mode: MoveMode = "handover" if handover else "replay"
        _tell_moves(ask(job, address, instance, to, mode))


def drain(job: JobOption, node: NodeOption, address: Address = "auto") -> None:
    """Move a job off a node, which it does not use again.

    Example: raystream drain counts 10.0.0.7
    """
    with errors_reported():
        from raystream.actors.client.rescaling import drain as ask

        _tell_moves(ask(job, address, node))


def upgrade(
    job: JobOption,
    flow: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FLOW", help="The flow with the new code.", show_default=False
        ),
    ],
    code_folder: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Where the modules of the new code are; the current folder unless given.",
        ),
    ] = "",
    address: Address = "auto",
) -> None:
    """Replace the code of a job while it runs.

    All epochs up to one are made by the code before, all later ones by the new code. The streams of
    the flow stay; rows of another class need its `upgrade`.

    Example: raystream upgrade shop shop:flow --code-folder new
    """
    with errors_reported():
        from raystream.actors.client.upgrading import upgrade as ask
        from raystream.cli.load import load_flow

        done = ask(job, load_flow(flow, code_folder), address, partial(typer.echo, err=True))
        typer.echo(
            f"after epoch {done.after:,} {job} runs {flow}, settled after {done.seconds:.1f} s"
        )


def push(
    job: JobOption,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The name of a push source.")],
    json: Annotated[
        list[str] | None,
        typer.Option(
            "--json",
            metavar="RECORD",
            help="A record as a JSON object, or a list of them; may be given several times.",
            show_default=False,
        ),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End the input of the source afterwards.")
    ] = False,
    address: Address = "auto",
) -> None:
    """Push records into a running job by hand, as into a control stream.

    Returns when they are recorded. Many records are sent with raystream.push.Client.

    Example: raystream push alerts rules --json '{"user": "ann", "limit": 50}'
    """
    with errors_reported():
        from raystream.actors.client.pushing import push as send
        from raystream.actors.client.pushing import records_in

        records = records_in(json or [])
        if not records and not end:
            raise ConfigError("nothing to push", hint="--json '{...}', or --end.")
        send(job, source, records, address, end=end)
        what = "1 record is" if len(records) == 1 else f"{len(records)} records are"
        typer.echo(f"{what} recorded" if records else f"{source} has ended")


def _tell_moves(moves: Sequence[MoveRecord]) -> None:
    """Say what was done; the exit code is that of a failure if something was not."""
    from raystream.controller.reporting.story import moved_line

    for moved in moves:
        typer.echo(moved_line(moved).strip())
    if not moves:
        typer.echo("nothing had to be moved")
    if any(m.failed for m in moves):
        raise SystemExit(FAILED)
