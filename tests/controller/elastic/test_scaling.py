"""What a policy finds becomes moves, and operators go where nodes are meant for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from raystream.controller.elastic.policy import CpuThreshold
from raystream.controller.elastic.scaling import Scaling
from raystream.controller.options import Options
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.dataflow.progress import Progress
from tests.controller.protocol.driven import Driven
from tests.controller.protocol.moves.moved import HALVES, Moved

INTERVAL = 1.0
OPERATOR = "count"


class Watched(Driven):
    """A job of which a policy hears."""

    def __init__(self) -> None:
        super().__init__()
        self.start()
        self.at(5)
        self.scaling = Scaling(self.plan, CpuThreshold(interval=INTERVAL))
        self.seconds = 0.0
        self.cpu = {m.name: 0.0 for m in self.machine.members}

    def look(self, cpu: float) -> list[str]:
        """A second passes in which the operator used so much CPU; what is wanted then."""
        self.seconds += INTERVAL
        for m in self.machine.members:
            own = cpu if m.record.place.operator == OPERATOR else 0.0
            self.cpu[m.name] += own * INTERVAL
            load = np.full(len(m.record.place.keys), int(1000 * self.seconds), np.int64)
            said = Progress(
                vertex=m.record.place.operator,
                instance=m.record.place.index,
                position=5,
                cpu=self.cpu[m.name],
                name=m.name,
                seconds=self.seconds,
                load=load.tobytes(),
            )
            self.hear(on.Heard(m.record.process, said))
        machine = self.machine
        found = self.scaling.look(machine.owners, machine.journal.moves, self.seconds)
        for wanted in found.wanted:
            self.hear(on.Rescale(1, (wanted,)))
        return [w.because for w in found.wanted]


def test_a_bottleneck_is_moved_to_two_and_looked_at_again_only_later() -> None:
    job = Watched()
    assert not job.look(0.9) and not job.look(0.9)  # of a second report there is no end yet
    (because,) = job.look(0.9) + job.look(0.9)
    assert "above 70%" in because
    (move,) = job.machine.journal.moves
    assert move.operator == OPERATOR and len(move.wanted.ranges) == 2
    assert job.all(do.Answer)[-1].refusal == ""
    assert not any(job.look(0.9) for _ in range(5))  # it is being moved


def test_nobody_is_judged_who_died_or_has_ended() -> None:
    job = Watched()
    job.look(0.9)
    for m in job.machine.members:
        assert m.progress is not None
        m.progress = replace(m.progress, ended=True)
    machine = job.machine
    for t in range(10):
        found = job.scaling.look(machine.owners, machine.journal.moves, 10.0 + t)
        assert not found.wanted


# ---------------------------------------------------------------- nodes for operators


def hired_on(machine: Machine, nodes: tuple[str, ...], meant: frozenset[str]) -> list[str]:
    commands = machine.start(nodes, [], 0.0, meant)
    return sorted(c.node for c in commands if isinstance(c, do.Hire))


def test_operators_go_to_the_nodes_that_are_meant_for_them_and_others_do_not() -> None:
    job = Driven()
    assert hired_on(job.machine, ("head", "n1"), frozenset({"n1"})) == [
        "head",
        "head",
        "n1",
        "n1",
    ]
    nowhere = Machine(job.plan, job.options)
    assert hired_on(nowhere, ("head",), frozenset()) == [""] * 4


def test_each_place_gets_the_process_that_is_where_it_should_be() -> None:
    job = Driven()
    meant = frozenset({"n1"})
    job.hear_of(job.machine.start(("head", "n1"), [], job.now, meant))
    for i, hire in enumerate(reversed(job.all(do.Hire))):
        job.hear(on.Hired(hire.process, hire.node, i))
    where = {h.process: h.node for h in job.all(do.Hire)}
    for become in job.all(do.Become):
        kind = job.plan.vertices[become.place.vertex].kind
        assert where[become.process] == ("n1" if kind == "operator" else "head")


def test_spare_processes_wait_on_the_least_used_node_for_operators() -> None:
    job = Driven(Options(spares=2))
    job.start()
    nodes, meant = ("head", "n1", "n2"), frozenset({"n1", "n2"})
    job.at(10)
    job.hear(on.Tick(nodes, meant))
    job.said.clear()
    spares = []
    for _ in range(12):
        job.now += 3.0
        job.at(10)
        for command in job.hear(on.Tick(nodes, meant)):
            if isinstance(command, do.Hire):
                spares.append(command.node)
                job.hear(on.Hired(command.process, command.node, 9))
    assert sorted(spares) == ["n1", "n2"]


class Pooled(Moved):
    """A job whose spare processes are there, first on nodes and then on those of a pool, too."""

    def __init__(self, *nodes: str) -> None:
        self.where: dict[str, str] = {}
        self.nodes, self.meant = nodes, frozenset(nodes) - {"head"}
        Driven.__init__(self, Options(spares=2))
        self.hear_of(self.machine.start(nodes, [], self.now, self.meant))
        self.start_processes()
        self.become_ready()
        self.go_on()

    def start_processes(self) -> None:
        for hire in [h for h in self.all(do.Hire) if h.process not in self.where]:
            self.where[hire.process] = hire.node or "head"
            self.hear(on.Hired(hire.process, hire.node or "head", 1))

    def become_ready(self) -> None:
        for become in self.given:
            self.hear(self.became(become.process, f"grpc://{become.process}"))

    def go_on(self) -> None:
        for _ in range(12):
            self.now += 3.0
            self.at(25)
            self.hear(on.Tick(self.nodes, self.meant))
            self.start_processes()
        self.said.clear()

    def comes(self, *nodes: str) -> None:
        self.nodes, self.meant = (*self.nodes, *nodes), self.meant | {*nodes}
        self.go_on()

    def homes(self) -> dict[str, str]:
        """Where processes were that were given a place since."""
        self.start_processes()
        return {b.place.name: self.where[b.process] for b in self.all(do.Become)}


def test_a_source_and_a_sink_that_died_go_to_no_node_for_operators() -> None:
    """Spare processes wait there; the files of the two are on the others."""
    job = Pooled("head", "n1", "n2")
    for operator in ("lines", "collect"):
        job.hear(on.Gone(job.process(operator), "killed"))
    assert job.homes() == {"lines/0.1": "head", "collect/0.1": "head"}


def test_a_source_that_is_split_stays_where_its_files_are() -> None:
    job = Pooled("head", "n1", "n2")
    assert job.ask("lines", *HALVES) == ""
    assert job.homes() == {"lines/1": "head", "lines/2": "head"}


def test_operators_leave_the_head_when_they_are_split() -> None:
    """Those of the first job of a cluster began there, and so did its spare processes."""
    job = Pooled("head")
    job.comes("n1", "n2")
    assert job.ask("count", *HALVES) == ""
    assert job.homes() == {"count/1": "n1", "count/2": "n2"}


def test_a_spare_process_on_the_head_takes_over_where_no_operator_node_is_left() -> None:
    job = Pooled("head")
    job.comes("n1")
    job.nodes, job.meant = ("head",), frozenset()
    job.hear(on.Tick(job.nodes, job.meant))
    job.hear(on.Gone(job.process("count"), "its node died"))
    assert not job.all(do.Hire)
    assert job.homes() == {"count/0.1": "head"}
