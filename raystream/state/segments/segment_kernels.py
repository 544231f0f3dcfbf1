"""Loops over the filters and the records of segments, jitted.

A filter is a blocked Bloom filter (Putze, Sanders, Singler, WEA 2007): all bits of a key lie in one
block of 512. The block is chosen by the first bits of the hash, relative to the range of the
segment, so keys in order of their hashes go through the filter from its beginning to its end.

Importing this module imports Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raystream.native.jit import kept_njit
from raystream.state.kernels import mix

BLOCK_WORDS = 8
"""Words of 64 bits in a block."""
BITS = 6
"""Bits that are set for a key."""
_U3, _U6, _U32 = np.uint64(3), np.uint64(6), np.uint64(32)
_IN_WORD, _WORD, _ONE = np.uint64(63), np.uint64(7), np.uint64(1)


@kept_njit(nogil=True, inline="always")
def block_of(h: Any, first: Any, span: Any, blocks: Any) -> Any:
    """The first word of the block of a hash. first, span: the range of the hashes' upper halves."""
    return np.int64(min(((h >> _U32) - first) * blocks // span, blocks - _ONE)) * BLOCK_WORDS


@kept_njit(nogil=True)
def fill_filter(hashes: Any, probes: Any, first: Any, span: Any, words: Any) -> None:
    """Set the bits of keys. probes: what tells apart keys of one hash."""
    blocks = np.uint64(len(words) // BLOCK_WORDS)
    for i in range(len(hashes)):
        at = block_of(hashes[i], first, span, blocks)
        bits = mix(probes[i])
        for _ in range(BITS):
            words[at + np.int64(bits & _WORD)] |= _ONE << ((bits >> _U3) & _IN_WORD)
            bits >>= np.uint64(9)


@kept_njit(nogil=True)
def ask_filter(hashes: Any, probes: Any, first: Any, span: Any, words: Any, out: Any) -> None:
    """Note of each key whether the segment may have it. The hashes are inside its range."""
    blocks = np.uint64(len(words) // BLOCK_WORDS)
    for i in range(len(hashes)):
        at = block_of(hashes[i], first, span, blocks)
        bits = mix(probes[i])
        found = True
        for _ in range(BITS):
            if not words[at + np.int64(bits & _WORD)] >> ((bits >> _U3) & _IN_WORD) & _ONE:
                found = False
                break
            bits >>= np.uint64(9)
        out[i] = found


@kept_njit(nogil=True)
def find_equal(words: Any, width: Any, hashes: Any, lows: Any, highs: Any, counts: Any) -> None:
    """Of each hash the first record that has it, in `lows`, and how many have it.

    Args:
        words: the records, as words. width: words of a record.
        lows, highs: between which records each hash is; they are in order.
    """
    for i in range(len(hashes)):
        h, low, high, end = hashes[i], lows[i], highs[i], highs[i]
        while low < high:
            middle = (low + high) >> 1
            if words[middle * width] < h:
                low = middle + 1
            else:
                high = middle
        lows[i] = low
        many = low
        while many < end and words[many * width] == h:
            many += 1
        counts[i] = many - low
