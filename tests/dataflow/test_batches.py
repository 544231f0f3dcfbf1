"""Batch operators: what they are given, what they may return, and what is refused."""

from __future__ import annotations

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
