"""Key groups for users: which part of a reference table belongs to a range."""

from __future__ import annotations

from typing import Any

import numpy as np

from raystream.api.arguments import whole
from raystream.errors import StateError, placed
from raystream.schema.types import MAX_KEY_GROUPS


@placed
def key_groups(*columns: Any, groups: int = 256) -> np.ndarray:
    """The key group (uint16) of each key that is held in columns of integers, bools, text or bytes.

    Args:
        columns: one array or sequence per key field, in the order of the operator's `key`.
        groups: the number of key groups of the flow (256 unless set).

    Raises:
        StateError: these are no keys: some are None, of another type, or of fewer fields.
    """
    from raystream.state import kernels

    groups = whole("key_groups", "groups", groups, 1, MAX_KEY_GROUPS)
    held = [_column(c) for c in columns]
    if len({len(c) for c in held}) != 1:
        lengths = ", ".join(str(len(c)) for c in held) or "no columns"
        raise StateError(f"key_groups: columns of one length are keys, not of {lengths}")
    return kernels.key_groups(held, groups)


def _column(values: Any) -> Any:
    """Integers as a NumPy array, text and bytes as an Arrow array."""
    if isinstance(values, np.ndarray):
        if values.ndim == 1 and values.dtype.kind in "iub":
            return values
        return _held(values.tolist())
    return _held(values)


def _held(values: Any) -> Any:
    """The same of an Arrow array or a sequence."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        try:
            values = pa.array(values)
        except (TypeError, ValueError, pa.ArrowException):
            raise StateError(
                f"key_groups: {values!r:.80} is no column of keys",
                hint="A column is a list or an array of ints, bools, str or bytes.",
            ) from None
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    kind = values.type
    if values.null_count:
        raise StateError(f"key_groups: {values.null_count} of {len(values)} keys are None")
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or not len(values):
        return values.to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return values
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    raise StateError(
        f"key_groups: {kind} is no type of keys", hint="Keys are ints, bools, str or bytes."
    )
