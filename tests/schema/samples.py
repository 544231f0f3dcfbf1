"""Records that tests of columns share, and the types of all that a value holds."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import raystream as rs


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Flat(NamedTuple):
    n: int
    sure: bool


class Noted(NamedTuple):
    n: int
    text: str


class Mixed(NamedTuple):
    small: rs.Int8
    real: rs.Float32
    text: str
    maybe: rs.Int32 | None
    kind: Colour
    items: list[int]


def kinds(value: Any) -> Any:
    """The types of a value and of all that it holds."""
    if isinstance(value, dict):
        return dict, [(kinds(k), kinds(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [kinds(v) for v in value]
    return type(value)
