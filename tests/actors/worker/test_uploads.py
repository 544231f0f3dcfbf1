"""What is said of checkpoints that keepers do not store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import (
    ActorDiedError,
    ObjectStoreFullError,
    OutOfDiskError,
    OwnerDiedError,
    RayError,
    RayTaskError,
)

from raystream.actors.worker.uploads import Uploads
from raystream.schema.types import KeyRange

ALL = KeyRange(0, 16)
HEADER: Any = SimpleNamespace(
    keys=ALL, base=0, checkpoint=5, oldest=0, code=0, input_position=SimpleNamespace(ended=False)
)


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ActorDiedError(), ""),
        (OwnerDiedError("00", None, ""), ""),
        (OutOfDiskError("no room left"), "OutOfDiskError: no room left"),
    ],
)
def test_why_a_keeper_does_not_store_is_told_until_one_does(
    raised: RayError, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a dead one the controller hears by itself."""
    kept = True
    failed: BaseException = raised if not told else RayTaskError("store", "", raised)

    def get(call: tuple[bool, None], timeout: float) -> tuple[bool, None]:
        if kept:
            return call
        raise failed

    monkeypatch.setattr(ray, "get", get)
    uploads = Uploads("count/0", 1)
    room = True

    def store(*_: Any) -> tuple[bool, None]:
        if not room:
            raise ObjectStoreFullError("no room here")
        return True, None

    keeper = SimpleNamespace(store=SimpleNamespace(remote=store))

    def ship() -> bool:
        return uploads.store((keeper,), HEADER, ALL, memoryview(np.zeros(3, np.uint8)))

    assert ship() and not uploads.unstored
    kept = False
    assert not ship() and uploads.unstored == told
    kept = True
    assert ship() and not uploads.unstored
    room = False  # of the node's own store, through which it goes
    assert not ship() and "no room here" in uploads.unstored
    room = True
    assert ship() and not uploads.unstored


def test_a_part_is_sent_once_and_goes_from_keeper_to_keeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "get", lambda call, timeout: call)
    asked: list[tuple[str, int]] = []

    def keeper(name: str, holds: bool) -> Any:
        def store(*what: Any) -> tuple[bool, Any]:
            *part, others = what
            asked.append((name, len(others)))
            return holds, others[0].store.remote(*part, others[1:]) if others else None

        return SimpleNamespace(store=SimpleNamespace(remote=store))

    def ship(*holds: bool) -> bool:
        asked.clear()
        keepers = tuple(keeper(name, h) for name, h in zip("abc", holds, strict=False))
        return Uploads("count/0", 1).store(keepers, HEADER, ALL, memoryview(b"abc"))

    assert ship(True, True, True) and asked == [("a", 2), ("b", 1), ("c", 0)]
    assert not ship(True, True, False), "the last one does not hold the image"
    assert not ship(False, True, True)


def test_without_keepers_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda calls, timeout: calls)
    assert not Uploads("count/0", 1).store((), HEADER, ALL, memoryview(b"abc"))
