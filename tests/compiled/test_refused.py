"""What has another result when it is compiled is refused with its line, or raises."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.api.operators import spec_of
from raystream.compiled.operator import compile_operator
from raystream.errors import GraphError, OperatorError
from tests.compiled.reference import given
from tests.compiled.test_errors import GROUPS, In, Out, Real, Row


class Flag(NamedTuple):
    time: int
    yes: bool | None


BYTES = np.array([200, 100], np.uint8)
TABLE = np.array([2.675, 1.005])
LITTLE, EXACT = np.float32(0.1), np.float64(0.1)


def first_twice(values: list[int]) -> int:
    return (values * 2)[0]  # through a name


def third(value: int) -> int:
    return value // 3


def refused_functions() -> list[Any]:
    """What has another result when it is compiled."""

    @rs.operator(compiled=True)
    def distance(r: Real) -> Iterator[Real]:
        yield Real(r.time, r.key, math.hypot(r.value, 1.0))  # distance

    @rs.operator(compiled=True)
    def numpy_log(r: Real) -> Iterator[Real]:
        yield Real(r.time, r.key, np.log(r.value))  # numpy log

    @rs.operator(compiled=True)
    def local_array(r: Real) -> Iterator[Real]:
        values = np.array([r.value, 1.0])  # local array
        yield Real(r.time, r.key, values.mean())

    @rs.operator(compiled=True)
    def not_a_number(r: Real) -> Iterator[Out]:
        if ~np.isnan(r.value):  # not a number
            yield Out(r.key)

    @rs.operator(compiled=True)
    def tuples(r: Real) -> Iterator[Out]:
        yield Out(r.key, yes=(r.time, 1) == (r.value, 1))  # tuples

    @rs.operator(compiled=True)
    def digits(r: Real) -> Iterator[Out]:
        yield Out(len(str(r.value)))  # digits

    @rs.operator(compiled=True)
    def narrow_table(r: In) -> Iterator[Out]:
        yield Out(int(BYTES[0]))  # narrow table

    @rs.operator(compiled=True)
    def counted(r: Real) -> Iterator[Out]:
        yield Out(int((TABLE[0] > r.value) + (TABLE[1] > r.value)))  # counted

    @rs.operator(compiled=True)
    def narrow_number(r: Real) -> Iterator[Real]:
        yield Real(r.time, r.key, LITTLE * r.value)  # type: ignore[arg-type]  # narrow number

    @rs.operator(compiled=True)
    def above(r: Real) -> Iterator[Out]:
        yield Out(r.key, yes=r.value > EXACT)  # above

    @rs.operator(compiled=True)
    def identity(r: Flag) -> Iterator[Out]:
        yield Out(r.time, yes=r.yes is True)  # identity

    @rs.operator(compiled=True)
    def singleton(r: Flag) -> Iterator[Out]:
        match r.yes:
            case True:  # singleton
                yield Out(r.time)

    @rs.operator(key="key", compiled=True)
    def aliased(r: In, row: Row) -> Iterator[Out]:
        yield Out(first_twice(row.cars))

    @rs.operator(compiled=True)
    def in_a_tuple(r: Real) -> Iterator[Out]:
        a, b = (r.time, r.value) if r.key else (r.value, r.value)  # in a tuple
        yield Out(r.key, yes=a == b)

    @rs.operator(compiled=True)
    def popped(r: In) -> Iterator[Out]:
        left = [1, r.value]
        yield Out(r.key, yes=0 < left.pop() < 5)  # popped

    @rs.operator(compiled=True)
    def by_third(r: In) -> Iterator[Out]:
        yield Out(sorted([7, 6, r.value], key=third)[0])  # by third

    @rs.operator(compiled=True)
    def sorted_floats(r: Real) -> Iterator[Real]:
        yield Real(r.time, r.key, sorted([0.0, -0.0, r.value])[0])  # sorted floats

    @rs.operator(compiled=True)
    def kind_of(r: Real) -> Iterator[Out]:
        either = r.time if r.key else r.value
        yield Out(r.key, yes=isinstance(either, float))  # kind of

    @rs.operator(compiled=True)
    def placed(r: Real) -> Iterator[Out]:
        values = [r.time, 2]
        values[0] = r.value  # type: ignore[call-overload]  # placed
        yield Out(r.key, yes=values[0] == r.value)

    @rs.operator(key="key", compiled=True)
    def narrow_list(r: In, row: Row) -> Iterator[Out]:
        cars = [c for c in row.cars]  # noqa: C416  # narrow list
        cars[0] = r.value
        yield Out(r.key, yes=cars[0] == r.value)

    @rs.operator(key="key", compiled=True)
    def copied(r: In, row: Row) -> Iterator[Out]:
        yield Out((row.cars.copy() * 2)[0])  # copied

    @rs.operator(compiled=True)
    def records(r: Flag) -> Iterator[Out]:
        yield Out(r.time, yes=r == r)  # records

    return [
        (by_third, "sorted(list(int64)"),
        (sorted_floats, "only ints are sorted as Python does it"),
        (kind_of, "it asks for the type of either"),
        (placed, "a list of int64 is given float64"),
        (narrow_list, "a list of narrow numbers wraps around"),
        (copied, "row.cars.copy, which may have another result"),
        (records, "tuples of ints with floats or None"),
        (popped, "it compares left.pop() twice"),
        (distance, "'hypot' is rounded otherwise when compiled"),
        (numpy_log, "'log' of NumPy may have another result"),
        (local_array, "'array' of NumPy may have another result"),
        (not_a_number, "'isnan' of NumPy may have another result"),
        (counted, "a ndarray of NumPy, whose numbers reckon otherwise"),
        (above, "a float64 of NumPy, whose numbers reckon otherwise"),
        (tuples, "tuples of ints with floats"),
        (digits, "a float has another text"),
        (narrow_table, "an array of uint8"),
        (narrow_number, "a float32 of NumPy"),
        (identity, "compare them with =="),
        (singleton, "a pattern True"),
        (aliased, "a whole array: use its items"),
        (in_a_tuple, "a tuple holds an int or a float"),
    ]


MARKS = {
    "by_third": "# by third",
    "sorted_floats": "# sorted floats",
    "kind_of": "# kind of",
    "placed": "# placed",
    "narrow_list": "# narrow list",
    "copied": "# copied",
    "records": "# records",
    "popped": "# popped",
    "distance": "# distance",
    "numpy_log": "# numpy log",
    "local_array": "# local array",
    "not_a_number": "# not a number",
    "counted": "# counted",
    "above": "# above",
    "tuples": "# tuples",
    "digits": "# digits",
    "narrow_table": "# narrow table",
    "narrow_number": "# narrow number",
    "identity": "# identity",
    "singleton": "# singleton",
    "aliased": "# through a name",
    "in_a_tuple": "# in a tuple",
}


@pytest.mark.parametrize("case", refused_functions(), ids=lambda case: case[0].__name__)
def test_what_has_another_result_names_the_line(case: tuple[Any, str]) -> None:
    op, said = case
    with pytest.raises(GraphError) as refusal:
        compile_operator(spec_of(op), groups=GROUPS)
    error = refusal.value
    assert said in error.message and "\n" not in error.message
    assert error.where is not None and error.where.file == __file__
    assert linecache.getline(__file__, error.where.line).rstrip().endswith(MARKS[op.__name__])


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
