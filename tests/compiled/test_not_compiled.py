"""What cannot be compiled is refused at build, with the user's line.

In each case the line that the error must name ends in `# here`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.compiled.operator import compile_operator
from raystream.errors import ConfigError, GraphError
from tests.compiled.refusals import GROUPS, Cases, In, Out, Real, Row, check

CASES = Cases()
refused = CASES.refused
NUMBERS = [1, 2, 3]
HUGE = 2**63


def half(value: int) -> int:
    return value // 2


# ---------------------------------------------------------------- values and calls


@refused("replay")
@rs.operator(compiled=True)
def clock(r: In) -> Iterator[Out]:
    yield Out(int(time.time()))  # here


@refused("replay")
@rs.operator(compiled=True)
def dice(r: In) -> Iterator[Out]:
    yield Out(random.randrange(6))  # here


@refused("replay")
@rs.operator(compiled=True)
def numpy_dice(r: In) -> Iterator[Out]:
    yield Out(np.random.randint(6))  # here


@refused("import")
@rs.operator(compiled=True)
def inner_clock(r: In) -> Iterator[Out]:
    import time  # here

    yield Out(int(time.time()))


@refused("No implementation of function")
@rs.operator(compiled=True)
def text(r: In) -> Iterator[Out]:
    word = "a" + r.value  # here
    yield Out(len(word))


@refused("dict")
@rs.operator(compiled=True)
def comprehension(r: In) -> Iterator[Out]:
    by_key = {r.key: 1}  # here
    yield Out(by_key[0])


@refused("_replace")
@rs.operator(compiled=True)
def method(r: In) -> Iterator[In]:
    yield r._replace(value=1)  # here


@refused("Out.small: a value of type float64 does not fit int8")
@rs.operator(compiled=True)
def rounding(r: Real) -> Iterator[Out]:
    yield Out(r.key, r.value)  # here


@refused("Out.yes: a value of type int64 does not fit bool")
@rs.operator(compiled=True)
def truth(r: In) -> Iterator[Out]:
    yield Out(r.key, 1, r.value)  # here


@refused("Out.small: it is None")
@rs.operator(compiled=True)
def nothing(r: In) -> Iterator[Out]:
    yield Out(r.key, None)  # here


@refused("it yields In, which its annotation does not name")
@rs.operator(compiled=True)
def other(r: In) -> Iterator[Out]:
    yield In(r.key, 1)  # type: ignore[misc]  # here


@refused("yield them")
@rs.operator(compiled=True)
def returned(r: In) -> Iterator[Out]:
    return iter([Out(r.key)])  # here


# ---------------------------------------------------------------- names and rows


@refused("replaces the array 'cars'")
@rs.operator(key="key", compiled=True)
def array(r: In, row: Row) -> Iterator[Out]:
    row.cars = [0] * 4  # here
    yield Out(r.key)


@refused("whole array 'cars'")
@rs.operator(key="key", compiled=True)
def doubled(r: In, row: Row) -> Iterator[Out]:
    yield Out(sum(row.cars * 2))  # here


@refused("it compares half(r.key) twice: give it a name first")
@rs.operator(compiled=True)
def chain(r: In) -> Iterator[Out]:
    yield Out(r.key if 0 < half(r.key) < 5 else 0)  # here


@refused("row.m, which is not a field")
@rs.operator(key="key", compiled=True)
def misspelt(r: In, row: Row) -> Iterator[Out]:
    row.m = 1  # type: ignore[attr-defined]  # here
    yield Out(r.key)


@refused("global list")
@rs.operator(compiled=True)
def mutable(r: In) -> Iterator[Out]:
    yield Out(NUMBERS[0])  # here


@refused("does not fit int64")
@rs.operator(compiled=True)
def huge(r: In) -> Iterator[Out]:
    yield Out(r.key, r.value < HUGE)  # here


@refused("'missing' is not known")
@rs.operator(compiled=True)
def unknown(r: In) -> Iterator[Out]:
    yield Out(missing)  # type: ignore[name-defined]  # noqa: F821  # here


@refused("lambda")
@rs.operator(compiled=True)
def nested(r: In) -> Iterator[Out]:
    more = lambda x: x + 1  # noqa: E731  # here
    yield Out(more(r.key))


@refused("loops over values of row.n")
@rs.operator(key="key", compiled=True)
def looping(r: In, row: Row) -> Iterator[Out]:
    for row.n in range(3):  # here
        yield Out(r.key)


@refused("assigns to 'r', its record")
@rs.operator(compiled=True)
def renamed(r: In | Real) -> Iterator[Out]:
    r = In(0, 1)  # here
    yield Out(r.key)


@refused("'x' may not have been assigned")
@rs.operator(compiled=True)
def unassigned(r: In) -> Iterator[Out]:
    if r.key > 0:
        x = 1
    yield Out(x)  # here


@refused("try")
@rs.operator(compiled=True)
def caught(r: In) -> Iterator[Out]:
    try:  # noqa: SIM105  # here
        yield Out(1 // r.value)
    except ZeroDivisionError:
        pass


@pytest.mark.parametrize(("op", "message", "inside"), CASES)
def test_what_cannot_be_compiled_names_the_line(op: Any, message: str, inside: Any) -> None:
    check(op, message, inside)


# ---------------------------------------------------------------- windows, parameters, the cache


def test_sessions_point_to_timers() -> None:
    @rs.operator(key="key", window=rs.session(gap=5), compiled=True)
    class Gaps:
        def process(self, r: In, row: Row) -> None: ...
        def close(self, key: int, window: rs.Window, row: Row) -> Iterator[Out]:
            yield Out(key, 0)

        def merge(self, into: Row, other: Row) -> None: ...

    with pytest.raises(GraphError, match="session windows are not compiled") as refusal:
        compile_operator(spec_of(Gaps()), groups=GROUPS)
    assert "rs.Timer" in refusal.value.hint


def test_windows_are_whole_time_units() -> None:
    @rs.operator(key="key", window=rs.tumbling(seconds=0.5), compiled=True)
    class Half:
        def process(self, r: In, row: Row) -> None: ...
        def close(self, key: int, window: rs.Window, row: Row) -> Iterator[Out]:
            yield Out(key)

    with pytest.raises(GraphError, match="not a whole number"):
        compile_operator(spec_of(Half()), groups=GROUPS)
    assert compile_operator(spec_of(Half()), groups=GROUPS, ticks=1000).shape.size == 500


def test_parameters_are_numbers() -> None:
    @rs.operator(compiled=True)
    @dataclass(frozen=True)
    class Named:
        name: str

        def process(self, r: In) -> Iterator[Out]:
            yield Out(r.key)

    with pytest.raises(GraphError, match="the parameter name='x' is not a number"):
        compile_operator(spec_of(Named("x")), groups=GROUPS)


def test_a_rounded_float_in_the_state_is_refused() -> None:
    class Mean(rs.State):
        mean: rs.Float32 = 0.0

    @rs.operator(key="key", compiled=True)
    def mean(r: Real, state: Mean) -> Iterator[Out]:
        yield Out(r.key)

    with pytest.raises(GraphError, match="would be rounded"):
        compile_operator(spec_of(mean), groups=GROUPS)


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAYSTREAM_CACHE", str(tmp_path / "file"))

    @rs.operator(compiled=True)
    def fresh(r: In) -> Iterator[Out]:
        yield Out(r.key + 17)

    with pytest.raises(ConfigError, match="cannot be kept"):
        compile_operator(spec_of(fresh), groups=GROUPS)
