"""Pieces survive the wire: runs of empty epochs, chunks, sparse counts, ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.actors.network import wire
from raystream.actors.network.wire import MESSAGE_EPOCHS, Decoder, Message, Ticket, messages
from raystream.dataflow.pieces import Header, Piece
from raystream.errors import JobError
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.log.epoch_log import LogEntry
from tests.examples import examples

GROUPS = 16
PRODUCER = KeyRange(3, 9)


class Row(NamedTuple):
    number: int
    text: str
    maybe: float | None
    flag: bool
    parts: list[int]


SCHEMA = record_schema(Row)

rows = st.builds(
    Row,
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=5),
    st.none() | st.floats(allow_nan=False),
    st.booleans(),
    st.lists(st.integers(-5, 5), max_size=3),
)
counts = st.dictionaries(st.integers(0, GROUPS - 1), st.integers(1, 4), max_size=GROUPS)


@st.composite
def entries(draw: Any) -> list[LogEntry[Header]]:
    """Consecutive epochs of one edge, most of them empty."""
    first, n = draw(st.integers(1, 5)), draw(st.integers(0, 12))
    ranked = draw(st.booleans())
    out = []
    for epoch in range(first, first + n):
        sizes = np.zeros(GROUPS, np.int64)
        for group, size in draw(st.one_of(st.just({}), counts)).items():
            sizes[group] = size
        records = draw(st.lists(rows, min_size=int(sizes.sum()), max_size=int(sizes.sum())))
        columns = from_records(SCHEMA, records)
        if ranked:
            columns = columns.ranked(np.arange(len(records)) * 7)
        header = Header(
            epoch,
            PRODUCER,
            draw(st.sampled_from([BEFORE_ALL, -1, 0, 17, NEVER])),
            draw(st.booleans()),
            epoch == first + n - 1 and draw(st.booleans()),
            draw(st.booleans()),
            code=draw(st.sampled_from([0, 0, 3])),
        )
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        out.append(LogEntry(epoch, header, columns, offsets))
    return out


def body_of(message: Message) -> np.ndarray:
    """What a reader gets of it."""
    return np.frombuffer(b"".join(message.body), np.uint8)


def over_the_wire(sent: list[LogEntry[Header]], keys: KeyRange) -> Iterator[Piece]:
    decoder = Decoder(SCHEMA, keys)
    for message in messages(sent, keys):
        yield from decoder.pieces(message.head, body_of(message))


@examples(60)
@given(
    entries(), st.integers(0, GROUPS - 1), st.integers(1, GROUPS), st.sampled_from([1, 60, 1 << 20])
)
def test_every_piece_arrives_as_it_was_sent(
    sent: list[LogEntry[Header]], lo: int, size: int, message_bytes: int
) -> None:
    keys = KeyRange(lo, min(GROUPS, lo + size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "MESSAGE_BYTES", message_bytes)
        pieces = list(over_the_wire(sent, keys))
    assert [p.header for p in pieces] == [e.header for e in sent]
    for piece, entry in zip(pieces, sent, strict=True):
        expected, offsets = entry.part(keys)
        assert list(piece.rows.records()) == list(expected.records())
        assert piece.offsets.tolist() == offsets.tolist()
        if len(expected) and expected.rank is not None:
            assert piece.rows.rank is not None
            assert piece.rows.rank.tolist() == expected.rank.tolist()


def entry(epoch: int, records: list[Row]) -> LogEntry[Header]:
    offsets = np.full(GROUPS + 1, len(records))
    offsets[:8] = 0
    return LogEntry(epoch, Header(epoch, PRODUCER, epoch), from_records(SCHEMA, records), offsets)


ROW = Row(1, "x" * 100, None, True, [])


def test_empty_epochs_travel_together_and_with_the_rows_that_follow() -> None:
    quiet = [entry(e, []) for e in range(1, MESSAGE_EPOCHS + 11)]
    sent = [*quiet, entry(MESSAGE_EPOCHS + 11, [ROW])]
    found = list(messages(sent, KeyRange(0, GROUPS)))
    assert [bool(m.body) for m in found] == [False, True]
    assert len(list(over_the_wire(sent, KeyRange(0, GROUPS)))) == len(sent)


def test_rows_of_other_ranges_do_not_travel() -> None:
    assert [m.body for m in messages([entry(1, [ROW])], KeyRange(8, GROUPS))] == [[]]


def test_a_large_piece_travels_in_chunks_and_counts_when_the_last_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "MESSAGE_BYTES", 250)
    decoder = Decoder(SCHEMA, KeyRange(0, GROUPS))
    sent = list(messages([entry(1, [ROW] * 9)], KeyRange(0, GROUPS)))
    assert len(sent) > 2
    pieces = [list(decoder.pieces(m.head, body_of(m))) for m in sent]
    assert [len(p) for p in pieces] == [0] * (len(sent) - 1) + [1]
    assert len(pieces[-1][0].rows) == 9


def test_a_lost_chunk_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MESSAGE_BYTES", 250)
    decoder = Decoder(SCHEMA, KeyRange(0, GROUPS))
    _, second, *_ = messages([entry(1, [ROW] * 9)], KeyRange(0, GROUPS))
    with pytest.raises(JobError, match="chunk 1 of a piece came after 0"):
        list(decoder.pieces(second.head, body_of(second)))


@pytest.mark.parametrize("what", ["shorter", "longer", "a text", "a block", "no text"])
def test_a_damaged_piece_is_refused(what: str) -> None:
    (message,) = messages([entry(1, [ROW] * 9)], KeyRange(0, GROUPS))
    *begin, rows, sizes = msgpack.unpackb(message.head)
    body = body_of(message).copy()
    if what == "shorter":
        body = body[:-8]
    elif what == "longer":
        rows += 1
    elif what == "a text":
        at = sum(size + -size % 8 for size in sizes[:2])
        body[at : at + 4] = 255  # where the first one begins
    elif what == "a block":
        sizes = [*sizes, 0]
    else:
        sizes, body = sizes[:1], body[: sizes[0]]
    with pytest.raises(JobError, match="a piece of Row came damaged"):
        list(
            Decoder(SCHEMA, KeyRange(0, GROUPS)).pieces(msgpack.packb([*begin, rows, sizes]), body)
        )


def test_columns_lie_in_the_memory_that_came() -> None:
    (message,) = messages([entry(1, [ROW] * 9)], KeyRange(0, GROUPS))
    body = body_of(message)
    (piece,) = Decoder(SCHEMA, KeyRange(0, GROUPS)).pieces(message.head, body)
    numbers, text, *_ = piece.rows.arrays
    assert np.shares_memory(numbers, body) and not numbers.flags.writeable
    first, last = body.__array_interface__["data"][0], len(body)
    assert first <= text.buffers()[2].address < first + last


@given(st.text(), st.text(), st.integers(0, 2**31), st.integers(1, 2**40))
def test_tickets(token: str, instance: str, edge: int, first: int) -> None:
    ticket = Ticket(token, instance, edge, KeyRange(2, 5), first)
    assert Ticket.unpack(ticket.pack()) == ticket


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x95\x01\x02\x03\x04\x05", b"x"]
)
def test_what_is_no_ticket_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ticket"):
        Ticket.unpack(data)
