"""When a keeper says that it holds an image which comes in parts."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray

from raystream.actors.keepers.keeper import Keeper
from raystream.durable.manifest import SavedChain
from raystream.durable.saves import Saves
from raystream.errors import OutputError
from raystream.schema.types import KeyRange
from raystream.security.credentials import Credentials
from raystream.state.images.image_store import Stored
from tests.durable.memory import Memory

ALL = KeyRange(0, 16)
FIRST, LAST = KeyRange(0, 7), KeyRange(7, 16)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "get", lambda value, timeout: value)
    plan: Any = None
    return Keeper(plan, Credentials("secret"), 1 << 20)


def store(keeper: Keeper, part: KeyRange, *, base: int = 0, checkpoint: int = 5) -> bool:
    held, _ = keeper.store(1, ALL, part, image(base=base, checkpoint=checkpoint))
    return held


def image(
    data: bytes = b"abc",
    *,
    base: int = 0,
    checkpoint: int = 5,
    sender: str = "count/0",
    code: int = 0,
) -> Stored[Any]:
    array = np.frombuffer(data, np.uint8)
    return Stored(checkpoint, base or None, array, len(array), sender=sender, code=code)


def test_an_image_is_held_with_its_last_part(keeper: Keeper) -> None:
    assert store(keeper, FIRST)
    assert not keeper.images(1, 5, ALL)
    assert store(keeper, LAST)
    (((keys, (image,))),) = keeper.images(1, 5, ALL)
    assert keys == ALL and len(image.data) == 2


def test_an_image_of_which_another_got_the_first_part_is_not_held(keeper: Keeper) -> None:
    """Keepers were replaced while it was sent."""
    assert not store(keeper, LAST)
    assert not keeper.images(1, 5, ALL)


def test_an_image_that_was_whole_before_its_last_part_came_is_held(keeper: Keeper) -> None:
    """It is sent again, and its end was here from the first time."""
    assert not store(keeper, LAST)
    assert store(keeper, FIRST)
    assert store(keeper, LAST)


def test_a_delta_on_what_is_not_held_is_refused_with_its_last_part(keeper: Keeper) -> None:
    assert store(keeper, FIRST, base=3)
    assert not store(keeper, LAST, base=3)


def test_a_part_is_passed_on_before_it_is_kept(keeper: Keeper) -> None:
    """While this keeper waits for room the next one has it already."""
    passed: list[Any] = []

    def receive(*what: Any) -> str:
        assert not keeper.images(1, 5, ALL)
        passed.append(what)
        return "the call"

    following: Any = SimpleNamespace(store=SimpleNamespace(remote=receive))
    sent = image()
    assert keeper.store(1, ALL, ALL, sent, [following, "third"]) == (True, "the call")
    assert passed == [(1, ALL, ALL, sent, ["third"])]
    assert keeper.images(1, 5, ALL)
    assert keeper.store(1, ALL, ALL, sent) == (True, None)


@pytest.mark.parametrize(("fails", "told"), [("commit", "no rights"), ("drop", "")])
def test_a_cut_is_saved_though_old_ones_cannot_be_deleted(
    keeper: Keeper, fails: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def do(what: str) -> None:
        if what == fails:
            raise OutputError("no rights")
        done.append(what)

    saves: Any = SimpleNamespace(
        commit=lambda checkpoint: do("commit"), drop=lambda number, kept: do("drop")
    )
    saved: Any = SimpleNamespace(number=1)
    plan: Any = SimpleNamespace(durable=SimpleNamespace(keep=()))
    keeper._saves, keeper._plan = saves, plan
    assert told in keeper.save_checkpoint(saved)
    assert bool(keeper.save_checkpoint(saved)) == bool(told)
    assert done == ([] if told else ["commit", "commit"])
    assert ("could not be deleted: no rights" in caplog.text) == (not told)


def test_of_two_senders_each_has_its_own_images_saved(
    keeper: Keeper,
) -> None:
    """An owner and its successor, whose images of a checkpoint differ in what they refresh."""
    saves = Saves(Memory(), "job", at_once=1)
    number = saves.claim("run")
    durable, vertex = SimpleNamespace(number=number), SimpleNamespace(name="count")
    keeper._saves = saves
    keeper._plan = SimpleNamespace(durable=durable, vertices=[vertex])  # type: ignore[assignment]

    def send(sender: str, base: int, checkpoint: int, data: bytes) -> None:
        sent = image(data, base=base, checkpoint=checkpoint, sender=sender)
        assert keeper.store(0, ALL, ALL, sent) == (True, None)

    def saved(checkpoint: int, versions: Sequence[tuple[int, int]] = ()) -> list[bytes]:
        ((_, chain),) = keeper.put_chains(checkpoint, [(0, ALL)], versions)  # type: ignore[misc]
        assert isinstance(chain, SavedChain)
        return [bytes(saves.store.get(each.name)) for each in chain.images]

    send("count/0", 0, 1, b"all")
    send("count/1", 1, 2, b"one")
    send("count/0", 1, 2, b"two")
    assert saved(2) == [b"all", b"two"]
    send("count/1", 2, 3, b"more")
    assert saved(3) == [b"all", b"one", b"more"]
    keeper.store(0, ALL, ALL, image(b"new", checkpoint=4, sender="count/1", code=2))
    send("count/0", 2, 4, b"old")  # it was replaced, and does not know of the other code
    assert saved(4, [(3, 2)]) == [b"new"]
