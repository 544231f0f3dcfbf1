"""The rows of an instance that lie on disk: segments, of which a newer one replaces what older ones
say of a key.

Segments are folded into larger ones, as in a log-structured merge tree (O'Neil and others, Acta
Informatica 1996): one that is not much smaller than the one before it is merged with that. So there
are few of them, and a row is written again a number of times that grows with the logarithm of the
state. Segments with rows that the next checkpoint may ask for are not folded with others, as those
need not be looked through for it; and among themselves only when there are many.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from raystream.errors import StateError
from raystream.schema.types import NEVER, KeyRange
from raystream.state.keys import among
from raystream.state.segments.record import is_removed
from raystream.state.segments.segment import HASHES, RecordBlock, Segment, SegmentWriter
from raystream.state.segments.stored_segment import save

RATIO = 2
"""A segment with less than this many times the rows of the newer ones is folded with them."""
UNSTORED_MOST = 8
"""More segments than this are folded, although the next checkpoint may ask for their rows: each
epoch looks into all of them, and how many there would be depends on how soon one is committed."""
DISK_MOST = 0.9
"""When this share of the disk is in use, no more rows are written there: others need some of it."""
FOLD_BYTES = 2 << 20
"""Bytes of rows that are folded at a time, about."""


class FoundRecords(NamedTuple):
    """Records of keys that were looked for, all from one segment."""

    which: np.ndarray
    """int64: which of the keys."""
    rows: RecordBlock
    """Their records, also those that say that a row was removed."""


Probe = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From hashes and the words of keys to what tells apart keys of one hash: uint64."""


def whole_hash(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The probe where the hash is of all of the key, or where rows are found by it alone."""
    return hashes


def with_last_word(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The probe where rows of one hash differ in the last word of the key: the window's start."""
    with np.errstate(over="ignore"):
        probes: np.ndarray = hashes ^ (words[:, -1].view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return probes


class ColdRows:
    """The segments of an instance.

    Args:
        folder: where the files lie. owner: whose rows these are, for errors.
        dtype: of the records.
        probe: what the filters tell keys apart by.
    """

    def __init__(
        self, folder: Path, owner: str, dtype: np.dtype[Any], probe: Probe = whole_hash
    ) -> None:
        self.folder, self.owner, self.dtype = folder, owner, dtype
        self._probe = probe
        self.segments: list[Segment] = []
        """The oldest first."""
        self.name: Callable[[], str] | None = None
        """Names a new file that a successor may open; None: files have no names."""
        self._folding: Iterator[int] | None = None
        self._making: set[str] = set()
        """The names of files that are written just now."""
        self.full = 0.0
        """Which share of the disk was in use when rows were added last."""
        self.folded = 0
        """How many rows were written again."""
        self._reads = 0

    def __bool__(self) -> bool:
        return bool(self.segments)

    @property
    def names(self) -> set[str]:
        """Of the files that are in use: those of segments, and those that are being made."""
        return {*(s.name for s in self.segments), *self._making}

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return sum(s.nbytes for s in [*self.segments])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on disk, on average."""
        rows = sum(map(len, self.segments))
        return max(self.dtype.itemsize, self.nbytes // rows if rows else 0)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory."""
        return sum(s.memory_bytes for s in [*self.segments])

    @property
    def reads(self) -> int:
        """How many pages had to be read from disk so far."""
        return self._reads + sum(s.reads for s in [*self.segments])

    def adding(self, parts: Iterable[RecordBlock], most: int, low: int, high: int) -> Iterator[int]:
        """Write rows, which replace what is there of their keys, in order of their hashes. After
        each part it says how many rows that had; after the last one they can be found.

        Args:
            most: how many there are at most. low, high: their least and greatest hash.

        Raises:
            StateError: the disk refuses to take them, or has little room left.
        """
        self._look_at_disk()
        writer = self._writer(most, low, high)
        for rows in parts:
            self._append(writer, packed(rows))
            yield len(rows.records)
        if (segment := self._closed(writer)) is not None:
            self.segments.append(segment)

    def _look_at_disk(self) -> None:
        try:
            _, used, free = shutil.disk_usage(self.folder)
        except OSError:
            return  # the first file says what is wrong
        self.full = used / max(1, used + free)
        if self.full >= DISK_MOST:
            raise StateError(
                f"{self.owner}: the disk of {self.folder} is {self.full:.0%} full, and"
                f" {free / 1e9:.1f} GB are left; the operator's rows take {self.nbytes / 1e9:.1f}"
                " GB of it",
                hint="Give the node more disk, name another folder (state_folder=,"
                " --state-folder), let more instances on more nodes share the keys, or have the"
                " operator remove rows that are not needed any more (`rs.forget`).",
            )

    def _writer(self, rows: int, low: int, high: int) -> SegmentWriter:
        name = "" if self.name is None else self.name()
        self._making.add(name)
        return SegmentWriter(self.folder, self.owner, self.dtype, rows, low, high, name)

    def _closed(self, writer: SegmentWriter) -> Segment | None:
        segment = writer.close()
        if segment is not None and segment.name:
            save(segment, self.folder)
        self._making.discard(writer.name)
        return segment

    def _append(self, writer: SegmentWriter, rows: RecordBlock) -> None:
        hashes = np.ascontiguousarray(rows.records["_hash"])
        writer.append(rows, self._probe(hashes, np.ascontiguousarray(rows.records["_key"])))

    # ------------------------------------------------------------ reading

    def may_have(self, hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
        """bool [n]: which keys may have a record. The hashes are ascending."""
        probes, found = self._probe(hashes, words), np.zeros(len(hashes), bool)
        for segment in self.segments:
            found |= segment.keys.ask(hashes, probes)
        return found

    def find(self, hashes: np.ndarray, words: np.ndarray, *, newer: int = 0) -> list[FoundRecords]:
        """The newest record of each key, as far as there is one.

        Args:
            hashes: uint64 [n], ascending. words: int64 [n, words].
            newer: how many of the oldest segments are left out.
        """
        found = []
        left, probes = np.arange(len(hashes)), self._probe(hashes, words)
        for segment in reversed(self.segments[newer:]):
            if not len(left):
                break
            asked = left[segment.keys.ask(hashes[left], probes[left])]
            if not len(asked):
                continue
            which, at = segment.find(hashes[asked])
            same = (segment.keys_at(at) == words[asked[which]]).all(axis=1)
            if same.any():
                mine = asked[which[same]]
                found.append(FoundRecords(mine, segment.rows(at[same])))
                left = left[~np.isin(left, mine, assume_unique=True)]
        return found

    def find_all(self, hashes: np.ndarray) -> list[RecordBlock]:
        """The rows of all keys that have one of these hashes, which are ascending and distinct:
        the newest record of each key, without those that were removed."""
        found: list[RecordBlock] = []
        seen = np.zeros((0, self.dtype["_key"].shape[0]), np.int64)
        for segment in reversed(self.segments):
            asked = hashes[segment.keys.ask(hashes, hashes)]
            if len(asked):
                _, at = segment.find(asked)
                words = segment.keys_at(at)
                new = ~among(words, seen)
                rows = segment.rows(at[new])
                seen = np.concatenate((seen, words[new]))
                live = ~is_removed(rows.records)
                found.append(RecordBlock(rows.records[live], rows.heap))
        return found

    def due(self, upto: int, low: int = 0, high: int = HASHES) -> list[RecordBlock]:
        """The rows that are due by a time and whose hashes are from `low` up to `high`.
        Until `passed` they are found again, and later too, unless other records replace them."""
        found = []
        for i, segment in enumerate(self.segments):
            rows = segment.due(upto, low, high)
            if not len(rows.records):
                continue
            hashes, words = (np.ascontiguousarray(rows.records[n]) for n in ("_hash", "_key"))
            replaced = np.zeros(len(hashes), bool)
            for newer in self.find(hashes, words, newer=i + 1):
                replaced[newer.which] = True
            found.append(RecordBlock(rows.records[~replaced], rows.heap))
        return found

    def passed(self, upto: int) -> None:
        """All rows that are due by a time were brought, and have changed."""
        for segment in self.segments:
            segment.passed(upto)

    def due_rows(self, upto: int) -> int:
        """How many rows are due by a time, at most."""
        return sum(s.due_rows(upto) for s in self.segments)

    @property
    def next_due(self) -> int:
        """No row is due before."""
        return min((s.next_due for s in self.segments), default=NEVER)

    # ------------------------------------------------------------ folding

    def fold(self, stored: int, rows: int) -> int:
        """Fold about `rows` rows, if segments are due for it, or go on with what was begun.
        Returns how many were folded.

        Args:
            stored: no delta is asked for against an older checkpoint.

        Raises:
            StateError: the disk refuses to take it, or a page is damaged.
        """
        done = 0
        while done < rows:
            if self._folding is None:
                first, last = self._due_for_fold(stored)
                if last - first < 2:
                    break
                self._folding = self._fold(first, last)
            many = next(self._folding, None)
            if many is None:
                self._folding = None
            done += many or 0
        self.folded += done
        return done

    def _due_for_fold(self, stored: int) -> tuple[int, int]:
        older, every = 0, len(self.segments)
        while older < every and self.segments[older].newest <= stored:
            older += 1
        first, last = self._alike(0, older)
        if last - first < 2 and every - older > UNSTORED_MOST:
            return self._alike(older, every)
        return first, last

    def _alike(self, least: int, last: int) -> tuple[int, int]:
        """The segments that are folded, of those from `least` up to `last`: the last of them, and
        those before it that are not much larger than what comes after them."""
        first, newer = last, 0
        while first > least and (first == last or len(self.segments[first - 1]) < RATIO * newer):
            first -= 1
            newer += len(self.segments[first])
        return first, last

    def _fold(self, first: int, last: int) -> Iterator[int]:
        """Fold these segments. After each stretch it says how many rows that had."""
        segments = self.segments[first:last]
        low, high = min(s.low for s in segments), max(s.high for s in segments)
        writer = self._writer(sum(map(len, segments)), low, high)
        at_a_time = max(1, FOLD_BYTES // self.row_bytes)
        for begin, end in even_stretches(sum(map(len, segments)), at_a_time, low, high + 1):
            inside = [(max(begin, s.low), min(end, s.high + 1)) for s in segments]
            rows = newest_of([s.between(*ends) for s, ends in zip(segments, inside, strict=True)])
            if first == 0:  # nothing older is there that a removal could hide
                rows = RecordBlock(rows.records[~is_removed(rows.records)], rows.heap)
            self._append(writer, packed(rows))
            yield len(rows.records)
        folded = self._closed(writer)
        self._reads += sum(s.reads for s in segments)
        self.segments[first:last] = [] if folded is None else [folded]


def even_stretches(rows: int, at_a_time: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Ranges of hashes that tile those from one up to another, each with about `at_a_time` rows."""
    parts = max(1, -(-rows // at_a_time))
    for i in range(parts):
        yield low + (high - low) * i // parts, low + (high - low) * (i + 1) // parts


def place_of(hashes: np.ndarray, bound: int) -> int:
    """How many hashes, which are ascending, are below a bound."""
    if bound >= HASHES:
        return len(hashes)
    return int(np.searchsorted(hashes, np.uint64(bound), "left"))


def range_of(keys: KeyRange, groups: int) -> tuple[int, int]:
    """The hashes of a range of key groups: from the first, up to the second."""
    low, high = (-(-(bound << 32) // groups) << 32 for bound in keys)
    return low, high


def newest_of(parts: Sequence[RecordBlock]) -> RecordBlock:
    """The newest record of each key, in order of hashes. A later part replaces an earlier one."""
    full = [p for p in parts if len(p.records)]
    if len(full) <= 1:
        return full[0] if full else parts[0]
    return in_order(full)


def in_order(parts: Sequence[RecordBlock]) -> RecordBlock:
    """The same of parts that are in no particular order, and may have several records of a key."""
    joined = joined_rows(parts)
    records = joined.records
    order = np.argsort(records["_hash"], kind="stable")
    hashes = records["_hash"][order]
    alike = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(alike):
        return RecordBlock(records[order], joined.heap)
    again = np.unique(np.concatenate((alike, alike + 1)))
    here = order[again]
    keys = records["_key"][here]
    by_key = np.lexsort((here, *keys.T[::-1], records["_hash"][here]))
    ordered, words = records["_hash"][here][by_key], keys[by_key]
    last = np.ones(len(by_key), bool)
    last[:-1] = (ordered[1:] != ordered[:-1]) | (words[1:] != words[:-1]).any(axis=1)
    kept = np.ones(len(order), bool)
    kept[again] = False
    kept[again[by_key[last]]] = True
    return RecordBlock(records[order[kept]], joined.heap)


def joined_rows(parts: Sequence[RecordBlock]) -> RecordBlock:
    """The rows of several parts, with one heap."""
    if "_at" not in (parts[0].records.dtype.names or ()):
        return RecordBlock(np.concatenate([p.records for p in parts]))
    heaps, moved, at = [], [], 0
    for part in map(packed, parts):
        records = part.records.copy()
        records["_at"] += np.uint64(at)
        moved.append(records)
        heaps.append(part.heap)
        at += len(part.heap)
    return RecordBlock(np.concatenate(moved), b"".join(heaps))


def packed(rows: RecordBlock) -> RecordBlock:
    """The same rows with a heap that has what they point to, in their order, and nothing else."""
    if "_at" not in (rows.records.dtype.names or ()):
        return rows
    records = rows.records.copy()
    sizes = records["_size"].astype(np.int64)
    heap = b"".join(rows.payloads())
    records["_at"] = np.cumsum(sizes) - sizes
    return RecordBlock(records, heap)
