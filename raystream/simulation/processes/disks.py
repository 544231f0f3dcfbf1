"""Simulated disks, one for each node: a disk outlives the processes of its node, not the node."""

from __future__ import annotations

import errno
import shutil
import tempfile
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raystream.controller.protocol.recovery import Place
from raystream.state.tiers.row_folder import RowFolder, folder_name, left_at


@dataclass(eq=False)
class SimulatedDisk:
    """The files of a node, by the process that wrote them and its number for them."""

    files: dict[tuple[str, int], bytearray] = field(default_factory=dict)
    full: bool = False
    """Whether nothing more can be written."""

    def sweep(self, alive: Collection[str]) -> None:
        """Remove what processes have left that are dead."""
        for at in [at for at in self.files if at[0] not in alive]:
            del self.files[at]

    def of(self, process: str) -> SimulatedFolder:
        """The folder of a process."""
        return SimulatedFolder(self, process)


@dataclass(frozen=True)
class SimulatedFolder:
    """The files of one process; see `raystream.state.keeping.files.Disk`."""

    disk: SimulatedDisk
    process: str

    def write(self, file: int, parts: Sequence[Any]) -> None:
        """Write a file."""
        if self.disk.full:
            raise OSError(errno.ENOSPC, "no space left")
        self.disk.files[self.process, file] = bytearray(b"".join(map(bytes, parts)))

    def read(self, file: int, offset: int, size: int) -> memoryview:
        """Read from a file."""
        there = self.disk.files.get((self.process, file))
        if there is None:
            raise OSError(errno.ENOENT, "no such file")
        return memoryview(bytes(there[offset : offset + size]))

    def delete(self, file: int) -> None:
        """Delete a file, if it is there."""
        self.disk.files.pop((self.process, file), None)

    def remove(self) -> None:
        """Delete all files."""
        for file in self.files:
            self.delete(file)

    @property
    def files(self) -> set[int]:
        """The numbers of all files."""
        return {file for process, file in self.disk.files if process == self.process}


class RowDisks:
    """Where simulated instances have rows that memory has no room for: real folders, one for each
    node. run: the number of the run."""

    def __init__(self, run: int) -> None:
        self._run = f"sim{run}"
        self._above = Path(tempfile.mkdtemp(prefix="raystream-sim-"))
        weakref.finalize(self, shutil.rmtree, self._above, ignore_errors=True)

    def _of(self, node: str) -> Path:
        return self._above / node

    def made(
        self,
        process: str,
        node: str,
        place: Place,
        committed: int,
        shape: str,
        groups: int,
        code: int = 0,
    ) -> RowFolder:
        """A folder for a process that takes a place, with the rows that others have left there.
        shape, code: see `left_at`."""
        where = self._of(node)
        shutil.rmtree(where / folder_name(self._run, process), ignore_errors=True)
        files = RowFolder.made(where, self._run, process, code)
        if committed:
            at = (self._run, place.operator, shape, place.keys, committed, code)
            if found := left_at(where, *at):
                files.take(found, groups)
        return files

    def lose(self, node: str) -> None:
        """The node dies, and its disk with it."""
        shutil.rmtree(self._of(node), ignore_errors=True)
