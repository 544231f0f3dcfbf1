"""The command `raystream`.

Nothing heavy is imported before a command needs it, so that `--help` is quick.

    app      the command itself; `new`, `demo`, `plan`, `check`, `run`, `version`
    options  the options of `plan`, `check` and `run`
    jobs     the commands that look at running jobs or change them
    security `certificates`: makes certificates for TLS
    state    `state`: rows of state of a running job
    project  makes the folder of a new project, from the files of `template`
    template the files of a new project
    demo     the flow of `demo`
    errors   how a command ends: messages and exit codes (public)
    load     reads what the command line names: flows, numbers, bounds, a policy
    plan     draws the graph of a flow
    check    asks the sources and sinks of a flow whether they can be used
    replay   the commands `replay` and `fork`
    replaying  what these two do
    resumed  what a flow would make of a saved checkpoint
    live     draws a run as it goes, and its totals
    status   draws what `status`, `top` and `story` show of a running job
"""

from __future__ import annotations


def main() -> None:
    """The entry point of `raystream`."""
    from raystream.cli.app import app

    _print_any_letter()
    app()


def _print_any_letter() -> None:
    """Print `?` for letters that the terminal does not have, such as those of names and messages
    where it is ASCII. Otherwise the report would be an error about a letter."""
    import io
    import sys

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
