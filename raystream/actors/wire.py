"""What travels between instances: tickets, and pieces as record batches with a msgpack header.

A message holds the headers of consecutive epochs, of which only the last may have rows: runs of
empty epochs travel as one message. A piece larger than a message travels in numbered chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgpack
import numpy as np

from raystream.dataflow.pieces import Header, Piece
from raystream.errors import JobError
from raystream.schema.columns import Columns, concat, empty, from_arrow, to_arrow
from raystream.schema.records import RecordSchema
from raystream.schema.types import KeyRange
from raystream.state.log import Entry

MESSAGE_BYTES = 8 << 20
"""A piece is cut into chunks of about this size."""
MESSAGE_EPOCHS = 64
"""So many empty epochs travel as one message at most."""

_CUT, _ENDED = 1, 2


class Ticket(NamedTuple):
    """A subscription of an instance: key groups `keys` of this edge from epoch `first` on."""

    token: str
    instance: str
    edge: int
    keys: KeyRange
    first: int

    def pack(self) -> bytes:
        return msgpack.packb([self.token, self.instance, self.edge, *self.keys, self.first])

    @staticmethod
    def unpack(data: bytes) -> Ticket:
        """The ticket that `pack` made.

        Raises:
            ValueError: it is none.
        """
        try:
            token, instance, *numbers = msgpack.unpackb(data)
            edge, lo, hi, first = numbers
        except (ValueError, TypeError):
            raise ValueError("not a ticket") from None
        names = type(token) is str and type(instance) is str
        if not names or any(type(n) is not int for n in numbers):
            raise ValueError("not a ticket")
        return Ticket(token, instance, edge, KeyRange(lo, hi), first)


class Message(NamedTuple):
    """One Flight message: a record batch (None: use an empty one) and its metadata."""

    rows: Columns | None
    metadata: bytes


def messages(entries: Iterable[Entry[Header]], keys: KeyRange) -> Iterator[Message]:
    """The messages that carry these entries' parts for a consumer range."""
    headers: list[Header] = []
    for entry in entries:
        headers.append(entry.header)
        rows, offsets = entry.part(keys)
        if not len(rows):
            if len(headers) == MESSAGE_EPOCHS:
                yield Message(None, _pack(headers, b"", 0, 1))
                headers = []
            continue
        yield from _chunks(headers, rows, offsets)
        headers = []
    if headers:
        yield Message(None, _pack(headers, b"", 0, 1))


def _chunks(headers: list[Header], rows: Columns, offsets: np.ndarray) -> Iterator[Message]:
    counts = (offsets[1:] - offsets[:-1]).astype(np.uint32).tobytes()
    chunks = max(1, -(-rows.nbytes() // MESSAGE_BYTES))
    size = -(-len(rows) // chunks)
    chunks = -(-len(rows) // size)
    for i in range(chunks):
        part = rows.slice(i * size, min((i + 1) * size, len(rows)))
        yield Message(
            part,
            _pack(
                headers if i == chunks - 1 else [], counts if i == chunks - 1 else b"", i, chunks
            ),
        )


def _pack(headers: list[Header], counts: bytes, chunk: int, chunks: int) -> bytes:
    keys = headers[0].keys if headers else KeyRange(0, 0)
    packed = [[h.epoch, h.watermark, _CUT * h.cut | _ENDED * h.ended] for h in headers]
    return msgpack.packb([keys.lo, keys.hi, packed, counts, chunk, chunks])


def _unpack_counts(data: bytes, groups: int) -> np.ndarray:
    offsets = np.zeros(groups + 1, np.int64)
    np.frombuffer(data, np.uint32).cumsum(out=offsets[1:])
    return offsets


class Decoder:
    """Puts the messages of one subscription together again."""

    def __init__(self, schema: RecordSchema, keys: KeyRange) -> None:
        self.schema = schema
        self.keys = keys
        self._nothing = empty(schema)
        self._no_offsets = np.zeros(len(keys) + 1, np.int64)
        self._parts: list[Columns] = []

    def pieces(self, batch: Any, metadata: bytes) -> Iterator[Piece]:
        """The pieces that a message completes.

        Raises:
            JobError: the chunks of a piece do not follow each other.
        """
        lo, hi, headers, counts, chunk, chunks = msgpack.unpackb(metadata)
        if chunk != len(self._parts):
            raise JobError(f"chunk {chunk} of a piece came after {len(self._parts)}")
        if batch.num_rows:
            self._parts.append(from_arrow(self.schema, batch))
        if chunk < chunks - 1:
            return
        rows = concat(self._parts) if self._parts else self._nothing
        self._parts = []
        for i, (epoch, watermark, flags) in enumerate(headers):
            header = Header(
                epoch, KeyRange(lo, hi), watermark, bool(flags & _CUT), bool(flags & _ENDED)
            )
            if i == len(headers) - 1 and len(rows):
                yield Piece(header, rows, _unpack_counts(counts, len(self.keys)))
            else:
                yield Piece(header, self._nothing, self._no_offsets)


def to_batch(rows: Columns | None, none: Any) -> Any:
    """The record batch of a message; `none` is an empty one of the edge's schema."""
    return none if rows is None else to_arrow(rows)
