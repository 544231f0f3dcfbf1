"""The checkpoint of an end is shipped until it is stored: no other comes after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raystream.actors.worker import shipping
from raystream.actors.worker.shipping import Shipper
from raystream.dataflow.snapshot import Captured
from raystream.dataflow.tenure import Storing
from raystream.schema.types import KeyRange
from raystream.state.images.chain import FULL, Span
from raystream.state.images.image import ImageHeader, InputPosition, decode
from raystream.state.tables.backend import MadePart, PendingRows
from tests.gates import LIMIT_SECONDS, until


class Parts(PendingRows):
    """Parts that are made by a function."""

    def __init__(
        self,
        make: Callable[[], Iterator[MadePart]] = lambda: iter([MadePart(8, None, None)]),
        nbytes: int = 0,
        copy: Callable[[], None] = lambda: None,
    ) -> None:
        self.make, self.held, self.copied = make, nbytes, copy

    def parts(self, nbytes: int) -> Iterator[MadePart]:
        return self.make()

    @property
    def nbytes(self) -> int:
        return self.held

    def copy(self) -> None:
        self.copied()


def captured(base: int, *, ended: bool, nbytes: int = 0) -> Captured:
    header = ImageHeader(
        operator="count",
        shape="",
        groups=8,
        keys=KeyRange(0, 8),
        base=base,
        checkpoint=37,
        input_position=InputPosition(ended=ended),
    )
    return Captured(header, Parts(nbytes=nbytes))


def test_the_last_checkpoint_is_shipped_again_and_whole(monkeypatch: Any) -> None:
    monkeypatch.setattr(shipping, "RETRY_SECONDS", 0.001)
    bases: list[int] = []
    stored = threading.Event()

    def ship(_: Any, header: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        bases.append(header.base)
        if len(bases) == 4:
            stored.set()
        return len(bases) == 4

    shipper = Shipper(ship, Storing(30), errors.append, lambda: captured(0, ended=True))
    shipper.put(captured(30, ended=True))
    assert stored.wait(LIMIT_SECONDS)
    shipper.stop()
    assert bases == [30, 0, 0, 0]
    assert shipper.storing.chain.stored == Span(37, 37)
    assert not errors


errors: list[BaseException] = []


def test_the_thread_that_ships_gives_way(monkeypatch: Any) -> None:
    gave: list[str] = []
    monkeypatch.setattr(shipping, "give_way", lambda: gave.append(threading.current_thread().name))
    shipped: list[str] = []

    def ship(_: Any, header: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        shipped.append(threading.current_thread().name)
        return True

    shipper = Shipper(ship, Storing(30), errors.append, lambda: captured(0, ended=True))
    shipper.put(captured(30, ended=False))
    shipper.stop()
    assert gave == shipped == ["ship"]


def test_another_cut_is_not_shipped_again() -> None:
    shipped: list[int] = []

    def ship(_: Any, header: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        shipped.append(header.checkpoint)
        return False

    shipper = Shipper(ship, Storing(30), errors.append, lambda: captured(0, ended=True))
    shipper.put(captured(30, ended=False))
    shipper.stop()
    assert shipped == [37]
    assert shipper.storing.chain.stored == Span(30, 30)
    assert shipper.storing.chain.next(100) == FULL


@pytest.mark.parametrize("few", [True, False])
def test_no_checkpoint_is_taken_while_much_waits_to_be_shipped(few: bool) -> None:
    """Keepers that are slower than the flow hold it up; they do not fill its memory. What is small
    may wait behind something large, and holds nothing up."""
    go_on, taken = threading.Semaphore(0), threading.Event()
    many = shipping.WAITING_MIN * (1 if few else 20)
    nbytes = -(-shipping.WAITING_BYTES // many)

    def ship(_: Any, header: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        return go_on.acquire(timeout=LIMIT_SECONDS)

    shipper = Shipper(ship, Storing(30), errors.append, lambda: captured(0, ended=True))
    for _ in range(1 + many):  # the first is shipped
        until(lambda: not shipper.crowded)
        shipper.put(captured(0, ended=False, nbytes=nbytes))
    assert shipper.crowded
    shipper.await_room(0.0)  # returns at once: a thread may have other work meanwhile

    def take() -> None:
        while shipper.crowded:
            shipper.await_room(LIMIT_SECONDS)
        taken.set()

    threading.Thread(target=take, daemon=True).start()
    assert not taken.wait(0.1)
    go_on.release()
    assert taken.wait(LIMIT_SECONDS)
    go_on.release(many)
    shipper.stop()
    assert not errors


@pytest.mark.parametrize("refused", [None, 3, 8])
def test_an_image_is_stored_when_its_last_part_is(refused: int | None) -> None:
    """A part that is refused is the last one that is made."""
    counted = {"in": np.arange(6).tobytes()}
    header = ImageHeader(
        operator="count",
        shape="",
        groups=8,
        keys=KeyRange(1, 7),
        base=0,
        checkpoint=37,
        input_position=InputPosition(counts=counted),
    )
    made: list[int] = []

    def finish() -> Iterator[MadePart]:
        for end in (3, 4, 8):
            made.append(end)
            yield MadePart(end, None, None)

    shipped: list[tuple[KeyRange, ImageHeader]] = []

    def ship(_: Any, whole: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        assert whole is header
        shipped.append((part, decode(data).header))
        return part.lo != (4 if refused == 8 else 1) if refused else True

    shipper = Shipper(ship, Storing(30), errors.append, lambda: captured(0, ended=True))
    shipper.put(Captured(header, Parts(finish)))
    shipper.stop()
    parts = [KeyRange(1, 3), KeyRange(3, 4), KeyRange(4, 7)][: 1 if refused == 3 else 3]
    assert [(p, h.keys, h.checkpoint) for p, h in shipped] == [(p, p, 37) for p in parts]
    numbers = [np.frombuffer(h.input_position.counts["in"], np.int64) for _, h in shipped]
    assert [n.tolist() for n in numbers] == [[0, 1], [2], [3, 4, 5]][: len(parts)]
    assert made == [3, 4, 8][: len(parts)]
    assert shipper.storing.chain.stored == (Span(30, 30) if refused else Span(30, 37))
    assert (shipper.last[0] > 0) is (refused is None)
    assert not errors


def test_what_waits_is_copied_between_the_parts_of_a_large_image() -> None:
    """Whoever computes has more to do while a view is open, and a large image takes long."""
    header = ImageHeader(
        operator="count",
        shape="",
        groups=8,
        keys=KeyRange(0, 8),
        base=0,
        checkpoint=37,
        input_position=InputPosition(),
    )
    done: list[str] = []
    put = threading.Event()

    def finish() -> Iterator[MadePart]:
        for end in (4, 8):
            yield MadePart(end, None, None)

    def ship(_: Any, whole: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        assert put.wait(LIMIT_SECONDS)
        done.append(f"ship {whole.checkpoint} {part.hi}")
        return True

    shipper = Shipper(ship, Storing(30), errors.append, lambda: captured(0, ended=True))
    shipper.put(Captured(header, Parts(finish)))
    later = replace(header, base=37, checkpoint=38)
    shipper.put(Captured(later, Parts(finish, copy=lambda: done.append("copy 38"))))
    put.set()
    shipper.stop()
    assert done == ["ship 37 4", "copy 38", "ship 37 8", "copy 38", "ship 38 4", "ship 38 8"]
    assert not errors
