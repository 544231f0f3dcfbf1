"""Batch operators: what they are given, what they may return, and what is refused."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.errors import OperatorError, StateError
from raystream.testing import OperatorHarness


class Sale(NamedTuple):
    time: int
    shop: str
    amount: float


SALES = [Sale(0, "a", 1.0), Sale(0, "b", 2.0), Sale(0, "a", 3.0)]


def test_a_batch_without_rows_emits_nothing() -> None:
    @rs.operator()
    def nothing(sales: rs.Batch[Sale]) -> rs.Batch[Sale]:
        return rs.Batch(Sale, {"time": [], "shop": [], "amount": []})

    assert OperatorHarness(nothing).send(*SALES) == []


def test_who_returns_none_is_told_how_to_emit_nothing() -> None:
    @rs.operator()
    def nothing(sales: rs.Batch[Sale]) -> rs.Batch[Sale]:
        return None  # type: ignore[return-value]

    with pytest.raises(OperatorError, match="None, not a Batch of Sale") as caught:
        OperatorHarness(nothing).send(*SALES)
    assert "rs.Batch(Sale, {'time': [], 'shop': [], 'amount': []})" in caught.value.hint


class Grade(enum.IntEnum):
    GOOD = 1


class Loose(NamedTuple):
    whole: int | None
    narrow: rs.Int8 | None
    real: float | None
    sure: bool | None
    grade: Grade | None
    text: str | None
    tags: list[str]
    pair: tuple[int, str] | None


LOOSE = [
    Loose(None, None, None, None, None, None, [], None),
    Loose(2**62 + 1, 1, 1.5, True, Grade.GOOD, "x", ["a"], (1, "b")),
]


def test_what_is_none_is_none_in_columns_too() -> None:
    seen: list[rs.Batch[Loose]] = []

    @rs.operator()
    def same(batch: rs.Batch[Loose]) -> rs.Batch[Loose]:
        seen.append(batch)
        return rs.Batch(Loose, {name: batch[name] for name in Loose._fields})

    assert OperatorHarness(same).send(*LOOSE) == LOOSE
    assert seen[0]["whole"].to_pylist() == [None, 2**62 + 1]
    assert seen[0]["sure"].is_valid().to_pylist() == [False, True]
    with pytest.raises(KeyError, match="has no field 'whole\\?'"):
        seen[0]["whole?"]


def test_what_one_operator_is_given_another_cannot_change() -> None:
    @rs.operator()
    def change(sales: rs.Batch[Sale]) -> rs.Batch[Sale]:
        with pytest.raises(ValueError, match="read-only"):
            sales["amount"][:] = 99
        amount = sales["amount"]
        amount *= 2
        return sales

    with pytest.raises(OperatorError, match="read-only") as caught:
        OperatorHarness(change).send(*SALES)
    assert caught.value.where is not None
    assert "amount *= 2" in caught.value.where.text


@pytest.mark.parametrize(
    ("positions", "told"),
    [
        ([3], r"positions from 3 to 3 in Batch\(Sale, 3 rows\)"),
        ([-1, 0], "positions from -1 to 0"),
        ([0.5], "1 of float64 are no positions"),
        (np.array([True]), "1 of bool are no positions"),
        ([[0], [1]], "2x1 of int64 are no positions"),
        (1, "one of int64 are no positions"),
    ],
)
def test_rows_are_taken_that_are_there(positions: Any, told: str) -> None:
    """An array of numbers alone took what it could; with text in it Arrow raised."""
    columns = {"time": [0, 1, 2], "shop": ["a", "b", "c"], "amount": [0.0, 1.0, 2.0]}
    batch = rs.Batch(Sale, columns)
    with pytest.raises(StateError, match=told):
        batch.take(positions)


@pytest.mark.parametrize("origin", [[0.5, 1], [[0], [1]], 0])
def test_an_origin_is_a_list_of_positions(origin: Any) -> None:
    with pytest.raises(StateError, match=r"origin: .* no positions"):
        rs.Batch(Sale, {"time": [0, 1], "shop": ["a", "b"], "amount": [0.0, 1.0]}, origin=origin)


@pytest.mark.parametrize("taken", [[], np.array([False, False, False]), range(0)])
def test_no_rows_may_be_taken(taken: Any) -> None:
    columns = {"time": [0, 1, 2], "shop": ["a", "b", "c"], "amount": [0.0, 1.0, 2.0]}
    assert len(rs.Batch(Sale, columns).take(taken)) == 0
