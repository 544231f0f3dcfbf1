"""How a command ends: one message on standard error, and an exit code.

Public: other commands built on raystream end in the same way.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
import typer.main

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
    what_was_raised,
)

FAILED, REFUSED, STOPPED, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: the job failed; the flow, an option, the input, the output or the machine is wrong;
the job was stopped (`raystream stop`); Ctrl-C."""


@contextmanager
def errors_reported(interrupted: str = "interrupted") -> Iterator[None]:
    """End the process with one clear message and the exit code that goes with it.

    Args:
        interrupted: what to say of Ctrl-C.
    """
    try:
        yield
    except Stopped as error:
        say(str(error))
        raise SystemExit(STOPPED) from None
    except RaystreamError as error:
        refused = isinstance(error, GraphError | ConfigError | InputError | OutputError)
        exit_with(error, REFUSED if refused else FAILED)
    except Exception as error:
        bug = InternalError(
            f"{what_was_raised(error)}", hint="A bug of raystream: please report it."
        )
        bug.add_note(traceback.format_exc().rstrip())
        exit_with(bug, FAILED)
    except KeyboardInterrupt:
        say(interrupted)
        raise SystemExit(INTERRUPTED) from None


def exit_with(error: RaystreamError, code: int) -> NoReturn:
    """The message, and dimmed below it the traceback of the user's code, where there is one."""
    if error.where is not None and error.where.file == typer.main.__file__:
        error.where = None  # a command was called by no code of the user's
    say(f"error: {error}", style="red")
    below = notes(error)
    if not below and error.__cause__ is not None:
        below = [user_traceback(error.__cause__)]
    for note in filter(None, below):
        say(note, style="dim")
    raise SystemExit(code)


def print_json(data: object) -> None:
    typer.echo(json.dumps(data, indent=2))


def say(text: str, style: str = "") -> None:
    from rich.console import Console

    Console(stderr=True).print(text, style=style, markup=False, highlight=False, soft_wrap=True)
