"""What would have another result when it is compiled is refused with its line, or raises.

In each case the line that the error must name ends in `# here`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.compiled.operator import compile_operator
from raystream.errors import OperatorError
from tests.compiled.reference import given
from tests.compiled.refusals import Cases, In, Out, Real, Row, check

CASES = Cases()
refused = CASES.refused


class Flag(NamedTuple):
    time: int
    yes: bool | None


BYTES = np.array([200, 100], np.uint8)
TABLE = np.array([2.675, 1.005])
LITTLE, EXACT = np.float32(0.1), np.float64(0.1)


def first_twice(values: list[int]) -> int:
    return (values * 2)[0]  # here


def third(value: int) -> int:
    return value // 3


@refused("'hypot' is rounded otherwise when compiled")
@rs.operator(compiled=True)
def distance(r: Real) -> Iterator[Real]:
    yield Real(r.time, r.key, math.hypot(r.value, 1.0))  # here


@refused("'log' of NumPy may have another result")
@rs.operator(compiled=True)
def numpy_log(r: Real) -> Iterator[Real]:
    yield Real(r.time, r.key, np.log(r.value))  # here


@refused("'array' of NumPy may have another result")
@rs.operator(compiled=True)
def local_array(r: Real) -> Iterator[Real]:
    values = np.array([r.value, 1.0])  # here
    yield Real(r.time, r.key, values.mean())


@refused("'isnan' of NumPy may have another result")
@rs.operator(compiled=True)
def not_a_number(r: Real) -> Iterator[Out]:
    if ~np.isnan(r.value):  # here
        yield Out(r.key)


@refused("tuples of ints with floats")
@rs.operator(compiled=True)
def tuples(r: Real) -> Iterator[Out]:
    yield Out(r.key, yes=(r.time, 1) == (r.value, 1))  # here


@refused("a float has another text")
@rs.operator(compiled=True)
def digits(r: Real) -> Iterator[Out]:
    yield Out(len(str(r.value)))  # here


@refused("an array of uint8")
@rs.operator(compiled=True)
def narrow_table(r: In) -> Iterator[Out]:
    yield Out(int(BYTES[0]))  # here


@refused("a ndarray of NumPy, whose numbers reckon otherwise")
@rs.operator(compiled=True)
def counted(r: Real) -> Iterator[Out]:
    yield Out(int((TABLE[0] > r.value) + (TABLE[1] > r.value)))  # here


@refused("a float32 of NumPy")
@rs.operator(compiled=True)
def narrow_number(r: Real) -> Iterator[Real]:
    yield Real(r.time, r.key, LITTLE * r.value)  # type: ignore[arg-type]  # here


@refused("a float64 of NumPy, whose numbers reckon otherwise")
@rs.operator(compiled=True)
def above(r: Real) -> Iterator[Out]:
    yield Out(r.key, yes=r.value > EXACT)  # here


@refused("compare them with ==")
@rs.operator(compiled=True)
def identity(r: Flag) -> Iterator[Out]:
    yield Out(r.time, yes=r.yes is True)  # here


@refused("a pattern True")
@rs.operator(compiled=True)
def singleton(r: Flag) -> Iterator[Out]:
    match r.yes:
        case True:  # here
            yield Out(r.time)


@refused("a whole array: use its items", inside=first_twice)
@rs.operator(key="key", compiled=True)
def aliased(r: In, row: Row) -> Iterator[Out]:
    yield Out(first_twice(row.cars))


@refused("a tuple holds an int or a float")
@rs.operator(compiled=True)
def in_a_tuple(r: Real) -> Iterator[Out]:
    a, b = (r.time, r.value) if r.key else (r.value, r.value)  # here
    yield Out(r.key, yes=a == b)


@refused("it compares left.pop() twice")
@rs.operator(compiled=True)
def popped(r: In) -> Iterator[Out]:
    left = [1, r.value]
    yield Out(r.key, yes=0 < left.pop() < 5)  # here


@refused("sorted(list(int64)")
@rs.operator(compiled=True)
def by_third(r: In) -> Iterator[Out]:
    yield Out(sorted([7, 6, r.value], key=third)[0])  # here


@refused("only ints are sorted as Python does it")
@rs.operator(compiled=True)
def sorted_floats(r: Real) -> Iterator[Real]:
    yield Real(r.time, r.key, sorted([0.0, -0.0, r.value])[0])  # here


@refused("it asks for the type of either")
@rs.operator(compiled=True)
def kind_of(r: Real) -> Iterator[Out]:
    either = r.time if r.key else r.value
    yield Out(r.key, yes=isinstance(either, float))  # here


@refused("a list of int64 is given float64")
@rs.operator(compiled=True)
def placed(r: Real) -> Iterator[Out]:
    values = [r.time, 2]
    values[0] = r.value  # type: ignore[call-overload]  # here
    yield Out(r.key, yes=values[0] == r.value)


@refused("a list of narrow numbers wraps around")
@rs.operator(key="key", compiled=True)
def narrow_list(r: In, row: Row) -> Iterator[Out]:
    cars = [c for c in row.cars]  # noqa: C416  # here
    cars[0] = r.value
    yield Out(r.key, yes=cars[0] == r.value)


@refused("row.cars.copy, which may have another result")
@rs.operator(key="key", compiled=True)
def copied(r: In, row: Row) -> Iterator[Out]:
    yield Out((row.cars.copy() * 2)[0])  # here


@refused("tuples of ints with floats or None")
@rs.operator(compiled=True)
def records(r: Flag) -> Iterator[Out]:
    yield Out(r.time, yes=r == r)  # here


@pytest.mark.parametrize(("op", "message", "inside"), CASES)
def test_what_has_another_result_names_the_line(op: Any, message: str, inside: Any) -> None:
    check(op, message, inside)


@rs.operator(compiled=True)
def looked_up(r: In) -> Iterator[Real]:
    yield Real(r.time, r.key, round(float(TABLE[r.value]), 2))


def test_an_item_of_a_table_that_is_made_a_number_is_as_in_python() -> None:
    compiled = compile_operator(spec_of(looked_up), groups=1)
    records = [In(0, 1, 0), In(0, 1, -1)]
    output = compiled.process(given(compiled.spec, records, 1), None, 1, 0)
    assert [*output.emitted[0].rows.records()] == [e for r in records for e in looked_up(r)]


class Short(NamedTuple):
    real: rs.Float32


@rs.operator(compiled=True)
def shortened(r: Real) -> Iterator[Short]:
    yield Short(r.value)


@pytest.mark.parametrize("value", [1e39, -1e39])
def test_a_float_that_32_bits_cannot_hold_is_an_error(value: float) -> None:
    compiled = compile_operator(spec_of(shortened), groups=1)
    wide = [Real(0, 0, v) for v in (math.inf, 1e38, value)]
    with pytest.raises(OperatorError, match=r"Short\.real: -?1e\+39 does not fit real: float32"):
        compiled.process(given(compiled.spec, wide, 1), None, 1, 0)
    output = compiled.process(given(compiled.spec, wide[:2], 1), None, 1, 0)
    assert next(r.real for r in output.emitted[0].rows.records()) == math.inf
