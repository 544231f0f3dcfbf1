"""Checkpoint and restore of processing state: tables to the columns of an image, and back.

Taking a checkpoint has two halves. The first is made by the thread that computes: it copies Python
rows field by field, and encoded what could still change; of structured rows it opens a view. The
second, made anywhere, copies what the view has, and makes Arrow columns of the copy. Rows that are
put back count as touched at the cut of the image that brought them, so a later delta against an
older base holds them still.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, compress
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.schema.fields import Field
from raystream.schema.objects import decode_all, encode_all
from raystream.schema.state import State, StateSchema, exact_text
from raystream.schema.types import NEVER
from raystream.schema.values import all_of, check_of, members, shown
from raystream.state.image import END, KEY, SLOT, START, Image
from raystream.state.objects import ObjectTable
from raystream.state.partition import key_order, offsets_of
from raystream.state.priority import step_aside
from raystream.state.room import as_words
from raystream.state.rows import BLOCK, Part, StructuredTable
from raystream.state.texts import TextNumbers

ALIGN = 64
"""Columns begin at multiples of so many bytes."""
KEY_DTYPE = np.dtype(np.int64)
SLOT_DTYPE = np.dtype("<i4")
"""Of the slot of a copy, which is where its epoch would be: the lower half of it."""
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
        keys = ", ".join(f"{f.name}: {_KEY_WORDS[_key_type(f)]}" for f in self.keys)
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
        fields = [pa.field(KEY + f.name, _key_type(f), nullable=False) for f in self.keys]
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
            fields.append(pa.field(f.name, _type(f), nullable=f.optional, metadata=kind))
        return pa.schema(fields)


OBJECT = {b"stored": b"msgpack"}
"""What Arrow's schema says of a field that is encoded: without its class, bytes look alike."""
_BY = " by "
_KEY_WORDS = {pa.int64(): "int", pa.string(): "str", pa.binary(): "bytes"}


def _key_type(f: Field) -> Any:
    return {"text": pa.string(), "bytes": pa.binary()}.get(f.kind, pa.int64())


def _type(f: Field) -> Any:
    """How a state field is stored. A Python float has 64 bits, whatever was declared: stored in
    32 it would be another number after a restore."""
    if f.kind == "array":
        return pa.list_(pa.field("item", _number(f.dtype), nullable=False), f.size)
    if f.kind == "fixed":
        return _number(f.dtype)
    return pa.string() if f.kind == "text" else pa.binary()


@lru_cache(maxsize=64)
def _number(dtype: str) -> Any:
    return pa.float64() if dtype == "f4" else pa.from_numpy_dtype(np.dtype(dtype))


# ---------------------------------------------------------------- Python rows


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
            _sorted(_key_columns(shape, gone), shape.gone, groups) if gone else shape.nothing_gone,
        )

    def changed() -> Any:
        columns = _key_columns(shape, keys)
        if ends is not None:
            columns.append(pa.array(ends, pa.int64()))
        for f, values in zip(shape.state.fields, taken, strict=True):
            columns.append(_column(shape, f, values, keys))
        return _sorted(columns, shape.rows, groups)

    nbytes = len(keys) * (1 + len(taken)) * VALUE_BYTES
    return Taken(finish, lambda: nbytes)


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
        kind = _key_type(f)
        columns.append(pa.array(map(int, values) if f.kind == "fixed" else values, kind))
    return columns + starts


def _column(shape: Shape, f: Field, values: list[Any], keys: list[Any]) -> Any:
    try:
        if f.kind == "array":
            if any(len(v) != f.size for v in values):
                raise ValueError
            flat = pa.array(_plain(f, [n for v in values for n in v]), _number(f.dtype))
            return pa.FixedSizeListArray.from_arrays(flat, type=_type(f))
        return pa.array(values if f.kind == "object" else _plain(f, values), _type(f))
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
        pa.array(_plain(f, [value]), _type(f))
    except (ValueError, TypeError, OverflowError, pa.ArrowException, StateError):
        return False
    return True


def _item(f: Field) -> Field:
    return Field(f.name, "fixed", f.dtype)


def _empty(schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def _sorted(columns: list[Any], schema: Any, groups: int) -> Any:
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


# ---------------------------------------------------------------- structured rows

Texts = Sequence[TextNumbers | None]
"""Per key field what its numbers stand for, where it is text or bytes; () where none is."""


def take_rows(
    table: StructuredTable,
    shape: Shape,
    groups: int,
    since: int,
    upto: int,
    texts: Texts = (),
    slots: tuple[int, int] = (0, 0),
    *,
    named: bool = False,
) -> Taken:
    """View what changed after the cut `since`, and what is in these slots; 0 is all.

    Args:
        upto: the last epoch that was applied.
        named: name the slots, too.
    """
    view = table.view(since or -1, upto, slots)
    gone = table.gone(since if since else NEVER, slots=named)

    def finish(most: int) -> Iterator[Made]:
        rows, left = view.rows(), _with_slots(shape.nothing_gone, named)
        try:
            if len(gone):
                columns = _matrix_columns(shape, gone, texts)
                left = _sorted(columns, left.schema, groups)
            if not len(rows):
                yield Made(groups, _with_slots(shape.no_rows, named), left)
                return
            columns = _matrix_columns(shape, rows["_key"], texts)
            keys = pa.RecordBatch.from_arrays(columns, schema=shape.gone)
            order, offsets = key_order(keys, groups)
            ends = part_ends(offsets, max(1, most // rows.itemsize))
            begins = offsets_of(left, groups, [0, *ends])
            for i, end in enumerate(ends):
                here = order[offsets[ends[i - 1] if i else 0] : offsets[end]]
                some = left.slice(begins[i], begins[i + 1] - begins[i])
                yield Made(end, _columns(shape, rows, keys, here, texts, named), some)
        finally:
            view.close()

    return Taken(finish, lambda: view.nbytes, view.copy)


def part_ends(offsets: np.ndarray, most: int) -> list[int]:
    """Cut key groups into ranges of at most so many rows, or one key group: where each ends.

    offsets: where each key group begins among the rows, [groups + 1].
    """
    ends, at = list[int](), 0
    while offsets[-1] - at > most:
        one, several = np.searchsorted(offsets, [at, at + most], "right").tolist()
        ends.append(max(one, several - 1))
        at = int(offsets[ends[-1]])
    if at == offsets[-1] and ends:
        ends.pop()
    return [*ends, len(offsets) - 1]


_SLOTS = pa.field(SLOT, pa.int32(), nullable=False)


def _with_slots(batch: Any, named: bool, slots: Any = None) -> Any:
    """A batch with the column of its slots, if they are named; of no rows it is empty."""
    if not named:
        return batch
    return batch.append_column(_SLOTS, pa.array([], pa.int32()) if slots is None else slots)


def _columns(
    shape: Shape, rows: np.ndarray, keys: Any, order: np.ndarray, texts: Texts, named: bool
) -> Any:
    """Structured rows as columns, in this order. keys: the columns of their keys, as they lie."""
    is_text = [known is not None for known in texts] + [False] * (keys.num_columns - len(texts))
    layout: Mapping[str, Any] = rows.dtype.fields or {}
    first = layout["_key"][1]
    parts: list[tuple[np.dtype[Any], int]]
    parts = [(KEY_DTYPE, first + 8 * j) for j, text in enumerate(is_text) if not text]
    parts += [layout[f.name][:2] for f in shape.state.fields]
    if named:
        parts.append((SLOT_DTYPE, layout["_epoch"][1]))
    fields = iter(_shuffled(rows, order, parts))
    columns = [
        keys.column(j).take(pa.array(order)) if text else pa.array(next(fields))
        for j, text in enumerate(is_text)
    ]
    columns += [_structured(f, next(fields)) for f in shape.state.fields]
    batch = pa.RecordBatch.from_arrays(columns, schema=shape.rows)
    return _with_slots(batch, named, pa.array(next(fields)) if named else None)


def _shuffled(
    rows: np.ndarray, order: np.ndarray, parts: Sequence[tuple[np.dtype[Any], int]]
) -> list[np.ndarray]:
    """Parts of structured rows as columns, in this order, in one piece of memory.

    parts: of each its dtype, and where its bytes begin in a row.
    """
    from raystream.state.image_kernels import to_columns

    n = len(order)
    sizes = [-(-n * dtype.itemsize // ALIGN) * ALIGN for dtype, _ in parts]
    begins = [0, *accumulate(sizes)]
    memory = np.empty(begins.pop() // 8, np.int64)
    told = [(at, dtype.itemsize, begin) for (dtype, at), begin in zip(parts, begins, strict=True)]
    step_aside(memory.nbytes)
    to_columns(as_words(rows), order, np.array(told, np.int64).reshape(-1, 3), memory)
    whole = memory.view(np.uint8)
    return [
        whole[begin : begin + n * dtype.itemsize].view(dtype.base).reshape(n, *dtype.shape)
        for (dtype, _), begin in zip(parts, begins, strict=True)
    ]


def _matrix_columns(shape: Shape, keys: np.ndarray, texts: Texts) -> list[Any]:
    """Columns of keys, and of their slots if these are there too."""
    columns = []
    for j in range(keys.shape[1]):
        step_aside(len(keys) * keys.itemsize)
        numbers = np.ascontiguousarray(keys[:, j])
        known = texts[j] if j < len(texts) else None
        if known is not None:
            columns.append(known.text(numbers, _key_type(shape.keys[j])))
        elif j < len(shape.gone):
            columns.append(pa.array(numbers))
        else:
            columns.append(pa.array(numbers, pa.int32()))
    return columns


def _structured(f: Field, values: np.ndarray) -> Any:
    if f.kind == "array":
        flat = values.reshape(-1)
        return pa.FixedSizeListArray.from_arrays(pa.array(flat, _number(f.dtype)), type=_type(f))
    return pa.array(values, _type(f))


def fill_rows(
    table: StructuredTable, shape: Shape, chains: Sequence[Sequence[Image]], texts: Texts = ()
) -> None:
    """Put the rows of images into an empty table. Of each range, which are apart, there is one, or
    those of one table that hold all its rows together, the oldest first."""
    lasting = [each for chain in chains for each in _lasting(chain)]
    known = texts[0] if texts and len(shape.gone) == 1 else None
    if known is None or len(known):
        batches = _taken(lasting)
        table.fill(_part(shape, cut, b, _numbered(shape, b, texts)) for cut, b in batches)
        return
    # Where a text alone is the key, none comes twice, so its numbers are known beforehand. To learn
    # the texts takes about as long as to fill the table, and both let the interpreter's lock go.
    with ThreadPoolExecutor(1) as aside:
        learnt = aside.submit(known.learn, (batch.column(0) for _, batch in _taken(lasting)))
        table.fill(_in_turn(shape, _taken(lasting)))
        learnt.result()


def _in_turn(shape: Shape, batches: Iterable[tuple[int, Any]]) -> Iterator[Part]:
    """Rows whose keys are numbered as they come."""
    at = 0
    for cut, batch in batches:
        numbers = np.arange(at, at + batch.num_rows)
        yield _part(shape, cut, batch, [numbers])
        at += batch.num_rows


class _Lasting(NamedTuple):
    """An image, and the positions of those of its rows that no later one has: int32, None if these
    are all."""

    image: Image
    rows: np.ndarray | None


def _lasting(chain: Sequence[Image]) -> list[_Lasting]:
    """What is to be put in of images of one table. What is in a slot says the newest of them that
    names it: nothing, if that says only that a row has gone from there."""
    if len(chain) == 1:
        return [_Lasting(chain[0], None)]
    from raystream.state.image_kernels import mark, unmarked

    named = [[batch.column(SLOT).to_numpy() for batch in (i.rows, i.gone)] for i in chain]
    most = max((int(slots.max()) for each in named for slots in each if len(slots)), default=-1)
    seen, found = np.zeros((most >> 3) + 1, np.uint8), []
    for image, (rows, gone) in zip(reversed(chain), reversed(named), strict=True):
        found.append(_Lasting(image, unmarked(rows, seen)))
        mark(gone, seen)
    return found


def _taken(lasting: Sequence[_Lasting]) -> Iterator[tuple[int, Any]]:
    """The cuts and rows of images, some at a time where not all are taken."""
    for image, rows in lasting:
        if rows is None:
            yield image.header.cut, image.rows
            continue
        for first in range(0, len(rows), BLOCK):
            yield image.header.cut, image.rows.take(pa.array(rows[first : first + BLOCK]))


def put_rows(table: StructuredTable, shape: Shape, image: Image, texts: Texts = ()) -> None:
    """Put the rows of an image into a table, and take out those that it says are gone."""
    if image.gone.num_rows:
        slots = np.unique(
            table.find(_numbered(shape, image.gone, texts))
        )  # a key may be there twice
        table.remove(slots[slots >= 0], image.header.cut)
    keys = _numbered(shape, image.rows, texts)
    table.put(_part(shape, image.header.cut, image.rows, keys))


def _part(shape: Shape, cut: int, batch: Any, keys: list[np.ndarray]) -> Part:
    fields = {}
    for f in shape.state.fields:
        column = batch.column(f.name)
        if f.kind == "array":
            fields[f.name] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, f.size)
        else:
            fields[f.name] = column.to_numpy(zero_copy_only=False)
    return Part(keys, cut, fields)


def _numbered(shape: Shape, batch: Any, texts: Texts) -> list[np.ndarray]:
    columns = []
    for j in range(len(shape.gone)):
        column = batch.column(j)
        known = texts[j] if j < len(texts) else None
        columns.append(column.to_numpy() if known is None else known.number(column))
    return columns
