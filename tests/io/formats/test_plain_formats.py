"""JSON, raw bytes and functions: what is written comes back; what is no record is told apart."""

from __future__ import annotations

import json
import pickle
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import ConfigError, GraphError, InputError
from raystream.io import formats
from raystream.io.formats.base import taken_from, whole
from raystream.io.formats.json import JsonCodec
from tests.io.kinds import PLAIN, RICH, Lane, batch
from tests.schema.test_kinds import ANY, DEEP, FLAT

EVERY = st.sampled_from([PLAIN, RICH, FLAT, DEEP, ANY]).flatmap(
    lambda rows: st.lists(rows, min_size=1, max_size=3)
)


class Order(NamedTuple):
    time: int
    user: str
    price: float = 1.5
    note: str | None = None


def decoded(fmt: formats.Format, record: type[Any], messages: list[bytes]) -> list[Any]:
    return list(fmt.codec(record).decode(messages).records())


@settings(max_examples=15)
@given(EVERY)
def test_all_records_come_back_from_json(rows: list[Any]) -> None:
    codec = pickle.loads(pickle.dumps(formats.json())).codec(type(rows[0]))
    messages = codec.encode(batch(type(rows[0]), rows))
    assert len(messages) == len(rows)
    assert all(isinstance(json.loads(m), dict) for m in messages)
    assert list(codec.decode(messages).records()) == rows


@settings(max_examples=40)
@given(
    st.lists(
        st.sampled_from([
            b'{"time": 1, "user": "a"}', b'{"time": 2, "user": "b", "price": 2, "note": "x"}',
            b'{"user": "a", "time": 3.0, "more": {"x": [1]}}', b' {"time":4,\n "user":"a"}\n',
            b'{"time": 1, "user": "a"}{"time": 1, "user": "a"}', b'{"time": 1, "user": "a}',
            b'"a"}', b"", b"{}", b"null", b'{"time": 1', b"}", b'{"time": "1", "user": "a"}',
            b'{"time": 5, "user": "\xff"}', b'{"time": 6, "user": "a", "note": null}',
            b'{"time": 6, "user": "a", "price": null}', b'{"time": 6, "user": "a", "user": "b"}',
            b'{"time": 9223372036854775808, "user": "a"}', b'{"time": 7, "user": "\\ud800"}',
            b'{"time": 8, "user": "a", "price": NaN}', b'{"time": 8, "user": "a", "x": {"y": "}',
        ])
    )
)  # fmt: skip
def test_arrow_and_python_agree_on_every_message(messages: list[bytes]) -> None:
    fast, slow = JsonCodec(Order, ()), JsonCodec(Order, ())
    slow._flat = None
    found, wanted = (formats.sift(messages, codec.decode, Order) for codec in (fast, slow))
    assert repr(list(found.batch.records())) == repr(list(wanted.batch.records()))
    assert found.at.tolist() == wanted.at.tolist()
    assert [n for n, _ in found.bad] == [n for n, _ in wanted.bad]
    assert sorted([*found.at.tolist(), *(n for n, _ in found.bad)]) == [*range(len(messages))]


def test_flat_records_are_decoded_at_once() -> None:
    codec = JsonCodec(Order, ())
    messages = [b'{"time": %d, "user": "u", "price": 1, "note": null}' % n for n in range(100)]
    assert codec._flat is not None
    found = codec._at_once(messages, codec._flat)
    assert found is not None and found["time"].tolist() == [*range(100)]


def test_values_have_other_names() -> None:
    messages = [b'{"time": 1, "by": {"name": "a"}}']
    read = formats.json(columns={"user": "$.by.name"})
    assert decoded(read, Order, messages) == [Order(1, "a")]
    with pytest.raises(GraphError, match="read from paths, not written"):
        read.codec(Order).encode(batch(Order, [Order(1, "a")]))
    named = formats.json(columns={"user": "@user"})
    (message,) = named.codec(Order).encode(batch(Order, [Order(1, "a")]))
    assert json.loads(message) == {"time": 1, "@user": "a", "price": 1.5, "note": None}
    assert decoded(named, Order, [message]) == [Order(1, "a")]
    with pytest.raises(ConfigError, match="no path"):
        formats.json(columns={"user": "$.["})


def test_a_record_may_name_its_values() -> None:
    class Named(NamedTuple):
        n: Annotated[int, rs.field(name="The N")]

    assert decoded(formats.json(), Named, [b'{"The N": 4}']) == [Named(4)]


class Bytes(NamedTuple):
    data: bytes


class Text(NamedTuple):
    data: str


class Number(NamedTuple):
    n: int


class Which(NamedTuple):
    lane: Lane


class Sure(NamedTuple):
    yes: bool


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Bytes(b"\xff\0"), b"\xff\0"),
        (Text("\u00e9"), "\u00e9".encode()),
        (Number(-42), b"-42"),
        (Which(Lane.EXIT), b"4"),
        (Sure(True), b"true"),
    ],
)
def test_raw_messages_are_one_value(row: Any, message: bytes) -> None:
    codec = formats.raw().codec(type(row))
    assert codec.encode(batch(type(row), [row, row])) == [message, message]
    assert list(codec.decode([message, message]).records()) == [row, row]


def test_raw_messages_that_are_none() -> None:
    for record, message in ((Number, b"4x"), (Text, b"\xff"), (Sure, b"maybe"), (Which, b"7")):
        with pytest.raises(InputError):
            formats.raw().codec(record).decode([message])
    with pytest.raises(GraphError, match="a message is one value"):
        formats.raw().codec(Order)


def test_functions_decode_and_encode() -> None:
    fmt = formats.function(
        lambda m: Order(int(m), "f"), lambda r: b"" if r.time < 0 else str(r.time).encode()
    )
    codec = fmt.codec(Order)
    assert list(codec.decode([b"3"]).records()) == [Order(3, "f")]
    assert codec.encode(batch(Order, [Order(3, "f")])) == [b"3"]
    found = formats.sift([b"1", b"x", b"2"], codec.decode, Order)
    assert found.at.tolist() == [0, 2]
    assert [(n, "ValueError" in str(e)) for n, e in found.bad] == [(1, True)]
    with pytest.raises(GraphError, match="no function that encodes"):
        formats.function(lambda m: Order(1, "a")).codec(Order).encode(batch(Order, []))
    with pytest.raises(ConfigError):
        formats.function()
    with pytest.raises(InputError, match="is a Text, not a"):
        formats.function(lambda m: Text("a")).codec(Order).decode([b""])


def test_a_bad_message_is_named_with_its_place() -> None:
    codec = formats.json().codec(Order)
    messages = [b'{"time": 1, "user": "a"}', b'{"time": 1}']
    with pytest.raises(InputError, match="orders/0, offset 11: 'user' is missing"):
        whole(messages, codec.decode, Order, lambda n: f"orders/0, offset {10 + n}")


def test_keys_and_values_are_parts_of_one_record() -> None:
    key, value = formats.part_of(Order, ("user",)), formats.part_of(Order, ("price", "note"))
    keys = formats.raw().codec(key).decode([b"a", b"b"])
    values = formats.json().codec(value).decode([b'{"price": 2}', b"{}"])
    found = formats.joined(Order, [keys, values], {"time": np.array([1, 2])})
    rows = [Order(1, "a", 2.0), Order(2, "b", 1.5)]
    assert list(found.records()) == rows
    assert formats.raw().codec(key).encode(taken_from(found, ("user",))) == [b"a", b"b"]
    with pytest.raises(GraphError, match="no field 'x'"):
        formats.part_of(Order, ("x",))
