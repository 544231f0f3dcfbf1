"""Gets the images of a range from the keepers that may have them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    GetTimeoutError,
    RayError,
)

from raystream.controller.protocol.recovery import Place
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image, decode
from raystream.state.images.partition import by_parts
from raystream.state.keys import cover

RESTORE_SECONDS = 60.0
"""How long the images of a restore may take to arrive."""
AGAIN_SECONDS = 0.5
"""How long it takes until a keeper that could not be reached is asked again."""
MORE_SECONDS = 1.0
"""How long to wait for more keepers when the images of every part are found. The instance need not
send its checkpoint again to a keeper that turns out to hold exactly its range."""


class Fetched(NamedTuple):
    """The images of a range."""

    chains: tuple[tuple[Image, ...], ...]
    """For each part of the range the images that are needed, the oldest first."""
    whole: frozenset[Any]
    """The keepers that have images of exactly this range."""


NOTHING_HELD = Fetched((), frozenset())
"""The images of an instance that begins without a checkpoint: none."""


class _Held(NamedTuple):
    """What is known of the images that keepers have of a range."""

    chains: dict[KeyRange, tuple[Any, list[Any]]]
    """By range a keeper that has its images, and references of them."""
    whole: frozenset[Any]
    """See `Fetched`."""
    doubt: RayError | None
    """Why keepers that did not answer may have more; None if all have answered."""


def fetch(holders: Sequence[Any], place: Place, checkpoint: int) -> Fetched | None:
    """The images of a range at a checkpoint, from keepers that have them or parts of them. None: no
    keeper has some part.

    Raises:
        RayError: a keeper died that had some, or one that may have the rest does not answer.
    """
    held = _found(holders, place, checkpoint)
    parts = cover(held.chains, place.keys)
    if parts is None:
        if held.doubt is not None:
            raise held.doubt
        return None
    calls = []
    for keys, part in parts:
        keeper, refs = held.chains[keys]
        calls.append(
            refs if keys == part else keeper.part.remote(place.vertex, checkpoint, keys, part)
        )
    refs = [c if isinstance(c, list) else ray.get(c, timeout=RESTORE_SECONDS) for c in calls]
    chains = (by_parts([_decoded(parts) for parts in chain]) for chain in refs)
    return Fetched(tuple(tuple(c) for found in chains for c in found), held.whole)


def _found(holders: Sequence[Any], place: Place, checkpoint: int) -> _Held:
    """The images that keepers say they have. All keepers are asked at once. A keeper that cannot be
    reached is asked again while there is time."""
    chains: dict[KeyRange, tuple[Any, list[Any]]] = {}
    whole: set[Any] = set()
    doubts: dict[Any, RayError] = {}
    waiting = {_ask(keeper, place, checkpoint): keeper for keeper in holders}
    until = time.monotonic() + RESTORE_SECONDS
    while waiting and (seconds := until - time.monotonic()) > 0:
        for call in ray.wait(list(waiting), num_returns=1, timeout=seconds)[0]:
            keeper = waiting.pop(call)
            doubts.pop(keeper, None)
            try:
                found = ray.get(call, timeout=RESTORE_SECONDS)
            except (ActorDiedError, ActorUnschedulableError):
                continue  # another may have them
            except RayError as error:
                doubts[keeper] = error
                if isinstance(error, ActorUnavailableError):  # for a moment, perhaps
                    time.sleep(AGAIN_SECONDS)
                    waiting[_ask(keeper, place, checkpoint)] = keeper
                continue
            for keys, refs in found:
                chains.setdefault(keys, (keeper, refs))
                if keys == place.keys:
                    whole.add(keeper)
        if cover(chains, place.keys) is not None:
            until = min(until, time.monotonic() + MORE_SECONDS)
    if waiting and not doubts:
        late = GetTimeoutError(f"{len(waiting)} keepers did not answer in {RESTORE_SECONDS:g} s")
        return _Held(chains, frozenset(whole), late)
    return _Held(chains, frozenset(whole), next(iter(doubts.values()), None))


def _ask(keeper: Any, place: Place, checkpoint: int) -> Any:
    return keeper.images.remote(place.vertex, checkpoint, place.keys)


def _decoded(parts: Sequence[Any]) -> list[Image]:
    """The parts of an image. parts: references of their encoded forms."""
    return [decode(data) for data in ray.get(list(parts), timeout=RESTORE_SECONDS)]
