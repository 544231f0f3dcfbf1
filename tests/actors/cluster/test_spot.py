"""The notice that EC2 takes a machine away: found with IMDSv2, and told until it is heard."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from raystream.actors.cluster.spot import Metadata, Notice, node_on, watch
from tests.actors.helpers.metadata import FakeMetadata, fake_metadata

ACTION = "spot/instance-action"
TOLD = '{"action": "terminate", "time": "2026-09-18T08:22:00Z"}'
NOTICE = Notice("terminate", 1789719720.0)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMetadata]:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # which is not to be asked
    with fake_metadata() as served:
        yield served


def test_there_is_no_notice_until_there_is(fake: FakeMetadata) -> None:
    metadata = Metadata(fake.url)
    assert metadata.notice() is None
    fake.entries[ACTION] = TOLD
    assert metadata.notice() == NOTICE
    assert fake.given == 1


def test_a_token_that_is_too_old_is_replaced(fake: FakeMetadata) -> None:
    metadata = Metadata(fake.url)
    metadata.notice()
    fake.tokens.clear()
    fake.entries["instance-id"] = "i-0123"
    assert metadata.get("meta-data/instance-id") == "i-0123"
    assert fake.given == 2


@pytest.mark.parametrize("text", ["", "terminate", "[]", '{"action": "stop"}', '{"time": 3}'])
def test_a_notice_that_nobody_understands_is_told(fake: FakeMetadata, text: str) -> None:
    fake.entries[ACTION] = text
    with pytest.raises(OSError, match="nobody understands"):
        Metadata(fake.url).notice()


def test_a_service_that_takes_back_every_token_is_an_error(
    fake: FakeMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fake, "tokens", type("Never", (list,), {"__contains__": lambda *_: False})()
    )
    with pytest.raises(OSError, match="refuses the token"):
        Metadata(fake.url).notice()


def test_trouble_is_said_once_and_the_node_is_drained_in_the_end(
    fake: FakeMetadata, caplog: pytest.LogCaptureFixture
) -> None:
    fake.entries |= {"instance-id": "i-0123", "local-ipv4": "10.0.0.7"}
    drained = []
    refusals = ["not now", "not now", ""]

    def drain(instance: str, address: str, notice: Notice) -> str:
        if refusal := refusals.pop(0):
            raise OSError(refusal)
        drained.append((instance, address, notice))
        return "node"

    looks = iter(["", "failing", "failing", "", "notice", "", ""])

    def wait() -> None:
        look = next(looks)
        fake.failing = 503 if look == "failing" else 0
        if look == "notice":
            fake.entries[ACTION] = TOLD

    with caplog.at_level(logging.INFO):
        assert watch(Metadata(fake.url), drain, wait) == "node"
    assert drained == [("i-0123", "10.0.0.7", NOTICE)]
    said = [r.message for r in caplog.records]
    assert said == [
        "HTTP Error 503: Service Unavailable; trying again",
        "the metadata of the instance can be read again",
        "not now; trying again",
    ]


def test_a_service_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="refused"):
        Metadata("http://127.0.0.1:1").notice()


NODES = [("a", "i-1", "10.0.0.1"), ("b", "", "10.0.0.2"), ("c", "", "10.0.0.3"), ("d", "", "")]


def test_the_node_of_an_instance_is_known_by_its_id_or_else_its_address() -> None:
    assert node_on(NODES, "i-1", "10.0.0.2") == "a"
    assert node_on(NODES, "i-2", "10.0.0.2") == "b"
    assert node_on(NODES, "", "10.0.0.3") == "c"


@pytest.mark.parametrize(("instance", "address"), [("i-2", "10.0.0.9"), ("", "")])
def test_no_other_node_is_taken_for_it(instance: str, address: str) -> None:
    with pytest.raises(OSError, match="no nodes of the cluster are on"):
        node_on(NODES, instance, address)
    with pytest.raises(OSError, match="2 nodes"):
        node_on([*NODES, ("e", "i-2", ""), ("f", "i-2", "")], "i-2", "10.0.0.1")
