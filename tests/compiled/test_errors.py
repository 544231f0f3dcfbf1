"""Errors of compiled operators: at build with the user's line, at run with the user's traceback."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.api.operators import spec_of
from raystream.compiled.operator import compile_operator
from raystream.errors import ConfigError, GraphError, OperatorError
from raystream.schema.types import NEVER
from tests.compiled.reference import given

GROUPS = 4


class In(NamedTuple):
    time: int
    key: rs.Int32
    value: int = 0


class Real(NamedTuple):
    time: int
    key: rs.Int32
    value: float = 0.0


class Out(NamedTuple):
    key: rs.Int32
    small: rs.Int8 = 0
    yes: bool = False
    maybe: rs.Int16 | None = None


class Row(rs.State):
    n: int = 0
    small: rs.Int8 = 0
    cars: Annotated[list[int], rs.Array("i1", 4)] = rs.zeros(4)


class Alarm(rs.State):
    n: int = 0
    due: rs.Timer = rs.NEVER


@dataclass
class Lines:
    """The line of this file that holds a text."""

    file: str = __file__

    def __getitem__(self, text: str) -> int:
        lines = Path(self.file).read_text().splitlines()
        return next(
            i for i, line in enumerate(lines, start=1) if text in line and "LINES[" not in line
        )


LINES = Lines()


def run(op: Any, records: list[Any], *, epoch: int = 3) -> None:
    """Process records in one epoch, then everything that is due."""
    spec = spec_of(op)
    groups = GROUPS if spec.key else 1
    compiled = compile_operator(spec, groups=groups)
    table = compiled.new_table()
    compiled.process(given(spec, records, groups), table, epoch, -100)
    compiled.fire(table, rs.KeyRange(0, groups), epoch, NEVER, last=True)


# ---------------------------------------------------------------- while it runs


@rs.operator(key="key", compiled=True)
def divide(r: In, row: Row) -> Iterator[Out]:
    row.n += 1
    yield Out(r.key, inverse(r.value))


def inverse(value: int) -> int:
    return 10 // value  # divides


def test_the_users_line_key_and_record_are_named() -> None:
    with pytest.raises(OperatorError) as caught:
        run(divide, [In(0, 7, 5), In(0, 7, 0)])
    error = caught.value
    assert error.where is not None
    assert (error.where.file, error.where.line) == (__file__, LINES["# divides"])
    assert error.message.startswith("divide raised ZeroDivisionError")
    assert "key 7" in str(error) and "epoch 3" in str(error) and "record 1" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_the_row_is_what_it_was_before_the_call() -> None:
    spec = spec_of(divide)
    compiled = compile_operator(spec, groups=1)
    table = compiled.new_table()
    assert table is not None
    with pytest.raises(OperatorError):
        compiled.process(given(spec, [In(0, 7, 5), In(0, 7, 0)], 1), table, 3, 0)
    assert table.ordered()["n"].tolist() == [1]


@rs.operator(key="key", compiled=True)
def narrow(r: In, row: Row) -> Iterator[Out]:
    if r.value == 1:
        yield Out(r.key, 1)
        yield Out(r.key, r.value * 128)  # too large for a column
    if r.value == 2:
        row.small += 128  # too large for the state
    if r.value == 3:
        row.cars[2] = -129  # too small for an item
    if r.value == 4:
        row.cars[r.value] = 1  # past the end
    if r.value == 5:
        raise KeyError(f"no {r.key}")  # raised
    if r.value == 6:
        assert r.key < 0, "negative"  # asserted
    if r.value == 7:
        yield Out(r.key, int(math.sqrt(-r.value)))  # out of its domain
    if r.value == 8:
        yield Out(r.key, maybe=r.value << 20)  # an optional value
    if r.value == 9:
        yield Out(r.key, row.small, row.n > 0, None if r.key > 0 else 40_000)  # sometimes None


@pytest.mark.parametrize(
    ("value", "line", "said", "kind"),
    [
        (1, "# too large for a column", "Out.small: 128 does not fit small: int8", OverflowError),
        (2, "# too large for the state", "Row.small: 128 does not fit small: int8", OverflowError),
        (3, "# too small for an item", "Row.cars: -129 does not fit cars: i1[4]", OverflowError),
        (4, "# past the end", "list assignment index out of range", IndexError),
        (5, "# raised", "no 7", KeyError),
        (6, "# asserted", "negative", AssertionError),
        (7, "# out of its domain", "math domain error", ValueError),
        (
            8,
            "# an optional value",
            "Out.maybe: 8388608 does not fit maybe: int16 | None",
            OverflowError,
        ),
    ],
)
def test_python_would_have_raised(value: int, line: str, said: str, kind: type[Exception]) -> None:
    with pytest.raises(OperatorError) as caught:
        run(narrow, [In(0, 7, 0), In(0, 7, value)])
    error = caught.value
    assert error.where is not None and error.where.line == LINES[line]
    assert said in error.message and isinstance(error.__cause__, kind)


def test_what_fits_is_no_error() -> None:
    run(narrow, [In(0, 7, 9), In(0, -7, 0)])


@rs.operator(key="key", compiled=True)
def wraps(r: In, row: Row) -> Iterator[Out]:
    yield Out(r.key, r.value * 2**62 * 4 // 2**63)  # more than 64 bits on the way


def test_a_difference_to_python_is_said() -> None:
    with pytest.raises(
        OperatorError, match="when compiled, but not when the same call was interpreted"
    ):
        run(wraps, [In(0, 7, 1)])


@rs.operator(key="key", window=rs.tumbling(seconds=10), compiled=True)
class Windows:
    def process(self, r: In, row: Row) -> None:
        row.n += r.value

    def close(self, key: int, window: rs.Window, row: Row) -> Iterator[Out]:
        yield Out(key, 1 // row.n)  # in close


@rs.operator(key="key", compiled=True)
class Timers:
    def process(self, r: In, row: Alarm) -> None:
        row.due = r.time

    def timer(self, key: int, time: int, row: Alarm) -> Iterator[Out]:
        yield Out(key, time // row.n)  # in timer


@pytest.mark.parametrize(
    ("op", "line", "place"),
    [(Windows(), "# in close", "window [10, 20)"), (Timers(), "# in timer", "timer 11")],
)
def test_windows_and_timers_name_their_time(op: Any, line: str, place: str) -> None:
    with pytest.raises(OperatorError) as caught:
        run(op, [In(11, -3, 0)])
    assert caught.value.where is not None and caught.value.where.line == LINES[line]
    assert place in str(caught.value) and "key -3" in str(caught.value)


def test_a_time_that_no_window_can_hold() -> None:
    with pytest.raises(OperatorError, match="too far off for a window"):
        run(Windows(), [In(2**63 - 5, 1, 1)])


@rs.operator(compiled=True)
def stateless(r: In) -> Iterator[Out]:
    yield Out(r.key, 1 % r.value)  # modulo


def test_an_operator_without_key_names_the_record() -> None:
    with pytest.raises(OperatorError, match="record 1") as caught:
        run(stateless, [In(0, 1, 2), In(0, 1, 0)])
    assert caught.value.where is not None and caught.value.where.line == LINES["# modulo"]
    assert "key '" not in caught.value.hint and caught.value.hint.startswith("at epoch 3, record 1")


# ---------------------------------------------------------------- when it is built


def text_of(value: int) -> Iterator[str]:
    yield str(value)


def half(value: int) -> int:
    return value // 2


NUMBERS = [1, 2, 3]
HUGE = 2**63


def refused() -> list[Any]:
    """(operator, what is said); the line at fault ends in its mark below."""
    return [*refused_values(), *refused_names()]


def refused_values() -> list[Any]:
    """What emits or computes what cannot be compiled."""

    @rs.operator(compiled=True)
    def clock(r: In) -> Iterator[Out]:
        yield Out(int(time.time()))  # clock

    @rs.operator(compiled=True)
    def dice(r: In) -> Iterator[Out]:
        yield Out(random.randrange(6))  # dice

    @rs.operator(compiled=True)
    def numpy_dice(r: In) -> Iterator[Out]:
        yield Out(np.random.randint(6))  # numpy dice

    @rs.operator(compiled=True)
    def inner_clock(r: In) -> Iterator[Out]:
        import time  # inner clock

        yield Out(int(time.time()))

    @rs.operator(compiled=True)
    def text(r: In) -> Iterator[Out]:
        word = "a" + r.value  # text
        yield Out(len(word))

    @rs.operator(compiled=True)
    def comprehension(r: In) -> Iterator[Out]:
        by_key = {r.key: 1}  # comprehension
        yield Out(by_key[0])

    @rs.operator(compiled=True)
    def method(r: In) -> Iterator[In]:
        yield r._replace(value=1)  # method

    @rs.operator(compiled=True)
    def rounding(r: Real) -> Iterator[Out]:
        yield Out(r.key, r.value)  # a float

    @rs.operator(compiled=True)
    def truth(r: In) -> Iterator[Out]:
        yield Out(r.key, 1, r.value)  # not a bool

    @rs.operator(compiled=True)
    def nothing(r: In) -> Iterator[Out]:
        yield Out(r.key, None)  # not optional

    @rs.operator(compiled=True)
    def other(r: In) -> Iterator[Out]:
        yield In(r.key, 1)  # type: ignore[misc]  # another type

    @rs.operator(compiled=True)
    def returned(r: In) -> Iterator[Out]:
        return iter([Out(r.key)])  # returned

    return [
        (clock, "replay"),
        (dice, "replay"),
        (numpy_dice, "replay"),
        (inner_clock, "import"),
        (text, "No implementation of function"),
        (comprehension, "dict"),
        (method, "_replace"),
        (rounding, "Out.small: a value of type float64 does not fit int8"),
        (truth, "Out.yes: a value of type int64 does not fit bool"),
        (nothing, "Out.small: it is None"),
        (other, "it yields In, which its annotation does not name"),
        (returned, "yield them"),
    ]


def refused_names() -> list[Any]:
    """What uses names and rows as compiled code cannot."""

    @rs.operator(key="key", compiled=True)
    def array(r: In, row: Row) -> Iterator[Out]:
        row.cars = [0] * 4  # whole array
        yield Out(r.key)

    @rs.operator(key="key", compiled=True)
    def doubled(r: In, row: Row) -> Iterator[Out]:
        yield Out(sum(row.cars * 2))  # doubled array

    @rs.operator(compiled=True)
    def chain(r: In) -> Iterator[Out]:
        yield Out(r.key if 0 < half(r.key) < 5 else 0)  # chain

    @rs.operator(key="key", compiled=True)
    def misspelt(r: In, row: Row) -> Iterator[Out]:
        row.m = 1  # type: ignore[attr-defined]  # misspelt
        yield Out(r.key)

    @rs.operator(compiled=True)
    def mutable(r: In) -> Iterator[Out]:
        yield Out(NUMBERS[0])  # mutable

    @rs.operator(compiled=True)
    def huge(r: In) -> Iterator[Out]:
        yield Out(r.key, r.value < HUGE)  # huge

    @rs.operator(compiled=True)
    def unknown(r: In) -> Iterator[Out]:
        yield Out(missing)  # type: ignore[name-defined]  # noqa: F821  # unknown

    @rs.operator(compiled=True)
    def nested(r: In) -> Iterator[Out]:
        more = lambda x: x + 1  # noqa: E731  # nested
        yield Out(more(r.key))

    @rs.operator(key="key", compiled=True)
    def looping(r: In, row: Row) -> Iterator[Out]:
        for row.n in range(3):  # looping
            yield Out(r.key)

    @rs.operator(compiled=True)
    def renamed(r: In | Real) -> Iterator[Out]:
        r = In(0, 1)  # renamed
        yield Out(r.key)

    @rs.operator(compiled=True)
    def unassigned(r: In) -> Iterator[Out]:
        if r.key > 0:
            x = 1
        yield Out(x)  # unassigned

    @rs.operator(compiled=True)
    def caught(r: In) -> Iterator[Out]:
        try:  # noqa: SIM105  # caught
            yield Out(1 // r.value)
        except ZeroDivisionError:
            pass

    return [
        (array, "replaces the array 'cars'"),
        (doubled, "whole array 'cars'"),
        (chain, "it compares half(r.key) twice: give it a name first"),
        (misspelt, "row.m, which is not a field"),
        (mutable, "global list"),
        (huge, "does not fit int64"),
        (unknown, "'missing' is not known"),
        (nested, "lambda"),
        (caught, "try"),
        (unassigned, "'x' may not have been assigned"),
        (looping, "loops over values of row.n"),
        (renamed, "assigns to 'r', its record"),
    ]


MARKS = {
    "clock": "# clock",
    "dice": "# dice",
    "numpy_dice": "# numpy dice",
    "inner_clock": "# inner clock",
    "text": "# text",
    "comprehension": "# comprehension",
    "method": "# method",
    "rounding": "# a float",
    "truth": "# not a bool",
    "nothing": "# not optional",
    "other": "# another type",
    "returned": "# returned",
    "array": "# whole array",
    "doubled": "# doubled array",
    "misspelt": "# misspelt",
    "mutable": "# mutable",
    "huge": "# huge",
    "unknown": "# unknown",
    "chain": "# chain",
    "nested": "# nested",
    "caught": "# caught",
    "unassigned": "# unassigned",
    "looping": "# looping",
    "renamed": "# renamed",
}


@pytest.mark.parametrize("case", refused(), ids=lambda case: case[0].__name__)
def test_what_cannot_be_compiled_names_the_line(case: tuple[Any, str]) -> None:
    op, said = case
    with pytest.raises(GraphError) as refusal:
        compile_operator(spec_of(op), groups=GROUPS)
    error = refusal.value
    assert said in error.message and "\n" not in error.message
    assert error.where is not None
    assert (error.where.file, error.where.line) == (__file__, LINES[MARKS[op.__name__]])
    assert error.hint


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
