"""Stored checkpoints of other instances: what a keeper holds.

Images are immutable per (vertex, range, cut). A delta is kept only on top of exactly the image that
it names as its base; else the keeper asks for a full one. Chains are kept from the floor on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from raystream.schema.types import KeyRange

B = TypeVar("B")


class Stored(NamedTuple, Generic[B]):
    """One image. base: the cut that a delta builds on, None for a full image. data: the keeper's
    reference to the bytes."""

    cut: int
    base: int | None
    data: B
    size: int


@dataclass(slots=True)
class ImageStore(Generic[B]):
    """Chains of images by (vertex, range)."""

    chains: dict[tuple[int, KeyRange], list[Stored[B]]] = field(default_factory=dict)

    def store(self, vertex: int, keys: KeyRange, image: Stored[B]) -> bool:
        """Keep an image; False if it is a delta on something else than the newest image."""
        chain = self.chains.setdefault((vertex, keys), [])
        if chain and image.cut <= chain[-1].cut:
            return image.cut in [s.cut for s in chain]
        if image.base is not None and (not chain or chain[-1].cut != image.base):
            return False
        chain.append(image)
        return True

    def images(self, vertex: int, cut: int) -> list[tuple[KeyRange, list[Stored[B]]]]:
        """Per range of a vertex the images that make up its state at `cut`: a full one and the
        deltas on it. Ranges without an image at that cut are left out."""
        found = []
        for (v, keys), chain in sorted(self.chains.items(), key=lambda item: item[0]):
            upto = [s for s in chain if s.cut <= cut]
            if v == vertex and upto and upto[-1].cut == cut:
                start = max(i for i, s in enumerate(upto) if s.base is None)
                found.append((keys, upto[start:]))
        return found

    def trim(self, floor: int) -> None:
        """Drop what no restore at `floor` or later needs."""
        for place, chain in list(self.chains.items()):
            bases = [i for i, s in enumerate(chain) if s.base is None and s.cut <= floor]
            if bases:
                self.chains[place] = chain[bases[-1] :]

    @property
    def nbytes(self) -> int:
        return sum(s.size for chain in self.chains.values() for s in chain)
