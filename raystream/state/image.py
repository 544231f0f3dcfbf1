"""Images: the stored checkpoint of one operator, one range and one cut, as bytes.

An image is a header and columns. Its rows are sorted by key group and key, so partitioning is
slicing; there is one form, whether the rows lived as Python objects or in structured storage, so
either can be restored from the other. A *delta* holds what changed since its base cut, and the keys
that went; a *full* image is a delta since cut 0, when there was nothing. Images are never changed.

    magic 8 · version u16 · crc32 u32 · header length u32 · header (msgpack), padded · Arrow streams

The checksum covers all that follows it. Nothing is unpickled.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.schema.types import BEFORE_ALL, KeyRange
from raystream.state.counts import Counted
from raystream.state.priority import step_aside

MAGIC = b"raystate"
VERSION = 4
_PREFIX, _SIZE = struct.Struct("<8sHII"), struct.Struct("<I")
_ALIGN = 64
SMALL = 1 << 16
"""Bytes of rows, with those around them in the same memory."""
_STREAM = pa.ipc.IpcWriteOptions()
"""Without options PyArrow looks for some in the environment, each time."""

KEY = "key:"
"""Prefix of key columns."""
START, END = "window:start", "window:end"
"""Columns of windows; ends are stored for sessions only."""
SLOT = "slot:"
"""int32, the last column: in which slot of a table a row is, or one that is gone was."""


class Ended(NamedTuple):
    """A producer range whose last epoch was `epoch`."""

    epoch: int
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an instance stood in its input at the end of a cut, beside its position, the cut.

    watermark: of the instance. ended: the cut is its last epoch. inlets: per edge the ranges of its
    producer that have ended. splits: of a source, per split its key group and whatever numbers say
    where to read on. counts: what the range has done so far, so that totals survive a restore.
    """

    watermark: int = BEFORE_ALL
    ended: bool = False
    inlets: Mapping[int, tuple[Ended, ...]] = field(default_factory=dict)
    splits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    counts: Counted = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What an image is of.

    shape: names and types of key, window and state fields, in words; "" without state.
    base: the cut that a delta was taken against; 0 in a full image.
    oldest: the cut of the oldest image that is needed with a delta; 0 where it is that which its
    base needs, too.
    table: whose slots its rows name; "" where they name none.
    """

    operator: str
    shape: str
    groups: int
    keys: KeyRange
    base: int
    cut: int
    standing: Standing
    oldest: int = 0
    table: str = ""

    def __str__(self) -> str:
        kind = f"delta {self.base} to {self.cut}" if self.base else f"cut {self.cut}"
        return f"image of {self.operator} {self.keys} at {kind}"


def oldest_of(headers: Sequence[ImageHeader]) -> int:
    """The cut of the oldest image that is needed with the last of these, each of which is a delta
    on the one before; the first one's base where it is not among them."""
    for header in reversed(headers):
        if header.oldest or not header.base:
            return header.oldest or header.cut
    return headers[0].base


def check_whole(headers: Sequence[ImageHeader]) -> None:
    """Check that images, each a delta on the one before, hold all rows together.

    Raises:
        StateError: older ones are needed, or they are not of the table whose rows were refreshed.
    """
    if (needed := oldest_of(headers)) != headers[0].cut:
        raise StateError(f"the {headers[-1]} needs the image of cut {needed} first")
    last = max((i for i, h in enumerate(headers) if h.oldest), default=0)
    for header in headers[:last]:
        if header.table != headers[last].table:
            raise StateError(f"the {header} and the {headers[last]} are not of one table")


@dataclass(frozen=True, slots=True)
class Image:
    """rows: key columns, window columns, state fields. gone: key columns of removed rows. Both
    sorted by key group and key; None for an operator without state. If the header names a table
    they have a column `SLOT` too, and of what is gone is each slot that a key has left."""

    header: ImageHeader
    rows: Any
    gone: Any

    def __len__(self) -> int:
        return 0 if self.rows is None else int(self.rows.num_rows)

    @property
    def nbytes(self) -> int:
        """What its rows take, in memory and about as much stored."""
        return sum(int(part.nbytes) for part in (self.rows, self.gone) if part is not None)

    def encode(self) -> memoryview:
        """The stored form; equal images have equal bytes.

        Every byte is written once, without the interpreter's lock: others compute meanwhile. Only
        what is small is written and then copied, which takes less than to measure it first.
        """
        head = msgpack.packb(_packed(self.header))
        head += bytes(-(_PREFIX.size + len(head)) % _ALIGN)
        body = _PREFIX.size + len(head)
        if self._small():
            copied = pa.BufferOutputStream()
            self._write(copied)
            streams = copied.getvalue()
            data = np.empty(body + streams.size, np.uint8).data
            data[body:] = memoryview(streams).cast("B")
        else:
            measured = pa.MockOutputStream()
            self._write(measured)
            data = np.empty(body + measured.size(), np.uint8).data
            step_aside(measured.size())
            self._write(pa.FixedSizeBufferWriter(pa.py_buffer(data[body:])))
        data[_PREFIX.size : body] = head
        step_aside(len(data))
        checksum = zlib.crc32(data[body:], zlib.crc32(head, zlib.crc32(_SIZE.pack(len(head)))))
        data[: _PREFIX.size] = _PREFIX.pack(MAGIC, VERSION, checksum, len(head))
        return data.toreadonly()

    def _small(self) -> bool:
        parts = [part for part in (self.rows, self.gone) if part is not None]
        return sum([part.get_total_buffer_size() for part in parts]) <= SMALL

    def _write(self, sink: Any) -> None:
        for batch in (self.rows, self.gone):
            if batch is not None:
                with pa.ipc.new_stream(sink, batch.schema, options=_STREAM) as writer:
                    writer.write_batch(batch)


def decode(data: Any) -> Image:
    """The image whose stored form is `data` (bytes or an Arrow buffer), over the same memory.

    Raises:
        StateError: it is no image, an image of another version, or damaged.
    """
    header, streams = _opened(data)
    if not header.shape:
        return Image(header, None, None)
    source = pa.BufferReader(streams)
    rows, gone = (_batch(source) for _ in range(2))
    return Image(header, rows, gone)


def header_of(data: Any) -> ImageHeader:
    """The header of an image whose stored form is `data`, all of which is checked as by `decode`;
    only its rows are not looked at.

    Raises:
        StateError: as `decode`.
    """
    return _opened(data)[0]


def _opened(data: Any) -> tuple[ImageHeader, Any]:
    """The header of an image, and the buffer of all that follows it."""
    buffer = pa.py_buffer(data)
    view = memoryview(buffer)
    if len(view) < _PREFIX.size or view[: len(MAGIC)].tobytes() != MAGIC:
        raise StateError(f"{len(view)} bytes that are no checkpoint: they do not begin as one")
    _, version, checksum, size = _PREFIX.unpack_from(view)
    if version != VERSION:
        raise StateError(
            f"a checkpoint of format version {version}; this raystream reads version {VERSION}",
            hint="Resume with the version of raystream that wrote it.",
        )
    if zlib.crc32(view[_PREFIX.size - _SIZE.size :]) != checksum:
        raise StateError(
            f"a checkpoint of {len(view)} bytes is damaged: its checksum is another",
            hint="Another copy may be whole.",
        )
    # Of a size of its own: it would make room for a megabyte, each time.
    unpacker = msgpack.Unpacker(strict_map_key=False, use_list=False, read_size=size)
    unpacker.feed(view[_PREFIX.size : _PREFIX.size + size])
    return _unpacked(unpacker.unpack()), buffer.slice(_PREFIX.size + size)


def _batch(source: Any) -> Any:
    with pa.ipc.open_stream(source) as reader:
        batch = reader.read_next_batch()
        for _ in reader:  # to the end of the stream, where the next begins
            pass
    return batch


def _packed(header: ImageHeader) -> list[Any]:
    s = header.standing
    return [
        header.operator,
        header.shape,
        header.groups,
        header.keys,
        header.base,
        header.cut,
        header.oldest,
        header.table,
        s.watermark,
        s.ended,
        *(sorted(d.items()) for d in (s.inlets, s.splits, s.counts)),
    ]


def _unpacked(values: tuple[Any, ...]) -> ImageHeader:
    operator, shape, groups, keys, base, cut, oldest, table, *stands = values
    watermark, ended, inlets, splits, counts = stands
    ends = {edge: tuple(Ended(*e) for e in ranges) for edge, ranges in inlets}
    standing = Standing(watermark, ended, ends, dict(splits), dict(counts))
    whole = KeyRange(*keys)
    return ImageHeader(operator, shape, groups, whole, base, cut, standing, oldest, table)
