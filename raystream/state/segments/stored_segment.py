"""Segments that another process can open: what a reader needs in memory lies in a file beside the
rows, about 1.6 bytes a row. To open a segment is to read that file; no row is read.

    magic 8 · crc32 u32 · header (msgpack) with arrays as bytes
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from raystream.errors import StateError
from raystream.state.segments.paged_file import opened
from raystream.state.segments.segment import HEAP, ROWS, KeyFilter, Segment

FOOT = ".foot"
MAGIC = b"rayrows1"
_PREFIX = struct.Struct("<8sI")


def write_checked(path: Path, what: Any) -> None:
    """Write a value as msgpack, with a checksum. The file has its name when all of it is there.

    Raises:
        OSError: the disk refuses.
    """
    data = msgpack.packb(what)
    new = path.with_name(path.name + ".new")
    with new.open("wb", buffering=0) as file:
        for part in (_PREFIX.pack(MAGIC, zlib.crc32(data)), data):
            rest = memoryview(part)
            while len(rest):
                rest = rest[file.write(rest) :]
    new.rename(path)


def read_checked(path: Path) -> Any:
    """What `write_checked` has written.

    Raises:
        StateError: it is not there, is damaged, or is of another version.
    """
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) < _PREFIX.size or bytes(data[: len(MAGIC)]) != MAGIC:
        raise StateError(f"{path} does not begin as a file of rows")
    if zlib.crc32(data[_PREFIX.size :]) != _PREFIX.unpack_from(data)[1]:
        raise StateError(f"{path} is damaged: its checksum is another")
    return msgpack.unpackb(data[_PREFIX.size :], max_bin_len=len(data))


def save(segment: Segment, folder: Path) -> None:
    """Write what a reader of a segment needs, beside its rows.

    Raises:
        StateError: the disk refuses.
    """
    heap, keys = segment.heap, segment.keys
    what = [
        describe(segment.dtype),
        [segment.count, segment.newest, keys.low, keys.high],
        segment.file.sums.tobytes(),
        None if heap is None else heap.sums.tobytes(),
        keys.words.tobytes(),
        segment.firsts.tobytes(),
        segment.dues.tobytes(),
    ]
    try:
        write_checked(folder / f"{segment.name}{FOOT}", what)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StateError(
            f"rows that memory has no room for could not be written to {folder}:"
            f" {error.strerror or error}",
            hint="Give the node more disk, or name another folder (state_folder=, --state-folder)."
            if full
            else "Is the folder there, and may the process write to it?",
        ) from error


def load(folder: Path, name: str, owner: str, dues: bytes | None = None) -> Segment:
    """A segment that was saved. owner: whose rows these are, for errors.

    dues: when rows are due, where that is not what the file says.

    Raises:
        StateError: a file is not there, or is damaged.
    """
    dtype, counts, sums, heap, words, firsts, own_dues = read_checked(folder / f"{name}{FOOT}")
    count, newest, low, high = counts
    given = own_dues if dues is None else dues
    return Segment(
        opened(folder / f"{name}{ROWS}", np.frombuffer(sums, np.uint32), owner),
        None
        if heap is None
        else opened(folder / f"{name}{HEAP}", np.frombuffer(heap, np.uint32), owner),
        _dtype(dtype),
        count,
        KeyFilter(count, low, high, np.frombuffer(words, np.uint64).copy()),
        np.frombuffer(firsts, np.uint64),
        np.frombuffer(given, np.int64).copy(),
        newest,
        name,
    )


def link(source: Path, name: str, folder: Path, new: str) -> None:
    """Give the files of a segment another name in another folder too: the one that wrote them may
    delete its own then.

    Raises:
        OSError: they are not there any more, or lie on another disk.
    """
    for kind in (FOOT, ROWS, HEAP):
        if kind != HEAP or (source / f"{name}{HEAP}").exists():
            os.link(source / f"{name}{kind}", folder / f"{new}{kind}")


def delete(folder: Path, name: str) -> None:
    """Delete the files of a segment, if they are there. Who has them open can go on reading."""
    for kind in (FOOT, ROWS, HEAP):
        (folder / f"{name}{kind}").unlink(missing_ok=True)


def describe(dtype: np.dtype[Any]) -> str:
    """A dtype of records in words."""
    return repr(np.lib.format.dtype_to_descr(dtype))


def _dtype(words: str) -> np.dtype[Any]:
    from ast import literal_eval

    found: np.dtype[Any] = np.lib.format.descr_to_dtype(literal_eval(words))
    fields: Any = found.fields
    form: Any = {
        "names": list(found.names or ()),
        "formats": [fields[n][0] for n in found.names or ()],
        "offsets": [fields[n][1] for n in found.names or ()],
        "itemsize": found.itemsize,
    }
    return np.dtype(form, align=True)  # otherwise records that are joined with others lose the gaps
