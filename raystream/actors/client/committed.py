"""Reads the rows of an operator at a committed checkpoint from its images, which keepers hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ray.exceptions import RayError

from raystream.actors.keepers.fetching import NotHeldError, fetch
from raystream.controller.protocol.recovery import Place
from raystream.errors import StateError
from raystream.state.images.partition import fold, without_slots


class CommittedRows(NamedTuple):
    """Rows at a checkpoint."""

    rows: list[Any]
    """Arrow batches as images hold them, in order of key groups."""
    ended: bool
    """Whether the input had ended by then. A checkpoint of the end holds no rows."""


def rows_at(
    keepers: Sequence[Any],
    place: Place,
    checkpoint: int,
    versions: Sequence[tuple[int, int]],
) -> CommittedRows | None:
    """The rows of an operator in a range.

    Args:
        keepers: the actors of the keepers.
        place: of the operator and the range.
        checkpoint: the epoch of the committed checkpoint.
        versions: see `ImageStore.images`.

    Returns:
        None if the keepers do not hold the checkpoint any more, because a newer one is committed or
        a keeper has died.
    """
    try:
        fetched = fetch(keepers, place, checkpoint, versions=versions)
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
