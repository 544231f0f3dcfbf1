"""What a subscriber says to have applied, on the connection of its subscription."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.actors.network.connections import Joining
from raystream.actors.network.flow_control import (
    ARRIVED_AHEAD,
    SAID_MOST,
    AppliedReceiver,
    AppliedSender,
)
from raystream.actors.network.frames import ACCEPTED, TICKET, Reader, packed
from raystream.actors.network.wire import Ticket
from raystream.actors.worker.shell import Shell
from raystream.dataflow.plan import Edge
from raystream.schema.types import KeyRange
from raystream.security.credentials import Credentials
from raystream.testing import Collect
from tests.actors.helpers.shells import TOKEN, edge_of, shells_of
from tests.actors.worker.test_flow_control import Drip, Slow, drip_flow, standing
from tests.examples import examples
from tests.gates import until


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, two = socket.socketpair()
    with one, two:
        yield one, two


@examples(30)
@given(
    first=st.integers(0, 1 << 40),
    steps=st.lists(st.integers(0, 300) | st.integers(0, 5 * 255 * SAID_MOST), max_size=8),
)
def test_the_producer_hears_what_was_applied(first: int, steps: list[int]) -> None:
    one, two = socket.socketpair()
    with one, two:
        says, hears = AppliedSender(one, first), AppliedReceiver(two, first)
        at = first
        for step in steps:
            at += step
            says.say(at)
            says.say(at - 1)  # what is known already is not said again
            hears.hear()
            assert first <= hears.applied <= at
        while hears.applied < at:  # no more than so much is said at once
            says.say(at)
            hears.hear()
        assert hears.applied == at and not hears.gone


def test_what_finds_no_room_is_said_later(pair: tuple[socket.socket, socket.socket]) -> None:
    says, hears = AppliedSender(pair[0], 0), AppliedReceiver(pair[1], 0)
    at = 0
    while says._said == at:  # until the system takes no more
        at += 255 * SAID_MOST
        says.say(at)
    hears.hear()
    assert hears.applied < at
    while hears.applied < at:
        says.say(at)
        hears.hear()
    assert hears.applied == at


def test_an_end_is_heard(pair: tuple[socket.socket, socket.socket]) -> None:
    says, hears = AppliedSender(pair[0], 5), AppliedReceiver(pair[1], 5)
    says.say(7)
    pair[0].close()
    says.say(9)
    hears.hear()
    hears.hear()
    assert hears.applied == 7 and hears.gone


def _subscribe(shell: Shell, edge: Edge, first: int) -> socket.socket:
    (name,) = [who for at, who in shell.cursors.next if at == edge.id]
    connection = Joining(Credentials(TOKEN)).connect(shell.address)
    keys = KeyRange(0, shell.machine.plan.groups)
    connection.sendall(packed(TICKET, Ticket(TOKEN, name, edge.id, keys, first).pack()))
    with Reader(connection) as frames:
        frame = frames.read()
    assert frame is not None and frame.kind == ACCEPTED
    return connection


def test_of_two_connections_of_a_subscriber_the_newer_one_counts() -> None:
    sink, endless = Slow(), Drip(1 << 20)  # the end of a stream would close its connection
    with shells_of(drip_flow(sink, endless)) as shells:
        shells.start()
        (source,), (out,) = shells.of("drip"), shells.of("out")
        assert standing(source) == out.machine.position + ARRIVED_AHEAD + 1
        at = source.server.slowest()
        assert at == out.machine.position + 1
        with _subscribe(source, edge_of(source), at + 2) as newer:
            until(lambda: source.server.slowest() == at + 2)
            AppliedSender(newer, at + 1).say(at + 3)
            until(lambda: source.server.slowest() == at + 4)
        until(lambda: source.server.slowest() == at)  # it has gone: the older one is the only one
        sink.gate.set()


def test_candidates_and_guests_slow_nobody() -> None:
    with shells_of(drip_flow(Collect())) as shells:
        source = shells.of("drip")[0]
        (who,) = source.cursors.next
        assert source.cursors.slows(who)
        source.cursors.expect({who: 1}, [who])
        assert not source.cursors.slows(who) and not source.cursors.slows(
            (edge_of(source).id, "guest")
        )
        assert source.server.slowest() == 1 << 62
