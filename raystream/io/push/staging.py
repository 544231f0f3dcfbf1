"""What is staged for a batch that is to be sealed: attempts, of which only some will count.

A writer that may fail, be repeated or run twice at once pushes its records under the name of an
*attempt* that no writer has used before, in numbered parts for each lane. They are no input yet.
When it is known which attempts count, the program that asked for them seals the batch: the query,
the number of the batch, and the attempts in their order. The first seal of a (query, batch) wins,
and all other attempts of the query are dropped.

    staging.put(lane, query, attempt, part, rows, now)
    staging.taken(lane, query, [(attempt, parts), ...])     the rows of a batch, in order
    staging.drop(query, lane)

It lies in the memory of the process that owns the lane. Where that process ends, a seal finds that
something is missing, and refuses: the batch is then computed and staged again. So nothing here has
to be kept, and the seal alone is recorded, with its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from raystream.errors import InputError
from raystream.schema.columns import Columns, concat

STAGED_BYTES = 256 << 20
"""How many bytes may be staged in a process."""
PART_BYTES = 1024
"""What a part counts for beside its rows: names and tables of its own, also where it has no row."""
STAGED_SECONDS = 3600.0
"""An attempt to which nothing was added for so long is dropped."""
IDLE_SECONDS = 60.0
"""An attempt to which nothing was added for so long is dropped where others need the room."""

Wanted = Sequence[tuple[str, int]]
"""The attempts of a batch in their order, each with the number of its parts for a lane."""


@dataclass
class _Attempt:
    newest: float
    """When its newest part came."""
    parts: dict[int, Columns] = field(default_factory=dict)
    nbytes: int = 0


class Staging:
    """What is staged in a process, by lane, query and attempt. Pure: `now` is handed in."""

    def __init__(self, limit: int = STAGED_BYTES) -> None:
        self._limit = limit
        self._attempts: dict[tuple[int, str, str], _Attempt] = {}
        self.nbytes = 0
        """The bytes of all that is staged."""

    def put(
        self, lane: int, query: str, attempt: str, part: int, rows: Columns, now: float
    ) -> bool:
        """Stage a part. One that is there already stays. False: there is no room now."""
        self._drop(lambda each: each.newest <= now - STAGED_SECONDS)
        key = lane, query, attempt
        held = self._attempts.get(key)
        if held is not None and part in held.parts:
            held.newest = now
            return True
        nbytes = rows.nbytes() + PART_BYTES
        if self.nbytes + nbytes > self._limit and self.nbytes:
            self._make_room(nbytes, key, now)
            if self.nbytes + nbytes > self._limit and self.nbytes:
                return False
        held = self._attempts.setdefault(key, _Attempt(now))
        held.newest = now
        held.parts[part] = rows
        held.nbytes += nbytes
        self.nbytes += nbytes
        return True

    def taken(self, lane: int, query: str, wanted: Wanted) -> list[Columns] | str:
        """The rows of attempts, in their order and that of their parts; or the name of an attempt
        of which a part is not there. They stay staged."""
        rows = []
        for attempt, parts in wanted:
            held = self._attempts.get((lane, query, attempt))
            for part in range(parts):
                if held is None or part not in held.parts:
                    return attempt
                rows.append(held.parts[part])
        return rows

    def drop(self, query: str, lane: int, attempts: Sequence[str] | None = None) -> None:
        """Forget attempts of a query in a lane, all of them unless some are named."""
        for key in [k for k in self._attempts if k[:2] == (lane, query)]:
            if attempts is None or key[2] in attempts:
                self.nbytes -= self._attempts.pop(key).nbytes

    def leave(self, lane: int) -> None:
        """The lane is not read here any more."""
        for key in [k for k in self._attempts if k[0] == lane]:
            self.nbytes -= self._attempts.pop(key).nbytes

    def _drop(self, which: Callable[[_Attempt], bool]) -> None:
        for key in [k for k, each in self._attempts.items() if which(each)]:
            self.nbytes -= self._attempts.pop(key).nbytes

    def _make_room(self, nbytes: int, but: tuple[int, str, str], now: float) -> None:
        """Drop the attempts that have waited longest, and long enough."""
        for key in sorted(self._attempts, key=lambda k: self._attempts[k].newest):
            fits = self.nbytes + nbytes <= self._limit
            if fits or self._attempts[key].newest > now - IDLE_SECONDS:
                return
            if key != but:
                self.nbytes -= self._attempts.pop(key).nbytes


def in_order(parts: Sequence[Columns], order: Sequence[str]) -> Columns:
    """Rows one after the other, or by some of their fields: equal ones stay in their order.

    Raises:
        InputError: a field is none, or cannot be ordered.
    """
    rows = concat(list(parts))
    if not order:
        return rows
    keys = []
    for name in order:
        kind = next((f for f in rows.schema.fields if f.name == name), None)
        if kind is None or not isinstance(column := rows.column(name), np.ndarray):
            raise InputError(
                f"order: {name!r} is no field of {rows.schema.name} that can be ordered",
                hint="Name fields of numbers, times or bools.",
            )
        keys.append(column)
    return rows.take(np.lexsort(keys[::-1]))
