"""What is due when, by key group.

Whoever sets a time anew leaves the entry of the old one behind, to be passed over when it is met.
That may be days later, while every record sets its key's time anew: so where old entries may be the
greater part they are taken out.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

LEAST = 64
"""So many entries a heap may have in any case."""


class Dues:
    """A heap of entries for each key group. An entry begins with its time.

    stands: whether what an entry says is still so; it is given the entry's parts.
    """

    def __init__(self, stands: Callable[..., bool]) -> None:
        self.heaps: dict[int, list[Any]] = {}
        self._stands = stands
        self._most: dict[int, int] = {}

    def push(self, group: int, entry: tuple[Any, ...]) -> None:
        """Add an entry, which stands."""
        heap = self.heaps.setdefault(group, [])
        heappush(heap, entry)
        if len(heap) > self._most.get(group, LEAST):
            heap[:] = sorted({each for each in heap if self._stands(*each)})
            self._most[group] = max(LEAST, 2 * len(heap))
