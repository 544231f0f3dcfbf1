"""Windows and sessions: random flows answer what sums over lists answer, for epochs of every length
and by arrival; out of order where they wait."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.testing import Collect, run_local
from tests.event_time.models import disordered, lengths, sessions, windowed
from tests.examples import examples
from tests.flows import Rows

SECONDS = 14
SIZE = 4
GAP = 3


class Sold(NamedTuple):
    time: rs.Int64
    key: rs.Int64
    value: rs.Int64


class Closed(NamedTuple):
    key: rs.Int64
    start: rs.Int64
    end: rs.Int64
    digest: rs.Int64


class Chain(rs.State):
    digest: int = 7
    last: int = 0


def digest(values: list[int]) -> int:
    """A number that depends on all values and on their order."""
    found = 7
    for value in values:
        found = (found * 31 + value) % 1_000_003
    return found


class Window:
    def process(self, sold: Sold, chain: Chain) -> None:
        chain.digest = (chain.digest * 31 + sold.value) % 1_000_003
        chain.last = sold.time

    def close(self, key: int, window: rs.Window, chain: Chain) -> Iterator[Closed]:
        yield Closed(key, window.start, window.end, chain.digest)


class Visits(Window):
    def merge(self, into: Chain, other: Chain) -> None:
        into.digest = -1


TUMBLING = [
    rs.operator(key="key", window=rs.tumbling(seconds=SIZE), compiled=c)(
        type("Sales", (Window,), {})
    )()
    for c in (False, True)
]
SESSIONS = rs.operator(key="key", window=rs.session(gap=GAP))(Visits)()


def sales(rng: random.Random) -> list[Sold]:
    """In order of time, of few keys."""
    times = sorted(rng.randrange(SECONDS) for _ in range(rng.randrange(1, 30)))
    return [Sold(t, rng.randrange(3), rng.randrange(50)) for t in times]


def answers(op: Any, rows: list[Sold], epochs: rs.Epochs, batch: int, wait: bool) -> Any:
    flow, sink = rs.Flow("windows", key_groups=4), Collect()
    stream = flow.source(Rows(Sold, (tuple(rows),), batch=batch), epochs=epochs)
    stream.through(op, wait=wait).to(sink)
    run_local(flow)
    found: list[Closed] = sink.records()
    assert [c for key in range(3) for c in found if c.key == key] == sorted(found)
    return {(c.key, c.start): c.digest for c in found}


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@examples(5)
@given(seed=st.integers(0, 2**20))
def test_windows_hold_what_has_their_time(seed: int, compiled: bool, wait: bool) -> None:
    rng = random.Random(seed)
    rows, by = sales(rng), rng.randrange(7) if wait else 0
    expected = {at: digest(values) for at, values in windowed(SIZE, rows).items()}
    mixed = disordered(rng, rows, by)
    for epochs in lengths(SECONDS, disorder=by):
        assert answers(TUMBLING[compiled], mixed, epochs, rng.randrange(1, 9), wait) == expected


@pytest.mark.parametrize("wait", [False, True])
@examples(8)
@given(seed=st.integers(0, 2**20))
def test_sessions_hold_what_follows_closely(seed: int, wait: bool) -> None:
    rng = random.Random(seed)
    rows, by = sales(rng), rng.randrange(7) if wait else 0
    expected = {at: digest(values) for at, values in sessions(GAP, rows).items()}
    mixed = disordered(rng, rows, by)
    for epochs in lengths(SECONDS, disorder=by):
        assert answers(SESSIONS, mixed, epochs, rng.randrange(1, 9), wait) == expected
