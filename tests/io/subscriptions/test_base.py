"""What all subscriptions share: messages that are no records, and where they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

import raystream as rs
from raystream.errors import InputError
from raystream.io.subscriptions.base import (
    Incoming,
    MessageConnection,
    SubscribedSource,
    missing,
)
from raystream.io.subscriptions.waiting import again_and_again
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


class Restarted(MessageConnection):
    """Connections to a server that was started again. Each of them gives a message and breaks, or
    finds that the server does not have what is to be read (None)."""

    def __init__(self, of: SubscribedSource[Any], *each: Incoming | None) -> None:
        self._of, self._each = of, iter(each)

    def messages(self) -> Iterator[Sequence[Incoming]]:
        return again_and_again(self._attempt, (EOFError,), self._of)

    def _attempt(self) -> Iterator[Sequence[Incoming]]:
        one = next(self._each)
        if one is None:
            raise missing(self._of, "no queue", "Make it.")
        yield [one]
        raise EOFError("the connection has ended")


class RestartedSource(SubscribedSource[Any]):
    """Reads them."""

    def __init__(self, *each: Incoming | None, give_up: float = 60.0) -> None:
        super().__init__(Reading, None, "rooms")
        self.each, self.give_up = each, give_up

    def connect(self, split: int, since: int | None) -> MessageConnection:
        return Restarted(self, *self.each)


def reading(time: int) -> Incoming:
    return Incoming(b'{"time": %d, "room": "hall"}' % time)


def test_what_is_gone_for_a_moment_after_a_restart_is_waited_for() -> None:
    source = RestartedSource(reading(1), None, None, reading(2), None, reading(3))
    assert [r.time for r in Reader(source).take(3)] == [1, 2, 3]


@pytest.mark.parametrize("recorded", [{}, {"at": 7}, {"id-9": 1}])
def test_what_was_never_there_is_refused_at_once(recorded: Mapping[str, int]) -> None:
    """Unless the record says that it was there: another process has read it."""
    source = RestartedSource(None, reading(1))
    source.knows(source.splits()[0], recorded)
    if recorded:
        assert [r.time for r in Reader(source).take(1)] == [1]
        return
    with pytest.raises(InputError, match="rooms cannot be read: no queue") as raised:
        Reader(source).take(1)
    assert raised.value.hint == "Make it."


def test_what_stays_gone_is_given_up() -> None:
    source = RestartedSource(reading(1), *[None] * 1000, give_up=0.3)
    with pytest.raises(InputError, match="rooms cannot be read: no queue"):
        Reader(source).take(2)
    once = RestartedSource(None).once()
    once.knows(once.splits()[0], {"at": 7})
    with pytest.raises(InputError, match="no queue"):
        Reader(once).take(1)
