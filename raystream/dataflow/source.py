"""Source instances: splits read in order and cut into epochs.

*Recorded data* is cut by event time: the epoch of a row is the running maximum within its split of
(t - origin) // length + 1, constants of the job. *Arrival cuts* are decided once, by the boundary
register (`raystream.dataflow.register`), and followed exactly by whoever reads the split again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from raystream.api.batch import Batch
from raystream.api.flow import Epochs
from raystream.dataflow.plan import Clock, Plan, Vertex, split_group
from raystream.dataflow.register import Boundary
from raystream.errors import (
    ConfigError,
    InputError,
    OperatorError,
    RaystreamError,
    StateError,
    user_frame,
)
from raystream.io.files import changed
from raystream.schema.columns import Columns, concat, empty
from raystream.schema.records import RecordSchema, apart
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange, Split

Read = Callable[[Split, int], Iterator[tuple[int, Batch[Any]]]]


class Runs(NamedTuple):
    """Where each run of rows of one epoch ends, and its epoch: int64 both, both rising.

    Searched by `bisect`: NumPy's search lets the interpreter's lock go, and has to wait for it.
    """

    ends: np.ndarray
    epochs: np.ndarray

    def end_of(self, epoch: int) -> int:
        """How many rows belong to this epoch or to those before it."""
        runs = bisect_right(self.epochs.data, epoch)
        return int(self.ends[runs - 1]) if runs else 0

    def epoch_at(self, row: int) -> int:
        """The epoch of a row."""
        return int(self.epochs[bisect_right(self.ends.data, row)])


LEAP = 10**9
"""A row that is so many epochs after those before it is taken for an error."""

_NO_RUNS = Runs(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Cutting:
    """How one source's column becomes epochs. origin and length are in the column's ticks."""

    column: str
    origin: int
    length: int
    ticks: int
    disorder: int

    def runs(self, values: np.ndarray, last: int) -> Runs:
        """The runs of rows of one epoch, after rows of epoch `last`."""
        from raystream.state.kernels import epoch_runs

        return Runs(*epoch_runs(values, self.origin, self.length, last))

    def watermark(self, epoch: int) -> int:
        """The least time of a row of a later epoch, in the flow's unit, less the disorder."""
        least = (self.origin + epoch * self.length) // self.ticks - self.disorder
        return max(BEFORE_ALL, min(least, NEVER))


def warm(plan: Plan, vertex: Vertex) -> None:
    """Load what cuts recorded data into epochs."""
    epochs, schema = vertex.epochs, vertex.ports[0].schema
    if epochs is not None and epochs.column is not None and plan.clock is not None:
        cutting_of(epochs, plan.clock, plan.ticks).runs(empty(schema).column(epochs.column), 0)


def cutting_of(epochs: Epochs, clock: Clock, ticks: int) -> Cutting:
    """The cutting of one source under the job's clock; `ticks`: flow units per second.

    Raises:
        ConfigError: an epoch is not a whole number of the column's ticks.
    """
    assert epochs.column is not None
    exact = clock.seconds * ticks * epochs.ticks
    length = round(exact)
    if length < 1 or abs(exact - length) > 1e-9 * max(exact, 1):
        raise ConfigError(
            f"an epoch of {clock.seconds:g} s is not a whole number of ticks of {epochs.column!r}",
            hint="Choose seconds= as a multiple of a tick.",
        )
    origin = max(BEFORE_ALL, min(int(Fraction(clock.origin) * epochs.ticks // 1), NEVER))
    return Cutting(
        epochs.column, origin, length, epochs.ticks, int(-(-epochs.disorder * ticks // 1))
    )


class SplitReader:
    """One split: reads batches from a position and remembers where each ends."""

    _END = object()
    """No batch: None is one of the things that a source yields by mistake."""

    def __init__(
        self, name: str, source: str, schema: RecordSchema, read: Read, position: int = 0
    ) -> None:
        self.split = Split(name)
        self.source = source
        self.schema = schema
        self.position = position
        with self._told():
            self._batches = read(self.split, position)
        if not isinstance(self._batches, Iterator):
            raise self._unlike("returned", self._batches)

    def next(self) -> Columns | None:
        """The next batch that has rows, or None at the end of the split.

        Raises:
            InputError: the source cannot read on. OperatorError: the source's code raised.
        """
        while True:
            with self._told():
                found = next(self._batches, self._END)
            if found is self._END:
                return None
            before = self.position
            match found:
                case (position, Batch() as batch) if hasattr(position, "__index__"):
                    self.position, columns = int(position), batch._columns
                case _:
                    raise self._unlike("yields", found)
            if columns.schema is not self.schema:
                yields, declared = apart(columns.schema.cls, self.schema.cls)
                raise InputError(f"{self.source} yields {yields}, but declared {declared}")
            if len(columns):
                if self.position == before:
                    raise self._stays()
                return columns

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the source's code raises is told as what it is."""
        try:
            yield
        except StateError as error:  # what it wanted to put into a batch
            raise InputError(
                f"{self.source}.read({self.split.name!r}): {error.message}",
                where=error.where or user_frame(error),
                hint=error.hint,
            ) from error
        except RaystreamError:
            raise
        except OSError as error:
            raise InputError(
                f"{self.source}: cannot read {self.split.name}: {type(error).__name__}: {error}",
                where=user_frame(error),
            ) from error
        except Exception as error:
            raise OperatorError(
                f"{self.source}.read({self.split.name!r}) raised {type(error).__name__}: {error}",
                where=user_frame(error),
            ) from error

    def _stays(self) -> InputError:
        return InputError(
            f"{self.source}.read({self.split.name!r}) yields a batch with the position at which it"
            f" begins, {self.position}: who reads on from there would have its records again",
            hint="With each batch it is to yield where the next one begins: (n + 1, batch), not"
            " (n, batch).",
        )

    def _unlike(self, does: str, found: Any) -> InputError:
        kinds = [type(x).__name__ for x in found] if type(found) is tuple else []
        got = f"({', '.join(kinds)})" if kinds else f"a {type(found).__name__}"
        return InputError(
            f"{self.source}.read({self.split.name!r}) {does} {got}",
            hint="It is to yield pairs: the next position, an int, and an rs.Batch of records.",
        )

    def close(self) -> None:
        """Let the source give back what it holds; nothing is read any more."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


class RecordedSplit:
    """A split cut by event time.

    begun: where the batch at hand begins, and the epoch of the row before it; reading again from
    there and leaving out the epochs that were taken gives the same epochs. end: where it ends.

    Args:
        taken: the last epoch that was taken before, `last` the epoch of the row before the reader's
            position; 0 and 1 at the beginning. end: where the batch that is read first ended when
            it was read before, 0 if it was not.
    """

    def __init__(
        self, reader: SplitReader, cutting: Cutting, *, taken: int = 0, last: int = 1, end: int = 0
    ) -> None:
        self.reader = reader
        self.cutting = cutting
        self.begun = (reader.position, last)
        self.end = end
        self._read_before = end
        self._taken = taken
        self.rows = empty(reader.schema)
        self.runs = _NO_RUNS
        self.at = 0
        self.last = last
        self.done = False

    def take(self, epoch: int) -> Columns:
        """All rows of an epoch; epochs are taken in turn."""
        parts = []
        while self._fill():
            end = self.runs.end_of(epoch)
            if end > self.at:
                parts.append(self.rows.slice(self.at, end))
                self.at = end
            if end < len(self.rows):
                break
        return concat(parts) if parts else empty(self.reader.schema)

    def _fill(self) -> bool:
        """Have at least one row at hand; False at the end of the split."""
        while self.at == len(self.rows) and not self.done:
            self.begun = (self.reader.position, self.last)
            rows = self.reader.next()
            self.end = self.reader.position
            if self._read_before and self.end < self._read_before:
                raise changed(self.reader.split.name, self._read_before)
            self._read_before = 0
            if rows is None:
                self.done = True
                self.rows, self.runs, self.at = empty(self.reader.schema), _NO_RUNS, 0
            else:
                self.rows = rows
                self.runs = self.cutting.runs(rows.column(self.cutting.column), self.last)
                self._refuse_leap()
                self.last = int(self.runs.epochs[-1])
                self.at = self.runs.end_of(self._taken)
        return self.at < len(self.rows)

    def _refuse_leap(self) -> None:
        """A job goes through every epoch, so it would not come to a row that is so far ahead."""
        epochs = self.runs.epochs
        if epochs[-1] - self.last < LEAP:
            return  # they rise
        steps = np.diff(epochs, prepend=self.last)
        if steps.max() < LEAP:
            return
        run = int(steps.argmax())
        row = 0 if run == 0 else int(self.runs.ends[run - 1])
        name = self.cutting.column
        raise InputError(
            f"{self.reader.source}: {self.reader.split.name} has a row with {name}="
            f"{self.rows.column(name)[row]}, {steps[run]} epochs after those before it",
            hint="If it counts in other units than the flow: rs.by_time(ticks=...). Or take longer"
            " epochs: seconds=...",
        )

    @property
    def next_epoch(self) -> int | None:
        """The epoch of the next row; None at the end."""
        return self.runs.epoch_at(self.at) if self._fill() else None


class Taken(NamedTuple):
    """What a source instance has for an epoch: rows in canonical order and their offsets by key
    group of its range; the watermark after it; whether it is the last."""

    rows: Columns
    offsets: np.ndarray
    watermark: int
    ended: bool


def my_splits(plan: Plan, vertex: Vertex, keys: KeyRange) -> list[tuple[int, str]]:
    """(key group, name) of the splits of a source that fall into a range, in canonical order."""
    names = plan.splits[vertex.id]
    placed = [(split_group(i, len(names), plan.groups), n) for i, n in enumerate(names)]
    return [(g, n) for g, n in placed if keys.lo <= g < keys.hi]


def gather(groups: list[int], rows: list[Columns], keys: KeyRange) -> tuple[Columns, np.ndarray]:
    """Rows of several splits in canonical order, with offsets by key group of the range."""
    counts = np.zeros(len(keys) + 1, np.int64)
    for g, part in zip(groups, rows, strict=True):
        counts[g - keys.lo + 1] += len(part)
    return concat(rows), counts.cumsum()


Positions = Mapping[str, tuple[int, ...]]
"""Per split of a source its key group and where to read on: recorded data (key group, position,
epoch of the row before it, where the batch that begins there ends); arrival cuts (key group,
position, watermark)."""


class Ended:
    """A source instance in the place of one that had ended: nothing is read any more.

    Args:
        positions: where the splits were at the end.
    """

    def __init__(self, vertex: Vertex, keys: KeyRange, positions: Positions) -> None:
        self._schema = vertex.ports[0].schema
        self._keys = keys
        self._positions = positions

    def positions(self) -> Positions:
        """As of `Recorded`."""
        return self._positions

    def take(self, epoch: int) -> Taken:
        """No rows, and that this is the last epoch."""
        return Taken(empty(self._schema), np.zeros(len(self._keys) + 1, np.int64), NEVER, True)


class Recorded:
    """A source instance over recorded data.

    Args:
        taken: the last epoch that was taken before, and `positions` where the splits were then.
    """

    def __init__(
        self,
        plan: Plan,
        vertex: Vertex,
        keys: KeyRange,
        *,
        taken: int = 0,
        positions: Positions | None = None,
    ) -> None:
        assert vertex.epochs is not None and plan.clock is not None
        self.keys = keys
        self.schema = vertex.ports[0].schema
        self.cutting = cutting_of(vertex.epochs, plan.clock, plan.ticks)
        self.groups: list[int] = []
        self.splits: list[RecordedSplit] = []
        for group, name in my_splits(plan, vertex, keys):
            _, at, last, end = (positions or {}).get(name, (group, 0, 1, 0))
            reader = SplitReader(name, vertex.name, self.schema, vertex.source.read, at)
            split = RecordedSplit(reader, self.cutting, taken=taken, last=last, end=end)
            self.groups.append(group)
            self.splits.append(split)

    def positions(self) -> Positions:
        """Where the splits are, after the epoch that was taken last."""
        return {
            s.reader.split.name: (g, *s.begun, s.end)
            for g, s in zip(self.groups, self.splits, strict=True)
        }

    def take(self, epoch: int) -> Taken:
        """The rows of the next epoch."""
        rows = [s.take(epoch) for s in self.splits]
        ended = all(s.next_epoch is None for s in self.splits)
        columns, offsets = (
            gather(self.groups, rows, self.keys)
            if rows
            else (empty(self.schema), np.zeros(len(self.keys) + 1, np.int64))
        )
        return Taken(columns, offsets, NEVER if ended else self.cutting.watermark(epoch), ended)


class ArrivalSplit:
    """A split cut by arrival: batches that were read and not yet published, with where they end.

    Args:
        registered: what the boundary register calls it. Another source may have a split with the
            same name.
    """

    def __init__(
        self,
        name: str,
        registered: str,
        time_column: str | None,
        disorder: int,
        position: int = 0,
        watermark: int = BEFORE_ALL,
    ) -> None:
        self.name = name
        self.registered = registered
        self.time_column = time_column
        self.disorder = disorder
        self.read: list[tuple[int, Columns]] = []
        self.position = position
        self.watermark = watermark
        self.done = False

    def add(self, position: int, rows: Columns) -> None:
        """A batch was read; it ends at `position`."""
        self.read.append((position, rows))

    def wanted(self) -> Boundary:
        """The boundary that would publish all that was read."""
        position, watermark = self.position, self.watermark
        if self.read:
            position = self.read[-1][0]
        for _, rows in self.read:
            if self.time_column is not None and len(rows):
                watermark = max(watermark, int(rows.column(self.time_column).max()) - self.disorder)
        return Boundary(position, NEVER if self.done else watermark, self.done)

    def reaches(self, boundary: Boundary) -> bool:
        """Whether what was read goes up to a boundary."""
        ends = (self.position, *(position for position, _ in self.read))
        return boundary.position in ends

    def take(self, boundary: Boundary) -> list[Columns]:
        """The rows up to a boundary that the register holds."""
        taken = []
        while self.read and self.position != boundary.position:
            self.position, rows = self.read.pop(0)
            taken.append(rows)
        if self.position != boundary.position:
            raise InputError(
                f"split {self.name} was cut at position {boundary.position} before, which"
                " reading it again does not reach",
                hint="read(split, position) must yield the same batches again.",
            )
        self.watermark = boundary.watermark
        return taken


class Arrival:
    """A source instance cut by arrival. Its shell reads; `take` publishes what was read so far.

    Args:
        positions: where the splits were at the cut from which to go on.
    """

    def __init__(
        self, plan: Plan, vertex: Vertex, keys: KeyRange, positions: Positions | None = None
    ) -> None:
        assert vertex.epochs is not None
        self.keys = keys
        self.schema = vertex.ports[0].schema
        timed = vertex.epochs.time if self.schema.has_integer(vertex.epochs.time) else None
        disorder = int(-(-vertex.epochs.disorder * plan.ticks // 1))
        self.groups = [g for g, _ in my_splits(plan, vertex, keys)]
        self.splits = []
        for group, name in my_splits(plan, vertex, keys):
            _, at, watermark = (positions or {}).get(name, (group, 0, BEFORE_ALL))
            registered = f"{vertex.id}:{name}"
            self.splits.append(ArrivalSplit(name, registered, timed, disorder, at, watermark))

    def positions(self) -> Positions:
        """Where the splits are, after the epoch that was taken last."""
        return {
            s.name: (g, s.position, s.watermark)
            for g, s in zip(self.groups, self.splits, strict=True)
        }

    def take(self, boundaries: list[Boundary]) -> Taken:
        """The rows of the next epoch, cut where the register says."""
        rows = [
            concat([empty(self.schema), *s.take(b)])
            for s, b in zip(self.splits, boundaries, strict=True)
        ]
        ended = all(b.ended for b in boundaries)
        columns, offsets = (
            gather(self.groups, rows, self.keys)
            if rows
            else (empty(self.schema), np.zeros(len(self.keys) + 1, np.int64))
        )
        watermark = min((b.watermark for b in boundaries), default=NEVER)
        return Taken(columns, offsets, watermark, ended)
