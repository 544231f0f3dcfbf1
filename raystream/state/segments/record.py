"""The form of a record: what the rows of all operators have alike on disk.

A record has a fixed size. It begins with the hash of the key, the last epoch that touched the row,
the time at which the row is due, and the words that identify the key. What follows is the payload:
the fields of a structured row, or a place in the heap of the segment, where the row lies encoded.
A record may also say that the row was removed.

Keys that are integers are their own words. For a key of any other kind the words are a digest of
128 bits (BLAKE2b, RFC 7693): two keys with one digest are not expected in the life of the universe.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

HEAD_WORDS = 3
"""Words of 64 bits before those of the key."""
HASH, EPOCH, DUE = range(HEAD_WORDS)
"""Which of these words is what."""
HEAP_FIELDS: tuple[Any, ...] = (("_at", "u8"), ("_size", "u8"))
"""The payload where rows lie in the heap: the first byte, and how many there are."""
DIGEST_WORDS = 2


def record_dtype(key_words: int, payload: Sequence[Any]) -> np.dtype[Any]:
    """The dtype of records.

    Args:
        key_words: how many 64-bit words identify a key.
        payload: the fields of the payload, as NumPy names them.
    """
    head = [("_hash", "u8"), ("_epoch", "i8"), ("_due", "i8"), ("_key", "i8", (key_words,))]
    dtype = np.dtype([*head, *payload], align=True)
    if dtype.itemsize % 8:  # words of records are read as one array
        dtype = np.dtype([*head, *payload, ("_rest", "u1", (8 - dtype.itemsize % 8,))], align=True)
    return dtype


def removed_at(epoch: np.ndarray | int) -> Any:
    """What stands in the place of the epoch of a record that says that a row was removed."""
    return ~epoch


def is_removed(records: np.ndarray) -> np.ndarray:
    """bool [n]: which records say that a row was removed."""
    gone: np.ndarray = records["_epoch"] < 0
    return gone


def epochs_of(records: np.ndarray) -> np.ndarray:
    """int64 [n]: the epochs in which rows were touched last, or removed."""
    epochs = records["_epoch"]
    return np.where(epochs < 0, ~epochs, epochs)


def digests(keys: Sequence[bytes]) -> np.ndarray:
    """int64 [n, 2]: the words of keys that are bytes."""
    data = b"".join(blake2b(key, digest_size=8 * DIGEST_WORDS).digest() for key in keys)
    return np.frombuffer(data, "<i8").reshape(len(keys), DIGEST_WORDS)
