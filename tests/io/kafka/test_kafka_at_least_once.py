"""The sink that is at least once, on a producer in memory: a checkpoint waits for its messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import raystream as rs
from raystream.errors import OutputError
from raystream.io.kafka import sink as sinks
from tests.io.databases.words import Counted

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
ROWS = [Counted("abcdefg"[i % 7], i) for i in range(30)]


class Producer:
    """Messages arrive when it is flushed. What it holds is lost with its process."""

    def __init__(self, arrived: list[Any], told: Callable[[Any, Any], None]) -> None:
        self.arrived, self.told = arrived, told
        self.held: list[Any] = []
        self.taken = 1 << 20
        """How many messages the cluster takes at a flush."""

    def poll(self, seconds: float) -> int:
        return 0

    def flush(self, seconds: float) -> int:
        taken, self.held = self.held[: self.taken], self.held[self.taken :]
        self.arrived += taken
        return len(self.held)


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[Producer]:
    """All that are made; no cluster."""
    made: list[Producer] = []
    arrived: list[Any] = []

    def producer(settings: Any, transactional: Any, told: Any) -> Producer:
        made.append(Producer(arrived, told))
        return made[-1]

    monkeypatch.setattr(sinks, "producer", producer)
    monkeypatch.setattr(sinks, "admin", lambda settings: None)
    monkeypatch.setattr(sinks, "partitions_there", lambda client, topic: 1)
    monkeypatch.setattr(sinks, "send", lambda client, topic, messages: client.held.extend(messages))
    made.append(Producer(arrived, lambda error, message: None))
    return made


def sink() -> Any:
    return rs.io.kafka("t", servers="localhost:1", exactly_once=False)


def test_no_message_is_lost_whatever_dies_and_some_come_again(producers: list[Producer]) -> None:
    arrived = producers[0].arrived
    again: list[int] = []

    def read() -> set[Any]:
        found = [Counted(**json.loads(m.value)) for m in arrived]
        again.append(len(found) - len({*found}))
        return {*found}

    rs.testing.check_sink(sink, ROWS, read=read, clear=arrived.clear)
    assert max(again) > 0


def test_a_checkpoint_fails_whose_messages_have_not_arrived(producers: list[Producer]) -> None:
    out = sink()
    out.open(None)
    out.write(1, rs.KeyRange(0, 256), rs.Batch(Counted, {"word": ["a", "b"], "n": [1, 2]}))
    producers[-1].taken = 1
    with pytest.raises(OutputError, match="has not taken 1 messages within 60 s"):
        out.prepare(1)
