"""Checksums of pieces: the same for the same values, another for others, and who is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.actors.network.wire import Decoder, messages
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.checking import Checksums, checksum, fused_on_the_way
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Plan
from raystream.errors import JobError
from raystream.schema.columns import Columns, concat
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import KeyRange
from raystream.state.log.epoch_log import LogEntry
from raystream.testing import Collect
from tests.examples import examples
from tests.flows import Line, Rows, Word, lines, running, split, word_flow
from tests.unsound import by_set


class Mixed(NamedTuple):
    n: int
    small: rs.Int8
    share: float
    flag: bool
    maybe: int | None
    text: str
    perhaps: str | None
    raw: bytes
    tags: list[str]


SCHEMA = record_schema(Mixed)
KEYS = KeyRange(0, 1)
records = st.lists(
    st.builds(
        Mixed,
        st.integers(-5, 5),
        st.integers(-100, 100),
        st.sampled_from([0.0, -0.0, 1.5]),
        st.booleans(),
        st.none() | st.integers(0, 3),
        st.text("ab€", max_size=3),
        st.none() | st.text("ab", max_size=2),
        st.binary(max_size=2),
        st.lists(st.text("xy", max_size=2), max_size=2),
    ),
    max_size=6,
)


def piece(rows: Columns, offsets: Any = None, *, epoch: int = 1, ended: bool = False) -> Piece:
    at = np.array([0, len(rows)] if offsets is None else offsets)
    return Piece(Header(epoch, KEYS, 0, ended=ended), rows, at)


@examples(100)
@given(records, records)
def test_a_checksum_tells_values_apart_and_nothing_else(one: list[Any], two: list[Any]) -> None:
    whole = from_records(SCHEMA, [*one, *two])
    mine = checksum(piece(from_records(SCHEMA, two)))
    assert checksum(piece(whole.slice(len(one), len(whole)))) == mine
    there = checksum(piece(from_records(SCHEMA, one)))
    assert (there == mine) == ([*map(repr, one)] == [*map(repr, two)])


@examples(60)
@given(records, st.integers(0, 6), st.booleans())
def test_a_checksum_is_the_same_however_a_piece_came(
    rows: list[Any], at: int, ranked: bool
) -> None:
    columns = from_records(SCHEMA, rows)
    columns = columns.ranked(np.arange(len(rows))) if ranked else columns
    at = min(at, len(rows))
    sent = piece(columns, [0, at, len(rows)])
    parts = concat([columns.slice(0, at), columns.slice(at, len(rows))])
    assert checksum(piece(parts, sent.offsets)) == checksum(sent)
    entry = LogEntry(1, sent.header, columns, sent.offsets)
    decoder, keys = Decoder(SCHEMA, KeyRange(0, 2)), KeyRange(0, 2)
    (message,) = messages([entry], keys)
    body = np.frombuffer(b"".join(message.body), np.uint8)
    (received,) = decoder.pieces(message.head, body)
    assert checksum(received) == checksum(sent)


def test_offsets_ranks_and_ends_count() -> None:
    rows = from_records(SCHEMA, [Mixed(1, 2, 3.0, True, None, "a", None, b"", [])] * 2)
    found = [
        checksum(piece(rows, [0, 1, 2])),
        checksum(piece(rows, [0, 2, 2])),
        checksum(piece(rows, [0, 2, 2], ended=True)),
        checksum(piece(rows.ranked(np.array([0, 1])), [0, 1, 2])),
        checksum(piece(rows.ranked(np.array([0, 2])), [0, 1, 2])),
        checksum(piece(rows.slice(0, 0))),
        checksum(piece(rows.slice(0, 0), ended=True)),
    ]
    assert len(set(found)) == len(found)


def test_what_none_hides_does_not_count() -> None:
    """Arrow keeps bytes below a None; which ones depends on how the array was made."""
    text = record_schema(Perhaps)
    valid = pa.array([True, False, True]).buffers()[1]
    offsets = pa.py_buffer(np.array([0, 1, 3, 4], np.int32))
    arrays = [
        pa.Array.from_buffers(pa.string(), 3, [valid, offsets, pa.py_buffer(data)])
        for data in (b"axxb", b"ayyb")
    ]
    arrays.append(pa.array(["a", None, "b"]))
    one, two, three = (checksum(piece(Columns(text, [a], 3))) for a in arrays)
    assert one == two == three
    assert checksum(piece(Columns(text, [pa.array(["a", "", "b"])], 3))) != one


class Perhaps(NamedTuple):
    text: str | None


# ---------------------------------------------------------------- consumers


class Number(NamedTuple):
    n: int


def numbers(*values: int) -> Columns:
    return from_records(record_schema(Number), [Number(v) for v in values])


def plan(check: bool = True) -> Plan:
    return make_plan(word_flow(Collect(), running), check=check)


@examples(100)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 1), st.integers(0, 3), st.integers(0, 9)),
        max_size=30,
    )
)
def test_a_copy_that_differs_is_found_until_it_is_forgotten(
    sent: list[tuple[int, int, int, int]],
) -> None:
    """Sent are (epoch, edge, value), now and then (as many as 0) the floor rises to an epoch."""
    sums, committed = Checksums(plan()), 0
    first: dict[tuple[int, int], int] = {}
    for epoch, edge, value, chance in sent:
        if chance == 0:
            committed = max(committed, epoch)
            sums.forget(epoch)
            continue
        differs = epoch > committed and first.setdefault((epoch, edge), value) != value
        try:
            sums.compare(edge, piece(numbers(value), epoch=epoch))
        except JobError:
            assert differs
        else:
            assert not differs
        assert all(e > committed for e in sums.sums)


def test_ranges_are_compared_with_themselves_alone() -> None:
    sums = Checksums(plan())
    for lo, hi, value in ((0, 2, 5), (0, 1, 6), (1, 2, 7), (0, 2, 5)):
        header = Header(1, KeyRange(lo, hi), 0)
        sums.compare(0, Piece(header, numbers(value), np.array([0, 1])))


def test_an_instance_compares_what_it_holds_and_what_it_has_applied() -> None:
    job = plan()
    words = from_records(record_schema(Word), [Word(1, "to")])
    others = from_records(record_schema(Word), [Word(1, "be")])
    offsets = np.append(np.zeros(256, np.int64), 1)

    def sent(rows: Columns, epoch: int) -> Piece:
        return Piece(Header(epoch, KeyRange(0, 256), 0), rows, offsets)

    instance = KeyedInstance(job, job.vertex("running"), KeyRange(0, 256))
    assert instance.receive(0, sent(words, 1)) and instance.receive(0, sent(words, 2))
    instance.step()
    for epoch in (1, 2):
        assert not instance.receive(0, sent(words, epoch))
        with pytest.raises(JobError, match=rf"rows \(or split.* Word for epoch {epoch} than"):
            instance.receive(0, sent(others, epoch))
    instance.trim(1)
    assert not instance.receive(0, sent(others, 1))


def test_nothing_is_remembered_unless_asked_for() -> None:
    job = plan(check=False)
    assert KeyedInstance(job, job.vertex("running"), KeyRange(0, 256)).checksums is None


# ---------------------------------------------------------------- names


@rs.operator()
def shout(word: Word) -> Iterator[Word]:
    yield Word(word.time, word.word.upper())


def test_only_operators_on_the_way_are_named() -> None:
    flow = rs.Flow("fused")
    source = flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=1))
    source.to(Collect())
    source.through(split).through(shout).to(Collect())
    source.through(by_set).to(Collect())
    made = make_plan(flow)
    rows = made.vertex("rows")
    found = [fused_on_the_way(rows, edge.port) for edge in rows.outputs]
    assert found == [[], ["split", "shout"], ["by_set"]]


def test_what_is_said() -> None:
    sums = Checksums(plan())
    after = next(e.id for e in sums.plan.edges if e.schema.name == "Running")
    sums.compare(after, piece(numbers(1), epoch=7))
    with pytest.raises(JobError) as caught:
        sums.compare(after, piece(numbers(2), epoch=7))
    first, where, *hints = str(caught.value).splitlines()
    assert first == (
        "running is not deterministic: key groups [0, 1) were made again from a checkpoint, and"
        " sent other records of Running for epoch 7 than before"
    )
    assert "tests/flows.py" in where
    assert "`random`" in hints[0] and "rs.testing.check_operator" in hints[2]
    assert not any("source" in hint for hint in hints)
