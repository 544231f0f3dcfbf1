"""Interpreted windows that may close more than once, or close by a count.

Beside its fields each row has a number, which is stored with it. In `TriggeredWindows` it is the
time at which something is due next: an early result before the end of the window, the result at
the end, and after the end, when the window takes late records no more. In `CountWindows` it is how
many records the window has.
"""

from __future__ import annotations

from typing import Any

from raystream.api.operators import OperatorSpec
from raystream.api.windows.kinds import Counted, Global, Sliding, Tumbling
from raystream.dataflow.logic.alarms import Dues
from raystream.dataflow.logic.interpreted import Collector
from raystream.dataflow.logic.windows import WindowLogic
from raystream.schema.blocks import Output
from raystream.schema.state import FORGOTTEN
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange, Window
from raystream.state.keys import key_group
from raystream.state.keys import key_order as order_of


class TriggeredWindows(WindowLogic):
    """Tumbling and sliding windows with early results or corrections, and global windows with early
    results in event time.

    An early result for a time t has all records of its window that came before t did: it is made
    before the first record of its key that has this time or a later one, as a timer rings.
    """

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        super().__init__(spec, groups)
        window = spec.window
        assert isinstance(window, Tumbling | Sliding | Global)
        early = 0.0 if isinstance(window, Sliding) else window.early
        self.step = spec.units(early, ticks, "a step") if early else 0
        self.assigner = None if isinstance(window, Global) else spec.assigner(ticks)
        late = 0.0 if isinstance(window, Global) else window.lateness
        self.lateness = spec.units(late, ticks, "a lateness") if late else 0
        self.in_time = bool(self.step) and spec.sorted_by == spec.time
        self.waiting: dict[Any, set[int]] = {}
        """By key the starts of windows that are due before or at their end."""
        self.corrected: set[tuple[Any, int]] = set()
        """The windows that closed before and have had records since, in this epoch."""

    def open(self, keys: KeyRange) -> None:
        """Set the alarms of windows that were restored."""
        self.dues, self.next, self.waiting = Dues(self.spec, self._due), NEVER, {}
        for (key, start), due in self.table.sessions():
            self._set(key_group(key, self.groups), key, start, due)

    def _windows(self, time: int) -> list[tuple[int, int]]:
        return [(BEFORE_ALL, NEVER)] if self.assigner is None else self.assigner.windows(time)

    def _end(self, start: int) -> int:
        return NEVER if self.assigner is None else self.assigner.end(start)

    def _due(self, end: int, key: Any, start: int) -> bool:
        return self.table.end_of((key, start)) == end

    def _set(self, group: int, key: Any, start: int, due: int) -> None:
        """Something is due for a window at that time, and nothing before."""
        self.table.set_end((key, start), due)
        self._open(group, key, start, due)
        if not self.in_time:
            return
        if due <= self._end(start):
            self.waiting.setdefault(key, set()).add(start)
        else:
            self._rest(key, start)

    def _rest(self, key: Any, start: int) -> None:
        waiting = self.waiting.get(key)
        if waiting is not None:
            waiting.discard(start)
            if not waiting:
                del self.waiting[key]

    # ------------------------------------------------------------ records

    def _take(self, collector: Collector, group: int, key: Any, time: int, record: Any) -> bool:
        if self.in_time and key in self.waiting:
            self._fire_before(collector, group, key, min(time, self.upto, NEVER - 1))
        windows = self._windows(time)
        taken = not windows  # between two windows a record is in none, and not late
        for start, end in windows:
            if end != NEVER and end + self.lateness <= self.watermark:
                continue
            taken = True
            where = (key, start)
            row, new = self.table.touch(where, collector.epoch)
            due = end if new else self._number(where)
            if due > end:  # it has closed, and is to close again
                self.corrected.add(where)
                due = end
            elif self.step:
                due = min(due, self._step_after(time, start, end))
            if self._call(collector, record, row, where):
                self.corrected.discard(where)
                self._rest(key, start)
            elif self.table.end_of(where) != due:
                self._set(group, key, start, due)
        return taken

    def _number(self, where: tuple[Any, int]) -> int:
        number = self.table.end_of(where)
        assert number is not None
        return number

    def _step_after(self, time: int, start: int, end: int) -> int:
        """When there is an early result for a record; the end where that would come after it."""
        begin = 0 if self.assigner is None else start
        return min(end, begin + (time - begin) // self.step * self.step + self.step)

    def _fire_before(self, collector: Collector, group: int, key: Any, latest: int) -> None:
        """Make the results of a key that are due at `latest` or before."""
        while key in self.waiting:
            due, start = min((self._number((key, start)), start) for start in self.waiting[key])
            if due > latest:
                return
            self._fire(collector, group, key, start, due)

    # ------------------------------------------------------------ what is due

    def _close_due(self, collector: Collector, keys: KeyRange, watermark: int, before: int) -> None:
        for group in self.dues.groups(watermark, keys):
            for due, key, start in self.dues.ready(group, watermark):
                self._fire(collector, group, key, start, due)
            collector.close_group(before + group - keys.lo)
        self._tidy()
        self.corrected.clear()
        self.next = self.least()

    def _fire(self, collector: Collector, group: int, key: Any, start: int, due: int) -> None:
        """Do what is due for a window at that time."""
        where, end, epoch = (key, start), self._end(start), collector.epoch
        if due > end:
            self.table.remove(where, epoch)
            return
        row, _ = self.table.touch(where, epoch)
        told = {"early": due < end, "correction": where in self.corrected}
        self._result(collector, key, Window(start, end), row, told)
        self.corrected.discard(where)
        if row._mark == FORGOTTEN or (due == end and not self.lateness):
            self.table.remove(where, epoch)
            self._rest(key, start)
        else:
            self._set(group, key, start, end if due < end else end + self.lateness)


class CountWindows(WindowLogic):
    """Windows of a number of records of a key, and global windows with a result after every N."""

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        super().__init__(spec, groups)
        assert isinstance(spec.window, Counted | Global)
        self.count = spec.window.count
        self.stays = isinstance(spec.window, Global)
        self.starts: dict[Any, int] = {}
        """By key the start of the window that is open."""

    def open(self, keys: KeyRange) -> None:
        """Note which windows are open."""
        self.starts = dict(self.table)

    def next_due(self) -> int:
        return NEVER

    def _take(self, collector: Collector, group: int, key: Any, time: int, record: Any) -> bool:
        start = self.starts.setdefault(key, BEFORE_ALL if self.stays else time)
        where = (key, start)
        row, _ = self.table.touch(where, collector.epoch)
        many = (self.table.end_of(where) or 0) + 1
        if self._call(collector, record, row, where):
            del self.starts[key]
            return True
        if many == self.count:
            window = Window(start, NEVER if self.stays else time)
            told = {"early": self.stays}
            self._result(collector, key, window, row, told)
            many = 0
            if not self.stays or row._mark == FORGOTTEN:
                self.table.remove(where, collector.epoch)
                del self.starts[key]
                return True
        self.table.set_end(where, many)
        return True

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        if not last or not self.starts:
            return super().fire(keys, epoch, watermark, last=last)
        self.ends = True
        collector = Collector(self.spec, epoch, len(keys))
        by_group: dict[int, list[Any]] = {}
        for key in self.starts:
            by_group.setdefault(key_group(key, self.groups), []).append(key)
        for group in sorted(by_group):
            for key in sorted(by_group[group], key=order_of):
                where = (key, self.starts[key])
                row, _ = self.table.touch(where, epoch)
                self._result(collector, key, Window(where[1], NEVER), row, {})
                self.table.remove(where, epoch)
            collector.close_group(group - keys.lo)
        self.starts = {}
        return collector.output()
