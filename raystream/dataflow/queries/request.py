"""Queries at a client: which instances to ask for which keys, and what they answered."""

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
    """A point in the history of a job: the number of a run, and the end of an epoch. Moments are
    ordered by run, then by epoch. A run that resumes from a saved checkpoint has a greater number
    than the run that saved it, but may begin at an epoch that the earlier run had passed."""

    run: int
    epoch: int


class AskedKeys(NamedTuple):
    """The keys of a request for which one instance is asked."""

    serving: Serving
    """The instance."""
    at: tuple[int, ...]
    """The positions of the keys in the request."""
    query: StateQuery
    """What the client sends to the instance."""


class StateRequest:
    """One request of a client: which of its keys are still open, and what was answered.

    Args:
        vertex: the number of the operator in the plan.
        keys: an Arrow batch of the key columns. groups: the number of key groups of the job.
        least: the earliest epoch that an answer may be of.
    """

    def __init__(self, vertex: int, keys: Any, groups: int, least: int) -> None:
        self._vertex, self._keys, self._least = vertex, keys, least
        self._groups = groups_of(keys, groups)
        self.open = set(range(keys.num_rows))
        """The positions of the keys that are not answered yet."""
        self.epochs: dict[int, int] = {}
        """The epoch of each answer, by the position of the key."""
        self.rows: list[tuple[list[int], Any]] = []
        """The rows that were found: positions of keys, and an Arrow batch with a row for each."""

    def queries(self, assignment: Assignment) -> list[AskedKeys]:
        """The queries for the keys that are not answered yet, each for an owner in this assignment.
        Keys without an owner are left out."""
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
        """Take the answer of an instance. A second answer for the same keys changes nothing.

        Args:
            part: what the instance was asked for. epoch: that of the answer.
            found: which keys of `part` have a row, as positions in `part`.
            rows: an Arrow batch with these rows.
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
        """The greatest epoch of all answers so far; `least` before the first answer."""
        return max(self.epochs.values(), default=self._least)


def groups_of(keys: Any, groups: int) -> list[int]:
    """The key group of each key of a batch. In plain Python, so that a client does not have to load
    compiled code."""
    columns = [
        column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
        for column in keys_of(keys)
    ]
    return [key_group(key, groups) for key in zip(*columns, strict=True)]
