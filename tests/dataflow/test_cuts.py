"""Which epochs are cuts, and which of them an instance has passed as none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raystream.dataflow.cuts import Cuts


def test_every_nth_epoch_is_a_cut_and_what_is_asked_for() -> None:
    cuts = Cuts(5)
    cuts.ask([7, 11])
    assert [e for e in range(1, 13) if cuts.due(e)] == [5, 7, 10, 11]
    cuts.ask([11])
    assert not cuts.due(7)


def test_what_was_passed_before_it_was_asked_for_is_missed() -> None:
    cuts = Cuts(5)
    cuts.take(5)
    assert cuts.missed(8) == 0
    cuts.ask([7])
    assert (cuts.missed(6), cuts.missed(8)) == (0, 7)
    cuts.ask([7, 9])
    assert cuts.missed(8) == 7
    cuts.take(9)
    assert cuts.missed(9) == 7


def test_what_was_passed_as_a_cut_is_not_missed_although_it_is_asked_for_later() -> None:
    """Sources may have heard of it before."""
    cuts = Cuts(5)
    cuts.take(7)
    cuts.ask([7])
    assert cuts.missed(9) == 0


def test_nothing_is_missed_that_was_before_the_beginning() -> None:
    cuts = Cuts(5)
    cuts.begun = 7
    cuts.ask([6, 7])
    assert cuts.missed(9) == 0


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.booleans(), st.sets(st.integers(1, 20))), max_size=20),
    st.integers(0, 20),
)
def test_missed_is_what_was_asked_for_passed_and_not_taken(
    every: int, steps: list[tuple[bool, set[int]]], floor: int
) -> None:
    """Cuts up to a floor may be forgotten: nobody asks for them any more."""
    cuts, taken, asked = Cuts(every), set[int](), set[int]()
    for epoch, (takes, asks) in enumerate(steps, 1):
        asked = asks
        cuts.ask(asks)
        if takes:
            cuts.take(epoch)
            taken.add(epoch)
        if epoch == floor:
            cuts.settle(floor)
        if epoch >= floor:
            asked = {e for e in asks if e > floor}
            cuts.ask(asked)
        passed = {e for e in asked if e <= epoch} - taken
        assert cuts.missed(epoch) == max(passed, default=0)
