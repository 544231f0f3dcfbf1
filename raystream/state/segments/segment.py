"""Rows in a file, in order of the hashes of their keys.

What a reader needs besides the file lies in memory, about 1.6 bytes a row: a filter of the keys,
and for each few records the first hash and the least due time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raystream.native.resident import PAGE
from raystream.schema.columns import read_only
from raystream.schema.types import NEVER
from raystream.state.segments.paged_file import FileWriter, PagedFile
from raystream.state.segments.record import DUE, EPOCH, epochs_of

FILTER_BITS = 10
"""Bits of the filter for each row: one of a hundred keys that are not there seems to be."""
_BLOCK_BITS = 512
ROWS, HEAP = ".rows", ".heap"
"""What the names of files end with."""
HASHES = 1 << 64
"""All hashes are below."""


class RecordBlock(NamedTuple):
    """Records, and the heap that they point into."""

    records: np.ndarray
    """Structured records, see `record`."""
    heap: Any = b""
    """Bytes: what the records' `_at` are places in. Empty where all is in the records."""

    def payloads(self) -> list[bytes]:
        """The bytes of each record in the heap."""
        ends = (self.records["_at"] + self.records["_size"]).tolist()
        view, begins = memoryview(self.heap), self.records["_at"].tolist()
        return [bytes(view[a:b]) for a, b in zip(begins, ends, strict=True)]


class KeyFilter:
    """Which keys may be in a segment.

    Args:
        rows: how many keys it has at most. low, high: its least and greatest hash.
        words: the bits of one that was made before; None for an empty one.
    """

    def __init__(self, rows: int, low: int, high: int, words: np.ndarray | None = None) -> None:
        from raystream.state.segments import segment_kernels as kernels

        self._kernels = kernels
        blocks = max(1, -(-rows * FILTER_BITS // _BLOCK_BITS))
        self.words = np.zeros(blocks * kernels.BLOCK_WORDS, np.uint64) if words is None else words
        """uint64: the bits."""
        self.low, self.high = low, high
        self._place = np.uint64(low >> 32), np.uint64((high >> 32) - (low >> 32) + 1)

    def add(self, hashes: np.ndarray, probes: np.ndarray) -> None:
        """Add keys: uint64, their hashes, and what tells apart keys of one hash."""
        self._kernels.fill_filter(read_only(hashes), read_only(probes), *self._place, self.words)

    def ask(self, hashes: np.ndarray, probes: np.ndarray) -> np.ndarray:
        """bool [n]: which keys may be there. The hashes are ascending."""
        found = np.zeros(len(hashes), bool)
        begin = int(np.searchsorted(hashes, np.uint64(self.low), "left"))
        end = int(np.searchsorted(hashes, np.uint64(self.high), "right"))
        if begin < end:
            asked = read_only(hashes[begin:end]), read_only(probes[begin:end])
            self._kernels.ask_filter(*asked, *self._place, self.words, found[begin:end])
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.words.nbytes


class SegmentWriter:
    """Writes a segment, a stretch of rows after the other.

    Args:
        folder: where the files lie. owner: whose rows these are, for errors.
        dtype: of the records.
        rows: how many there will be at most. low, high: the least and greatest hash.
        name: of the files, which another process can open then; "" for files without a name.

    Raises:
        StateError: the disk refuses to take them; also `append` and `close` raise it.
    """

    def __init__(
        self,
        folder: Path,
        owner: str,
        dtype: np.dtype[Any],
        rows: int,
        low: int,
        high: int,
        name: str = "",
    ) -> None:
        self.name = name
        """See above."""
        paths = [folder / f"{name}{kind}" if name else None for kind in (ROWS, HEAP)]
        self._file = FileWriter(folder, owner, paths[0])
        has_heap = "_at" in (dtype.names or ())
        self._heap = FileWriter(folder, owner, paths[1]) if has_heap else None
        self._filter = KeyFilter(rows, low, high)
        self._every = every_of(dtype)
        self._rest = np.zeros(0, dtype)
        self._firsts: list[np.ndarray] = []
        self._dues: list[np.ndarray] = []
        self._newest = 0
        self._count = 0

    def append(self, rows: RecordBlock, probes: np.ndarray) -> None:
        """Write rows whose hashes are ascending, and not below those before. The heap has nothing
        but what they point to, in their order.

        probes: see `KeyFilter.add`.
        """
        records = rows.records
        if not len(records):
            return
        if self._heap is not None:
            records = records.copy()
            sizes = records["_size"].astype(np.int64)
            records["_at"] = self._heap.nbytes + np.cumsum(sizes) - sizes
            self._heap.append(rows.heap)
        self._filter.add(np.ascontiguousarray(records["_hash"]), probes)
        self._newest = max(self._newest, int(epochs_of(records).max()))
        self._count += len(records)
        joined = np.concatenate((self._rest, records)) if len(self._rest) else records
        whole = len(joined) // self._every * self._every
        self._write(joined[:whole])
        self._rest = joined[whole:].copy()

    def _write(self, records: np.ndarray) -> None:
        if not len(records):
            return
        starts = np.arange(0, len(records), self._every)
        self._firsts.append(records["_hash"][starts])
        self._dues.append(np.minimum.reduceat(np.ascontiguousarray(records["_due"]), starts))
        self._file.append(np.ascontiguousarray(records).view(np.uint8))

    def close(self) -> Segment | None:
        """The segment; None if nothing was written."""
        dtype = self._rest.dtype
        self._write(self._rest)
        if not self._count:
            self._file.discard()
            if self._heap is not None:
                self._heap.discard()
            return None
        return Segment(
            self._file.close(),
            None if self._heap is None else self._heap.close(),
            dtype,
            self._count,
            self._filter,
            np.concatenate(self._firsts),
            np.concatenate(self._dues),
            self._newest,
            self.name,
        )


def every_of(dtype: np.dtype[Any]) -> int:
    """How many records are looked for together: as many as a page of the disk has."""
    return max(1, PAGE // dtype.itemsize)


class Segment:
    """A segment that was written, for reading."""

    def __init__(
        self,
        file: PagedFile,
        heap: PagedFile | None,
        dtype: np.dtype[Any],
        count: int,
        keys: KeyFilter,
        firsts: np.ndarray,
        dues: np.ndarray,
        newest: int,
        name: str = "",
    ) -> None:
        self.file, self.heap, self.keys = file, heap, keys
        self.dtype, self.name = dtype, name
        self.low, self.high = keys.low, keys.high
        """The least and the greatest hash of the rows that count; see `clip`."""
        self.count = count
        """How many records it has."""
        self.newest = newest
        """The last epoch of all records."""
        self.firsts, self.dues = firsts, dues
        self.rang = False
        """Whether rows have passed their due time since it was written."""
        self._every, self._size = every_of(dtype), dtype.itemsize
        self._records = file.memory[: count * dtype.itemsize].view(dtype)
        self._words = file.memory[: count * dtype.itemsize].view(np.uint64)
        self._width = dtype.itemsize // 8

    def __len__(self) -> int:
        return self.count

    def clip(self, low: int, high: int) -> None:
        """Only rows count whose hashes are from `low` up to `high`, without it: the others are not
        folded, and no checkpoint has them."""
        self.low, self.high = max(self.low, low), min(self.high, high - 1)

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return self.file.nbytes + (0 if self.heap is None else self.heap.nbytes)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory, without what the system keeps of the file."""
        return self.keys.nbytes + self.firsts.nbytes + self.dues.nbytes

    @property
    def reads(self) -> int:
        """How many pages had to be read from disk."""
        return self.file.reads + (0 if self.heap is None else self.heap.reads)

    def find(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records that have these hashes, which are ascending: (which hash, which record),
        int64 both."""
        from raystream.state.segments import segment_kernels as kernels

        lows = np.maximum(np.searchsorted(self.firsts, hashes, "left") - 1, 0) * self._every
        highs = np.searchsorted(self.firsts, hashes, "right") * self._every
        highs = np.minimum(highs, self.count)
        self.file.need(lows * self._size, highs * self._size)
        counts = np.zeros(len(hashes), np.int64)
        kernels.find_equal(self._words, self._width, read_only(hashes), lows, highs, counts)
        which = np.repeat(np.arange(len(hashes)), counts)
        return which, np.repeat(lows - (np.cumsum(counts) - counts), counts) + np.arange(len(which))

    def rows(self, at: np.ndarray) -> RecordBlock:
        """Copies of the records at these places, and their heap."""
        begins = at * self._size
        self.file.need(begins, begins + self._size)
        return self._with_heap(self._records[at])

    def keys_at(self, at: np.ndarray) -> np.ndarray:
        """int64 [n, words]: the words of the keys of records that `find` has found."""
        return self._records["_key"][at]

    def between(self, low: int, high: int) -> RecordBlock:
        """The rows whose hashes are from `low` up to `high`, without it, in order."""
        begin, end = self._place(low), self._place(high)
        if begin >= end:
            return RecordBlock(self._records[:0])
        self.file.need(np.array([begin * self._size]), np.array([end * self._size]))
        return self._with_heap(self._records[begin:end])

    def count_between(self, low: int, high: int) -> int:
        """About how many rows `between` has."""
        first, last = (self._page_of(h) for h in (low, high))
        return min(self.count, (last - first + 1) * self._every)

    def due(self, upto: int, low: int, high: int) -> RecordBlock:
        """The rows that are due by a time and whose hashes are from `low` up to `high`, without it.
        Until `passed`, and where others of their pages are due later, they are found again."""
        pages = self._due_pages(upto)
        if len(pages):
            first, last = self._page_of(low), self._page_of(high)
            pages = pages[(pages >= first) & (pages <= last)]
        if not len(pages):
            return RecordBlock(self._records[:0])
        at, dues = self._dues_in(pages)
        hashes = self._words[at * self._width]
        taken = (dues <= upto) & (dues != NEVER) & (hashes >= np.uint64(low))
        if high < HASHES:
            taken &= hashes < np.uint64(high)
        return self._with_heap(self._records[at[taken]])

    def passed(self, upto: int) -> None:
        """All rows that are due by a time were brought."""
        pages = self._due_pages(upto)
        if len(pages):
            self.rang = True
            at, dues = self._dues_in(pages)
            left = np.where(dues <= upto, NEVER, dues)
            self.dues[pages] = np.minimum.reduceat(left, np.searchsorted(at, pages * self._every))

    def _dues_in(self, pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of pages, and when each is due; NEVER for one that says that a row was
        removed. int64 both."""
        begins = pages * self._every
        ends = np.minimum(begins + self._every, self.count)
        self.file.need(begins * self._size, ends * self._size)
        at = (begins[:, None] + np.arange(self._every)).ravel()
        at = at[at < self.count]
        epochs, dues = (self._words[at * self._width + j].view(np.int64) for j in (EPOCH, DUE))
        return at, np.where(epochs < 0, NEVER, dues)

    def due_rows(self, upto: int) -> int:
        """How many rows are due by a time, at most."""
        return len(self._due_pages(upto)) * self._every

    @property
    def next_due(self) -> int:
        """None of the rows is due before."""
        return int(self.dues.min())

    def _due_pages(self, upto: int) -> np.ndarray:
        return np.flatnonzero((self.dues <= upto) & (self.dues != NEVER))

    def _with_heap(self, records: np.ndarray) -> RecordBlock:
        if self.heap is None:
            return RecordBlock(records)
        if len(records):
            begins = records["_at"].astype(np.int64)
            self.heap.need(begins, begins + records["_size"].astype(np.int64))
        return RecordBlock(records, self.heap.memory)

    def _page_of(self, h: int) -> int:
        """The stretch of records in which the first one is whose hash is not below `h`, or after
        which it is."""
        if h >= HASHES:
            return len(self.firsts) - 1
        return max(0, int(np.searchsorted(self.firsts, np.uint64(h), "left")) - 1)

    def _place(self, h: int) -> int:
        """The first record whose hash is not below `h`."""
        if h >= HASHES:
            return self.count
        begin = self._page_of(h) * self._every
        end = min(begin + self._every, self.count)
        self.file.need(np.array([begin * self._size]), np.array([end * self._size]))
        hashes = self._words[begin * self._width : end * self._width : self._width]
        return begin + int(np.searchsorted(hashes.copy(), np.uint64(h), "left"))
