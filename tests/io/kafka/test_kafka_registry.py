"""`raystream check` of topics whose messages name their schemas."""

from __future__ import annotations

from typing import Any, NamedTuple

import raystream as rs
from raystream.cli.check import Tried, check
from raystream.io import formats
from tests.kafka_server import Kafka
from tests.processes import free_port
from tests.registry_server import RegistryServer


class Order(NamedTuple):
    shop: str
    n: int


def asked(kafka: Kafka, settings: Any) -> list[Tried]:
    """What a source and a sink say whose keys and values are Avro."""
    avro = formats.avro(registry=settings)
    flow, given = rs.Flow("registered"), {"servers": kafka.servers, "format": avro, "key": "shop"}
    orders = flow.source(rs.io.kafka("registered", Order, key_format=avro, **given))
    orders.to(rs.io.kafka("copies", create=True, **given))
    return check(flow, 60.0)


def test_subjects_of_keys_and_values_are_said(kafka: Kafka, registry: RegistryServer) -> None:
    kafka.topic("registered")
    source, sink = asked(kafka, registry.settings)
    assert not source.ok and "has no subject registered-value" in source.said
    assert sink.ok and sink.said.endswith(
        "has no subject copies-value yet: the first message makes it"
    )
    flow = rs.Flow("orders")
    avro = formats.avro(registry=registry.settings)
    flow.source(rs.io.iterable([Order("north", 1)], Order), epochs=rs.by_arrival()).to(
        rs.io.kafka("registered", servers=kafka.servers, key="shop", format=avro, key_format=avro)
    )
    flow.run()
    place = f"the schema registry at {registry.place}"
    assert asked(kafka, registry.settings)[0].said == (
        "1 partition, 2 offsets; read a record (Order) of registered/0;"
        f" {place} has registered-value in version 1; {place} has registered-key in version 1"
    )


def test_a_wrong_registry_fails_both_ways(kafka: Kafka, registry: RegistryServer) -> None:
    kafka.topic("registered-twice")
    wrong = {**registry.settings, "basic.auth.user.info": "ann:battery"}
    for settings, said in (
        (wrong, "does not let this user in"),
        (f"http://ann:battery@127.0.0.1:{free_port()}", "cannot be asked"),
    ):
        for answer in asked(kafka, settings):
            assert not answer.ok and said in answer.said and answer.hint
            assert "battery" not in str(answer)
