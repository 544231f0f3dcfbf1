"""The images with which a simulated instance begins: from keepers, or from the durable tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raystream.controller.protocol.recovery import Place
from raystream.schema.types import KeyRange
from raystream.simulation.processes.keepers import SimulatedKeeper
from raystream.state.images.image import Image, decode
from raystream.state.images.partition import by_parts, recut
from raystream.state.keys import cover

if TYPE_CHECKING:
    from raystream.simulation.job import SimulatedJob


def holds(keeper: SimulatedKeeper, place: Place, committed: int) -> bool:
    """Whether a keeper has the images of exactly this range."""
    found = keeper.images.images(place.vertex, committed, place.keys) if keeper.alive else []
    return place.keys in dict(found)


def images_of(
    job: SimulatedJob, place: Place, committed: int, holders: tuple[str, ...]
) -> list[list[Image]] | None:
    """The images of a range at a checkpoint, by its parts; None: nobody has some part."""
    held: dict[KeyRange, list[list[Image]]] = {}
    for keeper in (job.keepers[h] for h in holders):
        there = keeper.images.images(place.vertex, committed, place.keys) if keeper.alive else []
        for keys, chain in there:
            parts = [[decode(data) for data in s.data] for s in chain]
            held.setdefault(keys, by_parts(parts))
    found = cover(held, place.keys)
    saved, tier = job.plan.resumed, job.tier
    if found is None and saved is not None and committed == saved.checkpoint:
        assert tier is not None
        return tier.saves.images(saved, place.operator, place.keys)
    if found is None:
        return None
    return [chain for keys, part in found for chain in recut(held[keys], part)]
