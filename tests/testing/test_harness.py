"""The harness: records in, records out, on the machine of a real job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import raystream as rs
from raystream.errors import GraphError, OperatorError, RaystreamError, StateError
from raystream.testing import OperatorHarness, same
from tests.dataflow.shapes import Gone, Seen, double, mix, watch
from tests.flows import (
    Account,
    CompiledLedger,
    Counted,
    CountWords,
    Ledger,
    Line,
    Missed,
    Order,
    Owed,
    Payment,
    Running,
    SessionCount,
    Tally,
    Word,
    running,
    running_batch,
    split,
)


def test_a_stateless_operator() -> None:
    harness = OperatorHarness(split)
    assert same(
        harness.send(Line(1, "to be"), Line(2, "or")), [Word(1, "to"), Word(1, "be"), Word(2, "or")]
    )
    harness.send(Line(3, "not"))
    assert harness.output[-1] == Word(3, "not")
    assert harness.state == {}
    assert OperatorHarness(double).send(Seen(1, 2, 3), Seen(1, 2, 4)) == [
        Seen(1, 2, 3), Seen(1, 2, 30), Seen(1, 2, 4)]  # fmt: skip
    assert same(
        OperatorHarness(mix).send(Gone(1, 2, 3), Seen(2, 1, 3)), [Seen(2, 1, 3), Seen(2, 1, 6)]
    )


@pytest.mark.parametrize("op", [running, running_batch])
@pytest.mark.parametrize("instances", [1, 3])
def test_a_keyed_operator(op: Any, instances: int) -> None:
    harness = OperatorHarness(op, instances=instances)
    found = harness.send(Word(1, "to"), Word(1, "be"), Word(2, "to"))
    assert sorted(found) == [Running("be", 1), Running("to", 1), Running("to", 2)]
    assert harness.state == {"to": Tally(n=2), "be": Tally(n=1)}
    harness.restart(instances=5)
    assert harness.send(Word(3, "to")) == [Running("to", 3)]
    assert harness.state["to"] == Tally(n=3)


def test_windows_and_late_records() -> None:
    harness = OperatorHarness(CountWords())
    harness.send(Word(3, "to"), Word(29, "to"), Word(30, "to"))
    assert harness.output == []
    assert harness.state == {("to", 0): Tally(n=2), ("to", 30): Tally(n=1)}
    harness.restart()
    harness.advance_watermark(30)
    assert same(harness.output, [Counted("to", 0, 2)])
    harness.send(Word(29, "to"), Word(40, "to"))
    assert same(harness.late, [Word(29, "to")])
    assert same(harness.end(), [Counted("to", 30, 2)])
    assert harness.state == {}


def test_sessions() -> None:
    harness = OperatorHarness(SessionCount())
    harness.send(Word(0, "a"), Word(10, "a"), Word(5, "a"))
    harness.advance_watermark(16)
    assert harness.output == []
    harness.advance_watermark(17)
    assert same(harness.output, [Counted("a", 0, 3)])


@pytest.mark.parametrize("op", [Ledger(), CompiledLedger()])
def test_timers(op: Any) -> None:
    harness = OperatorHarness(op)
    assert same(harness.send(Payment(1, 7, 5), Order(1, 7, 9)), [Owed(1, 7, 9), Owed(1, 7, 4)]), (
        "orders come before payments, as the annotation names them"
    )
    assert harness.state == {7: Account(owed=4, orders=1, due=21)}
    harness.restart(instances=2)
    assert same(harness.advance_watermark(21), [Missed(7, 21, 4)])
    assert same(harness.end(), [Missed(7, 26, 4)])


def test_several_outputs_come_in_the_order_of_emission() -> None:
    harness = OperatorHarness(watch)
    found = harness.send(Order(1, 5, 3), Order(2, 5, 1))
    assert [type(r).__name__ for r in found] == ["Gone", "Seen", "Note", "Seen", "Gone", "Seen"]


def test_keys_come_by_key_group() -> None:
    found = OperatorHarness(running).send(*(Word(1, c) for c in "abcdefgh"))
    groups = rs.key_groups(pa.array([r.word for r in found])).tolist()
    assert groups == sorted(groups)
    assert [r.word for r in found] != list("abcdefgh")


def test_compiled_or_not() -> None:
    found = []
    for compiled in (None, False, True):
        harness = OperatorHarness(Ledger(), compiled=compiled)
        harness.send(Order(1, 7, 9), Order(2, 3, 4))
        harness.end()
        found.append(harness.output)
    assert same(found[0], found[1])
    assert same(found[0], found[2])


class Ping(NamedTuple):
    key: int
    n: rs.Int8


class Sum(rs.State):
    n: rs.Int8 = 0


@rs.operator(key="key")
def add(ping: Ping, total: Sum) -> Iterator[Ping]:
    total.n += ping.n
    yield Ping(ping.key, 10 // ping.n)


def test_what_is_wrong_is_said() -> None:
    harness = OperatorHarness(add)
    with pytest.raises(OperatorError, match="add raised ZeroDivisionError") as error:
        harness.send(Ping(1, 1), Ping(1, 0))
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    assert error.value.where is not None
    assert "10 // ping.n" in error.value.where.text
    with pytest.raises(StateError, match=r"Ping\.n: 300 does not fit n: int8"):
        OperatorHarness(add).send(Ping(1, 300))
    with pytest.raises(GraphError, match="add takes Ping, not Word"):
        OperatorHarness(add).send(Word(1, "x"))
    harness = OperatorHarness(add)
    harness.send(Ping(1, 100), Ping(1, 100))
    with pytest.raises(StateError, match=r"Sum\.n of key 1 holds 200, which does not fit n: int8"):
        harness.restart()


@rs.operator()
@dataclass(frozen=True)
class Counting:
    n: int = 0

    def process(self, word: Word) -> Iterator[Word]:
        self.n += 1  # type: ignore[misc]
        yield word


@rs.operator()
def mixed(word: Word) -> Iterator[Word]:
    pa.array([1, word.word])
    yield word


@pytest.mark.parametrize(("op", "line"), [(Counting(), "self.n += 1"), (mixed, "pa.array([1")])
def test_the_line_is_not_one_of_a_library(op: Any, line: str) -> None:
    """Methods of dataclasses and what Cython compiles have frames in files that are not there."""
    with pytest.raises(OperatorError) as error:
        OperatorHarness(op).send(Word(1, "x"))
    assert error.value.where is not None
    assert error.value.where.text.startswith(line)


class Real(rs.State):
    x: float = 0.0


@rs.operator(key="time")
def too_large(word: Word, real: Real) -> Iterator[Word]:
    real.x = 10**400
    yield word


def test_what_fails_at_no_line_of_the_user_is_shown_at_the_operator() -> None:
    with pytest.raises(OperatorError, match="too_large raised OverflowError") as error:
        OperatorHarness(too_large).send(Word(1, "x"))
    where = error.value.where
    assert where is not None and where.file == __file__
    assert "def too_large" in "".join(Path(__file__).read_text().splitlines()[where.line - 1 :][:2])


@rs.operator(key="time")
def late(word: Word, tally: Tally) -> Iterator[Word]:
    yield word


@rs.operator()
def sink(word: Word) -> Iterator[Word]:
    yield word


@pytest.mark.parametrize("op", [late, sink])
def test_an_operator_may_have_any_name(op: Any) -> None:
    harness = OperatorHarness(op)
    assert harness.send(Word(1, "x")) == [Word(1, "x")]
    assert harness.late == []


@pytest.mark.parametrize(
    ("op", "told"),
    [(running, "compiled operators hold numbers"), (running_batch, "batch function is not comp")],
)
def test_what_cannot_be_compiled_is_refused(op: Any, told: str) -> None:
    with pytest.raises(GraphError, match=told):
        OperatorHarness(op, compiled=True)


def test_after_an_error() -> None:
    """A harness that failed amid an epoch is over, as a job would be: it raised AssertionErrors of
    its own. What is refused before leaves it as it was."""
    harness = OperatorHarness(add)
    with pytest.raises(GraphError, match="add takes Ping, not Word"):
        harness.send(Word(1, "x"))
    assert harness.send(Ping(1, 1)) == [Ping(1, 10)]
    for bad, kind in ((0, OperatorError), (300, StateError)):
        harness = OperatorHarness(add)
        with pytest.raises(kind):
            harness.send(Ping(1, bad))
        with pytest.raises(RaystreamError, match="stopped at an error: make a new one"):
            harness.send(Ping(1, 1))


def test_time_does_not_go_back_and_ends_once() -> None:
    harness = OperatorHarness(CountWords())
    harness.advance_watermark(5)
    with pytest.raises(
        GraphError, match="the watermark is 5: it never falls, here to 4"
    ) as refused:
        harness.advance_watermark(4)
    assert refused.value.where is not None and refused.value.where.file == __file__
    harness.end()
    with pytest.raises(RaystreamError, match="the harness was ended"):
        harness.send(Word(9, "x"))
