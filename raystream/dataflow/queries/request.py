"""Queries at a client: which instances are asked for which keys, and what was answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.queries.looking import KEYS_MAX, StateQuery
from raystream.state.images.partition import keys_of
from raystream.state.keys import key_group


class Moment(NamedTuple):
    """A state of a job: the number of a run, and the epoch at whose end the state was so. Moments
    are ordered. A run that goes on from a saved checkpoint has a greater number than the run that
    saved it, and begins at an epoch that the other one may have left behind."""

    run: int
    epoch: int


class AskedKeys(NamedTuple):
    """The keys of a request that one instance is asked for."""

    serving: Serving
    """The instance."""
    at: tuple[int, ...]
    """The positions of the keys in the request."""
    query: StateQuery
    """What is sent to the instance."""


class StateRequest:
    """The keys of one request of a client: which are to be asked for, and what was answered.

    Args:
        keys: an Arrow batch of key columns. groups: the number of key groups of the job.
        least: the epoch that no answer may be before.
    """

    def __init__(self, vertex: int, keys: Any, groups: int, least: int) -> None:
        self._vertex, self._keys, self._least = vertex, keys, least
        self._groups = groups_of(keys, groups)
        self.open = set(range(keys.num_rows))
        """The positions of the keys that are not answered yet."""
        self.epochs: dict[int, int] = {}
        """By the position of an answered key the epoch of its answer."""
        self.rows: list[tuple[list[int], Any]] = []
        """What was found: the positions of keys, and a batch with a row for each."""

    def queries(self, assignment: Assignment) -> list[AskedKeys]:
        """What to ask of whom, by this assignment, for the keys that are not answered yet. Keys
        that have no owner just now are left out."""
        found = []
        for serving in assignment.of(self._vertex):
            mine = sorted(at for at in self.open if self._owns(serving, self._groups[at]))
            for first in range(0, len(mine), KEYS_MAX):
                at = tuple(mine[first : first + KEYS_MAX])
                keys = self._keys.take(pa.array(at, pa.int64()))
                found.append(AskedKeys(serving, at, StateQuery(self._vertex, keys, self._least)))
        return found

    def _owns(self, serving: Serving, group: int) -> bool:
        return not serving.candidate and serving.keys.holds(group)

    def answered(self, part: AskedKeys, epoch: int, found: Iterable[int], rows: Any) -> None:
        """An instance has answered. An answer that comes a second time changes nothing.

        Args:
            found: the positions, among the keys of the part, of those that have a row.
            rows: a batch with these rows.
        """
        if not self.open.issuperset(part.at):
            return
        self.open.difference_update(part.at)
        self.epochs.update(dict.fromkeys(part.at, epoch))
        self.rows.append(([part.at[i] for i in found], rows))

    def by_group(self) -> dict[int, list[int]]:
        """The positions of all keys, by their key groups."""
        found: dict[int, list[int]] = {}
        for at, group in enumerate(self._groups):
            found.setdefault(group, []).append(at)
        return found

    @property
    def upto(self) -> int:
        """The greatest epoch of all answers so far; the least allowed one before there are any."""
        return max(self.epochs.values(), default=self._least)


def groups_of(keys: Any, groups: int) -> list[int]:
    """The key group of each key of a batch. It needs no compiled code, which the process of a
    client would have to load first."""
    columns = [
        column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
        for column in keys_of(keys)
    ]
    return [key_group(key, groups) for key in zip(*columns, strict=True)]
