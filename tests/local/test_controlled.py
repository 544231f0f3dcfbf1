"""Operators with a control stream, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import pytest

import raystream as rs
from raystream.dataflow.instances.control_row import ControlRow
from raystream.errors import ConfigError, GraphError, OperatorError, StateError
from raystream.simulation.flows import controlled, controlled_arriving
from raystream.testing import Collect, run_local


class Order(NamedTuple):
    time: int
    user: str
    amount: int


class Rule(NamedTuple):
    time: int
    user: str
    limit: int


class Alarm(NamedTuple):
    user: str
    spent: int


class Spent(rs.State):
    amount: int = 0


class Limits(rs.State):
    of: dict[str, int] = rs.field(factory=dict)


@rs.operator(key="user")
class Alert:
    def control(self, rule: Rule, limits: Limits) -> None:
        limits.of[rule.user] = rule.limit

    def process(self, order: Order, spent: Spent, limits: Limits) -> Iterator[Alarm]:
        spent.amount += order.amount
        if spent.amount > limits.of.get(order.user, 1000):
            yield Alarm(order.user, spent.amount)


def alarms(op: Any, rules: list[Rule], orders: list[Order], **options: Any) -> list[Any]:
    flow, sink = rs.Flow("alarms", key_groups=8), Collect()
    epochs = rs.by_time(seconds=10)
    told = flow.source(rs.io.iterable(rules, Rule), epochs=epochs, name="rules")
    given = flow.source(rs.io.iterable(orders, Order), epochs=epochs, name="orders")
    given.through(rs.controlled(op, by=told)).to(sink)
    run_local(flow, **options)
    return list(sink.records())


ORDERS = [Order(t, user, 10) for t in range(60) for user in ("ann", "bob", "cid")]


def test_a_rule_is_there_before_the_orders_of_its_epoch_in_every_instance() -> None:
    rules = [Rule(29, "ann", 250), Rule(31, "bob", 350), Rule(45, "ann", 10_000)]
    found = alarms(Alert(), rules, ORDERS, instances={"Alert": 4}, seed=7)
    assert sorted(set(found)) == found or len(found) == len(set(found))
    by_user = {user: [a.spent for a in found if a.user == user] for user in ("ann", "bob", "cid")}
    # The epoch of 20 to 29 has the rule of 29, and that of 40 to 49 the one that ends the alarms.
    assert by_user["ann"] == list(range(260, 401, 10))
    assert by_user["bob"] == list(range(360, 601, 10))
    assert by_user["cid"] == []


def test_the_operator_goes_on_when_its_rules_have_ended_and_ends_after_both() -> None:
    late = [Rule(500, "ann", 1)]
    assert alarms(Alert(), [], ORDERS) == []
    assert alarms(Alert(), late, ORDERS) == []
    first = alarms(Alert(), [Rule(0, "ann", 590)], ORDERS)
    assert first == [Alarm("ann", 600)]


@pytest.mark.parametrize("flow", [controlled, controlled_arriving])
def test_output_does_not_depend_on_how_many_instances_there_are(
    flow: Callable[[Collect], rs.Flow],
) -> None:
    def run(**options: Any) -> list[Any]:
        sink = Collect()
        run_local(flow(sink), **options)
        return sink.by_epoch() if flow is controlled else list(sink.records())

    expected = run()
    assert len(expected) > 20
    several = {"discount": 3, "sales": 2, "rules": 2}
    if flow is controlled:
        assert [run(instances=several, seed=s) for s in range(6)] == [expected] * 6
    assert run(instances=several, check=True, checkpoint_every=3)


def test_a_process_that_changes_the_row_is_found_at_the_next_checkpoint() -> None:
    @rs.operator(key="user")
    class Meddling(type(Alert())):  # type: ignore[misc]
        def process(self, order: Order, spent: Spent, limits: Limits) -> Iterator[Alarm]:
            limits.of[order.user] = 0
            yield Alarm(order.user, order.amount)

    with pytest.raises(StateError, match=r"Meddling\.process has changed Limits"):
        alarms(Meddling(), [Rule(0, "ann", 1)], ORDERS, check=True, checkpoint_every=2)


def test_a_control_that_raises_ends_the_job_with_its_line() -> None:
    @rs.operator(key="user")
    class Strict(type(Alert())):  # type: ignore[misc]
        def control(self, rule: Rule, limits: Limits) -> None:
            raise ValueError("no such user")  # here

        def process(self, order: Order, spent: Spent, limits: Limits) -> Iterator[Alarm]:
            yield Alarm(order.user, order.amount)

    with pytest.raises(OperatorError, match="no such user") as raised:
        alarms(Strict(), [Rule(0, "ann", 1)], ORDERS)
    assert raised.value.where is not None and "# here" in raised.value.where.text


def test_a_stored_row_is_restored_and_upgraded() -> None:
    class Old(rs.State):
        of: dict[str, int] = rs.field(factory=dict)

    class New(rs.State):
        cents: dict[str, int] = rs.field(factory=dict)

        @classmethod
        def upgrade(cls, old: Mapping[str, Any]) -> Self:
            return cls(cents={user: 100 * limit for user, limit in old["of"].items()})

    def row_of(row: Any, state: Any) -> ControlRow:
        from raystream.api.declarations import spec_of

        @rs.operator(key="user")
        class Op:
            def control(self, rule: Rule, rules: row) -> None:
                next(iter(getattr(rules, n) for n in row._names))[rule.user] = rule.limit

            def process(self, order: Order, spent: state, rules: row) -> Iterator[Alarm]:
                yield Alarm(order.user, order.amount)

        return ControlRow(spec_of(Op()))

    first, second, third = (row_of(row, Spent) for row in (Old, Old, New))
    first.take([Rule(1, "ann", 5), Rule(2, "bob", 6)], 1)
    kept = second.row
    second.restore(first.checked())
    assert second.row is kept and second.row == first.row
    third.restore(first.checked())
    assert third.row == New(cents={"ann": 500, "bob": 600})
    with pytest.raises(StateError, match="was stored as other state"):
        second.restore(third.checked())


def refused(op: Any, match: str, stream: Any = None) -> None:
    flow = rs.Flow("refused")
    rules = flow.source(rs.io.iterable([], Rule), name="rules")
    orders = flow.source(rs.io.iterable([], Order), name="orders")
    by = rules if stream is None else stream
    with pytest.raises((GraphError, ConfigError), match=match):
        orders.through(op if by is False else rs.controlled(op, by=by))


@rs.operator(key="user")
def plain(order: Order, spent: Spent) -> Iterator[Alarm]:
    yield Alarm(order.user, spent.amount)


@rs.operator(key="user")
class Other:
    def control(self, rule: Rule, limits: Limits) -> None: ...

    def process(self, order: Order, spent: Spent) -> Iterator[Alarm]:
        yield Alarm(order.user, spent.amount)


@rs.operator(key="user", window=rs.tumbling(seconds=5))
class Windowed:
    def control(self, rule: Rule, limits: Limits) -> None: ...

    def process(self, order: Order, spent: Spent, limits: Limits) -> None: ...

    def close(self, key: str, window: rs.Window, spent: Spent) -> Iterator[Alarm]:
        yield Alarm(key, spent.amount)


def test_what_cannot_be_is_refused_in_words() -> None:
    refused(Alert(), "Alert takes a control stream", False)
    refused(Alert(), "it is no stream", 3)
    refused(plain, "it has no method `control`")
    refused(Other(), "the last argument of `process` is the row that `control` makes: a Limits")
    refused(Windowed(), "an operator that has windows takes no control stream")
    flow = rs.Flow("another")
    refused(Alert(), "belongs to another flow", flow.source(rs.io.iterable([], Rule)))
    both = rs.Flow("both")
    orders = both.source(rs.io.iterable([], Order))
    with pytest.raises(GraphError, match="control takes Rule, but its control stream carries"):
        orders.through(rs.controlled(Alert(), by=orders))
