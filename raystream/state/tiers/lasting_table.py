"""A tiered table whose files a successor on the same node can open (`row_folder`).

keep_in(folder)  before the first row: where files lie; it begins with what was left there
note(...)        at a checkpoint: its manifest
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from raystream.errors import StateError
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image
from raystream.state.segments.cold_rows import ColdRows
from raystream.state.segments.stored_segment import describe
from raystream.state.tables.backend import Table
from raystream.state.tiers.row_folder import RowFolder, RowManifest, StoredRows
from raystream.state.tiers.tiered_table import TieredTable


class LastingTable(TieredTable):
    """See `TieredTable`."""

    def __init__(self, hot: Table, cold: ColdRows, memory: int) -> None:
        super().__init__(hot, cold, memory)
        self._upto = 0
        """All rows that were touched last up to this checkpoint are on disk."""
        self._newer_counts = np.zeros(self.groups, np.int64)
        """int64 [groups]: how many of the rows that are on disk alone were touched after it."""
        self._folder: RowFolder | None = None

    def keep_in(self, folder: RowFolder) -> None:
        self._folder = folder
        self.cold.folder, self.cold.name = folder.path, folder.next_name
        if folder.left is not None:
            for segment in folder.left.segments:
                if describe(segment.dtype) != describe(self.cold.dtype):
                    raise StateError(f"{self.cold.owner}: its rows on disk are of another form")
            self.cold.segments = [*folder.left.segments]
            self.cold_counts = folder.left.counts
            parts = {upto for _, upto in folder.left.parts}
            self._upto, self.newest = min(parts) if len(parts) == 1 else 0, max(parts)

    def keep_beside(self, before: Table, code: int) -> None:
        if isinstance(before, LastingTable) and before._folder is not None:
            before._folder.goes_over(code)
            self.keep_in(before._folder)

    def note(self, operator: str, keys: KeyRange, upto: int) -> None:
        if self._folder is None:
            return
        if self.newest > self._upto:
            with self._guard:
                self.rounds.want(upto)
        if not self._upto:  # nothing is on disk, or not all that an image may leave out
            return
        segments = [
            StoredRows(s.name, s.dues.tobytes() if s.rang else None) for s in self.cold.segments
        ]
        manifest = RowManifest(
            operator=operator,
            shape=self.shape.fingerprint,
            keys=keys,
            checkpoint=upto,
            upto=self._upto,
            code=self._folder.code,
            counts=self.cold_counts - self._newer_counts + self._clean_counts(),
            segments=tuple(segments),
        )
        self._folder.note(manifest)

    def written(self, upto: int, *, leave: bool) -> None:
        super().written(upto, leave=leave)
        if not leave:
            self._upto = self.newest = upto
            self._newer_counts[:] = 0

    def _count(self, hashes: np.ndarray, epochs: np.ndarray, by: int) -> None:
        super()._count(hashes, epochs, by)
        self._newer_counts += by * self._by_group(hashes[epochs > self._upto])

    @abstractmethod
    def _clean_counts(self) -> np.ndarray:
        """int64 [groups]: how many rows in memory were touched last by `_upto`, and so are on disk
        too."""

    def settle(self, checkpoint: int) -> None:
        with self._guard:
            super().settle(checkpoint)
        if self._folder is not None:
            self._folder.settle(checkpoint, self.cold.names)

    # ------------------------------------------------------------ restore

    def fill(self, chains: Iterable[Sequence[Image]]) -> None:
        left = None if self._folder is None else self._folder.left
        self._skipped = 0 if left is None else len(left.segments)
        for chain in chains:
            for image in chain:
                if left is None:
                    self.apply(image)
                elif image.header.checkpoint > left.upto(image.header.keys):
                    self._apply_on_left(image)
        self._skipped = 0

    def _apply_on_left(self, image: Image) -> None:
        """Put in the rows of an image that are newer than those that were left; nothing of those is
        read, and they are counted as they are in the end."""
        self.apply(image)
        if image.gone.num_rows:
            hashes, words = self._identity_of(image.gone)
            epochs = np.full(len(hashes), image.header.checkpoint)
            self._note_removed(hashes, words, epochs)
