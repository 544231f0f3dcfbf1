"""A queue as a source: SQS, as moto serves it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

import raystream as rs
from raystream.errors import ConfigError, InputError, caller
from tests.io.subscriptions.reading import Reader, Reading, Text
from tests.processes import free_port


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client("sqs", endpoint_url=f"http://{host}:{port}")
    yield client
    client.close()
    server.stop()


def queue(sqs: Any, visible: int = 300, name: str = "") -> str:
    name = name or f"rooms-{uuid.uuid4().hex}"  # moto keeps what was there before in this process
    made = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": str(visible)})
    url: str = made["QueueUrl"]
    return url


def send(sqs: Any, url: str, *times: int) -> None:
    for time in times:
        sqs.send_message(QueueUrl=url, MessageBody=f'{{"time": {time}, "room": "hall"}}')


def left(sqs: Any, url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(map(int, found.values()))


def test_messages_are_deleted_when_they_are_recorded(sqs: Any) -> None:
    url = queue(sqs)
    send(sqs, url, *range(12))
    reader = Reader(rs.io.sqs(url, Reading))
    assert sorted(r.time for r in reader.take(12)) == [*range(12)]
    assert left(sqs, url) == 12
    reader.acknowledge()
    assert reader.silent(looks=1)
    assert left(sqs, url) == 0
    reader.stop()


def test_a_check_takes_no_message(sqs: Any) -> None:
    url = queue(sqs)
    send(sqs, url, *range(3))
    assert rs.io.sqs(url, Reading).check().endswith("has about 3 messages")
    reader = Reader(rs.io.sqs(url, Reading))
    assert sorted(r.time for r in reader.take(3)) == [0, 1, 2]  # none is hidden
    reader.stop()


def test_what_was_not_deleted_comes_again_under_the_same_id(sqs: Any) -> None:
    url = queue(sqs, visible=0)
    send(sqs, url, 1)
    first = Reader(rs.io.sqs(url, Reading))
    assert [r.time for r in first.take(1)] == [1]
    first.stop()
    second = Reader(rs.io.sqs(url, Reading))
    second.take(1)
    assert second.numbers()[0] == first.numbers()[0]
    second.acknowledge()
    second.stop()  # which deletes what is recorded
    assert left(sqs, url) == 0


def test_a_queue_that_is_gone_for_a_while_is_waited_for(sqs: Any) -> None:
    url = queue(sqs)
    send(sqs, url, 1)
    reader = Reader(rs.io.sqs(url, Reading))
    assert [r.time for r in reader.take(1)] == [1]
    sqs.delete_queue(QueueUrl=url)
    assert reader.silent()
    assert queue(sqs, name=url.rpartition("/")[2]) == url
    send(sqs, url, 2)
    assert [r.time for r in reader.take(1)] == [2]
    reader.stop()


def test_messages_have_a_format_and_splits_share_a_queue(sqs: Any) -> None:
    url = queue(sqs)
    send(sqs, url, 1)
    form = rs.io.formats.raw()
    source = rs.io.sqs(url, Text, splits=2, region="eu-central-1", format=form, give_up=5.0)
    assert len(source.splits()) == 2
    reader = Reader(source)
    assert reader.take(1) == [Text('{"time": 1, "room": "hall"}')]
    reader.stop()


def test_what_cannot_be_is_refused_in_words(sqs: Any) -> None:
    with pytest.raises(InputError, match=r"sqs none-.* at http://127.* cannot be read: "):
        Reader(rs.io.sqs(queue(sqs).replace("rooms", "none"), Reading)).take(1)
    with pytest.raises(InputError, match=r"sqs none-.* at http://127.* cannot be read: "):
        rs.io.sqs(queue(sqs).replace("rooms", "none"), Reading).check()
    server = f"http://127.0.0.1:{free_port()}"
    nobody = rs.io.sqs(f"{server}/1/q", Reading)
    with pytest.raises(InputError, match=f"sqs q at {server} cannot be read: EndpointConn"):
        nobody.check()
    with pytest.raises(ConfigError, match="begins with https://"):
        rs.io.sqs("queue", Reading)


def test_a_message_that_is_no_record_is_recorded_as_such(sqs: Any) -> None:
    """It does not end the job, and is deleted like all others."""
    url = queue(sqs)
    for body in ('{"time": 1, "room": "hall"}', "oops"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    reader = Reader(rs.io.sqs(url, Reading, bad="stream"))
    found = {r.raystream_data: (r.time, r.room) for r in reader.take(2)}
    assert found == {None: (1, "hall"), b"oops": (0, None)}
    reader.acknowledge()
    assert reader.silent(looks=1) and left(sqs, url) == 0
    reader.stop()
    assert len(rs.io.sqs(url, Reading, bad="stream").stages(caller()[0])) == 2
