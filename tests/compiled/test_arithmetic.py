"""Arithmetic when compiled: Python's result, or an error where it has none in 64 bits."""

from __future__ import annotations

import enum
import math
import operator
import re
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


class Both(NamedTuple):
    n: int
    x: float


@rs.operator(compiled=True)
def on_both(r: Both) -> Iterator[Whole]:
    n, x = r.n, r.x
    yield Whole(
        (n == x)
        + (x == n) * 2
        + (n != x) * 4
        + (n < x) * 8
        + (x < n) * 16
        + (n <= x) * 32
        + (n > x) * 64
        + (x >= n) * 128
        + (n < x < n + 3.5) * 256
        + (x <= n == n != x) * 512
        + (n != 7 and 1 <= r.n <= 69) * 1024
        + (x > 0.5 or (n != 7 and -9 <= round(r.x % 7.0) < 5)) * 2048
        + (n != 3 and 1 <= x <= n + 0.5 and 0 < abs(n) < 2**53) * 4096
    )


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


@rs.operator(compiled=True)
def on_mixed(r: Both) -> Iterator[Whole]:
    n, x = r.n, r.x
    either = n if x > 0 else x
    most = n
    for _ in range(2):
        if x > 2:
            most = x  # type: ignore[assignment]
    least = [n, x]
    yield Whole(
        (either == n)
        + (most == n) * 2
        + (max(n, x) == n) * 4
        + (min(x, 1, n) == n) * 8
        + ((n or x) == n) * 16
        + (one_of(n, x) == n) * 32
        + (least[0] == n) * 64
    )


def one_of(n: int, x: float) -> float:
    if x < 1:
        return n
    return x


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


class Maybe(NamedTuple):
    op: int
    n: int | None
    x: float | None


@rs.operator(compiled=True)
def on_maybe(r: Maybe) -> Iterator[Whole]:
    if r.op == 0:
        yield Whole(r.n + r.n)  # type: ignore[operator]
    elif r.op == 1:
        yield Whole(-abs(r.n) * 3)  # type: ignore[arg-type]
    elif r.op == 2:
        yield Whole(int(r.x))  # type: ignore[arg-type]
    elif r.op == 3:
        yield Whole(round(r.x))  # type: ignore[arg-type]
    elif r.op == 4:
        yield Whole((r.n < r.x) + (r.x <= r.n) * 2)  # type: ignore[operator]
    elif r.op == 5:
        yield Whole((r.n == r.x) + (r.x != r.n) * 2 + (r.n == 1) * 4 + (r.x != 1) * 8)
    elif r.op == 6:
        yield Whole((r.n == None) + (r.x != None) * 2)  # noqa: E711
    elif r.op == 7 and r.n is not None:
        yield Whole(r.n + 1)
    elif r.op == 9:
        yield Whole(max(r.n, 3) + min(7, r.n, 8))  # type: ignore[type-var]
    elif r.op == 10:
        yield Whole(int(max(r.x, r.n, 2) == r.n))  # type: ignore[type-var]
    elif r.op == 11:
        n, left = r.n, r.n if r.x else None
        while left:
            left = None
        yield Whole((1 if n else 0) + (not r.x) * 2 + (4 if r.n and not r.x else 8))
        assert not left
    else:
        yield Whole(int(math.sqrt(r.x)))  # type: ignore[arg-type]


LARGE = 2**62 + 1


@rs.operator(compiled=True)
def on_large(r: Both) -> Iterator[Whole]:
    n, other = 2**53 + 1, LARGE
    if r.x > 0:
        n = 4611686018427387907
    yield Whole((n if r.n else other) ^ r.n)


class Digits(NamedTuple):
    x: float
    a: int
    n: int


@rs.operator(compiled=True)
def on_digits(r: Digits) -> Iterator[Real]:
    yield Real(round(r.x, r.n))


@rs.operator(compiled=True)
def to_cents(r: Digits) -> Iterator[Real]:
    yield Real(round(r.x, 2))


@rs.operator(compiled=True)
def to_int(r: Digits) -> Iterator[Whole]:
    yield Whole(round(r.x) + round(r.x, None) % 2)


@rs.operator(compiled=True)
def to_tens(r: Digits) -> Iterator[Whole]:
    yield Whole(round(r.a, r.n))


def interpreted(op: Callable[[Any], Iterator[Any]], record: Any) -> Any:
    """The record emitted, or the kind of error."""
    try:
        value = (emitted := next(op(record))).value
    except Exception as error:
        return type(error)
    kind = int if isinstance(emitted, Whole) else int | float
    fits = isinstance(value, kind) and (isinstance(value, float) or -(2**63) <= value < 2**63)
    return emitted if fits else OverflowError


@cache
def compiled_form(op: Any) -> CompiledOperator:
    return compile_operator(spec_of(op), groups=1)


class Watched(int):
    """An int that remembers how large those became that came of it."""

    largest = 0


def watching(name: str) -> Any:
    """A method of int's that watches its result."""

    def method(*values: int) -> Any:
        result = getattr(int, name)(*values)
        if type(result) is not int:
            return result
        Watched.largest = max(Watched.largest, result if result >= 0 else ~result)
        return Watched(result)

    return method


for each in ["add", "sub", "mul", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"]:
    setattr(Watched, f"__{each}__", watching(f"__{each}__"))
    setattr(Watched, f"__r{each}__", watching(f"__r{each}__"))
for each in ("pos", "neg", "abs", "invert", "round"):  # an int comes in with `pos`
    setattr(Watched, f"__{each}__", watching(f"__{each}__"))


def largest(op: Any, record: Any) -> int:
    """The largest number that comes in, or int on the way."""
    given = [abs(v) for v in record if type(v) is float and math.isfinite(v)]
    Watched.largest = int(max(given, default=0.0))
    interpreted(op, type(record)(*(+Watched(v) if type(v) is int else v for v in record)))
    return Watched.largest


def agree(op: Any, record: Any, may: str = "$^") -> None:
    """Both forms emit the same, or raise the same; compiled code may also raise where an int leaves
    64 bits, or 2**53 where it is to be a float, and what `may` matches."""
    compiled = compiled_form(op)
    expected = interpreted(op, record)
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
        said = str(failure.__cause__)
        if "left 64 bits" in said:
            assert largest(op, record) >= 2**63
        elif "beyond 2**53" in said:
            assert largest(op, record) > 2**53
        else:
            assert re.search(may, said), said


ints = st.one_of(
    st.integers(-8, 8),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**63 - 1, -(2**63), 2**53, 2**53 + 1, 2**32, -1, 0]),
)
floats = st.one_of(
    st.floats(-10, 10), st.floats(), st.sampled_from([0.0, -0.0, 2.0**63, -(2.0**63)])
)


@settings(max_examples=300, deadline=None)
@forall(st.integers(0, 13), ints, ints)
def test_ints(op: int, a: int, b: int) -> None:
    agree(on_ints, Ints(op, a, b))


@settings(max_examples=200, deadline=None)
@forall(st.integers(0, 9), floats, floats)
def test_floats(op: int, x: float, y: float) -> None:
    agree(on_floats, Floats(op, x, y))


@settings(max_examples=300, deadline=None)
@forall(st.integers(0, 9), ints, ints)
def test_functions_of_ints(op: int, a: int, b: int) -> None:
    agree(on_functions, Ints(op, a, b))


@settings(max_examples=300, deadline=None)
@forall(ints, floats)
def test_ints_that_may_be_floats_stay_exact_or_raise(n: int, x: float) -> None:
    agree(on_mixed, Both(n, x))


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


near = st.one_of(
    st.sampled_from([2**53, 2**63, 2**62]), st.integers(2**53, 2**63 - 1), st.integers(0, 5)
)


@settings(max_examples=300, deadline=None)
@forall(near, st.integers(-2, 2), st.sampled_from([1, -1]), st.none() | floats)
def test_ints_and_floats_are_compared_exactly(
    about: int, by: int, sign: int, other: float | None
) -> None:
    n = max(-(2**63), min(sign * about + by, 2**63 - 1))
    agree(on_both, Both(n, sign * float(about) if other is None else other))


@settings(max_examples=200, deadline=None)
@forall(st.integers(0, 11), st.none() | ints, st.none() | floats)
def test_numbers_that_may_be_none(op: int, n: int | None, x: float | None) -> None:
    agree(on_maybe, Maybe(op, n, x))


amounts = st.one_of(
    floats,
    st.integers(-(10**9), 10**9).map(lambda n: n / 1000),
    st.integers(-(10**6), 10**6).map(lambda n: n / 64 + 0.5),
    st.builds(lambda n, e: n * 10.0**e, st.integers(-(10**17), 10**17), st.integers(-30, 30)),
    st.integers(2**50, 2**56).map(lambda n: n / 8),
)


@settings(max_examples=300, deadline=None)
@forall(amounts, st.integers(-22, 22))
def test_floats_are_rounded_to_digits(x: float, n: int) -> None:
    agree(on_digits, Digits(x, 0, n))
    agree(to_cents, Digits(x, 0, 0))
    agree(to_int, Digits(x, 0, 0))


@settings(max_examples=300, deadline=None)
@forall(ints | st.integers(-(10**6), 10**6).map(lambda n: n * 5), st.integers(-20, 3))
def test_ints_are_rounded_to_tens(a: int, n: int) -> None:
    agree(to_tens, Digits(0.0, a, n), "more than 18 digits")


@pytest.mark.parametrize("n", [23, -23, 2**62, -(2**63)])
def test_what_cannot_be_rounded_exactly_is_an_error(n: int) -> None:
    compiled = compiled_form(on_digits)
    with pytest.raises(OperatorError, match="more than 22 digits when compiled, but not"):
        compiled.process(given(compiled.spec, [Digits(0.125, 0, n)], 1), None, 1, 0)


@pytest.mark.parametrize(("a", "b"), [(2**62, 2), (-(2**63), -1), (2**63 - 1, 1)])
def test_what_leaves_64_bits_is_an_error(a: int, b: int) -> None:
    for op in (0, 2, 3):
        agree(on_ints, Ints(op, a, b))


@pytest.mark.parametrize(("n", "x"), [(0, 0.0), (0, 1.0), (5, 0.0), (5, 1.0)])
def test_a_large_int_that_stays_an_int_is_none_that_becomes_a_float(n: int, x: float) -> None:
    compiled, record = compiled_form(on_large), Both(n, x)
    output = compiled.process(given(compiled.spec, [record], 1), None, 1, 0)
    assert [*output.emitted[0].rows.records()] == [interpreted(on_large, record)]
