"""Input that cannot be read again, such as what comes over a socket: its rows are recorded.

The boundary at which an epoch of such a split ends holds the rows of that epoch. So what the
boundary register says of boundaries (`raystream.dataflow.register`) holds for the rows too: they
are decided once, and lie in `copies` places before anybody acts on them. Every later reader of the
split takes the rows from the boundary and not from the source.

    split.add(token, rows)        the source yielded a batch
    split.wanted()                the boundary with all that came, to be claimed
    split.take(boundary)          the rows of the boundary that the register holds
    split.acknowledged            the source may forget what it yielded up to this token

Two processes may feed one split for a moment: an owner that was replaced and does not know it yet,
and the new one. Their boundaries differ, and the register takes one of them. What the other process
has received is in no boundary then, and nobody else has it, so it stays pending and goes into the
next epoch. A boundary names its writer for that: equal rows are no sign, because two clients may
send the same.

A batch may name its *sender* and a number that rises from batch to batch of that sender, its
*sequence*. A sender that gets no answer sends the batch again, to whichever process feeds the
split by then. Each boundary says which sequences it holds, so all readers know the same last
sequence of each sender. A batch that is not above it is a repeated one: its rows are left out,
and it is acknowledged with those before it. Where each row of a batch has a sequence, the rows
that are not above it are left out: who reads a log again need not cut it into the same batches.
What is known of senders is part of the position of the split, and is bounded: see `sender_seconds`
and `SENDERS`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import msgpack
import numpy as np

from raystream.api.connectors import Source
from raystream.dataflow.register import Boundary
from raystream.dataflow.sources.arrival_split import ArrivalSplit
from raystream.errors import InternalError
from raystream.schema.buffers import blocks_of, columns_in, padded
from raystream.schema.columns import Columns, concat, empty
from raystream.schema.records import RecordSchema
from raystream.schema.types import NEVER

ENTRY_BYTES = 8 << 20
"""A boundary takes as many batches as fit into this, and at least one."""
SENDERS = 10_000
"""How many senders of a split are known: the ones that were recorded last."""


class Sent(NamedTuple):
    """What a batch says of where it comes from."""

    sender: str
    sequence: int
    """At least 0; it rises from batch to batch of a sender."""
    at: int
    """When it was received, in Unix seconds."""
    each: np.ndarray | None = None
    """int64 [n]: the sequence of each row, if they have such; they do not fall, and `sequence` is
    not below the last one."""


Senders = tuple[tuple[str, int, int], ...]
"""(sender, last recorded sequence, when it was recorded in Unix seconds), the newest last."""


class Entry(NamedTuple):
    """The rows of an epoch of a split, as its boundary holds them."""

    writer: str
    """The process that claimed the boundary."""
    batches: int
    """How many batches of the writer it holds."""
    rows: Columns | None
    """Their rows; None if there are none."""
    sent: tuple[tuple[str, int], ...] = ()
    """(sender, sequence) of those batches that say so, without repeated ones."""
    at: int = 0
    """When the newest of these was received, in Unix seconds."""

    def encode(self) -> bytes:
        """The bytes that `Boundary.rows` holds."""
        rows = self.rows
        blocks = [] if rows is None else blocks_of(rows)
        sizes = [len(block) for block in blocks]
        body = b"".join(padded(blocks))
        sent = (self.sent, self.at) if self.sent else ()
        data: bytes = msgpack.packb(
            [self.writer, self.batches, len(rows or ()), sizes, body, *sent]
        )
        return data


def decoded(schema: RecordSchema, data: bytes) -> Entry:
    """The entry that a boundary holds.

    Raises:
        InternalError: it is damaged, or of other records.
    """
    try:
        writer, batches, length, sizes, body, *more = msgpack.unpackb(data)
        memory = np.frombuffer(body, np.uint8)
        rows = columns_in(schema, length, sizes, memory) if length else None
        sent, at = more or ((), 0)
    except (ValueError, msgpack.UnpackException) as error:
        raise InternalError(f"recorded rows of {schema.name} are damaged: {error}") from None
    return Entry(writer, batches, rows, tuple(map(tuple, sent)), at)


class LiveSplit(ArrivalSplit):
    """A split that cannot be read again. Its position is the number of rows recorded so far.

    Args:
        schema: of its records.
        writer: names the process in what it records; no other one has this name.
        split: the arguments of `ArrivalSplit`.
    """

    def __init__(self, schema: RecordSchema, writer: str, *split: Any) -> None:
        super().__init__(*split)
        self.done = self.watermark == NEVER
        self.schema = schema
        self.writer = writer
        self.acknowledged: int | None = None
        """The number that the source gave to the newest batch that is recorded; None before the
        first."""
        self.heard: dict[str, int] = {}
        """By sender the last sequences that other processes have recorded, which the source of this
        one has not been told."""
        self.ended = False
        """Whether the end of the split is recorded."""
        self.sender_seconds: float = Source.sender_seconds
        """A sender is forgotten when another one is recorded this long after it."""
        self._senders: dict[str, tuple[int, int]] = {}
        self._sent: dict[int, Sent] = {}
        """By number what pending batches say of where they come from, if they are to be
        recorded."""
        self._pending: dict[str, int] = {}
        """The highest sequence of each sender among these."""

    @property
    def senders(self) -> Senders:
        """What is known of senders after the epoch that was taken last."""
        return tuple((name, *known) for name, known in self._senders.items())

    def knows(self, senders: Senders) -> None:
        """Go on with what was known at a checkpoint."""
        self._senders = {name: (sequence, at) for name, sequence, at in senders}

    def add(self, position: int, rows: Columns, sent: Sent | None = None) -> None:
        """Take a batch that came. Its rows are left out if it was recorded, or is pending."""
        if sent is not None:
            known = self._senders.get(sent.sender, (-1, 0))[0]
            last = max(known, self._pending.get(sent.sender, -1))
            if sent.sequence <= last:
                rows = empty(self.schema)
            else:
                rows, sent = _above(last, rows, sent)
                self._sent[position] = sent
                self._pending[sent.sender] = sent.sequence
        super().add(position, rows)

    @property
    def pending_bytes(self) -> int:
        """What has come and is not recorded yet."""
        return sum(rows.nbytes() for _, rows in self.read)

    def wanted(self, silent: float = 0.0) -> Boundary:
        """The boundary that would record what has come, up to `ENTRY_BYTES` of it."""
        boundary, due = super().wanted(silent), self._due()
        if not due:
            return boundary
        rows = concat([rows for _, rows in due])
        entry = Entry(self.writer, len(due), rows if len(rows) else None)
        if self._sent and (sent := [self._sent[n] for n, _ in due if n in self._sent]):
            parts = tuple((each.sender, each.sequence) for each in sent)
            entry = entry._replace(sent=parts, at=max(each.at for each in sent))
        return boundary._replace(rows=entry.encode())

    def _due(self) -> Sequence[tuple[int, Columns]]:
        sizes = accumulate(rows.nbytes() for _, rows in self.read)
        return self.read[: max(1, sum(size <= ENTRY_BYTES for size in sizes))]

    def _position_after(self, due: Sequence[tuple[int, Columns]]) -> int:
        return self.position + sum(len(rows) for _, rows in due)

    def reaches(self, boundary: Boundary) -> bool:
        """Always: the boundary itself holds the rows."""
        return True

    def _rows_upto(self, boundary: Boundary) -> list[Columns]:
        entry = decoded(self.schema, boundary.rows) if boundary.rows else Entry("", 0, None)
        taken = [] if entry.rows is None else [entry.rows]
        rows = sum(map(len, taken))
        if boundary.position != self.position + rows:
            raise InternalError(
                f"split {self.name} is recorded up to {boundary.position}, which is not"
                f" {self.position} and {rows} rows more"
            )
        if entry.batches and entry.writer == self.writer:
            self.acknowledged = self.read[entry.batches - 1][0]
            self._forget([number for number, _ in self.read[: entry.batches]])
            del self.read[: entry.batches]
        if entry.sent:
            self._learn(entry)
            if entry.writer != self.writer:
                self.heard.update(entry.sent)
        self.position = boundary.position
        if boundary.ended:
            self.done = self.ended = True
            self._forget([*self._sent])
            self.read.clear()  # what comes after the end is too late, and is not acknowledged
        return taken

    def _learn(self, entry: Entry) -> None:
        """Note what an epoch holds of senders, and leave out what came here, too."""
        known = self._senders
        newest = next(reversed(known), None)
        at = entry.at if newest is None else max(entry.at, known[newest][1])
        for sender, sequence in entry.sent:
            known[sender] = (max(sequence, known.pop(sender, (-1, 0))[0]), at)
        while len(known) > SENDERS or known[next(iter(known))][1] <= at - self.sender_seconds:
            del known[next(iter(known))]
        for i, (n, rows) in enumerate(self.read if self._sent else ()):
            if (sent := self._sent.get(n)) is None:
                continue
            last = known.get(sent.sender, (-1, 0))[0]
            if sent.sequence <= last:
                self._forget([n])
                self.read[i] = (n, empty(self.schema))
            else:
                rows, self._sent[n] = _above(last, rows, sent)
                self.read[i] = (n, rows)

    def _forget(self, numbers: Collection[int]) -> None:
        """Pending batches are recorded now, or never."""
        for number in numbers if self._sent else ():
            sent = self._sent.pop(number, None)
            if sent is not None and self._pending.get(sent.sender) == sent.sequence:
                del self._pending[sent.sender]


def _above(last: int, rows: Columns, sent: Sent) -> tuple[Columns, Sent]:
    """What of a batch is above a sequence of its sender."""
    if sent.each is None or not len(sent.each) or sent.each[0] > last:
        return rows, sent
    at = int(np.searchsorted(sent.each, last, side="right"))
    return rows.take(np.arange(at, len(rows))), sent._replace(each=sent.each[at:])
