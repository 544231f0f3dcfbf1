"""How rows are stored: the Arrow schema of an operator's rows, whichever table holds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.schema.fields import Field
from raystream.schema.state import StateSchema
from raystream.state.images.image import END, KEY, START


@dataclass(frozen=True)
class RowShape:
    """What the rows of an operator hold: its key fields, state class, and kind of window."""

    keys: tuple[Field, ...]
    state: StateSchema
    window: str = ""
    """The kind of window in words; "" without windows."""
    sessions: bool = False
    """Whether each row has a number of its own in the column of ends: when a session ends, when a
    window is due next, or how many records a window has."""

    @cached_property
    def fingerprint(self) -> str:
        """Equal for two operators whose images can be exchanged."""
        return f"{self.state.fingerprint}{_BY}{self.by}"

    @cached_property
    def by(self) -> str:
        """The words of the fingerprint for what a row is kept by."""
        keys = ", ".join(f"{f.name}: {_key_words(f)}" for f in self.keys)
        return f"{keys}{', ' if self.window else ''}{self.window}"

    def may_take(self, stored: str) -> bool:
        """Whether rows of the stored fingerprint have the same keys and windows. If so, rows of
        another version of the state class can be upgraded."""
        return stored.partition(_BY)[2] == self.by

    @property
    def upgrade_words(self) -> str:
        """What the user has to do to go on with rows that `may_take` allows."""
        return (
            f"To go on with these rows declare in {self.state.name}:"
            "\n    @classmethod"
            "\n    def upgrade(cls, old: Mapping[str, Any]) -> Self: ..."
        )

    @cached_property
    def gone(self) -> Any:
        """The Arrow schema of removed rows."""
        fields = [pa.field(KEY + f.name, key_type(f), nullable=f.optional) for f in self.keys]
        if self.window:
            fields.append(pa.field(START, pa.int64(), nullable=False))
        return pa.schema(fields)

    @cached_property
    def nothing_gone(self) -> Any:
        """A batch without removed rows, which is the usual case."""
        return empty_batch(self.gone)

    @cached_property
    def no_rows(self) -> Any:
        """A batch without rows: often none of a few keys has changed."""
        return empty_batch(self.rows)

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


def _key_words(f: Field) -> str:
    return _KEY_WORDS[key_type(f)] + " | None" * f.optional


def key_type(f: Field) -> Any:
    """How a key field is stored."""
    return {"text": pa.string(), "bytes": pa.binary()}.get(f.kind, pa.int64())


def field_type(f: Field) -> Any:
    """How a state field is stored. A Python float has 64 bits, whatever was declared: in 32 bits it
    would be another number after a restore."""
    if f.kind == "array":
        return pa.list_(pa.field("item", number_type(f.dtype), nullable=False), f.size)
    if f.kind == "fixed":
        return number_type(f.dtype)
    if f.value is not None and f.value.digits is not None:
        return pa.decimal128(f.value.digits.precision, f.value.digits.scale)
    return pa.string() if f.kind == "text" else pa.binary()


@lru_cache(maxsize=64)
def number_type(dtype: str) -> Any:
    """How numbers of a NumPy dtype are stored."""
    return pa.float64() if dtype == "f4" else pa.from_numpy_dtype(np.dtype(dtype))


def empty_batch(schema: Any) -> Any:
    """A batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def numbered_shape(state: StateSchema, keys: int, *, windows: bool = False) -> RowShape:
    """The shape of rows whose key is `keys` numbers, for a table without an operator."""
    fields = tuple(Field(name=f"key{i}", kind="fixed", dtype="i8") for i in range(keys))
    return RowShape(fields, state, "in windows" if windows else "")
