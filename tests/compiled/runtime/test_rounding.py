"""`round` when compiled: Python's digits, or an error where they are not known exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import OperatorError
from tests.compiled.reference import given
from tests.compiled.runtime.agreement import Real, Whole, agree, compiled_form, floats, ints


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
