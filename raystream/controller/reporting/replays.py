"""The command that replays the error with which a job ended."""

from __future__ import annotations

import shlex

from raystream.dataflow.plan import Plan
from raystream.durable.manifest import Saved
from raystream.durable.saves import Saves
from raystream.errors import InputError, RaystreamError, StateError

UNKNOWN = "MODULE:FLOW"
"""Stands for the flow in a command if its module is not known."""
_OF_THE_INPUT = (InputError, StateError)
"""Errors that follow from the input, as those of operators do: a replay fails with them again."""


def replayable(plan: Plan) -> bool:
    """Whether all that a job takes in can be read again: no source is recorded, and no operator
    asks the world."""
    recorded = any(v.source is not None and v.source.recorded for v in plan.vertices)
    asks = any(v.spec is not None and v.spec.asking is not None for v in plan.vertices)
    return not (recorded or asks)


def tell_replay(error: RaystreamError, plan: Plan, saves: Saves) -> None:
    """Add the command that replays an error to its hint. The replay begins at the newest saved
    checkpoint, or at the beginning of the input if there is none. Errors that do not follow from
    the input stay as they are."""
    if not (error.at is not None or isinstance(error, _OF_THE_INPUT)) or not replayable(plan):
        return
    try:
        saved = saves.newest(checksums=False).saved
    except RaystreamError:  # the store cannot be read: there is another error to tell
        return
    words = f"Replay it: {replay_command(error, plan, saved, saves.store.url)}"
    versions = () if plan.durable is None else plan.durable.versions
    if versions:
        words += (
            "\n  The job was upgraded: run that in the folder of the code that it had then. A"
            " replay makes all epochs by one version; the newest began after epoch"
            f" {versions[-1].after}."
        )
    error.hint = "\n  ".join(filter(None, [error.hint, words]))


def replay_command(error: RaystreamError, plan: Plan, saved: Saved | None, url: str) -> str:
    """The command that replays an error.

    Args:
        saved: the checkpoint to begin with; None for the beginning of the input.
        url: the store of the saved checkpoints.
    """
    parts = ["raystream", "replay", plan.code or UNKNOWN]
    parts += [] if saved is None else ["--durable", url, "--from", saved.label]
    if error.at is not None:
        parts += ["--to", str(error.at.epoch), "--operator", error.at.operator]
        parts += ["--key", error.at.key] if error.at.key else []
        parts.append("--show")
    return shlex.join(parts)
