"""Numbers for text: structured rows have integer keys, and users' keys may be str or bytes.

A number means something inside one instance only. It is kept as long as the instance lives, though
its row may be gone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from raystream.errors import StateError

LEAST_CAPACITY = 16
BYTES_MAX = 2**31 - 1
"""Arrow's text columns have offsets of 32 bits."""


class TextNumbers:
    """Gives text (or bytes) the numbers 0, 1, 2 and so on, and the text back. Not thread-safe,
    except that numbers which were given may be turned back meanwhile."""

    def __init__(self) -> None:
        from raystream.state import text_kernels as kernels

        self._kernels = kernels
        self._used = 0
        self._data = np.empty(0, np.uint8)
        self._offsets = np.zeros(1, np.int64)
        self._hashes = np.empty(0, np.uint64)
        self._index = np.empty(0, np.int32)
        self._reserve(LEAST_CAPACITY, 16 * LEAST_CAPACITY)

    def __len__(self) -> int:
        return self._used

    def number(self, column: Any) -> np.ndarray:
        """int64: the numbers of an Arrow column of text or bytes; new text gets new ones."""
        given = _given(column)
        return np.arange(len(column)) if self._begun(*given) else self._found(*given)

    def learn(self, column: Any) -> None:
        """As `number`, for who knows which ones it gives."""
        given = _given(column)
        if not self._begun(*given):
            self._found(*given)

    def _found(self, offsets: np.ndarray, data: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        out, at = np.empty(len(hashes), np.int64), 0
        while True:
            at, self._used = self._kernels.number_all(
                offsets, data, hashes, self._offsets, self._data, self._hashes, self._index,
                self._used, out, at,
            )  # fmt: skip
            if at == len(hashes):
                return out
            room = int(offsets[at + 1] - offsets[at])
            self._reserve(self._used + 1, int(self._offsets[self._used]) + room)

    def _begun(self, offsets: np.ndarray, data: np.ndarray, hashes: np.ndarray) -> bool:
        """Begin with a whole column, as after a restore; False if there are texts already, or the
        column's are not distinct."""
        if self._used:
            return False
        index = np.full(2 * _size_for(len(hashes)), -1, np.int32)
        if self._kernels.rebuild(hashes, index, len(hashes)):
            return False
        self._index, self._hashes, self._used = index, hashes, len(hashes)
        self._offsets = np.subtract(offsets, offsets[0], dtype=np.int64)
        self._data = data[offsets[0] : offsets[-1]].copy()
        return True

    def text(self, numbers: np.ndarray, kind: Any) -> Any:
        """The Arrow column, of this type, that numbers stand for.

        Raises:
            StateError: it would be larger than 2 GB.
        """
        offsets = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(self._offsets[numbers + 1] - self._offsets[numbers], out=offsets[1:])
        if offsets[-1] > BYTES_MAX:
            raise StateError(
                f"the text of {len(numbers)} keys takes {offsets[-1]} bytes, and one checkpoint"
                f" holds {BYTES_MAX}",
                hint="Let more instances share the keys.",
            )
        data = np.empty(int(offsets[-1]), np.uint8)
        self._kernels.gather(self._offsets, self._data, numbers, offsets, data)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, len(numbers), buffers)

    def _reserve(self, texts: int, nbytes: int) -> None:
        """Make room for so many texts of so many bytes together, or for more."""
        size = _size_for(texts)
        if size > len(self._hashes):
            self._hashes = _grown(self._hashes, size, self._used)
            self._offsets = _grown(self._offsets, size + 1, self._used + 1)
        if 2 * size > len(self._index):
            self._index = np.full(2 * size, -1, np.int32)
            self._kernels.rebuild(self._hashes, self._index, self._used)
        if nbytes > len(self._data):
            self._data = _grown(self._data, 2 * nbytes, int(self._offsets[self._used]))


def _given(column: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, bytes and hashes of a column."""
    from raystream.state.kernels import hash_columns, string_buffers

    return *string_buffers(column), hash_columns([column])


def _size_for(texts: int) -> int:
    return max(LEAST_CAPACITY, 1 << (texts - 1).bit_length())


def _grown(array: np.ndarray, size: int, used: int) -> np.ndarray:
    grown = np.empty(size, array.dtype)
    grown[:used] = array[:used]
    return grown
