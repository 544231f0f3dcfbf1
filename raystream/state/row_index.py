"""The index over structured rows, which grows page by page.

Extendible hashing (Fagin, Nievergelt, Pippenger and Strong, ACM TODS 1979): a directory says by
some bits of a key's hash on which page of the index its search begins. A page that is half full is
split by one more bit, which places the few thousand rows of this page anew, and no others.
"""

from __future__ import annotations

import numpy as np

from raystream.errors import InternalError
from raystream.state.room import Room

DEPTH_MAX = 24
"""So many bits of hashes choose a page, at most."""


class RowIndex:
    """Slots of rows by key. Not thread-safe.

    arrays: what kernels work on (see `row_kernels.Index`); new ones after each growth.
    """

    def __init__(self) -> None:
        from raystream.state import row_kernels as kernels

        self._kernels = kernels
        self._room = Room(np.dtype(np.int32))
        self._scratch = np.empty(kernels.PAGE_FULL, np.int64)
        self._begin(0)

    def _begin(self, depth: int) -> None:
        """Empty pages, one for each value of so many bits."""
        self.pages = np.arange(1 << depth, dtype=np.int32)
        self._depths = np.full(1 << depth, depth)
        self.filled = np.zeros(1 << depth, np.int32)
        self._reach(1 << depth, 0)

    def _reach(self, pages: int, known: int) -> None:
        """Have so many pages, of which the first are there already."""
        size, self.arrays = self._kernels.PAGE, None
        self._room.grow(pages * size)
        entries = self._room.view(pages * size)
        entries[known * size :] = -1
        self.arrays = self._kernels.Index(entries, self.pages, self.filled)

    def fill(self, heads: np.ndarray, used: int) -> None:
        """Begin anew with the rows in the first `used` slots, whose keys are distinct."""
        pages = -(-used // (self._kernels.PAGE_FULL * 3 // 4))
        self._begin(max(0, pages - 1).bit_length())
        at = 0
        while (at := self._kernels.rebuild(heads, self.arrays, at, used)) < used:
            self.split(heads, int(self.filled.argmax()))

    def warm(self, heads: np.ndarray) -> None:
        """Compile, or load, what is called only now and then."""
        self._kernels.place_again(heads, self.arrays, 0, self._scratch)

    def split(self, heads: np.ndarray, page: int) -> None:
        """Share the rows of a page with a new one.

        heads: `_key` and `_epoch` of all rows.
        """
        depth, new = int(self._depths[page]), len(self.filled)
        if depth >= DEPTH_MAX:
            raise InternalError(f"{self.filled[page]} keys have hashes of the same {depth} bits")
        if 1 << depth == len(self.pages):
            self.pages = np.concatenate([self.pages, self.pages])
        mine = np.flatnonzero(self.pages == page)
        self.pages[mine[(mine >> depth & 1) == 1]] = new
        self._depths[page] = depth + 1
        self._depths = np.append(self._depths, depth + 1)
        self.filled = np.append(self.filled, np.int32(0))
        self._reach(new + 1, new)
        self._kernels.place_again(heads, self.arrays, page, self._scratch)
