"""Arithmetic when compiled: Python's result, or an error where it has none in 64 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

import raystream as rs
from raystream.api.operators import spec_of
from raystream.compiled.operator import CompiledOperator, compile_operator
from raystream.errors import OperatorError
from tests.compiled.reference import given


class Ints(NamedTuple):
    op: int
    a: int
    b: int


class Floats(NamedTuple):
    op: int
    x: float
    y: float


class Whole(NamedTuple):
    value: int


class Real(NamedTuple):
    value: float


@rs.operator(compiled=True)
def on_ints(r: Ints) -> Iterator[Whole | Real]:
    a, b = r.a, r.b
    if r.op == 0:
        yield Whole(a + b)
    elif r.op == 1:
        yield Whole(a - b)
    elif r.op == 2:
        yield Whole(a * b)
    elif r.op == 3:
        yield Whole(a // b)
    elif r.op == 4:
        yield Whole(a % b)
    elif r.op == 5:
        yield Real(a / b)
    elif r.op == 6:
        yield Whole(a ** (b % 70 if b > -3 else b))
    elif r.op == 7:
        yield Whole(a << (b % 70 if b > -3 else b))
    elif r.op == 8:
        yield Whole(a >> (b % 70 if b > -3 else b))
    elif r.op == 9:
        yield Whole(-a)
    elif r.op == 10:
        yield Whole(abs(a))
    elif r.op == 11:
        a += b
        a *= 3
        yield Whole(a)
    elif r.op == 12:
        yield Whole(~a & b | (a ^ 5))
    elif r.op == 13:
        yield Whole(int(a < b) + True + max(a, b) // 2)


@rs.operator(compiled=True)
def on_floats(r: Floats) -> Iterator[Whole | Real]:
    x, y = r.x, r.y
    if r.op == 0:
        yield Real(x + y * x - y)
    elif r.op == 1:
        yield Real(x / y)
    elif r.op == 2:
        yield Real(x // y)
    elif r.op == 3:
        yield Real(x % y)
    elif r.op == 4:
        yield Real(math.sqrt(x))
    elif r.op == 5:
        yield Real(math.log(x))
    elif r.op == 6:
        yield Whole(int(x))
    elif r.op == 7:
        yield Whole(math.floor(x) + math.ceil(y))
    elif r.op == 8:
        yield Real(-x if x < y else abs(y))
    elif r.op == 9:
        yield Real(x**y)


def interpreted(operator: Callable[[Any], Iterator[Any]], record: Any) -> Any:
    """The record emitted, or the kind of error."""
    try:
        value = (emitted := next(operator(record))).value
    except Exception as error:
        return type(error)
    kind = int if isinstance(emitted, Whole) else int | float
    fits = isinstance(value, kind) and (isinstance(value, float) or -(2**63) <= value < 2**63)
    return emitted if fits else OverflowError


@cache
def compiled_form(operator: Any) -> CompiledOperator:
    return compile_operator(spec_of(operator), groups=1)


def agree(operator: Any, record: Any) -> None:
    compiled = compiled_form(operator)
    expected = interpreted(operator, record)
    failure = None
    try:
        output = compiled.process(given(compiled.spec, [record], 1), None, 1, 0)
    except OperatorError as error:
        failure = error
    if failure is None:
        assert repr([r for e in output.emitted for r in e.rows.records()]) == repr([expected])
    elif isinstance(expected, type):
        assert isinstance(failure.__cause__, expected)
    else:  # Python can, 64 bits cannot: it must be said
        assert "when compiled, but not" in failure.message


ints = st.one_of(
    st.integers(-8, 8),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**63 - 1, -(2**63), 2**53, 2**53 + 1, 2**32, -1, 0]),
)
floats = st.one_of(
    st.floats(-10, 10), st.floats(), st.sampled_from([0.0, -0.0, 2.0**63, -(2.0**63)])
)


@settings(max_examples=600, deadline=None)
@forall(st.integers(0, 13), ints, ints)
def test_ints(op: int, a: int, b: int) -> None:
    agree(on_ints, Ints(op, a, b))


@settings(max_examples=400, deadline=None)
@forall(st.integers(0, 9), floats, floats)
def test_floats(op: int, x: float, y: float) -> None:
    agree(on_floats, Floats(op, x, y))


@pytest.mark.parametrize(("a", "b"), [(2**62, 2), (-(2**63), -1), (2**63 - 1, 1)])
def test_what_leaves_64_bits_is_an_error(a: int, b: int) -> None:
    for op in (0, 2, 3):
        agree(on_ints, Ints(op, a, b))
