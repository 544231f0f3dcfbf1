"""Rows that an older version of a state class left, as rows of the class as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import StateError
from raystream.schema.state import state_schema
from raystream.state.images.image import decode
from raystream.state.images.row_shape import RowShape
from raystream.state.images.upgrade import upgraded
from tests.examples import examples
from tests.state.images.histories import (
    ANYTHING,
    KINDS,
    NUMBERS,
    TEXT,
    WINDOWED,
    History,
    Mood,
    histories,
    restored,
    whole,
)


class Numbers2(rs.State):
    """`Numbers`, with fields that moved, changed their type, and are new."""

    real: rs.Float32 = 0.0
    few: list[float] = rs.field(factory=list)
    n: str = ""
    more: rs.Int8 = 3
    six: Annotated[list[int], rs.Array("i4", 4)] = rs.zeros(4)

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Self:
        return cls(real=old["real"], few=old["few"], n=str(old["n"]), six=[*old["six"], 7])


class Anything2(rs.State):
    """`Anything`, with one more field."""

    n: rs.Int8 = 0
    maybe: rs.Int16 | None = None
    maybe_real: float | None = None
    text: str = ""
    note: str | None = None
    raw: bytes = b""
    mood: Mood = Mood.CALM
    many: list[tuple[int, str]] = rs.field(factory=list)
    table: dict[tuple[int, int], list[str]] = rs.field(factory=dict)
    more: int = 1

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Self:
        return cls(**old)


class Wrong(rs.State):
    n: rs.Int8 = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Self:
        return cls(n=1000)


class Nothing(rs.State):
    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Self:
        return None  # type: ignore[return-value]


def of_class(shape: RowShape, cls: type[rs.State]) -> RowShape:
    return replace(shape, state=state_schema(cls))


@pytest.mark.parametrize("kind", ["numbers", "windowed", "anything", "sessions"])
@examples(15)
@given(data=st.data())
def test_rows_of_another_version_of_a_class(kind: str, data: st.DataObject) -> None:
    """A chain is upgraded image by image; values come out as declared, in both kinds of tables."""
    shape = KINDS[kind][0]
    history, images = History(shape), []
    for since, changes in enumerate([[], *data.draw(histories(kind))]):
        history.apply(changes)
        images.append(decode(history.image(since).encode()))
    cls: Any = Anything2 if shape.state is ANYTHING.state else Numbers2
    now = of_class(shape, cls)
    assert now.may_take(shape.fingerprint)
    after = restored(now, *(upgraded(i, now) for i in images))
    assert after.table.ends == history.table.ends
    assert set(after.table.rows) == set(history.table.rows)
    for key, old in history.table.rows.items():
        fields = {name: getattr(old, name) for name in old._names}
        assert repr(after.table.rows[key]) == repr(cls.upgrade(fields))
    assert after.image().encode() == decode(after.image().encode()).encode()


def test_the_same_key_and_window_are_asked_for() -> None:
    assert NUMBERS.may_take(of_class(NUMBERS, Numbers2).fingerprint)
    for other in (WINDOWED, TEXT, ANYTHING):
        assert not NUMBERS.may_take(other.fingerprint)
    assert not WINDOWED.may_take(replace(WINDOWED, window="in other windows").fingerprint)
    assert not NUMBERS.may_take("")


def test_what_an_upgrade_returns_is_checked() -> None:
    image = whole()
    with pytest.raises(StateError, match=r"Wrong.n of key \(.*\) holds 1000, which does not fit"):
        upgraded(image, of_class(NUMBERS, Wrong))
    with pytest.raises(StateError, match=r"Nothing\.upgrade returned no row but None\n  at key"):
        upgraded(image, of_class(NUMBERS, Nothing))
