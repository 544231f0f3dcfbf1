"""The images with which a simulated instance begins: from keepers, or from the durable tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raystream.controller.protocol.recovery import Place
from raystream.schema.types import KeyRange
from raystream.simulation.processes.keepers import SimulatedKeeper
from raystream.state.images.image import Image, decode
from raystream.state.images.image_store import newer_than
from raystream.state.images.partition import in_ranges
from raystream.state.keeping.kept_images import KeptChain
from raystream.state.keeping.tiles import tiles_of
from raystream.state.keys import cover
from raystream.state.tiers.row_folder import RowFolder

if TYPE_CHECKING:
    from raystream.simulation.job import SimulatedJob


def holds(
    keeper: SimulatedKeeper, place: Place, committed: int, versions: Sequence[tuple[int, int]] = ()
) -> bool:
    """Whether a keeper has the images of exactly this range. versions: see `ImageStore.images`."""
    if not keeper.answers:
        return False
    found = keeper.kept.chains(place.vertex, committed, place.keys, versions)
    return place.keys in dict(found)


def waits(
    job: SimulatedJob,
    place: Place,
    committed: int,
    holders: tuple[str, ...],
    versions: Sequence[tuple[int, int]] = (),
) -> bool:
    """Whether images of a range are missing that a keeper may have which is cut off."""
    keepers = [job.keepers[h] for h in holders]
    if not any(k.alive and k.asleep for k in keepers):
        return False
    found = [
        k.kept.chains(place.vertex, committed, place.keys, versions) for k in keepers if k.answers
    ]
    return cover({keys: chain for chains in found for keys, chain in chains}, place.keys) is None


def images_of(
    job: SimulatedJob,
    place: Place,
    committed: int,
    holders: tuple[str, ...],
    versions: Sequence[tuple[int, int]] = (),
    files: RowFolder | None = None,
) -> list[list[Image]] | None:
    """The images of a range at a checkpoint, by its tiles; None: nobody has some part. A file that
    is damaged is found when it is read, and then another copy is taken.

    files: if rows on disk were left there, only newer images are read. Otherwise, and where those
    do not say all that has changed since, nothing is left there.
    """
    while True:
        held: dict[KeyRange, tuple[SimulatedKeeper, KeptChain[memoryview]]] = {}
        for keeper in (job.keepers[h] for h in holders if job.keepers[h].answers):
            for keys, chain in keeper.kept.chains(place.vertex, committed, place.keys, versions):
                held.setdefault(keys, (keeper, chain))
        found = cover(held, place.keys)
        saved, tier = job.plan.resumed, job.tier
        if found is None and saved is not None and committed == saved.checkpoint:
            assert tier is not None
            if files is not None:
                files.left = None
            return tier.saves.images(saved, place.operator, place.keys)
        if found is None:
            return None
        chains = {keys: held[keys][1] for keys, _ in found}
        if files is not None and files.left is not None:
            upto = {keys: files.left.upto(part) for keys, part in found}
            newer = {k: newer_than(c, upto[k]) for k, c in chains.items()}
            if all(newer.values()):
                chains = {k: c for k, c in newer.items() if c}
                job.opened += 1
            else:
                files.left = None
        read = [_read(held[keys][0], chains[keys], part) for keys, part in found]
        if None not in read:
            return [images for chains in read for images in chains or ()]
        job.world.tell(place.name, "finds a damaged file")


def _read(
    keeper: SimulatedKeeper, chain: KeptChain[memoryview], wanted: KeyRange
) -> list[list[Image]] | None:
    """The images of a range by its tiles; None if a file is damaged."""
    chains = []
    for tile in tiles_of([s.data for s in chain], wanted, nbytes=1):
        images = []
        for parts in tile.images:
            data = [keeper.read(part.number) for part in parts]
            if any(each is None for each in data):
                return None
            images.append(in_ranges([decode(each) for each in data], [tile.keys])[0])
        chains.append(images)
    return chains
