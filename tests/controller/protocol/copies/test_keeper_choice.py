"""Who holds which checkpoints: evenly, with little movement, and in different zones."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from raystream.controller.protocol.parts.keeper_choice import (
    by_weight,
    holders,
    in_zones,
    zones_short,
)

NODES = st.dictionaries(
    st.text("abcdef0123456789", min_size=1, max_size=6),
    st.sampled_from(["", "z1", "z2", "z3"]),
    min_size=1,
    max_size=12,
)
PARTS = [f"count/{lo}" for lo in range(2000)]


def test_every_node_holds_about_as_many_ranges() -> None:
    zones = {f"node-{i}": "" for i in range(8)}
    counts = Counter(n for p in PARTS for n in holders(p, "", [], zones, 2))
    even = 2 * len(PARTS) / len(zones)
    assert all(0.85 * even < count < 1.15 * even for count in counts.values())


@given(NODES, st.integers(1, 4))
def test_only_the_ranges_of_a_node_move_when_it_goes(zones: dict[str, str], copies: int) -> None:
    gone = min(zones)
    left = dict.fromkeys(zones.keys() - {gone}, "")
    for part in PARTS[:20]:
        before = holders(part, "", [], dict.fromkeys(zones, ""), copies)
        after = holders(part, "", [], left, copies)
        assert {*before} - {gone} <= {*after}


@given(NODES, st.integers(1, 4), st.data())
def test_copies_lie_in_as_many_zones_as_can_be(
    zones: dict[str, str], copies: int, data: st.DataObject
) -> None:
    own = data.draw(st.sampled_from(sorted(zones)))
    upstream = data.draw(st.sets(st.sampled_from([*sorted(zones), "elsewhere"])))
    found = holders("count/0", own, upstream, zones, copies)
    assert len({*found}) == len(found) == min(copies, len(zones))
    assert not zones_short(found, zones, copies)
    near = {*upstream} & zones.keys() - {own}
    if near:
        assert found[0] in near
    one_zone = holders("count/0", own, upstream, dict.fromkeys(zones, "z"), copies)
    assert own not in one_zone or copies >= len(zones)


@given(NODES)
def test_the_ring_does_not_depend_on_the_order_of_the_nodes(zones: dict[str, str]) -> None:
    assert by_weight("count/0", zones) == by_weight("count/0", reversed([*zones]))


def test_the_holders_are_the_same_everywhere_and_for_good() -> None:
    assert by_weight("count/0", ["a", "b", "c", "d"]) == ["a", "d", "c", "b"]


def test_another_zone_goes_before_another_node() -> None:
    zones = {"a1": "a", "a2": "a", "b1": "b"}
    assert in_zones(["a1", "a2", "b1"], zones, 2) == ("a1", "b1")
    assert in_zones(["a1", "a2", "b1"], zones, 3) == ("a1", "b1", "a2")
    assert zones_short(["a1", "a2"], zones, 2)
    assert not zones_short(["a1", "a2"], zones, 1)
    assert not zones_short(["a1", "a2"], {"a1": "a", "a2": "a"}, 2)
