"""State classes: what a declaration means, and what is refused."""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter, defaultdict
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.errors import GraphError
from raystream.schema.fields import field_of
from raystream.schema.state import FORGOTTEN, state_schema


class Row(rs.State):
    n: rs.Int32 = 7
    real: float = 0.5
    due: rs.Timer = rs.NEVER
    cars: Annotated[list[int], rs.Array("i1", 3)] = rs.zeros(3)


class Loose(rs.State):
    names: list[str] = rs.field(factory=list)
    note: str | None = None


def test_rows_start_from_the_defaults_and_share_nothing() -> None:
    fresh = state_schema(Loose).fresh
    one, two = fresh(), fresh()
    one.names.append("x")  # type: ignore[attr-defined]
    assert (one, two) == (Loose(names=["x"]), Loose())
    assert repr(two) == "Loose(names=[], note=None)"
    assert Loose() != Row()


def test_annotations_need_not_be_text() -> None:
    """As in a module without `from __future__ import annotations`: Python 3.14 keeps none of them
    in the body of a class, and a class variable is no text there."""
    body = """
        class Tally(rs.State):
            LIMIT: ClassVar[int] = 3
            n: int = 0
            words: list[str] = rs.field(factory=list)
    """
    names: dict[str, Any] = {"rs": rs, "ClassVar": ClassVar}
    exec(compile(textwrap.dedent(body), "<body>", "exec", dont_inherit=True), names)
    tally = names["Tally"]
    assert [str(f) for f in state_schema(tally).fields] == ["n: int64", "words: list[str]"]
    assert (repr(tally(n=2)), tally.LIMIT) == ("Tally(n=2, words=[])", 3)


def test_fields_are_fixed() -> None:
    with pytest.raises(AttributeError):
        Loose().nam = []  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="Loose has no field 'nam'"):
        Loose(nam=[])  # type: ignore[call-arg]


def test_structured_rows() -> None:
    schema = state_schema(Row)
    assert schema.structured
    assert schema.timer == "due"
    assert schema.dtype.names == ("n", "real", "due", "cars")
    assert schema.defaults["n"] == 7
    assert schema.defaults["due"] == rs.NEVER
    assert schema.defaults["cars"].tolist() == [0, 0, 0]
    assert schema.dtype["cars"] == np.dtype(("i1", (3,)))
    assert schema.fingerprint == "Row(n: int32, real: float64, due: int64, cars: i1[3])"
    assert not state_schema(Loose).structured


def test_forget_marks_the_row() -> None:
    row = Row()
    rs.forget(row)
    assert row._mark == FORGOTTEN


def declare(name: str, fields: dict[str, tuple[Any, Any]]) -> type[rs.State]:
    namespace: dict[str, Any] = {"__annotations__": {n: hint for n, (hint, _) in fields.items()}}
    namespace |= {n: value for n, (_, value) in fields.items() if value is not ...}
    return type(rs.State)(name, (rs.State,), namespace)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"n": (int, ...)}, r"Odd\.n needs a default"),
        ({"n": (list[int], [])}, r"Odd\.n: a mutable default would be shared by all rows"),
        ({"n": (set[int], rs.field(factory=set))}, "a set has no stable order"),
        ({"n": (rs.Int8, 300)}, "a default does not fit its field"),
        ({"n": (int, "x")}, "a default does not fit its field: n is 'x', not int"),
        ({"n": (int, None)}, "a default does not fit its field: n is None, not int"),
        ({"n": (str, 3)}, "a default does not fit its field: n is 3, not str"),
        ({"n": (list[str], list)}, r"n is <class 'list'>, not list\[str\](.|\n)*rs\.field"),
        (
            {"n": (list[str], dataclasses.field(default_factory=list))},
            r"n is Field\((.|\n)*rs\.field",
        ),
        ({"n": (list[str], rs.field(factory=[]))}, "a factory raised TypeError: 'list' object is"),
        ({"n": (dict[str, int], Counter())}, r"n is Counter\(\), not dict\[str, int\]"),
        ({"n": (object, 1)}, "declare what it holds"),
        ({"n": (dict[str, Any], rs.field(factory=dict))}, "declare what it holds; Any has no"),
        ({"a": (rs.Timer, rs.NEVER), "b": (rs.Timer, rs.NEVER)}, "Odd has 2 rs.Timer fields"),
    ],
)
def test_declarations_that_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(GraphError, match=complaint):
        state_schema(declare("Odd", fields))


def test_rows_do_not_inherit() -> None:
    with pytest.raises(GraphError, match="do not inherit from other state rows"):

        class More(Row):
            extra: int = 0


def test_an_upgrade_is_a_class_method() -> None:
    class Plain(rs.State):
        def upgrade(self, old: Any) -> Any:
            return self

    class Named(rs.State):
        upgrade: int = 0

    with pytest.raises(GraphError, match="Make it a class method"):
        state_schema(Plain)
    assert state_schema(Named).upgrade is None
    assert state_schema(Row).upgrade is None


class Point(NamedTuple):
    x: int
    y: int


class Renamed(NamedTuple):
    x: int
    y: int


class Swapped(NamedTuple):
    y: int
    x: int


class Nested(NamedTuple):
    at: Point
    seen: list[int | None]
    small: rs.Int8


class Tree(NamedTuple):
    value: float
    below: list[Tree]


@pytest.mark.parametrize(
    ("hint", "shape"),
    [
        (list[Point], "list[(x: int64, y: int64)]"),
        (list[Renamed], "list[(x: int64, y: int64)]"),  # it reads what the other wrote
        (list[Swapped], "list[(y: int64, x: int64)]"),
        (list[tuple[int, int]], "list[tuple[int64, int64]]"),
        (list[float], "list[float64]"),
        (tuple[int, ...], "tuple[int64, ...]"),
        (dict[str, bool | None], "dict[str, bool | None]"),
        (dict[str, None], "dict[str, None]"),
        (Nested, "(at: (x: int64, y: int64), seen: list[int64 | None], small: int8)"),
        (Tree, "(value: float64, below: list[Tree])"),
        (list[int | str], "list[int64 | str]"),
    ],
)
def test_a_shape_says_what_is_inside(hint: Any, shape: str) -> None:
    """A checkpoint is refused by another: the values of a tuple would else change their names."""
    assert str(field_of("Held", "of", hint, state=True)) == f"of: {shape}"
    assert str(field_of("Held", "of", hint | None, state=True)) == f"of: {shape} | None"


def test_a_default_that_is_a_kind_of_dict_says_what_to_write() -> None:
    class Seen(rs.State):
        seen: dict[str, int] = rs.field(factory=lambda: defaultdict(int))

    with pytest.raises(GraphError, match=r"defaultdict(.|\n)*factory=dict, and d\.get\(key, 0\)"):
        state_schema(Seen)
