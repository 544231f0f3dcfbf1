"""Queries at an instance: the rows of some keys, between two of its steps."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from raystream.dataflow.instances.base import Instance
from raystream.dataflow.tenure import Tenure
from raystream.state.counts import LEFT
from raystream.state.images.partition import keys_of
from raystream.state.tables.backend import FoundRows

KEYS_MAX = 100
"""At most so many keys are asked for in one query."""


class StateQuery(NamedTuple):
    """A question for the rows of some keys."""

    vertex: int
    """The operator."""
    keys: Any
    """An Arrow batch of key columns, of `KEYS_MAX` rows at most."""
    least: int
    """The epoch that the answer must not be before."""


class Looked(NamedTuple):
    """What an instance knows of the keys that it was asked for."""

    epoch: int
    """The state was so at the end of this epoch."""
    found: FoundRows
    """The rows."""


class NotYet(Enum):
    """Why a query is not answered now."""

    LATER = "later"
    """The instance has not come to the epoch yet."""
    ELSEWHERE = "elsewhere"
    """It does not own the keys, as far as it was told."""
    OVER = "over"
    """The input of the operator has ended, and the instance that had the rows is gone: checkpoints
    of the end hold none, because no record will come that they could make a difference to."""


def look_up(tenure: Tenure[Any], query: StateQuery) -> Looked | NotYet:
    """The rows of some keys, from the instance with this tenure, between two of its steps.

    Of an instance whose input has ended the state is the same at every later epoch.

    Raises:
        StateError: a key is none that rows of the operator can have.
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
    return Looked(epoch, machine.table.look_up(query.keys))


def _within(keys: Any, machine: Instance) -> bool:
    """Whether all keys are of the range of an instance."""
    from raystream.state.kernels import key_groups

    found = key_groups(keys_of(keys), machine.plan.groups)
    return not len(found) or bool(machine.keys.lo <= found.min() <= found.max() < machine.keys.hi)
