"""Epoch logs on local disk: one Arrow IPC file per epoch, read through a memory map.

The files belong to one instance and one edge and mean nothing to anybody else: a successor makes
its log again (buffer state is not shipped). So nothing is synced, and a folder is emptied when it
is taken into use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from raystream.errors import JobError
from raystream.schema.columns import Columns, arrow_schema, from_arrow, to_arrow
from raystream.schema.records import RecordSchema


class DiskSpill:
    """A `state.log.Spill` that writes to a folder. Not thread-safe.

    Args:
        folder: made if it is not there; what an earlier process left in it is removed.
        schema: of the rows of the edge.

    All methods raise JobError when the disk refuses; the error names the path.
    """

    def __init__(self, folder: Path, schema: RecordSchema) -> None:
        self.folder = folder
        self.schema = schema
        self.bytes = 0
        """What the files occupy."""
        self._sizes: dict[int, int] = {}
        with _disk("prepare", folder):
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob("*.arrow"):
                left.unlink()

    def write(self, epoch: int, rows: Columns) -> None:
        """Write the rows of an epoch."""
        path = self._path(epoch)
        schema = arrow_schema(self.schema, ranked=rows.rank is not None)
        with _disk("write", path):
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                writer.write_batch(to_arrow(rows))
            self._sizes[epoch] = path.stat().st_size
        self.bytes += self._sizes[epoch]

    def read(self, epoch: int) -> Columns:
        """The rows of an epoch over a memory map: pages are read when they are touched."""
        path = self._path(epoch)
        with _disk("read", path), pa.memory_map(str(path)) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        return from_arrow(self.schema, batch)

    def drop(self, epoch: int) -> None:
        """Remove an epoch; rows of it that are still in use stay readable."""
        with _disk("remove", path := self._path(epoch)):
            path.unlink()
        self.bytes -= self._sizes.pop(epoch)

    def _path(self, epoch: int) -> Path:
        return self.folder / f"{epoch:012d}.arrow"


@contextmanager
def _disk(doing: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise JobError(
            f"cannot {doing} the spilled log {path}: {error}",
            hint="Logs that memory has no room for go there: is the disk full, or gone?",
        ) from error
