"""What all subscriptions share: messages that are no records, and where they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import raystream as rs
from raystream.errors import InputError
from raystream.io.subscriptions.base import Incoming, MessageConnection, SubscribedSource
from tests.io.subscriptions.reading import Reader, Reading
from tests.registry_server import RegistryServer

SECRET = b'{"time": "4711-secret", "room": "hall"}'


class Given(MessageConnection):
    """Messages that are there."""

    def __init__(self, *given: Incoming) -> None:
        self._given = given

    def messages(self) -> Iterator[Sequence[Incoming]]:
        yield self._given


class GivenSource(SubscribedSource[Any]):
    """Reads them."""

    def __init__(self, *given: Incoming, format: Any = None) -> None:
        super().__init__(Reading, format, "rooms")
        self._given = given

    def connect(self, split: int, since: int | None) -> MessageConnection:
        return Given(*self._given)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (Incoming(SECRET), "rooms"),
        (Incoming(SECRET, 17), "rooms, message 17"),
        (Incoming(SECRET, 1, sender="id-9"), "rooms, message id-9"),
    ],
)
def test_a_message_that_is_no_record_is_named_by_its_place(message: Incoming, place: str) -> None:
    """Its content is shown where values are, and not elsewhere."""
    flow = rs.Flow("rooms")
    source = flow.source(GivenSource(message), epochs=rs.by_arrival())
    source.to(rs.io.console())
    with pytest.raises(InputError, match=f"{place}: .*4711-secret"):
        flow.run(values=True)
    with pytest.raises(InputError, match=f"{place}: the message is no Reading as decl") as raised:
        flow.run(values=False)
    assert "4711" not in str(raised.value)


def test_a_message_with_an_id_has_no_number() -> None:
    source = GivenSource(Incoming(SECRET, 1, sender="id-9"))
    source.sifting("given", "stream")
    (found,) = Reader(source).take(1)
    assert (found.raystream_file, found.raystream_line, found.raystream_data) == (
        "rooms", -1, SECRET
    )  # fmt: skip


def test_a_check_asks_the_registry(registry: RegistryServer) -> None:
    form = rs.io.formats.avro(registry=registry.settings)
    told = f"rooms can be read; the schema registry at {registry.place} answers"
    assert GivenSource(format=form).check() == told
    form = rs.io.formats.avro(registry=registry.settings, subject="rooms")
    with pytest.raises(InputError, match="has no subject rooms"):
        GivenSource(format=form).check()
