"""Structured rows and the index over them, jitted: open addressing with linear probing, by pages.

Drivers inline these functions, batch access calls them over columns. A key is anything with `len`
and integer items: a tuple of int64, or the `_key` of a row. The index holds int32 slots (-1 is
empty). The *first* bits of the hash, which also say the key group, say through a directory on which
page a search begins, its last bits where on it. A search does not leave its page, of which a good
part is empty, and removal shifts entries back, so that a search never meets a grave.

Importing this module imports Numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from raystream.schema.types import NEVER
from raystream.state.jit import kept_njit
from raystream.state.kernels import fold, hash_int

LIVE, USED, CHAIN, NEXT, GONE, CROWDED, SINCE, UPTO, TAKEN, KEPT, OLD, OLD_SLOT, FIELDS = range(13)
"""Entries of a table's `meta`: live rows; slots ever used; head of the chain of free slots among
those (-1: none), linked through their first key column; lower bound of all alarms; removals
remembered; the page of the index that a key found full (-1: it was the rows). Of the view that is
open: which rows it has, by their epoch (after SINCE, up to UPTO) or because they are old (epoch
and slot come before OLD and OLD_SLOT); the slots below TAKEN are copied; KEPT rows were put aside
before they changed."""

PAGE_BITS = 12
PAGE = 1 << PAGE_BITS
"""Entries of a page of the index."""
PAGE_LEAST = PAGE * 45 // 128
PAGE_MOST = 2 * PAGE_LEAST
"""A page with so many rows, one or the other number or between, is split before it takes another
one (see `is_full`)."""

_FRACTION_BITS = 16
_FRACTION = (1 << _FRACTION_BITS) - 1
_GOLDEN = 40503  # of the fraction's 65536 the golden ratio

NO_VIEW = -3
"""`UPTO` when no view is open: less than the epoch of any row."""


class Index(NamedTuple):
    """entries: int32, slots by page and place. pages: int32, the directory, a page for each value
    of the first bits, [a power of two]. filled: int32, the entries of each page that are not empty.
    """

    entries: np.ndarray
    pages: np.ndarray
    filled: np.ndarray


ALARM_BITS = 7
"""An alarm is a lower bound of the due times of so many slots in a row, as a power of two. Rows
that came together are often due together: they are found without a look at others."""

AHEAD = 64
"""So many entries of the index are fetched ahead of their use."""

CACHE_LINE = 64

ROWS_AHEAD = 16
"""So many rows are fetched ahead when their slots are known."""

FREE = -1
"""`_epoch` of a slot without a row. A free slot holds the defaults."""

FORGET = -2
"""`_epoch` of a row that the user's function forgot: the driver removes it after the call."""


def _lines(size: int) -> list[int]:
    """Offsets in an item of so many bytes by which all lines of the cache are met that it has."""
    last = [size - 1] if CACHE_LINE % size else []
    return [*range(0, size, CACHE_LINE), *last]


@intrinsic
def prefetch(typing: Any, array: Any, at: Any) -> Any:
    """Fetch an item of a one-dimensional array into the cache ahead of its use: all its lines; no
    `at` is bad."""
    lines = _lines(array.dtype.size if isinstance(array.dtype, types.Record) else 8)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        made = context.make_array(array)(context, builder, args[0])
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        untyped: Any = cgutils
        function = untyped.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        to_write, keep, is_data = flag(1), flag(3), flag(1)
        item = untyped.get_item_pointer(context, builder, array, made, [args[1]])
        first = builder.bitcast(item, byte)
        for offset in lines:
            at = builder.gep(first, [ir.IntType(64)(offset)])
            builder.call(function, [at, to_write, keep, is_data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@njit(nogil=True)
def hash_key(key: Any, columns: Any) -> Any:
    """The hash of the first `columns` columns of a key (see `state.keys`)."""
    h = hash_int(key[0])
    for j in range(1, columns):
        h = fold(h, hash_int(key[j]))
    return h


@njit(nogil=True)
def first_bits(h: Any, values: Any) -> Any:
    """The first bits of a hash; they have so many values, a power of two up to 2 ** 32."""
    return np.int64(((h >> np.uint64(32)) * np.uint64(values)) >> np.uint64(32))


@njit(nogil=True)
def home_of(key: Any, index: Any) -> Any:
    """Where a key's search begins in the entries of an index."""
    return _home(hash_key(key, len(key)), index)


@njit(nogil=True)
def _home_of_slot(rows: Any, slot: Any, index: Any) -> Any:
    """The same for the key of a row."""
    return _home(_hash_of_slot(rows, slot), index)


@njit(nogil=True)
def _hash_of_slot(rows: Any, slot: Any) -> Any:
    """The hash of a row's key; `rows[slot]._key` by itself would count references to rows."""
    h = hash_int(rows[slot]._key[0])
    for j in range(1, len(rows[slot]._key)):
        h = fold(h, hash_int(rows[slot]._key[j]))
    return h


@njit(nogil=True)
def _home(h: Any, index: Any) -> Any:
    chosen = first_bits(h, len(index.pages))
    return np.int64(index.pages[chosen]) << PAGE_BITS | np.int64(h & np.uint64(PAGE - 1))


@njit(nogil=True)
def after(at: Any) -> Any:
    """The entry where a search goes on: the next one of the page, round and round."""
    return (at & ~np.int64(PAGE - 1)) | ((at + 1) & (PAGE - 1))


@njit(nogil=True)
def is_full(index: Any, page: Any) -> Any:
    """Whether a page is to be split before it takes another row.

    Hashes fill all pages alike. If they were full with the same number of rows, all would be split
    in the moments in which a table doubles, and whoever computes would get little else done. The
    fractions of multiples of the golden ratio lie evenly, however many there are.
    """
    room = PAGE_LEAST + (((page * _GOLDEN & _FRACTION) * PAGE_LEAST) >> _FRACTION_BITS)
    return index.filled[page] >= room


@njit(nogil=True)
def _is(rows: Any, slot: Any, key: Any) -> Any:
    # The array, not the row: Numba would take a row of more fields for one of fewer, and warn.
    same = True
    for j in range(len(key)):
        same &= rows[slot]._key[j] == key[j]
    return same


@njit(nogil=True)
def find(rows: Any, index: Any, key: Any) -> Any:
    """The slot of a key, or -1."""
    entries = index.entries
    at = home_of(key, index)
    while entries[at] >= 0:
        if _is(rows, entries[at], key):
            return np.int64(entries[at])
        at = after(at)
    return np.int64(-1)


@njit(nogil=True)
def find_or_insert(rows: Any, index: Any, meta: Any, key: Any, epoch: Any, home: Any) -> Any:
    """The slot of a key; a new key gets the defaults and `epoch`. -1: the table has to grow.

    home: `home_of(key)`.
    """
    entries = index.entries
    at = home
    while entries[at] >= 0:
        if _is(rows, entries[at], key):
            return np.int64(entries[at])
        at = after(at)
    page = home >> PAGE_BITS
    if is_full(index, page):
        meta[CROWDED] = page
        return np.int64(-1)
    slot = meta[CHAIN]
    if slot >= 0:
        meta[CHAIN] = rows[slot]._key[0]
    elif meta[USED] < len(rows):
        slot = meta[USED]
        meta[USED] += 1
    else:
        meta[CROWDED] = -1
        return np.int64(-1)
    for j in range(len(key)):
        rows[slot]._key[j] = key[j]
    rows[slot]._epoch = epoch
    entries[at] = slot
    index.filled[page] += 1
    meta[LIVE] += 1
    return slot


@kept_njit(nogil=True)
def remove(rows: Any, index: Any, meta: Any, defaults: Any, slot: Any) -> None:
    """Free a slot. `defaults`: one row."""
    entries = index.entries
    hole = _home_of_slot(rows, slot, index)
    index.filled[hole >> PAGE_BITS] -= 1
    while entries[hole] != slot:
        hole = after(hole)
    at = after(hole)
    while entries[at] >= 0:
        home = _home_of_slot(rows, entries[at], index)
        if ((at - home) & (PAGE - 1)) >= ((at - hole) & (PAGE - 1)):
            entries[hole] = entries[at]
            hole = at
        at = after(at)
    entries[hole] = -1
    rows[slot] = defaults[0]
    rows[slot]._key[0] = meta[CHAIN]
    meta[CHAIN] = slot
    meta[LIVE] -= 1


@kept_njit(nogil=True)
def remove_noted(
    rows: Any, index: Any, meta: Any, defaults: Any, gone: Any, slot: Any, epoch: Any
) -> None:
    """Free a slot and remember the removal; the caller has seen that `gone` has room."""
    at = meta[GONE]
    gone[at]._slot = slot
    for j in range(len(rows[slot]._key)):
        gone[at]._key[j] = rows[slot]._key[j]
    gone[at]._epoch = epoch
    meta[GONE] = at + 1
    remove(rows, index, meta, defaults, slot)


@njit(nogil=True)
def _place(index: Any, home: Any, slot: Any) -> None:
    """Put a slot into the index whose key is not there; its page has room."""
    at = home
    while index.entries[at] >= 0:
        at = after(at)
    index.entries[at] = slot
    index.filled[home >> PAGE_BITS] += 1


@kept_njit(nogil=True)
def count_first_bits(heads: Any, used: Any, every: Any, counts: Any) -> None:
    """Count, of every so many slots, the rows by the first bits of their keys' hashes."""
    for slot in range(0, used, every):
        if heads[slot]._epoch != FREE:
            counts[first_bits(_hash_of_slot(heads, slot), len(counts))] += 1


@kept_njit(nogil=True)
def rebuild(heads: Any, index: Any, first: Any, used: Any) -> Any:
    """Put the rows among the slots from `first` to `used` into an index that has none of them;
    where it stopped because a page is full."""
    homes = np.empty(AHEAD, np.int64)
    for base in range(first, used, AHEAD):
        many = min(AHEAD, used - base)
        for i in range(many):  # a miss of the cache each, so all of them at once
            homes[i] = _home_of_slot(heads, base + i, index)
            prefetch(index.entries, homes[i])  # type: ignore[call-arg]
        for i in range(many):
            if heads[base + i]._epoch != FREE:
                if index.filled[homes[i] >> PAGE_BITS] >= PAGE_MOST:
                    return base + i
                _place(index, homes[i], base + i)
    return used


@kept_njit(nogil=True)
def place_again(heads: Any, index: Any, page: Any, scratch: Any) -> None:
    """Place the rows of a page again, of which some are now another's. scratch: int64."""
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
        _place(index, _home_of_slot(heads, scratch[i], index), scratch[i])


def key_at(columns: Any, at: Any) -> Any:
    """The key at a position of a tuple of columns, as a tuple. For jitted functions only."""
    raise NotImplementedError


@overload(key_at)
def _key_at(columns: Any, at: Any) -> Any:
    """Column by column as the types are known: a loop would leave the key in memory."""

    def only(columns: Any, at: Any) -> Any:
        return (columns[0][at],)

    def several(columns: Any, at: Any) -> Any:
        return (columns[0][at],) + key_at(columns[1:], at)

    return only if len(columns) == 1 else several


@kept_njit(nogil=True)
def insert_all(
    heads: Any, index: Any, meta: Any, columns: Any, epoch: Any, slots: Any, first: Any
) -> Any:
    """Find or insert the keys from `first` on; where it stopped because the table is full.

    heads: `_key` and `_epoch` of the rows. columns: a tuple of int64 columns. slots: what is found.

    Of a key two places may be out of the cache, one known from the other: its entry of the index is
    fetched two blocks of keys earlier, and its row one block.
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


@njit(nogil=True)
def is_viewed(rows: Any, meta: Any, slot: Any) -> Any:
    """Whether the view that is open has yet to copy this row."""
    epoch = rows[slot]._epoch
    if epoch > meta[UPTO] or slot < meta[TAKEN]:
        return False
    if epoch > meta[SINCE]:
        return True
    return epoch > FREE and (epoch < meta[OLD] or (epoch == meta[OLD] and slot < meta[OLD_SLOT]))


@kept_njit(nogil=True)
def put_aside(heads: Any, rows: Any, meta: Any, slots: Any, first: Any, aside: Any) -> Any:
    """Copy the rows in these slots, from `first` on, that the open view has yet to copy; where it
    stopped because there is no more room.

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
    """Copy the rows that the open view has yet to copy, up to a slot, to `out` from n on; how many
    are there then. In place of its epoch a copy has the slot of the row. Old rows count as touched
    by the epoch of the view from then on.

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
    """Number slots by first appearance; `slots` becomes the distinct ones. Returns how many.

    seen: int64 per slot, below `base` when this call begins.
    """
    n = 0
    for i in range(len(slots)):
        slot, number = slots[i], seen[slots[i]]
        new = number < base
        number = base + n if new else number
        seen[slot] = number
        slots[n] = slot
        n += new  # not `if new`, which nobody can foresee
        inverse[i] = number - base
    return n


@njit(nogil=True)
def set_alarm(alarms: Any, meta: Any, slot: Any, due: Any) -> None:
    """The row in this slot may be due at this time."""
    if due < alarms[slot >> ALARM_BITS]:
        alarms[slot >> ALARM_BITS] = due
        if due < meta[NEXT]:
            meta[NEXT] = due


@kept_njit(nogil=True)
def set_alarms(alarms: Any, meta: Any, slots: Any, dues: Any) -> None:
    """`set_alarm` for several rows."""
    for i in range(len(slots)):
        set_alarm(alarms, meta, slots[i], dues[i])


@kept_njit(nogil=True)
def scan_due(
    times: Any, epochs: Any, size: Any, watermark: Any, alarms: Any, meta: Any, first: Any, out: Any
) -> Any:
    """The slots whose time + size is due, ascending, of the alarms from `first` on that have gone
    off; alarms become the least times that are not due. Time `NEVER` is never due.

    Returns (the alarm at which it stopped because `out` may be full, -1 at the end; how many slots
    `out` got). At the end `meta` has the least of all alarms.
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
