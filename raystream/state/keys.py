"""The stable hash of keys, key groups and ranges.

The hash is part of the stored format: it must never change, whatever the machine, the process or
the Python version, so golden values are tested. Integers of all widths (and bool) with one value
hash alike; text hashes as its UTF-8 bytes; a key of several columns folds their hashes in order.
`raystream.state.kernels` holds the same functions for columns.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from raystream.schema.kinds import plain_key
from raystream.schema.types import KeyRange

_MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
_MUL1 = 0xBF58476D1CE4E5B9
_MUL2 = 0x94D049BB133111EB
BYTES_SEED = 0x243F6A8885A308D3
BYTES_MUL = 0xFF51AFD7ED558CCD


def mix(x: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014) on 64 bits."""
    x = (x ^ (x >> 30)) * _MUL1 & _MASK
    x = (x ^ (x >> 27)) * _MUL2 & _MASK
    return x ^ (x >> 31)


def hash_int(value: int) -> int:
    """Hash of an integer of at most 64 bits."""
    return mix((value + GOLDEN) & _MASK)


def hash_bytes(data: bytes) -> int:
    """Hash of bytes: 8 bytes at a time, little-endian, the last word padded with zeros."""
    h = BYTES_SEED ^ len(data)
    for at in range(0, len(data), 8):
        h = ((h ^ int.from_bytes(data[at : at + 8], "little")) * BYTES_MUL) & _MASK
        h ^= h >> 32
    return mix(h)


NONE_HASH = mix(GOLDEN ^ BYTES_SEED)
"""Hash of None."""


def fold(h: int, column: int) -> int:
    """Add the hash of one more column to the hash of those before it."""
    return mix(((h ^ (h >> 29)) * BYTES_MUL + column) & _MASK)


def key_hash(key: Any) -> int:
    """Hash of a key: an int, bool, str, bytes, None, a value that is stored as one of these, or a
    tuple of all that."""
    if isinstance(key, tuple):
        h = key_hash(key[0])
        for part in key[1:]:
            h = fold(h, key_hash(part))
        return h
    if key is None:
        return NONE_HASH
    if isinstance(key, enum.Enum):
        key = plain_key(key)
    if isinstance(key, int):
        return hash_int(int(key))
    if isinstance(key, str):
        return hash_bytes(key.encode())
    if isinstance(key, bytes):
        return hash_bytes(key)
    if (plain := plain_key(key)) is not key:
        return key_hash(plain)
    raise TypeError(
        f"a key is an int, bool, str, bytes or a tuple of these, not {type(key).__name__}"
    )


def key_order(key: Any) -> Any:
    """What keys of one shape are sorted by: what is stored, None first."""
    if isinstance(key, tuple):
        return tuple(map(key_order, key))
    return (False, 0) if key is None else (True, plain_key(key))


def group_of_hash(h: int, groups: int) -> int:
    """The key group of a hash: its top 32 bits scaled to `groups`."""
    return (h >> 32) * groups >> 32


def key_group(key: Any, groups: int) -> int:
    """The key group of a key."""
    return group_of_hash(key_hash(key), groups)


def even_ranges(groups: int, instances: int) -> list[KeyRange]:
    """Cut all key groups into `instances` ranges of nearly equal size."""
    if not 1 <= instances <= groups:
        raise ValueError(f"{instances} instances for {groups} key groups")
    bounds = [groups * i // instances for i in range(instances + 1)]
    return [KeyRange(lo, hi) for lo, hi in pairwise(bounds)]


def tiles(ranges: Iterable[KeyRange], groups: int) -> bool:
    """Whether ranges, in this order, tile all key groups: each key group is in exactly one of them,
    and none of them is empty."""
    at = 0
    for keys in ranges:
        if keys.lo != at or keys.hi <= keys.lo:
            return False
        at = keys.hi
    return at == groups


def cover(held: Iterable[KeyRange], wanted: KeyRange) -> list[tuple[KeyRange, KeyRange]] | None:
    """Which held ranges give which parts of a wanted one: (held, part), the parts tile it exactly.

    Held ranges may overlap; few are taken, and the wanted one itself where it is held. None if some
    key group is held by no range.
    """
    ranges = set(held)
    if wanted in ranges:
        return [(wanted, wanted)]
    found, at = [], wanted.lo
    while at < wanted.hi:
        here = [r for r in ranges if r.holds(at)]
        if not here:
            return None
        most = max(here, key=lambda r: (r.hi, r.lo))
        found.append((most, KeyRange(at, min(most.hi, wanted.hi))))
        at = most.hi
    return found


def among(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """bool [n]: which keys are among others. Both int64 [n, words]."""
    if not len(others) or not len(keys):
        return np.zeros(len(keys), bool)
    kind = np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))
    one, two = (np.ascontiguousarray(k).view(kind).ravel() for k in (keys, others))
    found: np.ndarray = np.isin(one, two)
    return found
