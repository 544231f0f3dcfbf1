"""Numbers of JSON that have more digits than a float."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest

import raystream as rs
from raystream import Flow
from raystream.errors import InputError
from raystream.testing import Collect
from tests.io.test_found_files import read


class Exact(NamedTuple):
    time: int
    price: Annotated[Decimal, rs.decimal(25, 2)] | None = None
    wait: timedelta | None = None
    inner: dict[str, Annotated[Decimal, rs.decimal(25, 2)]] = {}  # noqa: RUF012 - never changed
    ints: list[int] = []  # noqa: RUF012 - never changed
    some: float | int | None = None


@pytest.mark.parametrize("form", ["lines", "array", "bad lines", "bad values"])
def test_numbers_of_json_lose_no_digit(form: str, tmp_path: Path) -> None:
    """A float has 17 digits at most: it would make 12345678901234568.00 of the first price."""
    texts = [
        '{"time": 1, "price": 12345678901234567.89, "wait": 1e3, "some": 0.1}',
        '{"time": 9007199254740993.0, "ints": [9.007199254740993e15], "some": 9007199254740993}',
        '{"time": 3, "inner": {"a": 12345678901234567.89, "b": 7}, "some": -0.0}',
    ]
    whole = "\n".join(texts) if "lines" in form else f"[{','.join(texts)}]"
    (tmp_path / "a.json").write_text(whole)
    bad: Any = {"bad": "stream"} if "bad" in form else {}
    sink, flow = Collect(), Flow("exact")
    stream: Any = flow.source(rs.io.json(tmp_path, Exact, **bad), epochs=rs.by_arrival())
    (stream[Exact] if bad else stream).to(sink)
    flow.run()
    large, many = Decimal("12345678901234567.89"), 9007199254740993
    assert sink.records() == [
        Exact(1, large, timedelta(seconds=1000), some=0.1),
        Exact(many, ints=[many], some=many),
        Exact(3, inner={"a": large, "b": Decimal("7.00")}, some=-0.0),
    ]


@pytest.mark.parametrize(
    "text",
    ['{"time": 1.5}', '{"time": 1e19}', '{"time": 1e400}']
    + ['{"time": 9007199254740993.5}', '{"time": NaN}', '{"time": 1, "price": 0.105}']
    + ['{"time": 1, "price": 1e99999999999999999999}', '{"time": 1, "price": NaN}'],
)
def test_numbers_of_json_that_do_not_fit(text: str, tmp_path: Path) -> None:
    for whole in (text, f"[{text}]"):
        (tmp_path / "a.json").write_text(whole)
        with pytest.raises(InputError, match=r"line 1: ('|Exact\.)(time|price)"):
            read(rs.io.json(tmp_path, Exact))


class Coded(NamedTuple):
    code: Literal[1, 2]


def test_true_is_not_the_number_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"code": true}')
    with pytest.raises(InputError, match="line 1: 'code' is True"):
        read(rs.io.json(tmp_path, Coded))


def test_numbers_of_messages_lose_no_digit() -> None:
    """Also of many messages, which Arrow decodes at once where it can."""
    codec = rs.io.formats.json().codec(Exact)
    message = b'{"time": 9007199254740993.0, "price": 12345678901234567.89, "wait": 0.5}'
    for number in (1, 100):
        found = [*codec.decode([message] * number).records()]
        price = Decimal("12345678901234567.89")
        assert found == [Exact(9007199254740993, price, timedelta(seconds=0.5))] * number
