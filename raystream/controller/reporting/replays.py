"""The command that replays what a job has ended with."""

from __future__ import annotations

import shlex

from raystream.dataflow.plan import Plan
from raystream.durable.manifest import Saved
from raystream.durable.saves import Saves
from raystream.errors import (
    InputError,
    RaystreamError,
    StateError,
)

UNKNOWN = "MODULE:FLOW"
"""What stands for the flow in a command where nobody knows where it is."""
_OF_THE_INPUT = (InputError, StateError)
"""Errors that follow from what was read, besides those of operators: they come again."""


def replayable(plan: Plan) -> bool:
    """Whether all of a job's input can be read again."""
    recorded = any(v.source is not None and v.source.recorded for v in plan.vertices)
    asks = any(v.spec is not None and v.spec.asking is not None for v in plan.vertices)
    return not (recorded or asks)


def tell_replay(error: RaystreamError, plan: Plan, saves: Saves) -> None:
    """Add to an error that ends a job the command that replays it: from the newest saved
    checkpoint, or where nothing was saved yet from the beginning of the input. Errors that have
    nothing to do with the input stay as they are."""
    if not (error.at is not None or isinstance(error, _OF_THE_INPUT)) or not replayable(plan):
        return
    try:
        saved = saves.newest(checksums=False).saved
    except RaystreamError:  # the store cannot be read: there is another error to tell
        return
    words = f"Replay it: {replay_command(error, plan, saved, saves.store.url)}"
    error.hint = "\n  ".join(filter(None, [error.hint, words]))


def replay_command(error: RaystreamError, plan: Plan, saved: Saved | None, url: str) -> str:
    """The command that replays an error.

    Args:
        saved: the checkpoint to begin with; None for the beginning of the input.
        url: of the store.
    """
    parts = ["raystream", "replay", plan.code or UNKNOWN]
    parts += [] if saved is None else ["--durable", url, "--from", saved.label]
    if error.at is not None:
        parts += ["--to", str(error.at.epoch), "--operator", error.at.operator]
        parts += ["--key", error.at.key] if error.at.key else []
        parts.append("--show")
    return shlex.join(parts)
