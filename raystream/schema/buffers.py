"""Columns as bare blocks of memory: so they cross sockets and are spilled, without a conversion.

A number column is one block. Decimals are two: which rows are not None (a bit each; empty where all
are), and 16 bytes each. Text and bytes are three: which rows are not None, where each begins
(int32, from 0 on), and their bytes. The hidden rank column comes last. Nothing here says how long
the blocks are; the sender does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.schema.columns import ARROW, Columns, arrow_of, physical
from raystream.schema.records import RecordSchema

ALIGNED = 8
"""Blocks begin at multiples of this many bytes, where processors read numbers fastest."""

_NOTHING = np.zeros(0, np.uint8)
_PADDING = memoryview(bytes(ALIGNED))


def blocks_of(columns: Columns) -> list[np.ndarray]:
    """uint8: the blocks of columns of at least one row, over the same memory where that is
    possible."""
    blocks: list[np.ndarray] = []
    for array in columns.arrays:
        if isinstance(array, np.ndarray):
            blocks.append(np.ascontiguousarray(array).view(np.uint8))
        elif pa.types.is_decimal(array.type):
            blocks += _decimals(array)
        else:
            blocks += _texts(array)
    if columns.rank is not None:
        blocks.append(np.ascontiguousarray(columns.rank).view(np.uint8))
    return blocks


def _texts(array: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    first, last = ends[0], ends[-1]
    there = _there(array)
    content = np.frombuffer(data, np.uint8, last - first, first) if last > first else _NOTHING
    return there, (ends - first if first else ends).view(np.uint8), content


def _decimals(array: Any) -> tuple[np.ndarray, np.ndarray]:
    _, data = array.buffers()
    size = _DECIMAL_BYTES * len(array)
    return _there(array), np.frombuffer(data, np.uint8, size, _DECIMAL_BYTES * array.offset)


_DECIMAL_BYTES = 16


def _there(array: Any) -> np.ndarray:
    """Which rows are not None, a bit each; nothing where all are."""
    if not array.null_count:
        return _NOTHING
    return np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")


def padded(blocks: Sequence[np.ndarray]) -> list[memoryview]:
    """The bytes of these blocks, each filled up to where the next may begin."""
    parts: list[memoryview] = []
    for block in blocks:
        parts.append(block.data)
        if len(block) % ALIGNED:
            parts.append(_PADDING[: -len(block) % ALIGNED])
    return parts


def columns_in(
    schema: RecordSchema, rows: int, sizes: Sequence[int], memory: np.ndarray
) -> Columns:
    """Columns over the memory that blocks of these sizes were put into, padded.

    Args:
        memory: uint8, read-only.

    Raises:
        ValueError: it does not hold such columns.
    """
    blocks = _cut(sizes, memory)
    arrays: list[Any] = []
    for _, kind, dtype in physical(schema):
        if kind == "number":
            arrays.append(_numbers(next(blocks, _NOTHING), np.dtype(dtype), rows))
        elif kind == "decimal":
            there, data = (next(blocks, _NOTHING) for _ in range(2))
            arrays.append(_decimal(arrow_of(kind, dtype), rows, there, data))
        else:
            arrays.append(_text(ARROW[kind], rows, *(next(blocks, _NOTHING) for _ in range(3))))
    rank = [_numbers(block, _RANK, rows) for block in blocks]
    if len(rank) > 1:
        raise ValueError("more blocks than columns")
    return Columns(schema, arrays, rows, rank[0] if rank else None)


_RANK = np.dtype(np.int64)


def _cut(sizes: Sequence[int], memory: np.ndarray) -> Iterator[np.ndarray]:
    ends = list(accumulate(size + -size % ALIGNED for size in sizes))
    if (ends[-1] if ends else 0) != len(memory):
        raise ValueError(f"blocks of {ends[-1] if ends else 0} bytes in {len(memory)}")
    return (memory[at : at + n] for at, n in zip([0, *ends], sizes, strict=False))


def _numbers(block: np.ndarray, dtype: np.dtype[Any], rows: int) -> np.ndarray:
    if len(block) != rows * dtype.itemsize:
        raise ValueError(f"{len(block)} bytes are not {rows} numbers of {dtype}")
    return block.view(dtype)


def _text(kind: Any, rows: int, there: np.ndarray, ends: np.ndarray, content: np.ndarray) -> Any:
    numbers = _numbers(ends, np.dtype(np.int32), rows + 1)
    if numbers[0] or numbers[-1] != len(content) or (numbers[1:] < numbers[:-1]).any():
        raise ValueError(f"{len(content)} bytes are not {rows} texts")
    valid = _valid(there, rows)
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(ends), pa.py_buffer(content)])


def _decimal(kind: Any, rows: int, there: np.ndarray, data: np.ndarray) -> Any:
    if len(data) != rows * _DECIMAL_BYTES:
        raise ValueError(f"{len(data)} bytes are not {rows} decimals")
    return pa.Array.from_buffers(kind, rows, [_valid(there, rows), pa.py_buffer(data)])


def _valid(there: np.ndarray, rows: int) -> Any:
    if len(there) and len(there) * 8 < rows:
        raise ValueError(f"{len(there)} bytes do not say which of {rows} rows are there")
    return pa.py_buffer(there) if len(there) else None
