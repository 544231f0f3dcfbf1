"""What the next checkpoint builds on, and which cuts are stored."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.state.images.chain import (
    CHAIN_MAX,
    FULL,
    IMAGE_BYTES,
    NOTHING,
    SMALL_BYTES,
    Chain,
    CheckpointRequest,
    Size,
    Span,
)
from tests.examples import examples


class CheckpointToSave(NamedTuple):
    """How many rows the state has at a cut, and what its delta and its full image take."""

    rows: int
    delta: Size
    whole: Size


def bases(chain: Chain, checkpoints: Iterable[CheckpointToSave]) -> list[int]:
    """The bases of the checkpoints at the cuts 1, 2 ..."""
    found = []
    for number, (rows, delta, whole) in enumerate(checkpoints, 1):
        wanted = chain.next(rows)
        found.append(wanted.base)
        chain.made(wanted, number)
        chain.answered(number, delta if wanted.base else whole, held=True)
    return found


def full(checkpoints: Iterable[CheckpointToSave]) -> list[int]:
    return [number for number, base in enumerate(bases(Chain(0), checkpoints), 1) if not base]


def steady(rows: int, *deltas: int, row: int = 1) -> list[CheckpointToSave]:
    """State of so many rows, of which so many change before each cut."""
    return [CheckpointToSave(rows, Size(n * row, n), Size(rows * row, rows)) for n in deltas]


def test_each_is_a_delta_on_the_one_before_or_a_full_one() -> None:
    found = bases(Chain(0), steady(100, *[30] * 40))
    assert all(base in (0, checkpoint - 1) for checkpoint, base in enumerate(found, 1))


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
    grown = [
        CheckpointToSave(n, Size(3 * row, 3), Size(n * row, n)) for n in range(3, 3 * CHAIN_MAX, 3)
    ]
    assert full(grown) == [1]


def test_a_full_one_is_made_of_state_that_has_shrunk() -> None:
    row = 4 * SMALL_BYTES
    shrunk = [CheckpointToSave(n, Size(row, 1), Size(n * row, n)) for n in (100, 90, 80, 52, 51)]
    assert full(shrunk) == [1, 5]


def test_while_a_full_one_is_stored_another_is_not_due() -> None:
    chain = Chain(0)
    chain.made(FULL, 10)
    chain.answered(10, Size(100 * SMALL_BYTES, 100), held=True)
    assert chain.next(10).base == 0
    chain.made(FULL, 20)
    assert chain.next(10).base == 20


def test_a_few_rows_with_large_headers_do_not_make_the_state_look_large() -> None:
    first = CheckpointToSave(1, NOTHING, Size(2048, 1))
    then = CheckpointToSave(2 << 20, Size(2 << 24, 1 << 20), Size(2 << 25, 2 << 20))
    assert full([first, *[then] * 6]) == [1, 7]


def test_one_large_row_that_changes_often_is_not_taken_for_little() -> None:
    small, large = 10_000, 4 * SMALL_BYTES
    checkpoints = [
        CheckpointToSave(small + 1, Size(large, 1), Size(large + 50 * small, small + 1))
    ] * 6
    assert full(checkpoints) == [1, 4]  # although it is one of ten thousand rows


@given(st.data())
def test_a_restore_reads_about_twice_the_state_and_a_delta(data: st.DataObject) -> None:
    row = IMAGE_BYTES
    checkpoints = []
    for _ in range(data.draw(st.integers(0, 40))):
        rows = data.draw(st.integers(1, 96))
        changed = data.draw(st.integers(0, rows))
        checkpoints.append(
            CheckpointToSave(rows, Size(changed * row, changed), Size(rows * row, rows))
        )
    read = deltas = 0
    for base, checkpoint in zip(bases(Chain(0), checkpoints), checkpoints, strict=True):
        most = 2 * checkpoint.rows * row + SMALL_BYTES
        if base:
            assert read + deltas * IMAGE_BYTES < most
            read, deltas = read + checkpoint.delta.nbytes, deltas + 1
        else:
            assert not read or read + deltas * IMAGE_BYTES >= most
            read, deltas = checkpoint.whole.nbytes, 0


def test_there_are_only_so_many_deltas_however_small_they_are() -> None:
    assert full(steady(10_000, *[0] * 2 * CHAIN_MAX, row=IMAGE_BYTES)) == [1, CHAIN_MAX + 2]


def test_who_goes_on_from_what_is_held_makes_a_delta_on_it() -> None:
    chain = Chain(20)
    assert chain.next(100).base == 0
    row = SMALL_BYTES
    chain.continues([Size(100 * row, 100), *[Size(10 * row, 10)] * 8])
    assert chain.next(100).base == 20
    chain.made(CheckpointRequest(20), 30)
    chain.answered(30, Size(19 * row, 19), held=True)
    assert chain.next(100).base == 30
    chain.made(CheckpointRequest(30), 40)
    chain.answered(40, Size(row, 1), held=True)
    assert chain.next(100).base == 0  # the deltas were as large as the full one


def test_what_is_not_stored_yet_is_not_counted() -> None:
    chain = Chain(0)
    chain.made(FULL, 10)
    for checkpoint in range(20, 10 * SMALL_BYTES // IMAGE_BYTES, 10):
        chain.made(CheckpointRequest(checkpoint - 10), checkpoint)
        assert chain.next(100).base == checkpoint
    chain.answered(10, Size(1000, 100), held=True)
    assert chain.next(100).base == checkpoint
    chain.answered(20, Size(SMALL_BYTES, 100), held=True)
    assert chain.next(100).base == 0
    chain.made(FULL, checkpoint + 10)
    assert chain.next(100).base == checkpoint + 10


def test_after_one_that_was_not_stored_the_next_is_full() -> None:
    chain = Chain(10)
    chain.made(FULL, 20)
    assert chain.next(100).base == 20
    chain.answered(20, Size(10, 1), held=False)
    assert (chain.next(100).base, chain.stored) == (0, Span(10, 10))


def test_a_refusal_while_the_next_one_is_made_is_not_forgotten() -> None:
    """The answer comes on another thread: the copying of a delta takes its time."""
    chain = Chain(10)
    chain.made(FULL, 20)
    wanted = chain.next(100)
    chain.answered(20, Size(10, 1), held=False)
    chain.made(wanted, 30)
    assert chain.next(100).base == 0


@given(st.integers(0, 5), st.lists(st.booleans(), max_size=12))
def test_all_cuts_of_the_span_are_stored(committed: int, helds: list[bool]) -> None:
    chain, stored = Chain(committed), {committed}
    for checkpoint, held in enumerate(helds, committed + 1):
        chain.answered(checkpoint, Size(10, 1), held=held)
        stored |= {checkpoint} if held else set()
        assert chain.stored.upto == max(stored)
        assert stored >= set(range(chain.stored.since, chain.stored.upto + 1))


class Table:
    """Rows in slots, of which each has the cut before which it was touched last; and the images
    that were made of it: by cut the slots in each, with that."""

    def __init__(self, row: int, checkpoint: int = 0, every: int = 0) -> None:
        self.chain = Chain(checkpoint)
        self.every = every
        """So many rows are not in a sample, for each that is."""
        self.row = row
        self.checkpoint = checkpoint
        self.touched: list[int] = []
        """By slot; that it was refreshed counts too."""
        self.values: list[int] = []
        """By slot the cut before which it has changed last."""
        self.images: dict[int, dict[int, int]] = {}
        self.oldest: dict[int, int] = {}
        """By cut that of the oldest image that is needed."""

    def take(
        self, changed: Iterable[int], grown: int, *, held: bool = True, may: bool = True
    ) -> int:
        """Change some slots, add some, and make a checkpoint; how many rows it has."""
        before, self.checkpoint = self.checkpoint, self.checkpoint + 1
        for slot in changed:
            if self.touched:
                at = slot % len(self.touched)
                self.touched[at] = self.values[at] = self.checkpoint
        self.touched += [self.checkpoint] * grown
        self.values += [self.checkpoint] * grown
        wanted = self.chain.next(len(self.touched), lambda: self.sample(may=may))
        assert wanted.base in (0, before)
        found = {
            slot: self.values[slot]
            for slot, at in enumerate(self.touched)
            if at > wanted.base or (at, slot) < wanted.before
        }
        for slot in found if wanted.base else ():
            self.touched[slot] = self.checkpoint
        self.chain.made(wanted, self.checkpoint)
        self.images[self.checkpoint] = found
        self.oldest[self.checkpoint] = (
            (wanted.oldest or self.oldest.get(before, 0)) if wanted.base else self.checkpoint
        )
        self.chain.answered(self.checkpoint, Size(len(found) * self.row, len(found)), held=held)
        return len(found)

    def sample(self, *, may: bool) -> np.ndarray:
        """Of some of the rows, if they can be refreshed just now."""
        some = sorted((at, slot) for slot, at in list(enumerate(self.touched))[:: 1 + self.every])
        return np.array(some if may else [], np.int64).reshape(-1, 2)

    @property
    def needed(self) -> list[dict[int, int]]:
        """The images that a restore reads."""
        return [
            i for checkpoint, i in self.images.items() if checkpoint >= self.oldest[self.checkpoint]
        ]

    def check(self) -> None:
        """A restore finds all rows as they are."""
        found: dict[int, int] = {}
        for image in self.needed:
            found |= image
        assert found == dict(enumerate(self.values))

    @property
    def over(self) -> float:
        """What a restore reads beside the state, in parts of it."""
        return sum(map(len, self.needed)) / len(self.touched) - 1


@given(st.data())
def test_the_images_since_the_oldest_hold_all_rows(data: st.DataObject) -> None:
    """Whatever changes, grows, is refused, or cannot be refreshed just now."""
    row = data.draw(st.sampled_from([10, IMAGE_BYTES, SMALL_BYTES]))
    table = Table(row, every=data.draw(st.integers(0, 3)))
    some = st.lists(st.integers(0, 99), max_size=20)
    often = st.sampled_from([True] * 9 + [False])
    for _ in range(data.draw(st.integers(1, 60))):
        held = data.draw(often)
        grown = data.draw(st.integers(0, 5))
        table.take(data.draw(some), grown, held=held, may=data.draw(often))
        table.check()


@examples(15)
@given(st.integers(0, 99), st.sampled_from([0, 1, 9]))
def test_checkpoints_of_a_large_state_are_alike_and_a_restore_reads_less_than_thrice_of_it(
    seed: int, every: int
) -> None:
    """Once it is stored there is no full one any more, also where few rows are looked at."""
    rng, table = random.Random(seed), Table(IMAGE_BYTES * 10, every=every)
    table.take([], 2000)
    most, changed, written = 0.0, rng.choice([5, 20, 100]), 0
    for n in range(600):
        size = table.take(rng.sample(range(2000), changed), 0)
        most = max(most, table.over)
        written += size if n >= 400 else 0
        assert size <= 2000 // 3, n
    table.check()
    assert most < 1.5
    assert table.over < 0.75, "1.55, and what is not looked at"
    assert written < 200 * (2 * changed + 10), "0.6 rows for each that changes, and for each image"


def test_where_some_rows_change_often_no_more_is_read_than_thrice_the_state() -> None:
    rng, table, written, changed = random.Random(1), Table(IMAGE_BYTES * 10), 0, 0
    table.take([], 2000)
    for n in range(300):
        often = {min(2000, int(rng.paretovariate(0.5))) - 1 for _ in range(200)}
        size = table.take(often, 0)
        assert table.over < (2 if n < 200 else 0.9)
        written, changed = written + size, changed + len(often)
    assert written < 2.2 * changed


def test_rows_that_change_soon_anyway_are_not_refreshed() -> None:
    """As those of cars that report twice a minute."""
    table = Table(IMAGE_BYTES * 10)
    table.take([], 600)
    written = 0
    for n in range(60):
        written += table.take(range(n * 100, n * 100 + 100), 0)
        assert n < 6 or table.over < 0.5
    assert written < 1.1 * 60 * 100


def test_state_that_only_grows_is_hardly_ever_written_again() -> None:
    table = Table(SMALL_BYTES)
    written = sum(table.take([], 30) for _ in range(CHAIN_MAX // 4))
    assert written == len(table.touched)
    for _ in range(CHAIN_MAX):
        written += table.take([], 30)
        assert len(table.needed) <= CHAIN_MAX
    assert written < 3 * len(table.touched)


def test_a_small_state_is_written_anew_now_and_then() -> None:
    table = Table(10)
    table.take([], 100)
    for _ in range(3 * SMALL_BYTES // IMAGE_BYTES):
        table.take([1], 0)
    assert 1 < len(table.needed) <= SMALL_BYTES // IMAGE_BYTES + 2


def nothing() -> np.ndarray:
    return np.zeros((0, 2), np.int64)


@pytest.mark.parametrize("sample", [None, nothing])
def test_without_rows_a_full_one_is_made_now_and_then(sample: Any) -> None:
    """Of who keeps none, of a table that is empty still, or that is whenever a cut comes."""
    chain, since = Chain(0), 0
    for checkpoint in range(1, 200):
        wanted = chain.next(0, sample)
        since = since + 1 if wanted.base else 0
        assert since <= SMALL_BYTES // IMAGE_BYTES + 1
        chain.made(wanted, checkpoint)
        chain.answered(checkpoint, Size(400, 0), held=True)
    assert chain.next(10, sample).before == FULL.before, "none can be refreshed"


@pytest.mark.parametrize("empty", range(8, 24))
def test_rows_may_come_back_when_no_image_that_is_needed_has_any(empty: int) -> None:
    chain = Chain(0)
    for checkpoint, rows in enumerate([10, *[0] * empty, 10], 1):
        there = np.array([(max(1, checkpoint - 1), slot) for slot in range(rows)])
        wanted = chain.next(rows, there.copy)
        assert wanted.base in (0, checkpoint - 1)
        chain.made(wanted, checkpoint)
        chain.answered(checkpoint, Size(400 + 10 * rows, rows), held=True)


def test_who_goes_on_needs_what_it_began_with_until_all_is_refreshed() -> None:
    table = Table(SMALL_BYTES, checkpoint=7)
    table.touched, table.values = [7] * 100, [7] * 100
    table.images[7] = dict.fromkeys(range(100), 7)
    table.oldest[7] = 7
    table.chain.continues([Size(100 * SMALL_BYTES, 100)])
    while table.oldest[table.checkpoint] == 7:
        wanted = table.chain.next(100, lambda: table.sample(may=True))
        assert wanted.oldest == (8 if wanted.before[0] > 7 else 0)
        assert table.take([table.checkpoint % 100], 0) < 100
        table.check()
    assert table.over < 1.5
