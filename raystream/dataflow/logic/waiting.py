"""The logic of `wait=True`: records are kept until the watermark has passed them.

Whatever the epochs are, the records of a key leave in order of time, and all records of one time
leave in the same epoch. So how records of one time follow each other does not depend on epochs
either: by type, then as they came.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from raystream.api.operators import OperatorSpec
from raystream.api.row_shapes import kept_shape
from raystream.dataflow.logic.alarms import Dues
from raystream.dataflow.logic.base import Logic
from raystream.dataflow.logic.interpreted import (
    Collector,
    in_order,
    key_getter,
    keys_in_order,
    values_in_order,
)
from raystream.schema.blocks import Input, Output
from raystream.schema.objects import decode, encode
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.keys import key_group
from raystream.state.tables.object_table import ObjectTable

Released = tuple[int, int, Any]
"""What a record is sorted by, the number of its type, and the record."""
_PLACE = itemgetter(0, 1)


class WaitLogic(Logic):
    """Keeps records by key, and emits those that the watermark has passed."""

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        self.spec = spec
        self.groups = groups
        self.table: ObjectTable = ObjectTable(kept_shape(spec), groups)
        self.keys_of = [key_getter(spec, s) for s in spec.inputs]
        self.order_of = [s.getter(spec.order_by or spec.time) for s in spec.inputs]
        self.least: dict[Any, int] = {}
        """By key the least time of a record that waits."""
        self.dues = Dues(self.spec, self._stands)

    def open(self, keys: KeyRange) -> None:
        """Find out when restored records are due."""
        self.least, self.dues = {}, Dues(self.spec, self._stands)
        for key in self.table:
            self._expect(key_group(key, self.groups), key, self._row(key))

    def _row(self, key: Any) -> Any:
        return self.table.get(key)

    def _expect(self, group: int, key: Any, row: Any) -> None:
        self.least[key] = min(time for time, _, _ in row.records)
        self.dues.push(group, (self.least[key], key))

    def _stands(self, time: int, key: Any) -> bool:
        return self.least.get(key) == time

    def next_due(self) -> int:
        """The watermark at which a record leaves that waits now; NEVER without one."""
        heaps = self.dues.heaps.values()
        return min((heap[0][0] + 1 for heap in heaps if heap), default=NEVER)

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        """Take the records of an epoch, and emit all that the watermark has passed now. It is also
        to be called of an epoch without records in which some are due."""
        collector = Collector(self.spec, epoch, given.groups)
        records = in_order(given)
        keys = keys_in_order(self.keys_of, given, records)
        times = values_in_order(given, self.spec.time).tolist()
        kinds = [0] * len(records) if given.which is None else given.which.tolist()
        end = NEVER + 1 if upto == NEVER else upto
        late: list[int] = []
        parts = {given.lo + g: (lo, hi) for g, lo, hi in given.filled()}
        for group in sorted({*parts, *self.dues.groups(end - 1)}):
            released = self._release(group, end, epoch)
            for at in range(*parts.get(group, (0, 0))):
                time, kind, record = times[at], kinds[at], records[at]
                if time < watermark:
                    late.append(at)
                elif time < end:
                    released.append((self.order_of[kind](record), kind, record))
                else:
                    self._hold(group, keys[at], (time, kind, bytes(encode(record))), epoch)
            released.sort(key=_PLACE)
            collector.extend([record for _, _, record in released])
            collector.close_group(group - given.lo)
        return collector.output(late=late)

    def _hold(self, group: int, key: Any, entry: tuple[int, int, bytes], epoch: int) -> None:
        row: Any = self.table.touch(key, epoch)[0]
        row.records.append(entry)
        if entry[0] < self.least.get(key, NEVER + 1):
            self.least[key] = entry[0]
            self.dues.push(group, (entry[0], key))

    def _release(self, group: int, end: int, epoch: int) -> list[Released]:
        """Let go of the records of a key group with a time before `end`, each key's in the order in
        which they came."""
        released: list[Released] = []
        for _, key in self.dues.ready(group, end - 1):
            del self.least[key]
            row: Any = self.table.touch(key, epoch)[0]
            held = [entry for entry in row.records if entry[0] >= end]
            for time, kind, stored in row.records:
                if time < end:
                    record = decode(stored, self.spec.inputs[kind].cls)
                    released.append((self.order_of[kind](record), kind, record))
            if held:
                row.records = held
                self._expect(group, key, row)
            else:
                self.table.remove(key, epoch)
        return released
