"""Instances that share a process: they take it together, die together, leave it and come back."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from raystream.controller.options import Options
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.members import in_seat, seat_of, sharing
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.move_requests import ThreadUse, elsewhere
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


def test_places_of_one_bundle_share_a_process_unless_they_belong_on_other_nodes() -> None:
    places = [Place(v, "abc"[v], KeyRange(i, i + 1), i) for v in (2, 0, 1) for i in (0, 1)]
    assert [len(group) for group in sharing(places)] == [1] * 6
    places = [replace(place, bundle=place.index) for place in places]
    names = [[p.name for p in group] for group in sharing(places)]
    assert names == [["a/0", "b/0", "c/0"], ["a/1", "b/1", "c/1"]]
    elsewhere = [{p.name for p in group} for group in sharing(places, [1])]
    assert elsewhere == [{"a/0", "c/0"}, {"a/1", "c/1"}, {"b/0"}, {"b/1"}]
    for_now = [replace(place, apart=place.vertex > 0) for place in places]
    assert [len(group) for group in sharing(for_now)] == [1] * 6


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


def moved(job: Driven, instance: str, thread: ThreadUse) -> list[Command]:
    """Ask for an instance to leave its thread, or to come back; what follows at once."""
    owned = {m.name: (m.record.place.operator, m.record.place.keys) for m in job.machine.owners}
    wanted = replace(elsewhere(instance, "", owned, "asked"), thread=thread)
    return job.hear(on.Rescale(1, (wanted,)))


def brought(job: Driven, since: int, position: int) -> None:
    """Let a move that was asked for come to its end."""
    replace_all(job, since)
    job.at(position)
    job.tick()


def left(job: Driven) -> None:
    """Have the counting instance of the first thread leave it, and store what it has."""
    job.at(10)
    since = len(job.said)
    assert not refusals(moved(job, "count/0", "apart"))
    brought(job, since, 10)
    job.at(20)
    job.tick()
    assert {"count/2"} in processes(job).values() and not job.machine.journal.moves


def refusals(commands: list[Command]) -> list[str]:
    return [c.refusal for c in commands if isinstance(c, do.Answer) and c.refusal]


def test_an_instance_leaves_its_thread_and_comes_back(job: Driven) -> None:
    job.at(10)
    before = processes(job)
    assert refusals(moved(job, "count/0", "together"))
    left(job)
    assert refusals(moved(job, "count/2", "apart"))
    ((thread, _),) = [(t, p) for p, t in processes(job).items() if "lines/0" in t]
    assert thread == {"lines/0", "chain/0", "collect/0"}
    since, hired = len(job.said), len(job.all(do.Hire))
    assert not refusals(moved(job, "count/2", "together"))
    brought(job, since, 30)
    assert len(job.all(do.Hire)) == hired  # it needs no process
    home = next(p for p, names in before.items() if "lines/0" in names)
    assert processes(job)[home] == {"lines/0", "chain/0", "collect/0", "count/3"}
    (place,) = [m.record.place for m in job.machine.members if m.name == "count/3"]
    assert (place.bundle, place.apart, place.left) == (0, False, 1)
    names = [m.record.process for m in job.machine.members]
    assert len(set(names)) == len(names)
    last = job.all(do.Kill)[-1]
    assert last.gently  # of the process that it had for itself


def test_who_has_come_back_is_replaced_with_the_others(job: Driven) -> None:
    left(job)
    since = len(job.said)
    moved(job, "count/2", "together")
    brought(job, since, 30)
    home = next(p for p, names in processes(job).items() if "lines/0" in names)
    since = len(job.said)
    job.hear(on.Gone(home, "died"))
    (recovery,) = [p for p in job.machine._job.placements if p.gone]
    assert len(recovery.gone) == 4
    replace_all(job, since)
    assert {"lines/0.1", "chain/0.1", "collect/0.1", "count/3.1"} in processes(job).values()


def test_who_is_apart_is_replaced_apart(job: Driven) -> None:
    left(job)
    since = len(job.said)
    own = next(p for p, names in processes(job).items() if names == {"count/2"})
    home = next(p for p, names in processes(job).items() if "lines/0" in names)
    for process in (own, home):
        job.hear(on.Gone(process, "died"))
    replace_all(job, since)
    found = processes(job).values()
    assert {"count/2.1"} in found and {"lines/0.1", "chain/0.1", "collect/0.1"} in found


def test_a_thread_that_dies_while_an_instance_comes_back_leaves_it_where_it_is(
    job: Driven,
) -> None:
    left(job)
    since = len(job.said)
    moved(job, "count/2", "together")
    (become,) = [c for c in job.said[since:] if isinstance(c, do.Become)]
    home = seat_of(become.process)[0]
    since = len(job.said)
    job.hear(on.Gone(home, "died"))
    assert job.machine.placement_of(become.process) is None
    replace_all(job, since)
    assert {"lines/0.1", "chain/0.1", "collect/0.1"} in processes(job).values()
    assert {"count/2"} in processes(job).values()
    (move,) = job.machine.journal.moves
    assert move.tries == 1
    since = len(job.said)  # and then it comes back to those that are there now
    job.at(30)
    job.tick()
    brought(job, since, 30)
    assert {"lines/0.1", "chain/0.1", "collect/0.1", "count/4"} in processes(job).values()


def test_a_seat_that_only_the_controller_before_knew_is_ended(job: Driven) -> None:
    left(job)
    since = len(job.said)
    moved(job, "count/2", "together")
    (become,) = [c for c in job.said[since:] if isinstance(c, do.Become)]
    again = Driven(job.options)
    again.machine = Machine(job.plan, job.options, job.machine.journal, 2)
    again.hear_of(again.machine.start(("a", "b"), [*processes(job)], job.now))
    again.at(20)
    again.tick()
    kills = [c for c in again.all(do.Kill) if c.process == become.process]
    assert [c.gently for c in kills] == [True]


def test_a_controller_that_goes_on_takes_no_process_for_a_spare_one(job: Driven) -> None:
    """Ray knows processes by the name of the first instance, which may have been moved away."""
    alive = [*processes(job), *(k.process for k in job.machine.journal.keepers), "1.99"]
    again = Driven(job.options)
    again.machine = Machine(job.plan, job.options, job.machine.journal, 2)
    again.hear_of(again.machine.start(("a", "b"), alive, job.now))
    assert [c.process for c in again.all(do.Adopt)] == ["1.99"]
