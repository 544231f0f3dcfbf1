"""Stored checkpoints of other instances: what a keeper holds.

Images are immutable per (vertex, range, cut). A delta is kept only where the image is held that it
names as its base; else the keeper asks for a full one. Not all build on the newest: while a range
moves, its owner and who follows it store the same cuts, each on what it stored itself. Chains are
kept from the floor on, those of ranges that nobody serves any more (they were split or merged)
until the floor is past them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from raystream.schema.types import KeyRange
from raystream.state.keys import common

B = TypeVar("B")


class Stored(NamedTuple, Generic[B]):
    """One image. base: the cut that a delta builds on, None for a full image. data: the keeper's
    reference to the bytes. ended: the cut is the end of its range, which is so at all later ones.
    """

    cut: int
    base: int | None
    data: B
    size: int
    ended: bool = False


@dataclass(slots=True)
class ImageStore(Generic[B]):
    """Chains of images by (vertex, range)."""

    chains: dict[tuple[int, KeyRange], list[Stored[B]]] = field(default_factory=dict)

    def store(self, vertex: int, keys: KeyRange, image: Stored[B]) -> bool:
        """Keep an image; False if it is a delta on one that is not held.

        One of an older cut is kept as well: whoever stored the newer ones may have died, and
        another one has begun again from an older cut.
        """
        chain = self.chains.get((vertex, keys), [])
        cuts = {s.cut for s in chain}
        if image.cut in cuts:
            return True
        if image.base is not None and image.base not in cuts:
            return False
        self.chains[vertex, keys] = sorted([*chain, image], key=lambda s: s.cut)
        return True

    def holds(self, vertex: int, keys: KeyRange, cut: int) -> bool:
        """Whether there is an image of exactly this range and cut."""
        return any(s.cut == cut for s in self.chains.get((vertex, keys), ()))

    def images(
        self, vertex: int, cut: int, wanted: KeyRange | None = None
    ) -> list[tuple[KeyRange, list[Stored[B]]]]:
        """Per range of a vertex the images that make up its state at `cut`: a full one and the
        deltas on it.

        Ranges that have no image at that cut and had not ended before it are left out; so are those
        that have nothing in common with `wanted`. What is left may overlap: see `state.keys.cover`.
        """
        found = []
        for (v, keys), chain in sorted(self.chains.items(), key=lambda item: item[0]):
            if v != vertex or not (wanted is None or common(keys, wanted)):
                continue
            upto = [s for s in chain if s.cut <= cut]
            if upto and (upto[-1].cut == cut or upto[-1].ended):
                found.append((keys, _built(upto)))
        return found

    def trim(self, floor: int, assigned: Collection[tuple[int, KeyRange]] | None = None) -> None:
        """Drop what no restore at `floor` or later needs.

        assigned: every (vertex, range) that is served now and was stored at the floor, or at its
        end; all others are dropped, unless they have a newer image: whoever serves that range does
        so since then. None where the assignment is not known: none are.
        """
        for place, chain in list(self.chains.items()):
            if assigned is not None and place not in assigned and chain[-1].cut <= floor:
                del self.chains[place]
                continue
            upto = [s for s in chain if s.cut <= floor]
            needed = [_built(chain[: i + 1]) for i in range(max(0, len(upto) - 1), len(chain))]
            cuts = {s.cut for images in needed for s in images}
            self.chains[place] = [s for s in chain if s.cut in cuts]

    @property
    def nbytes(self) -> int:
        return sum(s.size for chain in self.chains.values() for s in chain)


@dataclass(slots=True)
class Arrivals(Generic[B]):
    """Images that come in parts, each of a part of their range. A sender has the same parts of an
    image whenever it sends it, and sends one image after the other."""

    coming: dict[str, dict[KeyRange, Stored[B]]] = field(default_factory=dict)

    def take(
        self, sender: str, keys: KeyRange, part: KeyRange, image: Stored[B]
    ) -> Stored[tuple[B, ...]] | None:
        """The next part of an image of the range `keys`; the image, if all parts are there.

        image: as that of the whole range, but for its data and size.
        """
        parts = self.coming.setdefault(sender, {})
        if any((p.cut, p.base) != (image.cut, image.base) for p in parts.values()):
            parts.clear()
        parts[part] = image
        if sum(map(len, parts)) < len(keys):
            return None
        del self.coming[sender]
        data = tuple(parts[k].data for k in sorted(parts))
        size = sum(p.size for p in parts.values())
        return Stored(image.cut, image.base, data, size, image.ended)

    def trim(self, floor: int) -> None:
        """Drop what no restore at `floor` or later needs: its sender died, or gave it up."""
        for sender, parts in list(self.coming.items()):
            if all(p.cut <= floor for p in parts.values()):
                del self.coming[sender]


def _built(chain: list[Stored[B]]) -> list[Stored[B]]:
    """What the last image of a chain is made of: a full one and the deltas on it."""
    built = [chain[-1]]
    for image in reversed(chain):
        if image.cut == built[-1].base:
            built.append(image)
    return built[::-1]
