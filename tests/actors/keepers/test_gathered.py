"""By what ways a state comes: by the links, in whole parts, and directly where a keeper fails."""

from __future__ import annotations

import random
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, RayError

from raystream.actors.keepers import fetching
from raystream.actors.keepers.fetching import fetch
from raystream.actors.keepers.gathered import HeldCopy, planned
from raystream.controller.protocol.gathering.links import Hop, LinkMeter, Links, Ways
from raystream.controller.protocol.recovery import Place
from raystream.schema.types import KeyRange
from raystream.state.keeping.kept_images import KeptPart

ALL = KeyRange(0, 16)
PARTS = [KeyRange(at, at + 2) for at in range(0, 16, 2)]
PLACE = Place(1, "count", ALL, 0)
MB = 1 << 20


class Held:
    """The call for what a keeper has."""

    def __init__(self, answer: list[Any]) -> None:
        self.answer = answer


NOTHING = SimpleNamespace(remote=lambda *_: Held([]))


class Keeper:
    """A keeper on a node that has all parts, in files. dies: whether it dies when it is to send or
    to pass on. sent: the parts that it sent, and over how many others."""

    def __init__(self, node: str, parts: list[KeyRange] = PARTS, *, dies: bool = False) -> None:
        self.node, self.parts, self.dies = node, parts, dies
        self.sent: list[tuple[int, int]] = []
        self.passed = 0
        self.images = SimpleNamespace(remote=lambda *_: Held([(ALL, [self.image()])]))
        self.read = SimpleNamespace(remote=self._read)
        self.pass_on = SimpleNamespace(remote=self._pass_on)

    def held(self) -> tuple[KeptPart[Any], ...]:
        return tuple(KeptPart(keys.lo, keys, 8 * MB, None) for keys in self.parts)

    def image(self) -> Any:
        return SimpleNamespace(data=self.held(), size=8 * MB * len(self.parts))

    def _read(self, number: int, keys: KeyRange | None = None, over: int = 0) -> Any:
        self.sent.append((number, over))
        return ActorDiedError() if self.dies else f"part {number}"

    def _pass_on(self, way: list[Keeper], number: int, keys: KeyRange | None, over: int = 1) -> Any:
        if self.dies:
            return ActorDiedError()
        self.passed += 1
        first, *rest = way
        if rest:
            return first._pass_on(rest, number, keys, over + 1)
        return first._read(number, keys, over)


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(call: Any, timeout: float) -> Any:
        if isinstance(call, RayError):
            raise call
        return call.answer if isinstance(call, Held) else call

    monkeypatch.setattr(ray, "wait", lambda calls, **_: (calls, []))
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(fetching, "decode", lambda data: SimpleNamespace(data=data, nbytes=MB))
    monkeypatch.setattr(fetching, "in_ranges", lambda images, ranges: images)


def fetched(keepers: list[Keeper], links: Links, node: str = "r") -> list[str]:
    ways = Ways(links, tuple(k.node for k in keepers))
    found = fetch(keepers, PLACE, 5, ways=ways, node=node)
    assert found is not None
    return [image.data for (image,) in found.images()]


EXPECTED = [f"part {keys.lo}" for keys in PARTS]


def test_without_links_all_comes_from_who_has_answered_first() -> None:
    a, b = Keeper("a"), Keeper("b")
    assert fetched([a, b], Links()) == EXPECTED
    assert len(a.sent) == 8 and not b.sent


def test_copies_send_in_proportion_to_their_links() -> None:
    a, b = Keeper("a"), Keeper("b")
    links = Links(pairs={("a", "r"): 30e6, ("b", "r"): 90e6}, down={"r": 1e9})
    assert fetched([a, b], links) == EXPECTED
    assert (len(a.sent), len(b.sent)) == (2, 6)


def test_over_thin_links_parts_come_by_way_of_another_keeper() -> None:
    holder, gateway = Keeper("a"), Keeper("g", [])
    gateway.images = NOTHING
    pairs = {("a", "r"): 5e6, ("a", "g"): 100e6, ("g", "r"): 100e6}
    assert fetched([holder, gateway], Links(pairs=pairs)) == EXPECTED
    assert gateway.passed >= 6
    assert sum(1 for _, over in holder.sent if over == 1) == gateway.passed


def test_where_a_keeper_on_the_way_dies_the_rest_comes_directly_in_the_same_restore() -> None:
    holder, gateway = Keeper("a"), Keeper("g", [], dies=True)
    gateway.images = NOTHING
    pairs = {("a", "r"): 5e6, ("a", "g"): 100e6, ("g", "r"): 100e6}
    assert fetched([holder, gateway], Links(pairs=pairs)) == EXPECTED
    assert {over for _, over in holder.sent} == {0}


def test_where_a_holder_dies_another_copy_sends_the_rest() -> None:
    a, b = Keeper("a", dies=True), Keeper("b")
    links = Links(pairs={("a", "r"): 90e6, ("b", "r"): 90e6})
    assert fetched([a, b], links) == EXPECTED


@pytest.mark.parametrize("seed", range(200))
def test_whatever_the_links_and_the_deaths_every_part_comes_once(seed: int) -> None:
    """As long as one holder lives."""
    rng = random.Random(seed)
    nodes = ["a", "b", "c", "g", "r"]
    pairs = {(x, y): 10 ** rng.uniform(5, 9) for x in nodes for y in nodes if x != y}
    links = Links(pairs={p: v for p, v in pairs.items() if rng.random() < 0.8})
    keepers = [Keeper(n, dies=rng.random() < 0.4) for n in rng.sample(nodes, rng.randint(2, 5))]
    keepers[rng.randrange(len(keepers))].dies = False
    for keeper in keepers:
        if keeper.dies and rng.random() < 0.5:  # one that only passes on
            keeper.images = NOTHING
    assert fetched(keepers, links) == EXPECTED


def test_a_plan_is_cut_where_parts_end() -> None:
    copies = [HeldCopy(k, k.node, [k.held()]) for k in (Keeper("a"), Keeper("b"))]
    links = Links(pairs={("a", "r"): 31e6, ("b", "r"): 97e6})
    made = planned(copies, KeyRange(1, 13), "r", links, {})
    bounds = [s.keys for s in made.slices]
    assert bounds[0].lo == 1 and bounds[-1].hi == 13
    assert all(a.hi == b.lo and a.hi % 2 == 0 for a, b in pairwise(bounds))
    assert made.seconds > 0 and made.form in ("star", "line", "tree", "widest")


def test_what_is_learnt_of_links() -> None:
    meter = LinkMeter()
    meter.note(Hop("a", "b", 10 * MB, 1.0))
    meter.note(Hop("a", "a", 10 * MB, 1.0))
    meter.note(Hop("a", "c", 100, 1e-6))
    meter.note(Hop("a", "", 10 * MB, 1.0))
    assert meter.pairs == {("a", "b"): 10 * MB}
    meter.note(Hop("a", "b", 10 * MB, 2.0))
    assert 9 * MB < meter.pairs["a", "b"] < 10 * MB, "a busy machine makes a link seem slower"
    meter.learn([(("b", "c"), 7.0)])
    meter.learn([], alive=["a", "b"])
    assert [*meter.pairs] == [("a", "b")], "nodes that are gone are forgotten"
