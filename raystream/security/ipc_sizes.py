"""How large an Arrow IPC stream becomes, before anything of it is unpacked.

A few kilobytes can become many gigabytes: by compressed buffers, and by a long text to
which many rows point, in a dictionary or by views. So this module first adds up the sizes that the
stream declares. They are in the metadata of its messages, which are FlatBuffers tables
(`Message.fbs` of the Arrow format). It reads only the few numbers that it needs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.errors import InputError

MOST_ROWS = 1 << 20
"""A request may have at most this many records."""
_NOT_COMPRESSED = -1
_WITH_BUFFERS = ("dictionary", "record batch")
_DICTIONARY, _RECORDS = 2, 3
"""Kinds of messages (`MessageHeader`) that have buffers."""


def refuse_large(body: bytes, most: int) -> None:
    """Refuse a stream whose compressed buffers become too large.

    Args:
        most: bytes that the compressed buffers may have together once they are unpacked.

    Raises:
        InputError: they have more, or the stream has more than `MOST_ROWS` rows.
        ValueError, OSError, pa.ArrowException: the stream is damaged.
    """
    total = rows = 0
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type not in _WITH_BUFFERS:
            continue
        number, sizes = _sizes(message.metadata.to_pybytes(), message.body)
        rows += number if message.type == "record batch" else 0
        total += sum(sizes)
        refuse_rows(rows)
        if total > most:
            raise InputError(
                f"its buffers have more than {most:,} bytes once they are not compressed",
                hint="Send less at once.",
            )


def refuse_compressed(streams: Any) -> None:
    """Refuse compressed buffers in an image, which is two Arrow IPC streams, one after the other.
    raystream writes none, so another program wrote such an image.

    Raises:
        ValueError: a buffer is compressed, or a stream is damaged.
    """
    source = pa.BufferReader(streams)
    for _ in range(2):
        for message in pa.ipc.MessageReader.open_stream(source):
            if (
                message.type in _WITH_BUFFERS
                and _sizes(message.metadata.to_pybytes(), message.body)[1]
            ):
                raise ValueError("its buffers are compressed")


def refuse_rows(rows: int) -> None:
    """Refuse more records than a request may have.

    Raises:
        InputError: there are more.
    """
    if rows > MOST_ROWS:
        raise InputError(f"more than {MOST_ROWS:,} records", hint="Send less at once.")


def refuse_long(column: Any, name: str, most: int) -> None:
    """Refuse a column that becomes too large without its dictionary, or with its views one by one.

    Args:
        column: an Arrow array of any type; only texts and bytes with a dictionary or as views are
            measured: the same bytes may count many times in them.
        name: that of the column. most: bytes that its values may have together.

    Raises:
        InputError: they have more.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if is_view(column.type):
        total, without = sum(map(_bytes_of_views, chunks)), "views"
    elif pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
        total, without = sum(map(_bytes_without_dictionary, chunks)), "its dictionary"
    else:
        return
    if total > most:
        raise InputError(
            f"the column {name!r} has more than {most:,} bytes without {without}",
            hint="Send less at once.",
        )


def is_view(kind: Any) -> bool:
    """Whether values of a type of Arrow say where their text or bytes are, as Polars sends them."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_text(kind: Any) -> bool:
    return bool(
        pa.types.is_large_string(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _bytes_of_views(array: Any) -> int:
    """A view has 16 bytes, of which the first four are the length."""
    views = np.frombuffer(array.buffers()[1] or b"", np.int32).reshape(-1, 4)
    there = views[array.offset : array.offset + len(array), 0][np.asarray(array.is_valid())]
    return int(there.sum(dtype=np.int64))


def _bytes_without_dictionary(array: Any) -> int:
    import pyarrow.compute as pc  # takes a while, and only dictionaries need it

    lengths = pc.binary_length(array.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(array.indices)).as_py() or 0


def _sizes(metadata: bytes, body: Any) -> tuple[int, list[int]]:
    """The number of rows that a message declares, and the unpacked sizes of its compressed buffers.

    Raises:
        ValueError: the metadata is damaged.
    """
    try:
        message = _at(metadata, 0)
        kind = _number(metadata, message, 1, "<B")
        table = _follow(metadata, message, 2)
        if kind == _DICTIONARY:
            table = _follow(metadata, table, 1)
        if table is None or kind not in (_DICTIONARY, _RECORDS):
            raise ValueError("a message without records")
        rows = _number(metadata, table, 0, "<q")
        compressed = _follow(metadata, table, 3) is not None
        return rows, [*_unpacked(metadata, table, body)] if compressed else []
    except struct.error:
        raise ValueError("the metadata of a message is damaged") from None


def _unpacked(metadata: bytes, table: int | None, body: Any) -> Iterator[int]:
    """The unpacked sizes of compressed buffers. Each buffer begins with its own, as int64."""
    vector = _follow(metadata, table, 2)
    if vector is None:
        return
    (count,) = struct.unpack_from("<I", metadata, vector)
    data = memoryview(body) if body is not None else memoryview(b"")
    for i in range(count):
        offset, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * i)
        if length >= 8:
            if offset < 0:
                raise ValueError("a buffer before the message")
            (size,) = struct.unpack_from("<q", data, offset)
            if size != _NOT_COMPRESSED:
                if size < 0:
                    raise ValueError("a buffer of less than no bytes")
                yield size


def _at(data: bytes, place: int) -> int:
    """The place to which the offset at a place points."""
    (offset,) = struct.unpack_from("<I", data, place)
    return place + offset


def _field(data: bytes, table: int | None, slot: int) -> int | None:
    """The place of a field of a table; None if the table does not have the field."""
    if table is None:
        return None
    (back,) = struct.unpack_from("<i", data, table)
    names = table - back
    if names < 0:
        raise ValueError("a table before the message")
    (size,) = struct.unpack_from("<H", data, names)
    if 4 + 2 * slot + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", data, names + 4 + 2 * slot)
    return table + offset if offset else None


def _follow(data: bytes, table: int | None, slot: int) -> int | None:
    """The place of the table or vector to which a field points; None without the field."""
    field = _field(data, table, slot)
    return None if field is None else _at(data, field)


def _number(data: bytes, table: int | None, slot: int, form: str) -> int:
    field = _field(data, table, slot)
    return 0 if field is None else int(struct.unpack_from(form, data, field)[0])
