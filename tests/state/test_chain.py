"""What the next checkpoint builds on, and which cuts are stored."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from raystream.state.chain import CHAIN_MAX, CHAIN_MIN, Chain, Span


def bases(chain: Chain, sizes: Iterable[int]) -> list[int]:
    """The bases of the checkpoints at the cuts 1, 2 ..., whose deltas are of these sizes; a full
    one takes 100 bytes."""
    found = []
    for cut, nbytes in enumerate(sizes, 1):
        base = chain.base
        found.append(base)
        chain.made(base, cut)
        chain.answered(base, cut, nbytes if base else 100, held=True)
    return found


def full(chain: Chain, sizes: Iterable[int]) -> list[int]:
    return [cut for cut, base in enumerate(bases(chain, sizes), 1) if not base]


def test_each_is_a_delta_on_the_one_before_or_a_full_one() -> None:
    found = bases(Chain(0), [30] * 40)
    assert all(base in (0, cut - 1) for cut, base in enumerate(found, 1))


def test_a_full_one_follows_when_the_deltas_are_as_large() -> None:
    assert full(Chain(0), [10] * 40) == [1, 13, 25, 37]


def test_a_few_deltas_are_made_however_large_they_are() -> None:
    assert full(Chain(0), [500] * 2 * CHAIN_MIN) == [1, CHAIN_MIN + 2]


def test_there_are_only_so_many_deltas_however_small_they_are() -> None:
    assert full(Chain(0), [0] * 2 * CHAIN_MAX) == [1, CHAIN_MAX + 2]


def test_who_goes_on_from_what_is_held_makes_a_delta_on_it() -> None:
    chain = Chain(20)
    assert chain.base == 0
    chain.continues([100, *[10] * CHAIN_MIN])
    assert chain.base == 20
    chain.made(20, 30)
    chain.answered(20, 30, 20, held=True)
    assert chain.base == 30
    chain.made(30, 40)
    assert chain.base == 0  # the deltas were as large as the full one


def test_after_one_that_was_not_stored_the_next_is_full() -> None:
    chain = Chain(10)
    chain.made(0, 20)
    assert chain.base == 20
    chain.answered(0, 20, 1, held=False)
    assert (chain.base, chain.stored) == (0, Span(10, 10))


def test_a_refusal_while_the_next_one_is_made_is_not_forgotten() -> None:
    """The answer comes on another thread: the copying of a delta takes its time."""
    chain = Chain(10)
    chain.made(0, 20)
    base = chain.base
    chain.answered(0, 20, 1, held=False)
    chain.made(base, 30)
    assert chain.base == 0


@given(st.integers(0, 5), st.lists(st.booleans(), max_size=12))
def test_all_cuts_of_the_span_are_stored(floor: int, helds: list[bool]) -> None:
    chain, stored = Chain(floor), {floor}
    for cut, held in enumerate(helds, floor + 1):
        chain.answered(0, cut, 1, held=held)
        stored |= {cut} if held else set()
        assert chain.stored.upto == max(stored)
        assert stored >= set(range(chain.stored.since, chain.stored.upto + 1))
