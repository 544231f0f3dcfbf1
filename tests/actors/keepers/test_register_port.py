"""Instances claim boundaries at the port of a keeper, over sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError

from raystream.actors.keepers.register_port import RegisterPort
from raystream.actors.network.claims import WIDE, ClaimConnection
from raystream.actors.network.connections import Joining
from raystream.actors.network.frames import (
    ACCEPTED,
    CLAIM,
    CLAIMS,
    HELD,
    LOOK,
    Reader,
    Refused,
    packed,
)
from raystream.actors.worker.register_places import RegisterPlaces
from raystream.dataflow.register import Boundaries, Boundary, HeldBoundary, Register
from raystream.schema.types import BEFORE_ALL, NEVER
from raystream.security.credentials import Credentials
from tests.examples import examples
from tests.gates import LIMIT_SECONDS, until

HOST = "127.0.0.1"
SHOWS = Joining(Credentials("secret"))
X, Y = Boundary(3, 10, False), Boundary(5, 12, True, rows=b"rows")

boundaries = st.builds(
    Boundary,
    st.integers() | st.integers(-WIDE - 1, WIDE),
    st.integers(BEFORE_ALL, NEVER),
    st.booleans(),
    st.booleans(),
    st.integers(0, NEVER),
    st.binary(max_size=100),
)


@pytest.fixture(scope="module")
def port() -> Iterator[RegisterPort]:
    port = RegisterPort(SHOWS)
    yield port
    port.stop()


@pytest.fixture
def places(port: RegisterPort) -> Iterator[RegisterPlaces]:
    """The one place is the port."""
    port._register = Register()
    assert port.ask(lambda register: register.fill(1, Boundaries()))
    places = RegisterPlaces(SHOWS, lambda keeper: port.address(HOST))
    yield places
    places.keep(())


def test_the_first_boundary_holds_and_others_hear_of_it(places: RegisterPlaces) -> None:
    assert places.claim("p", 1, 7, {"a": X, "b": Y}) == {
        "a": HeldBoundary(X, 7),
        "b": HeldBoundary(Y, 7),
    }
    assert places.claim("p", 1, 7, {"a": Y}) == {"a": HeldBoundary(X, 7)}
    assert places.look("p", 1, 1, ["a", "b", "c"]) == {("a", 7): X, ("b", 7): Y}
    assert places.look("p", 1, 8, ["a"]) == {}


def test_another_view_is_refused(places: RegisterPlaces) -> None:
    assert places.claim("p", 2, 7, {"a": X}) is None
    assert places.look("p", 2, 7, ["a"]) is None
    assert places.claim("p", 1, 7, {"a": X}) == {"a": HeldBoundary(X, 7)}  # the line is as before


@examples(50)
@given(held=st.dictionaries(st.text(max_size=5), boundaries, min_size=1, max_size=4))
def test_all_boundaries_come_as_they_were(port: RegisterPort, held: dict[str, Boundary]) -> None:
    port._register = Register()
    assert port.ask(lambda register: register.fill(1, Boundaries()))
    line = ClaimConnection(port.address(HOST), SHOWS, LIMIT_SECONDS)
    try:
        assert line.claim(1, 5, held) == {n: HeldBoundary(b, 5) for n, b in held.items()}
        assert line.look(1, 5, [*held]) == {(n, 5): b for n, b in held.items()}
    finally:
        line.close()
    known = port.ask(lambda register: register.hand(1))
    assert known == Boundaries(0, {(n, 5): b for n, b in held.items()})


def test_without_the_token_nothing_is_said(port: RegisterPort) -> None:
    with pytest.raises(Refused, match="this token is not of this run"):
        ClaimConnection(port.address(HOST), Joining(Credentials("wrong")), LIMIT_SECONDS)
    stranger = RegisterPlaces(Joining(Credentials("wrong")), lambda keeper: port.address(HOST))
    assert stranger.claim("p", 1, 7, {"a": X}) is None


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CLAIM, b""),
        (CLAIM, b"\xc1"),
        (CLAIM, msgpack.packb([1, 7])),
        (CLAIM, msgpack.packb([1, 7, {"a": [1, 2, 3]}])),
        (CLAIM, msgpack.packb([1, 7, {"a": ["1", 2, False, False, 0, b""]}])),
        (CLAIM, msgpack.packb([1, 7, {"a": [1, 2, False, False, 0, "rows"]}])),
        (CLAIM, msgpack.packb(["1", 7, {"a": X}])),
        (LOOK, msgpack.packb([1, "7", ["a"]])),
        (LOOK, msgpack.packb([1, 7, 5])),
        (HELD, msgpack.packb([1, 7, {"a": X}])),
    ],
)
def test_what_is_no_claim_ends_the_connection_and_changes_nothing(
    port: RegisterPort, places: RegisterPlaces, kind: int, body: bytes
) -> None:
    with SHOWS.connect(port.address(HOST)) as connection, Reader(connection) as reader:
        connection.settimeout(LIMIT_SECONDS)
        connection.sendall(packed(CLAIMS, b"secret"))
        admitted = reader.read()
        assert admitted is not None and admitted.kind == ACCEPTED
        connection.sendall(packed(kind, b"", [memoryview(body)]))
        assert reader.read() is None
    assert places.look("p", 1, 1, ["a"]) == {}


def test_a_keeper_that_is_gone_says_nothing_and_a_new_connection_is_made_later() -> None:
    port = RegisterPort(SHOWS)
    assert port.ask(lambda register: register.fill(1, Boundaries()))
    asked = list[Any]()

    def address(keeper: Any) -> str:
        asked.append(keeper)
        return port.address(HOST)

    places = RegisterPlaces(SHOWS, address)
    assert places.claim("p", 1, 7, {"a": X}) is not None
    assert places.claim("p", 1, 8, {"a": X}) is not None
    assert asked == ["p"]
    port.stop()
    until(lambda: places.claim("p", 1, 9, {"a": X}) is None)
    assert places.claim("p", 1, 9, {"a": X}) is None  # nobody listens any more
    port = RegisterPort(SHOWS)
    assert port.ask(lambda register: register.fill(1, Boundaries()))
    assert places.claim("p", 1, 9, {"a": X}) == {"a": HeldBoundary(X, 9)}
    places.keep(())
    port.stop()


def test_a_keeper_whose_actor_died_says_nothing() -> None:
    def address(keeper: Any) -> str:
        raise ActorDiedError

    assert RegisterPlaces(SHOWS, address).claim("p", 1, 7, {"a": X}) is None


def test_a_wait_for_a_keeper_that_hangs_ends_when_another_is_chosen() -> None:
    port = RegisterPort(SHOWS)
    assert port.ask(lambda register: register.fill(1, Boundaries()))
    places = RegisterPlaces(SHOWS, lambda keeper: port.address(HOST))
    assert places.claim("p", 1, 7, {"a": X}) is not None
    hangs, waits = threading.Event(), threading.Event()

    def hang(register: Register) -> None:
        waits.set()
        hangs.wait(LIMIT_SECONDS)

    with ThreadPoolExecutor(2) as pool:
        pool.submit(port.ask, hang)
        assert waits.wait(LIMIT_SECONDS)
        claimed = pool.submit(places.claim, "p", 1, 8, {"a": X})
        until(lambda: claimed.running())
        places.keep(["q"])
        hung = claimed.result(LIMIT_SECONDS)
        hangs.set()
    assert hung is None
    port.stop()
