"""With certificates nothing of a job is read or written by those who have none of it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raystream.actors.network import connections, listener
from raystream.actors.network.connections import Joining, TlsSocket, end, listen
from raystream.actors.network.frames import (
    LATER,
    PIECES,
    REFUSED,
    TICKET,
    Reader,
    Refused,
    send,
)
from raystream.actors.network.lookups import LookUpConnection
from raystream.actors.network.wire import Ticket
from raystream.actors.worker.shell import Shell
from raystream.dataflow.queries.looking import StateQuery
from raystream.errors import JobError
from raystream.schema.types import KeyRange
from raystream.security.certificates import made
from raystream.security.contexts import connecting
from raystream.security.credentials import Credentials
from raystream.testing import Collect
from tests.actors.helpers.shells import TOKEN, Shells, Subscriber, run_in_shells, shells_of
from tests.flows import running, word_flow
from tests.gates import LIMIT_SECONDS

OURS, THEIRS = made(), made()
SHOWS = Joining(Credentials("", OURS))


@pytest.fixture(scope="module")
def job() -> Iterator[Shells]:
    """A job with TLS that has not begun."""
    with shells_of(word_flow(Collect(), running), certificates=OURS) as shells:
        yield shells


@pytest.fixture
def source(job: Shells) -> Shell:
    return job.of("rows")[0]


def test_a_job_with_tls_has_the_same_output() -> None:
    plain, secured = Collect(), Collect()
    run_in_shells(word_flow(plain, running), instances={"running": 2})
    run_in_shells(word_flow(secured, running), instances={"running": 2}, certificates=OURS)
    assert secured.records() == plain.records() != []


def test_rows_of_state_are_read_by_tls_and_by_nobody_without_it(job: Shells) -> None:
    owner = job.of("running")[0]
    table = owner.machine.table
    assert table is not None
    reader = LookUpConnection(owner.address, Joining(Credentials(TOKEN, OURS)), LIMIT_SECONDS)
    reader.send(StateQuery(owner.vertex.id, table.shape.nothing_gone, 0), 0.0)
    assert (
        reader.receive(table.shape.rows, table.shape.fingerprint, LIMIT_SECONDS).rows.num_rows == 0
    )
    reader.close()
    for strange in (Credentials(TOKEN, None), Credentials(TOKEN, THEIRS)):
        with pytest.raises((OSError, Refused)):
            LookUpConnection(owner.address, Joining(strange), LIMIT_SECONDS)


def ticket(shell: Shell, token: str = TOKEN) -> bytes:
    (edge,) = shell.vertex.outputs
    return Ticket(token, "running/0", edge.id, KeyRange(0, 256), 1).pack()


def test_a_certificate_alone_opens_nothing(source: Shell) -> None:
    with (
        SHOWS.connect(source.address) as connection,
        Reader(connection) as reader,
    ):
        send(connection, TICKET, ticket(source, "another"))
        frame = reader.read()
    assert frame is not None and (frame.kind, frame.head[:10]) == (REFUSED, b"this token")


@pytest.mark.parametrize("certificates", [None, THEIRS])
def test_who_has_no_certificate_of_the_job_is_told_nothing(
    source: Shell, certificates: Any
) -> None:
    said = b""
    with socket.create_connection(source.address.rsplit(":", 1), LIMIT_SECONDS) as connection:
        try:
            if certificates is not None:
                context = connecting(certificates._replace(authority=OURS.authority))
                connection = context.wrap_socket(connection, server_hostname=connections.NAME)
            send(connection, TICKET, ticket(source))
            said = connection.recv(1024)
        except OSError:
            pass
        finally:
            connection.close()
    assert PIECES not in said[:1] and b"token" not in said and len(said) < 16, said


def test_a_server_without_a_certificate_of_the_job_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason is in what the job ends with."""
    from raystream.actors.network import subscription

    monkeypatch.setattr(subscription, "RECONNECT_SECONDS", 0.05)
    with shells_of(word_flow(Collect(), running), certificates=THEIRS) as shells:
        (shell,) = shells.of("rows")
        subscriber = Subscriber(lambda: 0)
        (edge,) = shell.vertex.outputs
        subscriber.follow(edge, shell.address, "running/0", certificates=OURS)
    (error,) = subscriber.errors
    assert isinstance(error, JobError) and "certificate verify failed" in str(error)
    assert not subscriber.pieces


def test_a_certificate_of_the_authority_for_another_name_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A company's authority signs certificates of others, too."""
    monkeypatch.setattr(connections, "NAME", "another.example")
    listening, address = listen("127.0.0.1")
    errors: list[Exception] = []

    def accept() -> None:
        with listening, listening.accept()[0] as accepted:
            accepted.settimeout(LIMIT_SECONDS)
            try:
                SHOWS.accept(accepted)
            except OSError as error:
                errors.append(error)

    thread = threading.Thread(target=accept)
    thread.start()
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        SHOWS.connect(address)
    thread.join(LIMIT_SECONDS)
    assert errors


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection with TLS."""
    listening, address = listen("127.0.0.1")
    accepted: list[socket.socket] = []

    def accept() -> None:
        one = listening.accept()[0]
        one.settimeout(LIMIT_SECONDS)
        accepted.append(SHOWS.accept(one))

    with listening:
        thread = threading.Thread(target=accept)
        thread.start()
        connected = SHOWS.connect(address)
        thread.join(LIMIT_SECONDS)
    with connected, accepted[0]:
        yield connected, accepted[0]


def test_frames_of_all_sizes_cross(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    sizes = [0, 1, 100, (64 << 10) - 20, 64 << 10, 1 << 20, (9 << 20) + 7]
    bodies = [np.random.default_rng(n).integers(0, 256, n, np.uint8) for n in sizes]

    def write() -> None:
        for body in bodies:
            cut = len(body) // 3
            send(here, PIECES, b"head", [body.data[:cut], body.data[cut:]])
        send(here, LATER, b"")

    thread = threading.Thread(target=write)
    thread.start()
    with Reader(there) as reader:
        for body in bodies:
            frame = reader.read()
            assert frame is not None and frame.head == b"head"
            np.testing.assert_array_equal(frame.body, body)
        last = reader.read()
    thread.join(LIMIT_SECONDS)
    assert last is not None and last.kind == LATER


def test_what_is_written_after_the_end_is_an_error_and_never_without_tls(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    assert isinstance(here, TlsSocket) and not connections.direct(here)
    end(here)
    with pytest.raises((BrokenPipeError, ssl.SSLEOFError)):
        send(here, TICKET, b"secret")
    with Reader(there) as reader:
        assert reader.read() is None


def test_a_stranger_that_sends_slowly_has_no_longer_than_the_others(
    source: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, but not all of them do. The limit of one byte alone would be longer
    than this test waits."""
    limit, passed = 10 * LIMIT_SECONDS, iter(range(1, 1000))
    monkeypatch.setattr(listener, "TICKET_SECONDS", limit)
    monkeypatch.setattr(
        "raystream.actors.network.frames.time",
        SimpleNamespace(monotonic=lambda: listener.time.monotonic() + 0.6 * limit * next(passed)),
    )
    with SHOWS.connect(source.address) as connection:
        connection.settimeout(LIMIT_SECONDS)
        connection.sendall(b"\x04")
        assert connection.recv(100) == b""


def test_only_so_many_strangers_are_listened_to_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "ADMITTED_AT_ONCE", 3)
    monkeypatch.setattr(listener, "TICKET_SECONDS", 10 * LIMIT_SECONDS)  # none ends by itself
    with shells_of(word_flow(Collect(), running)) as shells:
        host, port = shells.of("rows")[0].address.split(":")
        strangers = [socket.create_connection((host, int(port)), LIMIT_SECONDS) for _ in range(3)]
        try:
            with socket.create_connection((host, int(port)), LIMIT_SECONDS) as more:
                assert more.recv(1) == b""  # ended at once
        finally:
            for each in strangers:
                each.close()
