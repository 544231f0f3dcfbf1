"""Where emitted records go: one block of memory per output type and epoch, cut into columns.

What is handed out is never written again, so every epoch gets new blocks; their size is guessed
from the epochs before. A block that turns out too small is copied into a larger one.
"""

from __future__ import annotations

import numpy as np

from raystream.compiled.driver import DriverShape, control_dtype, stored
from raystream.schema.blocks import Emitted, Output, sizes
from raystream.schema.columns import Columns, concat, physical
from raystream.schema.records import RecordSchema

_ALIGN = 64
_LEAST = 64
_LOOSE = 1 << 16
"""Blocks of more bytes than this are copied when less than half of them is used."""


class BlockLayout:
    """The columns of one output type in a block, and how many rows a record has emitted of late."""

    def __init__(self, shape: DriverShape, t: int, schema: RecordSchema) -> None:
        self.t = t
        self.schema = schema
        names, dtypes = zip(*stored(shape, schema), strict=True)
        first = (control_dtype(shape).names or ()).index(names[0])
        self.addresses = slice(first, first + len(names))  # of `control`, all of whose are int64
        self.cap = f"cap{t}"
        self.dtypes = [np.dtype(d) for d in dtypes]
        self.width = sum(d.itemsize for d in self.dtypes)
        self.plain = len(physical(schema))
        self.nothing = [np.zeros(0, d) for d in self.dtypes]
        self.ranked, self.origins = shape.ranked, shape.origins
        self.rate = 1.0

    def guess(self, records: int) -> int:
        """How many rows this number of records may emit."""
        return int(records * self.rate * 1.125) + _LEAST

    def learn(self, records: int, emitted: int) -> None:
        """Rates rise at once and fall slowly."""
        if records:
            self.rate = max(emitted / records, self.rate * 0.75 + 0.25 * emitted / records)

    def places(self, room: int) -> tuple[list[int], int]:
        """Where each column begins in a block with room for `room` rows, and the block's size."""
        at, begins = 0, []
        for dtype in self.dtypes:
            begins.append(at)
            at += -(-dtype.itemsize * room // _ALIGN) * _ALIGN
        return begins, at


class Block:
    """The memory of one output type for one epoch. `control`: what drivers write by (see
    `driver.control_dtype`)."""

    def __init__(self, layout: BlockLayout, control: np.ndarray, room: int) -> None:
        self.layout = layout
        self.control = control
        self._place(room)

    def _place(self, room: int) -> None:
        self.begins, size = self.layout.places(room)
        self.memory = np.empty(size, np.uint8)
        address = self.memory.ctypes.data
        at = self.layout.addresses
        self.control.view(np.int64)[at] = [address + begin for begin in self.begins]
        self.control[self.layout.cap] = room

    def __len__(self) -> int:
        return int(self.control[f"n{self.layout.t}"][0])

    def columns(self) -> list[np.ndarray]:
        """What was written, column by column."""
        n = len(self)
        return [
            np.frombuffer(self.memory, dtype, n, begin)
            for dtype, begin in zip(self.layout.dtypes, self.begins, strict=True)
        ]

    def grow(self) -> None:
        """Make room if the driver found none."""
        t = self.layout.t
        room, need = int(self.control[f"cap{t}"][0]), int(self.control[f"need{t}"][0])
        if need > room:
            written = self.columns()
            self._place(max(need, 2 * room))
            for new, old in zip(self.columns(), written, strict=True):
                new[:] = old

    def emitted(self, offsets: np.ndarray) -> Emitted:
        """What was emitted of this type; `offsets` by key group."""
        layout = self.layout
        columns: list[np.ndarray] = []
        if n := len(self):
            columns = self.columns()
            if len(self.memory) > max(_LOOSE, 2 * n * layout.width):
                columns = [c.copy() for c in columns]
        else:
            columns = [*layout.nothing]
        for column in columns:
            column.flags.writeable = False
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
