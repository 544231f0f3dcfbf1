"""Which pages of a mapped file are in memory, and how the others are fetched side by side.

A page that is not there stops the thread that touches it until the disk has answered, and then the
next one. To tell the system first which pages are wanted lets the disk work on many at a time.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
FEW = 16
"""So few pages are simply touched."""
_MINCORE = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)


def fetch(mapping: mmap.mmap, address: int, pages: np.ndarray) -> int:
    """Have the system read pages of a mapping that are not in memory, and do not wait for them.

    Args:
        address: of the mapping.
        pages: int64, the numbers of the pages, ascending and distinct.

    Returns how many of them were not in memory, as far as that was looked for.
    """
    if len(pages) <= FEW or not hasattr(mmap, "MADV_WILLNEED"):
        return 0
    missing = pages[~_there(address, pages)]
    begins = np.flatnonzero(np.diff(missing, prepend=-2) != 1)
    ends = np.append(begins, len(missing))[1:]
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        mapping.madvise(mmap.MADV_WILLNEED, int(missing[begin]) * PAGE, (end - begin) * PAGE)
    return len(missing)


def _there(address: int, pages: np.ndarray) -> np.ndarray:
    """bool [n]: which pages are in memory; none of them, where the system does not say."""
    first, last = int(pages[0]), int(pages[-1])
    found = np.zeros(last - first + 1, np.uint8)
    if _MINCORE is not None:
        _MINCORE(
            ctypes.c_void_p(address + first * PAGE),
            ctypes.c_size_t(len(found) * PAGE),
            ctypes.c_void_p(found.ctypes.data),
        )
    there: np.ndarray = (found[pages - first] & 1).astype(bool)
    return there
