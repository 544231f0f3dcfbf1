"""What the next checkpoint builds on, and which cuts are stored."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from raystream.state.chain import CHAIN_MAX, CHAIN_MIN, SMALL_BYTES, Chain, Span


def bases(chain: Chain, sizes: Iterable[int], whole: int = 100) -> list[int]:
    """The bases of the checkpoints at the cuts 1, 2 ..., whose deltas are of these sizes; a full
    one takes `whole` bytes."""
    found = []
    for cut, nbytes in enumerate(sizes, 1):
        base = chain.base
        found.append(base)
        chain.made(base, cut)
        chain.answered(base, cut, nbytes if base else whole, held=True)
    return found


def full(chain: Chain, sizes: Iterable[int], whole: int = 100) -> list[int]:
    return [cut for cut, base in enumerate(bases(chain, sizes, whole), 1) if not base]


def test_each_is_a_delta_on_the_one_before_or_a_full_one() -> None:
    found = bases(Chain(0), [30] * 40)
    assert all(base in (0, cut - 1) for cut, base in enumerate(found, 1))


def test_a_full_one_follows_when_the_deltas_are_as_large() -> None:
    assert full(Chain(0), [10] * 40) == [1, 12, 23, 34]


def test_a_few_small_deltas_are_made_although_all_changes() -> None:
    assert full(Chain(0), [500] * 2 * CHAIN_MIN) == [1, CHAIN_MIN + 2]


def test_few_large_deltas_are_made_where_all_changes() -> None:
    assert full(Chain(0), [SMALL_BYTES] * 6, whole=SMALL_BYTES) == [1, 3, 5]
    assert full(Chain(0), [SMALL_BYTES // 2] * 6, whole=SMALL_BYTES) == [1, 4]


@given(st.lists(st.integers(0, 24), max_size=40), st.integers(1, 72))
def test_a_restore_reads_no_more_than_two_full_checkpoints_and_a_delta(
    eighths: list[int], whole_eighths: int
) -> None:
    sizes = [n * SMALL_BYTES // 8 for n in eighths]
    whole, read = whole_eighths * SMALL_BYTES // 8, 0
    for base, nbytes in zip(bases(Chain(0), sizes, whole), sizes, strict=True):
        if base:
            assert read < max(2 * whole, whole + SMALL_BYTES)
        read = read + nbytes if base else whole


def test_there_are_only_so_many_deltas_however_small_they_are() -> None:
    assert full(Chain(0), [0] * 2 * CHAIN_MAX) == [1, CHAIN_MAX + 2]


def test_who_goes_on_from_what_is_held_makes_a_delta_on_it() -> None:
    chain = Chain(20)
    assert chain.base == 0
    chain.continues([100, *[10] * CHAIN_MIN])
    assert chain.base == 20
    chain.made(20, 30)
    chain.answered(20, 30, 19, held=True)
    assert chain.base == 30
    chain.made(30, 40)
    chain.answered(30, 40, 1, held=True)
    assert chain.base == 0  # the deltas were as large as the full one


def test_what_is_not_stored_yet_is_not_counted() -> None:
    chain = Chain(0)
    chain.made(0, 10)
    for cut in range(20, 10 * CHAIN_MIN, 10):
        chain.made(cut - 10, cut)
        assert chain.base == cut
    chain.answered(0, 10, 100, held=True)
    assert chain.base == cut
    chain.answered(10, 20, SMALL_BYTES, held=True)
    assert chain.base == 0
    chain.made(0, cut + 10)
    assert chain.base == cut + 10


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
