"""What a keeper holds, what it gives for a range, and what it drops."""

from __future__ import annotations

import random
from collections import ChainMap
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.schema.types import KeyRange
from raystream.state.images.chain import SMALL_BYTES, Chain, Size
from raystream.state.images.image_store import Arrivals, ImageStore, Stored
from raystream.state.keys import cover
from tests.dataflow.random_ranges import random_ranges

GROUPS = 16
ALL = KeyRange(0, GROUPS)
LOW, HIGH = KeyRange(0, 7), KeyRange(7, GROUPS)


def image(checkpoint: int, base: int | None = None, *, ended: bool = False) -> Stored[str]:
    return Stored(checkpoint, base, f"{base}-{checkpoint}", 10, ended=ended)


def stored(*images: tuple[int, KeyRange, Stored[str]]) -> ImageStore[str]:
    store: ImageStore[str] = ImageStore()
    for vertex, keys, each in images:
        assert store.store(vertex, keys, each)
    return store


def names(
    store: ImageStore[str], checkpoint: int, wanted: KeyRange | None = None
) -> dict[KeyRange, str]:
    return {
        keys: " ".join(s.data for s in chain) for keys, chain in store.images(1, checkpoint, wanted)
    }


def test_a_delta_is_kept_where_its_base_is_only() -> None:
    store = stored((1, ALL, image(5)), (1, ALL, image(10, 5)))
    assert not store.store(1, ALL, image(20, 15))
    assert not store.store(1, LOW, image(20, 10))
    assert store.store(1, ALL, image(10, 5)), "what is held already is held"
    assert names(store, 10) == {ALL: "None-5 5-10"}
    assert names(store, 5) == {ALL: "None-5"}
    assert names(store, 7) == {}


def test_two_who_serve_a_range_build_on_what_they_stored_themselves() -> None:
    """An owner and who is to follow it."""
    store = stored((1, ALL, image(5)), (1, ALL, image(10, 5)), (1, ALL, image(20, 5)))
    assert store.store(1, ALL, image(7, 5)), "one in between"
    assert store.store(1, ALL, image(15, 10))
    assert names(store, 7) == {ALL: "None-5 5-7"}
    assert names(store, 15) == {ALL: "None-5 5-10 10-15"}
    assert names(store, 20) == {ALL: "None-5 5-20"}
    store.trim(15, [(1, ALL)])
    assert names(store, 7) == {}
    assert names(store, 15) == {ALL: "None-5 5-10 10-15"}
    assert names(store, 20) == {ALL: "None-5 5-20"}


def test_who_begins_again_from_an_older_cut_stores_what_was_left_out() -> None:
    store = stored((1, ALL, image(5)), (1, ALL, image(10, 5)), (1, ALL, image(7)))
    assert names(store, 7) == {ALL: "None-7"}
    assert names(store, 10) == {ALL: "None-5 5-10"}, "that is built on what it was"
    assert store.store(1, ALL, image(12, 10))
    store.trim(7, [(1, ALL)])
    assert names(store, 7) == {ALL: "None-7"}
    assert names(store, 12) == {ALL: "None-5 5-10 10-12"}
    store.trim(10, [(1, ALL)])
    assert names(store, 7) == {}
    assert store.store(1, ALL, image(8, ended=True)) and names(store, 9) == {ALL: "None-8"}


def test_a_range_gets_all_that_has_to_do_with_it() -> None:
    low, high = (1, LOW, image(5)), (1, HIGH, image(5))
    store = stored(low, high, (1, HIGH, image(10, 5)), (2, ALL, image(5)), (1, LOW, image(10)))
    assert names(store, 10) == {LOW: "None-10", HIGH: "None-5 5-10"}
    assert set(names(store, 5, KeyRange(0, 7))) == {LOW}
    assert set(names(store, 5, KeyRange(7, 8))) == {HIGH}
    assert set(names(store, 5, KeyRange(6, 8))) == {LOW, HIGH}


def test_a_range_that_had_ended_is_as_at_its_end() -> None:
    store = stored((1, LOW, image(4, ended=True)), (1, HIGH, image(4)), (1, HIGH, image(10, 4)))
    assert names(store, 10) == {LOW: "None-4", HIGH: "None-4 4-10"}
    assert names(store, 15) == {LOW: "None-4"}
    assert names(store, 3) == {}


def test_a_range_that_was_split_goes_when_the_parts_are_stored() -> None:
    store = stored(
        (1, ALL, image(5)), (1, LOW, image(10)), (1, HIGH, image(10)), (2, ALL, image(5))
    )
    assert set(names(store, 5)) == {ALL}
    store.trim(10)
    assert set(names(store, 5)) == {ALL}, "nobody said that it is not served any more"
    store.trim(10, {(1, LOW), (1, HIGH), (2, ALL)})
    assert names(store, 5) == {}
    assert names(store, 10) == {LOW: "None-10", HIGH: "None-10"}
    assert store.nbytes == 30
    store.trim(12, [(1, LOW)])
    assert (names(store, 10), store.nbytes) == ({LOW: "None-10"}, 10)


def test_what_is_newer_than_the_floor_is_kept_whoever_serves_it() -> None:
    """Of a range that was split after the cut, a trim on its way does not know the parts."""
    store = stored((1, ALL, image(10)), (1, LOW, image(15)), (1, HIGH, image(15)))
    store.trim(10, {(1, ALL)})
    assert set(names(store, 10)) == {ALL}
    assert set(names(store, 15)) == {LOW, HIGH}
    store.trim(15, {(1, LOW), (1, HIGH)})
    assert set(store.chains) == {(1, LOW), (1, HIGH)}


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.integers(1, 9))
def test_trimming_keeps_what_a_restore_at_the_floor_or_later_needs(
    full: list[bool], committed: int
) -> None:
    store = stored()
    for checkpoint, whole in enumerate(full, 1):
        assert store.store(
            1, ALL, image(checkpoint, None if whole or checkpoint == 1 else checkpoint - 1)
        )
    before = {
        checkpoint: store.images(1, checkpoint) for checkpoint in range(committed, len(full) + 1)
    }
    store.trim(committed, [(1, ALL)])
    assert {checkpoint: store.images(1, checkpoint) for checkpoint in before} == before
    ((kept),) = store.chains.values()
    assert kept[0].base is None
    assert not any(s.base is None for s in kept[1:] if s.checkpoint <= committed)


@given(st.integers(0, 999), st.integers(0, GROUPS - 1), st.integers(1, GROUPS))
def test_parts_tile_a_wanted_range_or_a_key_group_is_nobodys(seed: int, lo: int, size: int) -> None:
    rng = random.Random(seed)
    wanted = KeyRange(lo, min(GROUPS, lo + size))
    held = random_ranges(rng, GROUPS) + random_ranges(rng, GROUPS)
    held = rng.sample(held, rng.randrange(len(held) + 1))
    parts = cover(held, wanted)
    groups = {g for r in held for g in range(*r)}
    if not set(range(*wanted)) <= groups:
        assert parts is None
        return
    assert parts is not None
    assert [g for _, part in parts for g in range(*part)] == list(range(*wanted))
    assert all(
        whole in held and part.within(whole) and whole.common(part) == part for whole, part in parts
    )
    assert len({whole for whole, _ in parts}) == len(parts)
    if wanted in held:
        assert parts == [(wanted, wanted)]


@pytest.mark.parametrize("b", [KeyRange(0, 3), KeyRange(2, 3), KeyRange(5, 9), KeyRange(7, 8)])
def test_what_two_ranges_have_in_common(b: KeyRange) -> None:
    a = KeyRange(2, 7)
    both = set(range(*a)) & set(range(*b))
    found = a.common(b)
    assert both == (set(range(*found)) if found else set())
    assert a.overlaps(b) == b.overlaps(a) == bool(both)
    assert b.within(a) == (both == set(range(*b)))
    assert [g for g in range(12) if a.holds(g)] == list(range(*a))


@given(ranges=st.permutations([KeyRange(0, 3), KeyRange(3, 4), KeyRange(4, GROUPS)]))
def test_parts_make_an_image_in_any_order(ranges: list[KeyRange]) -> None:
    arrivals: Arrivals[str] = Arrivals()
    for part in ranges[:2]:
        assert (
            arrivals.take("a", ALL, part, Stored(10, 5, str(part), len(part), ended=True)) is None
        )
        assert arrivals.take("b", ALL, part, Stored(10, 5, "other", 1)) is None
    whole = arrivals.take(
        "a", ALL, ranges[2], Stored(10, 5, str(ranges[2]), len(ranges[2]), ended=True)
    )
    assert whole == Stored(10, 5, tuple(map(str, sorted(ranges))), GROUPS, ended=True)
    assert list(arrivals.coming) == ["b"]


def test_an_image_that_was_given_up_makes_none_with_another() -> None:
    arrivals: Arrivals[str] = Arrivals()
    assert arrivals.take("a", ALL, LOW, Stored(10, 5, "delta", 1)) is None
    assert arrivals.take("a", ALL, HIGH, Stored(10, None, "full", 1)) is None
    assert arrivals.take("a", ALL, HIGH, Stored(15, None, "next", 1)) is None
    arrivals.trim(14)
    whole = arrivals.take("a", ALL, LOW, Stored(15, None, "low", 1))
    assert whole == Stored(15, None, ("low", "next"), 2)
    assert arrivals.take("a", ALL, LOW, Stored(20, None, "low", 1)) is None
    arrivals.trim(20)
    assert not arrivals.coming


def link(checkpoint: int, base: int, oldest: int = 0, sender: str = "a") -> Stored[str]:
    return Stored(checkpoint, base, f"{sender}{checkpoint}", 10, oldest=oldest, sender=sender)


def test_what_is_older_than_the_oldest_is_not_needed() -> None:
    store = stored((1, ALL, image(5)), (1, ALL, link(10, 5)), (1, ALL, link(15, 10)))
    assert store.store(1, ALL, link(20, 15, oldest=10))
    assert names(store, 15) == {ALL: "None-5 a10 a15"}
    assert names(store, 20) == {ALL: "a10 a15 a20"}
    store.trim(15, [(1, ALL)])
    assert names(store, 15) == {ALL: "None-5 a10 a15"}
    store.trim(20, [(1, ALL)])
    assert (names(store, 20), store.nbytes) == ({ALL: "a10 a15 a20"}, 30)
    assert store.store(1, ALL, link(25, 20, oldest=25)), "all of it was refreshed"
    store.trim(25, [(1, ALL)])
    assert (names(store, 25), store.nbytes) == ({ALL: "a25"}, 10)


def test_a_checkpoint_before_the_committed_one_is_not_there_when_a_part_was_dropped() -> None:
    store = stored((1, ALL, image(5)), (1, ALL, image(10, 5)))
    assert store.store(1, ALL, replace(image(15, 10), oldest=10))
    store.trim(15)
    assert names(store, 15) == {ALL: "5-10 10-15"}
    assert names(store, 10) == {}


def test_of_two_senders_of_the_same_checkpoints_each_needs_its_own_images() -> None:
    """Only these hold what it has refreshed; who has died may have stored a cut before."""
    store = stored((1, ALL, image(5)), (1, ALL, link(10, 5)), (1, ALL, link(15, 10)))
    for checkpoint in (10, 15):
        assert store.store(1, ALL, link(checkpoint, checkpoint - 5, sender="b"))
    assert store.store(1, ALL, link(20, 15, oldest=10, sender="b"))
    assert names(store, 20) == {ALL: "b10 b15 b20"}
    assert store.store(1, ALL, link(20, 15))
    store.trim(20, [(1, ALL)])
    chains = {s.sender: s for s in store.chains[1, ALL] if s.checkpoint == 20}
    assert set(chains) == {"a", "b"}
    assert not store.store(1, ALL, link(25, 20, oldest=10, sender="c")), "it has none of its own"
    assert store.store(1, ALL, link(25, 20, sender="c"))
    assert store.store(1, ALL, link(30, 25, oldest=15, sender="b")) is False


@given(st.data())
def test_a_restore_finds_all_that_whoever_stored_it_held(data: st.DataObject) -> None:
    """Some store cuts one after the other, refresh parts, die, and others go on from what is held,
    at the floor. Data: by slot the cut at which it was written last; a slot is any small number."""
    store: ImageStore[dict[int, int]] = ImageStore()
    slots, committed = 4, 0
    truth = {0: dict.fromkeys(range(slots), 0)}
    for sender in "abc":
        checkpoint, chain = committed, Chain(committed)
        touched = dict.fromkeys(range(slots), 0)
        if committed:
            ((_, images),) = store.images(1, committed)
            touched |= {slot: s.checkpoint for s in images for slot in s.data}
            chain.continues([Size(s.size, len(s.data)) for s in images])
        for _ in range(data.draw(st.integers(1, 12))):
            changed = data.draw(st.sets(st.integers(0, slots - 1)))
            before, checkpoint = checkpoint, checkpoint + 1
            now = truth.setdefault(checkpoint, truth[before] | dict.fromkeys(changed, checkpoint))
            touched |= {s: at for s, at in now.items() if at == checkpoint}
            sample = np.array(sorted((at, slot) for slot, at in touched.items()))
            wanted = chain.next(slots, sample.copy)
            chain.made(wanted, checkpoint)
            here = dict(now)
            if wanted.base:
                old = {s for s, at in touched.items() if (at, s) < wanted.before}
                here = {s: at for s, at in now.items() if touched[s] > wanted.base or s in old}
                touched |= dict.fromkeys(old, checkpoint)
            size = len(here) * SMALL_BYTES
            held = data.draw(st.sampled_from([True] * 5 + [False]))
            if held:
                new = Stored(
                    checkpoint,
                    wanted.base or None,
                    here,
                    size,
                    ended=False,
                    oldest=wanted.oldest,
                    sender=sender,
                )
                held = store.store(1, ALL, new)
            chain.answered(checkpoint, Size(size, len(here)), held=held)
        for at in range(committed, checkpoint + 1):
            for _, images in store.images(1, at):
                assert dict(ChainMap(*[s.data for s in reversed(images)])) == truth[at]
        here = [at for at in range(committed + 1, checkpoint + 1) if store.images(1, at)]
        if here and data.draw(st.booleans()):
            committed = data.draw(st.sampled_from(here))
            store.trim(committed, [(1, ALL)])
