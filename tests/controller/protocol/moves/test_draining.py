"""Nodes that are to be left: by all that is there, and not used again."""

from __future__ import annotations

import pytest

from raystream.controller.options import Options
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.move_requests import LEAVE_AGAIN_SECONDS
from tests.controller.protocol.driven import NODES
from tests.controller.protocol.moves.moved import ALL, Moved, delivered


@pytest.mark.parametrize("ended", [(), ("lines",), ("lines", "count")])
def test_a_node_is_left_and_not_used_again(ended: tuple[str, ...]) -> None:
    """Also by operators that have ended before others."""
    job = Moved(Options(spares=1))
    job.tick()
    job.hire("a")
    there = {m.name for m in job.machine.members if m.record.node == "a"}
    assert there and len(there) < len(job.machine.members)
    for m in [m for m in job.machine.members if m.record.place.operator in ended]:
        job.at(25, only=m.name, ended=True)
    job.hear(on.Drain(3, "a", "its node is to be left"))
    assert job.all(do.Answer)[-1].refusal == ""
    for turn in range(4):
        job.hire("a")
        for become in job.given:
            job.hear(job.became(become.process, "grpc://b"))
        for deliver in job.all(do.Deliver):
            job.hear(delivered(deliver, 25))
        for kill in job.all(do.Kill):
            job.hear(on.Gone(kill.process, "it was ended"))
        for m in list(job.machine.members):
            over = m.record.place.operator in ended
            job.at(25 if over else 25 + 10 * turn, only=m.name, ended=over, kept=99)
        job.tick()
    assert not job.machine.journal.moves
    assert {m.record.node for m in job.machine.members} == {"b"}
    assert not there & {m.name for m in job.machine.members}
    assert [p.node for p in job.machine.journal.keepers] == ["b"]  # once all is stored there
    keeper = job.machine.journal.keepers[0].process
    assert {m.record.keepers for m in job.machine.members} == {(keeper,)}
    assert job.all(do.Write)[-1].at == (keeper,)
    job.hear(on.Drain(4, "b", "its node is to be left"))
    assert "there is no other one" in job.all(do.Answer)[-1].refusal
    job.hear(on.Drain(5, "c", "its node is to be left"))
    assert "there is no node c" in job.all(do.Answer)[-1].refusal


def test_who_could_not_leave_a_node_tries_again_after_a_while() -> None:
    job = Moved()
    (node,) = {m.record.node for m in job.members("count").values()}
    (other,) = {*NODES} - {node}
    job.hear(on.Drain(3, node, "its node is to be left"))
    while not job.machine.journal.moved:
        job.tick()
        job.hire(other)
        gone = [b for b in job.all(do.Become) if b.place.operator == "count"][-1]
        job.hear(on.Gone(gone.process, "killed"))
    assert job.record()[0] == "count" and job.record()[3]
    for seconds, leaves in ((LEAVE_AGAIN_SECONDS - 1, False), (2.0, True)):
        job.now += seconds
        job.at(25)
        job.tick()
        assert ("count" in [m.operator for m in job.machine.journal.moves]) is leaves
    (move,) = [m for m in job.machine.journal.moves if m.operator == "count"]
    assert move.wanted.leave == tuple(job.owners("count")) and move.wanted.mode == "handover"


@pytest.mark.parametrize("step", ["asked", "given"])
def test_nobody_goes_to_a_node_that_is_to_be_left(step: str) -> None:
    """It was named before that was said."""
    job = Moved()
    assert job.ask("lines", ALL, leave=("lines/0",), node="b") == ""
    if step == "given":
        job.hire()
    job.hear(on.Drain(3, "b", "its node is to be left"))
    if step == "given":
        assert job.machine.journal.moves[0].operator == "lines"
        job.hear(on.Gone(job.given[0].process, "killed"))
        job.tick()
    (record,) = [m for m in job.machine.journal.moved if m.operator == "lines"]
    assert record.failed == "node b is to be left" and not record.new
    job.said.clear()
    for _ in range(3):
        job.hire()
        job.tick()
    assert {h.node for h in job.all(do.Hire)} <= {"a"}
