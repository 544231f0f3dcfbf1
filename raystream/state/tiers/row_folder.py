"""The folder of an instance for rows on disk, from which a successor on the same node can go on.

At each checkpoint a *manifest* is written: which segments there are, and up to which older
checkpoint all rows lie in them that were touched last by then. Of the images a successor needs only
those that are newer than that older checkpoint. It first gives the files a name in its own folder
(a hard link), so the instance that wrote them may delete its own at any time.

Segments of a manifest stay, although they were folded, until a newer checkpoint is committed.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from raystream.errors import StateError
from raystream.schema.types import KeyRange
from raystream.state.keys import cover
from raystream.state.segments.cold_rows import range_of
from raystream.state.segments.segment import Segment
from raystream.state.segments.stored_segment import (
    delete,
    link,
    load,
    read_checked,
    write_checked,
)

PREFIX = "raystream-rows-"
"""What the names of these folders begin with; the run follows, and the process."""
_MANIFEST = "at-"

log = logging.getLogger("raystream.rows")


class StoredRows(NamedTuple):
    """The name of a segment, and when rows in it are due."""

    name: str
    """The name of the files, without their ends."""
    dues: bytes | None
    """int64 as bytes: when rows are due; None if the file says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowManifest:
    """The rows of an instance on disk at a checkpoint."""

    operator: str
    """The name of the vertex."""
    shape: str
    """What the rows hold, in words."""
    keys: KeyRange
    """The range of the instance."""
    checkpoint: int
    """The epoch at whose end it was written."""
    upto: int
    """The rows that were touched last up to this checkpoint are on disk."""
    code: int
    """The number of the version of the code that made them."""
    counts: np.ndarray
    """int64 [groups]: how many rows were touched last by `upto`."""
    segments: tuple[StoredRows, ...]
    """The segments, the oldest first."""


@dataclass(slots=True)
class LeftRows:
    """Rows on disk that another instance has left, opened for one that goes on from them."""

    parts: list[tuple[KeyRange, int]]
    """The parts of the range, and the checkpoint up to which the rows of each are there that were
    touched last by then."""
    counts: np.ndarray
    """int64 [groups]: how many rows those are."""
    segments: list[Segment]
    """The segments, the oldest first; of several ranges one after the other."""
    unread: int = 0
    """Bytes of images that need not be read."""

    def upto(self, keys: KeyRange) -> int:
        """The checkpoint up to which rows of a range are there; 0 if it is not the same in all of
        that range."""
        found = {upto for part, upto in self.parts if part.overlaps(keys)}
        return found.pop() if len(found) == 1 else 0


@dataclass(slots=True)
class RowFolder:
    """The folder of one process for rows on disk."""

    path: Path
    left: LeftRows | None = None
    """What was found there to begin with."""
    code: int = 0
    """The number of the version of the code that writes there."""
    _numbers: int = 0
    _kept: dict[int, frozenset[str]] = field(default_factory=dict)
    _named: set[str] = field(default_factory=set)

    @classmethod
    def made(cls, where: Path, run: str, process: str, code: int = 0) -> RowFolder:
        """A new folder. where: in which it lies. code: see `code`.

        Raises:
            OSError: it cannot be made.
        """
        path = where / folder_name(run, process)
        path.mkdir(mode=0o700, parents=True)
        return cls(path, code=code)

    def next_name(self) -> str:
        """A name for the files of a new segment."""
        self._numbers += 1
        name = f"{self._numbers:06d}"
        self._named.add(name)
        return name

    def goes_over(self, code: int) -> None:
        """Another version of the code goes on, with rows of its own. What older checkpoints have
        stays until a newer one is committed."""
        self.left, self.code = None, code

    def note(self, manifest: RowManifest) -> None:
        """Write the manifest of a checkpoint. If the disk refuses, a successor reads images."""
        m = manifest
        what = [
            m.operator, m.shape, [*m.keys], m.checkpoint, m.upto, m.code,
            m.counts.tobytes(), [[s.name, s.dues] for s in m.segments],
        ]  # fmt: skip
        try:
            write_checked(self.path / f"{_MANIFEST}{m.checkpoint}", what)
        except OSError as error:
            log.warning("%s: no manifest of its rows on disk: %s", m.operator, error)
            return
        self._kept[m.checkpoint] = frozenset(s.name for s in m.segments)

    def settle(self, committed: int, used: Collection[str]) -> None:
        """A checkpoint is committed: delete what neither it nor a later one has, and what is not
        used. used: the names of the files that are in use now."""
        for checkpoint in [c for c in self._kept if c < committed]:
            del self._kept[checkpoint]
            (self.path / f"{_MANIFEST}{checkpoint}").unlink(missing_ok=True)
        needed = {*used}.union(*self._kept.values())
        for name in self._named - needed:
            delete(self.path, name)
        self._named &= needed

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def take(self, found: Sequence[tuple[Path, RowManifest, KeyRange]], groups: int) -> None:
        """Go on from what other instances have left: `left` is that, or None if it is gone.

        Args:
            found: see `left_at`.
        """
        self.left = None
        segments: list[Segment] = []
        counts = np.zeros(groups, np.int64)
        try:
            for source, manifest, keys in found:
                for each in manifest.segments:
                    name = self.next_name()
                    link(source, each.name, self.path, name)
                    segment = load(self.path, name, manifest.operator, each.dues)
                    segment.clip(*range_of(keys, groups))
                    segment.rang = each.dues is not None
                    segments.append(segment)
                counts[slice(*keys)] = manifest.counts[slice(*keys)]
        except (OSError, StateError) as error:  # an owner that lives has deleted it, or it is torn
            log.warning("rows on disk at %d cannot be opened: %s", found[0][1].checkpoint, error)
            return
        parts = [(keys, manifest.upto) for _, manifest, keys in found]
        self.left = LeftRows(parts, counts, [s for s in segments if s.low <= s.high])


def folder_name(run: str, process: str) -> str:
    """The name of the folder of a process."""
    return f"{PREFIX}{run}-{process}"


def left_at(
    where: Path,
    run: str,
    operator: str,
    shape: str,
    keys: KeyRange,
    checkpoint: int,
    code: int = 0,
) -> list[tuple[Path, RowManifest, KeyRange]] | None:
    """The rows on disk that instances of this node had at a checkpoint: for parts that tile a range
    (the folder, its manifest, the part). None if there are none of some part.

    Args:
        where: in which the folders lie.
        shape: what rows hold, in words.
        code: the number of the version of the code that makes that checkpoint. An instance that was
            replaced, and did not know it, has written what other code made.
    """
    found: dict[KeyRange, tuple[Path, RowManifest]] = {}
    for path in sorted(where.glob(f"{PREFIX}{run}-*/{_MANIFEST}{checkpoint}")):
        try:
            if path.parent.stat().st_uid != os.getuid():
                continue  # of another user: anybody may write to a folder of temporary files
            manifest = _read(path)
        except (OSError, StateError) as error:  # its owner has removed it, or it is torn
            log.warning("rows on disk at %d are not used: %s", checkpoint, error)
            continue
        if (manifest.operator, manifest.shape, manifest.code) == (operator, shape, code):
            known = found.get(manifest.keys)
            if known is None or known[1].upto < manifest.upto:
                found[manifest.keys] = path.parent, manifest
    parts = cover(found, keys)
    if parts is None:
        return None
    return [(*found[held], part) for held, part in parts]


def _read(path: Path) -> RowManifest:
    operator, shape, keys, checkpoint, upto, code, counts, segments = read_checked(path)
    return RowManifest(
        operator=operator,
        shape=shape,
        keys=KeyRange(*keys),
        checkpoint=checkpoint,
        upto=upto,
        code=code,
        counts=np.frombuffer(counts, np.int64),
        segments=tuple(StoredRows(*s) for s in segments),
    )
