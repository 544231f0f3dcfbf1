"""The command that replays what a job has ended with."""

from __future__ import annotations

import shlex

from raystream.dataflow.plan import Plan
from raystream.durable.manifest import Saved
from raystream.durable.saves import Saves
from raystream.errors import (
    LostError,
    OutputError,
    OvertakenError,
    RaystreamError,
    Stopped,
)

UNKNOWN = "MODULE:FLOW"
"""What stands for the flow in a command where nobody knows where it is."""
_NOT_OF_THE_INPUT = (Stopped, LostError, OvertakenError, OutputError)
"""Errors that have nothing to do with what was read: they would not come again."""


def replayable(plan: Plan) -> bool:
    """Whether all of a job's input can be read again."""
    recorded = any(v.source is not None and v.source.recorded for v in plan.vertices)
    asks = any(v.spec is not None and v.spec.asking is not None for v in plan.vertices)
    return not (recorded or asks)


def tell_replay(error: RaystreamError, plan: Plan, saves: Saves) -> None:
    """Add to an error that ends a job the command that replays it from the newest saved checkpoint,
    if there is one."""
    if isinstance(error, _NOT_OF_THE_INPUT) or not replayable(plan):
        return
    try:
        saved = saves.newest(checksums=False).saved
    except RaystreamError:  # the store cannot be read: there is another error to tell
        return
    if saved is not None:
        words = f"Replay it: {replay_command(error, plan, saved, saves.store.url)}"
        error.hint = "\n  ".join(filter(None, [error.hint, words]))


def replay_command(error: RaystreamError, plan: Plan, saved: Saved, url: str) -> str:
    """The command that replays an error from a saved checkpoint.

    Args:
        url: of the store.
    """
    parts = ["raystream", "replay", plan.code or UNKNOWN, "--durable", url, "--from", saved.label]
    if error.at is not None:
        parts += ["--to", str(error.at.epoch), "--operator", error.at.operator]
        parts += ["--key", error.at.key] if error.at.key else []
    return shlex.join([*parts, "--show"])
