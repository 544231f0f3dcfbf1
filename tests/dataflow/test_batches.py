"""Batch operators: what they are given, what they may return, and what is refused."""

from __future__ import annotations

import enum
from typing import NamedTuple

import pytest

import raystream as rs
from raystream.errors import OperatorError
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
