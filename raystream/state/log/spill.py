"""Epoch logs on local disk: a file per epoch, the blocks of its columns, read through a memory map.

The files belong to one instance and one edge and mean nothing to any other: an instance that
replaces it makes its log again (logs are not part of checkpoints). So nothing is synced, and a
folder is emptied when it is taken into use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from raystream.errors import JobError
from raystream.schema.buffers import blocks_of, columns_in, padded
from raystream.schema.columns import Columns, empty
from raystream.schema.records import RecordSchema


class _Layout(NamedTuple):
    """What a file holds."""

    rows: int
    """The number of rows."""
    ranked: bool
    """Whether the rows have ranks."""
    sizes: tuple[int, ...]
    """The bytes of each block."""
    bytes: int
    """The bytes of the file."""


class DiskSpill:
    """A `state.log.Spill` that writes to a folder. Not thread-safe.

    Args:
        folder: created if it does not exist; files that an earlier process left there are removed.
        schema: the schema of the rows of the edge.

    All methods raise JobError when the disk refuses; the error names the path.
    """

    def __init__(self, folder: Path, schema: RecordSchema) -> None:
        self.folder = folder
        self.schema = schema
        self.bytes = 0
        """How many bytes the files occupy."""
        self._layouts: dict[int, _Layout] = {}
        with _disk("prepare", folder):
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob("*.rows"):
                left.unlink()

    def write(self, epoch: int, rows: Columns) -> None:
        """Write the rows of an epoch."""
        path = self._path(epoch)
        blocks = blocks_of(rows) if len(rows) else []
        with _disk("write", path), path.open("wb", buffering=0) as file:
            for part in padded(blocks):
                while len(part):
                    part = part[file.write(part) :]
        size = sum(map(len, padded(blocks)))
        ranked = rows.rank is not None
        self._layouts[epoch] = _Layout(len(rows), ranked, tuple(map(len, blocks)), size)
        self.bytes += size

    def read(self, epoch: int) -> Columns:
        """The rows of an epoch over a memory map: pages are read when they are touched."""
        path, layout = self._path(epoch), self._layouts[epoch]
        if not layout.rows:  # an empty file cannot be mapped
            return empty(self.schema).ranked(np.zeros(0, np.int64) if layout.ranked else None)
        with _disk("read", path):
            memory = np.asarray(np.memmap(path, np.uint8, "r"))
            return columns_in(self.schema, layout.rows, layout.sizes, memory)

    def drop(self, epoch: int) -> None:
        """Remove the file of an epoch. Rows of it that are still in use stay readable."""
        with _disk("remove", path := self._path(epoch)):
            path.unlink()
        self.bytes -= self._layouts.pop(epoch).bytes

    def _path(self, epoch: int) -> Path:
        return self.folder / f"{epoch:012d}.rows"


@contextmanager
def _disk(doing: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise JobError(
            f"cannot {doing} the spilled log {path}: {error}",
            hint="Logs that memory has no room for go there: is the disk full, or gone?",
        ) from error
