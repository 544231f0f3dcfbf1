"""Interpreted windows: tumbling and sliding ones, and what they have in common with sessions.

Sizes are integers of the flow's time unit. A window closes when the watermark reaches its end; a
record is late when all its windows have closed by the end of the epoch before its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.api.row_shapes import kept_shape
from raystream.dataflow.logic.alarms import Dues
from raystream.dataflow.logic.base import Logic
from raystream.dataflow.logic.interpreted import (
    Collector,
    in_order,
    key_getter,
    keys_in_order,
    reached,
    tidy_rows,
    values_in_order,
)
from raystream.errors import OperatorError, operator_error
from raystream.schema.blocks import Input, Output
from raystream.schema.state import FORGOTTEN, State
from raystream.schema.types import BEFORE_ALL, FAR, NEVER, KeyRange, Window
from raystream.state.keys import key_group
from raystream.state.tables.object_table import ObjectTable


class WindowLogic(Logic):
    """The base of all window logics: a heap of ends for each key group, and how windows close."""

    takes_several = True

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        assert spec.state is not None and spec.close is not None
        self.spec = spec
        self.groups = groups
        self.table: ObjectTable = ObjectTable(kept_shape(spec), groups)
        self.keys_of = [key_getter(spec, s) for s in spec.inputs]
        self.dues = Dues(self.spec, self._due)
        self.next = NEVER  # nothing is due before
        self.watermark = BEFORE_ALL
        """The watermark at the end of the epoch before."""
        self.upto = BEFORE_ALL
        """The watermark at the end of this epoch."""
        self._fired: Output | None = None
        """What the windows emitted that closed within several epochs that were one step."""
        self._held: list[Any] = []  # keys of the rows of this epoch, where these are tidied
        self._holds = spec.state.tidy is not None

    def forget_alarms(self, keys: Iterable[Any]) -> None:
        """These windows are on disk alone. Nothing is to be done: the alarm of a window that is not
        in memory does not hold."""

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        collector = Collector(self.spec, epoch, given.groups).begin(given)
        fired = collector if given.epochs == 1 else collector.beside(given)
        records = in_order(given)
        keys = keys_in_order(self.keys_of, given, records)
        times = self.times_of(given, epoch).tolist()
        late: list[int] = []
        size, uptos = given.groups // given.epochs, given.watermarks or [upto]

        def end(of: int) -> None:
            self._tidy()
            if given.epochs > 1:
                self.watermark = uptos[of]
                self._end_epoch(fired, KeyRange(given.lo, given.lo + size), of * size)

        self.watermark = watermark
        for place, lo, hi in collector.through(given, end):
            group, self.upto = given.lo + place % size, uptos[place // size]
            for at in range(lo, hi):
                try:
                    if not self._take(collector, group, keys[at], times[at], records[at]):
                        late.append(at)
                except OperatorError:  # of `close`, for a result that is due before the record
                    raise
                except Exception as error:
                    doing = collector.number(at)
                    raise operator_error(
                        self.spec, error, epoch=collector.epoch, key=keys[at], doing=doing
                    ) from error
        if given.epochs > 1:
            self._fired = fired.output()
        return collector.output(late=late)

    def _end_epoch(self, fired: Collector, keys: KeyRange, place: int) -> None:
        """Do what is due at the end of one of several epochs.

        Args:
            fired: takes what is emitted. place: that of the epoch's first key group.
        """
        self.ends = False
        if self.next <= self.watermark:
            fired.stand(place)
            self._close_due(fired, keys, self.watermark, place)

    def _tidy(self) -> None:
        if self._held:
            tidy_rows(self.table, self.spec, self._held)
            self._held = []

    def times_of(self, given: Input, epoch: int) -> np.ndarray:
        """The time of each record in canonical order, int64.

        Raises:
            OperatorError: a time is so far off that the end of its window does not fit 64 bits.
        """
        times = values_in_order(given, self.spec.time)
        if len(times) and (times.min() < -FAR or times.max() > FAR):
            record = int(((times < -FAR) | (times > FAR)).argmax())
            epoch, record = given.place_of(record, epoch)
            raise OperatorError(
                f"{self.spec.name}: the time of a record is too far off for a window"
                f" (at epoch {epoch}, record {record})",
                where=self.spec.where,
            )
        return times

    def _take(self, collector: Collector, group: int, key: Any, time: int, record: Any) -> bool:
        """Take a record.

        Returns:
            False: it is late.
        """
        raise NotImplementedError

    def _call(self, collector: Collector, record: Any, row: State, key: Any) -> bool:
        """Process a record in one window. Returns whether the row was forgotten."""
        emitted = self.spec.process(record, row)
        if emitted is not None:
            collector.extend(emitted)
        if self.table.schema.settle is not None:
            self.table.schema.settle(row)
        if row._mark != FORGOTTEN:
            if self._holds:
                self._held.append(key)
            return False
        self.table.remove(key, collector.epoch)
        return True

    def _due(self, end: int, key: Any, start: int) -> bool:
        """Whether a heap entry still stands for an open window."""
        return self.table.get((key, start)) is not None

    def next_due(self) -> int:
        return self.next

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        if self._fired is not None:
            fired, self._fired = self._fired, None
            return fired
        self.ends = last
        if self.next > watermark or not self.dues.heaps:
            return None
        collector = Collector(self.spec, epoch, len(keys))
        self._close_due(collector, keys, watermark, 0)
        return collector.output()

    def _close_due(self, collector: Collector, keys: KeyRange, watermark: int, before: int) -> None:
        """Close the windows that end up to a watermark.

        Args:
            before: the place of the first key group in the collector.
        """
        for group in self.dues.groups(watermark, keys):
            for end, key, start in self.dues.ready(group, watermark):
                self._close(collector, key, Window(start, end))
            collector.close_group(before + group - keys.lo)
        self.next = self.least()

    def least(self) -> int:
        """The least time of all that is noted."""
        return min((heap[0][0] for heap in self.dues.heaps.values() if heap), default=NEVER)

    def _result(
        self,
        collector: Collector,
        key: Any,
        window: Window,
        row: State,
        told: dict[str, bool],
    ) -> None:
        """Call `close` for a row that may stay.

        Args:
            told: what `close` is told, as far as it is true.
        """
        assert self.spec.close is not None
        told = {"last": self.ends, **told}
        flags = [told.get(flag, False) for flag in self.spec.told]
        try:
            collector.extend(self.spec.close(key, window, row, *flags) or ())
            if row._mark != FORGOTTEN and self.table.schema.settle is not None:
                self.table.schema.settle(row)
        except Exception as error:
            raise self._failed(error, collector, key, window) from error
        if self._holds:
            self._held.append((key, window.start))

    def _failed(
        self, error: Exception, collector: Collector, key: Any, window: Window
    ) -> OperatorError:
        """The error that the user sees when `close` raises."""
        doing = f"window [{window.start}, {window.end})"
        return operator_error(self.spec, error, epoch=collector.epoch, key=key, doing=doing)

    def _close(self, collector: Collector, key: Any, window: Window) -> None:
        assert self.spec.close is not None
        row = self.table.get((key, window.start))
        try:
            if self.spec.told:  # `last`: no other flag goes with such a window
                emitted = self.spec.close(key, window, row, self.ends)
            else:
                emitted = self.spec.close(key, window, row)
            collector.extend(emitted or ())
        except Exception as error:
            raise self._failed(error, collector, key, window) from error
        self.table.remove((key, window.start), collector.epoch)

    def _open(self, group: int, key: Any, start: int, end: int) -> None:
        self.dues.push(group, (end, key, start))
        self.next = min(self.next, end)


class FixedWindows(WindowLogic):
    """Tumbling and sliding windows."""

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        super().__init__(spec, groups)
        self.assigner = spec.assigner(ticks)

    def open(self, keys: KeyRange) -> None:
        """Set the alarms of windows that were restored."""
        self.dues, self.next = Dues(self.spec, self._due), NEVER
        self.set_alarms(self.table)

    def set_alarms(self, keys: Iterable[Any]) -> None:
        """Set the alarms of windows that were restored, or came from disk."""
        for key, start in keys:
            self._open(key_group(key, self.groups), key, start, self.assigner.end(start))

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        if self.assigner.tumbling and given.epochs == 1:
            starts = self.assigner.starts(self.times_of(given, epoch))
            if not len(starts) or self.assigner.end(int(starts.min())) > watermark:
                return self._tumble(given, starts.tolist(), epoch)
        return super().process(given, epoch, watermark, upto)

    def _tumble(self, given: Input, starts: list[int], epoch: int) -> Output:
        """As `process`, for tumbling windows when no record is late. It is one loop over the key
        groups that have records, because most have few or none in an epoch."""
        assert self.spec.state is not None
        collector = Collector(self.spec, epoch, given.groups)
        extend = collector.extend
        get, new, settle = self.table.get, self.table.new, self.spec.state.settle
        function, end_of = self.spec.process, self.assigner.end
        records = in_order(given)
        keys = keys_in_order(self.keys_of, given, records)
        left, window = iter(records), (None, 0)
        windows: Iterator[tuple[Any, int]] = zip(keys, starts, strict=True)
        taken = zip(left, windows, strict=True)
        known, end = None, 0
        try:
            for at, lo, hi in given.filled():
                group = given.lo + at
                for record, window in islice(taken, hi - lo):
                    row = get(window)
                    if row is None:
                        row = new(window)
                        key, start = window
                        if start != known:
                            known, end = start, end_of(start)
                        self._open(group, key, start, end)
                    row._mark = epoch
                    emitted = function(record, row)
                    if emitted is not None:
                        extend(emitted)
                    if settle is not None:
                        settle(row)
                    if row._mark == FORGOTTEN:
                        self.table.remove(window, epoch)
                collector.close_group(at)
        except Exception as error:
            raise operator_error(
                self.spec,
                error,
                epoch=epoch,
                key=window[0],
                doing=f"record {reached(left, len(records))}",
            ) from error
        if self._holds:
            tidy_rows(self.table, self.spec, zip(keys, starts, strict=True))
        return collector.output(late=[])

    def _take(self, collector: Collector, group: int, key: Any, time: int, record: Any) -> bool:
        windows = self.assigner.windows(time)
        taken = not windows  # between two windows a record is in none, and not late
        for start, end in windows:
            if end <= self.watermark:
                continue
            taken = True
            row, new = self.table.touch((key, start), collector.epoch)
            if new:
                self._open(group, key, start, end)
            self._call(collector, record, row, (key, start))
        return taken
