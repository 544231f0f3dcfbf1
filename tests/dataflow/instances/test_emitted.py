"""What an operator emits and should not is told with the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import OperatorError
from raystream.testing import Collect, run_local


class Tick(NamedTuple):
    time: int
    key: str


class Tally(rs.State):
    n: int = 0


def fails(op: Callable[..., Any]) -> OperatorError:
    flow = rs.Flow("emitted")
    ticks = [Tick(t, f"key-{t}") for t in range(9)]
    stream = flow.source(rs.io.iterable(ticks, Tick), epochs=rs.by_time(seconds=3))
    stream.through(op).to(Collect())
    with pytest.raises(OperatorError) as told:
        run_local(flow)
    return told.value


@pytest.mark.parametrize("key", [None, "key"])
def test_a_value_that_does_not_fit(key: str | None) -> None:
    @rs.operator(key=key)
    def halve(tick: Tick) -> Iterator[Tick]:
        yield tick._replace(time=tick.time / 2 if tick.time == 5 else 0)

    error = fails(halve)
    assert "halve emitted a value that does not fit: Tick.time: 2.5 does not fit" in error.message
    assert error.hint == "at epoch 2, in Tick(time=2.5, key='key-5')"


class Named(NamedTuple):
    names: list[str]


def test_a_value_that_holds_what_does_not_fit() -> None:
    """It was stored, and a sink to Parquet wrote an empty list for it."""

    @rs.operator()
    def name(tick: Tick) -> Iterator[Named]:
        yield Named([tick.key] if tick.time < 5 else [None])  # type: ignore[list-item]

    error = fails(name)
    assert "Named.names: (None,) does not fit names: list[str]" in error.message
    assert error.hint.startswith("at epoch 2")


def test_a_record_that_was_returned_itself() -> None:
    @rs.operator(key="key")
    def one(tick: Tick, tally: Tally) -> Iterator[Tick]:
        return tick  # type: ignore[return-value]

    error = fails(one)
    assert "one returned a Tick itself" in error.message
    assert "`yield` records, or return a list of them" in error.hint
    assert "epoch 1" in error.hint


@pytest.mark.parametrize("key", [None, "key"])
def test_nothing_is_none_or_no_record(key: str | None) -> None:
    """As of operators with state, which may return None."""

    @rs.operator(key=key)
    def early(tick: Tick) -> list[Tick] | None:
        return [tick] if tick.time < 2 else None

    flow, seen = rs.Flow("emitted"), Collect()
    ticks = [Tick(t, f"key-{t}") for t in range(9)]
    stream = flow.source(rs.io.iterable(ticks, Tick), epochs=rs.by_time(seconds=3))
    stream.through(early).to(seen)
    run_local(flow)
    assert sorted(seen.records()) == ticks[:2]


@pytest.mark.parametrize("key", [None, "key"])
def test_what_holds_no_records_is_told_with_the_operator(key: str | None) -> None:
    """No line of it raised: the error is of what was made of its result."""

    @rs.operator(key=key)
    def number(tick: Tick) -> Iterator[Tick]:
        return tick.time  # type: ignore[return-value]

    error = fails(number)
    assert "number raised TypeError: 'int' object is not iterable" in error.message
    assert error.where is not None and error.where.file == __file__
    assert "It has to `yield` them" in error.hint


def test_a_record_of_another_type() -> None:
    def other() -> Any:
        class Tick(NamedTuple):
            time: int

        return Tick(1)

    @rs.operator()
    def strange(tick: Tick) -> Iterator[Tick]:
        yield other()

    told = fails(strange).message
    assert "strange emitted a tests.dataflow.instances.test_emitted.test_a_record_of_" in told
