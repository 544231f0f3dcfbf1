"""Whether values are of a declared type: what fits comes back as it was, what does not is found."""

from __future__ import annotations

import enum
import math
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.schema.objects import decode_all, encode_all
from raystream.schema.values import check_of


class Mood(enum.IntEnum):
    CALM = 0
    LOUD = 3


class Point(NamedTuple):
    x: int
    mood: Mood | None


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        (list[int], [[], [1, 2], [-(2**63), 2**63]]),
        (list[float], [[0.5, 3]]),
        (list[rs.Int8], [[1, -128, 127]]),
        (list[rs.Float32 | None], [[0.5, None, -math.inf]]),
        (list, [[1, "a"]]),
        (dict[str, list[int]], [{}, {"a": [1]}]),
        (dict[tuple[int, str], bool], [{(1, "a"): True}]),
        (tuple[int, str] | None, [None, (1, "a")]),
        (tuple[int, ...], [(), (1, 2, 3)]),
        (list[int | None], [[1, None]]),
        (list[int | str], [[1, "a"]]),
        (list[Mood], [[Mood.CALM, Mood.LOUD]]),
        (Point, [Point(1, None), Point(2, Mood.LOUD)]),
        (list[bytes], [[b"a"]]),
    ],
)
def test_what_fits_comes_back(hint: Any, values: list[Any]) -> None:
    assert check_of(hint)(values)
    assert check_of(hint)([])
    again = decode_all(encode_all(values), hint)
    assert again == values
    assert check_of(hint)(again)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (list[int], None),
        (list[int], (1, 2)),
        (list[int], ["q"]),
        (list[int], [1.5]),
        (list[int], [None]),
        (list[rs.Int8], [128]),
        (dict[str, rs.Int16 | None], {"a": -(2**15) - 1}),
        (tuple[rs.Float32, ...], (1e39,)),
        (list[int], [np.int64(1)]),
        (list[float], [np.float64(1)]),
        (list[bytes], [bytearray(b"a")]),
        (dict[str, int], Counter("a")),
        (dict[str, int], OrderedDict(a=1)),
        (dict[str, int], {3: 1}),
        (dict[str, list[int]], {"a": [1, "x"]}),
        (tuple[int, str], (1, 2)),
        (tuple[int, str], (1,)),
        (tuple[int, str], Point(1, None)),
        (tuple[int, ...], (1, "x")),
        (list[int | str], [1.5]),
        (list[Mood], [7]),
        (Point, (1, None)),
        (Point, Point(1, 7)),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_found(hint: Any, value: Any) -> None:
    assert not check_of(hint)([value])


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (list[int], (1, 2)),
        (list[float], [np.float64(1)]),
        (dict[str, int], Counter("a")),
        (tuple[int, ...], [1, 2]),
        (Point, (1, None)),
        (list[Point] | None, [(1, 3)]),
    ],
)
def test_what_is_alike_comes_back_as_declared(hint: Any, value: Any) -> None:
    assert not check_of(hint)([value])
    assert check_of(hint, alike=True)([value])
    assert check_of(hint)(decode_all(encode_all([value]), hint))


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (list[int], None),
        (list[int], "12"),
        (list[int], [1.5]),
        (dict[str, int], [("a", 1)]),
        (Point, (1,)),
        (Point, {"x": 1, "mood": None}),
        (list[Mood], [7]),
    ],
)
def test_what_is_not_alike_is_found(hint: Any, value: Any) -> None:
    assert not check_of(hint, alike=True)([value])


def test_records_may_hold_anything_where_they_say_so() -> None:
    value = {"a": [1, "b", None]}
    assert check_of(dict[str, Any], alike=True)([value])
    assert check_of(dict[str, list[object]], alike=True)([value])
    assert not check_of(dict[str, Any], alike=True)([{1: 2}])
