"""What tables of both kinds have alike whose rows do not all lie in memory.

    bring_...              before an epoch: the rows of its keys come from disk
    note_removals, shrink  after it: what was removed is remembered; if the rows take nearly as much
                           memory as they may, some that were touched the longest ago leave

So while an epoch is processed all its rows are in one table in memory, and nothing that works on
rows knows of a disk. What is in memory replaces what is on disk, and a newer segment an older one.
A row that is brought keeps its record on disk, and is written again with others when it leaves.
How rows leave is in `rounds`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image
from raystream.state.segments.cold_rows import ColdRows, range_of
from raystream.state.segments.record import epochs_of, is_removed
from raystream.state.segments.segment import HASHES, RecordBlock
from raystream.state.tables.backend import FoundRows, Guard, OnDisk, PendingRows, Table
from raystream.state.tiers.removed_keys import RemovedKeys
from raystream.state.tiers.rounds import ALL, Finding, Rounds

HOT_SHARE = 0.65
"""The rows in memory take this share of what they may take at most. The rest is for the places of
those that are about to leave, and for text keys, which are numbered again now and then in a second
table."""
LEAST_ROWS = 2
"""With up to this many rows in memory, none is written to disk."""
FOLD_EACH_BYTES = 1 << 20
"""Bytes of rows on disk that are folded after an epoch at least, about, if some are to be."""
FOLD_TIMES = 8
"""A row on disk is folded about so often. This many rows are folded for each that is written,
spread over the epochs: otherwise an epoch would wait for all of it."""
SMOOTH = 16
"""Over about so many epochs."""
SEGMENTS_MOST = 8
"""With more segments than this twice as many rows are folded; with twice as many segments all."""


class TieredTable(Table):
    """A table with rows in memory, `hot`, and rows on disk, `cold`.

    Args:
        hot: an empty table. cold: no segments.
        memory: how many bytes the rows may take in memory.
    """

    hot: Any
    step_rows: ClassVar[int]
    """After an epoch a round goes on with so many rows at least, if they are small."""

    def __init__(self, hot: Table, cold: ColdRows, memory: int) -> None:
        self.hot, self.cold = hot, cold
        self.shape, self.groups = hot.shape, hot.groups
        self._most = int(memory * HOT_SHARE)
        self._removed = RemovedKeys(cold.dtype["_key"].shape[0])
        self.cold_counts = np.zeros(self.groups, np.int64)
        """int64 [groups]: by key group how many rows are on disk alone."""
        self._stored = 0
        self._guard: Guard = nullcontext(lambda: False)
        self._in_groups = np.array(
            [range_of(KeyRange(g, g + 1), self.groups)[0] for g in range(self.groups)], np.uint64
        )
        self.epoch = 0
        """The epoch that is processed: rows that come from disk are needed by it."""
        self.newest = 0
        """No row on disk was touched after this epoch, as it is there."""
        self._skipped = 0
        """So many of the oldest segments are not looked into: what comes is newer."""
        self.rounds = Rounds(self)
        self._writing = False
        """Whether a round writes: a row that is removed now may be in its segment."""
        self._gone: list[Any] = []
        """The keys of rows that have left memory, if alarms are set for them."""
        self._writes = 0.0
        """How many rows are written after an epoch, on average."""
        self.brought = 0
        """How many rows came from disk so far."""

    def __len__(self) -> int:
        return len(self.hot) + self.cold_count

    @property
    def cold_count(self) -> int:
        """How many rows are on disk alone."""
        return int(self.cold_counts.sum())

    @property
    def nbytes(self) -> int:
        return int(self.hot.nbytes) + self._removed.nbytes + self.cold.memory_bytes

    @property
    def on_disk(self) -> OnDisk:
        cold = self.cold
        return OnDisk(self.cold_count, cold.nbytes, self.brought, cold.reads, cold.full)

    def warm(self) -> None:
        self.hot.warm()

    def use_guard(self, guard: Guard) -> None:
        self._guard = guard
        self.hot.use_guard(guard)

    def look_up(self, keys: Any) -> FoundRows:
        found = self.hot.look_up(keys)
        left = np.setdiff1d(np.arange(keys.num_rows), found.at)
        if not self.cold or not len(left):
            return found
        hashes, words = self._identity_of(keys.take(pa.array(left)))
        order = np.argsort(hashes, kind="stable")
        left, hashes, words = left[order], hashes[order], words[order]
        places, parts = [found.at], []
        for each in self.cold.find(hashes, words):
            records, heap = each.rows
            live = ~is_removed(records) & ~self._removed.has(words[each.which])
            places.append(left[each.which[live]])
            parts.append(RecordBlock(records[live], heap))
        at = np.concatenate(places)
        order = np.argsort(at)

        def batch() -> Any:
            several = [found.batch(), *map(self.batch, parts)]
            return pa.concat_batches(several).take(pa.array(order))

        return FoundRows(at[order], batch)

    @abstractmethod
    def _identity_of(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """(hashes, words) of the keys of an Arrow batch, as images have them."""

    # ------------------------------------------------------------ from disk

    def within(self, keys: KeyRange | None) -> None:
        """Rows in memory of other key groups than these are not found due; None: all are."""

    def bring_due(self, upto: int, low: int = 0, high: int = HASHES) -> list[Any]:
        """Bring the rows that are due by a time and whose hashes are from `low` up to `high`.
        Returns their keys, if alarms are to be set for them."""
        keys: list[Any] = []
        for rows in self.cold.due(upto, low, high):
            keys += self._take_in(rows)
        return keys

    def _bring(self, hashes: np.ndarray, words: np.ndarray) -> list[Any]:
        """Bring the rows of keys that are not in memory; the hashes are ascending."""
        keys: list[Any] = []
        for found in self.cold.find(hashes, words, newer=self._skipped):
            keys += self._take_in(found.rows)
        return keys

    def _take_in(self, rows: RecordBlock) -> list[Any]:
        """Put rows into memory, but for those that are there, or were removed since."""
        records = rows.records
        words = np.ascontiguousarray(records["_key"])
        wanted = ~is_removed(records) & ~self._removed.has(words)
        if not wanted.any():
            return []
        keys, records = self._put(RecordBlock(records[wanted], rows.heap))
        self.brought += len(records)
        self._count(np.ascontiguousarray(records["_hash"]), epochs_of(records), -1)
        return keys

    def _count(self, hashes: np.ndarray, epochs: np.ndarray, by: int) -> None:
        """Rows are on disk alone, or (by=-1) are not any more.

        Args:
            hashes: uint64, of their keys. epochs: int64, which touched them last.
        """
        self.cold_counts += by * self._by_group(hashes)

    def _by_group(self, hashes: np.ndarray) -> np.ndarray:
        """int64 [groups]: how many of these hashes are of each key group."""
        groups = np.searchsorted(self._in_groups, hashes, "right") - 1
        return np.bincount(groups, minlength=self.groups)

    @abstractmethod
    def _put(self, rows: RecordBlock) -> tuple[list[Any], np.ndarray]:
        """Put rows into the table in memory, but for those that are there. Returns (their keys, if
        alarms are to be set for them; their records)."""

    # ------------------------------------------------------------ to disk

    def note_removals(self) -> None:
        """Remember what was removed since this was called last, as far as it is on disk."""
        if not self.cold and not self._writing:
            self._forget_removals()
            return
        hashes, words, epochs = self._new_removals()
        if len(hashes):
            self._note_removed(hashes, words, epochs)

    def _note_removed(self, hashes: np.ndarray, words: np.ndarray, epochs: np.ndarray) -> None:
        order = np.argsort(hashes, kind="stable")
        hashes, words, epochs = hashes[order], words[order], epochs[order]
        known = self.cold.may_have(hashes, words) | self._writing
        self._removed.add(hashes[known], words[known], epochs[known])

    @abstractmethod
    def _new_removals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(hashes, words, epochs) of the rows that were removed since this was called last."""

    def _forget_removals(self) -> None:
        """As `_new_removals`, where removals need not be known."""
        self._new_removals()

    def shrink(self) -> Sequence[Any]:
        """Let rows leave memory if they take more of it than they may, or nearly; `note_removals`
        was called. Returns the keys of those that left, if alarms are set for them.

        Raises:
            StateError: a value does not fit its field, the disk refuses, or a page is damaged.
        """
        self._fold()
        self.rounds.go_on()
        gone, self._gone = self._gone, []
        return gone

    def _fold(self) -> None:
        if not self._skipped:
            self.cold.fold(self._stored, self._to_fold())
        self._writes -= self._writes / SMOOTH

    def share(self) -> float:
        """How much memory the rows take, about, as a part of what they may take."""
        if len(self.hot) <= LEAST_ROWS:
            return 0.0
        return (len(self.hot) * self.row_bytes() + self._removed.nbytes) / max(1, self._most)

    @abstractmethod
    def row_bytes(self) -> float:
        """How many bytes of memory a row takes, about."""

    def _to_fold(self) -> int:
        """How many rows on disk are folded after this epoch."""
        crowded = len(self.cold.segments) // (SEGMENTS_MOST + 1)
        if crowded > 1:
            return ALL
        least = max(1, FOLD_EACH_BYTES // self.cold.row_bytes)
        return max(least, int(FOLD_TIMES * self._writes)) << crowded

    @abstractmethod
    def epochs(self, most: int) -> np.ndarray:
        """int64: which epochs touched rows in memory last; of about `most` of them, or of all."""

    # ------------------------------------------------------------ called by a round

    @abstractmethod
    def candidates(self, upto: int, *, clean: bool) -> Finding:
        """The rows that were touched last by an epoch; those that are on disk as they are only if
        `clean`."""

    @contextmanager
    def writing(self) -> Iterator[RecordBlock]:
        """While records are written: what says which keys were removed by now."""
        with self._removed.writing(self.cold.dtype) as removed:
            self._writing = True
            yield removed
        self._writing = False

    def wrote(self, rows: int) -> None:
        """So many rows were written."""
        self._writes += rows / SMOOTH

    def written(self, upto: int, *, leave: bool) -> None:
        """The rows that were touched last by an epoch are on disk: those of the round, if they
        leave memory now, otherwise all."""
        if leave:
            self.newest = max(self.newest, upto)

    def left(self, hashes: np.ndarray, epochs: np.ndarray) -> None:
        """Rows have left memory. hashes: uint64, of their keys. epochs: int64, by which they were
        touched last."""
        self._count(hashes, epochs, 1)

    # ------------------------------------------------------------ checkpoints

    def capture(self, wanted: CheckpointRequest, upto: int, *, named: bool = False) -> PendingRows:
        from raystream.state.tiers.tiered_rows import TieredRows

        hot = self.hot.capture(wanted, upto)
        segments = [s for s in self.cold.segments if not wanted.base or s.newest > wanted.base]
        if not segments:
            return hot
        hidden = None if wanted.base else self._removed.words()  # a delta says what is removed
        return TieredRows(self, hot, segments, wanted.base, hidden)

    @abstractmethod
    def batch(self, rows: RecordBlock) -> Any:
        """Records of rows as the Arrow batch of an image, in no particular order."""

    def check(self, since: int) -> None:
        self.hot.check(since)

    def settle(self, checkpoint: int) -> None:
        self.note_removals()
        self.hot.settle(checkpoint)
        self._settled()
        self._stored = max(self._stored, checkpoint)

    def _settled(self) -> None:
        """The table in memory has forgotten removals."""

    def count_by_group(self) -> np.ndarray:
        counts: np.ndarray = self.hot.count_by_group() + self.cold_counts
        return counts

    # ------------------------------------------------------------ restore

    def apply(self, image: Image) -> None:
        if self.cold:
            for batch in (image.gone, image.rows):
                self._bring_batch(batch)
        self.hot.apply(image)
        self._stored = self.epoch = max(self._stored, image.header.checkpoint)
        self.note_removals()
        self._fold()
        self.rounds.go_on(at_once=True)  # more images may be of any epoch
        self._gone = []

    @abstractmethod
    def _bring_batch(self, batch: Any) -> None:
        """Bring the rows whose keys are in a batch of an image."""
