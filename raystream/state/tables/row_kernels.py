"""Structured rows and the index over them, jitted: open addressing with linear probing, by pages.

Drivers inline these functions; batch access calls them over columns. A key is anything with `len`
and integer items: a tuple of int64, or the `_key` of a row. The index holds int32 slots (-1 is
empty). The *first* bits of the hash, which also determine the key group, choose through a directory
the page on which a search begins; its last bits choose the place on the page. A search does not
leave its page, of which a good part is empty. A removal shifts entries back, so that a search never
meets the mark of a removed entry.

Importing this module imports Numba.

Why long: all these functions work on one layout, the rows with `_key` and `_epoch` and the entries
of `meta`, and most of them call each other and are inlined, by address arithmetic that makes sense
only beside the layout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from raystream.native.jit import kept_njit
from raystream.native.numba_internals import cgutils
from raystream.schema.types import NEVER
from raystream.state.kernels import fold, hash_int

LIVE, USED, CHAIN, NEXT, GONE, CROWDED, SINCE, UPTO, TAKEN, KEPT, OLD, OLD_SLOT, FIELDS = range(13)
"""Entries of a table's `meta`.

LIVE             the number of rows
USED             the number of slots that were ever used
CHAIN            the head of the chain of free slots among those, linked through their first key
                 column; -1 if there are none
NEXT             a lower bound of all alarms
GONE             the number of removals that are remembered
CROWDED          the page of the index that a key found full; -1 if it found no free slot

Of the view that is open:

SINCE, UPTO      it has the rows whose epoch is after SINCE and not after UPTO
OLD, OLD_SLOT    it also has the old rows whose epoch and slot come before these
TAKEN            the slots below this one are copied
KEPT             the number of rows that were put aside before they changed
"""

PAGE_BITS = 12
PAGE = 1 << PAGE_BITS
"""Entries of a page of the index."""
PAGE_LEAST = PAGE * 45 // 128
PAGE_MOST = 2 * PAGE_LEAST
"""Each page has a limit between these two numbers of rows: a page that has reached its limit is
split before it takes another row (see `is_full`)."""

_FRACTION_BITS = 16
_FRACTION = (1 << _FRACTION_BITS) - 1
_GOLDEN = 40503  # the golden ratio, as a fraction of 65536

NO_VIEW = -3
"""`UPTO` when no view is open: less than the epoch of any row."""


class Index(NamedTuple):
    """The arrays of an index, int32 each."""

    entries: np.ndarray
    """Slots by page and place; -1 where there is none."""
    pages: np.ndarray
    """The directory: a page for each value of the first bits, [a power of two]."""
    filled: np.ndarray
    """The number of entries of each page that are not empty."""


ALARM_BITS = 7
"""An alarm is a lower bound of the due times of 2 ** ALARM_BITS consecutive slots. Rows that came
together are often due together, and are then found without a look at others."""

AHEAD = 64
"""How many entries of the index are fetched ahead of their use."""

CACHE_LINE = 64

ROWS_AHEAD = 16
"""How many rows are fetched ahead when their slots are known."""

FREE = -1
"""`_epoch` of a slot without a row. A free slot holds the defaults."""

FORGET = -2
"""`_epoch` of a row that the user's function forgot: the driver removes it after the call."""


def _lines(size: int) -> list[int]:
    """Offsets in an item of `size` bytes that together touch all cache lines of the item."""
    last = [size - 1] if CACHE_LINE % size else []
    return [*range(0, size, CACHE_LINE), *last]


@intrinsic
def prefetch(typing: Any, array: Any, at: Any) -> Any:
    """Fetch all cache lines of an item of a one-dimensional array ahead of its use. Any `at` is
    allowed, also one outside of the array."""
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
    """The first bits of a hash, as a number below `values`, a power of two up to 2 ** 32."""
    return np.int64(((h >> np.uint64(32)) * np.uint64(values)) >> np.uint64(32))


@njit(nogil=True)
def home_of(key: Any, index: Any) -> Any:
    """Where a key's search begins in the entries of an index."""
    return _home(hash_key(key, len(key)), index)


@njit(nogil=True)
def _home_of_slot(rows: Any, slot: Any, index: Any) -> Any:
    """As `home_of`, for the key of a row."""
    return _home(_hash_of_slot(rows, slot), index)


@njit(nogil=True)
def _hash_of_slot(rows: Any, slot: Any) -> Any:
    """The hash of a row's key. It does not name `rows[slot]._key` by itself, because Numba would
    then count references to `rows`."""
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
    """The entry where a search goes on: the next one of the page; the first after the last."""
    return (at & ~np.int64(PAGE - 1)) | ((at + 1) & (PAGE - 1))


@njit(nogil=True)
def is_full(index: Any, page: Any) -> Any:
    """Whether a page is to be split before it takes another row.

    Hashes fill all pages alike. If all pages had the same limit, all would be split at nearly the
    same moment, each time a table doubles, and the computing thread would get little other work
    done. So each page has its own limit. The fractions of multiples of the golden ratio are spread
    evenly, however many there are.
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
    """The slot of a key. A new key gets a slot with the defaults and `epoch`. -1: the table has to
    grow, and `meta[CROWDED]` says where.

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
    """Free the slot of a row. defaults: an array of one row, which holds the defaults."""
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
    """Free the slot of a row and remember the removal; `gone` has room for it."""
    at = meta[GONE]
    gone[at]._slot = slot
    for j in range(len(rows[slot]._key)):
        gone[at]._key[j] = rows[slot]._key[j]
    gone[at]._epoch = epoch
    meta[GONE] = at + 1
    remove(rows, index, meta, defaults, slot)


@njit(nogil=True)
def _place(index: Any, home: Any, slot: Any) -> None:
    """Put a slot into the index. Its key is not there yet, and its page has room."""
    at = home
    while index.entries[at] >= 0:
        at = after(at)
    index.entries[at] = slot
    index.filled[home >> PAGE_BITS] += 1


@kept_njit(nogil=True)
def count_first_bits(heads: Any, used: Any, every: Any, counts: Any) -> None:
    """Count the rows in every `every`-th slot by the first bits of their keys' hashes."""
    for slot in range(0, used, every):
        if heads[slot]._epoch != FREE:
            counts[first_bits(_hash_of_slot(heads, slot), len(counts))] += 1


@kept_njit(nogil=True)
def rebuild(heads: Any, index: Any, first: Any, used: Any) -> Any:
    """Put the rows in the slots from `first` to `used` into an index that has none of them. Returns
    the slot at which it stopped because a page is full, or `used`."""
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
        _place(index, _home_of_slot(heads, scratch[i], index), scratch[i])


def key_at(columns: Any, at: Any) -> Any:
    """The key at a position of a tuple of columns, as a tuple. For jitted functions only."""
    raise NotImplementedError


@overload(key_at)
def _key_at(columns: Any, at: Any) -> Any:
    """Built column by column, so that all types are known: a loop would keep the key in memory."""

    def only(columns: Any, at: Any) -> Any:
        return (columns[0][at],)

    def several(columns: Any, at: Any) -> Any:
        return (columns[0][at],) + key_at(columns[1:], at)

    return only if len(columns) == 1 else several


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


@njit(nogil=True)
def is_viewed(rows: Any, meta: Any, slot: Any) -> Any:
    """Whether the open view has yet to copy this row."""
    epoch = rows[slot]._epoch
    if epoch > meta[UPTO] or slot < meta[TAKEN]:
        return False
    if epoch > meta[SINCE]:
        return True
    return epoch > FREE and (epoch < meta[OLD] or (epoch == meta[OLD] and slot < meta[OLD_SLOT]))


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


@njit(nogil=True)
def set_alarm(alarms: Any, meta: Any, slot: Any, due: Any) -> None:
    """Note that the row in this slot may be due at this time."""
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
