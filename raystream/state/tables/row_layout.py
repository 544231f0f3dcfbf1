"""How structured rows lie in memory: their dtype, their keys, their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raystream.schema.state import StateSchema


def head_fields(columns: int) -> list[Any]:
    """The fields that every row begins with, for keys of that many columns."""
    return [("_key", "i8", (columns,)), ("_epoch", "i8")]


def row_dtype(schema: StateSchema, columns: int) -> np.dtype[Any]:
    """The aligned dtype of the rows of a table, for keys of that many columns."""
    fields = head_fields(columns)
    for name in schema.dtype.names or ():
        shaped = schema.dtype[name].subdtype
        fields.append((name, schema.dtype[name]) if shaped is None else (name, *shaped))
    return np.dtype(fields, align=True)


def key_columns(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Key columns as the one kind of array that kernels are compiled for."""
    return tuple(np.require(c, np.int64, ("C", "A", "W")) for c in columns)


def in_key_order(rows: np.ndarray) -> np.ndarray:
    """Structured rows, sorted by key (numeric, column by column)."""
    return rows[np.lexsort(rows["_key"].T[::-1])]
