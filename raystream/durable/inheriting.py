"""The images with which operators begin in a flow that has changed since they were stored.

`manifest.Inherited` says of each operator of such a flow where its images come from. The stored
images stay as they are: what their headers say of the flow is replaced when they are read. So a job
with much state is resumed as quickly as one whose flow is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raystream.durable.manifest import RangeEnd, Saved
from raystream.schema.types import KeyRange
from raystream.state.images.image import EndedRange, Image, ImageHeader, InputPosition
from raystream.state.images.partition import part_of, together


def nothing(saved: Saved, vertex: str, keys: KeyRange) -> Image:
    """The image of a range of an operator that begins with nothing."""
    begins = saved.begins[vertex]
    at = InputPosition(watermark=begins.watermark, inlets=_inlets(begins.inlets))
    return Image(_header(saved, vertex, keys, at), None, None)


def inherited(saved: Saved, vertex: str, image: Image) -> Image:
    """A stored image as that of an operator that has its rows now."""
    at = replace(image.header.input_position, inlets=_inlets(saved.begins[vertex].inlets))
    return Image(replace(image.header, operator=vertex, input_position=at), image.rows, image.gone)


def resplit(saved: Saved, vertex: str, chains: Sequence[Sequence[Image]], keys: KeyRange) -> Image:
    """The image of a range of a source that has other splits than before. New splits are not in it:
    a source reads them from their beginning.

    Args:
        chains: the stored images of all ranges.
    """
    groups = saved.begins[vertex].groups or {}
    whole = together([chain[-1].header.input_position for chain in chains])
    splits = {name: (groups[name], *at[1:]) for name, at in whole.splits.items() if name in groups}
    at = replace(whole, ended=False, splits=splits)
    header = _header(saved, vertex, KeyRange(0, saved.layout.groups), at)
    return Image(part_of(header, keys), None, None)


def _header(saved: Saved, vertex: str, keys: KeyRange, at: InputPosition) -> ImageHeader:
    return ImageHeader(
        operator=vertex,
        shape=saved.layout.shapes[vertex],
        groups=saved.layout.groups,
        keys=keys,
        base=0,
        checkpoint=saved.checkpoint,
        input_position=at,
    )


def _inlets(ends: Mapping[int, Sequence[RangeEnd]]) -> dict[int, tuple[EndedRange, ...]]:
    return {edge: tuple(EndedRange(*end) for end in found) for edge, found in ends.items()}
