"""The index over numbered text, jitted: open addressing over the hashes of `state.kernels`.

As in `state.row_kernels` the low bits of a hash say where a search begins, and at least half of the
index is empty. Nothing is ever removed. Importing this module imports Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from raystream.state.jit import kept_njit
from raystream.state.kernels import word_at
from raystream.state.row_kernels import AHEAD, prefetch


@kept_njit(nogil=True)
def rebuild(hashes: Any, index: Any, used: Any) -> Any:
    """Fill an empty index with the first `used` hashes; how many were met again."""
    mask, again = np.uint64(len(index) - 1), 0
    for first in range(0, used, AHEAD):
        last = min(used, first + AHEAD)
        for number in range(first, last):
            prefetch(index, np.int64(hashes[number] & mask))  # type: ignore[call-arg]
        for number in range(first, last):
            met = np.int64(index[np.int64(hashes[number] & mask)])
            if met >= 0:
                prefetch(hashes, met)  # type: ignore[call-arg]
        for number in range(first, last):
            at = np.int64(hashes[number] & mask)
            while index[at] >= 0:
                again += hashes[index[at]] == hashes[number]
                at = (at + 1) & np.int64(mask)
            index[at] = number
    return again


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
    offsets: Any, data: Any, hashes: Any, own_offsets: Any, own_data: Any, own_hashes: Any,
    index: Any, used: Any, out: Any, first: Any,
) -> Any:  # fmt: skip
    """Find or insert texts[first:] into out[first:]; (where it stopped for lack of room, how many
    texts there are now)."""
    mask = np.uint64(len(index) - 1)
    for at in range(first, len(hashes)):
        if (at - first) % AHEAD == 0:
            for ahead in range(at, min(len(hashes), at + AHEAD)):
                prefetch(index, np.int64(hashes[ahead] & mask))  # type: ignore[call-arg]
            for ahead in range(at, min(len(hashes), at + AHEAD)):
                number = np.int64(index[np.int64(hashes[ahead] & mask)])
                if number >= 0:
                    prefetch(own_hashes, number)  # type: ignore[call-arg]
                    prefetch(own_offsets, number)
        begin, end = np.int64(offsets[at]), np.int64(offsets[at + 1])
        place = np.int64(hashes[at] & mask)
        number = np.int64(index[place])
        while number >= 0 and not (
            own_hashes[number] == hashes[at]
            and _same(own_data, own_offsets[number], own_offsets[number + 1], data, begin, end)
        ):
            place = (place + 1) & np.int64(mask)
            number = np.int64(index[place])
        if number < 0:
            to = own_offsets[used]
            if used == len(own_hashes) or to + end - begin > len(own_data):
                return at, used
            for i in range(end - begin):
                own_data[to + i] = data[begin + i]
            own_hashes[used] = hashes[at]
            own_offsets[used + 1] = to + end - begin
            index[place] = number = used
            used += 1
        out[at] = number
    return len(hashes), used


@kept_njit(nogil=True)
def gather(own_offsets: Any, own_data: Any, numbers: Any, offsets: Any, data: Any) -> None:
    """Put the texts of these numbers where `offsets` say."""
    for i in range(len(numbers)):
        begin, to = own_offsets[numbers[i]], offsets[i]
        for j in range(offsets[i + 1] - to):
            data[to + j] = own_data[begin + j]
