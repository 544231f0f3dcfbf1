"""Guests read a log beside the instances of the job: nobody waits for them, and nothing is kept."""

from __future__ import annotations

import socket

import pytest

from raystream.actors.network.frames import Refused
from raystream.actors.network.server import ServedStream
from raystream.actors.network.wire import Ticket
from raystream.actors.worker.shell import Shell
from raystream.schema.types import KeyRange
from tests.actors.helpers.shells import TOKEN, edge_of, first_of

ALL = KeyRange(0, 256)


def guest(shell: Shell, first: int) -> Ticket:
    return Ticket(TOKEN, "fork/trial", edge_of(shell).id, ALL, first, guest=True)


def test_a_ticket_says_that_its_holder_is_a_guest() -> None:
    for is_guest in (False, True):
        ticket = Ticket("token", "a/0", 3, ALL, 7, is_guest)
        assert Ticket.unpack(ticket.pack()) == ticket


def test_a_guest_is_served_without_being_assigned_and_slows_nobody(source: Shell) -> None:
    before, slowest = dict(source.cursors.next), source.cursors.slowest()
    ticket = source.server.admit(guest(source, first_of(source)))
    assert ticket.first == first_of(source)
    assert (dict(source.cursors.next), source.cursors.slowest()) == (before, slowest)


def test_a_guest_is_refused_what_was_trimmed(source: Shell) -> None:
    first = first_of(source)
    with pytest.raises(Refused, match=f"epoch {first - 1} of edge 0 was trimmed"):
        source.server.admit(guest(source, first - 1))


def test_a_guest_that_was_overtaken_is_told(source: Shell) -> None:
    """An instance has applied what was trimmed while it was served; a guest has not."""
    with socket.socket() as nowhere:
        stream = ServedStream(nowhere, guest(source, first_of(source) - 5))
    assert not stream.direct
    with pytest.raises(Refused, match="was trimmed"):
        source.server._entries(stream)
