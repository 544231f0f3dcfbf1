"""Python's debugger in a replay: before a call of an operator's code, or where a job has failed."""

from __future__ import annotations

import bdb
import pdb
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from raystream.errors import RaystreamError
    from raystream.local.probe import Visit

_OURS = ["raystream", "raystream.*"]
"""Modules in which the debugger does not stop."""


class Left(BaseException):
    """The user has left the debugger. It is no `Exception`, so no operator catches it."""


def stop_before(visit: Visit, make: Callable[[], None]) -> None:
    """Make a call of an operator's code in the debugger, which stops as it begins.

    Raises:
        Left: the user has left the debugger.
    """
    key = "" if visit.key is None else f", key {visit.key!r}"
    typer.echo(f"epoch {visit.epoch}, {visit.operator}{key}, {visit.step} of {visit.given!r}")
    if visit.before:
        typer.echo(f"row {visit.before}")
    debugger = _Debugger(stdin=sys.stdin, stdout=sys.stdout, skip=_OURS, nosigint=True)
    debugger.reset()
    before = sys.gettrace()
    sys.settrace(debugger.trace_dispatch)  # as `runcall`, which hides that the user left
    try:
        make()
    except bdb.BdbQuit:
        raise Left from None
    finally:
        debugger.quitting = True
        sys.settrace(before)


class _Debugger(pdb.Pdb):
    """Stops at the first line of a function, where its arguments can be seen, not at the call."""

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        """Do not stop at the call: go on to the first line."""


def look_at(error: RaystreamError) -> None:
    """Open the debugger at the line of the user's code that has raised the cause of an error. Do
    nothing if the error has no such cause."""
    cause = error.__cause__
    if cause is None or cause.__traceback__ is None:
        return
    typer.echo(f"{error}\n")
    debugger = pdb.Pdb(stdin=sys.stdin, stdout=sys.stdout, nosigint=True)
    debugger.reset()
    try:
        debugger.interaction(None, cause.__traceback__)
    except bdb.BdbQuit:
        return
