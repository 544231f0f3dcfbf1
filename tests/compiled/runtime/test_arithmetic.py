"""Arithmetic when compiled: Python's result, or an error where it has none in 64 bits."""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

import raystream as rs
from tests.compiled.runtime.agreement import Ints, Real, Whole, agree, floats, ints


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


@settings(max_examples=300, deadline=None)
@forall(st.integers(0, 13), ints, ints)
def test_ints(op: int, a: int, b: int) -> None:
    agree(on_ints, Ints(op, a, b))


@pytest.mark.parametrize(("a", "b"), [(2**62, 2), (-(2**63), -1), (2**63 - 1, 1)])
def test_what_leaves_64_bits_is_an_error(a: int, b: int) -> None:
    for op in (0, 2, 3):
        agree(on_ints, Ints(op, a, b))


class Floats(NamedTuple):
    op: int
    x: float
    y: float


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


@settings(max_examples=200, deadline=None)
@forall(st.integers(0, 9), floats, floats)
def test_floats(op: int, x: float, y: float) -> None:
    agree(on_floats, Floats(op, x, y))


@rs.operator(compiled=True)
def on_functions(r: Ints) -> Iterator[Whole | Real]:
    a, b = r.a, r.b
    if r.op == 0:
        yield Whole(sum((a, b)))
    elif r.op == 1:
        yield Whole(sum([a, b], 1))
    elif r.op == 2:
        yield Whole(pow(a, b % 70 if b > -3 else b))
    elif r.op == 3:
        yield Whole(divmod(a, b)[0])
    elif r.op == 4:
        yield Whole(operator.add(a, b))
    elif r.op == 5:
        yield Whole(operator.neg(operator.mul(a, b)))
    elif r.op == 6:
        yield Whole(math.gcd(a, b))
    elif r.op == 7:
        yield Whole(~(a > b))
    elif r.op == 8:
        yield Real(math.ldexp(0.75, b))
    elif r.op == 9:
        yield Whole(operator.invert(a) + (a < b) - divmod(a, 7)[1])


@settings(max_examples=300, deadline=None)
@forall(st.integers(0, 9), ints, ints)
def test_functions_of_ints(op: int, a: int, b: int) -> None:
    agree(on_functions, Ints(op, a, b))


class Power(NamedTuple):
    x: float
    n: int


@rs.operator(compiled=True)
def on_powers(r: Power) -> Iterator[Real]:
    x, root = r.x, abs(r.x)
    if r.n == 100:
        yield Real(root**0.5)
    elif r.n == 101:
        yield Real(x**-1)
    elif r.n == 102:
        yield Real(x**3)
    elif r.n == 103:
        yield Real(math.pow(x, 7))
    elif r.n == 104:
        yield Real(pow(x, 2))
    else:
        yield Real(x**r.n)


@settings(max_examples=500, deadline=None)
@forall(floats, st.integers(-20, 70) | st.integers(100, 104))
def test_powers_are_rounded_as_pythons(x: float, n: int) -> None:
    agree(on_powers, Power(x, n))


@rs.operator(compiled=True)
def on_places(r: Ints) -> Iterator[Whole]:
    places, i, j = [1, 2, 3], r.a % 3, r.b % 3
    if r.op == 0:
        places[i], i = 10, j
    elif r.op == 1:
        i, places[i] = j, 10
    elif r.op == 2:
        at = [0]
        places[at[0]] = counted(at)
    else:
        (places[i], (j, places[j])), i = (places[j], (i, 20)), 0
    yield Whole(places[0] * 10000 + places[1] * 100 + places[2] + i * 10**6 + j * 10**7)


def counted(at: list[int]) -> int:
    at[0] += 1
    return at[0]


@settings(max_examples=60, deadline=None)
@forall(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2))
def test_what_is_unpacked_is_assigned_from_left_to_right(op: int, a: int, b: int) -> None:
    agree(on_places, Ints(op, a, b))


class Half(float, enum.Enum):
    """Numbers that are not whole."""

    ONE = 0.5


def adding(by: int) -> Callable[[int], int]:
    def add(n: int, by: int = by) -> int:
        return n + by

    return add


ONE, TEN = adding(1), adding(10)


@rs.operator(compiled=True)
def with_constants(r: Ints) -> Iterator[Real]:
    yield Real(Half.ONE + ONE(r.a) * 100 + TEN(r.a))


def test_defaults_and_members_are_what_they_were() -> None:
    agree(with_constants, Ints(0, 7, 0))
