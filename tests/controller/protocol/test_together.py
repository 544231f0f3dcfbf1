"""Instances that share a process: they take it together, and die together."""

from __future__ import annotations

from collections import defaultdict

import pytest

from raystream.controller.options import Options
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.members import in_seat, seat_of, sharing
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.parts.requests import EASE_SECONDS
from raystream.controller.protocol.recovery import Place
from raystream.schema.types import KeyRange
from tests.controller.protocol.driven import Driven


@pytest.fixture
def job() -> Driven:
    made = Driven(Options(spares=0, together=True), instances=(1, 2))
    made.start()
    return made


def processes(job: Driven) -> dict[str, set[str]]:
    """By process the instances in it, as the journal has them."""
    found = defaultdict(set)
    for record in job.machine.journal.instances:
        found[seat_of(record.process)[0]].add(record.place.name)
    return dict(found)


def replace_all(job: Driven, since: int) -> None:
    """Start the processes that were asked for, and bring what takes places to its beginning."""
    for hire in [c for c in job.said[since:] if isinstance(c, do.Hire)]:
        job.hear(on.Hired(hire.process, "a", 7))
    for become in [c for c in job.said[since:] if isinstance(c, do.Become)]:
        job.hear(job.became(become.process, f"at {become.process}"))


def test_names_of_seats() -> None:
    assert [in_seat("1.7", seat) for seat in range(3)] == ["1.7", "1.7.1", "1.7.2"]
    assert seat_of("1.7") == ("1.7", 0)
    assert seat_of("1.7.12") == ("1.7", 12)
    assert seat_of("keeper-1.7") == ("keeper-1.7", 0)


def test_places_of_one_index_share_a_process_unless_they_belong_on_other_nodes() -> None:
    places = [Place(v, "abc"[v], KeyRange(i, i + 1), i) for v in (2, 0, 1) for i in (0, 1)]
    assert [len(group) for group in sharing(places, False)] == [1] * 6
    names = [[p.name for p in group] for group in sharing(places, True)]
    assert names == [["a/0", "b/0", "c/0"], ["a/1", "b/1", "c/1"]]
    apart = [{p.name for p in group} for group in sharing(places, True, apart=[1])]
    assert apart == [{"a/0", "c/0"}, {"a/1", "c/1"}, {"b/0"}, {"b/1"}]


def test_a_job_begins_with_a_process_for_each_index(job: Driven) -> None:
    assert len(job.all(do.Hire)) == 2
    sizes = sorted(map(len, processes(job).values()))
    assert 0 < sizes[0] < sizes[1] == len(job.plan.vertices)
    assert len(job.all(do.Begin)) == len(job.plan.instances())


def test_who_shares_a_process_dies_with_it_and_comes_back_together(job: Driven) -> None:
    job.at(10)
    before = processes(job)
    process, names = max(before.items(), key=lambda item: len(item[1]))
    begun = len(job.said)
    job.hear(on.Gone(in_seat(process, 1), "died"))
    (recovery,) = [p for p in job.machine._job.placements if p.gone]
    assert {m.name for m in recovery.gone} == names
    for seat in (0, 2):  # what is heard later changes nothing
        job.hear(on.Gone(in_seat(process, seat), "died"))
    assert len([c for c in job.said[begun:] if isinstance(c, do.Hire)]) == 1
    replace_all(job, begun)
    after = processes(job)
    (new,) = set(after) - set(before)
    assert {name.partition(".")[0] for name in after[new]} == names
    assert {p: n for p, n in after.items() if p != new} == {
        p: n for p, n in before.items() if p != process
    }


def test_a_process_that_dies_before_it_begins_is_replaced_with_all_its_places(job: Driven) -> None:
    job.at(10)
    before = processes(job)
    process, names = max(before.items(), key=lambda item: len(item[1]))
    job.hear(on.Gone(process, "died"))
    first = job.all(do.Hire)[-1]
    begun = len(job.said)
    job.hear(on.Hired(first.process, "a", 7))
    assert len(job.said[begun:]) == len([c for c in job.said[begun:] if isinstance(c, do.Become)])
    job.hear(job.became(in_seat(first.process, 1), "there"))
    begun = len(job.said)
    job.hear(on.Gone(in_seat(first.process, 2), "died too"))
    job.hear(on.Gone(first.process, "died too"))
    replace_all(job, begun)
    (new,) = set(processes(job)) - set(before)
    assert new != first.process and len(processes(job)[new]) == len(names)


def busy(job: Driven, seconds: float, shares: dict[str, float]) -> None:
    """Members say that they were busy for these shares of the time since the beginning."""
    for m in job.machine.members:
        share = shares.get(m.record.place.operator, 0.0)
        job.at(10, only=m.name, seconds=seconds, busy=seconds * share)


@pytest.mark.parametrize(("count", "moved"), [(0.2, []), (0.35, ["count/0"])])
def test_where_a_thread_has_no_time_left_the_busiest_goes(
    job: Driven, count: float, moved: list[str]
) -> None:
    """The thread of index 0 does all four, that of index 1 only two of them."""
    shares = {"lines": 0.15, "count": count, "chain": 0.1, "collect": 0.01}
    for seconds in (10.0, 20.0, 30.0):
        busy(job, seconds, shares)
        job.now += EASE_SECONDS
        job.tick()
    assert [name for m in job.machine.journal.moves for name in m.wanted.leave] == moved
    for move in job.machine.journal.moves:
        assert move.wanted.ranges == (KeyRange(0, 8), KeyRange(8, 16))
        assert "busy for 61% of the time" in move.wanted.because


def test_who_has_a_process_of_its_own_may_be_as_busy_as_it_likes() -> None:
    job = Driven(Options(spares=0), instances=(1, 2))
    job.start()
    for seconds in (10.0, 20.0):
        busy(job, seconds, {"count": 0.9})
        job.now += EASE_SECONDS
        job.tick()
    assert not job.machine.journal.moves


def test_a_controller_that_goes_on_takes_no_process_for_a_spare_one(job: Driven) -> None:
    """Ray knows processes by the name of the first instance, which may have been moved away."""
    alive = [*processes(job), *(k.process for k in job.machine.journal.keepers), "1.99"]
    again = Driven(job.options)
    again.machine = Machine(job.plan, job.options, job.machine.journal, 2)
    again.hear_of(again.machine.start(("a", "b"), alive, job.now))
    assert [c.process for c in again.all(do.Adopt)] == ["1.99"]
