"""What compiled operators on numbers are tried on, and how they are compared with Python."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st

from raystream.api.declarations import spec_of
from raystream.compiled.operator import CompiledOperator, compile_operator
from raystream.errors import OperatorError
from tests.compiled.reference import given


class Ints(NamedTuple):
    op: int
    a: int
    b: int


class Both(NamedTuple):
    n: int
    x: float


class Whole(NamedTuple):
    value: int


class Real(NamedTuple):
    value: float


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
