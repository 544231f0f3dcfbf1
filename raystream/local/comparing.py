"""What two versions of a flow make of the same input, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from raystream.dataflow.plan import Plan
from raystream.errors import RaystreamError
from raystream.local.hearing import SinkOutput
from raystream.local.source import Ends
from raystream.schema.types import NEVER


class Version(Protocol):
    """One version of a flow, which goes on step by step and writes to no sink."""

    plan: Plan
    boundaries: Ends
    """The ends of epochs by arrival, by split and epoch."""

    @property
    def at(self) -> int:
        """The last epoch that all instances have applied."""
        ...

    def taken(self) -> Iterable[SinkOutput]:
        """The output since the last call."""
        ...

    def turn(self, to: int = NEVER) -> bool:
        """Go on by one step; whether there was one."""
        ...

    def advance(self, to: int) -> None:
        """Go on up to an epoch, or to the end of the input."""
        ...


class Difference(NamedTuple):
    """How the records of one sink differ in one epoch."""

    sink: str
    epoch: int
    lacks: tuple[Any, ...]
    """The records that only the first version has, in its order."""
    more: tuple[Any, ...]
    """The records that only the second version has, in its order."""
    of: int
    """How many records the first version has."""

    def lines(self) -> list[str]:
        """In words: the records of the first version with -, those of the second with +."""
        lines = [f"epoch {self.epoch}  {self.sink}"]
        if not (self.lacks or self.more):
            lines.append(f"  the same {self.of:,} records in another order")
        lines += [f"  - {record!r}" for record in self.lacks]
        return lines + [f"  + {record!r}" for record in self.more]


def difference(sink: str, epoch: int, one: Sequence[Any], two: Sequence[Any]) -> Difference | None:
    """How two series of records of a sink differ; None if they have the same types, the same bits
    of each value, and the same order."""
    first, second = [bits_of(r) for r in one], [bits_of(r) for r in two]
    if first == second:
        return None
    lacks = _without(one, first, second)
    return Difference(sink, epoch, lacks, _without(two, second, first), len(one))


def bits_of(record: Any) -> str:
    """The type and the fields of a record as text, equal for records that are the same to the bit:
    `repr` of a float has all of its bits. Only NaNs of different bits are not told apart."""
    return f"{type(record).__name__}{tuple.__repr__(record)}"


def _without(records: Sequence[Any], mine: Sequence[str], others: Iterable[str]) -> tuple[Any, ...]:
    """The records that are missing among the others, each as often as it is missing.

    Args:
        mine: `bits_of` of each record. others: those of the other series.
    """
    left, found = Counter(others), []
    for record, bits in zip(records, mine, strict=True):
        if left[bits]:
            left[bits] -= 1
        else:
            found.append(record)
    return tuple(found)


class Compared(NamedTuple):
    """The differences that one step of two versions has shown."""

    epoch: int
    """The last epoch that both have applied."""
    differences: tuple[Difference, ...]


class Pair:
    """Two versions of a flow, which take the same input, epoch by epoch: the first one leads.

    Args:
        names: the sinks and sources that have another name in the second version: their names
            there, by their names in the first.
    """

    def __init__(
        self, first: Version, second: Version, names: Mapping[str, str] | None = None
    ) -> None:
        self.first = first
        self.second = second
        self._second = {v: k for k, v in (names or {}).items()}
        known = {self._second.get(n, n) for n in _sinks(second)}
        self.common = [name for name in _sinks(first) if name in known]
        """The sinks that are compared, by their names in the first version."""
        self.alone = tuple(sorted({*_sinks(first)} ^ known))
        """The sinks that only one of the two versions has, sorted."""
        self.records = 0
        """How many records of the first version have come to its sinks."""
        self.failed: RaystreamError | None = None
        """The error that has ended the first version. The second goes on through its epoch."""
        there = {v.name: v.id for v in second.plan.vertices}
        self._ids = {
            str(v.id): there[name]
            for v in first.plan.vertices
            if v.kind == "source" and (name := (names or {}).get(v.name, v.name)) in there
        }

    def turn(self, to: int = NEVER) -> Compared | None:
        """One step of both; None if there are no more.

        Raises:
            RaystreamError: the second version has failed.
        """
        if self.failed is not None:
            return None
        try:
            if not self.first.turn(to):
                return None
            epoch = self.first.at
        except RaystreamError as error:
            self.failed = error
            epoch = self.first.at + 1
        self._hand_boundaries()
        self.second.advance(epoch)
        for replay in (self.first, self.second):
            for at in [at for at in replay.boundaries if at[1] <= epoch]:
                del replay.boundaries[at]
        return Compared(epoch, tuple(self._compare()))

    def _hand_boundaries(self) -> None:
        """Let the epochs of sources by arrival end in the second version as in the first."""
        for (split, epoch), boundary in self.first.boundaries.items():
            vertex, _, name = split.partition(":")
            if vertex in self._ids:
                self.second.boundaries[f"{self._ids[vertex]}:{name}", epoch] = boundary

    def _compare(self) -> Iterable[Difference]:
        one = _by_place(self.first.taken())
        two = {
            (epoch, self._second.get(sink, sink)): records
            for (epoch, sink), records in _by_place(self.second.taken()).items()
        }
        for epoch, sink in sorted({*one, *two}):
            mine = one.get((epoch, sink), ())
            self.records += len(mine)
            if sink in self.common and (self.failed is None or epoch <= self.first.at):
                found = difference(sink, epoch, mine, two.get((epoch, sink), ()))
                if found is not None:
                    yield found


def _by_place(outputs: Iterable[SinkOutput]) -> dict[tuple[int, str], tuple[Any, ...]]:
    return {(o.epoch, o.sink): o.records for o in outputs}


def _sinks(replay: Version) -> list[str]:
    return [v.name for v in replay.plan.vertices if v.kind == "sink"]
