"""What travels between instances: tickets, and pieces as blocks of columns with a msgpack head.

A message holds the headers of consecutive epochs, of which only the last may have rows: runs of
empty epochs travel as one message, and where the producer took a run in one step, as one header. A
piece larger than a message travels in numbered chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgpack
import numpy as np

from raystream.actors.network.epoch_frame import CHECKPOINT, ENDED, IDLE, EpochDecoder
from raystream.actors.network.frames import EPOCH, PIECES, Frame
from raystream.dataflow.pieces import Header, Piece
from raystream.errors import JobError
from raystream.schema.buffers import blocks_of, columns_in, padded
from raystream.schema.columns import Columns, concat, empty
from raystream.schema.records import RecordSchema
from raystream.schema.types import KeyRange
from raystream.state.log.epoch_log import LogEntry

MESSAGE_BYTES = 8 << 20
"""A piece is cut into chunks of about this size."""
MESSAGE_EPOCHS = 64
"""At most this many empty epochs travel as one message."""

_DAMAGED = (ValueError, TypeError, OverflowError, msgpack.UnpackException)
"""What reading raises when a message is damaged."""


class Ticket(NamedTuple):
    """What a consumer asks for when it subscribes."""

    token: str
    """Proves that the consumer belongs to the job."""
    instance: str
    """The name of the consumer."""
    edge: int
    """The edge that it reads."""
    keys: KeyRange
    """Its range of key groups."""
    first: int
    """The first epoch that it wants."""
    guest: bool = False
    """Whether it is no instance of the job: nobody waits for it, and nothing is kept for it."""

    def pack(self) -> bytes:
        more = [1] if self.guest else []
        return msgpack.packb([self.token, self.instance, self.edge, *self.keys, self.first, *more])

    @staticmethod
    def unpack(data: bytes) -> Ticket:
        """The ticket that `pack` made.

        Raises:
            ValueError: the data is no ticket.
        """
        try:
            token, instance, *numbers = msgpack.unpackb(data)
            edge, lo, hi, first, *more = numbers
        except (ValueError, TypeError):
            raise ValueError("not a ticket") from None
        names = type(token) is str and type(instance) is str
        if not names or any(type(n) is not int for n in numbers) or more not in ([], [1]):
            raise ValueError("not a ticket")
        return Ticket(token, instance, edge, KeyRange(lo, hi), first, bool(more))


class Message(NamedTuple):
    """A frame that is to be sent."""

    head: bytes
    """Its head."""
    body: list[memoryview]
    """The parts of its body, which are sent one after the other."""


def messages(entries: Iterable[LogEntry[Header]], keys: KeyRange) -> Iterator[Message]:
    """The messages that carry these entries' parts for a consumer range."""
    headers: list[Header] = []
    for entry in entries:
        headers.append(entry.header)
        rows, offsets = entry.part(keys)
        if not len(rows):
            if len(headers) == MESSAGE_EPOCHS:
                yield _message(headers)
                headers = []
            continue
        yield from _chunks(headers, rows, offsets)
        headers = []
    if headers:
        yield _message(headers)


def _chunks(headers: list[Header], rows: Columns, offsets: np.ndarray) -> Iterator[Message]:
    chunks = max(1, -(-rows.nbytes() // MESSAGE_BYTES))
    size = -(-len(rows) // chunks)
    chunks = -(-len(rows) // size)
    for i in range(chunks):
        part = rows.slice(i * size, min((i + 1) * size, len(rows)))
        last = i == chunks - 1
        yield _message(headers if last else [], offsets.tobytes() if last else b"", i, chunks, part)


def _packed(h: Header) -> list[int | None]:
    """A header as it travels; of a run also how many epochs it speaks for, and its lag. The
    version of the code comes last, once there is another than the first."""
    flags = CHECKPOINT * h.checkpoint | ENDED * h.ended | IDLE * h.idle
    run = [] if h.epochs == 1 and not h.code else [h.epochs, h.lag]
    run += [h.code] if h.code else []
    return [h.epoch, h.watermark, flags, *run]


def _message(
    headers: list[Header],
    offsets: bytes = b"",
    chunk: int = 0,
    chunks: int = 1,
    part: Columns | None = None,
) -> Message:
    keys = headers[0].keys if headers else KeyRange(0, 0)
    packed = [_packed(h) for h in headers]
    rows, blocks = (0, []) if part is None else (len(part), blocks_of(part))
    sizes = [len(block) for block in blocks]
    head = [keys.lo, keys.hi, packed, offsets, chunk, chunks, rows, sizes]
    return Message(msgpack.packb(head), padded(blocks))


class Decoder:
    """Puts the messages of one subscription together again."""

    def __init__(self, schema: RecordSchema, keys: KeyRange) -> None:
        self.schema = schema
        self.keys = keys
        self._epochs = EpochDecoder(schema, keys)
        self._nothing = empty(schema)
        self._no_offsets = np.zeros(len(keys) + 1, np.int64)
        self._parts: list[Columns] = []

    def pieces_of(self, frame: Frame) -> Iterable[Piece]:
        """The pieces that a frame completes; none if it is of another kind.

        Raises:
            JobError: it is damaged; see `pieces`.
        """
        if frame.kind == EPOCH:
            return (self._epochs.piece(frame.head, frame.body),)
        return self.pieces(frame.head, frame.body) if frame.kind == PIECES else ()

    def pieces(self, head: bytes, body: np.ndarray) -> Iterator[Piece]:
        """The pieces that a message completes.

        Args:
            body: uint8, read-only; the pieces lie in it.

        Raises:
            JobError: the message is damaged, it is of another schema, or the chunks of a piece do
            not follow each other.
        """
        try:
            lo, hi, headers, offsets, chunk, chunks, length, sizes = msgpack.unpackb(head)
            if chunk != len(self._parts):
                raise JobError(f"chunk {chunk} of a piece came after {len(self._parts)}")
            if length:
                self._parts.append(columns_in(self.schema, length, sizes, body))
            if chunk < chunks - 1:
                return
            rows = concat(self._parts) if self._parts else self._nothing
            self._parts = []
            for i, (epoch, watermark, flags, *run) in enumerate(headers):
                header = Header(
                    epoch,
                    KeyRange(lo, hi),
                    watermark,
                    bool(flags & CHECKPOINT),
                    bool(flags & ENDED),
                    bool(flags & IDLE),
                    *run,
                )
                if i == len(headers) - 1 and len(rows):
                    yield Piece(header, rows, self._offsets(offsets, len(rows)))
                else:
                    yield Piece(header, self._nothing, self._no_offsets)
        except _DAMAGED as error:
            raise JobError(f"a piece of {self.schema.name} came damaged: {error}") from None

    def _offsets(self, data: bytes, rows: int) -> np.ndarray:
        offsets = np.frombuffer(data, np.int64)
        fit = len(offsets) == len(self._no_offsets) and not offsets[0] and offsets[-1] == rows
        if not fit or (offsets[1:] < offsets[:-1]).any():
            raise JobError(f"a piece of {self.schema.name} came damaged: its key groups differ")
        return offsets
