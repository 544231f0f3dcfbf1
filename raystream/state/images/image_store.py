"""Stored checkpoints of other instances: what a keeper holds.

Images are immutable per (vertex, range, checkpoint, sender). A keeper keeps a delta only if it
holds the image that the delta names as its base; otherwise it asks for a full one. Not every delta
builds on the newest image: while a range moves, its owner and its candidate store the same
checkpoints, each building on what it stored itself. The images of one sender since the oldest one
that its last delta names hold all of its state together; older ones are not needed. An instance
that goes on from the images of another one builds on those, until its own hold all of its state.
Chains are kept from the committed checkpoint on. The chain of a range that no instance serves any
more (it was split or merged) is kept until the committed checkpoint is past it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Generic, TypeVar

from raystream.schema.types import KeyRange

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Stored(Generic[B]):
    """An image that a keeper holds."""

    checkpoint: int
    """The epoch at whose end it was taken."""
    base: int | None
    """The checkpoint that a delta builds on; None for a full image."""
    data: B
    """The keeper's reference to the bytes."""
    size: int
    """How many bytes there are."""
    _: KW_ONLY
    ended: bool = False
    """Whether the range ended there: it is in the same state at all later checkpoints."""
    oldest: int = 0
    """The checkpoint of the oldest image that a delta needs; all that it needs are of one sender. 0
    where that is the oldest one that its base needs."""
    sender: str = ""
    """The instance that made it."""
    code: int = 0
    """The number of the version of the code that made it."""


def newer_than(chain: Sequence[Stored[B]], epoch: int) -> list[Stored[B]] | None:
    """The images of a chain that are needed beside the rows as they were at a checkpoint: at least
    the last, as it says where the instance stands. None if they do not build on that checkpoint:
    one of them is a full image."""
    newer = [s for s in chain if s.checkpoint > epoch]
    if not newer:
        return list(chain[-1:])
    return newer if epoch and newer[0].base == epoch else None


@dataclass(slots=True)
class ImageStore(Generic[B]):
    """Chains of images by (vertex, range)."""

    chains: dict[tuple[int, KeyRange], list[Stored[B]]] = field(default_factory=dict)

    def store(self, vertex: int, keys: KeyRange, image: Stored[B]) -> bool:
        """Keep an image. False: it is a delta on an image that is not held.

        An image of an older checkpoint is kept as well: the instance that stored the newer ones may
        have died, and another one may have begun again from an older checkpoint.
        """
        chain = self.chains.get((vertex, keys), [])
        if any((s.checkpoint, s.sender) == (image.checkpoint, image.sender) for s in chain):
            return True
        if not _built(image, _by_checkpoint(chain)):
            return False
        self.chains[vertex, keys] = sorted([*chain, image], key=lambda s: s.checkpoint)
        return True

    def holds(self, vertex: int, keys: KeyRange, checkpoint: int) -> bool:
        """Whether there is an image of exactly this range and checkpoint."""
        return any(s.checkpoint == checkpoint for s in self.chains.get((vertex, keys), ()))

    def images(
        self,
        vertex: int,
        checkpoint: int,
        wanted: KeyRange | None = None,
        versions: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[KeyRange, list[Stored[B]]]]:
        """For each range of a vertex the images that make up its state at `checkpoint`, each a
        delta on the one before.

        A range is left out if it has no image at that checkpoint and had not ended before it, if an
        image that is needed was dropped since, or if it has nothing in common with `wanted`. The
        ranges may overlap: see `state.keys.cover`.

        versions: after which epochs other versions of the code begin, and their numbers, in order.
            Images of a version that does not make their checkpoint are left out: an instance that
            was replaced, and did not know it, has stored them.
        """
        found = []
        for (v, keys), chain in sorted(self.chains.items(), key=lambda item: item[0]):
            if v != vertex or not (wanted is None or keys.overlaps(wanted)):
                continue
            upto = [s for s in chain if s.checkpoint <= checkpoint and _is_of(s, versions)]
            whole = _built(upto[-1], _by_checkpoint(upto)) if upto else []
            if whole and (whole[-1].checkpoint == checkpoint or whole[-1].ended):
                found.append((keys, whole))
        return found

    def trim(
        self, committed: int, assigned: Collection[tuple[int, KeyRange]] | None = None
    ) -> None:
        """Drop what no restore at `committed` or later needs.

        assigned: every (vertex, range) that is served now and was stored at the committed
            checkpoint, or at its end. All other chains are dropped, unless they have a newer image:
            then the range is served since a later epoch. None where the assignment is not known:
            no chain is dropped for that reason.
        """
        for place, chain in list(self.chains.items()):
            if assigned is not None and place not in assigned and chain[-1].checkpoint <= committed:
                del self.chains[place]
                continue
            newest = max((s.checkpoint for s in chain if s.checkpoint <= committed), default=0)
            held = _by_checkpoint(chain)
            needed = [_built(s, held) for s in chain if s.checkpoint >= newest]
            those = {id(s) for images in needed for s in images}
            self._set(place, [s for s in chain if id(s) in those])

    def drop(
        self, which: Callable[[Stored[B]], bool]
    ) -> list[tuple[tuple[int, KeyRange], Stored[B]]]:
        """Drop images. What builds on them is not found any more. Returns them, with vertex and
        range."""
        found = [(place, s) for place, chain in self.chains.items() for s in chain if which(s)]
        for place, image in found:
            self._set(place, [s for s in self.chains[place] if s is not image])
        return found

    def _set(self, place: tuple[int, KeyRange], chain: list[Stored[B]]) -> None:
        """Keep these images of a range; none are left where what they need was damaged."""
        if chain:
            self.chains[place] = chain
        else:
            del self.chains[place]

    @property
    def nbytes(self) -> int:
        return sum(s.size for chain in self.chains.values() for s in chain)


@dataclass(slots=True)
class Arrivals(Generic[B]):
    """Images that arrive in parts, each part of a part of their range. A sender cuts an image into
    the same parts whenever it sends it, and sends one image after the other."""

    coming: dict[str, dict[KeyRange, Stored[B]]] = field(default_factory=dict)
    """The parts that have arrived of the current image of each sender."""

    def take(
        self, sender: str, keys: KeyRange, part: KeyRange, image: Stored[B]
    ) -> Stored[tuple[B, ...]] | None:
        """Take the next part of an image of the range `keys`. Returns the image if all parts are
        there.

        image: describes the whole image, but has the data and size of the part.
        """
        parts = self.coming.setdefault(sender, {})
        if any((p.checkpoint, p.base) != (image.checkpoint, image.base) for p in parts.values()):
            parts.clear()
        parts[part] = image
        if sum(map(len, parts)) < len(keys):
            return None
        del self.coming[sender]
        data = tuple(parts[k].data for k in sorted(parts))
        size = sum(p.size for p in parts.values())
        return replace(image, data=data, size=size)  # type: ignore[arg-type,return-value]

    @property
    def data(self) -> list[B]:
        """What has arrived of images that are not whole."""
        return [p.data for parts in self.coming.values() for p in parts.values()]

    def trim(self, committed: int) -> None:
        """Drop parts that no restore at `committed` or later needs: the sender died or gave up."""
        for sender, parts in list(self.coming.items()):
            if all(p.checkpoint <= committed for p in parts.values()):
                del self.coming[sender]


def _is_of(image: Stored[B], versions: Sequence[tuple[int, int]]) -> bool:
    """Whether an image was made by the version of the code that makes its checkpoint."""
    made_by = [number for after, number in versions if after < image.checkpoint]
    return image.code == (made_by[-1] if made_by else 0)


ByCheckpoint = dict[int, dict[str, Stored[B]]]
"""Images by checkpoint and sender."""


def _by_checkpoint(images: Iterable[Stored[B]]) -> ByCheckpoint[B]:
    found: ByCheckpoint[B] = {}
    for s in images:
        found.setdefault(s.checkpoint, {})[s.sender] = s
    return found


def _built(image: Stored[B], held: ByCheckpoint[B]) -> list[Stored[B]]:
    """The images that an image needs, and that one last; empty if some are not held."""
    built, oldest = [image], image.oldest
    while built[-1].base is not None and built[-1].checkpoint != oldest:
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
