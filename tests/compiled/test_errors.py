"""Errors of compiled operators while they run: they name the user's line, key and record."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.compiled.operator import compile_operator
from raystream.errors import OperatorError
from raystream.schema.types import NEVER
from tests.compiled.reference import given
from tests.compiled.refusals import GROUPS, In, Out, Row


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
