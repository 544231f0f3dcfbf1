"""The images that a keeper holds, with their parts in memory or in files.

The real and the simulated keeper do what this says: they write and delete files, and let go of
memory. A part whose file is damaged is taken out, and with it the image that it belongs to: what
builds on that image is not held any more, so another copy is used, the next delta is refused, and a
full image takes its place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from raystream.schema.types import KeyRange
from raystream.state.images.image_store import Arrivals, ImageStore, Stored
from raystream.state.keeping.holdings import FILE_BYTES, FilePlace, Holdings, WriteBatch

R = TypeVar("R")
"""What stands for a part in memory."""


class KeptPart(NamedTuple, Generic[R]):
    """A part of an image that a keeper holds."""

    number: int
    """The keeper's number for it."""
    keys: KeyRange
    """The part of the range."""
    size: int
    """Its bytes."""
    data: R | None
    """It, if it is in memory; None if it has to be read."""


KeptChain = list[Stored[tuple[KeptPart[R], ...]]]
"""The images that make up the state of a range, each in parts."""


class KeptImages(Generic[R]):
    """Images, and where their parts lie.

    Args:
        budget: see `Holdings`.
    """

    def __init__(self, budget: int, file_bytes: int = FILE_BYTES) -> None:
        self.images: ImageStore[tuple[int, ...]] = ImageStore()
        self.holdings = Holdings(budget, file_bytes)
        self._arrivals: Arrivals[int] = Arrivals()
        self._memory: dict[int, R] = {}
        self._parts: dict[int, tuple[KeyRange, int]] = {}

    def take(
        self, keys: KeyRange, part: KeyRange, image: Stored[R]
    ) -> Stored[tuple[int, ...]] | None:
        """Take a part of an image of the range `keys`. Returns the image if all parts are there.

        image: describes the whole image, but has the data and size of the part.
        """
        number = self.holdings.add(image.size)
        self._memory[number] = image.data
        self._parts[number] = part, image.size
        self._let_go(self.holdings.let_go())
        arrived: Any = replace(image, data=number)  # type: ignore[arg-type]
        return self._arrivals.take(image.sender, keys, part, arrived)

    def chains(
        self,
        vertex: int,
        checkpoint: int,
        wanted: KeyRange | None = None,
        versions: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[KeyRange, KeptChain[R]]]:
        """See `ImageStore.images`."""
        found = self.images.images(vertex, checkpoint, wanted, versions)
        return [
            (keys, [replace(s, data=tuple(map(self.part, s.data))) for s in chain])  # type: ignore[arg-type,misc]
            for keys, chain in found
        ]

    def __contains__(self, number: int) -> bool:
        return number in self._parts

    def part(self, number: int) -> KeptPart[R]:
        """A part that is held."""
        keys, size = self._parts[number]
        return KeptPart(number, keys, size, self._memory.get(number))

    def place(self, number: int) -> FilePlace | None:
        """Where a part lies in a file; None if it is not in any, or not held any more."""
        return self.holdings.place(number)

    def trim(self, committed: int, assigned: Collection[tuple[int, KeyRange]]) -> tuple[int, ...]:
        """See `ImageStore.trim`. Returns the files that are to be deleted."""
        self._arrivals.trim(committed)
        self.images.trim(committed, assigned)
        return self._sweep()

    def damaged(self, number: int) -> tuple[list[str], tuple[int, ...]]:
        """The file of a part is damaged: the images that have the part are not held any more.
        Returns what they were, in words; and the files that are to be deleted."""
        lost = self.images.drop(lambda image: number in image.data)
        said = [f"vertex {v} {keys} at checkpoint {s.checkpoint}" for (v, keys), s in lost]
        return said, self._sweep()

    def written(self, batch: WriteBatch, places: Sequence[FilePlace]) -> tuple[int, ...]:
        """A batch is written. Returns the files that are to be deleted."""
        freed = self.holdings.written(batch, places)
        self._let_go(freed.parts)
        return freed.files

    def _let_go(self, parts: Sequence[int]) -> None:
        for number in parts:
            self._memory.pop(number, None)

    def _sweep(self) -> tuple[int, ...]:
        """Let go of all parts that no image has."""
        live = {n for chain in self.images.chains.values() for s in chain for n in s.data}
        live.update(self._arrivals.data)
        freed = self.holdings.keep_only(live)
        self._let_go(freed.parts)
        self._parts = {n: known for n, known in self._parts.items() if n in live}
        return freed.files
