"""Which parts of the images of a range a restore reads together.

A restore goes through a range from tile to tile, so that it needs little memory: for each tile it
has the parts of all images that have something in common with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from raystream.schema.types import KeyRange
from raystream.state.keeping.kept_images import KeptPart

TILE_BYTES = 8 << 20
"""About how many bytes a tile has of the image in the most parts. Each tile costs a restore some
bisections in each image."""


class Tile(NamedTuple):
    """A part of a range, and what a restore of it reads."""

    keys: KeyRange
    """The key groups."""
    images: tuple[tuple[KeptPart[Any], ...], ...]
    """For each image its parts that have some of these key groups, in order."""


def tiles_of(
    chain: Sequence[Sequence[KeptPart[Any]]], wanted: KeyRange, nbytes: int = TILE_BYTES
) -> list[Tile]:
    """The tiles of a range, in order.

    Args:
        chain: the parts of each image, in order.
        nbytes: about how many bytes a tile has of the image that comes in the most parts.
    """
    finest = max(chain, key=len)
    bounds, size = [wanted.lo], 0
    for part in finest:
        if not part.keys.overlaps(wanted):
            continue
        if size and size + part.size > nbytes:
            bounds.append(part.keys.lo)
            size = 0
        size += part.size
    ranges = [KeyRange(lo, hi) for lo, hi in pairwise([*bounds, wanted.hi])]
    return [
        Tile(keys, tuple(tuple(p for p in parts if p.keys.overlaps(keys)) for parts in chain))
        for keys in ranges
    ]
