"""The frame of one epoch with a few records whose columns are all numbers: its form is fixed.

In a paced job most frames hold one small epoch, so the work for each frame is most of the cost.
This form needs no msgpack, no list of sizes and no chunks, because both sides know the columns. All
other epochs travel as messages (`wire.py`).

The body is the offsets, int64 [R + 1] for the R key groups of the consumer's range, and then the
columns, each filled up to a multiple of 8 bytes.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np

from raystream.actors.network.frames import BEGINNING, EPOCH
from raystream.dataflow.pieces import Header, Piece
from raystream.errors import JobError
from raystream.schema.buffers import ALIGNED
from raystream.schema.columns import Columns, physical
from raystream.schema.records import RecordSchema
from raystream.schema.types import KeyRange
from raystream.state.log.epoch_log import LogEntry

CHECKPOINT, ENDED, IDLE = 1, 2, 4
"""Flags of a header."""

_HEAD = struct.Struct("<qqIIIB2xI")
"""Epoch, watermark, rows, the producer's range, flags, the version of the code. With the beginning
of a frame it fills a multiple of 8 bytes."""
_WHOLE = struct.Struct(BEGINNING.format + _HEAD.format[1:])
_PADDING = [bytes(-size % ALIGNED) for size in range(ALIGNED)]
_OFFSET = np.dtype(np.int64)


@cache
def dtypes_of(schema: RecordSchema) -> tuple[np.dtype[Any], ...] | None:
    """The dtypes of the columns; None if one of them is no number."""
    columns = physical(schema)
    if any(kind != "number" for _, kind, _ in columns):
        return None
    return tuple(np.dtype(dtype) for _, _, dtype in columns)


def epoch_frame(entry: LogEntry[Header], keys: KeyRange) -> bytes | None:
    """The frame with the part of an epoch for a consumer range. None if the part has no rows, or
    does not fit this form: then it travels as a message."""
    if dtypes_of(entry.rows.schema) is None:
        return None
    rows, offsets = entry.part(keys)
    if not rows.length or rows.rank is not None:
        return None
    header = entry.header
    size = offsets.nbytes
    parts: list[Any] = [b"", offsets]
    for array in rows.arrays:
        parts.append(array if array.flags.c_contiguous else array.copy())
        nbytes = array.nbytes
        if rest := nbytes % ALIGNED:
            parts.append(_PADDING[rest])
            nbytes += ALIGNED - rest
        size += nbytes
    lo, hi = header.keys
    flags = CHECKPOINT * header.checkpoint | ENDED * header.ended | IDLE * header.idle
    at = (header.epoch, header.watermark, rows.length)
    parts[0] = _WHOLE.pack(EPOCH, _HEAD.size, size, *at, lo, hi, flags, header.code)
    return b"".join(parts)


class EpochDecoder:
    """Reads the frames of this form that come on one subscription.

    Args:
        keys: the range of the consumer.
    """

    def __init__(self, schema: RecordSchema, keys: KeyRange) -> None:
        self._schema = schema
        self._dtypes = dtypes_of(schema)
        self._offsets = _OFFSET.itemsize * (len(keys) + 1)
        self._producer = KeyRange(0, 0)

    def piece(self, head: bytes, body: np.ndarray) -> Piece:
        """The piece of a frame.

        Args:
            body: uint8, read-only. The piece is a view of it.

        Raises:
            JobError: it is no such frame, or one of another schema or range.
        """
        at, arrays = self._offsets, []
        try:
            epoch, watermark, rows, lo, hi, flags, code = _HEAD.unpack(head)
            for dtype in self._dtypes or ():
                end = at + rows * dtype.itemsize
                arrays.append(body[at:end].view(dtype))
                at = end + -end % ALIGNED
            offsets = body[: self._offsets].view(_OFFSET)
            fits = at == len(body) and offsets[0] == 0 and offsets[-1] == rows > 0
            fits = fits and not (offsets[1:] < offsets[:-1]).any()
        except (ValueError, struct.error):
            fits = False
        if not fits or self._dtypes is None:
            raise JobError(f"an epoch of {self._schema.name} came damaged")
        producer = self._producer
        if producer.lo != lo or producer.hi != hi:
            producer = self._producer = KeyRange(lo, hi)
        header = Header(
            epoch,
            producer,
            watermark,
            flags & CHECKPOINT > 0,
            flags & ENDED > 0,
            flags & IDLE > 0,
            code=code,
        )
        return Piece(header, Columns(self._schema, arrays, rows), offsets)
