"""Interpreted logic of operators with timers.

An alarm rings among the records of an epoch: before the first record of its key that has its time
or a later one. What is due at the end of the epoch and has not rung yet rings after the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.dataflow.logic.alarms import Dues
from raystream.dataflow.logic.interpreted import (
    Collector,
    KeyedLogic,
    in_order,
    keys_in_order,
    tidy_rows,
    values_in_order,
)
from raystream.errors import StateError, operator_error
from raystream.schema.blocks import NAMED, CutOff, Input, Output
from raystream.schema.state import FORGOTTEN
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.keys import key_group
from raystream.state.tables.object_table import ObjectTable


class TimedLogic(KeyedLogic):
    """One call per record, and one per alarm."""

    table: ObjectTable

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        super().__init__(spec, groups)
        assert spec.state is not None and spec.state.timer is not None
        self.due = spec.state.timer
        self.alarms: dict[Any, int] = {}
        self.dues = Dues(self.spec, self._stands)
        self._fired: Output | None = None
        """What the alarms emitted that rang at the ends of several epochs that were one step."""

    def open(self, keys: KeyRange) -> None:
        """Set the alarms of rows that were restored."""
        self.alarms, self.dues = {}, Dues(self.spec, self._stands)
        self.set_alarms(self.table)

    def set_alarms(self, keys: Iterable[Any]) -> None:
        """Set the alarms of rows that were restored, or came from disk."""
        for key in keys:
            self._alarm(key_group(key, self.groups), key, getattr(self.table.get(key), self.due))

    def forget_alarms(self, keys: Iterable[Any]) -> None:
        """The rows of these keys are on disk alone, where it is known when they are due."""
        for key in keys:
            self.alarms.pop(key, None)

    # ------------------------------------------------------------ records

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        collector = Collector(self.spec, epoch, given.groups).begin(given)
        fired = collector if given.epochs == 1 else collector.beside(given)
        records = in_order(given)
        keys = keys_in_order(self.keys_of, given, records)
        size, uptos = given.groups // given.epochs, given.watermarks or [upto]
        latest = self._latest(given, uptos)

        def end(of: int) -> None:
            self._tidy(given.of_epoch(of, keys))
            due_groups = self.dues.groups(uptos[of]) if given.epochs > 1 else []
            if due_groups:
                fired.stand(of * size)
                self._ring_due(fired, due_groups, uptos[of], of * size - given.lo)

        for place, lo, hi in collector.through(given, end):
            part = slice(lo, hi)
            taken = zip(records[part], keys[part], latest[part], strict=True)
            self._take(collector, given.lo + place % size, taken, hi)
        if given.epochs > 1:
            self._fired = fired.output()
        return collector.output()

    def _latest(self, given: Input, uptos: Sequence[int]) -> list[int]:
        """For each record the latest time for which an alarm rings before it. uptos: the watermark
        after each epoch."""
        name = self.spec.rings_by
        if name is None:
            return [BEFORE_ALL - 1] * len(given)
        upto: Any = min(uptos[0], NEVER - 1)
        if given.epochs > 1:
            upto = np.array(uptos).repeat(given.epoch_sizes())
        latest: list[int] = np.minimum(values_in_order(given, name), upto).tolist()
        return latest

    def _take(
        self, collector: Collector, group: int, taken: Iterator[tuple[Any, Any, int]], hi: int
    ) -> None:
        """Take the records of a key group.

        Args:
            taken: each record, its key, and the latest time for which an alarm rings before it.
            hi: the position after the last of them.
        """
        assert self.spec.state is not None
        get, new = self.table.get, self.table.new
        extend, function = collector.extend, self.spec.process
        due, alarms, settle = self.due, self.alarms, self.spec.state.settle
        epoch = collector.epoch
        key, ringing = None, False
        try:
            for record, key, latest in taken:
                while alarms.get(key, NEVER) <= latest:
                    ringing = True
                    self._ring(collector, group, key, alarms.pop(key))
                    ringing = False
                row = get(key)
                if row is None:
                    row = new(key)
                row._mark = epoch
                emitted = function(record, row)
                if emitted is not None:
                    extend(emitted)
                if settle is not None:
                    settle(row)
                if row._mark == FORGOTTEN:
                    self._forget(key, epoch)
                elif getattr(row, due) != alarms.get(key, NEVER):
                    self._alarm(group, key, getattr(row, due))
        except Untimely as error:
            raise error.told(self.spec, epoch, key) from None
        except Exception as error:
            if ringing:
                raise
            doing = collector.number(hi - 1 - len(list(taken)))
            raise operator_error(self.spec, error, epoch=epoch, key=key, doing=doing) from error

    # ------------------------------------------------------------ alarms

    def _forget(self, key: Any, epoch: int) -> None:
        self.table.remove(key, epoch)
        self.alarms.pop(key, None)

    def _alarm(self, group: int, key: Any, due: Any) -> None:
        if not isinstance(due, int):
            raise Untimely(due)
        if due == NEVER:
            self.alarms.pop(key, None)
            return
        self.alarms[key] = due
        self.dues.push(group, (due, key))

    def _stands(self, due: int, key: Any) -> bool:
        return self.alarms.get(key) == due

    def next_due(self) -> int:
        return min([heap[0][0] for heap in self.dues.heaps.values() if heap], default=NEVER)

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        if self._fired is not None:
            fired, self._fired = self._fired, None
            return fired
        self.ends = last
        due_groups = self.dues.groups(watermark, keys)
        if not due_groups:
            return None
        collector = Collector(self.spec, epoch, len(keys))
        left = self._ring_due(collector, due_groups, watermark, -keys.lo, last=last)
        output = collector.output()
        output.cut_off = _cut_off(left, keys)
        return output

    def _ring_due(
        self,
        collector: Collector,
        due_groups: list[int],
        watermark: int,
        first: int,
        *,
        last: bool = False,
    ) -> dict[int, list[Any]]:
        """Ring the alarms up to a watermark.

        Args:
            due_groups: the key groups that have some.
            first: the place of key group 0 in the collector.

        Returns:
            by key group the keys whose alarms do not ring any more
        """
        left: dict[int, list[Any]] = {}
        for group in due_groups:
            rounds = 0
            while (ready := self._ready(group, watermark)) and not (
                last and rounds == self.spec.end_rings
            ):
                for due, key in ready:
                    self._ring(collector, group, key, due)
                rounds += 1
            if ready:
                left[group] = [key for _, key in ready]
            collector.close_group(first + group)
        return left

    def _ready(self, group: int, watermark: int) -> list[tuple[int, Any]]:
        ready = []
        for due, key in self.dues.ready(group, watermark):
            del self.alarms[key]
            ready.append((due, key))
        return ready

    def _ring(self, collector: Collector, group: int, key: Any, due: int) -> None:
        """Ring an alarm that was taken out of `alarms`."""
        assert self.spec.timer is not None
        epoch = collector.epoch
        row, _ = self.table.touch(key, epoch)
        setattr(row, self.due, NEVER)
        try:
            last = [self.ends for _ in self.spec.told]
            collector.extend(self.spec.timer(key, due, row, *last) or ())
            if self.table.schema.settle is not None:
                self.table.schema.settle(row)
        except Exception as error:
            raise operator_error(
                self.spec, error, epoch=epoch, key=key, doing=f"timer {due}"
            ) from error
        if row._mark == FORGOTTEN:
            self._forget(key, epoch)
            return
        tidy_rows(self.table, self.spec, (key,))
        try:
            again = getattr(row, self.due)
            self._alarm(group, key, again)
        except Untimely as error:
            raise error.told(self.spec, epoch, key) from None
        if again <= due:
            raise self.spec.no_later(epoch)


def _cut_off(left: dict[int, list[Any]], keys: KeyRange) -> CutOff | None:
    """left: by key group the keys whose alarms do not ring any more."""
    if not left:
        return None
    offsets = np.cumsum([0, *(len(left.get(group, ())) for group in range(*keys))])
    return CutOff(offsets, tuple(map(repr, islice(chain.from_iterable(left.values()), NAMED))))


class Untimely(Exception):
    """A timer was set to a value that is no time."""

    def __init__(self, due: Any) -> None:
        self.due = due

    def told(self, spec: OperatorSpec, epoch: int, key: Any) -> StateError:
        """The error that the user sees."""
        assert spec.state is not None
        return StateError(
            f"{spec.name} set the timer {spec.state.name}.{spec.state.timer} of key {key!r} to"
            f" {self.due!r:.80}, which is no time, in epoch {epoch}",
            where=spec.where,
            hint="A timer is an int in the time unit of the flow; rs.NEVER unsets it. Of a datetime"
            " t it is (t - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1).",
        )
