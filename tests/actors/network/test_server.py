"""Who may read a log, and from where on."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import numpy as np
import pytest

import raystream as rs
from raystream.actors.network import frames, listener, server
from raystream.actors.network.connections import Joining, end, listen
from raystream.actors.network.frames import ACCEPTED, LATER, PIECES, REFUSED, TICKET, Frame, Reader
from raystream.actors.network.server import LogServer, ServedStream
from raystream.actors.network.subscription import RECONNECT_SECONDS
from raystream.actors.network.wire import Decoder, Ticket
from raystream.actors.worker.shell import Shell
from raystream.dataflow.pieces import Header, Piece
from raystream.errors import JobError
from raystream.schema.storing import from_records
from raystream.schema.types import KeyRange
from raystream.security.credentials import Credentials
from raystream.state.log.epoch_log import LogEntry
from raystream.testing import Collect
from tests.actors.helpers.shells import (
    TOKEN,
    Subscriber,
    edge_of,
    first_of,
    shells_of,
)
from tests.flows import Line, Order, Rows, running, word_flow
from tests.gates import LIMIT_SECONDS

ALL = KeyRange(0, 256)
READY_SECONDS = 1.0
"""After so long the first epoch of a paced job is due. Its shells are ready by then: who is behind
from the beginning has no leisure."""

PLAIN = Joining(Credentials(""))
READER = "running/0"
"""The instance that the source's subscribers pretend to be."""


def ask(shell: Shell, ticket: bytes) -> Frame:
    """The first that a log has to say to a ticket."""
    with PLAIN.connect(shell.address) as connection:
        frames.send(connection, TICKET, ticket)
        return read(connection)


def read(connection: socket.socket) -> Frame:
    with Reader(connection) as reader:
        frame = reader.read()
    assert frame is not None
    return frame


def refusal(shell: Shell, ticket: Ticket) -> str:
    frame = ask(shell, ticket.pack())
    assert frame.kind == REFUSED
    return frame.head.decode()


@pytest.mark.parametrize("token", ["", "other", "tokén", TOKEN + " "])
def test_another_token_is_refused(source: Shell, token: str) -> None:
    ticket = Ticket(token, READER, edge_of(source).id, ALL, first_of(source))
    assert refusal(source, ticket) == "this token is not of this run of the job"


def test_a_trimmed_epoch_is_refused_by_name(source: Shell) -> None:
    first = first_of(source)
    assert first > 1
    ticket = Ticket(TOKEN, READER, edge_of(source).id, ALL, 1)
    assert refusal(source, ticket) == f"epoch 1 of edge 0 was trimmed: the log begins at {first}"


def test_an_unknown_edge_is_refused(source: Shell) -> None:
    assert refusal(source, Ticket(TOKEN, READER, 77, ALL, 1)) == "edge 77 does not start here"


@pytest.mark.parametrize("keys", [KeyRange(0, 257), KeyRange(-1, 3), KeyRange(7, 7)])
def test_key_groups_that_are_not_there_are_refused(source: Shell, keys: KeyRange) -> None:
    ticket = Ticket(TOKEN, READER, edge_of(source).id, keys, first_of(source))
    assert "there are no key groups" in refusal(source, ticket)


def test_who_is_not_assigned_is_to_ask_again(source: Shell) -> None:
    ticket = Ticket(TOKEN, "running/7", edge_of(source).id, ALL, first_of(source))
    frame = ask(source, ticket.pack())
    assert (frame.kind, frame.head) == (LATER, b"running/7 is not assigned (yet)")


@pytest.mark.parametrize("said", [b"hello", b"", bytes(listener.TICKET_BYTES + 1)])
def test_what_is_no_ticket_is_refused(source: Shell, said: bytes) -> None:
    frame = ask(source, said)
    assert (frame.kind, frame.head) == (REFUSED, b"not a raystream subscription")


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"", b"\xff" * 100])
def test_who_speaks_otherwise_is_sent_away(source: Shell, said: bytes) -> None:
    with PLAIN.connect(source.address) as connection:
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        assert read(connection).kind == REFUSED


def test_who_says_nothing_is_sent_away(source: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "TICKET_SECONDS", 0.05)
    with PLAIN.connect(source.address) as connection, Reader(connection) as reader:
        assert reader.read() is None


def follow(shell: Shell, **changes: Any) -> tuple[list[Piece], list[BaseException]]:
    """What a subscription delivers, and what it fails with."""
    told = {"token": TOKEN, "first": first_of(shell), "address": shell.address, **changes}
    subscriber = Subscriber(lambda: told["first"] - 1)
    subscriber.follow(edge_of(shell), told["address"], READER, told["token"])
    return subscriber.pieces, subscriber.errors


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
    ticket = Ticket(TOKEN, READER, edge_of(source).id, ALL, first_of(source) - 5)
    with socket.socket() as nowhere:
        entries = source.server._entries(ServedStream(nowhere, ticket))
    assert entries[0].epoch == first_of(source)


def test_a_refusal_of_what_was_applied_meanwhile_is_no_failure(source: Shell) -> None:
    applied = iter([0])
    subscriber = Subscriber(lambda: next(applied, first_of(source)))
    subscriber.follow(edge_of(source), source.address, READER)
    assert not subscriber.errors
    assert subscriber.pieces[0].header.epoch == first_of(source) + 1


def test_a_refused_subscription_fails_at_once(source: Shell) -> None:
    pieces, (error,) = follow(source, token="other")
    assert isinstance(error, JobError) and not pieces
    assert str(error) == (
        f"{source.address} refused a subscription: this token is not of this run of the job"
    )


def test_a_subscription_gives_up_where_nobody_serves(
    source: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.actors.network.subscription.RECONNECT_SECONDS", 0.0)
    _, (error,) = follow(source, address="127.0.0.1:1")
    assert isinstance(error, JobError)
    assert "no connection to 127.0.0.1:1" in str(error)


class Flaky:
    """Stands before a log and cuts the connection after each message."""

    def __init__(self, behind: Shell) -> None:
        self.behind = behind
        self.asked: list[int] = []
        self._listening, self.address = listen("127.0.0.1")
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Flaky:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        end(self._listening)
        self._thread.join(30)

    def _run(self) -> None:
        with self._listening:
            while True:
                try:
                    connection, _ = self._listening.accept()
                except OSError:
                    return
                with connection:
                    self.answer(connection, read(connection).head)

    def answer(self, connection: socket.socket, ticket: bytes) -> None:
        self.asked.append(Ticket.unpack(ticket).first)
        with PLAIN.connect(self.behind.address) as behind, Reader(behind) as reader:
            frames.send(behind, TICKET, ticket)
            for _ in range(2):  # that it is accepted, and a message
                frame = reader.read()
                assert frame is not None
                frames.send(connection, frame.kind, frame.head, [frame.body.data])
        if len(self.asked) % 2:
            frames.send(connection, LATER, b"gone")


def test_a_broken_connection_goes_on_where_it_was(source: Shell) -> None:
    with Flaky(source) as flaky:
        pieces, errors = follow(source, address=flaky.address)
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

    def answer(self, connection: socket.socket, ticket: bytes) -> None:
        self.asked.append(0)
        if len(self.asked) == 1:
            frames.send(connection, LATER, b"not assigned (yet)")
        elif len(self.asked) > 2:
            super().answer(connection, ticket)
        else:
            self.clock.looked.clear()
            frames.send(connection, ACCEPTED, b"")
            assert self.clock.looked.wait(
                LIMIT_SECONDS
            )  # the subscription has seen that it is connected
            self.clock.now += 10 * RECONNECT_SECONDS


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looked = threading.Event()
        self.rests: list[tuple[float, float]] = []
        """When there was one, and how long it was."""

    def monotonic(self) -> float:
        self.looked.set()
        return self.now

    def sleep(self, seconds: float) -> None:
        self.rests.append((self.now, seconds))
        self.now += seconds


def test_the_limit_of_reconnecting_does_not_run_while_it_is_connected(
    source: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("raystream.actors.network.subscription.time", clock)
    with Silent(source, clock) as silent:
        pieces, errors = follow(source, address=silent.address)
    assert not errors
    assert pieces[-1].header.ended


def test_who_is_not_there_is_asked_ever_less_often(
    source: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first as often as a recovery needs it; each attempt costs both sides."""
    clock = Clock()
    monkeypatch.setattr("raystream.actors.network.subscription.time", clock)
    _, (error,) = follow(source, address="127.0.0.1:1")
    assert isinstance(error, JobError) and clock.now > RECONNECT_SECONDS
    assert len([at for at, _ in clock.rests if at < 0.1]) >= 9
    assert all(rest <= max(0.01, at / 10) for at, rest in clock.rests)
    assert len(clock.rests) < 6 * RECONNECT_SECONDS


@pytest.mark.parametrize("takes", [0, 1, 20, 1 << 30])
def test_what_is_not_taken_at_once_is_sent_by_the_thread_of_the_stream(
    takes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[bool] = []

    def send_now(connection: socket.socket, frame: bytes) -> bytes:
        connection.sendall(frame[:takes])
        pushed.append(takes >= len(frame))
        return frame[takes:]

    monkeypatch.setattr(server, "send_now", send_now)
    flow, sink = rs.Flow("pushed"), Collect()
    orders = tuple(Order(t, t % 7, 1) for t in range(200))
    flow.source(Rows(Order, (orders,)), epochs=rs.by_time(seconds=1, speed=200.0)).to(sink)
    with shells_of(flow) as shells:
        shells.start(time.time() + READY_SECONDS)
        shells.watch()
    assert sorted(sink.records()) == list(orders)
    assert pushed and all(pushed) == (takes > 20)


@pytest.mark.parametrize("speed", [None, 1000.0])
def test_who_has_more_to_do_at_once_leaves_nothing_at_all_to_threads(
    speed: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They send it with what follows: runs of empty epochs as one message."""
    epochs, asked = 200, list[tuple[LogServer, bool]]()
    sent, push, messages = list[int](), LogServer.push, server.messages

    def pushes(self: LogServer, at_leisure: bool) -> bool:
        asked.append((self, at_leisure))
        return push(self, at_leisure)

    def counted(entries: Any, keys: KeyRange) -> Any:
        sent.append(len(entries))
        return messages(entries, keys)

    monkeypatch.setattr(LogServer, "push", pushes)
    monkeypatch.setattr(server, "messages", counted)
    monkeypatch.setattr(server, "epoch_frame", lambda entry, keys: None)  # all are messages
    monkeypatch.setattr("raystream.actors.worker.compute_loop.BATCH", 1)  # also while it is late
    flow, sink = rs.Flow("quiet"), Collect()
    orders = (Order(0, 1, 1), Order(epochs - 1, 1, 1))
    flow.source(Rows(Order, (orders,)), epochs=rs.by_time(seconds=1, speed=speed)).to(sink)
    with shells_of(flow) as shells:
        shells.start(None if speed is None else time.time() + READY_SECONDS)
        shells.watch()
        source = shells.of("rows")[0].server
    leisures = [at_leisure for who, at_leisure in asked if who is source]
    assert any(leisures) == (speed is not None)
    assert sum(sent) == len(leisures)
    if speed is None:  # nor are they epochs of their own: a run of them is one step
        assert len(leisures) < epochs / 10
    else:
        assert len(leisures) == epochs
    assert sorted(sink.records()) == list(orders)


@pytest.mark.parametrize("late", [1, 3])
def test_who_computes_sends_all_that_is_new(late: int) -> None:
    flow, sink = rs.Flow("late"), Collect()
    orders = tuple(Order(t, 1, 1) for t in range(10))
    flow.source(Rows(Order, (orders,)), epochs=rs.by_time(seconds=1)).to(sink)
    with shells_of(flow) as shells:
        shells.start()
        shells.watch()
        shell = shells.of("rows")[0]
        log = shell.machine.outlets.logs[edge_of(shell).id]
        ours, theirs = socket.socketpair()
        with ours, theirs, Reader(theirs) as reader:
            log.entries.extend(fresh_entries(shell, log.next, late))
            log.next += late
            shell.cursors.expect({(edge_of(shell).id, READER): 1})
            ticket = Ticket(TOKEN, READER, edge_of(shell).id, ALL, log.next - late)
            stream = ServedStream(ours, ticket)
            assert shell.server._push(stream, at_leisure=False)
            assert stream.next == log.next and shell.cursors.slowest() == log.next
            decoder, found = Decoder(edge_of(shell).schema, ALL), []
            while len(found) < late:
                frame = reader.read()
                assert frame is not None
                found += [p.header.epoch for p in decoder.pieces_of(frame)]
            assert found == list(range(log.next - late, log.next))
            assert shell.server._push(stream, at_leisure=False)  # nothing is left
            stream.next += 3  # who took a place is not there yet
            assert shell.server._push(stream, at_leisure=True)
            stream.sending.acquire()
            assert not shell.server._push(stream, at_leisure=True)  # somebody is sending


def fresh_entries(shell: Shell, first: int, many: int) -> list[LogEntry[Header]]:
    """Entries with a row each, as if a source had logged them."""
    schema = edge_of(shell).schema
    offsets = np.concatenate([[0], np.ones(256, np.int64)])
    return [
        LogEntry(
            epoch, Header(epoch, ALL, epoch), from_records(schema, [Order(epoch, 1, 1)]), offsets
        )
        for epoch in range(first, first + many)
    ]


def test_the_stream_of_who_is_not_expected_any_more_ends_also_if_he_takes_nothing() -> None:
    flow = rs.Flow("large")
    parts = (tuple(Line(t, "word " * 20_000) for t in range(500)),)
    flow.source(Rows(Line, parts, batch=1), epochs=rs.by_time(seconds=1)).to(Collect())
    with shells_of(flow) as shells:
        (shell,) = shells.of("rows")
        cursors, asked = shell.cursors, Ticket(TOKEN, "zombie", edge_of(shell).id, ALL, 1)
        with PLAIN.connect(shell.address) as connection, Reader(connection) as reader:
            cursors.expect({**cursors.next, (asked.edge, asked.instance): 1})
            frames.send(connection, TICKET, asked.pack())
            accepted = reader.read()
            assert accepted is not None and accepted.kind == ACCEPTED
            shells.start()
            shells.until(lambda: any(s.sending.locked() for s in shell.server._streams))
            shell.done.wait(0.1)  # most likely until nothing more fits into the connection
            served = [s for s in shell.server._streams if s.subscriber[1] == "zombie"]
            cursors.expect({who: e for who, e in cursors.next.items() if who[1] != "zombie"})
            shell.server.end_others()
            shells.until(lambda: served[0] not in shell.server._streams)
        shells.watch()


def test_serving_ends_with_the_shell() -> None:
    with shells_of(word_flow(Collect(), running)) as shells:
        shell = shells.of("rows")[0]
        connection = PLAIN.connect(shell.address)
        frames.send(connection, TICKET, Ticket(TOKEN, READER, edge_of(shell).id, ALL, 1).pack())
        reader = Reader(connection)
        frame = reader.read()
        assert frame is not None and frame.kind == ACCEPTED
    with connection, reader:
        connection.settimeout(30)
        assert reader.read() is None
        with pytest.raises(ConnectionRefusedError):
            PLAIN.connect(shell.address)


def test_the_decoder_is_what_a_subscription_uses(source: Shell) -> None:
    decoder = Decoder(edge_of(source).schema, ALL)
    with PLAIN.connect(source.address) as connection, Reader(connection) as reader:
        ticket = Ticket(TOKEN, READER, edge_of(source).id, ALL, first_of(source))
        frames.send(connection, TICKET, ticket.pack())
        accepted, frame = reader.read(), reader.read()
    assert accepted is not None and accepted.kind == ACCEPTED
    assert frame is not None and frame.kind == PIECES
    (found, *_) = decoder.pieces_of(frame)
    assert found.header.epoch == first_of(source)
