"""What is put in or lent arrives in order, and nobody sleeps over it."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raystream.actors.network.frames import PIECES, SMALL, Large, Reader, send
from raystream.actors.network.inbox import Inbox, Item
from raystream.dataflow.pieces import Piece, silence
from raystream.schema.records import record_schema
from raystream.schema.types import KeyRange
from tests.flows import Order
from tests.gates import LIMIT_SECONDS, until

SCHEMA = record_schema(Order)
KEYS = KeyRange(0, 4)
LIMIT = LIMIT_SECONDS


def piece(epoch: int) -> Piece:
    return silence(epoch, KEYS, SCHEMA, 4)


class Stream:
    """A connection on which epochs come, each as a frame; what it was given back for."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.reader = Reader(self.ours)
        self.next = 1
        self.why: Exception | None = None
        self.returned = threading.Event()

    def send(self, *epochs: int, size: int = 0) -> None:
        for epoch in epochs:
            send(self.theirs, PIECES, str(epoch).encode(), [memoryview(bytes(size))])

    def pull(self, items: list[Item], upto: int) -> None:
        while self.next <= upto and (frame := self.reader.read_now()) is not None:
            items.append((7, piece(int(frame.head))))
            self.next = int(frame.head) + 1

    def give_back(self, why: Exception) -> None:
        self.why = why
        self.returned.set()

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


class Upto:
    """The last epoch that is wanted."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self) -> int:
        return self.epoch


@pytest.fixture
def upto() -> Upto:
    return Upto(100)


@pytest.fixture
def inbox(upto: Upto) -> Iterator[Inbox]:
    inbox = Inbox(upto)
    yield inbox
    inbox.close()


@pytest.fixture
def stream() -> Iterator[Stream]:
    stream = Stream()
    yield stream
    stream.close()


def epochs(items: list[Item] | None) -> list[int]:
    assert items is not None
    return [p.header.epoch for _, p in items]


def test_nothing_comes(inbox: Inbox) -> None:
    assert inbox.empty
    assert inbox.take(0.0) is None
    assert inbox.take(0.01) is None


def test_what_is_put_in_comes_in_order(inbox: Inbox) -> None:
    for epoch in (1, 2, 3):
        inbox.put((0, piece(epoch)))
    assert not inbox.empty
    assert epochs(inbox.take(LIMIT)) == [1, 2, 3]
    assert inbox.take(0.0) is None


def test_who_only_rings_wakes_and_leaves_nothing(inbox: Inbox) -> None:
    for _ in range(3):
        inbox.put(None)
    assert not inbox._items and not inbox.empty
    assert inbox.take(LIMIT) == []
    assert inbox.take(0.0) is None


@pytest.mark.parametrize("item", [None, (0, piece(5))])
def test_who_waits_is_woken(inbox: Inbox, item: Item | None) -> None:
    found: list[list[Item] | None] = []
    waiting = threading.Thread(target=lambda: found.append(inbox.take(LIMIT)))
    waiting.start()
    until(lambda: inbox._waiting)
    inbox.put(item)
    waiting.join(LIMIT)
    assert found == [[] if item is None else [item]]


class Late(deque[Any]):
    """Somebody puts in something just when it was seen that there is nothing, for the `look`th
    time."""

    def __init__(self, look: int, put_in: Callable[[], None]) -> None:
        super().__init__()
        self.look = look
        self.put_in = put_in

    def __len__(self) -> int:
        n = super().__len__()
        if not n:
            self.look -= 1
            if not self.look:
                self.put_in()
        return n


@pytest.mark.parametrize("look", range(1, 6))
@pytest.mark.parametrize("item", [None, (0, piece(5))])
def test_what_is_put_in_at_any_moment_comes(
    inbox: Inbox, stream: Stream, look: int, item: Item | None
) -> None:
    inbox.lend(stream.ours, stream)
    inbox.take(0.0)  # it has rung for that
    late = inbox._items = Late(look, lambda: inbox.put(item))
    taken = [inbox.take(0.0) for _ in range(6)]
    assert late.look <= 0, "never looked so often"
    assert [one for one in taken if one is not None] == [[] if item is None else [item]]


def test_who_waits_reads_what_is_lent(inbox: Inbox, stream: Stream) -> None:
    inbox.lend(stream.ours, stream)
    assert inbox.take(0.0) == []  # it looks whether there is anything
    stream.send(1, 2)
    assert epochs(inbox.take(LIMIT)) == [1, 2]
    assert inbox.take(0.0) is None
    later = threading.Timer(0.02, stream.send, (3,))
    later.start()
    assert epochs(inbox.take(LIMIT)) == [3]
    later.join(LIMIT)


def test_both_come_at_once(inbox: Inbox, stream: Stream) -> None:
    inbox.lend(stream.ours, stream)
    stream.send(1)
    inbox.put((0, piece(9)))
    assert sorted(epochs(inbox.take(LIMIT))) == [1, 9]


def test_what_was_received_before_it_was_lent_is_not_forgotten(
    inbox: Inbox, stream: Stream
) -> None:
    stream.send(1, 2, 3)
    frame = stream.reader.read()
    assert frame is not None and frame.head == b"1"
    inbox.lend(stream.ours, stream)  # the others are in the reader, and the socket is empty
    assert epochs(inbox.take(LIMIT)) == [2, 3]


def test_who_is_too_far_ahead_rests_until_he_is_not(
    inbox: Inbox, stream: Stream, upto: Upto
) -> None:
    upto.epoch = 2
    inbox.lend(stream.ours, stream)
    stream.send(*range(1, 9))
    assert epochs(inbox.take(LIMIT)) == [1, 2]
    assert inbox.take(0.01) is None
    upto.epoch = 5  # the frames are in the reader, and the socket is empty
    assert epochs(inbox.take(LIMIT)) == [3, 4, 5]
    upto.epoch = 100
    assert epochs(inbox.take(LIMIT)) == [6, 7, 8]


def test_one_that_rests_holds_no_other_up(inbox: Inbox, stream: Stream, upto: Upto) -> None:
    other = Stream()
    upto.epoch = 2
    for s in (stream, other):
        inbox.lend(s.ours, s)
    stream.send(1, 2, 3)
    assert epochs(inbox.take(LIMIT)) == [1, 2]
    other.send(1)
    assert epochs(inbox.take(LIMIT)) == [1]
    other.close()


def test_what_is_large_is_given_back(inbox: Inbox, stream: Stream) -> None:
    inbox.lend(stream.ours, stream)
    sending = threading.Thread(target=stream.send, args=(1,))
    sending.start()
    assert epochs(inbox.take(LIMIT) or inbox.take(LIMIT)) == [1]
    sending.join(LIMIT)
    sending = threading.Thread(target=stream.send, args=(2,), kwargs={"size": SMALL})
    sending.start()
    assert inbox.take(LIMIT) == []
    assert isinstance(stream.why, Large) and stream.returned.is_set()
    frame = stream.reader.read()  # whole, although some of it was received already
    assert frame is not None and frame.head == b"2" and len(frame.body) == SMALL
    sending.join(LIMIT)
    assert inbox.take(0.01) is None


def test_what_came_before_the_end_is_not_lost(inbox: Inbox, stream: Stream) -> None:
    inbox.lend(stream.ours, stream)
    stream.send(1, 2)
    stream.theirs.close()
    assert epochs(inbox.take(LIMIT)) == [1, 2]
    if stream.why is None:
        assert inbox.take(LIMIT) == []
    assert isinstance(stream.why, EOFError)
    assert inbox.take(0.01) is None


def test_what_is_recalled_is_read_no_more(inbox: Inbox, stream: Stream, upto: Upto) -> None:
    inbox.lend(stream.ours, stream)
    stream.send(1)
    inbox.recall(stream.ours)
    inbox.recall(stream.ours)
    assert not inbox.take(0.01)
    assert stream.why is None and stream.next == 1
    upto.epoch = 1
    inbox.lend(stream.ours, stream)
    assert epochs(inbox.take(LIMIT)) == [1]
    inbox.recall(stream.ours)  # while it rests
    upto.epoch = 100
    assert inbox.take(0.01) is None


def test_nothing_is_missed_however_it_comes(inbox: Inbox, upto: Upto) -> None:
    """Three streams and two who put in, all at once, and a limit that follows what was taken."""
    streams = [Stream() for _ in range(3)]
    last, taken = 400, {7: 0, 0: 0, 1: 0}
    upto.epoch = 8

    def put(edge: int) -> None:
        for epoch in range(1, last + 1):
            inbox.put((edge, piece(epoch)))
            if epoch % 50 == 0:
                time.sleep(0.001)

    threads = [threading.Thread(target=s.send, args=range(1, last + 1)) for s in streams]
    threads += [threading.Thread(target=put, args=(edge,)) for edge in (0, 1)]
    for s in streams:
        inbox.lend(s.ours, s)
    for thread in threads:
        thread.start()
    until = time.monotonic() + LIMIT
    while sum(taken.values()) < 5 * last and time.monotonic() < until:
        for edge, _ in inbox.take(LIMIT) or ():
            taken[edge] += 1
        upto.epoch = min(s.next for s in streams) + 8
    for thread in threads:
        thread.join(LIMIT)
    assert taken == {7: 3 * last, 0: last, 1: last}
    for s in streams:
        s.close()
