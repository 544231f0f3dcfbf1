"""Whose logs an instance reads, who reads its own, and how far it may run ahead."""

from __future__ import annotations

from raystream.controller.planning.plans import make_plan
from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.routing import Served, readers, reads
from raystream.testing import Collect
from tests.flows import running, word_flow

PLAN = make_plan(word_flow(Collect(), running), instances={"running": 2})


def served(version: int = 1) -> Assignment:
    found = []
    for i, (vertex, keys) in enumerate(PLAN.instances()):
        found.append(Serving(vertex.id, keys, f"{vertex.name}/{i}", "address"))
    return Assignment(version, tuple(found))


def test_an_instance_reads_all_who_serve_what_it_needs() -> None:
    count = PLAN.vertex("running")
    (lines,) = served().of(count.inputs[0].producer)
    assert [s for _, s in reads(count, served()).values()] == [lines]
    sink = PLAN.vertices[count.outputs[0].consumer]
    assert [s.keys for _, s in reads(sink, served()).values()] == PLAN.ranges[count.id]


def test_its_readers_ask_from_where_it_begins() -> None:
    source = PLAN.vertices[0]
    assert set(readers(source, served(), 20).values()) == {21}
    assert len(readers(source, served(), 0)) == 2


def test_the_slowest_reader_counts_and_only_readers_do() -> None:
    last = Served()
    assert last.slowest() > 10**9
    last.expect({(0, "a"): 1, (0, "b"): 1})
    last.next[0, "a"] = 7
    assert last.slowest() == 1
    last.expect({(0, "a"): 1, (0, "c"): 5})
    assert last.next == {(0, "a"): 7, (0, "c"): 5}
