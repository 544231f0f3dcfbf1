"""Structured rows of which some lie on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from raystream.schema.types import KeyRange
from raystream.state.images.partition import count_keys, keys_of
from raystream.state.images.row_shape import key_type
from raystream.state.kernels import hash_columns
from raystream.state.segments.cold_rows import ColdRows, whole_hash, with_last_word
from raystream.state.segments.record import (
    DIGEST_WORDS,
    HEAP_FIELDS,
    digests,
    record_dtype,
)
from raystream.state.segments.segment import RecordBlock
from raystream.state.tables.structured_columns import matrix_columns, structured_column
from raystream.state.tables.structured_restore import RowColumns
from raystream.state.tables.structured_table import StructuredTable
from raystream.state.tiers.lasting_table import LastingTable
from raystream.state.tiers.rounds import Candidates, Finding, SortedRows

LOOKED_AT = 1 << 16
"""So many slots are looked at together for rows that may leave."""
QUICKER = 64
"""To look at a slot takes this much less time than to write a row."""
TEXTS_MOST = 2
"""Texts are numbered again when there are more than so many for each row in memory."""


class StructuredTier(LastingTable):
    """A structured table with rows on disk.

    Args:
        make: makes an empty table for rows in memory.
        folder: where rows lie. owner: whose these are, for errors. memory: see `TieredTable`.
    """

    hot: StructuredTable
    step_rows = 1 << 12

    def __init__(
        self, make: Callable[[], StructuredTable], folder: Path, owner: str, memory: int
    ) -> None:
        hot = make()
        self._make = make
        self.free = hot.store.kernels.FREE
        """The epoch of a slot without a row."""
        self._windows = hot.store.columns - hot.store.keys
        self._texts = any(text is not None for text in hot.texts)
        words = DIGEST_WORDS + self._windows if self._texts else hot.store.columns
        names = [f.name for f in hot.schema.fields]
        fields: list[Any] = []
        layout: Mapping[str, Any] = hot.store.dtype.fields or {}
        for name in names:
            dtype, *_ = layout[name]
            fields.append((name, dtype.base, dtype.shape) if dtype.shape else (name, dtype))
        self._names = names
        dtype = record_dtype(words, [*fields, *(HEAP_FIELDS if self._texts else ())])
        probe = with_last_word if self._windows else whole_hash
        super().__init__(hot, ColdRows(folder, owner, dtype, probe), memory)
        self._seen = 0

    def make_room(self, rows: int, keys: KeyRange) -> None:
        most = self._most // self.hot.store.dtype.itemsize
        self.hot.make_room(min(rows, most), keys)

    def warm(self) -> None:
        super().warm()
        self.hot.take_out(np.zeros(0, np.int64), 0)

    def within(self, keys: KeyRange | None) -> None:
        self.hot.timers.within = keys

    # ------------------------------------------------------------ keys

    def bring_keys(self, columns: Sequence[Any]) -> None:
        """Bring the rows of keys.

        Args:
            columns: of the keys, also of the starts of their windows: int64, Arrow text or bytes.
        """
        columns = [
            c.astype(np.int64, copy=False) if isinstance(c, np.ndarray) else c for c in columns
        ]
        numbers = self.hot.key_numbers(columns)
        missing = np.flatnonzero(self.hot.find(numbers) < 0)
        if not len(missing):
            return
        at = missing[_distinct([n[missing] for n in numbers])]
        some = [c[at] if isinstance(c, np.ndarray) else c.take(pa.array(at)) for c in columns]
        hashes, words = self._identity(some)
        order = np.argsort(hashes, kind="stable")
        self._bring(hashes[order], words[order])

    def _bring_batch(self, batch: Any) -> None:
        if batch is not None and batch.num_rows:
            self.bring_keys(self._columns_of(batch))

    def _columns_of(self, batch: Any) -> list[Any]:
        """The keys of a batch of an image in columns, also the starts of their windows."""
        names = self.shape.gone.names
        columns = keys_of(batch.select(names))
        return [*columns, batch.column(names[-1]).to_numpy()] if self._windows else columns

    def _identity_of(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        return self._identity(self._columns_of(batch))

    def _identity(self, columns: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """(the hashes, the words) of keys in columns, also of the starts of their windows."""
        keys, hashes = columns[: len(columns) - self._windows], self._hashes(columns)
        if not self._texts:
            return hashes, np.column_stack(columns).astype(np.int64, copy=False)
        words = digests([msgpack.packb(key) for key in zip(*map(_listed, keys), strict=True)])
        if self._windows:
            words = np.column_stack((words, columns[-1]))
        return hashes, words

    def _hashes(self, columns: Sequence[Any]) -> np.ndarray:
        """uint64: the hashes of keys in columns, also of the starts of their windows."""
        return hash_columns(list(columns[: len(columns) - self._windows]))

    def _columns(self, keys: np.ndarray) -> list[Any]:
        """The keys of rows in columns. keys: as the table numbers them."""
        found = matrix_columns(self.shape, keys, self.hot.texts)
        return [c.to_numpy() if pa.types.is_integer(c.type) else c for c in found]

    # ------------------------------------------------------------ from disk

    def _put(self, rows: RecordBlock) -> tuple[list[Any], np.ndarray]:
        records, hot = rows.records, self.hot
        numbers = self._numbers(rows)
        new = hot.find(numbers) < 0
        if not new.all():
            records, numbers = records[new], [n[new] for n in numbers]
        if len(records):
            hot.put_columns(
                RowColumns(numbers, self.epoch, {name: records[name] for name in self._names})
            )
        return [], records

    def _numbers(self, rows: RecordBlock) -> list[np.ndarray]:
        """The keys of records, as the table in memory numbers them."""
        return self.hot.key_numbers(
            [
                c.to_numpy() if not isinstance(c, np.ndarray) and pa.types.is_integer(c.type) else c
                for c in self._stored_keys(rows)
            ]
        )

    def _stored_keys(self, rows: RecordBlock) -> list[Any]:
        words = rows.records["_key"]
        if not self._texts:
            return [np.ascontiguousarray(column) for column in words.T]
        listed = list(zip(*map(msgpack.unpackb, rows.payloads()), strict=True))
        listed = listed or [()] * len(self.shape.keys)
        columns = [
            pa.array(values, key_type(f)) for f, values in zip(self.shape.keys, listed, strict=True)
        ]
        return [*columns, np.ascontiguousarray(words[:, -1])] if self._windows else columns

    # ------------------------------------------------------------ to disk

    def _new_removals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        noted = self.hot.removals.known()[self._seen :]
        self._seen += len(noted)
        hashes, words = self._identity(self._columns(noted["_key"]))
        return hashes, words, np.ascontiguousarray(noted["_epoch"])

    def _forget_removals(self) -> None:
        self._settled()

    def _settled(self) -> None:
        self._seen = len(self.hot.removals.known())

    def row_bytes(self) -> float:
        return self.hot.nbytes / max(1, self.hot.store.used)

    def epochs(self, most: int) -> np.ndarray:
        epochs = self.hot.rows["_epoch"][: self.hot.store.used]
        epochs = epochs[:: max(1, len(epochs) // most)]
        return epochs[epochs != self.free]

    def candidates(self, upto: int, *, clean: bool) -> Finding:
        found, after = _Slots(self, upto), self.free if clean else self._upto
        for first in range(0, self.hot.store.used, LOOKED_AT):
            epochs = self.hot.rows["_epoch"][first : first + LOOKED_AT]
            slots = np.flatnonzero((epochs <= upto) & (epochs > after)) + first
            columns = self._columns(self.hot.rows["_key"][slots])
            found.add(self._hashes(columns), slots, epochs[slots - first] > self._upto)
            yield len(epochs) // QUICKER + len(slots)
        return found

    def shrink(self) -> Sequence[Any]:
        """As of any tier. After a round texts that no key has any more are forgotten, if they are
        many."""
        ended, gone = self.rounds.ended, super().shrink()
        if self._texts and self.rounds.ended > ended and not self.rounds.under_way:
            texts = max(len(t) for t in self.hot.texts if t is not None)
            if texts > TEXTS_MOST * len(self.hot):
                self._number_again()
        return gone

    def records_of(self, slots: np.ndarray) -> RecordBlock:
        """The records of the rows in these slots."""
        hot = self.hot
        found = self._records(hot.rows["_key"][slots], hot.rows["_epoch"][slots])
        found.records["_due"] = hot.timers.due_times(slots)
        for name in self._names:
            found.records[name] = hot.rows[name][slots]
        return found

    def take_out(self, slots: np.ndarray, upto: int) -> np.ndarray:
        """Take the rows in these slots out of memory, which were touched last by epoch `upto`, or
        before. Returns int64: the epoch of each."""
        epochs = self.hot.rows["_epoch"][slots]
        self.hot.take_out(slots, upto)
        self._seen = len(self.hot.removals.known())
        return epochs

    def _records(self, keys: np.ndarray, epochs: np.ndarray) -> RecordBlock:
        """Records of keys, as the table numbers them; with the keys in a heap if they are text."""
        columns = self._columns(np.ascontiguousarray(keys))
        records = np.zeros(len(keys), self.cold.dtype)
        records["_hash"], records["_key"] = self._identity(columns)
        records["_epoch"] = epochs
        if not self._texts:
            return RecordBlock(records)
        listed = map(_listed, columns[: len(columns) - self._windows])
        heap = [msgpack.packb(key) for key in zip(*listed, strict=True)]
        records["_size"] = list(map(len, heap))
        records["_at"] = np.cumsum(records["_size"]) - records["_size"]
        return RecordBlock(records, b"".join(heap))

    def _clean_counts(self) -> np.ndarray:
        hot, epochs = self.hot, self.hot.rows["_epoch"][: self.hot.store.used]
        clean = np.flatnonzero((epochs != self.free) & (epochs <= self._upto))
        columns = matrix_columns(self.shape, hot.rows["_key"][clean], hot.texts)
        batch = pa.RecordBatch.from_arrays(columns, schema=self.shape.gone)
        return count_keys(batch, self.groups)

    def _number_again(self) -> None:
        """Let the rows in memory be in a table of their own, with the texts of their keys alone."""
        before, noted = self.hot, self.hot.removals.known()
        rows = before.rows[: before.store.used]
        rows = rows[rows["_epoch"] != self.free]
        columns = self._columns(np.ascontiguousarray(rows["_key"]))
        removed = self._columns(np.ascontiguousarray(noted["_key"]))
        self.hot = self._make()
        self.hot.use_guard(self._guard)
        if len(rows):
            numbers = self.hot.key_numbers(columns)
            fields = {name: rows[name] for name in self._names}
            self.hot.fill_columns([RowColumns(numbers, 0, fields)])
            self.hot.rows["_epoch"][: len(rows)] = rows["_epoch"]
        self.hot.removals.take(self.hot.key_numbers(removed), noted["_epoch"])

    # ------------------------------------------------------------ checkpoints

    def batch(self, rows: RecordBlock) -> Any:
        columns = [pa.array(c) for c in self._stored_keys(rows)]
        columns += [
            structured_column(f, np.ascontiguousarray(rows.records[f.name]))
            for f in self.shape.state.fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.shape.rows)


class _Slots(Candidates):
    """Rows in slots. A slot may have another row by now, which was touched since."""

    def __init__(self, tier: StructuredTier, upto: int) -> None:
        super().__init__()
        self._tier, self._upto = tier, upto

    def _left(self, slots: np.ndarray) -> np.ndarray:
        """bool: in which of these slots the rows still are."""
        epochs = self._tier.hot.rows["_epoch"][slots]
        found: np.ndarray = (epochs <= self._upto) & (epochs != self._tier.free)
        return found

    def records(self, rows: SortedRows) -> RecordBlock:
        return self._tier.records_of(rows.which[self._left(rows.which)])

    def take_out(self, rows: SortedRows) -> tuple[np.ndarray, np.ndarray]:
        there = self._left(rows.which)
        return rows.hashes[there], self._tier.take_out(rows.which[there], self._upto)

    def stay(self) -> None:
        """Nothing is to be noted: the epochs of the rows say it."""


def _distinct(columns: Sequence[np.ndarray]) -> np.ndarray:
    """int64: the place of one of each distinct key."""
    if len(columns) == 1:
        found: np.ndarray = np.unique(columns[0], return_index=True)[1]
        return found
    order = np.lexsort(tuple(columns))
    new = np.ones(len(order), bool)
    new[1:] = np.any([c[order][1:] != c[order][:-1] for c in columns], axis=0)
    return order[new]


def _listed(column: Any) -> list[Any]:
    found: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
    return found
