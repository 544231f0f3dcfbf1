"""Taking a range over: who may write, what is there already, and what is refused."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.errors import OutputError
from raystream.io.databases.markers import Marker, MarkerOwner, Run, joined, take_over
from raystream.schema.types import KeyRange, SinkContext

GROUPS = 8
RUN = Run(1, "run", 1, "program", 0)


def context(lo: int = 0, hi: int = GROUPS, **changed: object) -> SinkContext:
    told: dict[str, object] = {"generation": 9, "number": 1, "job": "job", "program": "program"}
    first = SinkContext("run", "sink", KeyRange(lo, hi), None, 0, None)
    return first._replace(**{**told, **changed})  # type: ignore[arg-type]


def marker(lo: int, hi: int, epoch: int, run: int = 1, generation: int = 1, **more: int) -> Marker:
    shown = more.pop("shown", epoch)
    return Marker(KeyRange(lo, hi), epoch, shown, MarkerOwner(run, generation), **more)  # type: ignore[arg-type]


@st.composite
def tilings(draw: st.DrawFn) -> list[Marker]:
    """Markers of some ranges, which do not overlap; some key groups may have none."""
    bounds = sorted(draw(st.sets(st.integers(0, GROUPS), min_size=2)))
    pairs = pairwise(bounds)
    found = [
        marker(lo, hi, draw(st.integers(0, 9)), 1, draw(st.integers(1, 8))) for lo, hi in pairs
    ]
    return [m for m in found if draw(st.integers(0, 3))]


def epochs(markers: list[Marker] | tuple[Marker, ...]) -> dict[int, int]:
    return {g: m.epoch for m in markers for g in range(*m.keys)}


@given(tilings(), st.integers(0, GROUPS - 1), st.integers(1, GROUPS), st.integers(0, 5))
def test_a_successor_knows_of_each_key_group_what_is_there(
    there: list[Marker], lo: int, length: int, committed: int
) -> None:
    keys = KeyRange(lo, min(lo + length, GROUPS))
    told = context(*keys, committed=committed)
    if any(m.epoch < committed for m in there if m.keys.overlaps(keys)):
        with pytest.raises(OutputError, match="gone back"):
            take_over("t", [RUN], there, told, "refuse")
        return
    change = take_over("t", [RUN], there, told, "refuse")
    after = [m for m in there if m not in change.remove] + list(change.put)
    known = epochs(there)
    assert epochs(after) == known | {g: known.get(g, committed) for g in range(*keys)}
    assert sum(len(m.keys) for m in after) == len(epochs(after))  # none overlap
    assert epochs(change.mine).keys() == set(range(*keys))
    assert {m.owner for m in change.mine} == {change.owner}
    assert change.register is None and not change.clear


@given(tilings(), st.integers(0, GROUPS - 1), st.integers(1, GROUPS))
def test_every_owner_before_is_fenced(there: list[Marker], lo: int, length: int) -> None:
    keys = KeyRange(lo, min(lo + length, GROUPS))
    change = take_over("t", [RUN], there, context(*keys), "refuse")
    after = {(m.keys, m.owner) for m in there if m not in change.remove}
    after |= {(m.keys, m.owner) for m in change.put}
    for owner in {m.owner for m in there if m.keys.overlaps(keys)}:
        mine = {(m.keys, m.owner) for m in there if m.owner == owner}
        assert not mine <= after


def test_one_that_was_replaced_takes_nothing_over() -> None:
    with pytest.raises(OutputError, match="writes no more"):
        take_over("t", [RUN], [marker(0, 8, 5, generation=10)], context(), "refuse")
    later = Run(2, "later", 2, "program", 0)
    with pytest.raises(OutputError, match="writes no more"):
        take_over("t", [RUN, later], [marker(0, 8, 5, run=2)], context(), "refuse")


def test_a_run_with_a_lesser_number_goes_on_from_nothing() -> None:
    later = Run(2, "later", 3, "program", 4)
    with pytest.raises(OutputError, match="writes no more"):
        take_over("t", [RUN, later], [], context(run="next", resumed="run", number=2), "refuse")


@pytest.mark.parametrize("existing", ["keep", "replace"])
def test_a_run_that_begins_again_after_one_that_broke_off(existing: str) -> None:
    begins, there = context(run="next"), [marker(0, 4, 5), marker(4, 8, 7)]
    with pytest.raises(OutputError, match="rows up to epoch 7"):
        take_over("t", [RUN], there, begins, "refuse")
    change = take_over("t", [RUN], there, begins, existing)  # type: ignore[arg-type]
    assert change.clear == (existing == "replace")
    assert set(change.remove) == set(there)  # all of the earlier run are fenced
    assert change.register == Run(2, "next", 1, "program", 0)
    assert epochs(change.mine) == dict.fromkeys(range(8), 0)


def test_a_run_after_one_that_ended_adds_to_it() -> None:
    there = [marker(0, 8, 5, ended=True)]
    change = take_over("t", [RUN], there, context(run="next"), "refuse")
    assert change.register is not None and not change.clear


def test_jobs_in_one_process_may_share_a_name() -> None:
    """They have no generations: what has the name and the range is an earlier job."""
    once = context(generation=0)
    first = take_over("t", [], [], once, "refuse")
    assert first.register is not None
    ended = [m._replace(ended=True) for m in first.mine]
    second = take_over("t", [first.register], ended, once, "refuse")
    assert second.register is not None and second.register.order == 2
    half = take_over("t", [first.register], first.put, context(generation=0, lo=8, hi=16), "refuse")
    assert half.register is None  # another range of the same job


RESUMED = {"run": "next", "resumed": "run", "committed": 4, "number": 2}


def test_what_was_shown_after_the_checkpoint_is_believed_if_it_can_be_made_again() -> None:
    there = [marker(0, 8, 7)]
    change = take_over("t", [RUN], there, context(**RESUMED), "refuse")
    assert epochs(change.mine) == dict.fromkeys(range(8), 7)
    with pytest.raises(OutputError, match=r"(?s)cut by arrival.*visible=\"saved\""):
        take_over("t", [RUN], there, context(**RESUMED, repeatable=False), "refuse")
    with pytest.raises(OutputError, match="program has changed"):
        take_over("t", [RUN], there, context(**RESUMED | {"program": "other"}), "refuse")
    with pytest.raises(OutputError, match="holds no output of the run gone"):
        take_over("t", [RUN], there, context(**RESUMED | {"resumed": "gone"}), "refuse")


def test_a_changed_program_may_go_on_where_nothing_was_shown_after_the_checkpoint() -> None:
    changed = context(**RESUMED | {"program": "other"})
    change = take_over("t", [RUN], [marker(0, 8, 4)], changed, "refuse")
    assert epochs(change.mine) == dict.fromkeys(range(8), 4)


def test_rows_of_a_program_before_the_last_one_count_too() -> None:
    """The second run went on from 6 with the program of the third; the third goes on from 4."""
    runs = [Run(1, "run", 1, "old", 0), Run(2, "second", 2, "program", 6)]
    there = [marker(0, 8, 7, run=2)]
    with pytest.raises(OutputError, match="program has changed"):
        take_over("t", runs, there, context(**RESUMED, **{"generation": 1}), "refuse")


def test_what_an_earlier_run_staged_after_the_checkpoint_is_forgotten() -> None:
    there = [marker(0, 8, 7, shown=3)]
    change = take_over("t", [RUN], there, context(**RESUMED, repeatable=False), "refuse")
    assert change.forget == 4
    assert [(m.epoch, m.shown) for m in change.mine] == [(4, 3)]
    same = take_over("t", [RUN], there, context(committed=4, repeatable=False), "refuse")
    assert same.forget > 7  # the same run makes the same again
    assert [(m.epoch, m.shown) for m in same.mine] == [(7, 3)]


def test_neighbours_of_one_epoch_become_one() -> None:
    owner = MarkerOwner(1, 9)
    cut = [Marker(KeyRange(i, i + 1), 5 + (i > 5), 5, owner) for i in range(8)]
    assert [m.keys for m in joined(cut)] == [KeyRange(0, 6), KeyRange(6, 8)]
