"""Reads the rows of an operator at a committed checkpoint from its images, which keepers hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ray.exceptions import RayError

from raystream.actors.keepers.fetching import NotHeldError, fetch
from raystream.controller.protocol.recovery import Place
from raystream.errors import StateError
from raystream.schema.types import KeyRange
from raystream.state.images.partition import fold, without_slots


class CommittedRows(NamedTuple):
    """Rows at a checkpoint."""

    rows: list[Any]
    """Arrow batches as images hold them, in order of key groups."""
    ended: bool
    """Whether the input had ended by then. A checkpoint of the end holds no rows."""


def rows_at(
    keepers: Sequence[Any],
    operator: str,
    vertex: int,
    checkpoint: int,
    groups: int,
    group: int | None,
) -> CommittedRows | None:
    """The rows of one key group, or of all key groups.

    Args:
        keepers: the actors of the keepers.
        operator: its name. vertex: its number in the plan.
        checkpoint: the epoch of the committed checkpoint.
        groups: the number of key groups of the job.
        group: the key group to read; None for all.

    Returns:
        None if the keepers do not hold the checkpoint any more, because a newer one is committed or
        a keeper has died.
    """
    keys = KeyRange(0, groups) if group is None else KeyRange(group, group + 1)
    try:
        fetched = fetch(keepers, Place(vertex, operator, keys, 0), checkpoint)
        if fetched is None:
            return None
        rows, ended = [], False
        for chain in fetched.chains:
            ended = ended or chain[-1].header.input_position.ended
            image = fold(chain[0], chain[1:]) if chain[1:] else chain[0]
            rows.append(without_slots(image).rows)
    except (RayError, NotHeldError, StateError):
        return None
    return CommittedRows(rows, ended)
