"""Numbered text, jitted. The index is that of `state.row_kernels`; of a text it has the hash, so
what is found there is compared. Nothing is ever removed. Importing this module imports Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from raystream.native.jit import kept_njit
from raystream.state.kernels import word_at
from raystream.state.tables.row_kernels import AHEAD, PAGE_BITS, after, home_of, is_full, prefetch


@njit(nogil=True)
def _same(one: Any, begin: Any, end: Any, two: Any, at: Any, to: Any) -> Any:
    if end - begin != to - at:
        return False
    while at < to:
        if word_at(one, begin, end) != word_at(two, at, to):
            return False
        begin += 8
        at += 8
    return True


@kept_njit(nogil=True)
def number_all(
    offsets: Any, data: Any, hashes: Any, heads: Any, own_data: Any, index: Any, used: Any,
    out: Any, first: Any,
) -> Any:  # fmt: skip
    """Find or insert the texts of a column from `first` on; (where it stopped for lack of room, how
    many texts there are now, the page of the index that has no room, -1 if it is another room).

    offsets, data: of the column, [n + 1] and bytes. hashes: uint64 [n]. heads, own_data: as in
    `state.texts`, of which the first `used` are texts. out: their numbers, int64 [n].
    """
    homes = np.empty(AHEAD, np.int64)
    for base in range(first, len(hashes), AHEAD):
        many = min(AHEAD, len(hashes) - base)
        for i in range(many):
            homes[i] = home_of((np.int64(hashes[base + i]),), index)
            prefetch(index.entries, homes[i])  # type: ignore[call-arg]
        for i in range(many):
            number = np.int64(index.entries[homes[i]])
            if number >= 0:
                prefetch(heads, number)  # type: ignore[call-arg]
        for i in range(many):
            begin, end = np.int64(offsets[base + i]), np.int64(offsets[base + i + 1])
            key, place = np.int64(hashes[base + i]), homes[i]
            number = np.int64(index.entries[place])
            while number >= 0 and not (
                heads[number]._key[0] == key
                and _same(
                    own_data, heads[number]._epoch, heads[number + 1]._epoch, data, begin, end
                )
            ):
                place = after(place)
                number = np.int64(index.entries[place])
            if number < 0:
                page, to = homes[i] >> PAGE_BITS, heads[used]._epoch
                if is_full(index, page):
                    return base + i, used, page
                if used + 1 == len(heads) or to + end - begin > len(own_data):
                    return base + i, used, np.int64(-1)
                for j in range(end - begin):
                    own_data[to + j] = data[begin + j]
                heads[used]._key[0] = key
                heads[used + 1]._epoch = to + end - begin
                index.entries[place] = number = used
                index.filled[page] += 1
                used += 1
            out[base + i] = number
    return len(hashes), used, np.int64(-1)


@kept_njit(nogil=True)
def gather(heads: Any, own_data: Any, numbers: Any, offsets: Any, data: Any) -> None:
    """Put the texts of numbers, int64 [n], where `offsets` say, int64 [n + 1]."""
    for i in range(len(numbers)):
        begin, to = heads[numbers[i]]._epoch, offsets[i]
        for j in range(offsets[i + 1] - to):
            data[to + j] = own_data[begin + j]
