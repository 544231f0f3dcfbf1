"""Copies of rows, from which what a failing record did is undone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple

import pytest

import raystream as rs
from raystream.dataflow.logic import undo
from tests.schema.samples import Colour, Flat, kinds

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Listed(NamedTuple):
    items: list[int]


@dataclass(frozen=True)
class Dated:
    at: datetime
    flat: Flat


UNCHANGING: list[tuple[Any, Any]] = [
    (int, 5),
    (str | None, None),
    (rs.Int8, 5),
    (datetime, NOON),
    (Colour, Colour.RED),
    (Literal["a", "b"], "a"),
    (int | str, "a"),
    (tuple[int, ...], (1, 2)),
    (tuple[int, str], (1, "a")),
    (Flat, Flat(1, True)),
    (Dated, Dated(NOON, Flat(1, True))),
    (Dated | None, None),
]
SHALLOW: list[tuple[Any, Any]] = [
    (list[int], [1, 2]),
    (list[int] | None, [1]),
    (Annotated[list[Flat], "mark"], [Flat(1, True)]),
    (dict[str, Dated | None], {"a": Dated(NOON, Flat(1, False)), "b": None}),
    (list[list[int]], [[1], []]),
    (dict[tuple[int, str], dict[int, list[str]]], {(1, "a"): {2: ["b"]}}),
]
DEEP: list[tuple[Any, Any]] = [
    (list, [[1]]),
    (int | list[int], [1]),
    (tuple[list[int], int], ([1], 2)),
    (Listed, Listed([1])),
    (list[Listed], [Listed([1])]),
    (list[int], {"of another type": [1]}),  # the next checkpoint refuses it
    (list[int], None),
]


def changeable(value: Any) -> Iterator[Any]:
    """The lists and dicts that a value holds."""
    if isinstance(value, list | dict):
        yield value
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for each in value:
            yield from changeable(each)


@pytest.mark.parametrize(("hint", "value"), [*SHALLOW, *DEEP])
def test_nothing_that_can_change_is_shared(hint: Any, value: Any) -> None:
    copied = undo.copier(hint)(value)
    assert copied == value
    assert kinds(copied) == kinds(value)
    before = [id(each) for each in changeable(value)]
    assert not set(before) & {id(each) for each in changeable(copied)}


@pytest.mark.parametrize(("hint", "value"), UNCHANGING)
def test_what_cannot_change_is_not_copied(hint: Any, value: Any) -> None:
    assert undo.copier(hint)(value) is value


@pytest.mark.parametrize(("hint", "value"), SHALLOW)
def test_items_are_not_copied_one_by_one(
    hint: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is copied before each record: with `deepcopy` a job whose lists grew seemed to hang."""
    monkeypatch.setattr(undo, "deepcopy", None)
    undo.copier(hint)(value)
