"""What the controller writes to the journal and to whom, and how another controller goes on."""

from __future__ import annotations

from collections import deque

from raystream.controller.options import Options
from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from tests.controller.protocol.driven import NODES, Driven, kinds


def test_a_keeper_that_is_new_does_not_take_the_journal() -> None:
    """It may not have begun, and nothing is decided while the journal is written."""
    job = Driven()
    job.start()
    first, _ = (p.process for p in job.machine.journal.keepers)
    written = [c for c in job.tick(("0", *NODES)) if isinstance(c, do.Write)]
    assert job.machine.journal.keepers[-1].node == "0"
    assert [(w.at, w.left) for w in written] == [((first,), ())]


def test_another_keeper_does_not_take_the_journal_without_the_others() -> None:
    """It may know nothing of a newer controller, so a controller that slept could go on with it."""
    job = Driven()
    job.start()
    first, second = (p.process for p in job.machine.journal.keepers)
    job.tick(("0", *NODES))
    new = job.machine.journal.keepers[-1].process
    written = [c for c in job.hear(on.Gone(first, "killed")) if isinstance(c, do.Write)]
    assert (written[0].at, written[0].left) == ((second,), (new,))
    job.at(25)
    later = [c for c in job.tick(("0", *NODES)) if isinstance(c, do.Write)]
    assert {(w.at, w.left) for w in later} == {((second,), ())}


def test_a_controller_goes_on_from_the_journal() -> None:
    job = Driven(Options(spares=0))
    job.start()
    job.at(25)
    job.tick()
    entry = job.machine.journal
    alive = [*(s.process for s in entry.instances), *(p.process for p in entry.keepers)]
    again = Machine(job.plan, job.options, entry, 2)
    said = again.start(NODES, [*alive, "1.99", "keeper-1.98"], job.now)
    assert kinds(said)[0] == "Write"
    assert [c.process for c in said if isinstance(c, do.Kill)] == ["keeper-1.98"]
    assert [c.process for c in said if isinstance(c, do.Adopt)] == ["1.99"]
    assert {c.record.process for c in said if isinstance(c, do.Begin)} == {
        s.process for s in entry.instances
    }
    assert again.journal.order > entry.order


def test_the_journal_knows_who_has_ended() -> None:
    job = Driven()
    job.start()
    job.at(25, ended=True, closed=False)
    job.tick()
    entry = job.machine.journal
    assert entry.committed == 25
    again = Machine(job.plan, job.options, entry, 2)
    assert [p.position for p in again.progress()] == [25] * len(entry.instances)


def test_the_journal_knows_at_the_end_what_all_have_said() -> None:
    """Else whoever took a place after the last commit is not in another controller's report."""
    job = Driven()
    job.start()
    job.at(25, ended=True, closed=False)
    job.tick()
    gone = job.process("collect")
    job.hear(on.Gone(gone, "killed"))
    hire = job.all(do.Hire)[-1]
    job.hear(on.Hired(hire.process, "a", 1))
    job.hear(job.became(job.all(do.Become)[-1].process, "grpc://new"))
    assert job.process("collect") != gone
    job.at(25, ended=True, records_in=7)
    for m in job.machine.members:
        job.hear(on.Done(m.record.process, None))
    assert job.machine.ended
    again = Machine(job.plan, job.options, job.machine.journal, 2)
    assert again.progress() == job.machine.progress()
    assert {p.records_in for p in again.progress()} == {7}


def test_a_job_that_was_over_is_not_begun_again() -> None:
    job = Driven()
    job.start()
    job.hear(on.Cancel())
    again = Machine(job.plan, job.options, job.machine.journal, 2)
    assert kinds(again.start(NODES, [], 0.0))[-1] == "End"


def test_a_write_that_nobody_has_taken_gives_way_to_the_newest() -> None:
    first, second = (do.Write(JournalEntry(number=n), ()) for n in (1, 2))
    keep, tell = do.Keep("keeper-1.1", "a"), do.CommitTo("1.2", 10, 10)
    todo: deque[Command] = deque([first, tell, keep, second])
    do.catch_up(todo)
    assert [*todo] == [keep, second, tell]
    alone: deque[Command] = deque([first, tell])
    do.catch_up(alone)
    assert [*alone] == [first, tell]
