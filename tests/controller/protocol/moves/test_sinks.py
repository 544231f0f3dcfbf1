"""Moves of sinks: the next instance begins when the one before it has ended."""

from __future__ import annotations

from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.move_requests import STOP_SECONDS
from tests.controller.protocol.moves.moved import ALL, Moved


def test_a_sink_begins_when_the_one_before_it_has_ended() -> None:
    job = Moved()
    sinks = tuple(job.owners("collect").values())
    assert job.ask("collect", *sinks, leave=("collect/0",)) == ""
    job.hire()
    old = job.members("collect")["collect/0"].record.process
    job.restore()
    (kill,) = job.all(do.Kill)
    assert kill.process == old and kill.gently and not job.all(do.Begin)
    job.tick()
    assert not job.all(do.Begin)
    job.hear(on.Gone(old, "it was ended"))
    assert [b.record.name for b in job.all(do.Begin)] == ["collect/1"]
    assert list(job.owners("collect")) == ["collect/1"] and not job.machine.journal.recoveries
    assert job.record() == ("collect", ("collect/1",), 1, "")


def test_a_sink_that_does_not_end_is_left_behind() -> None:
    job = Moved()
    job.ask("collect", ALL, leave=("collect/0",))
    job.hire()
    job.restore()
    job.now += STOP_SECONDS + 1  # so long the journal took to be written: only now it is told
    job.tick()
    assert list(job.owners("collect")) == ["collect/0"] and not job.all(do.Begin)
    job.now += STOP_SECONDS + 1
    job.tick()
    assert list(job.owners("collect")) == ["collect/1"]


def test_when_the_next_sink_dies_as_well_it_is_a_recovery() -> None:
    job = Moved()
    job.ask("collect", ALL, leave=("collect/0",))
    job.hire()
    job.restore()
    job.hear(on.Gone(job.given[0].process, "killed"))
    job.tick()
    job.hire()
    become = next(b for b in job.given if b.place.name == "collect/0.1")
    job.hear(job.became(become.process, "grpc://new"))
    assert list(job.owners("collect")) == ["collect/0.1"]
    job.at(25)
    job.tick()
    assert not job.machine.journal.moves  # whom it was to replace is no more
