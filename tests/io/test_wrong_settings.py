"""What connectors refuse before they connect, and how: with the line of the user, and no secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import ConfigError
from raystream.io.addresses import secrets_in, shown_address, without_secrets
from raystream.io.aws import advice_of, is_final, words_of

PASSWORD = "battery"
CHANGES = {"table": "rooms", "operation": None}


class Reading(NamedTuple):
    time: int
    room: str


def mqtt(host: str, topic: str = "rooms/#", **options: Any) -> Any:
    return rs.io.mqtt(host, topic, Reading, client="job", **options)


def kafka(servers: str) -> Any:
    return rs.io.kafka("t", Reading, servers=servers)


def given(record: type[Any] | None = Reading, /, **settings: Any) -> Any:
    """Topics with settings of librdkafka, as a source or as a sink. `_` stands for a dot."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    kinds = () if record is None else (record,)
    return rs.io.kafka("t", *kinds, servers="h:9092", settings=named)


WRONG: list[tuple[str, Callable[[], Any], str]] = [
    ("redis", lambda: rs.io.redis("redis://:battery@h:p", "s", Reading), "'redis://h:p'.* port"),
    ("redis", lambda: rs.io.redis("redis://:battery@", "s", Reading), "there is no host"),
    ("redis", lambda: rs.io.redis("redis://:battery@h?x=1", "s", Reading), "keyword argument 'x'"),
    ("redis", lambda: rs.io.redis("redis://h?socket_timeout=x", "s", Reading), "'socket_timeout'"),
    ("nats", lambda: rs.io.nats("nats://a:battery@h:p", "s", Reading), "'nats://h:p'.*no number"),
    ("nats", lambda: rs.io.nats("nats://h:0", "s", Reading), "its port is no number"),
    ("pika", lambda: rs.io.rabbitmq("amqp://a:battery@h:p", "q", Reading), "its port"),
    ("pika", lambda: rs.io.rabbitmq("amqp://a:battery@h?x=1", "q", Reading), "cannot be read"),
    ("boto3", lambda: rs.io.sqs("http://a:battery@h:p/1/q", Reading), "its port"),
    ("boto3", lambda: rs.io.sqs("http://h:1", Reading), "of a queue, and not of a server"),
    ("boto3", lambda: rs.io.sqs("http://h:1/1/q", Reading, region="a b"), "name of a region"),
    ("boto3", lambda: rs.io.kinesis("s", Reading, region="a b"), "name of a region"),
    ("boto3", lambda: rs.io.kinesis("s", region=7), "name of a region"),  # type: ignore[call-overload]
    ("paho", lambda: mqtt("mqtt://ann:battery@h"), r"mqtt\(\.\.\.\): the name or the address of a"),
    ("paho", lambda: mqtt("h:1883"), "'h:1883'"),
    ("paho", lambda: mqtt("h", "rooms/#/x"), "'rooms/#/x'.*: no topic of MQTT"),
    ("paho", lambda: mqtt("h", "ro+ms"), "no topic of MQTT"),
    ("paho", lambda: mqtt("h", password=PASSWORD), "needs user="),
    ("confluent_kafka", lambda: kafka("ann:battery@h:9092"), r"servers='\.\.\.'"),
    ("confluent_kafka", lambda: given(securty_protocol="ssl"), 'No such .* "securty.protocol"'),
    ("confluent_kafka", lambda: given(None, value_serializer="x"), "No such .* property"),
    ("confluent_kafka", lambda: given(security_protocol="x"), 'value "x" .*"security.protocol"'),
    ("confluent_kafka", lambda: given(None, compression_type="zstd9"), "Invalid value"),
    ("confluent_kafka", lambda: given(fetch_min_bytes=-1), "outside allowed range"),
    (
        "psycopg",
        lambda: rs.io.postgres("mysql://a:battery@h", table="t"),
        r"postgres\(url\): missing",
    ),
    ("psycopg", lambda: rs.io.postgres("postgresql://a:battery@h/d?x=1", table="t"), "URI query"),
    (
        "psycopg",
        lambda: rs.io.postgres_changes("mysql://a:battery@h", Reading, **CHANGES),
        r"postgres_changes\(url\): missing",
    ),
    (
        "psycopg",
        lambda: rs.io.postgres_rows("mysql://a:battery@h", Reading, table="t", rising="time"),
        r"postgres_rows\(url\): missing",
    ),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_it_is_refused_where_it_is_written(case: int) -> None:
    package, make, said = WRONG[case]
    pytest.importorskip(package, reason=f"the package {package} is not installed")
    with pytest.raises(ConfigError, match=said) as raised:
        make()
    assert raised.value.where is not None and raised.value.where.file == __file__
    assert PASSWORD not in str(raised.value.message)


def test_an_address_of_the_sixth_version_is_one() -> None:
    pytest.importorskip("paho", reason="the package paho-mqtt is not installed")
    assert mqtt("::1").place == "mqtt rooms/# at mqtt://[::1]:1883"
    assert mqtt("h", "$SYS/+/x", tls=True).place == "mqtt $SYS/+/x at mqtts://h:1883"


def test_addresses_are_shown_without_secrets() -> None:
    url = "http://ann:cor%40rect@a:1/x?key=1,http://b"
    assert shown_address(url) == "http://a:1/x,http://b"
    assert {"cor%40rect", "cor@rect"} <= {*secrets_in(url)}
    assert without_secrets(["user", "us"], "the user used us") == "the *** used ***"


def test_errors_of_boto3_say_what_to_do() -> None:
    exceptions = pytest.importorskip("botocore.exceptions", reason="boto3 is not installed")
    answer = {"Error": {"Code": "InvalidSignatureException", "Message": "It expired."},
              "ResponseMetadata": {"MaxAttemptsReached": True, "RetryAttempts": 0}}  # fmt: skip
    wrong = exceptions.ClientError(answer, "ListShards")
    assert words_of(wrong) == "It expired. (InvalidSignatureException)"
    assert "AWS_SECRET_ACCESS_KEY" in advice_of(wrong) and is_final(wrong)
    assert is_final(exceptions.NoRegionError()) and "region=" in advice_of(
        exceptions.NoRegionError()
    )
    assert "AWS_PROFILE" in advice_of(exceptions.ProfileNotFound(profile="p"))
    gone = exceptions.EndpointConnectionError(endpoint_url="http://h")
    assert not is_final(gone) and "http://h" in words_of(gone)


def test_settings_that_are_of_the_machines_of_the_job_are_not_looked_at() -> None:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    given(ssl_ca_location="/nowhere/ca.pem", sasl_username="ann", sasl_password=PASSWORD)
    given(None, ssl_keystore_location="/nowhere/keys")
    given(plugin_library_paths="/nowhere/of-mine", of_mine="x")
