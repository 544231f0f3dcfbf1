"""Batches: the columns of many records, as batch operators and sources see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from raystream.errors import StateError, placed
from raystream.schema.columns import Columns
from raystream.schema.fields import AnyRecord
from raystream.schema.records import record_schema
from raystream.schema.state import State, StateSchema
from raystream.schema.storing import from_columns, numbers

T_co = TypeVar("T_co", bound=AnyRecord, covariant=True)
S = TypeVar("S", bound=State)


class Batch(Generic[T_co]):
    """Records of one type as columns.

    Args:
        record: the record class.
        columns: per field a NumPy array, an Arrow array or a sequence, all of one length. A NumPy
            array of the field's type is not copied: the batch takes it over, and it is read-only
            from then on. (A view that can be written to is copied.)
        origin: for the output of an operator whose rows are not aligned with its input: for each
            row the position of the input record that it comes from, in any order.

    Raises:
        StateError: a column is missing, unknown, of another length, or a value does not fit.

    Numbers are read as NumPy arrays (read-only); text, bytes, and numbers that may be None as Arrow
    arrays; everything else as lists.
    """

    __slots__ = ("_columns", "_origin")

    @placed
    def __init__(
        self, record: type[T_co], columns: Mapping[str, Any], *, origin: Any = None
    ) -> None:
        if not isinstance(columns, Mapping):
            raise StateError(
                f"rs.Batch takes a column for each field by name, not {columns!r:.80}",
                hint='rs.Batch(Word, {"time": [1, 2], "text": ["a", "b"]})',
            )
        self._columns = from_columns(record_schema(record), dict(columns))
        self._origin = None if origin is None else _positions("origin", origin)
        if self._origin is not None and len(self._origin) != len(self._columns):
            raise StateError(
                f"origin has {len(self._origin)} entries for {len(self)} rows of {record.__name__}"
            )

    @classmethod
    def _of(cls, columns: Columns, origin: np.ndarray | None = None) -> Batch[Any]:
        batch = cls.__new__(cls)
        batch._columns = columns
        batch._origin = origin
        return batch

    @property
    def record(self) -> type[T_co]:
        """The record class."""
        return self._columns.schema.cls

    def __getitem__(self, column: str) -> Any:
        f = self._columns.schema.field(column)
        if f is None:
            raise KeyError(
                f"{self.record.__name__} has no field {column!r}; it has"
                f" {', '.join(self._columns.schema.names)}"
            )
        return self._columns.shown(f)

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[T_co]:
        return self.records()

    def records(self) -> Iterator[T_co]:
        """The rows as records."""
        return self._columns.records()

    @placed
    def take(self, positions: Any) -> Batch[T_co]:
        """The rows at these positions, or where a mask of as many as there are rows is true; as an
        operator's output, they come from those rows.

        Raises:
            StateError: there is no such row.
        """
        at = np.asarray(positions)
        if at.dtype == np.bool_ and at.shape == (len(self),):
            at = np.flatnonzero(at)
        at = _positions("take", at)
        if len(at) and (at.min() < 0 or at.max() >= len(self)):
            raise StateError(f"take: positions from {at.min()} to {at.max()} in {self!r}")
        return Batch._of(self._columns.take(at), at)

    def __repr__(self) -> str:
        return f"Batch({self.record.__name__}, {len(self)} rows)"


def _positions(what: str, given: Any) -> np.ndarray:
    at = np.asarray(given)
    if at.ndim != 1 or (len(at) and at.dtype.kind not in "iu"):
        shape = "x".join(map(str, at.shape))
        raise StateError(
            f"{what}: {shape or 'one'} of {at.dtype} are no positions",
            hint="Positions are a list or an array of integers; a mask has a bool for each row.",
        )
    return at.astype(np.int64, copy=False)


class Rows(Generic[S]):
    """The state rows of the distinct keys of a batch.

    `rows["n"]` is a column with one entry per distinct key. What it holds when the call ends is the
    new state, however it came there: `rows["n"] += ...`, `rows["n"][...] = ...`, or `rows["n"] = `
    an array of that length, or one number for all. It is int64, float64 or bool; what does not fit
    a narrower field is refused. `rows.index` says for each record of the batch which entry is its
    key's, `rows.nth` how many records of its key came before it in the batch; `rows.counts` says
    for each entry how many records it has. All three are int64 and read-only.
    """

    __slots__ = ("_columns", "_index", "_length", "_ordinals", "_read", "_schema")

    def __init__(
        self,
        schema: StateSchema,
        read: Callable[[str], np.ndarray],
        length: int,
        index: np.ndarray,
    ) -> None:
        self._schema = schema
        self._read = read
        self._length = length
        self._columns: dict[str, np.ndarray] = {}
        self._index = index
        self._index.flags.writeable = False
        self._ordinals: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def index(self) -> np.ndarray:
        """For each record which entry is its key's."""
        return self._index

    @property
    def nth(self) -> np.ndarray:
        """For each record how many records of its key came before it in this batch."""
        return self._ordered()[0]

    @property
    def counts(self) -> np.ndarray:
        """For each distinct key how many records of it are in this batch."""
        return self._ordered()[1]

    def _ordered(self) -> tuple[np.ndarray, np.ndarray]:
        if self._ordinals is None:
            from raystream.state.kernels import ordinals

            self._ordinals = ordinals(self._index, len(self))
            for found in self._ordinals:
                found.flags.writeable = False
        return self._ordinals

    def __getitem__(self, column: str) -> Any:
        if column not in self._columns:
            stored = self._read(column)
            # A view: a batch that is made of it copies it.
            self._columns[column] = stored.astype(_WIDE[stored.dtype.kind], copy=False)[:]
        return self._columns[column]

    def __setitem__(self, column: str, values: Any) -> None:
        mine = self[column]
        if values is mine:  # `rows["n"] += ...`
            return
        if np.ma.is_masked(values):
            raise StateError(f"{self._schema.name}.{column}: a masked number, which is None")
        given = np.asarray(values)
        if given.shape not in ((), mine.shape):
            raise StateError(
                f"{self._schema.name}.{column}: an array of shape {given.shape}, not {mine.shape}",
                hint="One for each distinct key: rows.index says which is each record's.",
            )
        mine[...] = numbers(self._schema.name, self._schema.field(column), np.atleast_1d(given))

    def __len__(self) -> int:
        return self._length

    def _stored(self) -> dict[str, np.ndarray]:
        """The columns that were used, as they are stored."""
        name, field = self._schema.name, self._schema.field
        return {n: numbers(name, field(n), column) for n, column in self._columns.items()}


_WIDE = {"b": np.bool_, "i": np.int64, "f": np.float64}
"""Rows hold numbers as Python has them: a narrow one would wrap around in what NumPy computes."""
