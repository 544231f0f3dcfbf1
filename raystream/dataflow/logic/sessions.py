"""Interpreted session windows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from raystream.api.operators import OperatorSpec
from raystream.api.windows.kinds import Session
from raystream.dataflow.logic.alarms import Dues
from raystream.dataflow.logic.interpreted import Collector
from raystream.dataflow.logic.windows import WindowLogic
from raystream.schema.types import NEVER, KeyRange, Window
from raystream.state.keys import key_group

ROOM = 512
"""A block of more values than twice this is split."""


class Ascending:
    """Distinct integers in ascending order. They are held in blocks, so that one is added, removed
    or found in about the same time among few and among very many."""

    __slots__ = ("_blocks", "_first")

    def __init__(self) -> None:
        self._blocks: list[list[int]] = []
        self._first: list[int] = []
        """The first value of each block."""

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def _block(self, value: int) -> int:
        """The block to which a value belongs."""
        return max(0, bisect_right(self._first, value) - 1)

    def add(self, value: int) -> None:
        """Add a value that is not there."""
        if not self._blocks:
            self._blocks, self._first = [[value]], [value]
            return
        i = self._block(value)
        block = self._blocks[i]
        insort(block, value)
        self._first[i] = block[0]
        if len(block) > 2 * ROOM:
            self._blocks[i : i + 1] = [block[:ROOM], block[ROOM:]]
            self._first[i : i + 1] = [block[0], block[ROOM]]

    def __contains__(self, value: int) -> bool:
        return next(self.since(value), None) == value if self._blocks else False

    def remove(self, value: int) -> None:
        """Remove a value that is there."""
        i = self._block(value)
        block = self._blocks[i]
        del block[bisect_left(block, value)]
        if block:
            self._first[i] = block[0]
        else:
            del self._blocks[i], self._first[i]

    def since(self, value: int) -> Iterator[int]:
        """The values from the greatest on that is at most `value`, or from the least on."""
        i = self._block(value)
        for block in islice(self._blocks, i, i + 1):
            yield from islice(block, max(0, bisect_right(block, value) - 1), None)
        for block in islice(self._blocks, i + 1, None):
            yield from block


class SessionWindows(WindowLogic):
    """Session windows. Each session has a row, found by its first time; the table holds its end."""

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        super().__init__(spec, groups)
        assert isinstance(spec.window, Session)
        self.gap = spec.units(spec.window.gap, ticks)
        self.starts: dict[Any, Ascending] = {}

    def open(self, keys: KeyRange) -> None:
        """Set the alarms of sessions that were restored."""
        self.dues, self.next, self.starts = Dues(self.spec, self._due), NEVER, {}
        self.set_alarms(key for key, _ in self.table.sessions())

    def set_alarms(self, keys: Iterable[Any]) -> None:
        """Set the alarms of sessions that were restored, or came from disk."""
        for key, start in keys:
            self.starts.setdefault(key, Ascending()).add(start)
            self._open(key_group(key, self.groups), key, start, self._end(key, start))

    def forget_alarms(self, keys: Iterable[Any]) -> None:
        """These sessions are on disk alone: those in memory are looked for by their starts."""
        for key, start in keys:
            self.know(key, start, there=False)

    def _due(self, end: int, key: Any, start: int) -> bool:
        return self.table.end_of((key, start)) == end

    def _take(self, collector: Collector, group: int, key: Any, time: int, record: Any) -> bool:
        touched = list(self._touched(key, time))
        if not touched and time + self.gap <= self.watermark:
            return False
        start = min([time, *touched])
        end = max([time + self.gap, *(self._end(key, s) for s in touched)])
        row = self._join(key, start, touched, collector.epoch)
        if self.table.end_of((key, start)) != end:
            self.table.set_end((key, start), end)
            self._open(group, key, start, end)
        if self._call(collector, record, row, (key, start)):
            self._leave(key, start)
        return True

    def _touched(self, key: Any, time: int) -> Iterator[int]:
        """The starts of open sessions that a record at `time` belongs to, ascending. Sessions of a
        key do not overlap, so of those that began before the record only the newest may hold it."""
        for start in self.starts[key].since(time) if key in self.starts else ():
            if start >= time + self.gap:
                break
            if time < self._end(key, start):
                yield start

    def _end(self, key: Any, start: int) -> int:
        end = self.table.end_of((key, start))
        assert end is not None
        return end

    def _join(self, key: Any, start: int, touched: list[int], epoch: int) -> Any:
        """The one row of the sessions that a record joins: later ones are merged into the first."""
        table = self.table
        mine = self.starts.setdefault(key, Ascending())
        if not touched:
            mine.add(start)
            return table.touch((key, start), epoch)[0]
        first, *others = touched
        row, _ = table.touch((key, first), epoch)
        for other in others:
            assert self.spec.merge is not None
            self.spec.merge(row, table.get((key, other)))
            table.remove((key, other), epoch)
            mine.remove(other)
        if start != first:
            table.move((key, first), (key, start), epoch)
            mine.remove(first)
            mine.add(start)
        return row

    def _close(self, collector: Collector, key: Any, window: Window) -> None:
        super()._close(collector, key, window)
        self._leave(key, window.start)

    def know(self, key: Any, start: int, *, there: bool) -> None:
        """Note whether a session is open, whatever was noted before."""
        mine = self.starts.get(key, ())
        if there and start not in mine:
            self.starts.setdefault(key, Ascending()).add(start)
        elif not there and start in mine:
            self._leave(key, start)
        elif key in self.starts and not self.starts[key]:
            del self.starts[key]

    def _leave(self, key: Any, start: int) -> None:
        mine = self.starts[key]
        mine.remove(start)
        if not mine:
            del self.starts[key]
