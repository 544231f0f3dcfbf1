"""Ints, floats and None in one expression when compiled: exact as in Python, or an error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

import raystream as rs
from tests.compiled.reference import given
from tests.compiled.runtime.agreement import (
    Both,
    Whole,
    agree,
    compiled_form,
    floats,
    interpreted,
    ints,
)


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


@settings(max_examples=300, deadline=None)
@forall(ints, floats)
def test_ints_that_may_be_floats_stay_exact_or_raise(n: int, x: float) -> None:
    agree(on_mixed, Both(n, x))


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


@settings(max_examples=200, deadline=None)
@forall(st.integers(0, 11), st.none() | ints, st.none() | floats)
def test_numbers_that_may_be_none(op: int, n: int | None, x: float | None) -> None:
    agree(on_maybe, Maybe(op, n, x))


LARGE = 2**62 + 1


@rs.operator(compiled=True)
def on_large(r: Both) -> Iterator[Whole]:
    n, other = 2**53 + 1, LARGE
    if r.x > 0:
        n = 4611686018427387907
    yield Whole((n if r.n else other) ^ r.n)


@pytest.mark.parametrize(("n", "x"), [(0, 0.0), (0, 1.0), (5, 0.0), (5, 1.0)])
def test_a_large_int_that_stays_an_int_is_none_that_becomes_a_float(n: int, x: float) -> None:
    compiled, record = compiled_form(on_large), Both(n, x)
    output = compiled.process(given(compiled.spec, [record], 1), None, 1, 0)
    assert [*output.emitted[0].rows.records()] == [interpreted(on_large, record)]
