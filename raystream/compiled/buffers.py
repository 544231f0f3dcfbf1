"""Where emitted records go: one block of memory per output type and epoch, cut into columns.

What is handed out is never written again, so every epoch gets new blocks; their size is guessed
from the epochs before. A block that turns out too small is copied into a larger one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raystream.compiled.driver import DriverShape, control_dtype, stored
from raystream.schema.blocks import Emitted, Output, sizes
from raystream.schema.columns import Columns, concat, physical, read_only
from raystream.schema.records import RecordSchema

_ALIGN = 64
_LEAST = 64
_LOOSE = 1 << 16
"""Blocks of more bytes than this are copied when less than half of them is used."""
_ROOM = 64
"""Room is a multiple of this many rows, so that epochs of about one size have the same places."""
_SHARED = _LOOSE // 8
"""Blocks of up to this many bytes are parts of a chunk of _LOOSE bytes. A kept block keeps no more
memory than a loose block."""


class BlockLayout:
    """The columns of one output type in a block, and how many rows a record has emitted of late."""

    def __init__(self, shape: DriverShape, t: int, schema: RecordSchema) -> None:
        self.t = t
        self.schema = schema
        names, dtypes = zip(*stored(shape, schema), strict=True)
        words = list(control_dtype(shape).names or ())  # all of them are int64
        first = words.index(names[0])
        self.addresses = slice(first, first + len(names))
        """Where `control` has the addresses of the columns; likewise what follows."""
        self.n, self.cap, self.need = (words.index(f"{name}{t}") for name in ("n", "cap", "need"))
        self.dtypes = [np.dtype(d) for d in dtypes]
        self.width = sum(d.itemsize for d in self.dtypes)
        self.plain = len(physical(schema))
        self.nothing = [read_only(np.zeros(0, d)) for d in self.dtypes]
        self.ranked, self.origins = shape.ranked, shape.origins
        self.rate = 1.0
        self._places = Places(0, [], np.zeros(0, np.int64), 0)
        self._chunk: _Memory | None = None

    def guess(self, records: int) -> int:
        """How many rows this number of records may emit."""
        return int(records * self.rate * 1.125) + _LEAST

    def learn(self, records: int, emitted: int) -> None:
        """Rates rise at once and fall slowly."""
        if records:
            self.rate = max(emitted / records, self.rate * 0.75 + 0.25 * emitted / records)

    def places(self, room: int) -> Places:
        """Where each column begins in a block with room for `room` rows."""
        if self._places.room != room:
            at, begins = 0, []
            for dtype in self.dtypes:
                begins.append(at)
                at += -(-dtype.itemsize * room // _ALIGN) * _ALIGN
            self._places = Places(room, begins, np.array(begins), at)
        return self._places

    def memory(self, size: int) -> tuple[_Memory, int]:
        """Memory for a block of `size` bytes, and where in it the block begins."""
        if size > _SHARED:
            return _Memory(size), 0
        chunk = self._chunk
        if chunk is None or chunk.used + size > _LOOSE:
            chunk = self._chunk = _Memory(_LOOSE)
        begin = chunk.used
        chunk.used += size
        return chunk, begin


class Places(NamedTuple):
    """Where the columns of a block begin."""

    room: int
    """For how many rows the block has room."""
    begins: list[int]
    """By column, from the beginning of the block."""
    array: np.ndarray
    """The same, int64."""
    size: int
    """The bytes of the block."""


class _Memory:
    """Bytes that drivers write and everybody else reads.

    written: the bytes; shown: the same, read-only; used: how many of them blocks have.
    """

    def __init__(self, size: int) -> None:
        self.written = np.empty(size, np.uint8)
        self.address = self.written.ctypes.data
        self.shown = self.written.view()
        self.shown.flags.writeable = False
        self.used = 0


class Block:
    """The memory of one output type for one epoch. `words`: what drivers write by (see
    `driver.control_dtype`), as int64."""

    def __init__(self, layout: BlockLayout, words: np.ndarray, room: int) -> None:
        self.layout = layout
        self._words = words
        self._place(room)

    def _place(self, room: int) -> None:
        layout = self.layout
        self.places = layout.places(-(-room // _ROOM) * _ROOM)
        self.memory, self.begin = layout.memory(self.places.size)
        address = self.memory.address + self.begin
        np.add(self.places.array, address, out=self._words[layout.addresses])
        self._words[layout.cap] = self.places.room

    def __len__(self) -> int:
        return int(self._words[self.layout.n])

    def columns(self) -> list[np.ndarray]:
        """What was written, column by column; read-only."""
        return self._columns(self.memory.shown, len(self))

    def _columns(self, memory: np.ndarray, n: int) -> list[np.ndarray]:
        begin = self.begin
        return [
            memory[begin + at : begin + at + n * dtype.itemsize].view(dtype)
            for dtype, at in zip(self.layout.dtypes, self.places.begins, strict=True)
        ]

    def grow(self) -> None:
        """Make room if the driver found none."""
        need = int(self._words[self.layout.need])
        if need > self.places.room:
            n, written = len(self), self.columns()
            self._place(max(need, 2 * self.places.room))
            for new, old in zip(self._columns(self.memory.written, n), written, strict=True):
                new[:] = old

    def emitted(self, offsets: np.ndarray) -> Emitted:
        """What was emitted of this type; `offsets` by key group."""
        layout = self.layout
        if n := len(self):
            columns = self.columns()
            if self.places.size > max(_LOOSE, 2 * n * layout.width):
                columns = [read_only(c.copy()) for c in columns]
        else:
            columns = layout.nothing
        hidden = columns[layout.plain :]
        return Emitted(
            Columns(layout.schema, columns[: layout.plain], n),
            offsets,
            hidden[0] if layout.ranked else None,
            hidden[-1] if layout.origins else None,
        )


def grouped(parts: list[Output]) -> Output:
    """One output of several rounds over the same key groups: a group's rows of the first round come
    first. Numbers of emission become those of that order."""
    full = [p for p in parts if any(len(e.rows) for e in p.emitted)]
    if len(full) < 2:
        return (full or parts)[0]
    totals = np.stack([np.sum([sizes(e.offsets) for e in p.emitted], axis=0) for p in full])
    return Output(
        tuple(_grouped([p.emitted[t] for p in full], totals) for t in range(len(full[0].emitted)))
    )


def _grouped(parts: list[Emitted], totals: np.ndarray) -> Emitted:
    """`totals`: int64 [parts, groups], rows of all types."""
    counts = np.stack([sizes(e.offsets) for e in parts])
    group = np.concatenate([np.repeat(np.arange(counts.shape[1]), c) for c in counts])
    order = np.argsort(group, kind="stable")
    rank = None
    if parts[0].rank is not None:
        shift = _begins(totals.T).T - np.stack([_begins(row) for row in totals])
        rank = np.concatenate(
            [e.rank + np.repeat(s, c) for e, s, c in zip(parts, shift, counts, strict=True)]
        )[order]
    return Emitted(
        concat([e.rows for e in parts]).take(order),
        np.sum([e.offsets for e in parts], axis=0),
        rank,
    )


def _begins(counts: np.ndarray) -> np.ndarray:
    """Where each begins when they stand one after the other, row by row."""
    flat = counts.ravel()
    return (np.cumsum(flat) - flat).reshape(counts.shape)
