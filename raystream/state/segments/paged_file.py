"""A file that is written once, from its beginning to its end, and then mapped.

A checksum of each page is checked when the page is read first. A file without a name belongs to the
process that wrote it: when that ends, however it ends, the system takes the space back. A file with
a name can be opened by another process (`stored_segment`).
"""

from __future__ import annotations

import errno
import mmap
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from raystream.errors import StateError
from raystream.native.resident import PAGE, fetch

SPARSE = 256
"""With less than one in this many pages of a file, pages are sorted, and otherwise marked."""


class FileWriter:
    """Writes a file.

    Args:
        folder: where the file lies. owner: whose rows it holds, for errors.
        path: the file itself, inside the folder; None for a file without a name.

    Raises:
        StateError: the disk refuses; also `append` and `close` raise it.
    """

    def __init__(self, folder: Path, owner: str, path: Path | None = None) -> None:
        self._folder, self._owner, self._path = folder, owner, path
        self.nbytes = 0
        """How many bytes were appended."""
        self._sums: list[int] = []
        self._rest = b""
        try:
            self._file: Any = (
                tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  closed below
                if path is None
                else path.open("x+b", buffering=0)
            )
        except OSError as error:
            raise self._refused(error) from error

    def append(self, data: Any) -> None:
        """Write the bytes of a buffer after those that are there."""
        view = memoryview(data).cast("B")
        self.nbytes += len(view)
        if self._rest:
            more = PAGE - len(self._rest)
            self._rest, view = self._rest + bytes(view[:more]), view[more:]
            if len(self._rest) < PAGE:
                return
            self._write(memoryview(self._rest))
        whole = len(view) // PAGE * PAGE
        self._write(view[:whole])
        self._rest = bytes(view[whole:])

    def _write(self, pages: memoryview) -> None:
        self._sums += [zlib.crc32(pages[at : at + PAGE]) for at in range(0, len(pages), PAGE)]
        try:
            while len(pages):
                pages = pages[self._file.write(pages) :]
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> PagedFile:
        """The file, for reading. Nothing more is appended."""
        if self._rest or not self._sums:
            self._write(memoryview(self._rest.ljust(PAGE, b"\0")))
        try:
            with self._file as file:
                mapping = mmap.mmap(file.fileno(), len(self._sums) * PAGE, access=mmap.ACCESS_READ)
        except OSError as error:
            raise self._refused(error) from error
        return PagedFile(mapping, np.array(self._sums, np.uint32), self._owner, self._folder)

    def discard(self) -> None:
        """Write nothing more: the file is not needed."""
        self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _refused(self, error: OSError) -> StateError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return StateError(
            f"{self._owner}: rows that memory has no room for could not be written to"
            f" {self._folder}, after {self.nbytes / 1e6:.0f} MB: {error.strerror or error}",
            hint="Give the node more disk, name another folder (state_folder=, --state-folder), or"
            " keep more rows in memory (state_memory=, --state-memory)."
            if full
            else "Is the folder there, and may the process write to it? Another one can be named"
            " with state_folder= or --state-folder.",
        )

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # it was made, and perhaps never closed
            self._file.close()


class PagedFile:
    """A file that was written by a `FileWriter`.

    `memory` is its bytes. Call `need` before reading them.
    """

    def __init__(self, mapping: mmap.mmap, sums: np.ndarray, owner: str, folder: Path) -> None:
        if hasattr(mmap, "MADV_RANDOM"):
            mapping.madvise(mmap.MADV_RANDOM)
        self._mapping, self._sums = mapping, sums
        self._owner, self._folder = owner, folder
        self._known = np.zeros(len(sums), bool)
        self.memory: Any = np.frombuffer(mapping, np.uint8)
        """uint8: the bytes of the file, and zeros up to the end of its last page."""
        self._address = int(self.memory.ctypes.data)
        self.reads = 0
        """How many pages were asked for that were not in memory."""

    @property
    def sums(self) -> np.ndarray:
        """uint32: the checksum of each page."""
        return self._sums

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return len(self._sums) * PAGE

    def need(self, begins: np.ndarray, ends: np.ndarray) -> None:
        """Read stretches of the file, int64 [n] each, that are wanted next, and check them.

        Raises:
            StateError: a page is not as it was written.
        """
        firsts, lasts = begins // PAGE, (np.maximum(ends, begins + 1) - 1) // PAGE
        more = lasts - firsts
        pages = [firsts]
        if more.any():
            many = np.flatnonzero(more)
            steps = np.arange(1, int(more.max()) + 1)
            rest = firsts[many, None] + steps
            pages.append(rest[steps <= more[many, None]])
        self._check(_distinct(np.concatenate(pages), len(self._sums)))

    def _check(self, pages: np.ndarray) -> None:
        self.reads += fetch(self._mapping, self._address, pages)
        for page in pages[~self._known[pages]].tolist():
            if zlib.crc32(self.memory[page * PAGE : (page + 1) * PAGE]) != self._sums[page]:
                raise StateError(
                    f"{self._owner}: a page of its rows on disk is damaged (page {page} of"
                    f" {len(self._sums)} of a file in {self._folder})",
                    hint="The disk, or the memory of the node, returned other bytes than were"
                    " written. Go on from the newest checkpoint with another disk"
                    " (state_folder=, --state-folder).",
                )
            self._known[page] = True


def opened(path: Path, sums: np.ndarray, owner: str) -> PagedFile:
    """A file with a name, which another process has written. Nothing of it is read.

    Args:
        sums: uint32, the checksum of each page.
        owner: whose rows it holds, for errors.

    Raises:
        StateError: it is not there, or has another length.
    """
    size = len(sums) * PAGE
    try:
        with path.open("rb") as file:
            if (found := path.stat().st_size) != size:
                raise StateError(f"{path} is torn: it has {found} bytes of {size}")
            mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise StateError(f"{path} cannot be opened: {error.strerror or error}") from error
    return PagedFile(mapping, sums, owner, path.parent)


def _distinct(pages: np.ndarray, of: int) -> np.ndarray:
    """int64: the distinct ones of some pages of a file that has so many, ascending."""
    if len(pages) * SPARSE < of:
        return np.unique(pages)
    wanted = np.zeros(of, bool)
    wanted[pages] = True
    return np.flatnonzero(wanted)
