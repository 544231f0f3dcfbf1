"""Stored checkpoints of other instances: what a keeper holds.

Images are immutable per (vertex, range, cut, sender). A delta is kept only where the image is held
that it names as its base; else the keeper asks for a full one. Not all build on the newest: while a
range moves, its owner and who follows it store the same cuts, each on what it stored itself. Of one
sender the images since the oldest that it names hold all of its state together; what is older is
not needed. Whoever goes on from the images of another builds on them, until its own are as many.
Chains are kept from the floor on, those of ranges that nobody serves any more (they were split or
merged) until the floor is past them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from raystream.schema.types import KeyRange
from raystream.state.keys import common

B = TypeVar("B")


class Stored(NamedTuple, Generic[B]):
    """One image. base: the cut that a delta builds on, None for a full image. data: the keeper's
    reference to the bytes. ended: the cut is the end of its range, which is so at all later ones.
    oldest: the cut of the oldest image that is needed with a delta, all of one sender; 0 where it
    is that which its base needs.
    """

    cut: int
    base: int | None
    data: B
    size: int
    ended: bool = False
    oldest: int = 0
    sender: str = ""


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
        if any((s.cut, s.sender) == (image.cut, image.sender) for s in chain):
            return True
        if not _built(image, _by_cut(chain)):
            return False
        self.chains[vertex, keys] = sorted([*chain, image], key=lambda s: s.cut)
        return True

    def holds(self, vertex: int, keys: KeyRange, cut: int) -> bool:
        """Whether there is an image of exactly this range and cut."""
        return any(s.cut == cut for s in self.chains.get((vertex, keys), ()))

    def images(
        self, vertex: int, cut: int, wanted: KeyRange | None = None
    ) -> list[tuple[KeyRange, list[Stored[B]]]]:
        """Per range of a vertex the images that make up its state at `cut`, each a delta on the
        one before.

        Ranges that have no image at that cut and had not ended before it are left out, also where
        what that needs was dropped since; so are those that have nothing in common with `wanted`.
        What is left may overlap: see `state.keys.cover`.
        """
        found = []
        for (v, keys), chain in sorted(self.chains.items(), key=lambda item: item[0]):
            if v != vertex or not (wanted is None or common(keys, wanted)):
                continue
            upto = [s for s in chain if s.cut <= cut]
            whole = _built(upto[-1], _by_cut(upto)) if upto else []
            if whole and (whole[-1].cut == cut or whole[-1].ended):
                found.append((keys, whole))
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
            newest = max((s.cut for s in chain if s.cut <= floor), default=0)
            held = _by_cut(chain)
            needed = [_built(s, held) for s in chain if s.cut >= newest]
            those = {id(s) for images in needed for s in images}
            self.chains[place] = [s for s in chain if id(s) in those]

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
        if any(p[:2] != image[:2] for p in parts.values()):
            parts.clear()
        parts[part] = image
        if sum(map(len, parts)) < len(keys):
            return None
        del self.coming[sender]
        data = tuple(parts[k].data for k in sorted(parts))
        size = sum(p.size for p in parts.values())
        return image._replace(data=data, size=size)  # type: ignore[arg-type,return-value]

    def trim(self, floor: int) -> None:
        """Drop what no restore at `floor` or later needs: its sender died, or gave it up."""
        for sender, parts in list(self.coming.items()):
            if all(p.cut <= floor for p in parts.values()):
                del self.coming[sender]


ByCut = dict[int, dict[str, Stored[B]]]
"""Images by cut and sender."""


def _by_cut(images: Iterable[Stored[B]]) -> ByCut[B]:
    found: ByCut[B] = {}
    for s in images:
        found.setdefault(s.cut, {})[s.sender] = s
    return found


def _built(image: Stored[B], held: ByCut[B]) -> list[Stored[B]]:
    """The images that are needed with one, and that one; none where some are not held."""
    built, oldest = [image], image.oldest
    while built[-1].base is not None and built[-1].cut != oldest:
        last = built[-1]
        bases = held.get(last.base, {}) if last.base else {}
        if last.sender in bases:
            built.append(bases[last.sender])
        elif bases and not oldest:
            built.append(next(iter(bases.values())))
        else:
            return []
        oldest = oldest or built[-1].oldest
    return built[::-1]
