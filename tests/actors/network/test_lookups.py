"""Clients look rows up at the shells of a job, over sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from raystream.actors.network import frames
from raystream.actors.network.connections import Joining
from raystream.actors.network.frames import QUERIES, QUERY, REFUSED, Reader, Refused
from raystream.actors.network.lookups import LookUpConnection, Reply
from raystream.actors.worker.shell import Shell
from raystream.dataflow.queries.looking import NotYet, StateQuery
from raystream.dataflow.queries.request import StateRequest
from raystream.security.credentials import Credentials
from raystream.testing import Collect
from tests.actors.helpers.shells import TOKEN, Shells, shells_of
from tests.flows import running, running_batch, word_flow
from tests.gates import LIMIT_SECONDS

WORDS = "abcdefghij"
SHOWN = Joining(Credentials(TOKEN, None))


@pytest.fixture(scope="module", params=[running, running_batch], ids=["Python", "structured"])
def job(request: pytest.FixtureRequest) -> Iterator[Shells]:
    """A job at its end, whose operator has two instances, and what the words were counted to."""
    sink = Collect()
    flow = word_flow(sink, request.param)
    with shells_of(flow, instances={request.param.__name__: 2}, checkpoint_every=10) as shells:
        shells.start()
        shells.until(lambda: all(s.machine.ended for s in shells.shells))
        shells.counted = {n.word: n.n for n in sink.records()}  # type: ignore[attr-defined]
        yield shells


def owners(job: Shells) -> list[Shell]:
    return [s for s in job.shells if s.machine.table is not None]


def keys_of(shell: Shell, words: str) -> Any:
    schema = shell.machine.table.shape.gone  # type: ignore[union-attr]
    return pa.RecordBatch.from_pylist([{schema.names[0]: w} for w in words], schema=schema)


def asked(shell: Shell, keys: Any, least: int = 0, seconds: float = 0.0) -> Reply:
    connection = LookUpConnection(shell.address, SHOWN, LIMIT_SECONDS)
    try:
        connection.send(StateQuery(shell.vertex.id, keys, least), seconds)
        table = shell.machine.table
        assert table is not None
        return connection.receive(table.shape.rows, table.shape.fingerprint, LIMIT_SECONDS)
    finally:
        connection.close()


def test_rows_are_those_of_the_keys_wherever_they_are(job: Shells) -> None:
    first, *_ = owners(job)
    keys = keys_of(first, WORDS + "z")
    request = StateRequest(first.vertex.id, keys, job.plan.groups, 3)
    for part in request.queries(job.assignment):
        owner = next(s for s in job.shells if s.address == part.serving.address)
        reply = asked(owner, part.query.keys, 3)
        assert reply.epoch >= 3
        request.answered(part, reply.epoch, reply.found, reply.rows)
    assert not request.open
    found = {}
    for at, rows in request.rows:
        for i, row in zip(at, rows.to_pylist(), strict=True):
            assert row["key:word"] == (WORDS + "z")[i]
            found[row["key:word"]] = row["n"]
    assert found == job.counted and len(found) > 3  # type: ignore[attr-defined]


def test_keys_of_another_instance_are_elsewhere(job: Shells) -> None:
    replies = [asked(shell, keys_of(shell, WORDS)) for shell in owners(job)]
    assert [r.not_yet for r in replies] == [NotYet.ELSEWHERE] * 2


@pytest.mark.parametrize("stopping", [True, False])
def test_an_instance_that_stops_or_failed_in_a_step_answers_nothing(
    job: Shells, stopping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = owners(job)[0]
    nothing = keys_of(shell, "")
    assert asked(shell, nothing).not_yet is None
    monkeypatch.setattr(*((shell.fate, "stopping") if stopping else (shell._loop, "amid")), True)
    assert asked(shell, nothing).not_yet is NotYet.ELSEWHERE


def test_an_epoch_that_is_not_there_is_waited_for_as_long_as_was_said(job: Shells) -> None:
    shell = owners(job)[0]
    keys, machine = keys_of(shell, ""), shell.machine
    machine.ended = False
    try:
        began = time.monotonic()
        assert asked(shell, keys, machine.position + 1, 0.2).not_yet is NotYet.LATER
        assert time.monotonic() - began >= 0.2
        assert asked(shell, keys, machine.position).epoch == machine.position
    finally:
        machine.ended = True


def test_a_wrong_token_and_an_instance_without_rows_are_refused(job: Shells) -> None:
    with pytest.raises(Refused, match="this token is not of this run"):
        LookUpConnection(owners(job)[0].address, Joining(Credentials("wrong", None)), LIMIT_SECONDS)
    with pytest.raises(Refused, match="keeps no rows"):
        LookUpConnection(job.of("rows")[0].address, SHOWN, LIMIT_SECONDS)


@pytest.mark.parametrize(
    ("kind", "head", "body"),
    [
        (QUERIES, b"again", b""),
        (QUERY, b"\xc1", b""),
        (QUERY, msgpack.packb([1, 0, -1.0]), b""),
        (QUERY, msgpack.packb(["1", 0, 1.0]), b""),
        (QUERY, msgpack.packb([1, 0, 1.0]), b"no batch"),
        (QUERY, msgpack.packb([1, 0]), b""),
    ],
)
def test_what_is_no_query_is_refused(job: Shells, kind: int, head: bytes, body: bytes) -> None:
    with SHOWN.connect(owners(job)[0].address) as connection:
        connection.settimeout(LIMIT_SECONDS)
        frames.send(connection, QUERIES, TOKEN.encode())
        reader = Reader(connection)
        assert reader.read() is not None
        frames.send(connection, kind, head, [memoryview(body)])
        refusal = reader.read()
        assert refusal is not None and refusal.kind == REFUSED
        assert refusal.head == b"this is no query"
        assert reader.read() is None


def test_a_key_without_a_value_is_refused_where_none_can_have_none(job: Shells) -> None:
    shell = owners(job)[0]
    schema = shell.machine.table.shape.gone  # type: ignore[union-attr]
    keys = pa.RecordBatch.from_arrays([pa.array([None], schema.types[0])], schema=schema)
    assert asked(shell, keys).refused == "this is no query"


def test_more_keys_than_a_query_may_have_are_refused(job: Shells) -> None:
    shell = owners(job)[0]
    assert "100 keys at most" in asked(shell, keys_of(shell, "a" * 101)).refused


def test_what_is_larger_than_a_query_is_refused_before_it_is_read(job: Shells) -> None:
    with SHOWN.connect(owners(job)[0].address) as connection:
        connection.settimeout(LIMIT_SECONDS)
        frames.send(connection, QUERIES, TOKEN.encode())
        reader = Reader(connection)
        assert reader.read() is not None
        connection.sendall(frames.BEGINNING.pack(QUERY, 1, 1 << 40))
        refusal = reader.read()
        assert refusal is not None and b"a query has at most" in refusal.head
