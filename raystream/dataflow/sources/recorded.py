"""Recorded data, cut into epochs by event time.

The epoch of a row is the running maximum within its split of (t - origin) // length + 1, where
origin and length are constants of the job. So every reader of a split cuts it in the same way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from raystream.api.connectors import changed
from raystream.api.epochs import Epochs
from raystream.dataflow.plan import Clock, Plan, Vertex
from raystream.dataflow.sources.ahead import AheadGuard, ahead_rule, stilled
from raystream.dataflow.sources.epochs import (
    EpochRows,
    Positions,
    gather,
    my_splits,
    parted,
    start_of,
)
from raystream.dataflow.sources.event_times import follows, holding
from raystream.dataflow.sources.split_reader import SplitReader
from raystream.errors import ConfigError, InputError
from raystream.schema.columns import Columns, concat, empty
from raystream.schema.types import BEFORE_ALL, FAR, NEVER, KeyRange


class Runs(NamedTuple):
    """The runs of rows of one epoch each in a batch.

    They are searched by `bisect`: NumPy's search releases the interpreter's lock, and has to wait
    to get it back.
    """

    ends: np.ndarray
    """Where each run ends; int64, rising."""
    epochs: np.ndarray
    """The epoch of each run; int64, rising."""

    def end_of(self, epoch: int) -> int:
        """The number of rows that belong to this epoch or to an earlier one."""
        runs = bisect_right(self.epochs.data, epoch)
        return int(self.ends[runs - 1]) if runs else 0

    def epoch_at(self, row: int) -> int:
        """The epoch of a row."""
        return int(self.epochs[bisect_right(self.ends.data, row)])


LEAP = 10**9
"""A row that is this many epochs or more after those before it is taken for an error."""

SPARSE = 4
"""Epochs are not taken together if less than one in this many has rows."""

_NO_RUNS = Runs(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Cutting:
    """How the time column of a source becomes epochs."""

    column: str
    """The name of the time column."""
    origin: int
    """The time at which epoch 1 begins, in the column's ticks."""
    length: int
    """The length of an epoch, in the column's ticks."""
    ticks: int
    """The column's ticks per unit of the flow's time."""
    disorder: int
    """By how much a row may be behind those before it, in the flow's unit."""

    def runs(self, values: np.ndarray, last: int) -> Runs:
        """The runs of rows of one epoch each. last: the epoch of the row before them."""
        from raystream.state.kernels import epoch_runs

        return Runs(*epoch_runs(values, self.origin, self.length, last))

    def watermark(self, epoch: int) -> int:
        """The watermark after an epoch: the least time of a row of a later epoch, in the flow's
        unit, less the disorder."""
        return max(BEFORE_ALL, min(self.begins(epoch) - self.disorder, NEVER))

    def begins(self, epoch: int) -> int:
        """The time at which the epoch after one begins, in the flow's unit. It is the same for all
        sources of a job, whatever their ticks."""
        return (self.origin + epoch * self.length) // self.ticks


def warm(plan: Plan, vertex: Vertex) -> None:
    """Load the code that cuts recorded data into epochs."""
    epochs, schema = vertex.epochs, vertex.ports[0].schema
    if epochs is not None and epochs.column is not None and plan.clock is not None:
        cutting_of(epochs, plan.clock, plan.ticks).runs(empty(schema).column(epochs.column), 0)


def cutting_of(epochs: Epochs, clock: Clock, ticks: int) -> Cutting:
    """How one source is cut under the job's clock. ticks: flow units per second.

    Raises:
        ConfigError: an epoch is not a whole number of the column's ticks, or too long for one.
    """
    assert epochs.column is not None
    exact = clock.seconds * ticks * epochs.ticks
    length = round(exact)
    if length >= FAR:
        raise ConfigError(
            f"an epoch of {clock.seconds:g} s has more ticks of {epochs.column!r} than 2**62",
            hint="Choose a shorter one, seconds=; ticks= says how many units of the column are in"
            " a time unit of the flow.",
        )
    if length < 1 or abs(exact - length) > 1e-9 * max(exact, 1):
        raise ConfigError(
            f"an epoch of {clock.seconds:g} s is not a whole number of ticks of {epochs.column!r}",
            hint="Choose seconds= as a multiple of a tick.",
        )
    origin = max(BEFORE_ALL, min(int(Fraction(clock.origin) * epochs.ticks // 1), NEVER))
    return Cutting(
        epochs.column, origin, length, epochs.ticks, int(-(-epochs.disorder * ticks // 1))
    )


def clock_of(plan: Plan) -> Callable[[int], int]:
    """The time at which the epoch after one begins, in the flow's unit, by the number of that one,
    in a plan that has a clock."""
    assert plan.clock is not None
    epochs = next(v.epochs for v in plan.vertices if v.epochs is not None and v.epochs.column)
    return cutting_of(epochs, plan.clock, plan.ticks).begins


class RecordedSplit:
    """A split cut by event time.

    begun: where the current batch begins, and the epoch of the row before it. Reading again from
    there and leaving out the epochs that were taken gives the same epochs. end: where the current
    batch ends.

    Args:
        taken: the last epoch that an earlier reader took; 0 at the beginning.
        last: the epoch of the row before the reader's position; 1 at the beginning.
        end: where the batch that is read first ended when an earlier reader read it; 0 if none did.
        guard: sets rows aside that are far ahead, if the source asks for it.
    """

    def __init__(
        self,
        reader: SplitReader,
        cutting: Cutting,
        *,
        taken: int = 0,
        last: int = 1,
        end: int = 0,
        guard: AheadGuard | None = None,
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
        self.guard = guard
        self.greatest = guard.greatest if guard is not None else 0
        """With a guard: the greatest time before the current batch."""
        self._aside: np.ndarray | None = None
        self._taken_aside: list[np.ndarray] = []

    def take(self, epoch: int) -> Columns:
        """All rows of an epoch. Epochs are taken one after the other."""
        parts = []
        self._taken_aside = []
        while self._fill():
            end = self.runs.end_of(epoch)
            if end > self.at:
                parts.append(self.rows.slice(self.at, end))
                if self.guard is not None:
                    self._taken_aside.append(self._marks()[self.at : end])
                self.at = end
            if end < len(self.rows):
                break
        if len(parts) == 1:
            return parts[0]
        return concat(parts) if parts else empty(self.reader.schema)

    @property
    def taken_aside(self) -> np.ndarray:
        """bool [n]: with a guard, which of the rows that were taken last are set aside."""
        return np.concatenate([np.zeros(0, bool), *self._taken_aside])

    def _marks(self) -> np.ndarray:
        return np.zeros(len(self.rows), bool) if self._aside is None else self._aside

    def _times(self, rows: Columns) -> np.ndarray:
        """What decides about the epochs of a batch: its times, without those that are set aside."""
        times: np.ndarray = rows.column(self.cutting.column)
        if self.guard is None:
            return times
        self._aside = self.guard.aside(rows)
        if self._aside is None:
            return times
        before = int(times[0]) if self.greatest == BEFORE_ALL else self.greatest
        return stilled(times, self._aside, before)

    def _fill(self) -> bool:
        """Read on until the current batch has a row to take; False at the end of the split."""
        while self.at == len(self.rows) and not self.done:
            self.begun = (self.reader.position, self.last)
            if self.guard is not None:
                self.greatest = self.guard.greatest
            rows = self.reader.next()
            self.end = self.reader.position
            if self.end < self._read_before and (rows is None or self.reader.ends is None):
                raise changed(
                    f"{self.reader.source}: split {self.reader.split.name}",
                    self._read_before,
                    self.reader.where,
                )
            if self.end >= self._read_before:
                self._read_before = 0
            if rows is None:
                self.done = True
                self.rows, self.runs, self.at = empty(self.reader.schema), _NO_RUNS, 0
            else:
                self.rows = rows
                self.runs = self.cutting.runs(self._times(rows), self.last)
                self._refuse_leap()
                self.last = int(self.runs.epochs[-1])
                self.at = self.runs.end_of(self._taken)
        return self.at < len(self.rows)

    def _refuse_leap(self) -> None:
        """Refuse a row that is too far ahead for a job, which goes through every epoch."""
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
            f"{self.reader.source}: split {self.reader.split.name} has a row with {name}="
            f"{self.rows.column(name)[row]}, {steps[run]} epochs after those before it",
            where=self.reader.where,
            hint='If the time is wrong: max_ahead="1d", and ahead="drop" beside it, leave such rows'
            " out. If it counts in other units than the flow: rs.by_time(ticks=...). Or take longer"
            " epochs: seconds=...",
        )

    def several_until(self, epoch: int, upto: int, most: int) -> int:
        """The last of several epochs, from the next one on and up to one, of which all rows are at
        hand, if these are `most` at the most; `epoch` if they are not worth one step. Nothing is
        read for it."""
        ends, epochs = self.runs.ends, self.runs.epochs
        first = bisect_right(ends.data, self.at)
        last = min(bisect_right(ends.data, self.at + most), bisect_right(epochs.data, upto)) - 1
        last = min(last, len(ends) - 2)  # of the last run more may come
        sparse = last <= first or epochs[last] - epoch >= SPARSE * (last - first)
        return epoch if sparse else int(epochs[last])

    def take_several(self, epoch: int, upto: int) -> tuple[Columns, np.ndarray]:
        """The rows of several epochs, and how many each of them has, int64. See `several_until`."""
        epochs = self.runs.epochs.searchsorted(np.arange(epoch, upto + 1), "right")
        ends = np.concatenate([[0], self.runs.ends])[epochs]
        rows, begin = self.rows.slice(self.at, int(ends[-1])), self.at
        self.at = int(ends[-1])
        return rows, np.diff(np.maximum(ends, begin), prepend=begin)

    @property
    def next_epoch(self) -> int | None:
        """The epoch of the next row; None at the end."""
        return self.runs.epoch_at(self.at) if self._fill() else None


class Recorded:
    """A source instance over recorded data.

    Args:
        taken: the last epoch that an earlier instance took; 0 at the beginning.
        positions: the positions of the splits after that epoch; None at the beginning. A split
            that is not among them is new: its first rows belong to the next epoch.
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
        self._follows = follows(vertex)
        self._none = np.zeros(len(keys) + 1, np.int64)
        self._next: int | None = None  # the epoch of the next row, once it is known
        new: tuple[int, ...] = (0, 0, taken + 1, 0)
        column = vertex.epochs.column
        self.rule = ahead_rule(vertex.epochs, column, plan.ticks * vertex.epochs.ticks)
        for group, name in my_splits(plan, vertex, keys):
            if positions is None:
                new = (0, start_of(plan, vertex, name), 1, 0)
            known = new if positions is None else positions.get(name, new)
            _, at, last, end, *greatest = known
            read, where = vertex.source.read, vertex.where
            guard = (
                self.rule.guard(vertex.name, name, *greatest, where=where) if self.rule else None
            )
            reader = SplitReader(name, vertex.name, self.schema, read, at, where=where)
            split = RecordedSplit(
                reader, self.cutting, taken=taken, last=last, end=end, guard=guard
            )
            self.groups.append(group)
            self.splits.append(split)

    def positions(self) -> Positions:
        """The positions of the splits after the epoch that was taken last."""
        return {
            s.reader.split.name: (g, *s.begun, s.end, *(() if s.guard is None else (s.greatest,)))
            for g, s in zip(self.groups, self.splits, strict=True)
        }

    def quiet_until(self, epoch: int) -> int:
        """The last epoch before the next one that has rows; `epoch` if that is the next one to be
        taken and has rows, or is the last."""
        if self._next is None:
            self._next = self._look()
        return epoch if self._next == NEVER else max(epoch, self._next - 1)

    def _look(self) -> int:
        """The epoch of the next row; NEVER if there is none."""
        found = NEVER
        for split in self.splits:
            at = split.next_epoch
            if at is not None and at < found:
                found = at
        return found

    def take(self, epoch: int, upto: int = 0) -> EpochRows:
        """The rows of the next epoch.

        Args:
            upto: the last of several epochs that are taken together, none of which has rows; see
                `quiet_until`.
        """
        if upto > epoch:
            watermark = self.cutting.watermark(upto)
            epochs, lag = upto - epoch + 1, self.cutting.disorder
            return EpochRows(
                empty(self.schema),
                self._none,
                watermark,
                ended=False,
                epochs=epochs,
                lag=lag,
                holding=self._holding(),
            )
        rows = [s.take(epoch) for s in self.splits]
        self._next = self._look()
        ended = self._next == NEVER
        columns, offsets = (
            gather(self.groups, rows, self.keys) if rows else (empty(self.schema), self._none)
        )
        watermark = NEVER if ended else self.cutting.watermark(epoch)
        taken = EpochRows(columns, offsets, watermark, ended, holding=self._holding())
        if self.rule is None or not self.splits:
            return taken
        return parted(taken, np.concatenate([s.taken_aside for s in self.splits]))

    def several_until(self, epoch: int, upto: int, most: int) -> int:
        """As `RecordedSplit.several_until`; `epoch` unless there is one split of plain rows."""
        if len(self.splits) != 1 or self.rule is not None or self._follows:
            return epoch
        return self.splits[0].several_until(epoch, upto, most)

    def take_several(self, epoch: int, upto: int) -> EpochRows:
        """The rows of the epochs from the next one on, up to one before the last (see
        `several_until`), as one step."""
        (group,), (split,) = self.groups, self.splits
        rows, counts = split.take_several(epoch, upto)
        self._next = self._look()
        each = np.zeros((len(counts), len(self.keys)), np.int64)
        each[:, group - self.keys.lo] = counts
        offsets = np.concatenate([[0], each.ravel().cumsum()])
        watermark, lag = self.cutting.watermark(upto), self.cutting.disorder
        return EpochRows(rows, offsets, watermark, False, epochs=upto - epoch + 1, lag=lag)

    def _holding(self) -> np.ndarray | None:
        if not self._follows:
            return None
        return holding(self.groups, [s.next_epoch is not None for s in self.splits], self.keys)
