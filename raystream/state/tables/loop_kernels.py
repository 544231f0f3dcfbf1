"""Loops over many rows, and over columns of keys, jitted: each calls functions of `row_kernels`.

`heads` are the rows by `_key` and `_epoch` alone, so that one compilation serves all tables whose
keys have as many columns. `index`, `meta` and `alarms` are as in `row_kernels`.

Importing this module imports Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raystream.native.jit import kept_njit
from raystream.schema.types import NEVER
from raystream.state.tables.row_kernels import (
    AHEAD,
    ALARM_BITS,
    CHAIN,
    FREE,
    KEPT,
    LIVE,
    NEXT,
    PAGE_BITS,
    PAGE_MOST,
    ROWS_AHEAD,
    SINCE,
    TAKEN,
    UPTO,
    USED,
    find,
    find_or_insert,
    first_bits,
    hash_of_slot,
    home_of,
    home_of_slot,
    is_viewed,
    key_at,
    place,
    prefetch,
    set_alarm,
    take_from_index,
)


@kept_njit(nogil=True)
def count_first_bits(heads: Any, used: Any, every: Any, counts: Any) -> None:
    """Count the rows in every `every`-th slot by the first bits of their keys' hashes."""
    for slot in range(0, used, every):
        if heads[slot]._epoch != FREE:
            counts[first_bits(hash_of_slot(heads, slot), len(counts))] += 1


@kept_njit(nogil=True)
def rebuild(heads: Any, index: Any, first: Any, used: Any) -> Any:
    """Put the rows in the slots from `first` to `used` into an index that has none of them. Returns
    the slot at which it stopped because a page is full, or `used`."""
    homes = np.empty(AHEAD, np.int64)
    for base in range(first, used, AHEAD):
        many = min(AHEAD, used - base)
        for i in range(many):  # a miss of the cache each, so all of them at once
            homes[i] = home_of_slot(heads, base + i, index)
            prefetch(index.entries, homes[i])  # type: ignore[call-arg]
        for i in range(many):
            if heads[base + i]._epoch != FREE:
                if index.filled[homes[i] >> PAGE_BITS] >= PAGE_MOST:
                    return base + i
                place(index, homes[i], base + i)
    return used


@kept_njit(nogil=True)
def place_again(heads: Any, index: Any, page: Any, scratch: Any) -> None:
    """Place the rows of a page again after a split, when some of them belong to the new page.

    scratch: int64, with room for the rows of a page.
    """
    n = 0
    for at in range(page << PAGE_BITS, (page + 1) << PAGE_BITS):
        slot = np.int64(index.entries[at])
        if slot >= 0:
            scratch[n] = slot
            n += 1
            index.entries[at] = -1
    index.filled[page] = 0
    for i in range(n):
        if i + ROWS_AHEAD < n:
            prefetch(heads, scratch[i + ROWS_AHEAD])  # type: ignore[call-arg]
        place(index, home_of_slot(heads, scratch[i], index), scratch[i])


@kept_njit(nogil=True)
def insert_all(
    heads: Any, index: Any, meta: Any, columns: Any, epoch: Any, slots: Any, first: Any
) -> Any:
    """Find or insert the keys from `first` on. Returns the position at which it stopped because the
    table is full, or the number of keys.

    heads: `_key` and `_epoch` of the rows. columns: a tuple of int64 columns. slots: gets the slot
    of each key.

    For each key two places may be out of the cache, and the second is known only from the first:
    its entry of the index is fetched two blocks of keys ahead, and its row one block ahead.
    """
    n, homes = len(slots), np.empty(4 * AHEAD, np.int64)
    for base in range(first - 2 * AHEAD, n, AHEAD):
        for i in range(base + 2 * AHEAD, min(base + 3 * AHEAD, n)):
            home = home_of(key_at(columns, i), index)
            homes[i & (4 * AHEAD - 1)] = home
            prefetch(index.entries, home)  # type: ignore[call-arg]
        for i in range(max(base + AHEAD, first), min(base + 2 * AHEAD, n)):
            slot = np.int64(index.entries[homes[i & (4 * AHEAD - 1)]])
            prefetch(heads, max(slot, 0))  # type: ignore[call-arg]
        for i in range(max(base, first), min(base + AHEAD, n)):
            home = homes[i & (4 * AHEAD - 1)]
            slot = find_or_insert(heads, index, meta, key_at(columns, i), epoch, home)
            if slot < 0:
                return i
            slots[i] = slot
    return len(slots)


@kept_njit(nogil=True)
def find_all(heads: Any, index: Any, columns: Any, slots: Any) -> None:
    """The slot of each key, or -1."""
    for i in range(len(slots)):
        slots[i] = find(heads, index, key_at(columns, i))


@kept_njit(nogil=True)
def free_all(heads: Any, rows: Any, index: Any, meta: Any, defaults: Any, slots: Any) -> None:
    """Free the slots of rows.

    rows, defaults: as words, int64 [n, words of a row].
    """
    for i in range(len(slots)):
        take_from_index(heads, index, slots[i])
        for j in range(rows.shape[1]):
            rows[slots[i], j] = defaults[0, j]
        heads[slots[i]]._key[0] = meta[CHAIN]
        meta[CHAIN] = slots[i]
    meta[LIVE] -= len(slots)


@kept_njit(nogil=True)
def put_aside(heads: Any, rows: Any, meta: Any, slots: Any, first: Any, aside: Any) -> Any:
    """Copy the rows in these slots, from `first` on, that the open view has yet to copy. Returns
    the position at which it stopped because there is no more room, or the number of slots.

    rows, aside: as words, int64 [n, words of a row].
    """
    for i in range(first, len(slots)):
        if is_viewed(heads, meta, slots[i]):
            at = meta[KEPT]
            if at == len(aside):
                return i
            for j in range(rows.shape[1]):
                aside[at, j] = rows[slots[i], j]
            aside[at, len(heads[0]._key)] = slots[i]
            meta[KEPT] = at + 1
    return len(slots)


@kept_njit(nogil=True)
def take_viewed(heads: Any, rows: Any, meta: Any, last: Any, out: Any, n: Any) -> Any:
    """Copy the rows that the open view has yet to copy, up to slot `last`, to `out` from n on.
    Returns how many rows `out` holds then. A copy has the slot of the row in place of its epoch.
    From then on old rows count as touched by the epoch of the view.

    rows, out: as words, int64 [n, words of a row].
    """
    for slot in range(meta[TAKEN], last):
        if is_viewed(heads, meta, slot):
            if heads[slot]._epoch <= meta[SINCE]:
                heads[slot]._epoch = meta[UPTO]
            for j in range(rows.shape[1]):
                out[n, j] = rows[slot, j]
            out[n, len(heads[0]._key)] = slot
            n += 1
    meta[TAKEN] = last
    return n


@kept_njit(nogil=True)
def distinct(slots: Any, seen: Any, base: Any, inverse: Any) -> Any:
    """Number slots by first appearance. `slots` begins with the distinct ones then; returns how
    many there are. `inverse` gets the number of each slot.

    seen: int64 per slot, below `base` when this call begins.
    """
    n = 0
    for i in range(len(slots)):
        slot, number = slots[i], seen[slots[i]]
        new = number < base
        number = base + n if new else number
        seen[slot] = number
        slots[n] = slot
        n += new  # not `if new`: the processor could not predict it
        inverse[i] = number - base
    return n


@kept_njit(nogil=True)
def set_alarms(alarms: Any, meta: Any, slots: Any, dues: Any) -> None:
    """`set_alarm` for several rows."""
    for i in range(len(slots)):
        set_alarm(alarms, meta, slots[i], dues[i])


@kept_njit(nogil=True)
def scan_due(
    times: Any, epochs: Any, size: Any, watermark: Any, alarms: Any, meta: Any, first: Any, out: Any
) -> Any:
    """Find the slots whose time + size is due, in ascending order, among those of the alarms from
    `first` on that have gone off. Such an alarm becomes the least time that is not due. Time
    `NEVER` is never due.

    Returns (the alarm at which it stopped because `out` may be full, -1 at the end; how many slots
    `out` got). At the end `meta[NEXT]` is the least of all alarms.
    """
    n = 0
    many = (meta[USED] + (1 << ALARM_BITS) - 1) >> ALARM_BITS
    for a in range(first, many):
        if alarms[a] > watermark:
            continue
        if n + (1 << ALARM_BITS) > len(out):
            return a, n
        least = NEVER
        for slot in range(a << ALARM_BITS, min((a + 1) << ALARM_BITS, meta[USED])):
            if epochs[slot] == FREE or times[slot] == NEVER:
                continue
            due = times[slot] + size
            if due > watermark:
                least = min(least, due)
            else:
                out[n] = slot
                n += 1
        alarms[a] = least
    least = NEVER
    for a in range(many):
        least = min(least, alarms[a])
    meta[NEXT] = least
    return -1, n
