"""Which epochs are cuts, and which of them an instance has passed as none."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from raystream.dataflow.checkpoint_epochs import CheckpointEpochs, newest_regular


def test_every_nth_epoch_is_a_cut_and_what_is_asked_for() -> None:
    checkpoints = CheckpointEpochs(5)
    checkpoints.ask([7, 11])
    assert [e for e in range(1, 13) if checkpoints.due(e)] == [5, 7, 10, 11]
    checkpoints.ask([11])
    assert not checkpoints.due(7)


def test_what_was_passed_before_it_was_asked_for_is_missed() -> None:
    checkpoints = CheckpointEpochs(5)
    checkpoints.take(5)
    assert checkpoints.missed(8) == 0
    checkpoints.ask([7])
    assert (checkpoints.missed(6), checkpoints.missed(8)) == (0, 7)
    checkpoints.ask([7, 9])
    assert checkpoints.missed(8) == 7
    checkpoints.take(9)
    assert checkpoints.missed(9) == 7


def test_what_was_passed_as_a_cut_is_not_missed_although_it_is_asked_for_later() -> None:
    """Sources may have heard of it before."""
    checkpoints = CheckpointEpochs(5)
    checkpoints.take(7)
    checkpoints.ask([7])
    assert checkpoints.missed(9) == 0


def test_nothing_is_missed_that_was_before_the_beginning() -> None:
    checkpoints = CheckpointEpochs(5)
    checkpoints.begun = 7
    checkpoints.ask([6, 7])
    assert checkpoints.missed(9) == 0


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.booleans(), st.sets(st.integers(1, 20))), max_size=20),
    st.integers(0, 20),
)
def test_missed_is_what_was_asked_for_passed_and_not_taken(
    every: int, steps: list[tuple[bool, set[int]]], committed: int
) -> None:
    """Cuts up to a floor may be forgotten: nobody asks for them any more."""
    checkpoints, taken, asked = CheckpointEpochs(every), set[int](), set[int]()
    for epoch, (takes, asks) in enumerate(steps, 1):
        asked = asks
        checkpoints.ask(asks)
        if takes:
            checkpoints.take(epoch)
            taken.add(epoch)
        if epoch == committed:
            checkpoints.settle(committed)
        if epoch >= committed:
            asked = {e for e in asks if e > committed}
            checkpoints.ask(asked)
        passed = {e for e in asked if e <= epoch} - taken
        assert checkpoints.missed(epoch) == max(passed, default=0)


# ---------------------------------------------------------------- runs of empty epochs


def test_a_step_ends_at_the_next_checkpoint_or_at_the_first_that_was_asked_for() -> None:
    checkpoints = CheckpointEpochs(10)
    assert checkpoints.stop(3, 9) == 9
    assert checkpoints.stop(3, 57) == 10
    assert checkpoints.stop(10, 57) == 20
    checkpoints.ask([31, 42])
    assert checkpoints.stop(30, 57) == 31
    checkpoints.together = True
    assert checkpoints.stop(3, 57) == 31
    assert checkpoints.stop(31, 57) == 42
    assert checkpoints.due(42, 11)


def taken(checkpoints: CheckpointEpochs, lengths: list[int]) -> list[list[int]]:
    """By step the checkpoint that a source takes which goes through runs of these lengths."""
    at, found = 0, []
    for length in lengths:
        end = at + length
        while at < end:
            last = checkpoints.stop(at, end)
            assert at < last <= end
            due = checkpoints.due(last, last - at)
            found.append([last] * due)
            if due:
                checkpoints.take(last)
            checkpoints.passed(at + 1, last - due)
            at = last
    return found


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20), st.integers(1, 20))
def test_sources_that_are_apart_take_every_checkpoint(lengths: list[int], every: int) -> None:
    checkpoints = CheckpointEpochs(every)
    found = [e for step in taken(checkpoints, lengths) for e in step]
    assert found == list(range(every, sum(lengths) + 1, every))
    assert not checkpoints.skipped
    assert checkpoints.newest == max(found, default=0)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20), st.integers(1, 20))
def test_what_is_skipped_is_reported(lengths: list[int], every: int) -> None:
    checkpoints = CheckpointEpochs(every)
    checkpoints.together = True
    found = [e for step in taken(checkpoints, lengths) for e in step]
    skipped = [e for first, last in checkpoints.skipped for e in range(first, last + 1)]
    regular = list(range(every, sum(lengths) + 1, every))
    assert sorted([*found, *(e for e in skipped if e % every == 0)]) == regular
    newest = newest_regular(every, sum(lengths), 0, checkpoints.skipped)
    assert newest == max(found, default=0)
    checkpoints.settle(sum(lengths))
    assert not checkpoints.skipped


@given(st.integers(1, 5000), st.integers(1, 20), st.integers(0, 3))
def test_a_run_counts_as_one_epoch(length: int, every: int, odd: int) -> None:
    """With an odd epoch between them, or none, runs have a checkpoint in so many steps."""
    checkpoints = CheckpointEpochs(every)
    checkpoints.together = True
    lengths = [length, *[1] * odd] * (12 * every)
    steps = taken(checkpoints, lengths)
    at = [i for i, step in enumerate(steps) if step]
    gaps = [b - a for a, b in pairwise([0, *at])]
    assert max(gaps) <= 2 * every * (1 + odd) + 2
    if length > 1 and not odd:
        assert len(at) <= len(steps) / every + 1
