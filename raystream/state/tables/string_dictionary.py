"""Numbers for text: structured rows have integer keys, and users' keys may be str or bytes.

A number means something inside one instance only. It is kept as long as the instance lives, though
its row may be gone.

The index is that of rows: the key of a text there is its hash. It grows page by page, and the bytes
in place, so that no record waits until all texts are placed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.state.growable_array import Room
from raystream.state.tables.row_index import RowIndex
from raystream.state.tables.row_store import head_fields

BYTES_MAX = 2**31 - 1
"""Arrow's text columns have offsets of 32 bits."""
BLOCK = 1 << 16
"""Texts that are learnt at a time: their hashes stay in the cache meanwhile."""


class StringDictionary:
    """Gives text (or bytes) the numbers 0, 1, 2 and so on, and the text back. Not thread-safe,
    except that numbers which were given may be turned back meanwhile.

    guard: held while another thread takes hold of what numbers stand for; a shell that lets one do
        that sets its lock, and holds it whenever it has texts numbered.

    Of each text `heads` has the hash, as `_key`, and where its bytes begin, as `_epoch`: the one
    after the last says where they end.
    """

    def __init__(self) -> None:
        from raystream.state.tables import text_kernels as kernels

        self._kernels = kernels
        self._used = 0
        self._head_room, self._byte_room = Room(np.dtype(head_fields(1))), Room(np.dtype(np.uint8))
        self._heads, self._data = (r.view(len(r)) for r in (self._head_room, self._byte_room))
        self._index = RowIndex()
        self.guard: AbstractContextManager[Any] = nullcontext()

    def warm(self) -> None:
        """Load what is called only now and then."""
        self._index.warm(self._heads)

    def __len__(self) -> int:
        return self._used

    def number(self, column: Any) -> np.ndarray:
        """int64: the numbers of an Arrow column of text or bytes; new text gets new ones."""
        from raystream.state.kernels import hash_columns, string_buffers

        offsets, data = string_buffers(column)
        hashes = hash_columns([column])
        out, at = np.empty(len(column), np.int64), 0
        while True:
            at, self._used, crowded = self._kernels.number_all(
                offsets, data, hashes, self._heads, self._data, self._index.arrays, self._used,
                out, at,
            )  # fmt: skip
            if at == len(column):
                return out
            if crowded >= 0:
                self._index.split(self._heads, crowded)
            else:
                self._reserve(1, int(offsets[at + 1] - offsets[at]))

    def find(self, column: Any) -> np.ndarray:
        """int64: the numbers of an Arrow column of text or bytes; -1 for what has none."""
        from raystream.state.kernels import hash_columns, string_buffers

        offsets, data = string_buffers(column)
        hashes = hash_columns([column])
        out, at = np.full(len(column), -1, np.int64), 0
        heads = self._heads[: self._used + 1]  # the kernel sees no room, and stops at a new text
        while self._used and at < len(column):
            at, _, _ = self._kernels.number_all(
                offsets, data, hashes, heads, self._data, self._index.arrays, self._used, out, at
            )
            at += 1
        return out

    def learn(self, columns: Iterable[Any]) -> None:
        """Number the texts of columns, in turn; none of them is looked for, so all that are learnt
        are distinct. They cannot be found before `learnt`."""
        for column in columns:
            self._append(column)

    def learnt(self) -> None:
        """Index all texts, so that they can be found."""
        self._index.fill(self._heads, self._used)

    def _append(self, column: Any) -> None:
        from raystream.state.kernels import hash_columns, string_buffers

        offsets, data = string_buffers(column)
        n, size = len(column), int(offsets[-1] - offsets[0])
        self._reserve(n, size)
        at = int(self._heads["_epoch"][self._used])
        self._data[at : at + size] = data[offsets[0] : offsets[-1]]
        for first in range(0, n, BLOCK):
            block = column.slice(first, BLOCK)
            heads = self._heads[self._used + first :][: len(block) + 1]
            heads["_key"][:-1, 0] = hash_columns([block]).view(np.int64)
            heads["_epoch"] = offsets[first : first + len(heads)] - offsets[0] + np.int64(at)
        self._used += n

    def text(self, numbers: np.ndarray, kind: Any) -> Any:
        """The Arrow column, of this type, that numbers stand for.

        Raises:
            StateError: it would be larger than 2 GB.
        """
        with self.guard:
            heads, data = self._heads, self._data
        offsets = np.zeros(len(numbers) + 1, np.int64)
        begins = heads["_epoch"]
        np.cumsum(begins[numbers + 1] - begins[numbers], out=offsets[1:])
        if offsets[-1] > BYTES_MAX:
            raise StateError(
                f"the text of {len(numbers)} keys takes {offsets[-1]} bytes, and one checkpoint"
                f" holds {BYTES_MAX}",
                hint="Let more instances share the keys.",
            )
        gathered = np.empty(int(offsets[-1]), np.uint8)
        self._kernels.gather(heads, data, numbers, offsets, gathered)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(gathered)]
        return pa.Array.from_buffers(kind, len(numbers), buffers)

    def _reserve(self, texts: int, nbytes: int) -> None:
        """Make room for this many more texts, with this many bytes together."""
        texts, nbytes = self._used + texts + 1, int(self._heads["_epoch"][self._used]) + nbytes
        self._heads = self._data = np.zeros(0, np.uint8)  # with a view memory would be copied
        self._head_room.grow(texts)
        self._byte_room.grow(nbytes)
        self._heads = self._head_room.view(len(self._head_room))
        self._data = self._byte_room.view(len(self._byte_room))


Texts = Sequence[StringDictionary | None]
"""By key field what its numbers stand for, where the field is text or bytes; None elsewhere."""
