"""The hot loops over columns: hash, key group, counting sort. Compiled once, kept on disk.

Importing this module imports Numba (0.2 s), so it is imported where columns are first touched.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from raystream.native.jit import kept_njit
from raystream.native.numba_internals import cgutils
from raystream.schema.columns import read_only
from raystream.state.keys import BYTES_MUL, BYTES_SEED, GOLDEN, NONE_HASH

_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_GOLD, _SEED, _MUL = np.uint64(GOLDEN), np.uint64(BYTES_SEED), np.uint64(BYTES_MUL)
_MOST = np.iinfo(np.int64).max
_ALL_BITS = np.uint64(2**64 - 1)
_U27, _U29, _U30, _U31, _U32 = (np.uint64(n) for n in (27, 29, 30, 31, 32))

FEW_RUNS = 1024
"""How many runs of one epoch a batch is expected to have at most; with more it is read twice."""


@kept_njit(nogil=True, inline="always")
def mix(x: Any) -> Any:
    x = (x ^ (x >> _U30)) * _M1
    x = (x ^ (x >> _U27)) * _M2
    return x ^ (x >> _U31)


@kept_njit(nogil=True, inline="always")
def hash_int(value: Any) -> Any:
    return mix(np.uint64(np.int64(value)) + _GOLD)


@kept_njit(nogil=True, inline="always")
def fold(h: Any, column: Any) -> Any:
    return mix((h ^ (h >> _U29)) * _MUL + column)


@kept_njit(nogil=True)
def _hash_ints(values: Any, out: Any) -> None:
    for i in range(len(values)):
        out[i] = hash_int(values[i])


@kept_njit(nogil=True)
def _fold_ints(values: Any, out: Any) -> None:
    for i in range(len(values)):
        out[i] = fold(out[i], hash_int(values[i]))


@intrinsic
def _eight_bytes(typing: Any, data: Any, at: Any) -> Any:
    """uint64: the eight bytes from `at` on, the first one the least; `data` has them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(data)(context, builder, args[0])
        untyped: Any = cgutils
        item = untyped.get_item_pointer(context, builder, data, made, [args[1]])
        word = builder.load(builder.bitcast(item, ir.IntType(64).as_pointer()))
        word.align = 1
        return builder.bswap(word) if sys.byteorder == "big" else word

    return types.uint64(data, types.int64), generate


@njit(nogil=True)
def word_at(data: Any, at: Any, end: Any) -> Any:
    """uint64: the bytes from `at` on, at most eight and those before `end`, the first the least."""
    word = np.uint64(0)
    if at + 8 <= len(data):
        word = _eight_bytes(data, at)  # type: ignore[call-arg]
        if end - at < 8:
            word &= (np.uint64(1) << np.uint64(8 * (end - at))) - np.uint64(1)
        return word
    for j in range(min(8, end - at)):
        word |= np.uint64(data[at + j]) << np.uint64(8 * j)
    return word


@kept_njit(nogil=True)
def _hash_strings(offsets: Any, data: Any, out: Any) -> None:
    for i in range(len(offsets) - 1):
        at, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        h = _SEED ^ np.uint64(end - at)
        while at < end:
            word = word_at(data, at, end)
            h = (h ^ word) * _MUL
            h ^= h >> _U32
            at += 8
        out[i] = mix(h)


@kept_njit(nogil=True)
def _fold_hashes(hashes: Any, out: Any) -> None:
    for i in range(len(hashes)):
        out[i] = fold(out[i], hashes[i])


@kept_njit(nogil=True)
def _groups(hashes: Any, groups: Any, out: Any) -> None:
    for i in range(len(hashes)):
        out[i] = np.uint16(((hashes[i] >> _U32) * groups) >> _U32)


@kept_njit(nogil=True)
def _count(group: Any, offsets: Any) -> None:
    for i in range(len(group)):
        offsets[group[i] + 1] += 1
    for g in range(len(offsets) - 1):
        offsets[g + 1] += offsets[g]


@kept_njit(nogil=True)
def _arrange(group: Any, offsets: Any, places: Any, out: Any) -> None:
    """Sort rows by group, stably. With `places`, `out` is where each row goes; otherwise it is
    which row comes where."""
    at = offsets[:-1].copy()
    for i in range(len(group)):
        g = group[i]
        if places:
            out[i] = at[g]
        else:
            out[at[g]] = i
        at[g] += 1


@kept_njit(nogil=True)
def _arrange_ints(values: Any, group: Any, offsets: Any, places: Any, out: Any) -> None:
    groups = np.uint64(len(offsets) - 1)
    for i in range(len(values)):
        group[i] = np.uint16(((hash_int(values[i]) >> _U32) * groups) >> _U32)
    _count(group, offsets)
    _arrange(group, offsets, places, out)


@kept_njit(nogil=True)
def _place(places: Any, values: Any, out: Any) -> None:
    for i in range(len(places)):
        out[places[i]] = values[i]


def hash_columns(columns: list[Any]) -> np.ndarray:
    """uint64 hashes of keys that are held in columns (NumPy integers, Arrow text or bytes, Arrow
    integers where some may be None)."""
    out = np.empty(len(columns[0]), np.uint64)
    for i, column in enumerate(columns):
        if isinstance(column, np.ndarray):
            (_fold_ints if i else _hash_ints)(read_only(column), out)
        else:
            hashes = out if i == 0 else np.empty(len(column), np.uint64)
            _hash_arrow(column, hashes)
            if i:
                _fold_hashes(hashes, out)
    return out


def _hash_arrow(column: Any, out: np.ndarray) -> None:
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        _hash_ints(read_only(integers(column)), out)
    else:
        _hash_strings(*string_buffers(column), out)
    if column.null_count:
        out[~np.asarray(column.is_valid())] = NONE_HASH


def integers(column: Any) -> np.ndarray:
    """int64: the numbers of an Arrow array, 0 for None."""
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    return filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def string_buffers(array: Any) -> tuple[np.ndarray, np.ndarray]:
    """(offsets int32 [n + 1], bytes) of an Arrow text or bytes array, which may be a slice."""
    _, offsets, data = array.buffers()
    if offsets is None:
        return read_only(np.zeros(1, np.int32)), read_only(np.zeros(0, np.uint8))
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    at = np.frombuffer(offsets, np.int64 if wide else np.int32)[
        array.offset : array.offset + len(array) + 1
    ]
    text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return read_only(at), read_only(text)


def key_groups(columns: list[Any], groups: int) -> np.ndarray:
    """uint16 key groups of keys that are held in columns."""
    hashes = hash_columns(columns)
    out = np.empty(len(hashes), np.uint16)
    _groups(hashes, np.uint64(groups), out)
    return out


def sort_by_group(group: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """A stable counting sort: (order int64 [n], offsets int64 [groups + 1])."""
    offsets, order = np.zeros(groups + 1, np.int64), np.empty(len(group), np.int64)
    _count(group, offsets)
    _arrange(group, offsets, False, order)
    return order, offsets


def sort_by_key(columns: list[Any], groups: int) -> tuple[np.ndarray, np.ndarray]:
    """As `sort_by_group` of the `key_groups` of columns: one call where the key is an integer."""
    order = np.empty(len(columns[0]), np.int64)
    return order, _arranged(columns, groups, False, order)


def places_by_key(columns: list[Any], groups: int) -> tuple[np.ndarray, np.ndarray]:
    """As `sort_by_key`, the other way round: (where each row goes [n], offsets int64 [groups + 1]).
    Places are int32, where that is enough: half as much to write and read."""
    n = len(columns[0])
    places = np.empty(n, np.int32 if n < 1 << 31 else np.int64)
    return places, _arranged(columns, groups, True, places)


def _arranged(columns: list[Any], groups: int, places: bool, out: np.ndarray) -> np.ndarray:
    offsets = np.zeros(groups + 1, np.int64)
    if len(columns) > 1 or not isinstance(columns[0], np.ndarray):
        group = key_groups(columns, groups)
        _count(group, offsets)
        _arrange(group, offsets, places, out)
    else:
        group = np.empty(len(out), np.uint16)
        _arrange_ints(read_only(columns[0]), group, offsets, places, out)
    return offsets


def placed(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A column of numbers of any dtype, [n], each at its place; `places` has every place once."""
    out, bits = np.empty(len(values), values.dtype), f"u{values.itemsize}"
    _place(places, read_only(values.view(bits)), out.view(bits))
    return out


@kept_njit(nogil=True)
def _ordinals(index: Any, counts: Any, out: Any) -> None:
    for i in range(len(index)):
        out[i] = counts[index[i]]
        counts[index[i]] += 1


def ordinals(index: np.ndarray, distinct: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each number below `distinct` came: (before each position [n], in all): int64."""
    counts, out = np.zeros(distinct, np.int64), np.empty(len(index), np.int64)
    _ordinals(index, counts, out)
    return out, counts


@kept_njit(nogil=True)
def _runs(times: Any, origin: Any, length: Any, last: Any, ends: Any, epochs: Any) -> Any:
    """As `epoch_runs`; how many runs there are, of which the first that there is room for are
    given. One division for each run, not for each row. From the origin to a time is more than 63
    bits can tell, if one is far below 0."""
    runs, room = 0, len(ends)
    step, begin = np.uint64(length), np.uint64(origin)
    epoch, bound = last, _first_after(last, step)
    for i in range(len(times)):
        time = np.int64(times[i])
        since = np.uint64(time) - begin
        if time >= origin and since >= bound:
            newer = np.int64(min(since // step, np.uint64(_MOST - 1))) + 1
            if newer > epoch:
                if i:
                    if runs < room:
                        ends[runs], epochs[runs] = i, epoch
                    runs += 1
                epoch = newer
                bound = _first_after(epoch, step)
    if len(times):
        if runs < room:
            ends[runs], epochs[runs] = len(times), epoch
        runs += 1
    return runs


@kept_njit(nogil=True, inline="always")
def _first_after(epoch: Any, step: Any) -> Any:
    """uint64: the least time since the origin that is behind an epoch; the greatest number if none
    is."""
    least = np.uint64(epoch)
    return least * step if least <= _ALL_BITS // step else _ALL_BITS


def epoch_runs(
    times: np.ndarray, origin: int, length: int, last: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows cut by their times: (where each run of rows of one epoch ends, its epoch): int64 both.

    The epoch of a row is the running maximum of (time - origin) // length + 1, at most 2**63 - 1.

    Args:
        times: integers.
        last: the epoch of the row before the first, at least 0.
    """
    given = read_only(times)
    room = FEW_RUNS
    while True:  # memory for a run of each row would be touched for nothing
        ends, epochs = np.empty(room, np.int64), np.empty(room, np.int64)
        n = _runs(given, origin, length, last, ends, epochs)
        if n <= room:
            return ends[:n], epochs[:n]
        room = n
