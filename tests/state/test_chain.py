"""What the next checkpoint builds on, and which cuts are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from raystream.state.chain import CHAIN_MAX, IMAGE_BYTES, NOTHING, SMALL_BYTES, Chain, Size, Span


class Cut(NamedTuple):
    """How many rows the state has at a cut, and what its delta and its full image take."""

    rows: int
    delta: Size
    whole: Size


def bases(chain: Chain, cuts: Iterable[Cut]) -> list[int]:
    """The bases of the checkpoints at the cuts 1, 2 ..."""
    found = []
    for number, (rows, delta, whole) in enumerate(cuts, 1):
        base = chain.base(rows)
        found.append(base)
        chain.made(base, number)
        chain.answered(base, number, delta if base else whole, held=True)
    return found


def full(cuts: Iterable[Cut]) -> list[int]:
    return [number for number, base in enumerate(bases(Chain(0), cuts), 1) if not base]


def steady(rows: int, *deltas: int, row: int = 1) -> list[Cut]:
    """State of so many rows, of which so many change before each cut."""
    return [Cut(rows, Size(n * row, n), Size(rows * row, rows)) for n in deltas]


def test_each_is_a_delta_on_the_one_before_or_a_full_one() -> None:
    found = bases(Chain(0), steady(100, *[30] * 40))
    assert all(base in (0, cut - 1) for cut, base in enumerate(found, 1))


def test_a_full_one_follows_when_the_deltas_are_as_large() -> None:
    assert full(steady(100, *[8] * 40, row=IMAGE_BYTES)) == [1, 14, 27, 40]


def test_few_large_deltas_are_made_where_all_changes() -> None:
    assert full(steady(100, *[100] * 8, row=SMALL_BYTES)) == [1, 4, 7]
    assert full(steady(100, *[50] * 8, row=SMALL_BYTES)) == [1, 5]


def test_a_few_small_deltas_are_made_although_all_changes() -> None:
    count = SMALL_BYTES // IMAGE_BYTES
    assert full(steady(100, *[100] * 2 * count)) == [1, count + 2]


def test_no_full_one_is_made_of_state_that_only_grows() -> None:
    row = SMALL_BYTES
    grown = [Cut(n, Size(3 * row, 3), Size(n * row, n)) for n in range(3, 3 * CHAIN_MAX, 3)]
    assert full(grown) == [1]


def test_a_full_one_is_made_of_state_that_has_shrunk() -> None:
    row = 4 * SMALL_BYTES
    shrunk = [Cut(n, Size(row, 1), Size(n * row, n)) for n in (100, 90, 80, 52, 51)]
    assert full(shrunk) == [1, 5]


def test_while_a_full_one_is_stored_another_is_not_due() -> None:
    chain = Chain(0)
    chain.made(0, 10)
    chain.answered(0, 10, Size(100 * SMALL_BYTES, 100), held=True)
    assert chain.base(10) == 0
    chain.made(0, 20)
    assert chain.base(10) == 20


def test_a_few_rows_with_large_headers_do_not_make_the_state_look_large() -> None:
    first = Cut(1, NOTHING, Size(2048, 1))
    then = Cut(2 << 20, Size(2 << 24, 1 << 20), Size(2 << 25, 2 << 20))
    assert full([first, *[then] * 6]) == [1, 7]


def test_one_large_row_that_changes_often_is_not_taken_for_little() -> None:
    small, large = 10_000, 4 * SMALL_BYTES
    cuts = [Cut(small + 1, Size(large, 1), Size(large + 50 * small, small + 1))] * 6
    assert full(cuts) == [1, 4]  # although it is one of ten thousand rows


@given(st.data())
def test_a_restore_reads_about_twice_the_state_and_a_delta(data: st.DataObject) -> None:
    row = IMAGE_BYTES
    cuts = []
    for _ in range(data.draw(st.integers(0, 40))):
        rows = data.draw(st.integers(1, 96))
        changed = data.draw(st.integers(0, rows))
        cuts.append(Cut(rows, Size(changed * row, changed), Size(rows * row, rows)))
    read = deltas = 0
    for base, cut in zip(bases(Chain(0), cuts), cuts, strict=True):
        most = 2 * cut.rows * row + SMALL_BYTES
        if base:
            assert read + deltas * IMAGE_BYTES < most
            read, deltas = read + cut.delta.nbytes, deltas + 1
        else:
            assert not read or read + deltas * IMAGE_BYTES >= most
            read, deltas = cut.whole.nbytes, 0


def test_there_are_only_so_many_deltas_however_small_they_are() -> None:
    assert full(steady(10_000, *[0] * 2 * CHAIN_MAX, row=IMAGE_BYTES)) == [1, CHAIN_MAX + 2]


def test_who_goes_on_from_what_is_held_makes_a_delta_on_it() -> None:
    chain = Chain(20)
    assert chain.base(100) == 0
    row = SMALL_BYTES
    chain.continues([Size(100 * row, 100), *[Size(10 * row, 10)] * 8])
    assert chain.base(100) == 20
    chain.made(20, 30)
    chain.answered(20, 30, Size(19 * row, 19), held=True)
    assert chain.base(100) == 30
    chain.made(30, 40)
    chain.answered(30, 40, Size(row, 1), held=True)
    assert chain.base(100) == 0  # the deltas were as large as the full one


def test_what_is_not_stored_yet_is_not_counted() -> None:
    chain = Chain(0)
    chain.made(0, 10)
    for cut in range(20, 10 * SMALL_BYTES // IMAGE_BYTES, 10):
        chain.made(cut - 10, cut)
        assert chain.base(100) == cut
    chain.answered(0, 10, Size(1000, 100), held=True)
    assert chain.base(100) == cut
    chain.answered(10, 20, Size(SMALL_BYTES, 100), held=True)
    assert chain.base(100) == 0
    chain.made(0, cut + 10)
    assert chain.base(100) == cut + 10


def test_after_one_that_was_not_stored_the_next_is_full() -> None:
    chain = Chain(10)
    chain.made(0, 20)
    assert chain.base(100) == 20
    chain.answered(0, 20, Size(10, 1), held=False)
    assert (chain.base(100), chain.stored) == (0, Span(10, 10))


def test_a_refusal_while_the_next_one_is_made_is_not_forgotten() -> None:
    """The answer comes on another thread: the copying of a delta takes its time."""
    chain = Chain(10)
    chain.made(0, 20)
    base = chain.base(100)
    chain.answered(0, 20, Size(10, 1), held=False)
    chain.made(base, 30)
    assert chain.base(100) == 0


@given(st.integers(0, 5), st.lists(st.booleans(), max_size=12))
def test_all_cuts_of_the_span_are_stored(floor: int, helds: list[bool]) -> None:
    chain, stored = Chain(floor), {floor}
    for cut, held in enumerate(helds, floor + 1):
        chain.answered(0, cut, Size(10, 1), held=held)
        stored |= {cut} if held else set()
        assert chain.stored.upto == max(stored)
        assert stored >= set(range(chain.stored.since, chain.stored.upto + 1))
