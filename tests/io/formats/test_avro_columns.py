"""Avro a column at a time is Avro message by message, also where messages are damaged."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import InputError
from raystream.io import formats
from raystream.io.formats.avro import AvroCodec
from raystream.io.formats.avro_columns import fields_of
from tests.io.kinds import batch


class Many(NamedTuple):
    time: int
    small: rs.Int8
    maybe: rs.Int16 | None
    ratio: float
    single: rs.Float32
    flag: bool
    maybe_flag: bool | None
    maybe_ratio: float | None
    text: str
    maybe_text: str | None
    data: bytes
    maybe_data: bytes | None
    at: datetime
    maybe_at: datetime | None


def ints(bits: int) -> Any:
    """Numbers of all lengths, with those at which a length ends."""
    edges = [(1 << n) + d for n in range(bits - 1) for d in (-1, 0)]
    edges = [*edges, *(-e for e in edges), -(1 << (bits - 1)), (1 << (bits - 1)) - 1]
    return st.sampled_from(edges) | st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


TEXT = st.text(st.characters(codec="utf-8"), max_size=70)
DATA = st.binary(max_size=70)
TIMES = st.datetimes(timezones=st.just(UTC))
ROWS: Any = st.lists(
    st.builds(
        Many,
        ints(64),
        ints(8),
        st.none() | ints(16),
        st.floats(allow_nan=False),
        st.floats(allow_nan=False, width=32),
        st.booleans(),
        st.none() | st.booleans(),
        st.none() | st.floats(allow_nan=False),
        TEXT,
        st.none() | TEXT,
        DATA,
        st.none() | DATA,
        TIMES,
        st.none() | TIMES,
    ),
    min_size=17,
    max_size=24,
)


def codec_of(record: Any = Many, **options: Any) -> AvroCodec[Any]:
    made = formats.avro(**options).codec(record)
    assert isinstance(made, AvroCodec)
    return made


def one_by_one(codec: AvroCodec[Any], messages: list[bytes]) -> list[Any] | None:
    """The records, or None where a message is none."""
    try:
        return [*codec._rows.batch([codec._read(m) for m in messages]).records()]
    except InputError:
        return None


@settings(max_examples=25, deadline=None)
@given(ROWS)
def test_both_ways_give_the_same(rows: list[Any]) -> None:
    codec, given = codec_of(), batch(Many, rows)
    messages = codec._at_once(given)
    assert messages is not None and messages == codec._one_by_one(given) == codec.encode(given)
    assert [*codec._rows.batch_of_arrays(codec._arrays(messages)).records()] == rows
    assert one_by_one(codec, messages) == rows


@settings(max_examples=60, deadline=None)
@given(ROWS, st.data())
def test_damaged_messages_give_the_same(rows: list[Any], drawn: st.DataObject) -> None:
    codec = codec_of()
    messages = codec.encode(batch(Many, rows))
    n = drawn.draw(st.integers(0, len(messages) - 1))
    at = drawn.draw(st.integers(0, len(messages[n]) - 1))
    change = drawn.draw(st.sampled_from(["cut", "byte", "longer", "number"]))
    messages[n] = {
        "cut": messages[n][:at],
        "byte": messages[n][:at] + drawn.draw(st.binary(min_size=1, max_size=1))
        + messages[n][at + 1 :],
        "longer": messages[n] + messages[n][:at],
        "number": messages[n][:at] + b"\xff" * 10 + messages[n][at:],
    }[change]  # fmt: skip
    expected = one_by_one(codec, messages)
    try:
        found = [*codec.decode(messages).records()]
    except InputError:
        assert expected is None
        return
    assert expected is not None and repr(found) == repr(expected)


def test_many_messages_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a registry too, and where the writer had more fields, in another order."""
    from confluent_kafka.schema_registry import Schema

    class Order(NamedTuple):
        time: int
        user: str

    codec = codec_of(Order, registry=f"mock://{uuid4().hex}", subject="orders")
    newer = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "shop", "type": ["string", "null"]},
            {"name": "user", "type": {"type": "string", "avro.java.string": "String"}},
            {"name": "time", "type": "long"},
        ],
    }
    assert codec._registry is not None
    number = codec._registry._client.register_schema("orders", Schema(json.dumps(newer), "AVRO"))
    orders = [Order(n * 100, f"user-{n}") for n in range(20)]
    theirs = []
    for n, order in enumerate(orders):
        buffer = io.BytesIO()
        row = {"shop": "x" * n if n % 2 else None, **order._asdict()}
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(newer), row)
        theirs.append(b"\0" + number.to_bytes(4, "big") + buffer.getvalue())
    mine = codec.encode(batch(Order, orders))
    mixed = [*theirs[:10], *mine[10:]]
    assert [*codec.decode(mixed).records()] == orders

    def never(*_: Any) -> Any:
        raise AssertionError("read one by one")

    monkeypatch.setattr(AvroCodec, "_read", never)
    monkeypatch.setattr(AvroCodec, "_one_by_one", never)
    assert codec.encode(batch(Order, orders)) == mine
    assert [*codec.decode(theirs).records()] == orders == [*codec.decode(mine).records()]


def test_numbers_that_are_too_long_for_a_schema_are_left_to_the_other_way() -> None:
    class Wide(NamedTuple):
        n: int

    schema = {"type": "record", "name": "W", "fields": [{"name": "n", "type": "int"}]}
    codec = codec_of(Wide, schema=schema)
    small = batch(Wide, [Wide((-2) ** n) for n in range(20)])
    assert codec._at_once(small) == codec._one_by_one(small)
    wide = batch(Wide, [Wide(1 << (n + 20)) for n in range(20)])
    assert codec._at_once(wide) is None and codec.encode(wide) == codec._one_by_one(wide)


@pytest.mark.parametrize("damaged", [1, 2, 3, 4])
def test_lengths_whose_sum_has_no_room_are_no_records(damaged: int) -> None:
    class Named(NamedTuple):
        name: str

    codec = codec_of(Named)
    longest = b"\xfe" + b"\xff" * 8 + b"\x01"  # 2**63 - 1
    messages = [longest] * damaged + codec.encode(batch(Named, [Named("a")] * 20))
    with pytest.raises(InputError):
        codec.decode(messages)


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": "long"},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        {"type": "long", "logicalType": "timestamp-millis"},
        ["null", "long", "string"],
        "Other",
    ],
)
def test_other_schemas_are_not_taken_by_columns(kind: Any) -> None:
    fields = [{"name": "n", "type": "long"}, {"name": "x", "type": kind}]
    assert fields_of({"type": "record", "name": "W", "fields": fields}) is None
    assert fields_of({"type": "record", "name": "W", "fields": fields[:1]}) is not None
    assert fields_of("long") is None
