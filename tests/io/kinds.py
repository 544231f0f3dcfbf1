"""Records with a field of every kind, and strategies for them."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from hypothesis import strategies as st

import raystream as rs


class Lane(enum.IntEnum):
    EXIT = 4
    TRAVEL = 1


class Point(NamedTuple):
    x: rs.Int16
    label: str | None


class Plain(NamedTuple):
    """What a CSV cell can hold."""

    time: rs.Int64
    small: rs.Int8
    wide: int
    maybe: rs.Int16 | None
    ratio: float
    flag: bool
    maybe_flag: bool | None
    lane: Lane
    text: str
    maybe_text: str | None


class Rich(NamedTuple):
    """What only Parquet can hold."""

    time: rs.Int64
    data: bytes
    maybe_data: bytes | None
    numbers: list[int]
    names: dict[str, rs.Int32]
    pair: tuple[int, str]
    many: tuple[float, ...]
    point: Point
    points: list[Point]
    maybe_point: Point | None


class Counted(NamedTuple):
    key: int
    n: int


def ints(bits: int) -> Any:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)
FLOAT = st.floats(allow_nan=False)
POINT = st.builds(Point, ints(16), st.none() | TEXT)

PLAIN: Any = st.builds(
    Plain,
    ints(64),
    ints(8),
    ints(64),
    st.none() | ints(16),
    FLOAT,
    st.booleans(),
    st.none() | st.booleans(),
    st.sampled_from(Lane),
    TEXT,
    st.none() | TEXT,
)
RICH: Any = st.builds(
    Rich,
    ints(64),
    st.binary(max_size=6),
    st.none() | st.binary(max_size=6),
    st.lists(ints(64), max_size=3),
    st.dictionaries(TEXT, ints(32), max_size=3),
    st.tuples(ints(64), TEXT),
    st.lists(FLOAT, max_size=3).map(tuple),
    POINT,
    st.lists(POINT, max_size=2),
    st.none() | POINT,
)


def batch(record: type, rows: list[Any]) -> rs.Batch[Any]:
    columns = zip(*rows, strict=True) if rows else [()] * len(record._fields)  # type: ignore[attr-defined]
    return rs.Batch(record, dict(zip(record._fields, columns, strict=True)))  # type: ignore[attr-defined]


def records(source: Any, position: int = 0, split: int = 0) -> list[Any]:
    return [r for _, b in source.read(source.splits()[split], position) for r in b.records()]
