"""Frames arrive as they were sent, and a broken connection is an end or an OSError."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.actors.network import frames
from raystream.actors.network.connections import Joining, end, listen
from raystream.actors.network.frames import PIECES, SMALL, Reader, send
from raystream.security.credentials import Credentials
from tests.examples import examples

PLAIN = Joining(Credentials(""))

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        one.settimeout(30)
        other.settimeout(30)
        yield one, other


@examples(60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.binary(max_size=300),
            st.lists(st.integers(0, SMALL), max_size=5),
        ),
        max_size=8,
    )
)
def test_frames_arrive_in_order_and_whole(sent: list[tuple[int, bytes, list[int]]]) -> None:
    bodies = [[bytes([n % 251]) * size for n, size in enumerate(sizes)] for _, _, sizes in sent]
    one, other = socket.socketpair()

    def write() -> None:
        with one:
            for (kind, head, _), body in zip(sent, bodies, strict=True):
                send(one, kind, head, [memoryview(block) for block in body])

    with other, Reader(other) as reader:
        other.settimeout(30)
        writing = threading.Thread(target=write)
        writing.start()
        for (kind, head, _), body in zip(sent, bodies, strict=True):
            frame = reader.read()
            assert frame is not None
            assert (frame.kind, frame.head, frame.body.tobytes()) == (kind, head, b"".join(body))
            assert not frame.body.flags.writeable
        assert reader.read() is None
        writing.join(30)


class Stingy:
    """A connection that takes so many bytes at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = b""

    def sendmsg(self, parts: list[memoryview]) -> int:
        whole = b"".join(parts)[: self.most]
        self.taken += whole
        return len(whole)


@pytest.mark.parametrize("most", [1, 3, 10, 99])
def test_what_was_not_taken_is_sent_again(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "SMALL", 0)
    monkeypatch.setattr(frames, "_BUFFERS", 2)
    blocks = [b"some", b"", b"b", b"", b"blocks of bytes"]
    stingy = Stingy(most)
    send(stingy, PIECES, b"head", [memoryview(b) for b in blocks])  # type: ignore[arg-type]
    assert stingy.taken.endswith(b"head" + b"".join(blocks))
    assert len(stingy.taken) == 13 + 4 + sum(map(len, blocks))


@pytest.mark.parametrize("cut", [1, 12, 13, 15, 18, 20])
def test_half_a_frame_is_the_end(pair: Pair, cut: int) -> None:
    one, other = pair
    send(one, PIECES, b"head", [memoryview(b"body")])
    whole = other.recv(100)
    assert len(whole) == 21
    one.sendall(whole[:cut])
    end(one)
    with Reader(other) as reader:
        assert reader.read() is None


def test_a_frame_that_is_too_large_is_not_read(pair: Pair) -> None:
    one, other = pair
    send(one, PIECES, bytes(101))
    with Reader(other) as reader, pytest.raises(ValueError, match="a frame of 101 bytes"):
        reader.read(100)


def test_who_waits_for_a_frame_hears_of_the_end(pair: Pair) -> None:
    _, other = pair
    found: list[object] = []
    with Reader(other) as reader:
        waiting = threading.Thread(target=lambda: found.append(reader.read()))
        waiting.start()
        end(other)
        waiting.join(30)
    assert found == [None]


def test_who_waits_to_send_hears_of_the_end(pair: Pair) -> None:
    one, _ = pair
    failed = threading.Event()

    def write() -> None:
        try:
            while True:
                send(one, PIECES, b"", [memoryview(bytes(1 << 20))])
        except ConnectionError:
            failed.set()

    waiting = threading.Thread(target=write)
    waiting.start()
    end(one)
    waiting.join(30)
    assert failed.is_set()


def test_an_address_is_what_one_connects_to() -> None:
    listening, address = listen("127.0.0.1")
    with listening, PLAIN.connect(address) as connection:
        accepted, _ = listening.accept()
        with accepted, Reader(accepted) as reader:
            send(connection, PIECES, b"hello")
            frame = reader.read()
    assert frame is not None and frame.head == b"hello"
