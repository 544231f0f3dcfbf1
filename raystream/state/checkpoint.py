"""Checkpoint and restore of processing state: tables to the columns of an image, and back.

Taking a checkpoint has two halves. The first is made by the thread that computes: it copies Python
rows field by field, and encoded what could still change; of structured rows it opens a view. The
second, made anywhere, copies what the view has, and makes Arrow columns of the copy. Rows that are
put back count as touched at the cut of the image that brought them.

Here is what all rows have in common, and Python rows; `state.structured` has the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress, islice
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.schema.fields import Field
from raystream.schema.objects import decode_all, encode_all
from raystream.schema.state import State, StateSchema, exact_text
from raystream.schema.values import all_of, check_of, members, shown
from raystream.state.image import END, KEY, START, Image
from raystream.state.objects import ObjectTable
from raystream.state.partition import count_keys, key_order

VALUE_BYTES = 64
"""What a value of a Python row takes in memory, about."""


class Made(NamedTuple):
    """Rows and removed rows of an image, of the key groups from the part before on to `end`."""

    end: int
    rows: Any
    gone: Any


class Taken(NamedTuple):
    """The first half of a checkpoint: rows that are copied, or in view.

    finish: the second half: makes the parts of an image, one when the next is asked for, in about
    so many bytes of rows each, and at least a key group. held: about how many bytes of memory the
    copies take, until then; any thread may ask. copy: copies what is in view, on the thread that
    will finish; until then whoever computes puts rows aside that change.
    """

    finish: Callable[[int], Iterator[Made]]
    held: Callable[[], int]
    copy: Callable[[], None] = lambda: None


WHOLE = sys.maxsize
"""Bytes of an image in one part."""
COUNTED = 1 << 18
"""Rows whose keys are hashed at a time, to count them."""


@dataclass(frozen=True)
class Shape:
    """What the rows of an operator hold: its key fields, state class, and kind of window.

    window: in words, "" without windows. sessions: whether rows have ends of their own.
    """

    keys: tuple[Field, ...]
    state: StateSchema
    window: str = ""
    sessions: bool = False

    @cached_property
    def fingerprint(self) -> str:
        """Equal for two operators whose images can be exchanged."""
        return f"{self.state.fingerprint}{_BY}{self.by}"

    @cached_property
    def by(self) -> str:
        """The words of the fingerprint for what a row is kept by."""
        keys = ", ".join(f"{f.name}: {_KEY_WORDS[key_type(f)]}" for f in self.keys)
        return f"{keys}{', ' if self.window else ''}{self.window}"

    def may_take(self, stored: str) -> bool:
        """Whether rows of the stored fingerprint are kept by the same, so that they could be
        upgraded where they are of another state class."""
        return stored.partition(_BY)[2] == self.by

    @property
    def upgrade_words(self) -> str:
        """What to do to go on with rows that `may_take` lets pass."""
        return (
            f"To go on with these rows declare in {self.state.name}:"
            "\n    @classmethod"
            "\n    def upgrade(cls, old: Mapping[str, Any]) -> Self: ..."
        )

    @cached_property
    def gone(self) -> Any:
        """The Arrow schema of removed rows."""
        fields = [pa.field(KEY + f.name, key_type(f), nullable=False) for f in self.keys]
        if self.window:
            fields.append(pa.field(START, pa.int64(), nullable=False))
        return pa.schema(fields)

    @cached_property
    def nothing_gone(self) -> Any:
        """No removed rows, as most often."""
        return _empty(self.gone)

    @cached_property
    def no_rows(self) -> Any:
        """No rows: of few keys often none has changed."""
        return _empty(self.rows)

    @cached_property
    def rows(self) -> Any:
        """The Arrow schema of rows."""
        fields = list(self.gone)
        if self.sessions:
            fields.append(pa.field(END, pa.int64(), nullable=False))
        for f in self.state.fields:
            kind = OBJECT if f.kind == "object" else None
            fields.append(pa.field(f.name, field_type(f), nullable=f.optional, metadata=kind))
        return pa.schema(fields)


OBJECT = {b"stored": b"msgpack"}
"""What Arrow's schema says of a field that is encoded: without its class, bytes look alike."""
_BY = " by "
_KEY_WORDS = {pa.int64(): "int", pa.string(): "str", pa.binary(): "bytes"}


def key_type(f: Field) -> Any:
    """How a key field is stored."""
    return {"text": pa.string(), "bytes": pa.binary()}.get(f.kind, pa.int64())


def field_type(f: Field) -> Any:
    """How a state field is stored. A Python float has 64 bits, whatever was declared: stored in
    32 it would be another number after a restore."""
    if f.kind == "array":
        return pa.list_(pa.field("item", number_type(f.dtype), nullable=False), f.size)
    if f.kind == "fixed":
        return number_type(f.dtype)
    return pa.string() if f.kind == "text" else pa.binary()


@lru_cache(maxsize=64)
def number_type(dtype: str) -> Any:
    """How numbers of a NumPy dtype are stored."""
    return pa.float64() if dtype == "f4" else pa.from_numpy_dtype(np.dtype(dtype))


# ---------------------------------------------------------------- Python rows


def take_none(shape: Shape, groups: int) -> Taken:
    """No rows."""
    return Taken(lambda _: iter([Made(groups, shape.no_rows, shape.nothing_gone)]), lambda: 0)


def take_objects(table: ObjectTable, shape: Shape, groups: int, since: int) -> Taken:
    """Copy what changed after the cut `since`; 0 copies all.

    Raises:
        StateError: in the second half too: a value does not fit its field.
    """
    keys, rows = _changed(table, since)
    gone = list(table.gone(since)) if since else []
    ends = [table.ends[k] for k in keys] if shape.sessions else None
    taken = [_values(f, rows, shape, keys) for f in shape.state.fields]

    def finish(most: int) -> Iterator[Made]:
        """In one part, whatever was asked for: the copy is there, and larger than the columns."""
        yield Made(
            groups,
            changed() if keys else shape.no_rows,
            in_groups(_key_columns(shape, gone), shape.gone, groups)
            if gone
            else shape.nothing_gone,
        )

    def changed() -> Any:
        columns = _key_columns(shape, keys)
        if ends is not None:
            columns.append(pa.array(ends, pa.int64()))
        for f, values in zip(shape.state.fields, taken, strict=True):
            columns.append(_column(shape, f, values, keys))
        return in_groups(columns, shape.rows, groups)

    nbytes = len(keys) * (1 + len(taken)) * VALUE_BYTES
    return Taken(finish, lambda: nbytes)


def count_objects(table: ObjectTable, shape: Shape, groups: int) -> np.ndarray:
    """int64 [groups]: how many rows there are of each key group."""
    counts, left = np.zeros(groups, np.int64), iter(table.rows)
    while keys := list(islice(left, COUNTED)):
        counts += count_keys(
            pa.RecordBatch.from_arrays(_key_columns(shape, keys), schema=shape.gone), groups
        )
    return counts


def check_objects(table: ObjectTable, shape: Shape, since: int) -> None:
    """Check that what changed after the cut `since` could be stored.

    Raises:
        StateError: a value does not fit its field.
    """
    keys, rows = _changed(table, since)
    if keys:
        state_columns(shape, rows, keys)


def _changed(table: ObjectTable, since: int) -> tuple[list[Any], list[State]]:
    """The rows that changed after the cut `since`, and their keys."""
    oldest = since or -1
    dirty = [row._mark > oldest for row in table.rows.values()]
    return list(compress(table.rows, dirty)), list(compress(table.rows.values(), dirty))


def _values(f: Field, rows: Sequence[State], shape: Shape, keys: Sequence[Any]) -> list[Any]:
    """What cannot change any more of one field of all rows. keys: of the rows, for errors."""
    values = list(map(attrgetter(f.name), rows))
    if f.kind == "object":
        try:
            if check_of(f.convert)(values):
                return encode_all(values)
        except StateError:
            pass
        raise _misfit(shape, f, values, keys)
    return [tuple(v) for v in values] if f.kind == "array" else values


def state_columns(shape: Shape, rows: Sequence[State], keys: list[Any]) -> list[Any]:
    """Columns of the fields of Python rows. keys: of the rows, for errors.

    Raises:
        StateError: a value does not fit its field.
    """
    return [_column(shape, f, _values(f, rows, shape, keys), keys) for f in shape.state.fields]


def _key_columns(shape: Shape, keys: Sequence[Any]) -> list[Any]:
    """Columns of an ObjectTable's keys."""
    starts = []
    if shape.window:
        keys, starts = [k for k, _ in keys], [pa.array([s for _, s in keys], pa.int64())]
    parts = (
        [keys] if len(shape.keys) == 1 else [[k[i] for k in keys] for i in range(len(shape.keys))]
    )
    columns = []
    for f, values in zip(shape.keys, parts, strict=True):
        kind = key_type(f)
        columns.append(pa.array(map(int, values) if f.kind == "fixed" else values, kind))
    return columns + starts


def _column(shape: Shape, f: Field, values: list[Any], keys: list[Any]) -> Any:
    try:
        if f.kind == "array":
            if any(len(v) != f.size for v in values):
                raise ValueError
            flat = pa.array(_plain(f, [n for v in values for n in v]), number_type(f.dtype))
            return pa.FixedSizeListArray.from_arrays(flat, type=field_type(f))
        return pa.array(values if f.kind == "object" else _plain(f, values), field_type(f))
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        raise _misfit(shape, f, values, keys) from None


def _misfit(shape: Shape, f: Field, values: Sequence[Any], keys: Sequence[Any]) -> StateError:
    """What is raised when not all values fit their field."""
    at = next((i for i, v in enumerate(values) if not _fits(f, v)), 0)
    return StateError(
        f"{shape.state.name}.{f.name} of key {keys[at]!r} holds {values[at]!r:.80}, which does"
        f" not fit {f.declared}",
        hint=_remedy(f, values[at]),
    )


def _remedy(f: Field, value: Any) -> str:
    """What to do about a value that does not fit."""
    if isinstance(value, np.generic):
        return "State holds plain Python values: int(...) and float(...) make them of NumPy's."
    if value is None:
        return f"Declare that it may be: {f.name}: ... | None"
    if f.kind == "object":
        return (
            "All that it holds is of the declared types, or would come back as something else;"
            " integers have at most 64 bits."
        )
    if f.kind == "fixed" and f.convert is not None:
        return shown(f.convert)
    if f.integer and isinstance(value, float):
        return "int(...) or round(...) makes it whole; or declare a float."
    if f.integer and isinstance(value, int):
        info = np.iinfo(f.dtype)
        return f"It holds integers from {info.min} to {info.max}."
    return ""


_PYTHON: dict[str, tuple[Any, tuple[type, ...]]] = {
    "i": (int, (int,)),
    "f": (float, (float, int)),
    "b": (bool, (bool,)),
    "text": (str, (str,)),
    "bytes": (bytes, (bytes,)),
}


def _plain(f: Field, values: list[Any]) -> list[Any]:
    """Values as the type that is declared."""
    kinds = set(map(type, values))
    if type(None) in kinds and not f.optional:
        raise TypeError
    wanted, allowed = _PYTHON[np.dtype(f.dtype).kind if f.dtype else f.kind]
    kinds.discard(type(None))
    if not all_of(kinds, allowed):
        raise TypeError
    if f.convert is not None and not members(f.convert, [v for v in values if v is not None]):
        raise ValueError
    if kinds <= {wanted}:
        return values
    make = exact_text if f.kind in ("text", "bytes") else wanted
    return [None if v is None else make(v) for v in values]


def _fits(f: Field, value: Any) -> bool:
    try:
        if f.kind == "object":
            return check_of(f.convert)([value]) and bool(encode_all([value]))
        if f.kind == "array":
            return len(value) == f.size and all(_fits(_item(f), v) for v in value)
        pa.array(_plain(f, [value]), field_type(f))
    except (ValueError, TypeError, OverflowError, pa.ArrowException, StateError):
        return False
    return True


def _item(f: Field) -> Field:
    return Field(f.name, "fixed", f.dtype)


def _empty(schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def in_groups(columns: list[Any], schema: Any, groups: int) -> Any:
    """Columns as a batch whose rows are sorted by key group and key.

    Raises:
        StateError: a column is larger than 2 GB.
    """
    for name, column in zip(schema.names, columns, strict=True):
        if isinstance(column, pa.ChunkedArray):  # Arrow makes several of more than 2 GB
            raise StateError(
                f"{name.removeprefix(KEY)} of {len(column)} rows takes more than 2 GB, which is"
                " what one checkpoint holds of it at most",
                hint="Let more instances share the keys.",
            )
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if batch.num_rows < 2:
        return batch
    return batch.take(pa.array(key_order(batch, groups)[0]))


def put_objects(table: ObjectTable, shape: Shape, image: Image) -> None:
    """Put the rows of an image into a table, and take out those that it says are gone.

    Raises:
        StateError: it holds a value that its enumeration has no member for any more.
    """
    cut = image.header.cut
    try:
        gone, keys = row_keys(shape, image.gone), row_keys(shape, image.rows)
        fields = [(f.name, _stored(f, image.rows.column(f.name))) for f in shape.state.fields]
    except ValueError as error:
        raise StateError(
            f"the {image.header} holds what {shape.state.name} or its key cannot: {error}",
            hint="An enumeration keeps the members that stored rows have.",
        ) from None
    for key in gone:
        if key in table.rows:
            table.remove(key, cut)
    for i, key in enumerate(keys):
        row = table.rows[key] = shape.state.fresh()
        row._mark = cut
        for name, values in fields:
            setattr(row, name, values[i])
    if shape.sessions:
        table.ends.update(zip(keys, image.rows.column(END).to_pylist(), strict=True))


def row_keys(shape: Shape, batch: Any) -> list[Any]:
    """The keys of an ObjectTable that columns stand for."""
    parts = []
    for f in shape.keys:
        values = batch.column(KEY + f.name).to_pylist()
        convert = bool if f.dtype == "?" else f.convert
        parts.append(values if convert is None else [convert(v) for v in values])
    keys = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
    return list(zip(keys, batch.column(START).to_pylist(), strict=True)) if shape.window else keys


def _stored(f: Field, column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if f.kind == "object":
        return decode_all(values, f.convert)
    if f.kind == "fixed" and f.convert is not None:
        return [None if v is None else f.convert(v) for v in values]
    return values
