"""Columns: what goes in comes out, through slices, blocks and the encoding of objects too."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.schema.buffers import blocks_of, columns_in, padded
from raystream.schema.columns import Columns, concat, empty, physical
from raystream.schema.objects import decode, encode
from raystream.schema.records import record_schema
from raystream.schema.storing import from_columns, from_records
from tests.examples import examples
from tests.schema.samples import Colour, Flat, Mixed, Noted, kinds


class Point(NamedTuple):
    x: int
    tag: str | None


class Everything(NamedTuple):
    plain: int
    narrow: rs.Int8
    real: float
    short: rs.Float32
    sure: bool
    text: str
    raw: bytes
    colour: Colour
    maybe: rs.Int16 | None
    maybe_real: float | None
    maybe_sure: bool | None
    maybe_text: str | None
    maybe_colour: Colour | None
    many: list[Point]
    pair: tuple[int, str]
    long: tuple[int, ...]
    table: dict[str, list[int]]
    by_pair: dict[tuple[int, int], int]
    point: Point
    maybe_point: Point | None
    moods: list[Colour]
    deep: dict[str, tuple[Point, ...]] | None


SCHEMA = record_schema(Everything)
points = st.builds(Point, st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=3))
colours = st.sampled_from(Colour)
reals = st.floats(allow_nan=False)
rows = st.builds(
    Everything,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-128, 127),
    reals,
    st.floats(allow_nan=False, width=32),
    st.booleans(),
    st.text(max_size=4),
    st.binary(max_size=4),
    colours,
    st.none() | st.integers(-(2**15), 2**15 - 1),
    st.none() | reals,
    st.none() | st.booleans(),
    st.none() | st.text(max_size=3),
    st.none() | colours,
    st.lists(points, max_size=2),
    st.tuples(st.integers(0, 5), st.text(max_size=2)),
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=2), st.lists(st.integers(0, 9), max_size=2), max_size=2),
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 9), max_size=2),
    points,
    st.none() | points,
    st.lists(colours, max_size=2),
    st.none()
    | st.dictionaries(st.text(max_size=2), st.lists(points, max_size=2).map(tuple), max_size=2),
)
tables = st.lists(rows, max_size=6)


def check(columns: Columns, records: list[Everything]) -> None:
    found = list(columns.records())
    assert found == records
    assert [kinds(r) for r in found] == [kinds(r) for r in records]


@examples(60)
@given(tables)
def test_records_come_out_as_they_went_in(records: list[Everything]) -> None:
    check(from_records(SCHEMA, records), records)
    check(from_records(SCHEMA, iter(records)), records)


@examples(60)
@given(tables, tables, st.data())
def test_slices_takes_and_concatenations_are_those_of_lists(
    one: list[Everything], two: list[Everything], data: st.DataObject
) -> None:
    both = one + two
    columns = concat([from_records(SCHEMA, one), empty(SCHEMA), from_records(SCHEMA, two)])
    check(columns, both)
    lo = data.draw(st.integers(0, len(both)))
    hi = data.draw(st.integers(lo, len(both)))
    check(columns.slice(lo, hi), both[lo:hi])
    order = data.draw(st.lists(st.integers(0, len(both) - 1), max_size=8)) if both else []
    check(columns.take(np.array(order, np.int64)), [both[i] for i in order])
    part = columns.slice(lo, hi).ranked(np.arange(lo, hi))
    assert part.take(np.arange(hi - lo)[::-1]).rank is not None
    assert part.take(np.arange(hi - lo)[::-1]).rank.tolist() == list(range(lo, hi))[::-1]


@examples(60)
@given(tables, st.booleans(), st.data())
def test_blocks_change_nothing(
    records: list[Everything], ranked: bool, data: st.DataObject
) -> None:
    lo = data.draw(st.integers(0, len(records)))
    columns = from_records(SCHEMA, records).slice(lo, len(records))
    columns = columns.ranked(np.arange(len(columns)) << 40 if ranked else None)
    blocks = blocks_of(columns) if len(columns) else []
    memory = np.frombuffer(b"".join(padded(blocks)), np.uint8)
    read = columns_in(SCHEMA, len(columns), [*map(len, blocks)], memory) if blocks else columns
    check(read, records[lo:])
    assert (None if read.rank is None else read.rank.tolist()) == (
        None if columns.rank is None else columns.rank.tolist()
    )


def test_nan_and_signed_zero_stay() -> None:
    class Real(NamedTuple):
        a: float
        b: float | None

    schema = record_schema(Real)
    (found,) = from_records(schema, [Real(-0.0, math.nan)]).records()
    assert math.copysign(1, found.a) == -1
    assert math.isnan(found.b)


@examples(60)
@given(st.lists(rows, max_size=2))
def test_a_value_that_was_encoded_is_not_encoded_again(records: list[Everything]) -> None:
    hints = {f.name: f for f in SCHEMA.fields if f.kind == "object"}
    for record in records:
        for name, f in hints.items():
            value = getattr(record, name)
            assert encode(encode(value)) == encode(value)
            assert decode(encode(encode(value)), f.hint) == value


def test_blocks_are_the_memory_of_the_columns() -> None:
    columns = from_columns(
        record_schema(Noted), {"n": np.arange(5), "text": pa.array(["", "a", "bc", "d", ""])}
    ).slice(1, 4)
    numbers, there, ends, content = blocks_of(columns)
    assert np.shares_memory(numbers, columns.column("n"))
    assert len(there) == 0 and ends.view(np.int32).tolist() == [0, 1, 3, 4]
    assert content.ctypes.data == columns.column("text").buffers()[2].address


def test_bytes_are_counted_of_the_slice_only() -> None:
    columns = from_columns(record_schema(Flat), {"n": np.arange(100), "sure": np.ones(100, bool)})
    assert columns.nbytes() == 900
    assert columns.slice(10, 12).nbytes() == 18


def test_physical_columns() -> None:
    assert physical(record_schema(Mixed)) == (
        ("small", "number", "i1"),
        ("real", "number", "f4"),
        ("text", "text", ""),
        ("maybe", "number", "i4"),
        ("maybe?", "number", "?"),
        ("kind", "number", "i8"),
        ("items", "bytes", ""),
    )
    assert record_schema(Mixed).fingerprint == (
        "Mixed(small: int8, real: float32, text: str, maybe: int32 | None, kind: int64,"
        " items: list[int64])"
    )
