"""Memory for one array that grows where it is: nothing is copied, and nothing is touched ahead.

The array lies in a mapping of its own. To grow, the system is asked for more addresses and moves
the pages that are there by their tables, which takes microseconds for any size. A page takes memory
when it is first touched, and that is what costs time: a tenth of a millisecond to one for 2 MB, ten
where a virtual machine is not given it at once. So the array is filled bit by bit.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np

LEAST_BYTES = 1 << 12
HUGE_BYTES = 1 << 22
"""From this size on pages of 2 MB are asked for: what is on them is found quicker."""


def as_words(rows: np.ndarray) -> np.ndarray:
    """int64 [n, words of a row]: rows of any class, over the same memory."""
    return rows.view(np.int64).reshape(len(rows), rows.itemsize // 8)


class Room:
    """Memory for items of one dtype, zero at first. Not thread-safe."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.touched = 0
        """How many items have memory at least; its users keep count."""
        self._memory = _mapped(LEAST_BYTES)

    def __len__(self) -> int:
        return len(self._memory) // self.dtype.itemsize

    def view(self, items: int) -> np.ndarray:
        """The first items. The array stays valid when the room grows, but may be apart from it
        then."""
        return np.frombuffer(self._memory, self.dtype, items)

    def grow(self, items: int) -> None:
        """Make room for this many items. As long as there is no view, nothing is copied."""
        if items <= len(self):
            return
        size = _size(items * self.dtype.itemsize)
        try:
            self._memory.resize(size)
        except (BufferError, SystemError):  # a view; a system without such calls
            self._copy(size)
        except OSError:  # not as many addresses
            self._memory.resize(_pages(items * self.dtype.itemsize))
        _ask_for_huge_pages(self._memory)

    def shrink(self, items: int) -> None:
        """Give back the memory that is not needed for this many items, if there is no view."""
        size = _size(items * self.dtype.itemsize)
        if size < len(self._memory):
            with suppress(BufferError, SystemError):  # a view; a system without such calls
                self._memory.resize(size)
                self.touched = min(self.touched, len(self))

    def _copy(self, size: int) -> None:
        larger = _mapped(size)
        larger[: len(self._memory)] = memoryview(self._memory)
        self._memory = larger


def _size(nbytes: int) -> int:
    return max(LEAST_BYTES, 1 << (nbytes - 1).bit_length())


def _pages(nbytes: int) -> int:
    """The least size of a mapping for this many bytes."""
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _mapped(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _ask_for_huge_pages(memory: mmap.mmap) -> None:
    if len(memory) >= HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
