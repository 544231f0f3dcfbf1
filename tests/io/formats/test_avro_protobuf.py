"""Avro and Protobuf, with and without a registry: what is written comes back."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import ConfigError, GraphError, InputError
from raystream.io import formats
from raystream.io.formats.avro import AvroCodec
from tests.io.kinds import PLAIN, RICH, batch
from tests.schema.test_kinds import FLAT


class Order(NamedTuple):
    time: int
    user: str
    price: float = 1.5
    note: str | None = None


ORDERS = [Order(1, "ann", 2.5, "quick"), Order(2, "bob", 0.0)]
CODED = st.sampled_from([PLAIN, FLAT]).flatmap(lambda r: st.lists(r, min_size=1, max_size=3))


@pytest.fixture
def registry() -> str:
    """A registry in this process, by Confluent's client."""
    return f"mock://{uuid4().hex}"


def back(codec: Any, messages: list[bytes]) -> list[Any]:
    return list(codec.decode(messages).records())


@settings(max_examples=8)
@given(CODED)
def test_all_flat_records_come_back_from_avro(rows: list[Any]) -> None:
    codec = pickle.loads(pickle.dumps(formats.avro())).codec(type(rows[0]))
    assert back(codec, codec.encode(batch(type(rows[0]), rows))) == rows


@settings(max_examples=6)
@given(st.lists(RICH, min_size=1, max_size=3))
def test_nested_records_come_back_from_avro(rows: list[Any]) -> None:
    codec = formats.avro().codec(type(rows[0]))
    assert back(codec, codec.encode(batch(type(rows[0]), rows))) == rows


def test_a_registry_names_the_schema_of_each_message(registry: str) -> None:
    codec = formats.avro(registry=registry).codec(Order, subject="orders-value")
    messages = codec.encode(batch(Order, ORDERS))
    assert {m[0] for m in messages} == {0}
    assert back(codec, messages) == ORDERS


def test_messages_are_read_by_the_schema_of_their_writer(registry: str) -> None:
    """An older one has no notes, a newer one has more, in another order."""
    from confluent_kafka.schema_registry import Schema

    codec = formats.avro(registry=registry).codec(Order)
    assert isinstance(codec, AvroCodec) and codec._registry is not None
    client = codec._registry._client  # each one that is mocked holds schemas of its own
    newer = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "shop", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "user", "type": "string"},
            {"name": "time", "type": "long"},
        ],
    }
    number = client.register_schema("orders", Schema(json.dumps(newer), "AVRO"))
    buffer = io.BytesIO()
    row = {"shop": "x", "price": 3.0, "user": "eve", "time": 7}
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(newer), row)
    message = b"\0" + number.to_bytes(4, "big") + buffer.getvalue()
    assert back(codec, [message]) == [Order(7, "eve", 3.0)]


def test_what_is_no_avro_is_told_apart(registry: str) -> None:
    codec = formats.avro(registry=registry, subject="orders").codec(Order)
    good = codec.encode(batch(Order, ORDERS))
    messages = [good[0], b"{}", b"", good[1][:-3], b"\0\0\0\xff\xff" + good[0][5:], good[1]]
    found = formats.sift(messages, codec.decode, Order)
    assert list(found.batch.records()) == ORDERS and list(found.at) == [0, 5]
    assert [n for n, _ in found.bad] == [1, 2, 3, 4]
    assert "knows no schema 65535" in str(found.bad[3][1])


def test_a_schema_of_ones_own_and_names_of_fields() -> None:
    schema = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "t", "type": "lon"}, {"name": "user", "type": "string"}],
    }
    with pytest.raises(ConfigError, match="a schema of Avro is none"):
        formats.avro(schema=schema).codec(Order)
    schema["fields"][0]["type"] = "long"  # type: ignore[index]
    codec = formats.avro(schema=schema, columns={"time": "t"}).codec(Order)
    messages = codec.encode(batch(Order, ORDERS))
    assert back(codec, messages) == [Order(1, "ann"), Order(2, "bob")]


def test_a_registry_that_does_not_answer_is_no_bad_message() -> None:
    codec = formats.avro(registry={"url": "http://127.0.0.1:1", "max.retries": 0}).codec(Order)
    with pytest.raises(rs.errors.JobError, match="cannot be asked") as raised:
        codec.decode([b"\0\0\0\0\1x"])
    assert not isinstance(raised.value, InputError)


def test_what_avro_cannot_hold_is_refused() -> None:
    class Numbered(NamedTuple):
        time: int
        names: dict[int, str]

    with pytest.raises(GraphError, match="Avro has no type"):
        formats.avro().codec(Numbered)
    for wrong in ({"registry": 7}, {"schema": "{"}, {"subject": ""}, {"registry": {}}):
        with pytest.raises(ConfigError):
            formats.avro(**wrong)  # type: ignore[arg-type]
    assert "secret" not in repr(formats.avro(registry={"url": "http://x", "password": "secret"}))


# ---------------------------------------------------------------- Protobuf


def message_classes() -> dict[str, Any]:
    """What `protoc` would make of a file with an order and a visit."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"orders_{uuid4().hex}.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    order = file.message_type.add(name="Order")
    fields = [
        ("time", kinds.TYPE_INT64), ("user", kinds.TYPE_STRING), ("price", kinds.TYPE_DOUBLE),
    ]  # fmt: skip
    for number, (name, kind) in enumerate(fields, 1):
        order.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    order.field.add(
        name="note", number=4, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL,
        proto3_optional=True, oneof_index=0,
    )  # fmt: skip
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("RED", "BLUE")):
        colour.value.add(name=name, number=number)
    visit = file.message_type.add(name="Visit")
    more = [
        ("time", kinds.TYPE_INT64, "", kinds.LABEL_OPTIONAL),
        ("at", kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp", kinds.LABEL_OPTIONAL),
        ("colour", kinds.TYPE_ENUM, ".shop.Colour", kinds.LABEL_OPTIONAL),
        ("pages", kinds.TYPE_STRING, "", kinds.LABEL_REPEATED),
        ("order", kinds.TYPE_MESSAGE, ".shop.Order", kinds.LABEL_OPTIONAL),
        ("orders", kinds.TYPE_MESSAGE, ".shop.Order", kinds.LABEL_REPEATED),
        ("counts", kinds.TYPE_MESSAGE, ".shop.Visit.CountsEntry", kinds.LABEL_REPEATED),
    ]
    for number, (name, kind, named, label) in enumerate(more, 1):
        visit.field.add(name=name, number=number, type=kind, type_name=named or None, label=label)
    entry = visit.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in ("Order", "Visit")
    }


MESSAGES = message_classes()


class Visit(NamedTuple):
    time: int
    at: datetime
    colour: str
    pages: list[str]
    order: Order | None
    orders: list[Order]
    counts: dict[str, int]


def test_records_come_back_from_protobuf() -> None:
    codec = formats.protobuf(MESSAGES["Order"]).codec(Order)
    assert back(codec, codec.encode(batch(Order, ORDERS))) == ORDERS
    at = datetime(2026, 1, 2, tzinfo=UTC) + timedelta(microseconds=7)
    visits = [
        Visit(1, at, "BLUE", ["a", "b"], ORDERS[0], ORDERS, {"x": 1, "y": 2}),
        Visit(2, at, "RED", [], None, [], {}),
    ]
    codec_of_visits = formats.protobuf(MESSAGES["Visit"]).codec(Visit)
    assert back(codec_of_visits, codec_of_visits.encode(batch(Visit, visits))) == visits


def test_protobuf_with_a_registry_names_the_message(registry: str) -> None:
    orders = formats.protobuf(MESSAGES["Order"], registry=registry, subject="s").codec(Order)
    messages = orders.encode(batch(Order, ORDERS))
    assert {m[0] for m in messages} == {0} and back(orders, messages) == ORDERS
    visits = formats.protobuf(MESSAGES["Visit"], registry=registry).codec(Visit)
    with pytest.raises(InputError, match="another message than Visit"):
        visits.decode(messages)


def test_what_is_no_protobuf_is_told_apart() -> None:
    codec = formats.protobuf(MESSAGES["Order"]).codec(Order)
    good = codec.encode(batch(Order, ORDERS))
    found = formats.sift([good[0], b"\xff\xff", good[1][:-1] + b"\xff"], codec.decode, Order)
    assert list(found.at) == [0] and [n for n, _ in found.bad] == [1, 2]


def test_what_protobuf_does_not_have_is_refused() -> None:
    class Other(NamedTuple):
        time: int
        shop: str

    with pytest.raises(GraphError, match="Order has no field 'shop'"):
        formats.protobuf(MESSAGES["Order"]).codec(Other)
    with pytest.raises(ConfigError, match="is no class of Protobuf messages"):
        formats.protobuf(Order)
