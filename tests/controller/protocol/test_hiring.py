"""Processes that cannot be started: where, and whom that concerns."""

from __future__ import annotations

import pytest

from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.recovery import ATTEMPTS_MAX
from tests.controller.protocol.driven import Driven
from tests.controller.protocol.moves.moved import ALL, HALVES, Moved, finish


def test_a_move_to_a_node_that_is_gone_ends_no_job_that_recovers() -> None:
    """Nothing can be started there, while others wait for a process, too."""
    job = Moved()
    job.at(25)
    job.tick()
    assert job.ask("chain", ALL, leave=("chain/0",), node="b") == ""
    job.hear(on.Gone(job.process("count"), "killed"))
    for _ in range(40):
        for hire in [h for h in job.all(do.Hire) if h.process in job.machine.hiring.asked]:
            if hire.node == "b":
                job.hear(on.Gone(hire.process, "the node does not exist any more"))
        job.now += 1.0
        job.tick()
    assert not job.all(do.End)
    assert "no process could be started" in job.record()[3]


def test_a_node_that_is_gone_takes_no_recovery_with_it() -> None:
    """All that were to begin there fail together, before anybody knows that it is gone."""
    job = Moved()
    job.at(25)
    nodes = on.Tick(("a", "b", "c"), frozenset({"b", "c"}))
    job.hear(nodes)
    for operator in ("count", "chain"):
        job.hear(on.Gone(job.process(operator), "its node died"))
    gone = {h.node for h in job.all(do.Hire) if h.process in job.machine.hiring.asked} - {""}
    gone = set(sorted(gone)[:1])
    for _ in range(2 * ATTEMPTS_MAX):
        for hire in [h for h in job.all(do.Hire) if h.process in job.machine.hiring.asked]:
            if hire.node in gone:
                job.hear(on.Gone(hire.process, "the node does not exist any more"))
    waiting = {h.node for h in job.all(do.Hire) if h.process in job.machine.hiring.asked}
    assert not job.all(do.End) and waiting and not waiting & gone


@pytest.mark.parametrize(("operator_nodes", "more"), [("", 0), ("b", 1), ("bc", 2), ("bcd", 2)])
def test_a_job_that_begins_wants_nodes_only_for_its_operators(
    operator_nodes: str, more: int
) -> None:
    """Its source and its sink begin on the head, and all of it where there are no other nodes."""
    job = Driven()
    nodes = frozenset(operator_nodes)
    job.hear_of(job.machine.start(("a", *operator_nodes), [], job.now, nodes))
    assert job.machine.hiring.wanted == more


def test_nodes_that_have_ended_are_forgotten() -> None:
    """In a pool nodes come and go for as long as the job runs, and every entry names those left."""
    job = Moved()
    for i in range(10):
        job.tick(("a", "b", f"pool-{i}"))
        job.hear(on.Drain(i, f"pool-{i}", "it was one too many"))
        assert job.machine.journal.drained == {f"pool-{i}"}
    job.tick(("a", "b", "pool-9"))
    job.hear(on.Drain(10, "b", "asked for"))
    assert job.machine.journal.drained == {"b", "pool-9"}  # this one has not ended yet


def test_who_moves_wants_a_node_for_each_new_instance_and_who_died_one_that_is_there() -> None:
    job = Moved()
    job.hear(on.Tick(("a", "b", "c"), frozenset("bc")))
    assert job.machine.hiring.wanted == 0
    assert job.ask("count", *HALVES) == "" and job.machine.hiring.wanted == 2
    job.hear(on.Gone(job.process("chain"), "killed"))
    assert job.machine.hiring.used == {"a", "b"} and job.machine.hiring.wanted == 3


def test_a_move_for_which_no_node_comes_takes_the_nodes_that_there_are() -> None:
    job = Moved()
    there = on.Tick(("a", "b"), frozenset("b"))
    job.hear(there)
    assert job.ask("count", *HALVES) == "" and job.machine.hiring.wanted == 2
    job.hear(there)  # nothing has come
    job.hire(node="b")
    assert {b.process for b in job.given} == {h.process for h in job.hired[-2:]}
    finish(job)
    assert set(job.owners("count").values()) == set(HALVES)
    assert {m.record.node for m in job.members("count").values()} == {"b"}


@pytest.mark.parametrize(("node", "more"), [("", 1), ("b", 0), ("c", 1)])
def test_a_move_to_a_node_that_is_in_use_wants_no_other_one(node: str, more: int) -> None:
    """A machine would be started for it, and given back minutes later."""
    job = Moved()
    job.hear(on.Tick(("a", "b", "c"), frozenset("bc")))
    assert job.machine.hiring.used == {"a", "b"}
    assert job.ask("count", ALL, leave=("count/0",), node=node) == ""
    assert job.machine.hiring.wanted == more
