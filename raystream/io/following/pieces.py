"""Pieces: what is recorded of a file that came, and the operator that makes rows of it.

A piece is a file and two positions of its format. It also has the greatest value of each field that
may be event time, so the watermark is that of the rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from raystream.api.batch import Batch
from raystream.errors import InputError
from raystream.io.files.bad_lines import may_be_time
from raystream.io.following.looking import Seen, seen
from raystream.io.made_types import MadeTypes
from raystream.schema.columns import concat, empty
from raystream.schema.records import record_hints, record_schema
from raystream.schema.types import Split

HELD = 64
"""How many batches are held that were read here and have not been asked for."""

_held: OrderedDict[tuple[str, str, int], list[Any]] = OrderedDict()
"""By source, file and position a batch, and how many operators will ask for it."""
_going_on: dict[str, tuple[str, int, Iterator[ReadPart]]] = {}
"""By source where its file was read up to when it was read again, and the parts from there on. A
file that was read to its end is not in it: its reader would stay open."""

FILE, SIZE, CHANGED = "raystream_file", "raystream_size", "raystream_changed"
BEGIN, END, ROWS = "raystream_begin", "raystream_end", "raystream_rows"


def full(batches: Iterator[tuple[int, Batch[Any]]], begin: int) -> Iterator[ReadPart]:
    """Batches that have rows, each with the positions from and up to which it was read."""
    for end, batch in batches:
        if len(batch):
            yield ReadPart(begin, end, batch)
            begin = end


class ReadPart(NamedTuple):
    """What was read of a file."""

    begin: int
    end: int
    batch: Batch[Any]


def piece(record: type, name: str, found: Seen, part: ReadPart) -> Batch[Any]:
    """What is recorded of a part of a file.

    Args:
        record: as its user declared it.
    """
    columns: dict[str, Any] = {}
    for f in record_schema(record).fields:
        if may_be_time(f):
            at = int(np.argmax(part.batch._columns.column(f.name)))
            columns[f.name] = part.batch[f.name][at : at + 1]
    columns |= {FILE: [name], SIZE: [found.size], CHANGED: [found.changed]}
    columns |= {BEGIN: [part.begin], END: [part.end], ROWS: [len(part.batch)]}
    return Batch(piece_of(record), columns)


def mark(record: type, part: ReadPart) -> Batch[Any]:
    """A piece of no file, to record something beside it; it moves no watermark."""
    return piece(record, "", Seen(0, 0), part)


def hold(source: str, name: str, part: ReadPart, operators: int) -> None:
    """Keep what was read here until it is asked for."""
    _held[source, name, part.begin] = [part.batch, operators]
    while len(_held) > HELD:
        _held.popitem(last=False)


@dataclass(frozen=True)
class ReadPieces:
    """Makes rows of pieces.

    Args:
        files: the source whose files they are. source: names it within a process.
        record: of the rows.
    """

    files: Any
    source: str

    def process(self, batch: Batch[Any]) -> Batch[Any]:
        pieces = [(n, each) for n, each in enumerate(batch.records()) if getattr(each, FILE)]
        parts = [self._rows(each) for _, each in pieces]
        columns = concat([empty(record_schema(self.files.record)), *(p._columns for p in parts)])
        at = np.array([n for n, _ in pieces], np.int64)
        return Batch._of(columns, np.repeat(at, [len(p) for p in parts]))

    def _rows(self, piece: Any) -> Batch[Any]:
        name, begin = getattr(piece, FILE), getattr(piece, BEGIN)
        held = _held.get((self.source, name, begin))
        if held is not None:
            held[1] -= 1
            if held[1] <= 0:
                _held.pop((self.source, name, begin), None)
            return held[0]
        return self._again(piece, name, begin)

    def _again(self, piece: Any, name: str, begin: int) -> Batch[Any]:
        """Read a part of a file again: the file may not have changed."""
        if seen(name) != Seen(getattr(piece, SIZE), getattr(piece, CHANGED)):
            raise changed(name)
        at, position, parts = _going_on.pop(self.source, ("", 0, iter(())))
        if (at, position) != (name, begin):
            parts = full(self.files.read(Split(name), begin), begin)
        part = next(parts, None)
        if part is None or (part.end, len(part.batch)) != (
            getattr(piece, END),
            getattr(piece, ROWS),
        ):
            raise changed(name)
        after = next(parts, None)
        if after is not None:
            _going_on[self.source] = (name, part.end, chain((after,), parts))
        return part.batch


@dataclass(frozen=True)
class ReadThen:
    """Makes rows of pieces, and hands them to another operator."""

    pieces: ReadPieces
    then: Any

    def process(self, batch: Batch[Any]) -> Batch[Any]:
        rows = self.pieces.process(batch)
        found = self.then.process(rows)
        assert rows._origin is not None
        return Batch._of(found._columns, rows._origin[found._origin])


def changed(name: str) -> InputError:
    """What is raised for a file that is not as it was."""
    return InputError(
        f"{name} is gone, or has changed since it was read first.",
        hint="Files that are followed are written once, and stay until a checkpoint has passed. If"
        " they are written slowly, follow=rs.io.Follow(settled=...) waits longer.",
    )


# ---------------------------------------------------------------- the type of pieces


@cache
def piece_of(record: type) -> type:
    """The type of pieces: the fields of a record that may be event time, and where the piece is."""
    hints = record_hints(record)
    fields = [(f.name, hints[f.name]) for f in record_schema(record).fields if may_be_time(f)]
    fields += [(FILE, str), *((name, int) for name in (SIZE, CHANGED, BEGIN, END, ROWS))]
    return _TYPES.new(record, fields)


_TYPES = MadeTypes(__name__, "Piece ", piece_of)


def __getattr__(name: str) -> Any:
    """A type of `piece_of`, by its name."""
    return _TYPES.find(name)
