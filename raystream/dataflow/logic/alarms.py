"""When timers and windows are due, by key group.

When the time of a key is set again, the entry of the old time stays behind and is skipped when its
turn comes. That may be days later, while every record sets the time of its key again. So a heap is
cleaned of old entries as soon as they may be more than half of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any

from raystream.api.operators import OperatorSpec
from raystream.schema.types import KeyRange
from raystream.state.keys import key_order

LEAST = 64
"""A heap of up to this many entries is never cleaned."""


class Dues:
    """A heap of entries for each key group. An entry begins with its time and its key.

    Args:
        spec: of the operator.
        stands: called with the parts of an entry; says whether the entry still holds.
    """

    def __init__(self, spec: OperatorSpec, stands: Callable[..., bool]) -> None:
        self.heaps: dict[int, list[Any]] = {}
        self._stands = stands
        self._most: dict[int, int] = {}
        fields = [schema.field(name) for schema in spec.inputs for name in spec.key]
        self._may_be_none = any(f is not None and f.optional for f in fields)
        """Then an entry has what its key is sorted by before the key: None has no order."""

    def push(self, group: int, entry: tuple[Any, ...]) -> None:
        """Add an entry that holds now."""
        heap = self.heaps.setdefault(group, [])
        if self._may_be_none:
            entry = (entry[0], key_order(entry[1]), *entry[1:])
        heappush(heap, entry)
        if len(heap) > self._most.get(group, LEAST):
            heap[:] = sorted({each for each in heap if self._stands(*self._parts(each))})
            self._most[group] = max(LEAST, 2 * len(heap))

    def groups(self, upto: int, keys: KeyRange | None = None) -> list[int]:
        """The key groups, all or of a range, that may have an entry up to a time, in order."""
        due = sorted(g for g, heap in self.heaps.items() if heap and heap[0][0] <= upto)
        return due if keys is None else list(filter(keys.holds, due))

    def ready(self, group: int, upto: int) -> Iterator[Any]:
        """Take out the entries of a key group up to a time, in order, and yield those that still
        hold. What is added meanwhile comes too, if it is due."""
        heap = self.heaps.get(group)
        while heap and heap[0][0] <= upto:
            entry = self._parts(heappop(heap))
            if self._stands(*entry):
                yield entry
        if heap is not None and not heap:
            self.heaps.pop(group, None)

    def _parts(self, entry: tuple[Any, ...]) -> tuple[Any, ...]:
        return (entry[0], *entry[2:]) if self._may_be_none else entry
