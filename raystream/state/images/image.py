"""Images: the stored checkpoint of one operator and one range, as bytes.

An image is a header and columns. Its rows are sorted by key group and key, so partitioning is
slicing; there is one form, whether the rows lived as Python objects or in structured storage, so
either can be restored from the other. A *delta* holds what changed since its base, an older
checkpoint, and the keys that were removed; a *full* image is a delta since checkpoint 0, when there
was nothing. Images are never changed.

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
from raystream.native.thread_priority import step_aside
from raystream.schema.types import BEFORE_ALL, KeyRange
from raystream.security.ipc_sizes import refuse_compressed
from raystream.state.counts import EncodedCounts

MAGIC = b"raystate"
VERSION = 4
_PREFIX, _SIZE = struct.Struct("<8sHII"), struct.Struct("<I")
_ALIGN = 64
SMALL = 1 << 16
"""Images of up to this many bytes are small (see `Image.encode`). The bytes of whole buffers count,
also those that lie around the rows."""
_STREAM = pa.ipc.IpcWriteOptions()
"""Without options PyArrow looks for some in the environment, each time."""

KEY = "key:"
"""Prefix of key columns."""
START, END = "window:start", "window:end"
"""Columns of windows; ends are stored for sessions only."""
SLOT = "slot:"
"""int32, the last column: in which slot of a table a row is, or one that is gone was."""


class EndedRange(NamedTuple):
    """A producer range that has ended."""

    epoch: int
    """The last epoch of the range."""
    lo: int
    """Its first key group."""
    hi: int
    """The key group after its last one."""


@dataclass(frozen=True, slots=True)
class InputPosition:
    """Where an instance stood in its input at a checkpoint, in addition to the epoch itself."""

    watermark: int = BEFORE_ALL
    """The watermark of the instance."""
    ended: bool = False
    """Whether the checkpoint is its last epoch."""
    inlets: Mapping[int, tuple[EndedRange, ...]] = field(default_factory=dict)
    """By edge the ranges of its producer that have ended."""
    splits: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """For a source: by split its key group, and what says where to read on."""
    counts: EncodedCounts = field(default_factory=dict)
    """What the range has done so far, so that totals survive a restore."""
    control: bytes = b""
    """The row of the operator's control stream, which all its ranges have alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """Describes what an image holds."""

    operator: str
    """The name of the vertex."""
    shape: str
    """Names and types of key, window and state fields, in words; "" without state."""
    groups: int
    """The number of key groups of the job."""
    keys: KeyRange
    """The range that it holds."""
    base: int
    """The checkpoint that a delta was taken against; 0 in a full image."""
    checkpoint: int
    """The epoch at whose end it was taken."""
    input_position: InputPosition
    """The position of the instance in its input."""
    oldest: int = 0
    """The checkpoint of the oldest image that a delta needs; 0 where that is the oldest one that
    its base needs."""
    table: str = ""
    """The name of the table whose slots the rows name; "" where they name none."""
    code: int = field(default=0, compare=False)
    """The number of the version of the code that made it. It is not stored with the image: keepers
    are told."""

    def __str__(self) -> str:
        kind = (
            f"delta {self.base} to {self.checkpoint}"
            if self.base
            else f"checkpoint {self.checkpoint}"
        )
        return f"image of {self.operator} {self.keys} at {kind}"


def oldest_of(headers: Sequence[ImageHeader]) -> int:
    """The checkpoint of the oldest image that the last of these images needs, or the base of the
    first one if that image is not among them. Each of them is a delta on the one before."""
    for header in reversed(headers):
        if header.oldest or not header.base:
            return header.oldest or header.checkpoint
    return headers[0].base


def check_whole(headers: Sequence[ImageHeader]) -> None:
    """Check that images, each a delta on the one before, hold all rows together.

    Raises:
        StateError: older images are needed, or they are not all of the table whose rows were
            refreshed.
    """
    if (needed := oldest_of(headers)) != headers[0].checkpoint:
        raise StateError(f"the {headers[-1]} needs the image of checkpoint {needed} first")
    last = max((i for i, h in enumerate(headers) if h.oldest), default=0)
    for header in headers[:last]:
        if header.table != headers[last].table:
            raise StateError(f"the {header} and the {headers[last]} are not of one table")


@dataclass(frozen=True, slots=True)
class Image:
    """A checkpoint image. Both batches are sorted by key group and key, and are None for an
    operator without state. If the header names a table, both have a column `SLOT` too."""

    header: ImageHeader
    rows: Any
    """An Arrow batch: key columns, window columns, state fields."""
    gone: Any
    """An Arrow batch: the key columns of removed rows. If slots are named there is a row for each
    slot that a key has left."""

    def __len__(self) -> int:
        return 0 if self.rows is None else int(self.rows.num_rows)

    @property
    def nbytes(self) -> int:
        """The bytes that its rows take in memory; stored they take about as many."""
        return sum(int(part.nbytes) for part in (self.rows, self.gone) if part is not None)

    def encode(self) -> memoryview:
        """The stored form. Equal images have equal bytes.

        Every byte is written once, without the interpreter's lock, so that other threads compute
        meanwhile. Only a small image is written and then copied, which takes less time than to
        measure it first.
        """
        head = msgpack.packb(_packed(self.header), default=_wide)
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

    def validate(self) -> None:
        """See that its columns are what they say: texts begin where the ones before end.

        Raises:
            pa.ArrowInvalid: they are not.
        """
        for batch in (self.rows, self.gone):
            if batch is not None:
                batch.validate(full=True)

    def _write(self, sink: Any) -> None:
        for batch in (self.rows, self.gone):
            if batch is not None:
                with pa.ipc.new_stream(sink, batch.schema, options=_STREAM) as writer:
                    writer.write_batch(batch)


def decode(data: Any) -> Image:
    """The image whose stored form is `data` (bytes or an Arrow buffer), over the same memory.

    Raises:
        StateError: the data is no image, an image of another version, or damaged.
    """
    header, streams = _opened(data)
    if not header.shape:
        return Image(header, None, None)
    source = pa.BufferReader(streams)
    try:
        refuse_compressed(streams)
        rows, gone = (_batch(source) for _ in range(2))
    except (ValueError, OSError, StopIteration, pa.ArrowException) as error:
        raise _unreadable(len(streams), error) from None
    return Image(header, rows, gone)


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
    if size > len(view) - _PREFIX.size:
        raise _unreadable(len(view), ValueError("its header is longer than all of it"))
    # The size is given because the unpacker otherwise allocates a megabyte, each time.
    unpacker = msgpack.Unpacker(
        strict_map_key=False, use_list=False, read_size=size, ext_hook=_narrow
    )
    unpacker.feed(view[_PREFIX.size : _PREFIX.size + size])
    try:
        return _unpacked(unpacker.unpack()), buffer.slice(_PREFIX.size + size)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise _unreadable(len(view), error) from None


def _unreadable(size: int, error: Exception) -> StateError:
    """What is raised where the checksum is right and the content is not: raystream did not write
    it."""
    return StateError(
        f"a checkpoint of {size} bytes cannot be read: {type(error).__name__}: {error}",
        hint="See which programs may write to the place where it was stored. Another copy may be"
        " whole.",
    )


def _batch(source: Any) -> Any:
    with pa.ipc.open_stream(source) as reader:
        batch = reader.read_next_batch()
        for _ in reader:  # to the end of the stream, where the next begins
            pass
    return batch


_WIDE_INT = 1
"""The type of msgpack's extension for a position that needs more than 64 bits."""


def _wide(value: Any) -> Any:
    """What msgpack can hold of a number that is too large for it."""
    if not isinstance(value, int):
        raise TypeError(f"a {type(value).__name__} in the header of an image")
    size = value.bit_length() // 8 + 1
    return msgpack.ExtType(_WIDE_INT, value.to_bytes(size, "big", signed=True))


def _narrow(code: int, data: bytes) -> int:
    """What `_wide` was given."""
    if code != _WIDE_INT:
        raise ValueError(f"an extension {code}, which is not raystream's")
    return int.from_bytes(data, "big", signed=True)


def _packed(header: ImageHeader) -> list[Any]:
    s = header.input_position
    return [
        header.operator,
        header.shape,
        header.groups,
        header.keys,
        header.base,
        header.checkpoint,
        header.oldest,
        header.table,
        s.watermark,
        s.ended,
        *(sorted(d.items()) for d in (s.inlets, s.splits, s.counts)),
        *([s.control] if s.control else []),
    ]


def _unpacked(values: tuple[Any, ...]) -> ImageHeader:
    operator, shape, groups, keys, base, checkpoint, oldest, table, *stands = values
    watermark, ended, inlets, splits, counts, *control = stands
    ends = {edge: tuple(EndedRange(*e) for e in ranges) for edge, ranges in inlets}
    input_position = InputPosition(
        watermark, ended, ends, dict(splits), dict(counts), b"".join(control)
    )
    whole = KeyRange(*keys)
    return ImageHeader(
        operator=operator,
        shape=shape,
        groups=groups,
        keys=whole,
        base=base,
        checkpoint=checkpoint,
        input_position=input_position,
        oldest=oldest,
        table=table,
    )
