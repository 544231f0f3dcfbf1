"""The commands `replay` and `fork`: run a job again from a saved checkpoint in this process, and
compare it with another version of its code."""

from __future__ import annotations

from typing import Annotated

import typer

from raystream.cli.errors import FAILED, errors_reported
from raystream.errors import ConfigError

SHOWN = 20
"""How many differences are shown, unless told otherwise."""
LOOK, CODE, LIVE = "What is looked at", "Another version of the code", "Fed by the running job"
"""Groups of options."""

Durable = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="The folder or s3://bucket/prefix to which the job saves checkpoints. Unless given,"
        " the run begins at the beginning of the input.",
        show_default=False,
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="CHECKPOINT",
        help="The saved checkpoint to begin with: RUN-EPOCH, or EPOCH; the newest unless given. 0"
        " is the beginning of the input.",
    ),
]
To = Annotated[
    int | None,
    typer.Option(
        metavar="EPOCH", min=1, help="The last epoch; unless given, to the end of the input."
    ),
]
Operator = Annotated[
    str, typer.Option(metavar="NAME", help="Look at this operator only.", rich_help_panel=LOOK)
]
Key = Annotated[
    str, typer.Option(metavar="KEY", help="Look at this key only.", rich_help_panel=LOOK)
]
Show = Annotated[
    bool,
    typer.Option(
        "--show",
        help="Print each call: its record, the row before and after it, what it emits.",
        rich_help_panel=LOOK,
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Stop in Python's debugger before each record of --operator or --key; without these,"
        " where the job fails.",
        rich_help_panel=LOOK,
    ),
]
Code = Annotated[
    str,
    typer.Option(
        metavar="MODULE:FLOW",
        help="Also run this version, and show what it makes otherwise.",
        rich_help_panel=CODE,
    ),
]
CodeFolder = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        help="Look for the module of --code here first, even if the current folder has a module of"
        " the same name.",
        rich_help_panel=CODE,
    ),
]
Renames = Annotated[
    str,
    typer.Option(
        metavar="OLD=NEW,...",
        help="As for `run --resume`: names of the checkpoint that are others in this version.",
        rich_help_panel=CODE,
    ),
]
Drops = Annotated[
    str,
    typer.Option(
        metavar="NAME,...",
        help="As for `run --resume`: names whose saved state may go.",
        rich_help_panel=CODE,
    ),
]
Differences = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="How many differences are shown.", rich_help_panel=CODE),
]

Out = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        help="Write what the new version makes into FOLDER/NAME/SINK, as Parquet files; unless"
        " given, it is written nowhere.",
    ),
]
Live = Annotated[
    bool,
    typer.Option(
        "--live",
        help="Take what the sources of the running job emit, from its committed checkpoint on;"
        " read only sources in which functions run. The streams of the flow are those of the job.",
        rich_help_panel=LIVE,
    ),
]
Ask = Annotated[
    bool,
    typer.Option(
        "--ask",
        help="Let operators of the new version that ask the world do so; unless given, they"
        " are told what the job was answered.",
        rich_help_panel=LIVE,
    ),
]
Address = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS", help="The cluster of the job, with --live.", rich_help_panel=LIVE
    ),
]


def replay(
    job: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FLOW|JOB",
            help="The flow of the job; or the name of the job, where a command has run it: its"
            " checkpoints say where its flow was found.",
            show_default=False,
        ),
    ],
    durable: Durable = "",
    start: From = "",
    to: To = None,
    operator: Operator = "",
    key: Key = "",
    show: Show = False,
    debug: Debug = False,
    code: Code = "",
    code_folder: CodeFolder = "",
    rename: Renames = "",
    drop: Drops = "",
    differences: Differences = SHOWN,
) -> None:
    """Run a job again from a saved checkpoint, in this process: the same bits, and the same errors.

    It reads the sources again and writes to no sink. It ends as the job did. With --code the exit
    code is 1 if the two versions differ.

    Example: raystream replay words:flow --durable /checkpoints --operator count --key to --show
    """
    with errors_reported("interrupted"):
        from raystream.cli.replaying.versions import (
            begin,
            compare,
            load,
            look,
            refuse_looking,
            wishes_of,
        )

        begun = begin(job, durable, start)
        wishes = wishes_of(rename, drop)
        if code:
            refuse_looking(operator, key, show=show, debug=debug)
            other = load(code, code_folder)
            differ = compare(begun, other, wishes, to, differences)
            raise SystemExit(FAILED if differ else 0)
        if code_folder:
            raise ConfigError("--code-folder needs --code")
        look(begun, wishes, to, operator, key, show=show, debug=debug)


def fork(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="The name of a job, or MODULE:FLOW of it.", show_default=False
        ),
    ],
    code: Annotated[
        str,
        typer.Option(metavar="MODULE:FLOW", help="The new version.", rich_help_panel=CODE),
    ],
    name: Annotated[
        str,
        typer.Option("--as", metavar="NAME", help="The name of the new version and of its folder."),
    ],
    durable: Durable = "",
    start: From = "",
    to: To = None,
    out: Out = "",
    code_folder: CodeFolder = "",
    rename: Renames = "",
    drop: Drops = "",
    differences: Differences = SHOWN,
    live: Live = False,
    ask: Ask = False,
    address: Address = "auto",
) -> None:
    """Run a new version of a job on its input, and print where the output differs.

    The job itself goes on, and notices nothing. Both versions run in this process, from a saved
    checkpoint of the job, or with --live from the newest committed one. They read its sources by
    themselves, or with --live what these emit, and write to none of its sinks. They end with the
    input, at --to, or with Ctrl-C. The exit code is 1 if they differ.

    Example: raystream fork words --as trial --code words:flow --code-folder ../new --durable /cuts
    """
    with errors_reported("interrupted"):
        from raystream.cli.replaying.versions import begin, compare, load, wishes_of

        if live:
            from raystream.cli.replaying.live import LiveFork, fork_live

            _refuse_with_live(durable, start, rename, drop)
            wanted = LiveFork(job, code, code_folder, name, address, to, differences, out, ask)
            raise SystemExit(FAILED if fork_live(wanted) else 0)
        if ask:
            raise ConfigError("--ask needs --live: without it flows that ask are not forked")
        begun = begin(job, durable, start)
        other = load(code, code_folder)
        other.name = name
        differ = compare(begun, other, wishes_of(rename, drop), to, differences, out)
        raise SystemExit(FAILED if differ else 0)


def _refuse_with_live(*given: str) -> None:
    names = ("--durable", "--from", "--rename", "--drop")
    if wrong := [name for name, value in zip(names, given, strict=True) if value]:
        raise ConfigError(
            f"{wrong[0]} is not for --live: that begins at the committed checkpoint of the running"
            " job, and its streams stay as they are"
        )
