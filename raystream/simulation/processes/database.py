"""A simulated database with transactions, for sinks that are visible by epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from raystream.controller.protocol.recovery import Place
from raystream.errors import RaystreamError
from raystream.io.databases.connection import Connection, Staged, Transaction
from raystream.io.databases.markers import Marker, Run
from raystream.io.databases.sink import TransactionalSink, Visible
from raystream.schema.types import KeyRange, SinkContext
from raystream.simulation.world import Wrong


@dataclass(frozen=True)
class Content:
    """What the database holds of one sink. A transaction puts another content in its place."""

    runs: tuple[Run, ...] = ()
    markers: tuple[Marker, ...] = ()
    staged: tuple[Staged, ...] = ()
    rows: tuple[Any, ...] = ()
    """What was stored, batch by batch."""


@dataclass
class SimulatedDatabase:
    """The database: by the name of a sink what it holds."""

    content: dict[str, Content] = field(default_factory=dict)
    transactions: int = 0

    def of(self, sink: str) -> Content:
        """What it holds of a sink."""
        return self.content.get(sink, Content())


class SimulatedConnection(Connection):
    """A connection. between: is called before each call, after which the process may be dead."""

    def __init__(
        self, database: SimulatedDatabase, sink: str, between: Callable[[], None] = lambda: None
    ) -> None:
        self.database = database
        self.sink = sink
        self.between = between

    def prepare(self) -> None:
        self.between()

    @contextmanager
    def transaction(self) -> Iterator[SimulatedTransaction]:
        self.between()
        tx = SimulatedTransaction(self.database.of(self.sink), self.between)
        yield tx
        self.between()
        _check(tx.content.markers)
        self.database.content[self.sink] = tx.content
        self.database.transactions += 1
        self.between()

    def close(self) -> None:
        pass


class SimulatedTransaction(Transaction):
    """A transaction: the content that it would leave."""

    def __init__(self, content: Content, between: Callable[[], None]) -> None:
        self.content = content
        self._between = between

    def _change(self, **changed: Any) -> None:
        self._between()
        self.content = replace(self.content, **changed)

    def runs(self) -> Sequence[Run]:
        return self.content.runs

    def register(self, run: Run) -> None:
        self._change(runs=(*self.content.runs, run))

    def markers(self) -> Sequence[Marker]:
        return self.content.markers

    def remove(self, markers: Sequence[Marker]) -> None:
        gone = {m.keys for m in markers}
        self._change(markers=tuple(m for m in self.content.markers if m.keys not in gone))

    def put(self, markers: Sequence[Marker]) -> None:
        self._change(markers=(*self.content.markers, *markers))

    def advance(self, before: Sequence[Marker], after: Sequence[Marker]) -> int:
        to = dict(zip(before, after, strict=True))
        there = self.content.markers
        self._change(markers=tuple(to.get(m, m) for m in there))
        return sum(m in to for m in there)

    def store(self, rows: Sequence[Any]) -> None:
        self._change(rows=(*self.content.rows, *rows))

    def clear(self) -> None:
        self._change(rows=(), staged=())

    def stage(self, staged: Staged) -> None:
        self._change(staged=(*self.content.staged, staged))

    def staged(self, keys: KeyRange, upto: int) -> Sequence[Staged]:
        found = [s for s in self.content.staged if s.keys.overlaps(keys) and s.epoch <= upto]
        return sorted(found, key=lambda s: s.epoch)

    def unstage(self, keys: KeyRange, after: int, upto: int) -> None:
        there = self.content.staged
        gone = [s for s in there if s.keys.overlaps(keys) and after < s.epoch <= upto]
        self._change(staged=tuple(s for s in there if s not in gone))


def _check(markers: Sequence[Marker]) -> None:
    """Assert that markers do not overlap.

    Raises:
        Wrong: two do.
    """
    at = 0
    for marker in sorted(markers):
        if marker.keys.lo < at:
            raise Wrong(f"markers overlap: {sorted(markers)}")
        at = marker.keys.hi


class DatabaseSink(TransactionalSink):
    """A sink to a simulated database. What is stored are the records of a batch, as a tuple.

    Args:
        between: is called before each change of the database, and on both sides of a commit.
    """

    def __init__(
        self,
        database: SimulatedDatabase,
        *,
        between: Callable[[], None] = lambda: None,
        visible: Visible | None = None,
    ) -> None:
        super().__init__(visible=visible, wait=0.0)
        self.database = database
        self.between = between

    def connect(self, context: SinkContext) -> SimulatedConnection:
        return SimulatedConnection(self.database, f"{context.job}/{context.operator}", self.between)

    def encode(self, batch: Any) -> tuple[Any, ...]:
        return tuple(batch.records())


class DiedAmid(RaystreamError):
    """The process of a sink was killed while it wrote to the database. Nobody hears of it."""


class JudgedSink(DatabaseSink):
    """A sink of a simulated job. Stored are (vertex, epoch, type, records)."""

    def __init__(
        self, database: SimulatedDatabase, place: Place, between: Callable[[], None]
    ) -> None:
        super().__init__(database, between=between)
        self.place = place

    def write(self, epoch: int, keys: KeyRange, batch: Any, /) -> None:
        records = tuple(batch.records())
        part = (self.place.vertex, epoch, batch.record.__name__, records)
        self._opened().add(epoch, part, len(records))


def check_stored(database: SimulatedDatabase, expected: dict[int, dict[Any, list[Any]]]) -> None:
    """Assert that the database holds all that sinks were to be given, and nothing twice.

    Raises:
        Wrong: it does not.
    """
    wanted: Counter[Any] = Counter()
    for vertex, parts in expected.items():
        for (epoch, _, name), records in parts.items():
            wanted.update((vertex, epoch, name, record) for record in records)
    found = Counter(
        (vertex, epoch, name, record)
        for content in database.content.values()
        for vertex, epoch, name, records in content.rows
        for record in records
    )
    if found != wanted:
        lacks, more = sorted((wanted - found).elements()), sorted((found - wanted).elements())
        raise Wrong(f"the database lacks {lacks[:5]}, has too much {more[:5]}")
