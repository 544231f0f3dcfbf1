"""Comparing records by all their bits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from raystream.testing import difference, same
from tests.flows import Line, Word, split


class Toll(NamedTuple):
    n: float


class Exit(NamedTuple):
    n: float


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Toll(1), Exit(1)),
        (Toll(1), Toll(1.0)),
        (Toll(0.0), Toll(-0.0)),
        (Toll(1), (1,)),
        (Toll(True), Toll(1)),
        ([Toll(1)], [Toll(1), Toll(2)]),
        ([Toll(1), Toll(2)], [Toll(1)]),
        ([Toll(1), Exit(2)], [Toll(1), Toll(2)]),
        ([[1]], [(1,)]),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
        ([{"a": 1}], [{"a": 1.0}]),
        ([np.int64(1)], [1]),
        ([], [Toll(1)]),
        (Toll(1), [Toll(1)]),
    ],
)
def test_different(one: Any, two: Any) -> None:
    assert not same(one, two)
    assert not same(two, one)
    assert same(one, one)
    assert same(two, two)


def test_nan_is_like_itself() -> None:
    assert same(Toll(math.nan), Toll(float("nan")))
    assert not same(Toll(math.nan), Toll(1.0))


def test_generators_are_consumed() -> None:
    assert same(split(Line(3, "to be")), [Word(3, "to"), Word(3, "be")])
    assert same(iter([Toll(1)]), (t for t in [Toll(1)]))


def test_the_first_difference_is_told() -> None:
    assert (
        difference([Toll(1), Toll(2)], [Toll(1), Toll(3)]) == "number 1: Toll(n=2) is not Toll(n=3)"
    )
    assert difference([Toll(1)], [Exit(1)]) == "number 0: Toll(n=1) is not Exit(n=1) (Toll, Exit)"
    assert difference([], [Toll(1)]) == "number 0: nothing is not Toll(n=1)"
    assert difference([None], []) == "number 0: None is not nothing"
    assert difference(Toll(1), Toll(2)) == "Toll(n=1) is not Toll(n=2)"
    assert difference([Toll(1)], [Toll(1)]) is None
