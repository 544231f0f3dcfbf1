"""What a record is made of: what has no stored form is refused when the record is declared."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.errors import GraphError
from raystream.schema.records import record_schema
from raystream.schema.state import state_schema
from raystream.schema.storing import from_records


@pytest.mark.parametrize(
    ("hint", "complaint"),
    [
        (set[int], "a set has no stable order, so it cannot be replayed"),
        (frozenset[int], "a set has no stable order"),
        (Any, "declare what it holds; Any has no stored form"),
        (object, "declare what it holds"),
        (time, "time has no stored form"),
        (complex, "complex has no stored form"),
        (np.int64, "int64 has no stored form"),
        (list[int] | tuple[int, ...], "does not say which of them it was"),
        (Decimal, "a Decimal does not say how many digits it has"),
        (list[time], "time has no stored form"),
        (dict[str, tuple[complex | None, ...]], "complex has no stored form"),
        (list[int | set[int]], "a set has no stable order"),
    ],
)
def test_fields_without_a_stored_form_are_refused(hint: Any, complaint: str) -> None:
    class Odd(NamedTuple):
        thing: hint  # type: ignore[valid-type]

    with pytest.raises(GraphError, match=f"Odd.thing: .*{complaint}"):
        record_schema(Odd, {"hint": hint})


@pytest.mark.parametrize(
    ("hint", "complaint"),
    [
        (set[int], "a set has no stable order"),
        (bytearray, "bytearray has no stored form"),
        (list[time], "time has no stored form"),
    ],
)
def test_so_are_those_of_records_inside_of_records(hint: Any, complaint: str) -> None:
    class Odd(NamedTuple):
        thing: hint  # type: ignore[valid-type]

    class Holder(NamedTuple):
        odd: dict[int, Odd]

    class Row(rs.State):
        odd: Odd | None = None

    scope = {"hint": hint, "Odd": Odd}
    with pytest.raises(GraphError, match=f"Odd.thing: .*{complaint}"):
        record_schema(Holder, scope)
    with pytest.raises(GraphError, match=f"Odd.thing: .*{complaint}"):
        state_schema(Row, scope)


class Tree(NamedTuple):
    children: list[Tree]


def test_a_record_does_not_hold_itself() -> None:
    with pytest.raises(GraphError, match="Tree holds records of its own type"):
        record_schema(Tree)


def test_names_of_a_function_are_known_inside_of_records() -> None:
    class Leaf(NamedTuple):
        size: int

    class Twig(NamedTuple):
        leaves: list[Leaf]

    class Branch(NamedTuple):
        twig: Twig

    grown = [Branch(Twig([Leaf(1), Leaf(2)]))]
    columns = from_records(record_schema(Branch, locals()), grown)
    (back,) = columns.records()
    assert back == grown[0]
    assert type(back.twig.leaves[1]) is Leaf


def test_arrays_are_for_state() -> None:
    class Odd(NamedTuple):
        six: Annotated[list[int], rs.Array("i4", 6)]

    with pytest.raises(GraphError, match=r"Odd\.six: rs\.Array is for state rows"):
        record_schema(Odd)


def test_only_named_tuples_are_records() -> None:
    for cls in (int, tuple, dict):
        with pytest.raises(GraphError, match="is not a record"):
            record_schema(cls)
    with pytest.raises(GraphError, match="Nothing has no fields"):
        record_schema(NamedTuple("Nothing", []))
