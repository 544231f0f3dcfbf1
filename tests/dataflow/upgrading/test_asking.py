"""An operator that asks the world goes over to other code: each epoch is asked by the code that
makes it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.asking.answers import recorded
from raystream.dataflow.instances.asking import ASKED_AHEAD, AskingInstance
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Plan
from raystream.dataflow.register import Boundary
from raystream.dataflow.upgrading.versions import CodeVersion, encoded
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import KeyRange
from raystream.testing.collect import Collect

GROUPS = 2
ALL = KeyRange(0, GROUPS)


class Item(NamedTuple):
    time: rs.Int64
    name: str


class Price(NamedTuple):
    name: str
    cents: int


@rs.operator(key="name", recorded=True)
def first(item: Item) -> Price:
    return Price(item.name, 1)


@rs.operator(key="name", recorded=True)
def second(item: Item) -> Price:
    return Price(item.name, 2)


def plan_with(op: Any) -> Plan:
    flow = rs.Flow("prices", key_groups=GROUPS)
    items = flow.source(rs.io.iterable([Item(0, "a")], Item), epochs=rs.by_time(seconds=1))
    items.through(op, name="price").to(Collect())
    return make_plan(flow)


def fed(upto: int) -> AskingInstance:
    """An instance to which all epochs up to one have come, each with a record in both of its key
    groups."""
    plan = plan_with(first)
    machine = AskingInstance(plan, plan.vertex("price"), ALL)
    machine.open()
    feed(machine, range(1, upto + 1))
    return machine


def feed(machine: AskingInstance, epochs: Iterable[int], code: int = 0) -> None:
    """Let epochs come. code: the number of the version that made them."""
    (edge,) = machine.vertex.inputs
    for epoch in epochs:
        rows = from_records(record_schema(Item), [Item(epoch, "a"), Item(epoch, "b")])
        header = Header(epoch, ALL, epoch, code=code)
        machine.receive(edge.id, Piece(header, rows, np.array([0, 1, 2])))


def other_code(after: int, *, settled: bool = False) -> CodeVersion:
    code = encoded(plan_with(second).vertices, pickle.dumps)
    return CodeVersion(number=1, after=after, code=code, settled=settled)


def asked(machine: AskingInstance) -> list[int]:
    return [asked.epoch for asked in machine.questions()]


def answered(machine: AskingInstance, upto: int) -> None:
    """Ask and apply all epochs up to one."""
    for _ in range(2 * upto):
        for epoch, questions in machine.questions():
            held = {q.group: entry_of(machine, epoch, q.record) for q in questions}
            machine.answer(epoch, held)
        if machine.position < upto and machine.ready():
            machine.step()
    assert machine.position == upto


def entry_of(machine: AskingInstance, epoch: int, item: Any) -> Boundary:
    return recorded(machine.spec, "", epoch, [machine.spec.process(item)], 1)


def cents_of(machine: AskingInstance) -> list[list[int]]:
    """What it has emitted, by epoch."""
    (edge,) = machine.outlets.logs
    pieces = [machine.outlets.piece(edge, e, ALL) for e in range(1, machine.position + 1)]
    return [piece.rows.column("cents").tolist() for piece in pieces]


def test_epochs_of_other_code_are_not_asked_before_it_is_settled() -> None:
    machine = fed(ASKED_AHEAD + 2)
    machine.switching.tell((other_code(3),))
    assert asked(machine) == [1, 2, 3]
    assert machine.switching.taken == 1


def test_who_has_asked_for_a_later_epoch_does_not_take_the_proposal() -> None:
    machine = fed(ASKED_AHEAD + 2)
    assert asked(machine) == [*range(1, ASKED_AHEAD + 1)]
    assert (machine.position, machine.reached) == (0, ASKED_AHEAD)
    machine.switching.tell((other_code(3),))
    assert asked(machine) == []
    assert machine.switching.taken == 0
    machine.switching.tell((other_code(ASKED_AHEAD),))
    assert asked(machine) == []
    assert machine.switching.taken == 1


def test_the_new_code_asks_from_the_next_epoch_on_and_has_entries_of_its_own() -> None:
    machine = fed(5)
    before = machine.names
    machine.switching.tell((other_code(3),))
    answered(machine, 3)
    assert not machine.ready() and asked(machine) == []  # it waits for the word
    machine.switching.tell((other_code(3, settled=True),))
    assert asked(machine) == []  # not with the old code
    assert not machine.ready()  # it goes over, and what has come was made by the old code
    feed(machine, [4, 5], code=1)
    assert machine.switching.version == 1
    assert not set(before) & set(machine.names)
    answered(machine, 5)
    assert cents_of(machine) == [[1, 1]] * 3 + [[2, 2]] * 2


def test_a_successor_from_before_asks_with_the_code_of_each_epoch() -> None:
    """It is told of the versions before its first step."""
    machine = fed(6)
    machine.switching.tell((other_code(2, settled=True),))
    answered(machine, 2)
    feed(machine, range(3, 7), code=1)
    answered(machine, 6)
    assert cents_of(machine) == [[1, 1]] * 2 + [[2, 2]] * 4
