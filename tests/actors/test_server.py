"""Who may read a log, and from where on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from raystream.actors.shell import Shell
from raystream.actors.subscription import RECONNECT_SECONDS, Subscription
from raystream.actors.wire import Decoder, Ticket
from raystream.dataflow.pieces import Piece
from raystream.errors import JobError
from raystream.schema.columns import arrow_schema
from raystream.schema.types import KeyRange
from raystream.testing import Collect
from tests.actors.shells import TOKEN, Shells, shells_of
from tests.flows import running, word_flow

ALL = KeyRange(0, 256)
READER = "running/0"
"""The instance that the source's subscribers pretend to be."""


@pytest.fixture(scope="module")
def done() -> Iterator[Shells]:
    """A job that has ended and still serves its logs, trimmed up to its first cut."""
    with shells_of(word_flow(Collect(), running), cut_every=50) as shells:
        shells.start()
        shells.until(lambda: all(s.machine.ended for s in shells.shells))
        for shell in shells.shells:
            shell.commit(50, 50)
        shells.until(lambda: first_of(shells.of("rows")[0]) > 50)
        yield shells


@pytest.fixture
def source(done: Shells) -> Shell:
    return done.of("rows")[0]


def ask(shell: Shell, ticket: bytes) -> Any:
    with flight.connect(shell.address) as client:
        return client.do_get(flight.Ticket(ticket)).read_chunk()


def edge_of(shell: Shell) -> Any:
    return shell.vertex.outputs[0]


def first_of(shell: Shell) -> int:
    return shell.machine.outlets.logs[edge_of(shell).id].first


@pytest.mark.parametrize("token", ["", "other", "tokén", TOKEN + " "])
def test_another_token_is_refused(source: Shell, token: str) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError, match="not of this run of the job"):
        ask(source, Ticket(token, READER, edge_of(source).id, ALL, first_of(source)).pack())


def test_a_trimmed_epoch_is_refused_by_name(source: Shell) -> None:
    first = first_of(source)
    assert first > 1
    with pytest.raises(
        flight.FlightServerError, match=f"epoch 1 of edge 0 was trimmed: the log begins at {first}"
    ):
        ask(source, Ticket(TOKEN, READER, edge_of(source).id, ALL, 1).pack())


def test_an_unknown_edge_is_refused(source: Shell) -> None:
    with pytest.raises(flight.FlightServerError, match="edge 77 does not start here"):
        ask(source, Ticket(TOKEN, READER, 77, ALL, 1).pack())


@pytest.mark.parametrize("keys", [KeyRange(0, 257), KeyRange(-1, 3), KeyRange(7, 7)])
def test_key_groups_that_are_not_there_are_refused(source: Shell, keys: KeyRange) -> None:
    with pytest.raises(flight.FlightServerError, match="key groups"):
        ask(source, Ticket(TOKEN, READER, edge_of(source).id, keys, first_of(source)).pack())


def test_what_is_no_ticket_is_refused(source: Shell) -> None:
    with pytest.raises(flight.FlightServerError, match="not a raystream subscription"):
        ask(source, b"hello")


def follow(shell: Shell, **changes: Any) -> tuple[list[Piece], list[BaseException]]:
    """What a subscription delivers, and what it fails with."""
    pieces: list[Piece] = []
    errors: list[BaseException] = []
    told = {"token": TOKEN, "first": first_of(shell), "address": shell.address, **changes}
    subscription = Subscription(
        edge_of(shell), told["address"], told["token"], READER, ALL, lambda: told["first"] - 1,
        lambda edge, piece: pieces.append(piece), errors.append)  # fmt: skip
    subscription.start()
    subscription.join(30.0)
    return pieces, errors


def test_a_cursor_replays_from_any_epoch_that_is_kept(source: Shell) -> None:
    last = source.machine.position
    for first in (first_of(source), last - 2, last):
        pieces, errors = follow(source, first=first)
        assert not errors
        assert [p.header.epoch for p in pieces] == list(range(first, last + 1))
        assert pieces[-1].header.ended


def test_a_cursor_leaves_out_what_was_trimmed_before_it_came_there(source: Shell) -> None:
    """After a recovery a consumer may have applied an epoch that it was sent by the instance that
    died; what replaces it may trim that epoch before it has served it."""
    subscriber = (edge_of(source).id, READER)
    entries = source.server._await(subscriber, first_of(source) - 5)
    assert entries[0].epoch == first_of(source)


def test_a_refusal_of_what_was_applied_meanwhile_is_no_failure(source: Shell) -> None:
    pieces: list[Piece] = []
    errors: list[BaseException] = []
    applied = iter([0])
    subscription = Subscription(
        edge_of(source), source.address, TOKEN, READER, ALL,
        lambda: next(applied, first_of(source)),
        lambda edge, piece: pieces.append(piece), errors.append)  # fmt: skip
    subscription.start()
    subscription.join(30.0)
    assert not errors
    assert pieces[0].header.epoch == first_of(source) + 1


def test_a_refused_subscription_fails_at_once(source: Shell) -> None:
    pieces, (error,) = follow(source, token="other")
    assert isinstance(error, JobError) and not pieces
    assert str(error) == (
        f"{source.address} refused a subscription: this token is not of this run of the job"
    )


def test_a_subscription_gives_up_where_nobody_serves(
    source: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.actors.subscription.RECONNECT_SECONDS", 0.0)
    _, (error,) = follow(source, address="grpc://127.0.0.1:1")
    assert isinstance(error, JobError)
    assert "no connection to grpc://127.0.0.1:1" in str(error)


class Flaky(flight.FlightServerBase):  # type: ignore[misc]
    """Stands before a log and cuts the connection after each message."""

    def __init__(self, behind: Shell) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.behind = behind
        self.asked: list[int] = []

    def do_get(self, context: Any, ticket: Any) -> Any:
        self.asked.append(Ticket.unpack(ticket.ticket).first)
        client = flight.connect(self.behind.address)
        reader = client.do_get(ticket)

        def one() -> Iterator[Any]:
            with client:
                chunk = reader.read_chunk()
                yield chunk.data, chunk.app_metadata.to_pybytes()
                reader.cancel()
            if len(self.asked) % 2:
                raise flight.FlightUnavailableError("gone")

        return flight.GeneratorStream(reader.schema, one())


def test_a_broken_connection_goes_on_where_it_was(source: Shell) -> None:
    with Flaky(source) as flaky:
        pieces, errors = follow(source, address=f"grpc://127.0.0.1:{flaky.port}")
    assert not errors
    assert [p.header.epoch for p in pieces] == list(
        range(first_of(source), source.machine.position + 1)
    )
    assert len(flaky.asked) > 1


class Silent(Flaky):
    """Stands before a log; refuses once, then says nothing for long and breaks, then is well."""

    def __init__(self, behind: Shell, clock: Any) -> None:
        super().__init__(behind)
        self.clock = clock

    def do_get(self, context: Any, ticket: Any) -> Any:
        self.asked.append(0)
        if len(self.asked) == 1:
            raise flight.FlightUnavailableError("not assigned (yet)")
        if len(self.asked) > 2:
            return super().do_get(context, ticket)
        self.clock.looked.clear()

        def none() -> Iterator[Any]:
            assert self.clock.looked.wait(30)  # the subscription has seen that it is connected
            self.clock.now += 10 * RECONNECT_SECONDS
            raise flight.FlightUnavailableError("gone")
            yield

        return flight.GeneratorStream(arrow_schema(edge_of(self.behind).schema), none())


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looked = threading.Event()

    def monotonic(self) -> float:
        self.looked.set()
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_limit_of_reconnecting_does_not_run_while_it_is_connected(
    source: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("raystream.actors.subscription.time", clock)
    with Silent(source, clock) as silent:
        pieces, errors = follow(source, address=f"grpc://127.0.0.1:{silent.port}")
    assert not errors
    assert pieces[-1].header.ended


def test_serving_ends_with_the_shell() -> None:
    with shells_of(word_flow(Collect(), running)) as shells:
        shell = shells.of("rows")[0]
        ticket = Ticket(TOKEN, READER, edge_of(shell).id, ALL, 1).pack()
        client = flight.connect(shell.address)
        reader = client.do_get(flight.Ticket(ticket))
        ended = threading.Event()

        def read() -> None:
            with pytest.raises((StopIteration, flight.FlightError, pa.ArrowException)):
                reader.read_chunk()
            ended.set()

        thread = threading.Thread(target=read)
        thread.start()
    assert ended.wait(30)
    thread.join()
    client.close()


def test_the_decoder_is_what_a_subscription_uses(source: Shell) -> None:
    decoder = Decoder(edge_of(source).schema, ALL)
    with flight.connect(source.address) as client:
        ticket = Ticket(TOKEN, READER, edge_of(source).id, ALL, first_of(source))
        chunk = client.do_get(flight.Ticket(ticket.pack())).read_chunk()
        found = list(decoder.pieces(chunk.data, chunk.app_metadata.to_pybytes()))
    assert found[0].header.epoch == first_of(source)
