"""Plans of gathering: they bring every slice once, from who holds it, and in the time that the
links allow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raystream.controller.protocol.gathering.links import LOCAL, USUAL, Links, measured
from raystream.controller.protocol.gathering.plan import (
    Gathering,
    Route,
    UnheldError,
    Wanted,
    holds,
    parcels,
    replaced,
    routes_of,
    tree_of,
)
from raystream.controller.protocol.gathering.predict import capacity, loads
from raystream.controller.protocol.gathering.widest import FORMS, gather
from raystream.schema.types import KeyRange

WHOLE = KeyRange(0, 64)
HOLDERS = ("a", "b", "c", "d")
MB = 1e6


def even(speed: float, nodes: Sequence[str] = (*HOLDERS, "r", "s")) -> Links:
    """Links that are all alike."""
    return Links(pairs={(x, y): speed for x in nodes for y in nodes if x != y})


def everywhere(receiver: str = "r", holders: Sequence[str] = HOLDERS) -> Wanted:
    """64 MB of which every holder has all."""
    held = {holder: [WHOLE] for holder in holders}
    return Wanted(receiver=receiver, keys=WHOLE, nbytes=64 * MB, held=held)


def in_quarters(receiver: str = "r") -> Wanted:
    """64 MB of which every holder has a quarter."""
    held = {holder: [KeyRange(16 * i, 16 * i + 16)] for i, holder in enumerate(HOLDERS)}
    return Wanted(receiver=receiver, keys=WHOLE, nbytes=64 * MB, held=held)


def check(plan: Gathering) -> None:
    """Every key group comes once, from a node that holds it, and nothing goes in a circle."""
    wanted, groups = plan.wanted, list[int]()
    for keys, path in plan.routes:
        groups += range(*keys)
        assert holds(wanted.held[path[0]], keys)
        assert len({*path, wanted.receiver}) == len(path) + (wanted.receiver not in path)
    assert sorted(groups) == [*range(*wanted.keys)]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[Wanted], Links]:
    """Receivers, what is held where, and links."""
    nodes = [f"n{i}" for i in range(draw(st.integers(2, 7)))]
    speeds = st.floats(1e5, 1e9)
    pairs = draw(st.dictionaries(st.tuples(*[st.sampled_from(nodes)] * 2), speeds, max_size=30))
    links = Links(
        pairs={pair: speed for pair, speed in pairs.items() if pair[0] != pair[1]},
        up=draw(st.dictionaries(st.sampled_from(nodes), speeds)),
        down=draw(st.dictionaries(st.sampled_from(nodes), speeds)),
    )
    wants = []
    for receiver in draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=4, unique=True)):
        cuts = sorted({0, 64, *draw(st.lists(st.integers(1, 63), max_size=3))})
        held: dict[str, list[KeyRange]] = {}
        for lo, hi in pairwise(cuts):
            for node in draw(st.sets(st.sampled_from(nodes), min_size=1, max_size=3)):
                held.setdefault(node, []).append(KeyRange(lo, hi))
        nbytes = draw(st.floats(0, 1e9))
        wants.append(Wanted(receiver=receiver, keys=WHOLE, nbytes=nbytes, held=held))
    return wants, links


@settings(max_examples=60, deadline=None)
@given(jobs(), st.sampled_from(FORMS))
def test_every_slice_comes_once(job: tuple[list[Wanted], Links], form: str) -> None:
    plans = gather(*job, form)
    for plan in plans:
        check(plan)
        assert routes_of(plan.tree) == tuple(sorted(plan.routes))


@settings(max_examples=30, deadline=None)
@given(jobs())
def test_auto_is_as_fast_as_the_fastest_form(job: tuple[list[Wanted], Links]) -> None:
    seconds = {form: max(p.seconds for p in gather(*job, form)) for form in FORMS}
    assert seconds["auto"] * 0.95 <= min(seconds.values()) + 1e-9


def test_on_a_lan_a_star_is_as_fast_as_any_and_faster_for_many() -> None:
    one = {form: gather([everywhere()], even(100 * MB), form)[0] for form in FORMS}
    assert one["star"].seconds == pytest.approx(0.64, rel=0.01)
    assert one["auto"].form == "star" and one["line"].seconds == pytest.approx(0.64, rel=0.05)
    both = [in_quarters("r"), in_quarters("s")]
    seconds = {form: max(p.seconds for p in gather(both, even(100 * MB), form)) for form in FORMS}
    assert seconds["star"] == pytest.approx(0.64, rel=0.01)
    assert seconds["line"] == pytest.approx(2 * 0.64, rel=0.05)
    assert seconds["auto"] == seconds["star"]


def through_a_gateway() -> Links:
    """The receiver has a fast link to one holder, and thin ones to the others."""
    pairs = {(x, y): 100 * MB for x in HOLDERS for y in HOLDERS if x != y}
    pairs |= {(holder, "r"): (40 if holder == "a" else 5) * MB for holder in HOLDERS}
    return Links(pairs=pairs, down={"r": 100 * MB})


def test_where_direct_links_are_thin_bytes_go_through_the_gateway() -> None:
    links = through_a_gateway()
    seconds = {form: gather([in_quarters()], links, form)[0].seconds for form in FORMS}
    assert seconds["star"] == pytest.approx(16 / 5, rel=0.01)
    assert seconds["line"] == pytest.approx(64 / 40, rel=0.05)
    assert seconds["auto"] == pytest.approx(64 / 55, rel=0.15)
    (plan,) = gather([in_quarters()], links)
    assert any(path[1:] == ("a",) for _, path in plan.routes)
    assert any(path == ("b",) for _, path in plan.routes)


def test_a_node_that_holds_nothing_passes_on() -> None:
    pairs = {("a", "r"): 5 * MB, ("a", "x"): 50 * MB, ("x", "r"): 50 * MB}
    (plan,) = gather([everywhere(holders=["a"])], Links(pairs=pairs))
    assert {path for _, path in plan.routes} >= {("a", "x")}
    assert plan.seconds < 64 / 45


def test_copies_give_the_choice_of_links() -> None:
    pairs = {("a", "r"): 30 * MB, ("b", "r"): 10 * MB}
    (plan,) = gather([everywhere(holders=["a", "b"])], Links(pairs=pairs, down={"r": 100 * MB}))
    assert [(len(keys), path) for keys, path in plan.routes] == [(48, ("a",)), (16, ("b",))]
    assert plan.seconds == pytest.approx(64 / 40)


def test_what_lies_on_the_same_node_does_not_travel() -> None:
    (plan,) = gather([everywhere("a")], even(100 * MB))
    assert plan.seconds < 0.1
    most = max(plan.routes, key=lambda route: len(route.keys))
    assert most.path == ("a",) and len(most.keys) > 48


def test_what_fails_is_asked_for_directly_elsewhere() -> None:
    wanted = everywhere()
    (plan,) = gather([wanted], even(100 * MB), "line")
    failed = plan.routes[0].path[-1]
    left = replaced(plan.routes, {failed}, wanted.held)
    assert [route.keys for route in left] == [route.keys for route in plan.routes]
    assert not any(failed in route.path for route in left)
    assert all(len(new.path) == 1 for new, old in zip(left, plan.routes, strict=True)
               if failed in old.path)  # fmt: skip
    with pytest.raises(UnheldError, match=r"\[0, 16\)"):
        replaced([Route(KeyRange(0, 16), ("a",))], {"a"}, in_quarters().held)


def test_a_tree_has_the_keepers_below_each_other() -> None:
    routes = [Route(KeyRange(0, 1), ("b", "a")), Route(KeyRange(1, 2), ("a",)),
              Route(KeyRange(2, 3), ("c",))]  # fmt: skip
    a, c = tree_of(routes)
    assert (a.node, a.slices, c.node) == ("a", (KeyRange(1, 2),), "c")
    assert [(b.node, b.slices) for b in a.children] == [("b", (KeyRange(0, 1),))]


def test_what_nobody_holds_is_named() -> None:
    wanted = Wanted(receiver="r", keys=WHOLE, nbytes=1, held={"a": [KeyRange(0, 32)]})
    with pytest.raises(UnheldError, match=r"\[32, 64\)"):
        parcels(wanted)


def test_no_link_carries_more_than_its_time_allows() -> None:
    links = through_a_gateway()
    plans = gather([in_quarters("r"), in_quarters("d")], links)
    seconds = max(plan.seconds for plan in plans)
    for resource, nbytes in loads(plans).items():
        assert nbytes <= 1.001 * capacity(links, resource) * seconds


def test_an_unknown_link_is_like_others_of_its_zones() -> None:
    zones = {"a": "z", "b": "z", "c": "y", "d": "y", "e": "w"}
    links = Links(pairs={("a", "b"): 9.0, ("a", "c"): 3.0}, zones=zones)
    assert links.between("b", "a") == 9.0 and links.between("b", "d") == 3.0
    assert links.between("e", "a") == 6.0
    assert Links().between("a", "b") == USUAL and Links().between("a", "a") == LOCAL


def test_what_is_known_of_a_link_rises_at_once_and_falls_slowly() -> None:
    assert measured(None, 5.0) == 5.0 and measured(5.0, 9.0) == 9.0
    assert measured(10.0, 0.0) == pytest.approx(9.0)
