"""The end of memory or disk: how it is told from other errors, and what is said of it."""

from __future__ import annotations

import errno
from typing import NamedTuple

from raystream.controller.protocol.messages.calls import KeeperUse
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.snapshot import rows_of
from raystream.errors import OperatorError, RaystreamError, StateError, Where
from raystream.native.memory import UNKNOWN, MemoryUse


class Holder(NamedTuple):
    """An instance, and what it keeps in memory."""

    operator: str
    """The name of its operator, source or sink."""
    where: Where | None
    """Where that is in the user's code."""
    instance: str
    """Its own name."""
    rows: int
    """Its rows of state."""
    table_bytes: int
    """How many bytes its structured rows take; 0 for rows that are Python objects."""


def holder_of(machine: Instance, name: str) -> Holder:
    """What an instance keeps. name: its own."""
    nbytes = 0 if machine.table is None else machine.table.nbytes
    return Holder(machine.vertex.name, machine.vertex.where, name, rows_of(machine), nbytes)


def is_shortage(error: BaseException) -> bool:
    """Whether the system, NumPy or Arrow had no memory to give, also inside a user's function: rows
    of state may be made there."""
    if isinstance(error, RaystreamError):
        cause = error.__cause__ if isinstance(error, OperatorError) else None
        return cause is not None and is_shortage(cause)
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )


def shortage(holder: Holder, use: MemoryUse = UNKNOWN, *, died: bool = False) -> StateError:
    """The error of a job that cannot go on because a node has no memory left.

    Args:
        holder: the instance that takes most of it.
        use: what its process and its node use; `UNKNOWN` if nobody could ask.
        died: whether its process was killed for it.
    """
    keeps = f"keeps {holder.rows:,} rows of state"
    if holder.table_bytes:
        keeps += f" in {amount(holder.table_bytes)}"
    if use.own:
        keeps += f", and its process takes {amount(use.own)}"
    node = f"; the node uses {amount(use.node)} of {amount(use.limit)}" if use.limit else ""
    killed = " and was killed for it, again" if died else ""
    told = f"{holder.operator} has no memory left{killed}: {holder.instance} {keeps}{node}"
    return StateError(
        told,
        bare=told,
        where=holder.where,
        hint="Let rows that were not touched for long lie on disk (--state-memory, state_memory=),"
        " give the operator more instances on more nodes, or have it remove rows that are not"
        " needed any more (`rs.forget`). With --durable the job goes on with"
        " `raystream run --resume`.",
    )


def no_room(node: str, use: KeeperUse, seconds: float) -> StateError:
    """The error of a job whose checkpoints find no room on a node.

    Args:
        use: what the keeper of the node holds, and why it cannot write.
        seconds: for how long nothing was committed.
    """
    told = (
        f"no checkpoint could be stored for {seconds:g} s: the keeper of node {node[:8]} has"
        f" {amount(use.memory)} of them in memory and {amount(use.disk)} in files, and {use.why}"
    )
    return StateError(
        told,
        bare=told,
        hint="Give the node more disk, or say where there is some (state_folder=,"
        " --state-folder). With --durable the job goes on with `raystream run --resume`.",
    )


def amount(nbytes: int) -> str:
    """Bytes, for people."""
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 100_000_000 else f"{nbytes / 1e6:.0f} MB"
