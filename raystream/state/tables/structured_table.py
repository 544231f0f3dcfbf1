"""Processing state with fixed-width rows: one structured NumPy array and an index over its keys.

A row holds its key (`_key`, int64 per key column; for windows the window's start is one more, the
last), the last epoch that touched it (`_epoch`) and the fields of the user's state class. Compiled
functions index the array directly (see `row_kernels`), batch functions get copies of rows.

A row stays dirty until a checkpoint with it is stored: since every row keeps its epoch, a delta
against any base is one scan, made bit by bit by a view. A view may have old rows in addition, which
count as touched by its epoch from then on. Removed rows are remembered, with their epoch, until the
table is told that a checkpoint has seen them go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, repeat
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from raystream.errors import InternalError
from raystream.schema.columns import read_only
from raystream.schema.state import StateSchema
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image
from raystream.state.images.partition import count_keys
from raystream.state.images.row_shape import RowShape, numbered_shape
from raystream.state.tables.backend import COUNTED, FoundRows, Guard, Table
from raystream.state.tables.removals import Removals
from raystream.state.tables.row_store import RowStore, in_key_order, key_columns
from raystream.state.tables.string_dictionary import StringDictionary, Texts
from raystream.state.tables.structured_columns import ViewedRows, matrix_columns, row_columns
from raystream.state.tables.structured_restore import (
    BLOCK,
    RowColumns,
    newest_of_each,
    numbered,
    rows_of,
    whole_rows,
)
from raystream.state.tables.timers import Timers
from raystream.state.tables.view import Copy, TableView
from raystream.state.tables.views import NONE_OLD, Views

LEAST_ROWS = 16
READY_BYTES = 1 << 25
"""How much memory is made ready at a time where no step waits for it."""
SAMPLE = 1 << 12
"""How many rows are sampled to learn how old the others are."""
GOLDEN = (5**0.5 - 1) / 2
"""Its multiples without their whole parts are spread evenly from 0 to 1, however many they are."""


class StructuredTable(Table):
    """Rows by key, in slots. Not thread-safe.

    A table has its rows, its due times, its removals and its views as parts. What needs several of
    them is done here.

    Args:
        schema: of the user's fields, all of fixed width.
        keys: how many integer columns a key has.
        groups: the number of key groups of the job.
        window: for windowed operators the length of a window in time units; rows are then by key
            and window start.
        ends: where windows differ in length: when those end that begin at some times, both int64.
            `window` is 0 then.
        shape: how the rows are stored; unless given, with keys that are numbers.
    """

    names_slots: ClassVar[bool] = True

    def __init__(
        self,
        schema: StateSchema,
        *,
        keys: int,
        groups: int,
        window: int | None = None,
        ends: Callable[[np.ndarray], np.ndarray] | None = None,
        shape: RowShape | None = None,
    ) -> None:
        self.schema = schema
        self.groups = groups
        self.shape = shape or numbered_shape(schema, keys, windows=window is not None)
        self.texts: Texts = [
            StringDictionary() if f.kind in ("text", "bytes") else None for f in self.shape.keys
        ]
        """By key field what its numbers stand for, where it is text or bytes."""
        self.store = RowStore(schema, keys=keys, groups=groups, window=window)
        self.timers = Timers(self.store, ends)
        self.removals = Removals(self.store)
        self.views = Views(self.store)
        self._extend(LEAST_ROWS)

    def warm(self) -> None:
        """Load the code that is called only now and then, by using it on a row of a key that does
        not count. Not to be called of a table in use."""
        timer = {} if self.schema.timer is None else {self.schema.timer: np.zeros(1, np.int64)}
        keys = [np.zeros(1, np.int64)] * self.store.columns
        self.put_columns(RowColumns(keys, 0, timer))
        self.find(keys)
        if self.timers.next_due != NEVER:
            self.timers.in_firing_order(self.timers.due(NEVER))
        self.store.index.warm(self.store.heads)

    def warm_batches(self) -> None:
        """As `warm`, for a table that is reached by `slots_of` and `write`."""
        from raystream.state.kernels import ordinals

        keys = [np.zeros(1, np.int64) if t is None else pa.array(["-"]) for t in self.texts]
        slots, index = self.slots_of(keys, 0)
        ordinals(read_only(index), len(slots))
        for texts in self.texts:
            if texts is not None:
                texts.warm()
        self.warm()
        view = self.view(BEFORE_ALL, 0)
        self.write(slots, {}, 0)  # which the view has yet to copy
        view.close()

    def use_guard(self, guard: Guard) -> None:
        """Hold this lock while rows are copied, and while numbers are turned into text."""
        self.views.guard = guard
        for texts in self.texts:
            if texts is not None:
                texts.guard = guard

    def __len__(self) -> int:
        return len(self.store)

    @property
    def rows(self) -> np.ndarray:
        """All slots that were made ready."""
        return self.store.rows

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use: slots that were ever used, their alarms and index, removals. Any
        thread may ask."""
        return self.store.nbytes + self.timers.alarms.nbytes + self.removals.noted.nbytes

    # ------------------------------------------------------------ room

    def _extend(self, size: int) -> None:
        """Have this many slots. A free slot holds the defaults."""
        ready = len(self.store.rows)
        self._reach(size)
        self.store.clear(ready)

    def _reach(self, size: int) -> None:
        self.store.reach(size)
        self.timers.reach()

    def grow(self) -> None:
        """Make room where a key found none: split a page of the index, or make a block of rows
        ready."""
        if not self.store.split_page():
            self._extend(self.store.next_size)

    def make_room(self, rows: int, keys: KeyRange) -> None:
        """Prepare an empty table for this many rows: their slots, an index for them, and room for
        the copies of a quarter of them. It is done bit by bit, so that other threads can take the
        interpreter's lock in between.

        keys: the range of the rows.
        """
        store = self.store
        store.index.make_room(rows, keys.lo / self.groups, keys.hi / self.groups)
        step = max(1, READY_BYTES // store.dtype.itemsize)
        while (ready := len(store.rows)) < rows:
            self._extend(min(rows, ready + step))
        self.views.prepare(rows // 4, step)

    # ------------------------------------------------------------ batches

    def slots_of(self, columns: Sequence[Any], epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Find or insert keys that are held in columns: int64 arrays, Arrow text or bytes.

        Returns (the slot of each distinct key in order of first appearance, for each record the
        number of its key among these): int64 both.
        """
        return self.store.distinct(self._insert(self.key_numbers(columns), epoch))

    def key_numbers(self, columns: Sequence[Any]) -> list[np.ndarray]:
        """int64 each: keys in columns, as `slots_of` takes them, with numbers for text."""
        return [
            c if texts is None else texts.number(c)
            for c, texts in zip(columns, chain(self.texts, repeat(None)), strict=False)
        ]

    def _insert(self, columns: Sequence[np.ndarray], epoch: int) -> np.ndarray:
        keys = key_columns(columns)
        slots = np.empty(len(keys[0]), np.int64)
        at = 0
        while (at := self.store.insert(at, keys, epoch, slots)) < len(slots):
            self.grow()
        return slots

    def find(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """int64: the slot of each key, -1 where there is none."""
        return self.store.find(columns)

    def read(self, slots: np.ndarray, name: str) -> np.ndarray:
        """A copy of one of the user's fields of rows.

        Raises:
            StateError: there is no such field.
        """
        return self.store.read(slots, name)

    def write(self, slots: np.ndarray, fields: Mapping[str, np.ndarray], epoch: int) -> None:
        """Put some of the user's fields of rows back; the rows, whatever has changed, are dirty
        from `epoch` on.

        slots: each once.
        """
        self.views.put_aside(slots)
        rows = self.store.rows
        rows["_epoch"][slots] = epoch
        for name, values in fields.items():
            rows[name][slots] = values
        self.timers.arm(slots)

    def remove(self, slots: np.ndarray, epoch: int) -> None:
        """Remove rows. Later deltas hold the removals."""
        self.removals.reserve(len(slots))
        self.views.put_aside(slots)
        self.removals.remove(slots, epoch)

    def take_out(self, slots: np.ndarray, upto: int) -> None:
        """Take rows out that are elsewhere: no delta says that they are gone, nor that they were by
        epoch `upto` if they are back since."""
        keys = self.store.rows["_key"][slots]
        self.views.put_aside(slots)
        self.store.free(slots)
        self.removals.forget(keys, upto)

    def look_up(self, keys: Any) -> FoundRows:
        """The rows of some keys, copied. A text that was never a key gets no number."""
        slots = self.find(numbered(self.shape, keys, self.texts, new=False))
        at = np.flatnonzero(slots >= 0)
        rows = self.store.rows[slots[at]]

        def batch() -> Any:
            order = np.arange(len(at))
            return row_columns(self.shape, rows, keys.take(pa.array(at)), order, self.texts, False)

        return FoundRows(at, batch)

    # ------------------------------------------------------------ checkpoints

    def capture(self, wanted: CheckpointRequest, upto: int, *, named: bool = False) -> ViewedRows:
        """View what changed after the checkpoint `wanted.base`, 0 is all; and the old rows that are
        to be refreshed, see `Views.view`."""
        return ViewedRows(self, wanted, upto, named=named)

    def view(self, since: int, upto: int, before: tuple[int, int] = NONE_OLD) -> TableView | Copy:
        """See `Views.view`."""
        return self.views.view(since, upto, before)

    def sample(self) -> np.ndarray:
        """int64 [n, 2]: of some rows the epoch that touched them last, and their slot, in order.
        They are spread over all slots. Of no rows while a view is copied."""
        store = self.store
        slots = np.arange(0 if self.views.copying else min(store.used, SAMPLE))
        if len(slots) < store.used:
            slots = (slots * GOLDEN % 1.0 * store.used).astype(np.int64)
        epochs = store.rows["_epoch"][slots]
        found = np.column_stack((epochs, slots))[epochs != store.kernels.FREE]
        return found[np.lexsort((found[:, 1], found[:, 0]))]

    def settle(self, checkpoint: int) -> None:
        """A checkpoint is stored: removals up to it need not be remembered."""
        self.removals.settle(checkpoint)

    def dirty(self, since: int) -> np.ndarray:
        """A copy of the rows that an epoch after `since` touched, in no particular order."""
        rows = self.view(since, NEVER).rows()
        rows["_epoch"] = self.store.rows["_epoch"][rows["_epoch"]]  # it is the slot there
        return rows

    def ordered(self) -> np.ndarray:
        """A copy of all rows in key order."""
        return in_key_order(self.dirty(BEFORE_ALL))

    def count_by_group(self) -> np.ndarray:
        """int64 [groups]: how many rows there are of each key group."""
        counts = np.zeros(self.groups, np.int64)
        for keys in self.store.keys_in_blocks(COUNTED):
            columns = matrix_columns(self.shape, keys, self.texts)
            batch = pa.RecordBatch.from_arrays(columns, schema=self.shape.gone)
            counts += count_keys(batch, self.groups)
        return counts

    # ------------------------------------------------------------ restore

    def fill(self, chains: Iterable[Sequence[Image]]) -> None:
        """Put the rows of images into an empty table: those of one table at once, the rest one
        image after the other."""
        rest: list[Image] = []
        indexed: list[Future[None]] = []
        newest = newest_of_each(chains, rest)
        with ThreadPoolExecutor(1) as aside:
            self.fill_columns(rows_of(self.shape, self.texts, newest, aside, indexed))
        for texts in indexed:
            texts.result()
        for image in rest:
            self.apply(image)

    def apply(self, image: Image) -> None:
        """Put the rows of an image in, and take out those that it says are gone."""
        shape, checkpoint = self.shape, image.header.checkpoint
        if image.gone.num_rows:
            found = self.find(numbered(shape, image.gone, self.texts))
            slots = np.unique(found)  # a key may be there twice
            self.remove(slots[slots >= 0], checkpoint)
        keys = numbered(shape, image.rows, self.texts)
        self.put_columns(whole_rows(shape, checkpoint, image.rows, keys))

    def fill_columns(self, parts: Iterable[RowColumns]) -> None:
        """Put the rows of an empty table in. Their keys are distinct, so none is looked for."""
        if self.store.used:
            raise InternalError(f"a table of {self.schema.name} that is filled has rows already")
        at = 0
        for part in parts:
            self._fill_from(at, part)
            at += len(part.keys[0])
        self.store.filled(at)

    def _fill_from(self, at: int, part: RowColumns) -> None:
        self._reach(max(at + len(part.keys[0]), len(self.store.rows)))
        for first in range(0, len(part.keys[0]), BLOCK):
            block = slice(first, first + BLOCK)
            here = self.store.rows[at : at + len(part.keys[0][block])]
            for j, column in enumerate(part.keys):
                here["_key"][:, j] = column[block]
            here["_epoch"] = part.epoch
            for name, values in part.fields.items():
                here[name] = values[block]
            self.timers.arm(np.arange(at, at + len(here)))
            at += len(here)

    def put_columns(self, part: RowColumns) -> None:
        """Put rows in, in place of those of the same keys."""
        self.write(self._insert(part.keys, part.epoch), part.fields, part.epoch)
