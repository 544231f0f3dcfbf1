"""Law L2: an epoch is complete when some of its pieces tile, in any order and from any instance."""

from __future__ import annotations

import random
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.dataflow.inlet import Inlet, tile
from raystream.dataflow.pieces import Header, Piece
from raystream.errors import InternalError
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import NEVER, KeyRange
from tests.examples import examples

GROUPS = 4
ARCS = [KeyRange(lo, hi) for lo in range(GROUPS) for hi in range(lo + 1, GROUPS + 1)]


class Row(NamedTuple):
    group: int


def piece(epoch: int, keys: KeyRange, *, ended: bool = False, rows: int | None = None) -> Piece:
    """A piece with one row per producer key group, all for one consumer group."""
    groups = range(keys.lo, keys.hi) if rows is None else range(rows)
    columns = from_records(record_schema(Row), [Row(g) for g in groups])
    return Piece(
        Header(epoch, keys, NEVER if ended else epoch, ended=ended),
        columns,
        np.array([0, len(columns)]),
    )


def tiles(ranges: list[KeyRange]) -> bool:
    ends = [0, *(r.hi for r in ranges)]
    return ends[-1] == GROUPS and all(e == r.lo for e, r in zip(ends, ranges, strict=False))


def test_every_set_of_ranges_tiles_as_brute_force_says() -> None:
    subsets = chain.from_iterable(combinations(ARCS, n) for n in range(len(ARCS) + 1))
    for subset in subsets:
        given_ranges = random.Random(len(subset)).sample(subset, len(subset))
        paths = [
            p
            for n in range(1, GROUPS + 1)
            for p in combinations(sorted(given_ranges), n)
            if tiles(list(p))
        ]
        found = tile(given_ranges, GROUPS)
        if found is None:
            assert not paths, subset
        else:
            chosen = [given_ranges[i] for i in found]
            assert chosen == list(max(paths, key=lambda p: [r.hi for r in p])), subset


def test_of_equal_ranges_the_first_is_taken() -> None:
    assert tile([KeyRange(2, 4), KeyRange(0, 2), KeyRange(2, 4), KeyRange(0, 2)], 4) == [1, 0]


def test_overlaps_in_part_do_not_count() -> None:
    assert tile([KeyRange(0, 3), KeyRange(1, 4)], 4) is None
    assert tile([KeyRange(0, 3), KeyRange(1, 4), KeyRange(0, 1)], 4) == [2, 1]


# ---------------------------------------------------------------- inlets


class Arriving(NamedTuple):
    epoch: int
    keys: KeyRange


arrivals = st.lists(st.builds(Arriving, st.integers(1, 4), st.sampled_from(ARCS)), max_size=40)


@examples(80)
@given(arrivals, st.integers(0, 4))
def test_an_epoch_is_ready_once_what_came_tiles(coming: list[Arriving], late: int) -> None:
    inlet = Inlet(GROUPS)
    came: dict[int, list[KeyRange]] = {}
    for i, (epoch, keys) in enumerate(coming):
        had = came.setdefault(epoch, [])
        done = epoch <= inlet.position or (tile(had, GROUPS) is not None and inlet.ready(epoch))
        assert inlet.receive(piece(epoch, keys)) is not (done or keys in had)
        if not done and keys not in had:
            had.append(keys)
        while i % (late + 1) == 0 and inlet.ready(inlet.position + 1):
            applied = inlet.apply(inlet.position + 1)
            assert tiles([p.header.keys for p in applied])
            assert [r.group for p in applied for r in p.rows.records()] == list(range(GROUPS))
            assert {p.header.epoch for p in applied} == {inlet.position}
    following = came.get(inlet.position + 1, [])
    assert inlet.ready(inlet.position + 1) == (tile(following, GROUPS) is not None)
    assert not inlet.finished


def test_what_was_applied_or_is_covered_is_dropped() -> None:
    inlet = Inlet(GROUPS)
    assert inlet.receive(piece(1, KeyRange(0, 4)))
    assert not inlet.receive(piece(1, KeyRange(0, 4)))
    assert inlet.ready(1)
    assert not inlet.receive(piece(1, KeyRange(0, 2)))
    inlet.apply(1)
    assert not inlet.receive(piece(1, KeyRange(0, 2)))
    assert inlet.rows == 0 and not inlet.pieces and not inlet.tiled


def test_waiting_rows_are_counted() -> None:
    inlet = Inlet(GROUPS)
    inlet.receive(piece(1, KeyRange(0, 3), rows=10))
    inlet.receive(piece(1, KeyRange(0, 2), rows=5))
    inlet.receive(piece(1, KeyRange(2, 4), rows=2))
    assert inlet.rows == 17
    assert inlet.ready(1)
    assert [len(p.rows) for p in inlet.apply(1)] == [5, 2]
    assert inlet.rows == 0


def test_an_epoch_out_of_turn_is_refused() -> None:
    inlet = Inlet(GROUPS)
    inlet.receive(piece(2, KeyRange(0, 4)))
    with pytest.raises(InternalError, match="epoch 2 was applied out of turn, after 0"):
        inlet.apply(2)
    with pytest.raises(InternalError, match="epoch 1 was applied out of turn"):
        inlet.apply(1)


def test_an_epoch_in_one_piece_is_applied_alone() -> None:
    inlet = Inlet(GROUPS)
    assert inlet.apply_only(1) is None
    inlet.receive(piece(1, KeyRange(0, 4), rows=3))
    inlet.receive(piece(2, KeyRange(0, 4)))
    found = inlet.apply_only(1)
    assert found is not None and found.header.epoch == inlet.position == 1
    assert inlet.rows == 4 and list(inlet.pieces) == [2] and not inlet.tiled


def test_an_epoch_of_several_pieces_is_left_where_it_is() -> None:
    inlet = Inlet(GROUPS)
    inlet.receive(piece(1, KeyRange(0, 3)))
    inlet.receive(piece(1, KeyRange(0, 4)))  # of an instance that takes over
    assert inlet.apply_only(1) is None and inlet.position == 0
    inlet.apply(1)
    inlet.receive(piece(2, KeyRange(0, 2), ended=True))
    inlet.receive(piece(2, KeyRange(2, 4)))
    assert inlet.apply_only(2) is None and len(inlet.apply(2)) == 2
    inlet.receive(piece(4, KeyRange(0, 4)))
    assert inlet.apply_only(4) is None  # out of turn


def test_an_inlet_that_was_restored_begins_behind_its_position() -> None:
    inlet = Inlet(GROUPS, position=7)
    assert not inlet.receive(piece(7, KeyRange(0, 4)))
    assert inlet.receive(piece(8, KeyRange(0, 4)))
    assert inlet.ready(8) and inlet.apply(8)[0].header.epoch == 8


# ---------------------------------------------------------------- ranges that end


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_ends_of_a_range_the_earlier_counts_whichever_comes_first(first: int) -> None:
    """An instance of the same range began at its end, and says it once more."""
    inlet, keys = Inlet(GROUPS), KeyRange(0, GROUPS)
    ends = [piece(1, keys, ended=True), piece(2, keys, ended=True, rows=0)]
    inlet.receive(ends[first])
    inlet.receive(ends[1 - first])
    assert inlet.ready(1)
    inlet.apply(1)
    assert inlet.finished


def test_a_range_that_ended_is_silent_and_complete() -> None:
    inlet = Inlet(GROUPS)
    inlet.receive(piece(1, KeyRange(0, 2), ended=True))
    inlet.receive(piece(1, KeyRange(2, 4)))
    assert inlet.ready(1)
    assert sum(len(p.rows) for p in inlet.apply(1)) == 4
    assert not inlet.finished
    inlet.receive(piece(2, KeyRange(2, 4), ended=True))
    assert inlet.ready(2)
    silent, last = inlet.apply(2)
    assert (len(silent.rows), silent.header.watermark, silent.header.ended) == (0, NEVER, True)
    assert silent.offsets.tolist() == [0, 0]  # as long as those of the pieces beside it
    assert len(last.rows) == 2
    assert inlet.finished and inlet.ready(3)
    assert [len(p.rows) for p in inlet.apply(3)] == [0, 0] and inlet.rows == 0


def test_an_end_does_not_count_for_epochs_before_it() -> None:
    inlet = Inlet(GROUPS)
    inlet.receive(piece(2, KeyRange(0, 4), ended=True))
    assert inlet.ready(2) and not inlet.ready(1)


@examples(60)
@given(
    st.lists(st.integers(1, 6), min_size=GROUPS, max_size=GROUPS), st.randoms(use_true_random=False)
)
def test_ends_of_any_ranges_from_any_senders(last: list[int], rng: random.Random) -> None:
    """Group g of the producer ends after epoch last[g]; instances of all ranges send at once."""
    inlet = Inlet(GROUPS)
    sent = []
    for keys in rng.sample(ARCS, rng.randrange(len(ARCS))) + [
        KeyRange(g, g + 1) for g in range(GROUPS)
    ]:
        end = max(last[keys.lo : keys.hi])
        sent += [piece(e, keys, ended=e == end) for e in range(1, end + 1)]
    rng.shuffle(sent)
    for p in sent:
        inlet.receive(p)
        while not inlet.finished and inlet.ready(inlet.position + 1):
            epoch = inlet.position + 1
            applied = inlet.apply(epoch)
            assert tiles([p.header.keys for p in applied])
            ends = [max(last[p.header.keys.lo : p.header.keys.hi]) for p in applied]
            assert [p.header.ended for p in applied] == [e <= epoch for e in ends]
            assert [len(p.rows) > 0 for p in applied] == [e >= epoch for e in ends]
    assert inlet.finished
    assert inlet.position == max(last)


def of_code(epoch: int, keys: KeyRange, code: int) -> Piece:
    made = piece(epoch, keys)
    return Piece(made.header._replace(code=code), made.rows, made.offsets)


def test_pieces_of_older_code_do_not_count_after_the_epoch_in_which_it_ended() -> None:
    whole = KeyRange(0, GROUPS)
    inlet = Inlet(GROUPS)
    for epoch in (1, 2):  # of an instance that was replaced and does not know it
        inlet.receive(of_code(epoch, whole, 0))
    assert inlet.apply(1)[0].header.code == 0
    inlet.go_over(7)
    assert not inlet.ready(2)
    assert inlet.rows == 0
    assert not inlet.receive(of_code(2, whole, 0))
    assert inlet.receive(of_code(2, whole, 7))
    assert inlet.apply(2)[0].header.code == 7


@pytest.mark.parametrize("looked_ahead", [False, True])
def test_a_piece_of_newer_code_takes_the_place_of_an_older_one_before_the_consumer_goes_over(
    looked_ahead: bool,
) -> None:
    whole = KeyRange(0, GROUPS)
    inlet = Inlet(GROUPS)
    inlet.receive(of_code(1, whole, 0))
    inlet.receive(of_code(2, whole, 0))
    inlet.apply(1)
    if looked_ahead:  # the consumer was held up before it could apply it
        assert inlet.ready(2)
    assert inlet.receive(of_code(2, whole, 7))
    inlet.go_over(7)
    assert inlet.apply(2)[0].header.code == 7
    assert inlet.rows == 0
