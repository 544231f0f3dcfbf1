"""The index over structured rows, which grows page by page.

Extendible hashing (Fagin, Nievergelt, Pippenger and Strong, ACM TODS 1979): the first bits of a
key's hash choose, through a directory, the page of the index on which its search begins. A page
that is full is split by one more bit. That places the few thousand rows of this page again, and no
others.

The first bits also say the key group, and records come in the order of key groups: so a batch goes
through the pages one after the other, and the next record finds its page in the cache.
"""

from __future__ import annotations

import numpy as np

from raystream.errors import InternalError
from raystream.state.growable_array import Room

DEPTH_MAX = 24
"""At most this many bits of a hash choose a page."""
NARROW = 8
"""`fill` sees how rows are spread as long as the hashes of all rows have at most this many first
bits in common."""
SAMPLE = 1 << 20
"""About how many rows `fill` samples before it lays out pages."""


class RowIndex:
    """Slots of rows by key. Not thread-safe.

    arrays: what kernels work on (see `row_kernels.Index`). They are new ones after each growth.
    """

    def __init__(self) -> None:
        from raystream.state.tables import loop_kernels
        from raystream.state.tables import row_kernels as kernels

        self._kernels, self._loops = kernels, loop_kernels
        self._room = Room(np.dtype(np.int32))
        self._scratch = np.empty(kernels.PAGE_MOST, np.int64)
        self._begin(np.zeros(1, np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the pages and of the directory."""
        page = 4 * self._kernels.PAGE + self.filled.itemsize
        return len(self.filled) * page + self.pages.nbytes

    def _begin(self, depths: np.ndarray) -> None:
        """Lay out empty pages.

        depths: for each value of the bits that choose a page, by how many of these bits its page is
            chosen; values with the same page have the same depth.
        """
        bits = len(depths).bit_length() - 1
        values = np.arange(len(depths))
        first = values & ((1 << (bits - depths)) - 1) == 0  # value of its page
        self.pages = (first.cumsum() - 1).astype(np.int32)
        shift = bits - depths[first]
        self._blocks = list(
            zip(depths[first].tolist(), (values[first] >> shift).tolist(), strict=True)
        )
        self.filled = np.zeros(len(self._blocks), np.int32)
        self._reach(len(self._blocks), 0)

    def _reach(self, pages: int, known: int) -> None:
        """Have this many pages, of which the first `known` exist already."""
        size, self.arrays = self._kernels.PAGE, None
        self._room.grow(pages * size)
        entries = self._room.view(pages * size)
        entries[known * size :] = -1
        self.arrays = self._kernels.Index(entries, self.pages, self.filled)

    def make_room(self, rows: int, begin: float, end: float) -> None:
        """Lay out pages for this many rows, if there are no rows yet, so that few pages will have
        to be split.

        begin, end: the hashes of the rows will be between these fractions of all hashes.
        """
        if len(self._blocks) > 1 or self.filled.any():
            return
        room = self._kernels.PAGE_LEAST * 4 // 3  # few of those with more than the least are full
        bits = min(DEPTH_MAX, int(rows / room / (end - begin)).bit_length())
        values = np.arange(1 << bits)
        inside = (values + 1 > begin * len(values)) & (values < end * len(values))
        counts = np.where(inside, rows / int(np.count_nonzero(inside)), 0.0)
        self._begin(page_depths(counts, room))

    def fill(self, heads: np.ndarray, used: int) -> None:
        """Index the rows in the first `used` slots, and nothing else. Their keys are distinct."""
        room = self._kernels.PAGE_LEAST
        bits = min(DEPTH_MAX, (used // room).bit_length() + NARROW)
        every = max(1, used // SAMPLE)
        counts = np.zeros(1 << bits, np.int32)
        self._loops.count_first_bits(heads, used, every, counts)
        self._begin(page_depths(counts, room // every))
        at = 0
        while (at := self._loops.rebuild(heads, self.arrays, at, used)) < used:
            self.split(heads, int(self.filled.argmax()))

    def warm(self, heads: np.ndarray) -> None:
        """Compile, or load, the code that is called only now and then."""
        self._loops.place_again(heads, self.arrays, 0, self._scratch)

    def split(self, heads: np.ndarray, page: int) -> None:
        """Move some of the rows of a page to a new page.

        heads: `_key` and `_epoch` of all rows.
        """
        depth, bits = self._blocks[page]
        if depth >= DEPTH_MAX:
            raise InternalError(f"{self.filled[page]} keys have hashes of the same {depth} bits")
        if 1 << depth == len(self.pages):
            self.pages = self.pages.repeat(2)
        new, half = len(self._blocks), len(self.pages) >> (depth + 1)
        upper = 2 * bits + 1
        self.pages[upper * half : (upper + 1) * half] = new
        self._blocks[page] = depth + 1, 2 * bits
        self._blocks.append((depth + 1, upper))
        self.filled = np.append(self.filled, np.int32(0))
        self._reach(new + 1, new)
        self._loops.place_again(heads, self.arrays, page, self._scratch)


def page_depths(counts: np.ndarray, room: int) -> np.ndarray:
    """The layout with the fewest pages in which no page has more rows than its room, as far as the
    given bits can tell rows apart.

    counts: how many rows have each value of their first bits, [2 ** bits].

    Returns the depths of `RowIndex._begin`, for as few bits as any page needs: int64 [2 ** most]. A
    short directory stays in the cache when rows come in no order.
    """
    crowded, by_depth = np.zeros(len(counts), bool), list[np.ndarray]()
    while len(counts) > 1:
        counts = counts[::2] + counts[1::2]
        crowded = crowded[::2] | crowded[1::2] | (counts > room)
        by_depth.append(crowded)
    depths = np.zeros(1, np.int64)
    for crowded in reversed(by_depth):
        if not crowded.any():
            break
        depths = (depths + crowded).repeat(2)
    return depths
