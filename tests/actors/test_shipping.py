"""The checkpoint of an end is shipped until it is stored: no cut comes after it."""

from __future__ import annotations

import threading
from typing import Any

from raystream.actors import shipping
from raystream.actors.shipping import Shipper
from raystream.dataflow.snapshot import Captured
from raystream.schema.types import KeyRange
from raystream.state.chain import Span
from raystream.state.image import ImageHeader, Standing


def captured(base: int, *, ended: bool) -> Captured:
    header = ImageHeader("count", "", 8, KeyRange(0, 8), base, 37, Standing(ended=ended))
    return Captured(header, None)


def test_the_last_checkpoint_is_shipped_again_and_whole(monkeypatch: Any) -> None:
    monkeypatch.setattr(shipping, "RETRY_SECONDS", 0.001)
    bases: list[int] = []
    stored = threading.Event()

    def ship(header: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        bases.append(header.base)
        if len(bases) == 4:
            stored.set()
        return len(bases) == 4

    shipper = Shipper(ship, 30, errors.append, lambda: captured(0, ended=True))
    shipper.put(captured(30, ended=True))
    assert stored.wait(10)
    shipper.stop()
    assert bases == [30, 0, 0, 0]
    assert shipper.chain.stored == Span(37, 37)
    assert not errors


errors: list[BaseException] = []


def test_another_cut_is_not_shipped_again() -> None:
    shipped: list[int] = []

    def ship(header: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        shipped.append(header.cut)
        return False

    shipper = Shipper(ship, 30, errors.append, lambda: captured(0, ended=True))
    shipper.put(captured(30, ended=False))
    shipper.stop()
    assert shipped == [37]
    assert shipper.chain.stored == Span(30, 30)
    assert shipper.chain.base == 0
