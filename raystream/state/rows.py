"""Processing state with fixed-width rows: one structured NumPy array and an index over its keys.

Both grow in small steps: rows by a block, in memory that grows where it is (`state.room`), the
index by a page (`state.row_index`).

A row holds its key (`_key`, int64 per key column; for windows the window's start is one more, the
last), the last epoch that touched it (`_epoch`) and the fields of the user's state class. Compiled
functions index the array directly (see `state.row_kernels`), batch functions get copies of rows.

A row stays dirty until a cut with it is stored: since every row keeps its epoch, a delta against
any base is one scan, made bit by bit by a view (`state.view`). A view may have old rows beside,
which count as touched by its epoch from then on. Removed rows are remembered, with
their epoch, until told that a cut has seen them go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from raystream.errors import InternalError, StateError
from raystream.schema.state import StateSchema
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.room import Room, as_words
from raystream.state.row_index import RowIndex
from raystream.state.view import Copy, View

LEAST_ROWS = 16
HIDDEN = ("_key", "_epoch")
NONE_OLD = (0, 0)
"""No row has an epoch and a slot that come before these."""
BLOCK = 1 << 14
"""Rows that are filled field by field at a time: they stay in the cache meanwhile."""
SPARE_BYTES = 256 << 20
"""So much memory at least is kept for the copies of the next view, once it was needed. New memory
would be touched for the first time at each cut, which can stop a virtual machine's processor for
milliseconds."""
READY_BYTES = 1 << 25
"""So much memory is made ready at a time where nobody waits for it."""
DUE_ROOM = 1 << 12
"""Due rows for which there is room at first."""
DUE_MOST = 1 << 20
"""And at most: they come in parts."""
SAMPLE = 1 << 12
"""Rows that tell how old the others are."""
GOLDEN = (5**0.5 - 1) / 2
"""Its multiples without their whole parts are spread evenly from 0 to 1, however many they are."""
GROWTH_BYTES = 1 << 18
"""So much memory at most is made ready when there is no room for a row: half a millisecond."""


def head_fields(columns: int) -> list[Any]:
    """What all rows begin with whose keys have so many columns."""
    return [("_key", "i8", (columns,)), ("_epoch", "i8")]


def row_dtype(schema: StateSchema, columns: int) -> np.dtype[Any]:
    """The aligned dtype of the rows of a table whose keys have so many columns."""
    fields = head_fields(columns)
    for name in schema.dtype.names or ():
        shaped = schema.dtype[name].subdtype
        fields.append((name, schema.dtype[name]) if shaped is None else (name, *shaped))
    return np.dtype(fields, align=True)


def key_columns(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Key columns as the one kind of array that kernels are compiled for."""
    return tuple(np.require(c, np.int64, ("C", "A", "W")) for c in columns)


def in_key_order(rows: np.ndarray) -> np.ndarray:
    """Structured rows, sorted by key (numeric, column by column)."""
    return rows[np.lexsort(rows["_key"].T[::-1])]


class Part(NamedTuple):
    """Whole rows as columns. keys: int64 each. epoch: the last that touched them."""

    keys: Sequence[np.ndarray]
    epoch: int
    fields: Mapping[str, np.ndarray]


class StructuredTable:
    """Rows by key, in dense slots of one array. Not thread-safe.

    Args:
        schema: of the user's fields, all of fixed width.
        keys: how many integer columns a key has.
        groups: the number of key groups of the job.
        window: for windowed operators the length of a window in time units; rows are then by key
            and window start.

    rows: all slots that were made ready. Slots are not stable: a removal frees them for other keys.
    guard: held while a view copies rows; a shell that lets another thread do that sets its lock,
        and holds it whenever it changes the table. Who holds it is told whether to go on.
    """

    def __init__(
        self,
        schema: StateSchema,
        *,
        keys: int,
        groups: int,
        window: int | None = None,
    ) -> None:
        from raystream.state import row_kernels as kernels

        if clash := set(HIDDEN) & {f.name for f in schema.fields}:
            raise StateError(f"{schema.name}.{clash.pop()}: this name is raystream's own")
        self.schema = schema
        self.keys = keys
        self.groups = groups
        self.window = window
        self.columns = keys + (window is not None)
        self.dtype = row_dtype(schema, self.columns)
        self.head = np.dtype(head_fields(self.columns))
        self.defaults = np.zeros(1, self.dtype)
        for f in schema.fields:
            self.defaults[f.name] = schema.defaults[f.name]
        self.defaults["_epoch"] = kernels.FREE
        self.meta = np.zeros(kernels.FIELDS, np.int64)
        self.meta[kernels.CHAIN] = -1
        self.meta[kernels.NEXT] = NEVER
        self.meta[kernels.UPTO] = kernels.NO_VIEW
        self.guard: AbstractContextManager[Callable[[], bool]] = nullcontext(lambda: False)
        self._kernels = kernels
        self._room, self._index = Room(self.dtype), RowIndex()
        self._none = np.zeros(0, self.dtype)
        self.rows = self.aside = self._none
        removal = [*head_fields(self.columns), ("_slot", "i8")]
        self.removals = np.zeros(LEAST_ROWS, np.dtype(removal))
        self._aside: Room | None = None
        self._spares: list[Room] = []
        self._view: Callable[[], View | None] = lambda: None
        self._seen, self._numbered = Room(np.dtype(np.int64)), 1
        self._alarms, self.alarms = Room(np.dtype(np.int64)), np.zeros(0, np.int64)
        self._extend(LEAST_ROWS)

    def warm(self) -> None:
        """Load what is called only now and then, by a row of no key; not of a table in use."""
        timer = {} if self.schema.timer is None else {self.schema.timer: np.zeros(1, np.int64)}
        keys = [np.zeros(1, np.int64)] * self.columns
        self.put(Part(keys, 0, timer))
        self.find(keys)
        if self.next_due != NEVER:
            self.in_firing_order(self.due(NEVER))
        self._index.warm(self._heads())

    def __len__(self) -> int:
        return int(self.meta[self._kernels.LIVE])

    @property
    def used(self) -> int:
        """The slots from here on were never used."""
        return int(self.meta[self._kernels.USED])

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use: slots that were ever used, their alarms and index, removals. May
        be asked for on any thread."""
        rows = self.used * self.dtype.itemsize
        return rows + self.alarms.nbytes + self._index.nbytes + self.removals.nbytes

    @property
    def index(self) -> Any:
        """The arrays of the index, for kernels."""
        return self._index.arrays

    # ------------------------------------------------------------ room

    def _extend(self, size: int) -> None:
        """Make so many slots ready: a free one holds the defaults."""
        ready = len(self.rows)
        self._reach(size)
        as_words(self.rows)[ready:] = as_words(self.defaults)  # NumPy would go field by field

    def _reach(self, size: int) -> None:
        self.rows = self._none  # with a view of it memory would be copied, not grow where it is
        self._room.grow(size)
        self.rows = self._room.view(size)
        known, many = len(self.alarms), -(-size >> self._kernels.ALARM_BITS)
        self.alarms = np.zeros(0, np.int64)
        self._alarms.grow(many)
        self.alarms = self._alarms.view(many)
        self.alarms[known:] = NEVER

    def grow(self) -> None:
        """Make room where a key found none: split a page of the index, or make a block of rows
        ready."""
        page = int(self.meta[self._kernels.CROWDED])
        if page >= 0:
            self._index.split(self._heads(), page)
        else:
            size = len(self.rows)
            self._extend(size + min(size, max(1, GROWTH_BYTES // self.dtype.itemsize)))

    def make_room(self, rows: int, keys: KeyRange) -> None:
        """Make so many slots of an empty table ready, an index for them, and room for the copies of
        a quarter of them: bit by bit, as others may have the interpreter's lock meanwhile.

        keys: the range that they will be of.
        """
        self._index.make_room(rows, keys.lo / self.groups, keys.hi / self.groups)
        step = max(1, READY_BYTES // self.dtype.itemsize)
        while (ready := len(self.rows)) < rows:
            self._extend(min(rows, ready + step))
        spare = Room(self.dtype)
        spare.grow(rows // 4)
        copies = as_words(spare.view(rows // 4))
        for at in range(0, len(copies), step):
            copies[at : at + step] = 0
        self.keep_spare(spare, len(copies))

    def reserve_removals(self, more: int) -> None:
        """Make room to remember so many more removals."""
        need = int(self.meta[self._kernels.GONE]) + more
        if need > len(self.removals):
            room = np.empty(1 << (need - 1).bit_length(), self.removals.dtype)
            room[: len(self.removals)] = self.removals
            self.removals = room

    def reserve_aside(self) -> None:
        """Make room to put more rows aside for the view that is open."""
        self._aside = self._aside or Room(self.dtype)
        size, self.aside = max(LEAST_ROWS, 2 * len(self.aside)), self._none
        self._aside.grow(size)
        self.aside = self._aside.view(size)

    def take_spare(self, size: int, *, of_all: bool) -> Room:
        """Room for copies of so many rows: what an earlier view gave back, if one did. One for all
        rows and one for those that have changed are kept; the guard is held."""
        known = len(self._spares)  # more may come meanwhile, none is taken but here
        spares = sorted(self._spares[:known], key=lambda room: room.touched)
        room = spares.pop(-1 if of_all else 0) if spares else Room(self.dtype)
        self._spares[:known] = spares[-1:]
        most = size if of_all or not spares else size // 4
        room.shrink(max(most, SPARE_BYTES // self.dtype.itemsize))
        room.grow(size)
        return room

    def keep_spare(self, room: Room, rows: int) -> None:
        """Keep room for the next view, in which so many rows were copied. On any thread."""
        room.touched = max(room.touched, rows)
        self._spares.append(room)

    # ------------------------------------------------------------ batches

    def slots_of(self, columns: Sequence[np.ndarray], epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Find or insert keys that are held in columns.

        Returns (the slot of each distinct key in order of first appearance, for each record the
        number of its key among these): int64 both.
        """
        slots = self._insert(columns, epoch)
        self._seen.grow(len(self.rows))
        seen, inverse = self._seen.view(len(self.rows)), np.empty(len(slots), np.int64)
        n = self._kernels.distinct(slots, seen, self._numbered, inverse)
        self._numbered += n
        return slots[:n], inverse

    def _insert(self, columns: Sequence[np.ndarray], epoch: int) -> np.ndarray:
        keys = key_columns(columns)
        slots = np.empty(len(keys[0]), np.int64)
        at = 0
        while (at := self._insert_from(at, keys, epoch, slots)) < len(slots):
            self.grow()
        return slots

    def _insert_from(
        self, at: int, keys: tuple[np.ndarray, ...], epoch: int, slots: np.ndarray
    ) -> int:
        heads = self._heads()
        return int(self._kernels.insert_all(heads, self.index, self.meta, keys, epoch, slots, at))

    def find(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """int64: the slot of each key, -1 where there is none."""
        slots = np.empty(len(columns[0]), np.int64)
        self._kernels.find_all(self._heads(), self.index, key_columns(columns), slots)
        return slots

    def _heads(self) -> np.ndarray:
        """Key and epoch of the rows, over the same memory: alike for all state classes."""
        return np.ndarray(len(self.rows), self.head, self.rows, 0, self.rows.strides)

    def read(self, slots: np.ndarray, name: str) -> np.ndarray:
        """A copy of one of the user's fields of rows.

        Raises:
            StateError: there is no such field.
        """
        names = self.schema.dtype.names or ()
        if name not in names:
            raise StateError(
                f"{self.schema.name} has no field {name!r}", hint=f"It has {', '.join(names)}."
            )
        found: np.ndarray = self.rows[name][slots]
        return found

    def write(self, slots: np.ndarray, fields: Mapping[str, np.ndarray], epoch: int) -> None:
        """Put some of the user's fields of rows back; the rows, whatever has changed, are dirty
        from `epoch` on.

        slots: each once.
        """
        self._put_aside(slots)
        self.rows["_epoch"][slots] = epoch
        for name, values in fields.items():
            self.rows[name][slots] = values
        self._arm(slots)

    def remove(self, slots: np.ndarray, epoch: int) -> None:
        """Remove rows; a later delta will say so."""
        self.reserve_removals(len(slots))
        self._put_aside(slots)
        for slot in slots.tolist():
            self._kernels.remove_noted(
                self.rows, self.index, self.meta, self.defaults, self.removals, slot, epoch
            )

    # ------------------------------------------------------------ time

    @property
    def next_due(self) -> int:
        """Nothing is due before this time."""
        return int(self.meta[self._kernels.NEXT])

    def _times(self, where: np.ndarray) -> np.ndarray:
        """int64: when the rows in these slots are due; NEVER for a timer that is not set."""
        if self.window is not None:
            return self.rows["_key"][where, -1] + self.window
        return self.rows[self.schema.timer or ""][where]

    def _arm(self, slots: np.ndarray) -> None:
        """Rows in these slots have new due times."""
        if self.window is not None or self.schema.timer is not None:
            self._kernels.set_alarms(self.alarms, self.meta, slots, self._times(slots))

    def due(self, watermark: int) -> np.ndarray:
        """int64: the slots of the rows due at `watermark`, in no particular order. They are the
        caller's to fire: `next_due` forgets them."""
        return np.concatenate(list(self.due_in_parts(watermark)))

    def due_in_parts(self, watermark: int) -> Iterator[np.ndarray]:
        """The same in one part or more: one may be fired before the next is looked for."""
        if self.next_due > watermark or self.next_due == NEVER:
            yield np.zeros(0, np.int64)
            return
        rows = self.rows  # not a slice: one row alone would be another layout, compiled anew
        times = rows["_key"][:, -1] if self.window is not None else rows[self.schema.timer or ""]
        at, room = 0, DUE_ROOM
        while at >= 0:
            out = np.empty(room, np.int64)
            at, n = self._kernels.scan_due(
                times, rows["_epoch"], self.window or 0, watermark, self.alarms, self.meta, at, out
            )
            yield out[:n]
            room = min(2 * room, DUE_MOST)

    def due_again(self, slots: np.ndarray, watermark: int) -> np.ndarray:
        """As `due`, among the rows in these slots that are still there."""
        times = self._times(slots)
        there = self.rows["_epoch"][slots] != self._kernels.FREE
        return slots[there & (times <= watermark) & (times != NEVER)]

    def in_firing_order(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Due rows in the canonical order of a round.

        Returns (their slots by key group, time and key; where each key group begins among these,
        [groups + 1]): int64 both.
        """
        from raystream.state.kernels import key_groups, sort_by_group

        keys = self.rows["_key"][slots, : self.keys].T.copy()
        order = np.argsort(keys[0]) if self.keys == 1 else np.lexsort(keys[::-1])
        times = self._times(slots)
        if len(times) and times.min() != times.max():
            order = order[np.argsort(times[order], kind="stable")]
        by_group, offsets = sort_by_group(key_groups(list(keys), self.groups)[order], self.groups)
        return slots[order[by_group]], offsets

    # ------------------------------------------------------------ checkpoints

    @property
    def copying(self) -> bool:
        """Whether a view is open and not copied yet."""
        view = self._view()
        return view is not None and not view.whole

    def sample(self) -> np.ndarray:
        """int64 [n, 2]: of some rows the epoch that touched them last, and their slot, in order.
        They are spread over all slots. Of no rows while a view is copied."""
        slots = np.arange(0 if self.copying else min(self.used, SAMPLE))
        if len(slots) < self.used:
            slots = (slots * GOLDEN % 1.0 * self.used).astype(np.int64)
        epochs = self.rows["_epoch"][slots]
        found = np.column_stack((epochs, slots))[epochs != self._kernels.FREE]
        return found[np.lexsort((found[:, 1], found[:, 0]))]

    def view(self, since: int, upto: int, before: tuple[int, int] = NONE_OLD) -> View | Copy:
        """The rows that an epoch after `since` touched last, and old ones, whose epoch and slot
        come before these, as they are at the end of epoch `upto`, which is now. Of two at a time
        one is copied at once: the later one, unless it is of all rows or has old ones, else what is
        left of the earlier one."""
        k = self._kernels
        with self.guard:
            if (earlier := self._view()) is not None and not earlier.whole:
                if since > 0 and before == NONE_OLD:
                    return Copy(self, since, upto)
                earlier.finish()
            self.meta[[k.SINCE, k.UPTO, k.TAKEN, k.KEPT]] = max(since, k.FREE), upto, 0, 0
            self.meta[[k.OLD, k.OLD_SLOT]] = before
            view = View(self, of_all=since <= 0)
            self._view = ref(view)
            return view

    def copy_since(self, since: int, upto: int, out: np.ndarray) -> int:
        """Copy the rows that an epoch after `since` touched last; how many there are."""
        k, words = self._kernels, (as_words(self.rows), as_words(out))
        meta = self.meta.copy()  # the open view's is left as it is
        meta[[k.SINCE, k.UPTO, k.TAKEN]] = since, upto, 0
        meta[[k.OLD, k.OLD_SLOT]] = NONE_OLD
        return int(k.take_viewed(self._heads(), words[0], meta, self.used, words[1], 0))

    def copy_viewed(self, last: int, out: np.ndarray, n: int) -> int:
        """Copy rows of the open view up to a slot to `out`, from n on; how many are there then."""
        words = as_words(self.rows), as_words(out)
        return int(self._kernels.take_viewed(self._heads(), words[0], self.meta, last, words[1], n))

    def close_view(self) -> np.ndarray:
        """All is copied: the rows that were put aside."""
        kept = self.aside[: int(self.meta[self._kernels.KEPT])]
        self.meta[self._kernels.UPTO] = self._kernels.NO_VIEW
        self.aside, self._aside = self._none, None
        return kept

    def _put_aside(self, slots: np.ndarray) -> None:
        """Rows are about to change: copy those that a view has yet to copy."""
        at = 0
        if self.meta[self._kernels.UPTO] != self._kernels.NO_VIEW:
            while (at := self._put_aside_from(at, slots)) < len(slots):
                self.reserve_aside()

    def _put_aside_from(self, at: int, slots: np.ndarray) -> int:
        words = as_words(self.rows), as_words(self.aside)
        heads = self._heads()
        return int(self._kernels.put_aside(heads, words[0], self.meta, slots, at, words[1]))

    def dirty(self, since: int) -> np.ndarray:
        """A copy of the rows that an epoch after `since` touched, in no particular order."""
        rows = self.view(since, NEVER).rows()
        rows["_epoch"] = self.rows["_epoch"][rows["_epoch"]]  # it is the slot there
        return rows

    def gone(self, since: int, *, slots: bool = False) -> np.ndarray:
        """int64 [n, columns]: keys that were removed after `since` and are not back; or with one
        more column, the slot, all that were removed there and are not back in it."""
        noted = self.removals[: int(self.meta[self._kernels.GONE])]
        noted = noted[noted["_epoch"] > since]
        keys = noted["_key"]
        if len(keys):
            found = self.find(list(keys.T))
            left = found != noted["_slot"] if slots else found < 0
            keys, noted = keys[left], noted[left]
        if slots:
            keys = np.column_stack((keys, noted["_slot"]))
        if not len(keys):
            return keys
        keys = keys[np.lexsort(keys.T)]  # `np.unique` of rows has the interpreter's lock meanwhile
        again = np.zeros(len(keys), bool)
        again[1:] = (keys[1:] == keys[:-1]).all(axis=1)
        return keys[~again]

    def settled(self, epoch: int) -> None:
        """A cut at `epoch` is stored: removals up to it need not be remembered."""
        noted = self.removals[: int(self.meta[self._kernels.GONE])]
        kept = noted[noted["_epoch"] > epoch]
        self.removals[: len(kept)] = kept
        self.meta[self._kernels.GONE] = len(kept)

    def fill(self, parts: Iterable[Part]) -> None:
        """Put the rows of an empty table in. Their keys are distinct, so none is looked for."""
        if self.used:
            raise InternalError(f"a table of {self.schema.name} that is filled has rows already")
        at = 0
        for part in parts:
            self._fill_from(at, part)
            at += len(part.keys[0])
        self.meta[[self._kernels.USED, self._kernels.LIVE]] = at
        self._index.fill(self._heads(), at)

    def _fill_from(self, at: int, part: Part) -> None:
        self._reach(max(at + len(part.keys[0]), len(self.rows)))
        for first in range(0, len(part.keys[0]), BLOCK):
            block = slice(first, first + BLOCK)
            here = self.rows[at : at + len(part.keys[0][block])]
            for j, column in enumerate(part.keys):
                here["_key"][:, j] = column[block]
            here["_epoch"] = part.epoch
            for name, values in part.fields.items():
                here[name] = values[block]
            self._arm(np.arange(at, at + len(here)))
            at += len(here)

    def put(self, part: Part) -> None:
        """Put rows in, in place of those of the same keys."""
        slots = self._insert(part.keys, part.epoch)
        self._put_aside(slots)
        for name, values in part.fields.items():
            self.rows[name][slots] = values
        self.rows["_epoch"][slots] = part.epoch
        self._arm(slots)

    def keys_in_blocks(self, rows: int) -> Iterator[np.ndarray]:
        """int64 [n, columns]: the keys of all rows, of about so many at a time."""
        for first in range(0, self.used, rows):
            block = self.rows[first : min(first + rows, self.used)]
            yield block["_key"][block["_epoch"] != self._kernels.FREE]

    def ordered(self) -> np.ndarray:
        """A copy of all rows in key order."""
        return in_key_order(self.dirty(BEFORE_ALL))
