"""The input of the comparison: made once from a seed, and read by everybody.

W1 is one file of int32 keys. W2 is one text file of lines of 140 bytes: twenty words of six
letters, each drawn from a vocabulary of 10,000 by Zipf's law (the r-th word as often as 1/r). Line
i belongs to second i // LINES_PER_SECOND of event time, so windows of 30 s hold 6 million words.

Who cannot read these by position finds the same records as Parquet, a file for each block of rows,
or as CSV.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

WORDS_PER_LINE = 20
LETTERS = 6
LINE_BYTES = WORDS_PER_LINE * (LETTERS + 1)
"""With the space behind each word; behind the last one it is a newline."""
LINES_PER_SECOND = 10_000
WINDOW_SECONDS = 30
VOCABULARY = 10_000
BLOCK = 100_000
"""Rows that are made at once, and in a Parquet file."""
MASK = 2**64 - 1

Answers = dict[str, int]
Columns = Callable[[int, int], dict[str, Any]]
"""The columns of n rows from `at` on."""


@dataclass(frozen=True)
class Keys:
    """W1: `rows` uniform keys of `distinct`."""

    folder: Path
    rows: int
    distinct: int = 100_000
    seed: int = 1

    @property
    def path(self) -> Path:
        """int32 keys, little endian."""
        return self.folder / f"keys-{self.rows}-{self.distinct}-{self.seed}.i32"

    def make(self) -> None:
        """Write what is not there yet."""

        def block(at: int, n: int) -> bytes:
            rng = np.random.Generator(np.random.Philox(key=[self.seed, at]))
            return rng.integers(0, self.distinct, n, np.int32).astype("<i4").tobytes()

        _write(self.path, (block(at, n) for at, n in _blocks(self.rows)))

    @cached_property
    def keys(self) -> np.ndarray:
        """int32 [rows], mapped."""
        return np.memmap(self.path, "<i4", "r")

    def parts(self) -> Path:
        """A folder of Parquet files with the column `key`, in order of name and of time."""
        return _parts(self.path, self._columns, self.rows)

    def csv(self) -> Path:
        """A CSV file with the column `key`."""
        return _csv(self.path, self._columns, self.rows)

    def _columns(self, at: int, n: int) -> dict[str, Any]:
        return {"key": self.keys[at : at + n]}

    def updates(self, ends: Iterable[int]) -> Answers:
        """What all answers add up to, when one is given for each key at each of these ends that
        came since the last; `range(1, rows + 1)` would be an answer for each record.

        Returns rows: answers; sum_n: of their counts; checksum: of count times key, mod 2**64.
        """
        count = np.zeros(self.distinct, np.int64)
        names = np.arange(self.distinct)
        rows = sum_n = checksum = at = 0
        for end in ends:
            new = np.bincount(self.keys[at:end], minlength=self.distinct)
            count += new
            told = np.where(new > 0, count, 0)
            rows += int((new > 0).sum())
            sum_n += int(told.sum())
            checksum += int((told * names).sum())
            at = end
        return {"rows": rows, "sum_n": sum_n, "checksum": checksum & MASK}

    def per_record(self) -> Answers:
        """As `updates`, of an answer for each record: 1, 2, ... of each key."""
        count = np.bincount(self.keys, minlength=self.distinct).astype(np.int64)
        sums = count * (count + 1) // 2
        checksum = int((sums * np.arange(self.distinct)).sum()) & MASK
        return {"rows": self.rows, "sum_n": int(sums.sum()), "checksum": checksum}

    def totals(self) -> Answers:
        """As `updates`, of the last answer for each key."""
        return self.updates([self.rows])


@dataclass(frozen=True)
class Lines:
    """W2: `rows` lines."""

    folder: Path
    rows: int
    seed: int = 1

    @property
    def path(self) -> Path:
        """Lines of LINE_BYTES bytes."""
        return self.folder / f"lines-{self.rows}-{self.seed}.txt"

    @property
    def words(self) -> int:
        return self.rows * WORDS_PER_LINE

    @cached_property
    def vocabulary(self) -> np.ndarray:
        """uint8 [VOCABULARY, LETTERS]: different words."""
        rng = np.random.Generator(np.random.Philox(key=[self.seed, 2**63]))
        numbers = rng.choice(26**LETTERS, VOCABULARY, replace=False)
        digits = numbers[:, None] // 26 ** np.arange(LETTERS) % 26
        return (digits + ord("a")).astype(np.uint8)

    def ranks(self, at: int, n: int) -> np.ndarray:
        """int [n, WORDS_PER_LINE]: the words of the n lines from `at` on, a block at most."""
        rng = np.random.Generator(np.random.Philox(key=[self.seed, at]))
        odds = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
        return np.searchsorted(odds, rng.random((n, WORDS_PER_LINE)) * odds[-1], side="right")

    def make(self) -> None:
        """Write what is not there yet, and beside it what the answers add up to."""
        counts = np.zeros((self.windows, VOCABULARY), np.int64)

        def block(at: int, n: int) -> bytes:
            ranks = self.ranks(at, n)
            window = seconds_of(at, n) // WINDOW_SECONDS
            np.add.at(counts, (np.repeat(window, WORDS_PER_LINE), ranks.ravel()), 1)
            text = np.full((n, WORDS_PER_LINE, LETTERS + 1), ord(" "), np.uint8)
            text[:, :, :LETTERS] = self.vocabulary[ranks]
            text[:, -1, LETTERS] = ord("\n")
            return text.tobytes()

        if not self._answers.exists():
            self.path.unlink(missing_ok=True)
        _write(self.path, (block(at, n) for at, n in _blocks(self.rows)))
        if not self._answers.exists():
            names = [w.tobytes().decode() for w in self.vocabulary]
            found = (
                (names[v], int(w) * WINDOW_SECONDS, int(counts[w, v]))
                for w, v in np.argwhere(counts)
            )
            self._answers.write_text(json.dumps(word_answers(found)))

    @property
    def windows(self) -> int:
        return -(-self.rows // (LINES_PER_SECOND * WINDOW_SECONDS))

    @property
    def _answers(self) -> Path:
        return self.path.with_suffix(".json")

    def per_window(self) -> Answers:
        """What the answers add up to; see `word_answers`."""
        return dict(json.loads(self._answers.read_text()))

    def text(self, at: int, n: int) -> pa.Array:
        """n lines from `at` on, without their newlines, as Arrow text."""
        raw = np.memmap(self.path, np.uint8, "r").reshape(-1, LINE_BYTES)
        width = LINE_BYTES - 1
        bare = np.ascontiguousarray(raw[at : at + n, :width])
        offsets = np.arange(0, (len(bare) + 1) * width, width, dtype=np.int32)
        return pa.StringArray.from_buffers(len(bare), pa.py_buffer(offsets), pa.py_buffer(bare))

    def parts(self) -> Path:
        """A folder of Parquet files with the columns `time`, seconds, and `text`. Behind the last
        one is an empty line an hour later, for those who wait for what comes after a window."""
        last = int(seconds_of(self.rows - 1, 1)[0])
        end = {"time": [last + 3600], "text": [""]}
        return _parts(self.path, self._columns, self.rows, end)

    def csv(self) -> Path:
        """A CSV file with the columns `time`, seconds, and `text`."""
        return _csv(self.path, self._columns, self.rows)

    def _columns(self, at: int, n: int) -> dict[str, Any]:
        return {"time": seconds_of(at, n), "text": self.text(at, n)}


def seconds_of(at: int, n: int) -> np.ndarray:
    """int64 [n]: the event time of the lines from `at` on."""
    return np.arange(at, at + n) // LINES_PER_SECOND


def word_answers(found: Iterable[tuple[str, int, int]]) -> Answers:
    """What counts of (word, start of the window, n) add up to.

    The checksum is the sum of CRC-32 of the word, times the start plus one, times n, mod 2**64.
    """
    rows = sum_n = checksum = 0
    for word, start, n in found:
        rows += 1
        sum_n += n
        checksum += crc32(word.encode()) * (start + 1) * n
    return {"rows": rows, "sum_n": sum_n, "checksum": checksum & MASK}


def _blocks(rows: int) -> list[tuple[int, int]]:
    """(first row, rows) of each block."""
    return [(at, min(BLOCK, rows - at)) for at in range(0, rows, BLOCK)]


def _write(path: Path, blocks: Iterable[bytes]) -> None:
    """Write a file whole, or leave it as it was."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        file.writelines(blocks)
    unfinished.rename(path)


def _parts(
    path: Path,
    columns: Columns,
    rows: int,
    end: dict[str, Any] | None = None,
) -> Path:
    """A folder with a Parquet file for each block and the `end`; each is a second older than the
    next, since some read them by age."""
    folder = path.with_suffix("")
    if not folder.exists():
        unfinished = path.with_suffix(".parts")
        unfinished.mkdir(exist_ok=True)
        ends = [] if end is None else [end]
        for i, table in enumerate(chain((columns(*b) for b in _blocks(rows)), ends)):
            file = unfinished / f"{i:06}.parquet"
            pq.write_table(pa.table(table), file)
            os.utime(file, (BLOCK + i, BLOCK + i))
        unfinished.rename(folder)
    return folder


def _csv(path: Path, columns: Columns, rows: int) -> Path:
    file = path.with_suffix(".csv")
    if not file.exists():
        unfinished = path.with_suffix(".csv.part")
        blocks = (pa.table(columns(*block)) for block in _blocks(rows))
        first = next(blocks)
        with csv.CSVWriter(unfinished, first.schema) as writer:
            for table in chain([first], blocks):
                writer.write(table)
        unfinished.rename(file)
    return file
