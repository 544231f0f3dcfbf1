"""What an operator's logic is given for an epoch and what it returns: columns, in canonical order.

Both interpreted logic (`dataflow`) and compiled drivers (`compiled`) speak these two types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from raystream.schema.columns import Columns
from raystream.schema.records import RecordSchema


def sizes(offsets: np.ndarray) -> np.ndarray:
    """int64 [R]: how many records each key group has, from offsets, int64 [R + 1]. The result of
    `np.diff`, without its overhead, which counts because epochs are often small."""
    return offsets[1:] - offsets[:-1]


def folded(offsets: np.ndarray, groups: int) -> np.ndarray:
    """int64 [groups + 1]: the offsets of all records together, from offsets by epoch and key group
    of several epochs, int64 [epochs * groups + 1]. Those of one epoch are given back."""
    if len(offsets) == groups + 1:
        return offsets
    found = np.zeros(groups + 1, np.int64)
    sizes(offsets).reshape(-1, groups).sum(axis=0).cumsum(out=found[1:])
    return found


@dataclass(slots=True)
class Input:
    """The records of one epoch for one instance, or of several in one step.

    columns: one `Columns` per input type of the operator, possibly empty.
    which: uint8 [n], the input type of each record in canonical order; None when there is one type.
    where: int64 [n], the row of each record in its type's columns; None when that is the identity.
    offsets: int64 [R + 1], the records of each key group of the instance's range.
    lo: the first key group of the range.
    epochs: how many epochs they are of. If these are several, each has its own key groups, one
    epoch after the other: offsets is int64 [epochs * R + 1].
    watermarks: of several epochs, the watermark after each.
    """

    columns: tuple[Columns, ...]
    which: np.ndarray | None
    where: np.ndarray | None
    offsets: np.ndarray
    lo: int
    epochs: int = 1
    watermarks: Sequence[int] = ()

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def groups(self) -> int:
        """How many key groups the range of the instance has; times the number of epochs."""
        return len(self.offsets) - 1

    def place_of(self, record: int, epoch: int) -> tuple[int, int]:
        """The epoch of a record, and its number there.

        Args:
            epoch: the last one that they are of.
        """
        size = self.groups // self.epochs
        before = self.offsets[::size]
        of = int(before.searchsorted(record, "right")) - 1
        return epoch - self.epochs + 1 + of, record - int(before[of])

    def epoch_sizes(self) -> np.ndarray:
        """int64: how many records each of the epochs has."""
        return sizes(self.offsets[:: self.groups // self.epochs])

    def of_epoch(self, of: int, values: Sequence[Any]) -> Sequence[Any]:
        """The values of the records of one of several epochs. values: of all records, in canonical
        order."""
        if self.epochs == 1:
            return values
        size = self.groups // self.epochs
        return values[self.offsets[of * size] : self.offsets[(of + 1) * size]]

    def by_epoch(self) -> Iterator[Input]:
        """The records of each of several epochs. They are of one type."""
        size = self.groups // self.epochs
        for of in range(0, self.groups, size):
            offsets = self.offsets[of : of + size + 1]
            lo, hi = int(offsets[0]), int(offsets[-1])
            rows, where = self.columns[0], self.where
            some = rows.slice(lo, hi) if where is None else rows.take(where[lo:hi])
            yield Input((some,), None, None, offsets - lo, self.lo)

    def typed(self, schemas: Sequence[RecordSchema]) -> Input:
        """The same, with records of these classes. The code of an upgrade has classes of its own,
        with the same fields as those with which records come."""
        for rows, schema in zip(self.columns, schemas, strict=True):
            if rows.schema is not schema:
                break
        else:
            return self
        self.columns = tuple(
            rows if rows.schema is schema else rows.typed(schema)
            for rows, schema in zip(self.columns, schemas, strict=True)
        )
        return self

    def filled(self) -> list[tuple[int, int, int]]:
        """The key groups that have records: (its place in the range, its first record, the one
        after its last). An epoch may be small, so nothing is done for the others."""
        offsets = self.offsets
        places = np.flatnonzero(offsets[1:] > offsets[:-1])
        begins, ends = offsets[places].tolist(), offsets[places + 1].tolist()
        return list(zip(places.tolist(), begins, ends, strict=True))


@dataclass(slots=True)
class Emitted:
    """The records of one type that an instance emitted in one epoch.

    rows: in canonical order, key group by key group.
    offsets: int64 [R + 1], the rows of each key group of the producing range.
    rank: int64 [n], running number of emission over all types that were emitted together; None
        where there is one type.
    origin: int64 [n], for stateless operators: the input record that each row comes from; None
        where that is the record of the same number.
    """

    rows: Columns
    offsets: np.ndarray
    rank: np.ndarray | None = None
    origin: np.ndarray | None = None


NAMED = 3
"""An error names the keys of up to this many rows that are cut off."""


class CutOff(NamedTuple):
    """Rows whose alarms would ring on after the end of all input, and do not."""

    offsets: np.ndarray
    """int64 [R + 1]: how many there are, by key group."""
    keys: tuple[str, ...]
    """The keys of some of them, as they are shown."""


@dataclass(slots=True)
class Output:
    """What an operator emitted: one `Emitted` per output type, and which records were late.

    late: int64, positions of late records in the canonical order of the input.
    cut_off: which rows do not ring on, at the end of all input.
    """

    emitted: tuple[Emitted, ...]
    late: np.ndarray | None = None
    cut_off: CutOff | None = None
