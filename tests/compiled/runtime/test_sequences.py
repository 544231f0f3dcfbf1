"""Tuples and lists when compiled: Python's result, or an error where it is not known."""

from __future__ import annotations

import math
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.compiled.operator import compile_operator
from raystream.compiled.runtime import functions
from raystream.errors import GraphError, OperatorError
from tests.compiled.reference import given
from tests.compiled.runtime.agreement import Real, Whole, agree, compiled_form, floats, ints

NAN = "whether a nan is the same one"


class Pair(NamedTuple):
    n: int
    x: float
    m: int | None
    y: float | None


@rs.operator(compiled=True)
def looked_for(r: Pair) -> Iterator[Whole]:
    n, x, other = r.n, r.x, r.n if r.n > 0 else 7
    yield Whole(
        (n in (2.0**53, x))
        + (n not in [x, 1.0]) * 2
        + (x in (n, 1, 0.5)) * 4
        + (x in [n, other]) * 8
        + (r.m in (n, None)) * 16
        + (n in (1, r.m, r.y)) * 32
        + (r.y not in (n, r.m, x)) * 64
        + (n in range(5)) * 128
        + (n in ()) * 256  # noqa: RUF060
    )


@settings(max_examples=200, deadline=None)
@forall(ints, floats, st.none() | ints, st.none() | floats, st.booleans())
def test_what_is_in_a_sequence_is_compared_exactly(
    n: int, x: float, m: int | None, y: float | None, like: bool
) -> None:
    agree(looked_for, Pair(n, float(n) if like else x, m, y), NAN)


@rs.operator(compiled=True)
def compared(r: Pair) -> Iterator[Whole]:
    n, x = r.n, r.x
    yield Whole(
        ((n, x) < (3, 0.5))
        + ((x, n) >= (0.0, n)) * 2
        + ((n, (x, 2)) == (n, (x, 2))) * 4
        + ([x, 1.0] != [0.0, x]) * 8
        + ([n, 3] <= [3, n]) * 16
        + ((n,) < (n, x)) * 32
        + (sorted([n, 5, -n % 7], reverse=True)[0] == n) * 64
        + (max((n, 3)) == n) * 128
        + (min((x, 0.5)) == x) * 256
    )


@settings(max_examples=200, deadline=None)
@forall(ints | st.just(3), floats | st.just(0.5))
def test_sequences_are_compared_as_in_python(n: int, x: float) -> None:
    agree(compared, Pair(n, x, None, None), NAN)


@rs.operator(compiled=True)
def most(r: Pair) -> Iterator[Whole]:
    values = [r.x]
    values.append(r.n)
    values[0] = r.n
    yield Whole((max((r.n, r.x)) == r.n) + (values[0] == r.n) * 2 + (values[1] == r.n) * 4)


@settings(max_examples=200, deadline=None)
@forall(ints, floats)
def test_ints_among_floats_stay_exact_or_raise(n: int, x: float) -> None:
    agree(most, Pair(n, x, None, None))


@rs.operator(compiled=True)
def kept(r: Pair) -> Iterator[Real]:
    values, empty = [r.n, 2], [0.5]
    values.insert(1, 3)
    values.reverse()
    empty.clear()
    empty.append(r.x)
    yield Real(values.pop() * 3 + values[0] + sum(empty) + len(values))


def test_lists_are_lists() -> None:
    agree(kept, Pair(9, 1.5, None, None))


def test_sums_of_floats_are_refused_where_python_makes_up_for_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @rs.operator(compiled=True)
    def summed(r: Pair) -> Iterator[Real]:
        yield Real(sum((r.x, 0.1, 0.2)))

    monkeypatch.setattr(functions, "sys", types.SimpleNamespace(version_info=(3, 12)))
    with pytest.raises(GraphError, match="the sum of floats is rounded otherwise"):
        compile_operator(spec_of(summed), groups=1)


@pytest.mark.parametrize("op", [looked_for, compared])
def test_whether_a_nan_is_the_same_one_is_not_known(op: Any) -> None:
    record = Pair(1, math.nan, None, math.nan)
    with pytest.raises(OperatorError, match=NAN):
        compiled_form(op).process(given(spec_of(op), [record], 1), None, 1, 0)
