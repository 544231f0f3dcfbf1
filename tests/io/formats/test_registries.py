"""`raystream check` asks schema registries, and says without secrets what is wrong with one."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import ConfigError, InputError, JobError
from raystream.io import formats
from tests.processes import free_port
from tests.registry_server import RegistryServer

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")


class Order(NamedTuple):
    time: int
    user: str


class Longer(NamedTuple):
    time: int
    user: str
    note: str | None = None


class Shorter(NamedTuple):
    time: int


def look(settings: Any, *, writes: bool, record: Any = Order, subject: str = "orders-value") -> str:
    codec = formats.avro(registry=settings).codec(record, subject=subject)
    return codec.check(writes=writes)


def written(registry: RegistryServer) -> list[bytes]:
    codec = formats.avro(registry=registry.settings).codec(Order, subject="orders-value")
    return codec.encode(rs.Batch(Order, {"time": [1], "user": ["ann"]}))


def test_the_subject_and_its_version_are_said(registry: RegistryServer) -> None:
    place = f"the schema registry at {registry.place}"
    with pytest.raises(InputError, match=r"has no subject orders-value\n.*subject= names another"):
        look(registry.settings, writes=False)
    assert look(registry.settings, writes=True).endswith("yet: the first message makes it")
    written(registry)
    there = f"{place} has orders-value in version 1"
    assert look(registry.settings, writes=False) == there
    assert look(registry.settings, writes=True) == f"{there}, and version 1 is written"
    longer = look(registry.settings, writes=True, record=Longer)
    assert longer == f"{there}, and the first message makes a new one"
    with pytest.raises(ConfigError, match="refuses the schema of orders-value"):
        look(registry.settings, writes=True, record=Shorter)
    assert len(registry.subjects["orders-value"]) == 1, "a check registers nothing"


def test_without_a_subject_a_registry_has_to_answer(registry: RegistryServer) -> None:
    assert look(registry.settings, writes=False, subject="").endswith(" answers")
    with pytest.raises(ConfigError, match="none is known here"):
        look(registry.settings, writes=True, subject="")


def test_a_schema_of_another_kind_is_refused(registry: RegistryServer) -> None:
    registry.subjects["orders-value"] = [{"schema": "", "schemaType": "JSON"}]
    with pytest.raises(InputError, match="has schemas of JSON under orders-value, and not of AVRO"):
        look(registry.settings, writes=False)


def wrong_settings(registry: RegistryServer) -> list[tuple[Any, str]]:
    login = {"basic.auth.user.info": "ann:battery"}
    nobody = f"127.0.0.1:{free_port()}"
    return [
        ({"url": registry.place}, f"at {registry.place} does not let this user in"),
        ({"url": registry.place, **login}, '401\n.*"basic.auth.user.info" in registry='),
        (registry.place.replace("//", "//ann:battery@"), "does not let this user in"),
        (
            {**registry.settings, "url": f"{registry.place}/x"},
            "does not answer as one: HTTP",
        ),
        ({**registry.settings, "url": f"http://{nobody}"}, f"at http://{nobody} cannot be asked"),
        (f"http://ann:battery@{nobody}", "Connection refused\n.*Does it run"),
        (f"ftp://ann:battery@{nobody}", r"registry=: Invalid url ftp://\*\*\*@"),
        ({"url": registry.place, "basic.auth.user": "x"}, "Unrecognized properties"),
        ({"url": registry.place, "cache.capacity": "x"}, "must be a number"),
    ]


@pytest.mark.parametrize("case", range(9))
def test_what_is_wrong_is_said_without_secrets(registry: RegistryServer, case: int) -> None:
    settings, said = wrong_settings(registry)[case]
    written(registry)
    with pytest.raises((JobError, ConfigError), match=said) as raised:
        look(settings, writes=False)
    assert "battery" not in str(raised.value) and raised.value.hint


def test_messages_are_not_bad_because_the_registry_lets_nobody_in(registry: RegistryServer) -> None:
    messages = written(registry)
    for wrong in ({"url": registry.place}, {**registry.settings, "url": f"{registry.place}/x"}):
        given = {**wrong, "max.retries": 0}
        with pytest.raises(JobError, match=f"the schema registry at {registry.place}") as raised:
            formats.avro(registry=given).codec(Order).decode(messages)
        assert not isinstance(raised.value, InputError)
