"""Key groups for users: which part of a reference table belongs to a range."""

from __future__ import annotations

from typing import Any

import numpy as np


def key_groups(*columns: Any, groups: int = 256) -> np.ndarray:
    """The key group (uint16) of each key that is held in columns of integers, text or bytes.

    Args:
        columns: one array or sequence per key field, in the order of the operator's `key`.
        groups: the number of key groups of the flow (256 unless set).
    """
    from raystream.state import kernels

    return kernels.key_groups([_column(c) for c in columns], groups)


def _column(values: Any) -> Any:
    """Integers as a NumPy array, text and bytes as an Arrow array."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, np.ndarray | pa.Array):
        values = pa.array(values)
    if isinstance(values, pa.Array) and not pa.types.is_integer(values.type):
        return values
    return np.asarray(values)
