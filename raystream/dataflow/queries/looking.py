"""Queries at an instance: it looks up the rows of some keys between two of its steps."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from raystream.dataflow.instances.base import Instance
from raystream.dataflow.tenure import Tenure
from raystream.state.counts import LEFT
from raystream.state.images.partition import keys_of
from raystream.state.tables.backend import FoundRows

KEYS_MAX = 100
"""A query has at most this many keys."""


class StateQuery(NamedTuple):
    """A question for the rows of some keys."""

    vertex: int
    """The number of the operator in the plan."""
    keys: Any
    """An Arrow batch of the key columns, with at most `KEYS_MAX` rows."""
    least: int
    """The earliest epoch that the answer may be of."""


class Looked(NamedTuple):
    """What an instance found."""

    epoch: int
    """The epoch at whose end the rows were so."""
    found: FoundRows
    """The rows, and which keys they belong to."""
    shape: str
    """The fingerprint of the rows."""


class NotYet(Enum):
    """Why a query is not answered now."""

    LATER = "later"
    """The instance has not applied the epoch yet."""
    ELSEWHERE = "elsewhere"
    """The instance does not own the keys, or stops."""
    OVER = "over"
    """The input has ended, and the instance that had the rows is gone. A checkpoint of the end has
    no rows, because no record will come that needs them."""
    CHANGED = "changed"
    """The rows are of another class than the client knows of: the job was upgraded."""


def look_up(tenure: Tenure[Any], query: StateQuery) -> Looked | NotYet:
    """The rows of some keys, from the instance with this tenure, between two of its steps.

    After the input has ended, the state is the same at every later epoch.

    Raises:
        StateError: a key is none of the operator.
    """
    machine = tenure.machine
    if not tenure.owns or machine.vertex.id != query.vertex or machine.table is None:
        return NotYet.ELSEWHERE
    if not _within(query.keys, machine):
        return NotYet.ELSEWHERE
    if machine.ended and LEFT in machine.counts:
        return NotYet.OVER
    epoch = max(machine.position, query.least) if machine.ended else machine.position
    if epoch < query.least:
        return NotYet.LATER
    table = machine.table
    return Looked(epoch, table.look_up(query.keys), table.shape.fingerprint)


def _within(keys: Any, machine: Instance) -> bool:
    """Whether all keys are in the range of an instance."""
    from raystream.state.kernels import key_groups

    found = key_groups(keys_of(keys), machine.plan.groups)
    return not len(found) or bool(machine.keys.lo <= found.min() <= found.max() < machine.keys.hi)
