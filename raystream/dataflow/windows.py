"""Interpreted windows: tumbling and sliding windows share one logic, sessions have their own.

Sizes are integers of the flow's time unit. A window closes when the watermark reaches its end; a
record is late when all its windows have closed by the end of the epoch before its own.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from heapq import heappop
from itertools import islice
from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.api.windows import Session, Sliding, Tumbling
from raystream.dataflow.dues import Dues
from raystream.dataflow.logic import (
    Collector,
    in_order,
    key_getter,
    keys_in_order,
    reached,
    row_of,
)
from raystream.errors import OperatorError, operator_error
from raystream.schema.blocks import Input, Output
from raystream.schema.state import FORGOTTEN, State
from raystream.schema.types import FAR, NEVER, KeyRange, Window
from raystream.state.keys import key_group
from raystream.state.objects import ObjectTable


def window_starts(time: int, size: int, every: int) -> range:
    """The starts of the windows that hold an event time, ascending."""
    newest = time // every * every
    return range(newest - (size - 1 - (time - newest)) // every * every, newest + 1, every)


class _Windows:
    """What all window logics share: a heap of ends per key group, and closing."""

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        assert spec.state is not None and spec.close is not None
        self.spec = spec
        self.groups = groups
        self.table = ObjectTable(spec.state)
        self.keys_of = [key_getter(spec, s) for s in spec.inputs]
        self.time_at = [s.names.index(spec.time) for s in spec.inputs]
        self.dues = Dues(self._due)
        self.next = NEVER  # nothing is due before

    def process(self, given: Input, epoch: int, watermark: int) -> Output:
        collector = Collector(self.spec, epoch)
        records = in_order(given)
        which = [0] * len(records) if given.which is None else given.which.tolist()
        bounds = given.offsets.tolist()
        late: list[int] = []
        for g in range(len(bounds) - 1):
            for at in range(bounds[g], bounds[g + 1]):
                record, kind = records[at], which[at]
                key = self.keys_of[kind](record)
                try:
                    if not self._take(
                        collector,
                        given.lo + g,
                        key,
                        record[self.time_at[kind]],
                        record,
                        epoch,
                        watermark,
                    ):
                        late.append(at)
                except Exception as error:
                    raise operator_error(
                        self.spec, error, epoch=epoch, key=key, doing=f"record {at}"
                    ) from error
            collector.close_group()
        return collector.output(late=late)

    def _times(self, given: Input, epoch: int) -> np.ndarray:
        """int64: the time of each record, in canonical order.

        Raises:
            OperatorError: one is so far off that the end of its window is no time.
        """
        times: np.ndarray = np.empty(len(given), np.int64)
        for t, (rows, at) in enumerate(zip(given.columns, self.time_at, strict=True)):
            names = rows.schema.names
            mine = slice(None) if given.which is None else given.which == t
            found = rows.column(names[at])
            times[mine] = found if given.where is None else found[given.where[mine]]
        if len(times) and (times.min() < -FAR or times.max() > FAR):
            record = int(((times < -FAR) | (times > FAR)).argmax())
            raise OperatorError(
                f"{self.spec.name}: the time of a record is too far off for a window"
                f" (at epoch {epoch}, record {record})",
                where=self.spec.where,
            )
        return times

    def _take(
        self,
        collector: Collector,
        group: int,
        key: Any,
        time: int,
        record: Any,
        epoch: int,
        watermark: int,
    ) -> bool:
        raise NotImplementedError

    def _call(self, collector: Collector, record: Any, row: State, key: Any, epoch: int) -> bool:
        """Process a record in one window; whether the row was forgotten."""
        emitted = self.spec.process(record, row)
        if emitted is not None:
            collector.extend(emitted)
        if self.table.schema.settle is not None:
            self.table.schema.settle(row)
        if row._mark != FORGOTTEN:
            return False
        self.table.remove(key, epoch)
        return True

    def _due(self, end: int, key: Any, start: int) -> bool:
        """Whether a heap entry still stands for an open window."""
        return (key, start) in self.table.rows

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        heaps = self.dues.heaps
        if self.next > watermark or not heaps:
            return None
        collector = Collector(self.spec, epoch)
        for group in range(keys.lo, keys.hi):
            heap = heaps.get(group, [])
            while heap and heap[0][0] <= watermark:
                end, key, start = heappop(heap)
                if self._due(end, key, start):
                    self._close(collector, key, Window(start, end), epoch)
            if not heap:
                heaps.pop(group, None)
            collector.close_group()
        self.next = min((heap[0][0] for heap in heaps.values()), default=NEVER)
        return collector.output()

    def _close(self, collector: Collector, key: Any, window: Window, epoch: int) -> None:
        assert self.spec.close is not None
        row = self.table.rows[key, window.start]
        try:
            collector.extend(self.spec.close(key, window, row) or ())
        except Exception as error:
            raise operator_error(
                self.spec,
                error,
                epoch=epoch,
                key=key,
                doing=f"window [{window.start}, {window.end})",
            ) from error
        self.table.remove((key, window.start), epoch)

    def _open(self, group: int, key: Any, start: int, end: int) -> None:
        self.dues.push(group, (end, key, start))
        self.next = min(self.next, end)


class FixedWindows(_Windows):
    """Tumbling and sliding windows."""

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        super().__init__(spec, groups)
        assert isinstance(spec.window, Tumbling | Sliding)
        self.size = spec.units(spec.window.seconds, ticks)
        self.every = (
            spec.units(spec.window.every, ticks) if isinstance(spec.window, Sliding) else self.size
        )

    def open(self, keys: KeyRange) -> None:
        """Await the ends of windows that were restored."""
        self.dues, self.next = Dues(self._due), NEVER
        for key, start in self.table.rows:
            self._open(key_group(key, self.groups), key, start, start + self.size)

    def process(self, given: Input, epoch: int, watermark: int) -> Output:
        newest = self._times(given, epoch) // self.every * self.every
        if self.every != self.size or (len(newest) and newest.min() + self.size <= watermark):
            return super().process(given, epoch, watermark)
        return self._tumble(given, newest.tolist(), epoch)

    def _tumble(self, given: Input, starts: list[int], epoch: int) -> Output:
        """As `process` for tumbling windows when no record is late: in one loop over all key
        groups, of which most have few records in an epoch."""
        assert self.spec.state is not None
        collector = Collector(self.spec, epoch)
        out, ends, extend = collector.out, collector.offsets, collector.extend
        rows, fresh, settle = self.table.rows, self.spec.state.fresh, self.spec.state.settle
        get, function = rows.get, self.spec.process
        records = in_order(given)
        keys = keys_in_order(self.keys_of, given, records)
        left, window = iter(records), (None, 0)
        windows: Iterator[tuple[Any, int]] = zip(keys, starts, strict=True)
        taken = zip(left, windows, strict=True)
        try:
            for group, n in enumerate(np.diff(given.offsets).tolist(), given.lo):
                for record, window in islice(taken, n):
                    row = get(window)
                    if row is None:
                        row = rows[window] = fresh()
                        self._open(group, *window, window[1] + self.size)
                    row._mark = epoch
                    emitted = function(record, row)
                    if emitted is not None:
                        extend(emitted)
                    if settle is not None:
                        settle(row)
                    if row._mark == FORGOTTEN:
                        self.table.remove(window, epoch)
                ends.append(len(out))
        except Exception as error:
            raise operator_error(
                self.spec,
                error,
                epoch=epoch,
                key=window[0],
                doing=f"record {reached(left, len(records))}",
            ) from error
        return collector.output(late=[])

    def _take(
        self,
        collector: Collector,
        group: int,
        key: Any,
        time: int,
        record: Any,
        epoch: int,
        watermark: int,
    ) -> bool:
        taken = False
        for start in window_starts(time, self.size, self.every):
            if start + self.size <= watermark:
                continue
            taken = True
            row, new = row_of(self.table, (key, start), epoch)
            if new:
                self._open(group, key, start, start + self.size)
            self._call(collector, record, row, (key, start), epoch)
        return taken


class Sessions(_Windows):
    """Session windows: a row per session, keyed by its first time; `table.ends` holds the end."""

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        super().__init__(spec, groups)
        assert isinstance(spec.window, Session)
        self.gap = spec.units(spec.window.gap, ticks)
        self.starts: dict[Any, list[int]] = {}

    def open(self, keys: KeyRange) -> None:
        """Await the ends of sessions that were restored."""
        self.dues, self.next, self.starts = Dues(self._due), NEVER, {}
        for (key, start), end in sorted(self.table.ends.items()):
            self.starts.setdefault(key, []).append(start)
            self._open(key_group(key, self.groups), key, start, end)

    def process(self, given: Input, epoch: int, watermark: int) -> Output:
        self._times(given, epoch)
        return super().process(given, epoch, watermark)

    def _due(self, end: int, key: Any, start: int) -> bool:
        return self.table.ends.get((key, start)) == end

    def _take(
        self,
        collector: Collector,
        group: int,
        key: Any,
        time: int,
        record: Any,
        epoch: int,
        watermark: int,
    ) -> bool:
        touched = list(self._touched(key, time))
        if not touched and time + self.gap <= watermark:
            return False
        start = min([time, *touched])
        end = max([time + self.gap, *(self.table.ends[key, s] for s in touched)])
        row = self._join(key, start, touched, epoch)
        if self.table.ends.get((key, start)) != end:
            self.table.ends[key, start] = end
            self._open(group, key, start, end)
        if self._call(collector, record, row, (key, start), epoch):
            self._leave(key, start)
        return True

    def _touched(self, key: Any, time: int) -> Iterator[int]:
        """The starts of open sessions that a record at `time` belongs to, ascending."""
        for start in self.starts.get(key, ()):
            if start - self.gap < time < self.table.ends[key, start]:
                yield start

    def _join(self, key: Any, start: int, touched: list[int], epoch: int) -> Any:
        """One row for the sessions that a record joins: later ones are merged into the first."""
        table = self.table
        mine = self.starts.setdefault(key, [])
        if not touched:
            insort(mine, start)
            return row_of(table, (key, start), epoch)[0]
        first, *others = touched
        row = table.rows[key, first]
        row._mark = epoch
        for other in others:
            assert self.spec.merge is not None
            self.spec.merge(row, table.rows[key, other])
            table.remove((key, other), epoch)
            mine.remove(other)
        if start != first:
            table.remove((key, first), epoch)
            table.rows[key, start] = row
            mine[mine.index(first)] = start
        return row

    def _close(self, collector: Collector, key: Any, window: Window, epoch: int) -> None:
        super()._close(collector, key, window, epoch)
        self._leave(key, window.start)

    def _leave(self, key: Any, start: int) -> None:
        mine = self.starts[key]
        mine.remove(start)
        if not mine:
            del self.starts[key]


def window_logic(spec: OperatorSpec, groups: int, ticks: int) -> FixedWindows | Sessions:
    """The interpreted logic of a windowed operator."""
    kind = Sessions if isinstance(spec.window, Session) else FixedWindows
    return kind(spec, groups, ticks)
