"""Parts of images by number, and where each lies: in memory, in a file, or in both.

A keeper has memory for recent parts, its *budget*. While no more than half of it is unwritten,
nothing is written: most of what is stored is dropped soon. Beyond that the oldest parts are
written, several to a file, and when the budget is reached those that are written are let go, the
oldest first.

A file is never changed. It is deleted when none of its parts is needed. When more than half of what
is in files is not needed any more, what is left of the emptiest file is written again.

Nothing is read, written or deleted here: this says what is to be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import NamedTuple

FILE_BYTES = 8 << 20
"""About how large a file is. A part that is larger has one for itself."""


class FilePlace(NamedTuple):
    """Where a part lies in a file."""

    file: int
    """The number of the file."""
    offset: int
    """The byte at which the part begins."""
    size: int
    """Its bytes."""
    checksums: tuple[int, ...]
    """The checksums of its pages."""


class WriteBatch(NamedTuple):
    """What is to be written to a new file."""

    file: int
    """The number of the file."""
    parts: tuple[int, ...]
    """The parts, in order. Those that are not in memory are read from their file."""


class Freed(NamedTuple):
    """What is not needed any more."""

    parts: tuple[int, ...]
    """Parts whose memory may be let go."""
    files: tuple[int, ...]
    """Files that may be deleted."""


class _KeptFile:
    """What is known of a file."""

    __slots__ = ("live", "parts", "size")

    def __init__(self, size: int) -> None:
        self.size = self.live = size
        self.parts: set[int] = set()


class Holdings:
    """Knows where each part lies.

    Args:
        budget: bytes of memory for parts.
        file_bytes: about how large a file is.
    """

    def __init__(self, budget: int, file_bytes: int = FILE_BYTES) -> None:
        self.budget = budget
        self.memory = 0
        """Bytes of parts in memory."""
        self.disk = 0
        """Bytes of files, also of parts that are not needed any more."""
        self._file_bytes = file_bytes
        self._sizes: dict[int, int] = {}
        """The parts that are held, the oldest first."""
        self._unwritten: dict[int, None] = {}
        """Those that are only in memory, the oldest first."""
        self._written: dict[int, None] = {}
        """Those that are in memory and in a file."""
        self._unwritten_bytes = self._live = 0
        self._places: dict[int, FilePlace] = {}
        self._files: dict[int, _KeptFile] = {}
        self._parts, self._numbers = count(1), count(1)
        self._writing: WriteBatch | None = None

    def __contains__(self, part: int) -> bool:
        return part in self._sizes

    @property
    def has_room(self) -> bool:
        """Whether one more part may come: memory is below the budget."""
        return self.memory < self.budget

    @property
    def files(self) -> Collection[int]:
        """The files that are there."""
        return self._files.keys()

    def in_memory(self, part: int) -> bool:
        """Whether a part is in memory."""
        return part in self._unwritten or part in self._written

    def place(self, part: int) -> FilePlace | None:
        """Where a part lies in a file; None if it does not."""
        return self._places.get(part)

    # ------------------------------------------------------------ what comes and goes

    def add(self, size: int) -> int:
        """A part of `size` bytes has come, and is in memory; its number."""
        part = next(self._parts)
        self._sizes[part] = size
        self._unwritten[part] = None
        self.memory += size
        self._unwritten_bytes += size
        return part

    def let_go(self) -> tuple[int, ...]:
        """Parts that are written and for which the budget has no room: they leave memory."""
        gone = []
        while not self.has_room and self._written:
            part = next(iter(self._written))
            del self._written[part]
            self.memory -= self._sizes[part]
            gone.append(part)
        return tuple(gone)

    def keep_only(self, parts: Collection[int]) -> Freed:
        """All other parts are not needed any more."""
        gone = [part for part in self._sizes if part not in parts]
        freed = tuple(part for part in gone if self.in_memory(part))
        for part in gone:
            self._forget(part)
        return Freed(freed, self._empty())

    def _forget(self, part: int) -> None:
        size = self._sizes.pop(part)
        if self.in_memory(part):
            self.memory -= size
        if part in self._unwritten:
            self._unwritten_bytes -= size
        self._unwritten.pop(part, None)
        self._written.pop(part, None)
        self._leave(part)

    def _leave(self, part: int) -> None:
        """A part is not to be found where it lies in a file."""
        place = self._places.pop(part, None)
        if place is not None:
            file = self._files[place.file]
            file.parts.discard(part)
            file.live -= place.size
            self._live -= place.size

    def _empty(self) -> tuple[int, ...]:
        """Files without a part; they are not there any more."""
        empty = tuple(n for n, f in self._files.items() if not f.parts)
        for number in empty:
            self.disk -= self._files.pop(number).size
        return empty

    # ------------------------------------------------------------ writing

    @property
    def to_write(self) -> bool:
        """Whether `next_batch` has something."""
        crowded = self._unwritten_bytes > self.budget // 2
        return self._writing is None and (crowded or self._sparse)

    @property
    def _sparse(self) -> bool:
        """Whether more than half of what is in files is not needed any more."""
        return self.disk - self._live > max(self._live, self._file_bytes)

    def next_batch(self) -> WriteBatch | None:
        """What is to be written next; None if nothing is, or while something is being written."""
        if not self.to_write:
            return None
        if self._unwritten_bytes > self.budget // 2:
            chosen = self._some(self._unwritten)
        else:
            file = min(self._files.values(), key=lambda f: f.live / f.size)
            chosen = tuple(sorted(file.parts))
        self._writing = WriteBatch(next(self._numbers), chosen)
        return self._writing

    def _some(self, parts: Iterable[int]) -> tuple[int, ...]:
        """The first parts, for one file."""
        chosen: list[int] = []
        size = 0
        for part in parts:
            if chosen and size + self._sizes[part] > self._file_bytes:
                break
            chosen.append(part)
            size += self._sizes[part]
        return tuple(chosen)

    def written(self, batch: WriteBatch, places: Sequence[FilePlace]) -> Freed:
        """A batch is written: its parts lie there. They may not be needed any more."""
        self._writing = None
        size = sum(place.size for place in places)
        self._files[batch.file] = file = _KeptFile(size)
        file.live = 0
        self.disk += size
        for part, place in zip(batch.parts, places, strict=True):
            if part not in self._sizes:
                continue
            self._leave(part)
            self._places[part] = place
            file.parts.add(part)
            file.live += place.size
            self._live += place.size
            if part in self._unwritten:
                del self._unwritten[part]
                self._unwritten_bytes -= place.size
                self._written[part] = None
        return Freed(self.let_go(), self._empty())

    def failed(self, batch: WriteBatch) -> None:
        """A batch could not be written: all is where it was."""
        if batch == self._writing:
            self._writing = None
