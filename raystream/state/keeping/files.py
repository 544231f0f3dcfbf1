"""A folder of files that hold parts of images, and the checksums by which damage is found.

The files belong to one keeper and mean nothing to any other: they are not synced, and the next
keeper that begins on the node removes what a dead process has left (`sweep`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from raystream.errors import StateError
from raystream.state.keeping.holdings import FilePlace

PAGE = 1 << 16
"""Bytes that have one checksum."""
PREFIX = "raystream-kept-"


class Disk(Protocol):
    """Where a keeper writes files. Each is written once, read in parts, and deleted."""

    def write(self, file: int, parts: Sequence[Any]) -> None:
        """Write parts, one after the other, to a new file. What was written of it is removed if it
        fails.

        Raises:
            OSError: the disk is full, or refuses.
        """

    def read(self, file: int, offset: int, size: int) -> memoryview:
        """Read from a file. Fewer bytes come where the file has no more.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def delete(self, file: int) -> None:
        """Delete a file, if it is there."""

    def remove(self) -> None:
        """Delete all files: the keeper has ended."""


def checksums(data: Any) -> tuple[int, ...]:
    """The checksum of each page of a part."""
    view = memoryview(data).cast("B")
    return tuple(zlib.crc32(view[at : at + PAGE]) for at in range(0, len(view), PAGE))


def placed(file: int, parts: Sequence[Any]) -> list[FilePlace]:
    """Where parts lie that are written to a file one after the other."""
    found, offset = [], 0
    for part in parts:
        size = memoryview(part).nbytes
        found.append(FilePlace(file, offset, size, checksums(part)))
        offset += size
    return found


def read_part(disk: Disk, place: FilePlace) -> memoryview:
    """A part that lies in a file.

    Raises:
        StateError: it is damaged, or cannot be read; the message says where.
    """
    try:
        data = disk.read(place.file, place.offset, place.size)
    except OSError as error:
        raise StateError(f"file {place.file} cannot be read: {error.strerror or error}") from None
    if len(data) < place.size:
        raise StateError(
            f"file {place.file} is torn: it ends {place.size - len(data)} bytes before the part at"
            f" {place.offset} does"
        )
    for page, (found, known) in enumerate(zip(checksums(data), place.checksums, strict=True)):
        if found != known:
            raise StateError(
                f"file {place.file} is damaged: the page at {place.offset + page * PAGE} has"
                " another checksum than when it was written"
            )
    return data


class Folder:
    """A folder on the node's disk, for this process alone.

    Args:
        where: the folder in which it is made; that for temporary files if there is none.
        process: the id of this process.

    Raises:
        OSError: nothing can be written there.
    """

    def __init__(self, where: str | os.PathLike[str] | None, process: int) -> None:
        above = Path(where or tempfile.gettempdir())
        above.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{process}-", dir=above))

    def write(self, file: int, parts: Sequence[Any]) -> None:
        """See `Disk.write`."""
        path = self._path(file)
        with path.open("xb", buffering=0) as opened:
            try:
                for part in parts:
                    rest = memoryview(part).cast("B")
                    while len(rest):
                        rest = rest[opened.write(rest) :]
            except OSError:
                path.unlink()
                raise

    def read(self, file: int, offset: int, size: int) -> memoryview:
        """See `Disk.read`."""
        data = np.empty(size, np.uint8).data
        done = 0
        with self._path(file).open("rb", buffering=0) as opened:
            opened.seek(offset)
            while done < size and (more := opened.readinto(data[done:])):
                done += more
        return data[:done].toreadonly()

    def delete(self, file: int) -> None:
        """See `Disk.delete`."""
        self._path(file).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _path(self, file: int) -> Path:
        return self.path / f"{file:08d}"


def sweep(where: str | os.PathLike[str] | None, prefix: str = PREFIX) -> None:
    """Remove what dead processes have left in a folder.

    Args:
        where: see `Folder`.
        prefix: what the names begin with; the id of the process follows.
    """
    for left in Path(where or tempfile.gettempdir()).glob(f"{prefix}*-*"):
        process = left.name.removeprefix(prefix).partition("-")[0]
        if process.isdecimal() and not alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def alive(process: int) -> bool:
    """Whether a process of this node lives."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user, so it is there
    return True
