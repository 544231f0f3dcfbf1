"""What compiled functions could do otherwise than Python: they do the same, or refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import GraphError, OperatorError
from raystream.testing import Collect, run_local


class Whole(NamedTuple):
    value: int


class Real(NamedTuple):
    value: float


class Two(NamedTuple):
    time: int
    a: int
    b: int
    x: float


def compared(op: Any, a: int, b: int, x: float = 0.0) -> list[Any]:
    flow, sink = rs.Flow("found", key_groups=4), Collect()
    source = flow.source(rs.io.iterable([Two(0, a, b, x)], Two), epochs=rs.by_time(seconds=1))
    source.through(op, name="op").to(sink)
    run_local(flow)
    return [r.value for r in sink.records()]


@rs.operator(compiled=True)
def steps(r: Two) -> Iterator[Whole]:
    n = 0
    for _ in range(r.a, r.b):
        n += 1
        if n == 5:
            break
    yield Whole(n)
    for _ in range(r.b, r.a, -1):
        n += 1
        if n == 9:
            break
    yield Whole(n)
    yield Whole(len(range(r.a)) if r.a < 10 else 0)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (rs.NEVER, -5, [0, 0, 0]),
        (3, -(2**63), [0, 0, 3]),
        (1, 4, [3, 6, 1]),
        (4, 1, [0, 0, 4]),
        (rs.NEVER - 2, rs.NEVER, [2, 4, 0]),
    ],
)
def test_a_range_has_as_many_steps_as_in_python(a: int, b: int, expected: list[int]) -> None:
    assert compared(steps, a, b) == expected


def test_a_range_beyond_64_bits_is_an_error() -> None:
    with pytest.raises(OperatorError, match="an int left 64 bits"):
        compared(steps, -(2**63), rs.NEVER)


def push(values: list[int], value: int) -> None:
    values += [value]


@rs.operator(compiled=True)
def pushes(r: Two) -> Iterator[Whole]:
    values = [r.a]
    push(values, r.b)
    yield Whole(len(values))


@rs.operator(compiled=True)
def doubles(r: Two) -> Iterator[Whole]:
    values = [r.a]
    same = values
    same *= 2
    yield Whole(len(values))


@pytest.mark.parametrize("op", [pushes, doubles])
def test_a_list_is_not_changed_by_an_operator(op: Callable[..., Any]) -> None:
    with pytest.raises(GraphError, match="it changes a list by an operator and =: use append"):
        compared(op, 1, 2)


@rs.operator(compiled=True)
def powers(r: Two) -> Iterator[Real]:
    yield Real(math.exp2(r.x))


def test_exp2_beyond_all_floats_is_an_error() -> None:
    assert compared(powers, 0, 0, 3.0) == [8.0]
    with pytest.raises(OperatorError, match="OverflowError"):
        compared(powers, 0, 0, 2000.0)


class Sum(rs.State):
    total: float = 0


@rs.operator(key="a", compiled=True)
def keeps(r: Two, row: Sum) -> Iterator[Whole]:
    row.total = r.b
    yield Whole(int(row.total))


def test_an_int_is_not_rounded_where_a_float_is_kept() -> None:
    assert compared(keeps, 0, 2**53) == [2**53]
    with pytest.raises(OperatorError, match=r"beyond 2\*\*53"):
        compared(keeps, 0, 2**53 + 1)


@rs.operator(compiled=True)
@dataclass(frozen=True)
class Hidden:
    _n: int = 1

    def process(self, r: Two) -> Iterator[Whole]:
        yield Whole(self._n)


def test_a_hidden_parameter_is_refused_when_compiled() -> None:
    with pytest.raises(GraphError, match="its name begins with _"):
        compared(Hidden(), 1, 2)


class Marks(rs.State):
    marks: Annotated[list[bool], rs.Array("?", 3)] = rs.field(factory=lambda: [False] * 3)


@rs.operator(key="a", compiled=True)
def marks(r: Two, row: Marks) -> Iterator[Whole]:
    row.marks[0] = True
    yield Whole(1)


def test_arrays_of_bools_are_not_compiled() -> None:
    with pytest.raises(GraphError, match="arrays of bools"):
        compared(marks, 0, 0)
