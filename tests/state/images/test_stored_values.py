"""Values of rows in an image: as declared, or refused by name; and copied at one moment."""

from __future__ import annotations

from typing import Any

import pytest

from raystream.errors import StateError
from raystream.schema.state import state_schema
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import (
    Image,
)
from raystream.state.images.row_shape import RowShape
from raystream.state.tables.backend import WHOLE
from tests.state.images.histories import (
    NUMBERS,
    Anything,
    History,
    Numbers,
    header,
    key_fields,
    restored,
)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("n", 300, r"Anything\.n of key 'k' holds 300, which does not fit n: int8"),
        ("n", 1.0, r"holds 1\.0, which does not fit n: int8\n *int\(\.\.\.\) or round"),
        ("n", 2**70, r"does not fit n: int8\n *It holds integers from -128 to 127\."),
        ("mood", 7, r"holds 7, which does not fit mood: .*Mood\n *Mood has CALM=1"),
        ("n", None, "holds None, which does not fit n: int8"),
        ("text", None, "holds None, which does not fit text: str"),
        ("text", "\ud800", "does not fit text"),
        ("raw", "x", "does not fit raw: bytes"),
        (
            "many",
            [{1}],
            r"Anything\.many of key 'k' holds \[\{1\}\], which does not fit many: list",
        ),
        ("many", ((1, "a"),), r"holds \(\(1, 'a'\),\), which does not fit many"),
        ("many", [(1, "a"), [1, "a"]], "which does not fit many"),
        ("many", [(1, 2)], "which does not fit many"),
        ("many", [(1, "a", 3)], "which does not fit many"),
        ("many", [(2**70, "a")], r"does not fit many(.|\n)*at most 64 bits"),
        (
            "table",
            {(1, 1): ["a", None]},
            r"does not fit table: dict\[tuple\[int, int\], list\[str\]\]",
        ),
        ("table", {1: []}, "does not fit table"),
    ],
)
def test_values_that_do_not_fit_are_named(field: str, value: Any, complaint: str) -> None:
    shape = RowShape(key_fields(str), state_schema(Anything))
    history = History(shape)
    row = Anything()
    setattr(row, field, value)
    history.table.rows.update({"a": Anything(), "k": row})
    with pytest.raises(StateError, match=complaint):
        history.image()


@pytest.mark.parametrize(
    ("field", "value"), [("six", [1, 2]), ("six", [1, 2, 300]), ("sure", 1), ("n", 2**31)]
)
def test_numbers_that_do_not_fit_are_named(field: str, value: Any) -> None:
    history = History(NUMBERS)
    history.table.rows[1, 2] = Numbers(**{field: value})
    with pytest.raises(StateError, match=rf"Numbers\.{field} of key \(1, 2\) holds"):
        history.image()


def test_numbers_are_stored_as_declared() -> None:
    history = History(NUMBERS)
    history.table.rows[1, 2] = Numbers(n=True, real=3, short=0.1)
    (row,) = restored(NUMBERS, history.image()).table.rows.values()
    assert row == Numbers(n=1, real=3.0, short=0.1), "a Python float keeps its 64 bits"
    assert type(row.n) is int
    assert type(row.real) is float


def test_the_copy_is_not_torn() -> None:
    """What the user changes after the first half is not seen by the second."""
    shape = RowShape(key_fields(str), state_schema(Anything))
    history = History(shape)
    history.apply([("k", Anything(many=[(1, "a")], text="before"))])
    taken = history.table.capture(CheckpointRequest(), 1)
    row: Any = history.table.rows["k"]
    row.many.append((2, "b"))
    row.text = "after"
    _, rows, gone = next(taken.parts(WHOLE))
    assert rows.column("text").to_pylist() == ["before"]
    image = Image(header(shape, 0, 1), rows, gone)
    assert restored(shape, image).table.rows["k"] == Anything(many=[(1, "a")], text="before")
