"""Jitted loops that make the columns of an image: one call each, without the interpreter's lock.

A checkpoint is made on another thread while the computing thread goes on. Many short calls would
take the lock again and again, and each time one of the two threads would wait for the other.

Importing this module imports Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from raystream.native.jit import kept_njit
from raystream.state.tables.row_kernels import ROWS_AHEAD, prefetch

FEW = 24
"""Up to this many keys are sorted by insertion."""
DIGIT_BITS = 11
"""Bits of a digit in the radix sort of more keys: the counts of a digit stay in the first cache."""


@kept_njit(nogil=True)
def sort_in_groups(column: Any, offsets: Any, order: Any) -> None:
    """Sort positions by what the column holds there, inside each group; stable.

    column: int64. offsets: where each group begins in `order`, and its end. Radix sort, from the
    lowest digit; digits that are the same in a whole group are passed over.
    """
    widest = 0
    for g in range(len(offsets) - 1):
        widest = max(widest, offsets[g + 1] - offsets[g])
    keys, other_keys = np.empty(widest, np.uint64), np.empty(widest, np.uint64)
    places, other_places = np.empty(widest, np.int64), np.empty(widest, np.int64)
    counts = np.empty(1 << DIGIT_BITS, np.int64)
    sign, mask = np.uint64(1) << np.uint64(63), np.uint64((1 << DIGIT_BITS) - 1)
    for g in range(len(offsets) - 1):
        first, n = offsets[g], offsets[g + 1] - offsets[g]
        differ = np.uint64(0)
        for i in range(n):
            places[i] = order[first + i]
            keys[i] = np.uint64(column[places[i]]) ^ sign
            differ |= keys[i] ^ keys[0]
        if differ == 0:
            continue
        if n <= FEW:
            _insert(keys, places, n)
        else:
            for shift in range(0, 64, DIGIT_BITS):
                by = np.uint64(shift)
                if (differ >> by) & mask == 0:
                    continue
                counts[:] = 0
                for i in range(n):
                    counts[(keys[i] >> by) & mask] += 1
                at = 0
                for d in range(len(counts)):
                    many = counts[d]
                    counts[d] = at
                    at += many
                for i in range(n):
                    d = (keys[i] >> by) & mask
                    other_keys[counts[d]] = keys[i]
                    other_places[counts[d]] = places[i]
                    counts[d] += 1
                keys, other_keys = other_keys, keys
                places, other_places = other_places, places
        for i in range(n):
            order[first + i] = places[i]


@njit(nogil=True)
def _insert(keys: Any, places: Any, n: Any) -> None:
    """Sort the first keys, and their places with them, by insertion."""
    for i in range(1, n):
        key, place, at = keys[i], places[i], i
        while at > 0 and keys[at - 1] > key:
            keys[at], places[at] = keys[at - 1], places[at - 1]
            at -= 1
        keys[at], places[at] = key, place


@kept_njit(nogil=True)
def unmarked(slots: Any, seen: Any) -> Any:
    """int32: the positions of the slots that are not marked, which are marked then. No slot is
    given twice.

    seen: uint8, a bit for each slot.
    """
    out, n = np.empty(len(slots), np.int32), 0
    for i in range(len(slots)):
        place, bit = slots[i] >> 3, np.uint8(1 << (slots[i] & 7))
        out[n] = i
        n += (seen[place] & bit) == 0  # not `if`: the processor could not predict it
        seen[place] |= bit
    return out[:n].copy()


@kept_njit(nogil=True)
def mark(slots: Any, seen: Any) -> None:
    """Mark slots, see `unmarked`."""
    for slot in slots:
        seen[slot >> 3] |= np.uint8(1 << (slot & 7))


@kept_njit(nogil=True)
def to_columns(rows: Any, order: Any, fields: Any, out: Any) -> None:
    """Write the fields of rows as columns, the rows in this order.

    rows: as words, int64 [n, words of a row]. fields: int64 [fields, 3], for each field where its
    bytes begin in a row, how many there are, and where its column begins in `out`, a multiple of 8.
    out: as words too.
    """
    row_bytes, out_bytes = rows.view(np.uint8), out.view(np.uint8)
    words = rows.shape[1]
    flat = rows.reshape(rows.size)
    for i in range(len(order)):
        if i + ROWS_AHEAD < len(order):
            prefetch(flat, order[i + ROWS_AHEAD] * words)  # type: ignore[call-arg]
        row = order[i]
        for f in range(len(fields)):
            at, size, begin = fields[f, 0], fields[f, 1], fields[f, 2] + i * fields[f, 1]
            if (at | size) & 7 == 0:
                for w in range(size >> 3):
                    out[(begin >> 3) + w] = rows[row, (at >> 3) + w]
            else:
                for b in range(size):
                    out_bytes[begin + b] = row_bytes[row, at + b]
