"""Links between namespaces that are cut, one way and both, and mended."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import pytest

from benchmarks.chaos.spaces import Spaces, cuts
from benchmarks.shared.namespaces import NoNamespacesError
from tests.gates import LIMIT_SECONDS

A = TypeVar("A")
LOST_SECONDS = 0.3


@pytest.fixture(scope="module")
def spaces() -> Iterator[Spaces]:
    try:
        made = Spaces(2)
    except NoNamespacesError as error:
        pytest.skip(str(error))
    yield made
    made.close()


def at(spaces: Spaces, host: int, do: Callable[[], A]) -> A:
    """What comes of a function that runs at a host."""

    def there() -> A:
        spaces.enter(host)
        return do()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(there).result()


def bound() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("", 7800))
    return made


def comes(sender: socket.socket, receiver: socket.socket, to: str, *, meant: bool = True) -> bool:
    """Whether what is sent comes. meant: it is to come, however long the machine takes."""
    nbytes = 1000
    receiver.settimeout(LIMIT_SECONDS if meant else LOST_SECONDS)
    sender.sendto(b"x" * nbytes, (to, 7800))
    try:
        return len(receiver.recv(2 * nbytes)) == nbytes
    except TimeoutError:
        return False


@pytest.fixture
def sockets(spaces: Spaces) -> Iterator[tuple[socket.socket, socket.socket]]:
    with at(spaces, 0, bound) as first, at(spaces, 1, bound) as second:
        yield first, second
    for host in (0, 1):
        spaces.mend(host)


@pytest.mark.parametrize(
    ("how", "out", "into"),
    [("both", False, False), ("out", False, True), ("in", True, False), ("slow", True, True)],
)
def test_what_a_cut_lets_through(
    spaces: Spaces, sockets: tuple[socket.socket, socket.socket], how: str, out: bool, into: bool
) -> None:
    first, second = sockets
    assert comes(first, second, spaces.address(1)) and comes(second, first, spaces.address(0))
    spaces.cut(1, how)  # type: ignore[arg-type]
    assert comes(second, first, spaces.address(0), meant=out) == out
    assert comes(first, second, spaces.address(1), meant=into) == into
    spaces.mend(1)
    assert comes(second, first, spaces.address(0)) and comes(first, second, spaces.address(1))


def test_a_lossy_link_loses_some_packets_each_way(
    spaces: Spaces, sockets: tuple[socket.socket, socket.socket]
) -> None:
    if "lossy" not in cuts():
        pytest.skip("links that lose packets need `nft`")
    first, second = sockets
    spaces.cut(1, "lossy")
    for sender, receiver, to in ((first, second, 1), (second, first, 0)):
        sent = 500
        for _ in range(sent):
            sender.sendto(b"x", (spaces.address(to), 7800))
        receiver.settimeout(LOST_SECONDS)
        came = 0
        with suppress(TimeoutError):
            while receiver.recv(10):
                came += 1
        assert 0 < came < sent
    spaces.mend(1)
    assert comes(second, first, spaces.address(0)) and comes(first, second, spaces.address(1))


def test_only_the_thread_that_enters_is_there(spaces: Spaces) -> None:
    before = os.readlink(f"/proc/self/task/{threading.get_native_id()}/ns/net")
    at(spaces, 1, lambda: None)
    assert os.readlink(f"/proc/self/task/{threading.get_native_id()}/ns/net") == before


def test_a_machine_without_them_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoNamespacesError, match="need root"):
        Spaces(1)
