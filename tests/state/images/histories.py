"""Tables of Python rows with a history, and their images, for tests."""

from __future__ import annotations

import enum
import random
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from hypothesis import strategies as st

import raystream as rs
from raystream.schema.fields import field_of
from raystream.schema.state import state_schema
from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import (
    Image,
    ImageHeader,
    InputPosition,
)
from raystream.state.images.row_shape import RowShape
from raystream.state.keys import key_group
from raystream.state.tables.backend import WHOLE
from raystream.state.tables.object_table import ObjectTable
from raystream.state.tables.structured_table import StructuredTable

GROUPS = 16
ALL = KeyRange(0, GROUPS)
COUNTED = {"in": np.arange(GROUPS).tobytes()}


class Numbers(rs.State):
    n: rs.Int32 = 7
    real: float = 0.5
    short: rs.Float32 = 0
    sure: bool = False
    due: rs.Timer = rs.NEVER
    six: Annotated[list[int], rs.Array("i1", 3)] = rs.zeros(3)
    few: Annotated[list[float], rs.Array("f4", 2)] = rs.zeros(2)


class Mood(enum.IntEnum):
    CALM = 1
    WILD = 2


class Anything(rs.State):
    n: rs.Int8 = 0
    maybe: rs.Int16 | None = None
    maybe_real: float | None = None
    text: str = ""
    note: str | None = None
    raw: bytes = b""
    mood: Mood = Mood.CALM
    many: list[tuple[int, str]] = rs.field(factory=list)
    table: dict[tuple[int, int], list[str]] = rs.field(factory=dict)


def key_fields(*hints: Any) -> tuple[Any, ...]:
    return tuple(field_of("Key", f"k{i}", hint, state=False) for i, hint in enumerate(hints))


NUMBERS = RowShape(key_fields(int, rs.Int8), state_schema(Numbers))
WINDOWED = RowShape(key_fields(int), state_schema(Numbers), "in windows")
TEXT = RowShape(key_fields(str, int), state_schema(Numbers))
ANYTHING = RowShape(key_fields(str, Mood, bool, bytes), state_schema(Anything))
SESSIONS = RowShape(key_fields(str), state_schema(Anything), "in sessions", sessions=True)
small = st.integers(-3, 3)
texts = st.text("aé日", max_size=2)
reals = st.floats(allow_nan=False)
shorts = st.floats(allow_nan=False, width=32)
numbers = st.builds(
    Numbers,
    n=small,
    real=reals,
    short=shorts,
    sure=st.booleans(),
    due=st.just(rs.NEVER) | st.integers(0, 9),
    six=st.lists(small, min_size=3, max_size=3),
    few=st.lists(shorts, min_size=2, max_size=2),
)
anything = st.builds(
    Anything,
    n=small,
    maybe=st.none() | small,
    maybe_real=st.none() | reals,
    text=texts,
    note=st.none() | texts,
    raw=st.binary(max_size=2),
    mood=st.sampled_from(Mood),
    many=st.lists(st.tuples(small, texts), max_size=2),
    table=st.dictionaries(st.tuples(small, small), st.lists(texts, max_size=2), max_size=2),
)
starts = st.integers(-2, 2).map(lambda n: n * 30)
KINDS: dict[str, tuple[RowShape, Any, Any]] = {
    "numbers": (NUMBERS, st.tuples(small, small), numbers),
    "windowed": (WINDOWED, st.tuples(small, starts), numbers),
    "text": (TEXT, st.tuples(texts, small), numbers),
    "anything": (
        ANYTHING,
        st.tuples(texts, st.sampled_from(Mood), st.booleans(), st.binary(max_size=1)),
        anything,
    ),
    "sessions": (SESSIONS, st.tuples(texts, starts), anything),
}
STRUCTURED = ["numbers", "windowed"]


class History:
    """A table of Python rows, changed epoch by epoch: (key, row or None to remove it)."""

    def __init__(self, shape: RowShape) -> None:
        self.shape = shape
        self.table = ObjectTable(shape, GROUPS)
        self.epoch = 0

    def apply(self, changes: list[tuple[Any, Any]]) -> None:
        self.epoch += 1
        table = self.table
        for key, row in changes:
            if row is not None:
                table.rows[key] = copy_of(row)
                table.rows[key]._mark = self.epoch
                if self.shape.sessions:
                    table.ends[key] = key[1] + len(row.text) + self.epoch
            elif key in table.rows:
                table.remove(key, self.epoch)

    def image(self, since: int = 0, input_position: InputPosition | None = None) -> Image:
        _, rows, gone = next(self.table.capture(CheckpointRequest(since), self.epoch).parts(WHOLE))
        return Image(header(self.shape, since, self.epoch, input_position), rows, gone)


def copy_of(row: Any) -> Any:
    made = type(row)()
    for name in row._names:
        value = getattr(row, name)
        setattr(made, name, value.copy() if isinstance(value, list | dict) else value)
    return made


def header(
    shape: RowShape, base: int, checkpoint: int, input_position: InputPosition | None = None
) -> ImageHeader:
    return ImageHeader(
        operator="op",
        shape=shape.fingerprint,
        groups=GROUPS,
        keys=ALL,
        base=base,
        checkpoint=checkpoint,
        input_position=input_position or InputPosition(checkpoint * 10),
    )


def restored(shape: RowShape, *images: Image) -> History:
    history = History(shape)
    for image in images:
        history.table.apply(image)
    history.epoch = images[-1].header.checkpoint
    return history


def structured(shape: RowShape, *images: Image) -> StructuredTable:
    window = 30 if shape.window else None
    keys = len(shape.keys)
    table = StructuredTable(shape.state, keys=keys, groups=GROUPS, window=window, shape=shape)
    table.fill([images[:1]])
    for image in images[1:]:
        table.apply(image)
    return table


def histories(kind: str) -> st.SearchStrategy[list[list[tuple[Any, Any]]]]:
    _, keys, rows = KINDS[kind]
    return st.lists(st.lists(st.tuples(keys, st.none() | rows), max_size=5), max_size=6)


@lru_cache
def some(kind: str) -> list[list[tuple[Any, Any]]]:
    """One fixed history that is not empty."""
    shape, _, _ = KINDS[kind]
    rng = random.Random(kind)
    pool: list[Any] = [
        tuple(key_value(rng, f) for f in shape.keys) if len(shape.keys) > 1 else
        key_value(rng, shape.keys[0]) for _ in range(9)
    ]  # fmt: skip
    keys = [(k, 30 * i) for i, k in enumerate(pool)] if shape.window else pool
    return [[(k, shape.state.cls()) for k in rng.sample(keys, 4)] for _ in range(4)]


def key_value(rng: random.Random, f: Any) -> Any:
    if f.kind != "fixed":
        return rng.choice("abcdef") if f.kind == "text" else rng.randbytes(1)
    return (
        f.value.restore(rng.randrange(1, 3))
        if f.value
        else rng.randrange(2 if f.dtype == "?" else 9)
    )


def flat(history: History) -> list[Any]:
    """Parts of keys and values of fields, in key order: to compare their types."""
    out: list[Any] = []
    for key in sorted(history.table.rows):
        out += key if isinstance(key, tuple) else [key]
        row = history.table.rows[key]
        out += [getattr(row, n) for n in row._names]
    return out


def group(shape: RowShape, key: Any) -> int:
    return key_group(key[0] if shape.window else key, GROUPS)


def image_of(table: StructuredTable, since: int, head: ImageHeader) -> Image:
    _, rows, gone = next(table.capture(CheckpointRequest(since), head.checkpoint).parts(WHOLE))
    return Image(head, rows, gone)


def whole(kind: str = "numbers", epochs: int = 4) -> Image:
    history = History(KINDS[kind][0])
    for changes in some(kind)[:epochs]:
        history.apply(changes)
    return history.image()
