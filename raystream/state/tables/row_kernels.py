"""A structured row and the index over rows, jitted: open addressing with linear probing, by pages.

Drivers inline these functions, and the loops of `loop_kernels` call them. A key is anything with
`len` and integer items: a tuple of int64, or the `_key` of a row. The index holds int32 slots (-1
is empty). The *first* bits of the hash, which also determine the key group, choose through a
directory the page on which a search begins; its last bits choose the place on the page. A search
does not leave its page, of which a good part is empty. A removal shifts entries back, so that a
search never meets the mark of a removed entry.

Importing this module imports Numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from raystream.native.jit import kept_njit
from raystream.native.numba_internals import UNCOUNTED, cgutils, uncounted
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


@uncounted
def hash_key(key: Any, columns: Any) -> Any:
    """The hash of the first `columns` columns of a key (see `state.keys`)."""
    h = hash_int(key[0])
    for j in range(1, columns):
        h = fold(h, hash_int(key[j]))
    return h


@uncounted
def first_bits(h: Any, values: Any) -> Any:
    """The first bits of a hash, as a number below `values`, a power of two up to 2 ** 32."""
    return np.int64(((h >> np.uint64(32)) * np.uint64(values)) >> np.uint64(32))


@uncounted
def home_of(key: Any, index: Any) -> Any:
    """Where a key's search begins in the entries of an index."""
    return _home(hash_key(key, len(key)), index)


@uncounted
def home_of_slot(rows: Any, slot: Any, index: Any) -> Any:
    """As `home_of`, for the key of a row."""
    return _home(hash_of_slot(rows, slot), index)


@uncounted
def hash_of_slot(rows: Any, slot: Any) -> Any:
    """The hash of a row's key. It does not name `rows[slot]._key` by itself, because Numba would
    then count references to `rows`."""
    h = hash_int(rows[slot]._key[0])
    for j in range(1, len(rows[slot]._key)):
        h = fold(h, hash_int(rows[slot]._key[j]))
    return h


@uncounted
def _home(h: Any, index: Any) -> Any:
    chosen = first_bits(h, len(index.pages))
    return np.int64(index.pages[chosen]) << PAGE_BITS | np.int64(h & np.uint64(PAGE - 1))


@uncounted
def after(at: Any) -> Any:
    """The entry where a search goes on: the next one of the page; the first after the last."""
    return (at & ~np.int64(PAGE - 1)) | ((at + 1) & (PAGE - 1))


@uncounted
def is_full(index: Any, page: Any) -> Any:
    """Whether a page is to be split before it takes another row.

    Hashes fill all pages alike. If all pages had the same limit, all would be split at nearly the
    same moment, each time a table doubles, and the computing thread would get little other work
    done. So each page has its own limit. The fractions of multiples of the golden ratio are spread
    evenly, however many there are.
    """
    room = PAGE_LEAST + (((page * _GOLDEN & _FRACTION) * PAGE_LEAST) >> _FRACTION_BITS)
    return index.filled[page] >= room


@uncounted
def _is(rows: Any, slot: Any, key: Any) -> Any:
    # The array, not the row: Numba would take a row of more fields for one of fewer, and warn.
    same = True
    for j in range(len(key)):
        same &= rows[slot]._key[j] == key[j]
    return same


@uncounted
def find(rows: Any, index: Any, key: Any) -> Any:
    """The slot of a key, or -1."""
    entries = index.entries
    at = home_of(key, index)
    while entries[at] >= 0:
        if _is(rows, entries[at], key):
            return np.int64(entries[at])
        at = after(at)
    return np.int64(-1)


@uncounted
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


@uncounted
def take_from_index(rows: Any, index: Any, slot: Any) -> None:
    """Take the slot of a row out of the index."""
    entries = index.entries
    hole = home_of_slot(rows, slot, index)
    index.filled[hole >> PAGE_BITS] -= 1
    while entries[hole] != slot:
        hole = after(hole)
    at = after(hole)
    while entries[at] >= 0:
        home = home_of_slot(rows, entries[at], index)
        if ((at - home) & (PAGE - 1)) >= ((at - hole) & (PAGE - 1)):
            entries[hole] = entries[at]
            hole = at
        at = after(at)
    entries[hole] = -1


@kept_njit(**UNCOUNTED)
def remove(rows: Any, index: Any, meta: Any, defaults: Any, slot: Any) -> None:
    """Free the slot of a row. defaults: an array of one row, which holds the defaults."""
    take_from_index(rows, index, slot)
    rows[slot] = defaults[0]
    rows[slot]._key[0] = meta[CHAIN]
    meta[CHAIN] = slot
    meta[LIVE] -= 1


@kept_njit(**UNCOUNTED)
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


@uncounted
def place(index: Any, home: Any, slot: Any) -> None:
    """Put a slot into the index. Its key is not there yet, and its page has room."""
    at = home
    while index.entries[at] >= 0:
        at = after(at)
    index.entries[at] = slot
    index.filled[home >> PAGE_BITS] += 1


@uncounted
def is_viewed(rows: Any, meta: Any, slot: Any) -> Any:
    """Whether the open view has yet to copy this row."""
    epoch = rows[slot]._epoch
    if epoch > meta[UPTO] or slot < meta[TAKEN]:
        return False
    if epoch > meta[SINCE]:
        return True
    return epoch > FREE and (epoch < meta[OLD] or (epoch == meta[OLD] and slot < meta[OLD_SLOT]))


@uncounted
def set_alarm(alarms: Any, meta: Any, slot: Any, due: Any) -> None:
    """Note that the row in this slot may be due at this time."""
    if due < alarms[slot >> ALARM_BITS]:
        alarms[slot >> ALARM_BITS] = due
        if due < meta[NEXT]:
            meta[NEXT] = due
