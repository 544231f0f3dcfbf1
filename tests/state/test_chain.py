"""What the next checkpoint builds on, and which cuts are stored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raystream.state.chain import CHAIN_MAX, Chain, Span


def test_a_delta_on_the_last_one_and_a_full_one_now_and_then() -> None:
    chain, bases = Chain(0), []
    for cut in range(1, 2 * CHAIN_MAX + 3):
        bases.append(chain.base)
        chain.made(chain.base, cut)
        chain.answered(cut, held=True)
    full = [cut for cut, base in enumerate(bases, 1) if base == 0]
    assert full == [1, CHAIN_MAX + 2, 2 * CHAIN_MAX + 3][: len(full)]
    assert all(base in (0, cut - 1) for cut, base in enumerate(bases, 1))


def test_after_one_that_was_not_stored_the_next_is_full() -> None:
    chain = Chain(10)
    chain.made(0, 20)
    assert chain.base == 20
    chain.answered(20, held=False)
    assert (chain.base, chain.stored) == (0, Span(10, 10))


def test_a_refusal_while_the_next_one_is_made_is_not_forgotten() -> None:
    """The answer comes on another thread: the copying of a delta takes its time."""
    chain = Chain(10)
    chain.made(0, 20)
    base = chain.base
    chain.answered(20, held=False)
    chain.made(base, 30)
    assert chain.base == 0


@given(st.integers(0, 5), st.lists(st.booleans(), max_size=12))
def test_all_cuts_of_the_span_are_stored(floor: int, helds: list[bool]) -> None:
    chain, stored = Chain(floor), {floor}
    for cut, held in enumerate(helds, floor + 1):
        chain.answered(cut, held=held)
        stored |= {cut} if held else set()
        assert chain.stored.upto == max(stored)
        assert stored >= set(range(chain.stored.since, chain.stored.upto + 1))
