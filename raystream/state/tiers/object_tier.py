"""Python rows of which some lie on disk, each as msgpack of what an image would have of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import compress, islice
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from raystream.schema.types import NEVER
from raystream.state.images.image import END
from raystream.state.images.object_columns import (
    column_of,
    key_columns,
    lasting_values,
    row_keys,
    values_of,
)
from raystream.state.images.partition import count_keys
from raystream.state.images.row_shape import RowShape
from raystream.state.kernels import hash_columns
from raystream.state.segments.cold_rows import ColdRows, Probe, whole_hash, with_last_word
from raystream.state.segments.record import (
    DIGEST_WORDS,
    HEAP_FIELDS,
    digests,
    record_dtype,
)
from raystream.state.segments.segment import RecordBlock
from raystream.state.tables.object_table import ObjectTable
from raystream.state.tiers.lasting_table import LastingTable
from raystream.state.tiers.rounds import Candidates, Finding, SortedRows

ROW_BYTES, FIELD_BYTES = 180, 40
"""What a row takes in memory with its key and its places in dicts, and what each field adds."""
LOOSE = 4
"""How many bytes a byte of msgpack takes as Python objects, about."""
LOOKED_AT, QUICKER = 1 << 12, 32
"""So many keys are looked at together for rows that may leave; that takes so much less time than to
write one."""
SAMPLED = 32
"""Rows whose sizes are looked at when there are twice as many as before."""


class HotRows(ObjectTable):
    """Python rows in memory; it notes what is removed."""

    def __init__(self, shape: RowShape, groups: int) -> None:
        super().__init__(shape, groups)
        self.new_removals: list[tuple[Any, int]] = []
        """Keys and epochs of the rows that were removed since this was emptied."""
        self.row_bytes = ROW_BYTES + FIELD_BYTES * len(shape.state.fields)
        """What a row takes, about."""

    @property
    def nbytes(self) -> int:
        """About what the rows take."""
        return len(self.rows) * self.row_bytes

    def remove(self, key: Any, epoch: int) -> None:
        """As of any table."""
        super().remove(key, epoch)
        self.new_removals.append((key, epoch))


class ObjectTier(LastingTable):
    """A table of Python rows with rows on disk.

    Args:
        due: the field of the state that is a timer; "" without one.
        ends: when windows end that begin at some times, int64 both; None without windows, or where
            each session has an end of its own.
        folder: where rows lie. owner: whose these are, for errors. memory: see `TieredTable`.
    """

    hot: HotRows
    step_rows = 1 << 9

    def __init__(
        self,
        hot: HotRows,
        folder: Path,
        owner: str,
        memory: int,
        *,
        due: str = "",
        ends: Any = None,
    ) -> None:
        self._due, self._ends = due, ends
        self._windows = int(bool(hot.shape.window))
        dtype = record_dtype(DIGEST_WORDS + self._windows, HEAP_FIELDS)
        by_start: Probe = with_last_word if self._windows and not hot.shape.sessions else whole_hash
        super().__init__(hot, ColdRows(folder, owner, dtype, by_start), memory)
        self._sampled = 0
        self._came: list[Any] = []
        """Where a successor may open the files: the keys that came from disk in this epoch."""
        self._clean: set[Any] = set()
        """The keys in memory whose rows are on disk too, and some that were so a while ago."""

    # ------------------------------------------------------------ keys

    def bring_keys(self, keys: Iterable[Any]) -> list[Any]:
        """Bring the rows of keys; returns those that came."""
        rows = self.hot.rows
        missing = [k for k in dict.fromkeys(keys) if k not in rows]
        if not missing:
            return []
        hashes, words = self._identity(key_columns(self.shape, missing))
        order = np.argsort(hashes, kind="stable")
        return self._bring(hashes[order], words[order])

    def bring_windows(self, keys: Iterable[Any]) -> list[Any]:
        """Bring all windows of keys; returns the keys and starts of those that came."""
        distinct = [(k, 0) for k in dict.fromkeys(keys)]
        if not distinct:
            return []
        found: list[Any] = []
        hashes = hash_columns(key_columns(self.shape, distinct)[:-1])
        for rows in self.cold.find_all(np.unique(hashes)):
            found += self._take_in(rows)
        return found

    def _bring_batch(self, batch: Any) -> None:
        if batch is not None and batch.num_rows:
            self.bring_keys(row_keys(self.shape, batch))

    def _identity_of(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        return self._identity([batch.column(name) for name in self.shape.gone.names])

    def _identity(self, columns: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """(the hashes, the words) of keys in Arrow columns, also of the starts of their windows."""
        keys = list(columns[: len(columns) - self._windows])
        packed = [msgpack.packb(key) for key in zip(*(c.to_pylist() for c in keys), strict=True)]
        words = digests(packed)
        if self._windows:
            words = np.column_stack((words, columns[-1].to_numpy()))
        return hash_columns(keys), words

    # ------------------------------------------------------------ from disk

    def _put(self, rows: RecordBlock) -> tuple[list[Any], np.ndarray]:
        records, hot = rows.records, self.hot
        batch = self.batch(rows)
        keys = row_keys(self.shape, batch)
        new = [i for i, key in enumerate(keys) if key not in hot.rows]
        if len(new) < len(keys):
            batch, keys = batch.take(pa.array(new, pa.int64())), [keys[i] for i in new]
            records = records[new]
        fields = [(f.name, values_of(f, batch.column(f.name))) for f in self.shape.state.fields]
        for i, (key, epoch) in enumerate(zip(keys, records["_epoch"].tolist(), strict=True)):
            row = hot.new(key)
            row._mark = epoch
            for name, values in fields:
                setattr(row, name, values[i])
        if self.shape.sessions:
            hot.ends.update(zip(keys, batch.column(END).to_pylist(), strict=True))
        if self._folder is not None:
            self._came += keys
        return keys, records

    # ------------------------------------------------------------ to disk

    def _new_removals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        removed, self.hot.new_removals = self.hot.new_removals, []
        last = dict(removed)
        hashes, words = self._identity(key_columns(self.shape, list(last)))
        return hashes, words, np.array(list(last.values()), np.int64)

    def _forget_removals(self) -> None:
        self.hot.new_removals = []

    def note_removals(self) -> None:
        """As of any tier; of the rows that came from disk few were not touched."""
        super().note_removals()
        if self._came:
            self._clean.update(self._untouched(self._came))
            self._came = []

    def _untouched(self, keys: Iterable[Any]) -> list[Any]:
        get, upto = self.hot.rows.get, self._upto
        return [k for k in keys if (row := get(k)) is not None and row._mark <= upto]

    def written(self, upto: int, *, leave: bool) -> None:
        super().written(upto, leave=leave)
        if leave:
            self._sampled = len(self.hot) // 2  # they may be of another size by now

    def stay(self, keys: list[Any]) -> None:
        """The rows of keys are on disk as they are, and stay in memory."""
        self._clean.update(keys)

    def _clean_counts(self) -> np.ndarray:
        clean = self._untouched(self._clean.union(self._came))
        self._clean, self._came = set(clean), []
        batch = pa.RecordBatch.from_arrays(key_columns(self.shape, clean), schema=self.shape.gone)
        return count_keys(batch, self.groups)

    def shrink(self) -> Sequence[Any]:
        """As of any tier; how much memory rows take is looked at now and then."""
        if len(self.hot) >= 2 * self._sampled + LOOSE:
            self._sampled = len(self.hot)
            step = max(1, len(self.hot) // SAMPLED)
            keys = list(islice(self.hot.rows, 0, None, step))
            sizes = list(map(len, self._packed(keys)))
            fields = FIELD_BYTES * len(self.shape.state.fields)
            self.hot.row_bytes = ROW_BYTES + fields + LOOSE * sum(sizes) // len(sizes)
        return super().shrink()

    def _packed(self, keys: list[Any]) -> list[bytes]:
        """The rows of keys, encoded."""
        shape, hot = self.shape, self.hot
        rows = [hot.rows[k] for k in keys]
        columns = [c.to_pylist() for c in key_columns(shape, keys)]
        if shape.sessions:
            columns.append([hot.ends[k] for k in keys])
        for f in shape.state.fields:
            columns.append(
                column_of(shape, f, lasting_values(f, rows, shape, keys), keys).to_pylist()
            )
        pack = msgpack.Packer(default=_plain).pack
        return [pack(row) for row in zip(*columns, strict=True)]

    def row_bytes(self) -> float:
        return self.hot.row_bytes

    def epochs(self, most: int) -> np.ndarray:
        rows = self.hot.rows
        some = islice(rows.values(), 0, None, max(1, len(rows) // most))
        return np.fromiter((row._mark for row in some), np.int64)

    def candidates(self, upto: int, *, clean: bool) -> Finding:
        found, after = _Keys(self, upto), -1 if clean else self._upto
        left, get = iter(list(self.hot.rows)), self.hot.rows.get
        while some := list(islice(left, LOOKED_AT)):
            rows = [(k, row._mark) for k in some if (row := get(k)) is not None]
            rows = [(k, mark) for k, mark in rows if after < mark <= upto]
            if rows:
                marks = np.array([mark for _, mark in rows], np.int64)
                found.name([k for k, _ in rows], marks > self._upto)
            yield len(some) // QUICKER + len(rows) // 2
        return found

    def hashes_of(self, keys: list[Any]) -> np.ndarray:
        """uint64: the hashes of keys."""
        columns = key_columns(self.shape, keys)
        return hash_columns(list(columns[: len(columns) - self._windows]))

    def records_of(self, keys: list[Any]) -> RecordBlock:
        """The records of rows."""
        marks = np.array([self.hot.rows[k]._mark for k in keys], np.int64)
        hashes, words = self._identity(key_columns(self.shape, keys))
        found = self._records(hashes, words, marks, self._packed(keys))
        found.records["_due"] = self._dues(keys)
        return found

    def take_out(self, keys: list[Any]) -> np.ndarray:
        """Take rows out of memory. Returns int64: the epochs that touched them last."""
        hot = self.hot
        marks = np.array([hot.rows.pop(k)._mark for k in keys], np.int64)
        for key in keys:
            hot.ends.pop(key, None)
            hot.removed.pop(key, None)  # it has come back since
        self._clean.difference_update(keys)
        self._gone += keys
        return marks

    def _records(
        self, hashes: np.ndarray, words: np.ndarray, epochs: np.ndarray, heap: list[bytes]
    ) -> RecordBlock:
        records = np.zeros(len(hashes), self.cold.dtype)
        records["_hash"], records["_key"], records["_epoch"] = hashes, words, epochs
        records["_size"] = list(map(len, heap))
        records["_at"] = np.cumsum(records["_size"]) - records["_size"]
        return RecordBlock(records, b"".join(heap))

    def _dues(self, keys: list[Any]) -> Any:
        if self._due:
            return [getattr(self.hot.rows[k], self._due) for k in keys]
        if self.shape.sessions:
            return [self.hot.ends[k] for k in keys]
        return NEVER if self._ends is None else self._ends(np.array([s for _, s in keys], np.int64))

    # ------------------------------------------------------------ checkpoints

    def batch(self, rows: RecordBlock) -> Any:
        schema = self.shape.rows
        listed = [msgpack.unpackb(data, ext_hook=_restored) for data in rows.payloads()]
        columns = list(zip(*listed, strict=True)) or [()] * len(schema)
        arrays = [pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Keys(Candidates):
    """Rows by their keys."""

    def __init__(self, tier: ObjectTier, upto: int) -> None:
        super().__init__()
        self._tier, self._upto = tier, upto
        self.keys: list[Any] = []

    def name(self, keys: list[Any], dirty: np.ndarray) -> None:
        """Add the rows of keys."""
        hashes = self._tier.hashes_of(keys)
        self.add(hashes, np.arange(len(self.keys), len(self.keys) + len(keys)), dirty)
        self.keys += keys

    def _left(self, which: np.ndarray) -> tuple[list[Any], np.ndarray]:
        """(the keys of those that were not touched since, bool: which these are)."""
        get = self._tier.hot.rows.get
        keys = [self.keys[i] for i in which.tolist()]
        rows = map(get, keys)
        there = [row is not None and row._mark <= self._upto for row in rows]
        return list(compress(keys, there)), np.array(there, bool)

    def records(self, rows: SortedRows) -> RecordBlock:
        return self._tier.records_of(self._left(rows.which)[0])

    def take_out(self, rows: SortedRows) -> tuple[np.ndarray, np.ndarray]:
        keys, there = self._left(rows.which)
        return rows.hashes[there], self._tier.take_out(keys)

    def stay(self) -> None:
        self._tier.stay(self.keys)


_DECIMAL = 1


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    raise TypeError(f"{type(value).__name__} has no stored form")


def _restored(code: int, data: bytes) -> Any:
    return Decimal(data.decode()) if code == _DECIMAL else msgpack.ExtType(code, data)
