"""What follows from a view of a job."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from raystream.controller.protocol.decide import (
    Commit,
    JobView,
    Recover,
    Stop,
    behind,
    decide,
    newest_stored,
    recoveries,
)
from raystream.dataflow.progress import Progress


def at(
    position: int, *, ended: bool = False, index: int = 0, stored: int | None = None
) -> Progress:
    """An instance whose newest stored cut is its position, unless said."""
    stored = position if stored is None else stored
    return Progress(
        vertex="count",
        instance=index,
        position=position,
        ended=ended,
        name=f"count/{index}",
        stored=stored,
    )


def view(
    *progress: Progress,
    dead: frozenset[str] = frozenset(),
    finished: frozenset[str] = frozenset(),
    committed: int = 0,
    failed: tuple[tuple[str, str], ...] = (),
    checkpoint_every: int = 10,
    sources: frozenset[str] = frozenset(),
) -> JobView:
    return JobView(
        progress=progress,
        dead=dead,
        finished=finished,
        failed=failed,
        committed=committed,
        checkpoint_every=checkpoint_every,
        sources=sources,
    )


def test_a_cut_is_committed_when_every_instance_has_applied_it() -> None:
    assert decide(view(at(25), at(20, index=1))) == [
        Commit(20, "every range is stored at checkpoint 20")
    ]
    assert decide(view(at(25), at(19, index=1), committed=10)) == []


def test_an_instance_that_has_ended_does_not_hold_the_floor_back() -> None:
    assert newest_stored(view(at(3, ended=True), at(40, index=1))) == 40


def test_the_last_epoch_is_a_cut() -> None:
    assert newest_stored(view(at(17, ended=True), at(17, ended=True, index=1))) == 17


def test_the_job_stops_when_all_are_finished() -> None:
    both = view(
        at(17, ended=True),
        at(17, ended=True, index=1),
        committed=17,
        finished=frozenset({"count/0", "count/1"}),
    )
    assert decide(both) == [Stop(False, "all input was processed")]


def test_the_job_goes_on_while_one_is_not_finished() -> None:
    one = view(at(17, ended=True), at(17, ended=True, index=1), finished=frozenset({"count/0"}))
    assert [type(c) for c in decide(one)] == [Commit]


def test_a_failure_stops_the_job_and_names_the_instance() -> None:
    assert decide(view(at(25), failed=(("count/1", "it raised"),))) == [
        Stop(True, "count/1: it raised")
    ]


def test_a_cut_is_committed_when_it_is_stored() -> None:
    assert decide(view(at(25, stored=10), at(40, index=1), committed=10)) == []
    assert newest_stored(view(at(25, stored=20), at(40, index=1), committed=10)) == 20


def test_an_end_is_reached_when_it_is_stored() -> None:
    assert newest_stored(view(at(17, ended=True, stored=10), at(40, index=1))) == 10


def test_who_died_is_replaced_from_the_floor() -> None:
    both = view(at(25), at(31, index=1), dead=frozenset({"count/1", "count/0"}), committed=20)
    assert decide(both) == [Recover(("count/0", "count/1"), 20, "count/0, count/1 died")]


def test_who_died_after_its_end_was_committed_is_replaced_while_others_go_on() -> None:
    """Nobody else could store, or give, what it was at its end."""
    gone = view(at(17, ended=True), at(29, index=1), dead=frozenset({"count/0"}), committed=20)
    assert decide(gone) == [Recover(("count/0",), 17, "count/0 died")]
    source = replace(gone, sources=frozenset({"count/0"}))
    assert decide(source) == [Recover(("count/0",), 20, "count/0 died")]


def test_what_all_have_stored_is_committed_before_the_dead_are_replaced() -> None:
    """Otherwise a job whose instances die faster than they come back goes on from the same place
    for ever."""
    died, left = at(31), frozenset({"count/0"})
    seen = replace(view(died, at(35, index=1), committed=20), dead=left, left=left)
    assert decide(seen) == [
        Commit(30, "every range is stored at checkpoint 30"),
        Recover(("count/0",), 30, "count/0 died"),
    ]
    at_20 = [Recover(("count/0",), 20, "count/0 died")]
    behind = replace(died, stored=29)
    others = (
        replace(seen, left=frozenset()),  # a keeper of its checkpoints has died, too
        replace(seen, pinned=True),  # another instance is being given state at 20
        replace(seen, progress=seen.progress[1:]),  # this controller never heard of it
        replace(seen, progress=(replace(died, kept_at=30), seen.progress[1])),
        replace(seen, progress=(behind, seen.progress[1])),
        replace(seen, progress=(died, at(29, index=1))),
    )
    for other in others:
        assert decide(other) == at_20


def test_the_end_of_a_dead_source_is_committed_and_that_of_another_waits_for_its_successor() -> (
    None
):
    """What is over begins from its own end, and not from what is committed."""
    left = frozenset({"count/0"})
    seen = replace(view(at(25, ended=True), at(35, index=1), committed=20), dead=left, left=left)
    assert decide(seen) == [Recover(("count/0",), 20, "count/0 died")]
    commit, recover = decide(replace(seen, sources=left))
    assert commit == Commit(30, "every range is stored at checkpoint 30")
    assert recover == Recover(("count/0",), 30, "count/0 died")
    before = replace(seen, progress=(at(45, ended=True), at(35, index=1)))
    assert [type(d) for d in decide(before)] == [Commit, Recover]


def test_what_a_function_raised_is_not_tried_again() -> None:
    view_ = view(at(25), dead=frozenset({"count/0"}), failed=(("count/1", "it raised"),))
    assert [type(c) for c in decide(view_)] == [Stop]


def test_nothing_follows_from_nothing() -> None:
    assert decide(view()) == []
    assert decide(view(committed=30)) == []


positions = st.lists(
    st.builds(at, st.integers(0, 100), ended=st.booleans()), min_size=1, max_size=5
)


@given(positions, st.integers(0, 12), st.integers(1, 20))
def test_a_commit_is_a_new_cut_that_nobody_alive_has_yet_to_reach(
    progress: list[Progress], checkpoints: int, checkpoint_every: int
) -> None:
    committed = checkpoints * checkpoint_every
    for command in decide(view(*progress, committed=committed, checkpoint_every=checkpoint_every)):
        assert isinstance(command, Commit)
        assert command.epoch > committed
        assert all(p.ended or p.position >= command.epoch for p in progress)
        assert command.epoch % checkpoint_every == 0 or all(p.ended for p in progress)


# ---------------------------------------------------------------- recovery


def test_a_cut_that_one_could_not_store_is_no_floor() -> None:
    gap = replace(at(45), since=40, stored=40)
    assert newest_stored(view(gap, at(39, index=1), committed=10)) == 10
    assert newest_stored(view(gap, at(41, index=1), committed=10)) == 40
    ended = replace(at(35, ended=True), since=35)
    assert newest_stored(view(ended, at(34, index=1), committed=10)) == 10
    assert newest_stored(view(ended, at(47, index=1), committed=10)) == 40


def test_once_all_have_ended_and_are_committed_nobody_is_missed() -> None:
    over, last = at(30, ended=True), at(52, index=1, ended=True)
    gone = view(over, last, dead=frozenset({over.name}), committed=52)
    assert recoveries(gone) == [] and decide(gone) == []
    early = replace(gone, committed=40)
    assert recoveries(early) == [Recover((over.name,), 30, "count/0 died")]
    early = replace(gone, committed=20)
    assert recoveries(early) == [Recover((over.name,), 20, "count/0 died")]


def test_a_sink_that_died_before_it_was_closed_goes_on_from_its_end() -> None:
    sink, other = replace(at(37, ended=True), closed=False), at(40, index=1, ended=True)
    gone = view(sink, other, dead=frozenset({sink.name, other.name}), committed=40)
    assert recoveries(gone) == [Recover((sink.name,), 37, "count/0 died")]
    assert recoveries(replace(gone, finished=frozenset({sink.name}))) == []


def test_who_was_not_told_is_told_again() -> None:
    told = replace(at(40), version=3, committed=30, published_upto=20, kept=2)
    assert not any(behind(told, 3, 30, 20, 2))
    assert behind(told, 4, 40, 20, 3) == (True, True, True)
    assert behind(told, 3, 30, 30, 2) == (False, True, False)


def test_a_checkpoint_that_an_instance_skipped_is_not_committed() -> None:
    """Of a run of empty epochs one checkpoint is taken, and others may have others."""
    one = replace(at(100), skipped=((51, 79), (81, 99)))
    two = replace(at(90, index=1), skipped=((61, 69),))
    assert newest_stored(view(one, two)) == 80
    assert newest_stored(view(one, replace(two, skipped=((61, 85),)))) == 50
    assert newest_stored(view(one, two, committed=80)) == 80
    assert newest_stored(view(at(100), at(100, index=1))) == 100
