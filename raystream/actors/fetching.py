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

from raystream.controller.recovery import Place
from raystream.schema.types import KeyRange
from raystream.state.image import Image, decode
from raystream.state.keys import cover
from raystream.state.partition import by_parts

RESTORE_SECONDS = 60.0
"""How long the images of a restore may take to arrive."""
AGAIN_SECONDS = 0.5
"""How long a keeper is left alone that could not be reached."""
MORE_SECONDS = 1.0
"""How long the others are waited for when there is a keeper for each part: one that holds the whole
range, too, need not be sent it again."""


class Fetched(NamedTuple):
    """The images of a range, by its parts. whole: the keepers that have images of exactly it."""

    chains: tuple[tuple[Image, ...], ...]
    whole: frozenset[Any]


class _Held(NamedTuple):
    """What keepers have of a range. chains: by range a keeper and references; whole: see `Fetched`;
    doubt: why others may have more, if they may."""

    chains: dict[KeyRange, tuple[Any, list[Any]]]
    whole: frozenset[Any]
    doubt: RayError | None


def fetch(holders: Sequence[Any], place: Place, cut: int) -> Fetched | None:
    """The images of a range at a cut, from keepers that have them or parts of them; None: nobody
    has some part.

    Raises:
        RayError: a keeper died that had some, or one that may have the rest does not answer.
    """
    held = _found(holders, place, cut)
    parts = cover(held.chains, place.keys)
    if parts is None:
        if held.doubt is not None:
            raise held.doubt
        return None
    calls = []
    for keys, part in parts:
        keeper, refs = held.chains[keys]
        calls.append(refs if keys == part else keeper.part.remote(place.vertex, cut, keys, part))
    refs = [c if isinstance(c, list) else ray.get(c, timeout=RESTORE_SECONDS) for c in calls]
    chains = (by_parts([_decoded(parts) for parts in chain]) for chain in refs)
    return Fetched(tuple(tuple(c) for found in chains for c in found), held.whole)


def _found(holders: Sequence[Any], place: Place, cut: int) -> _Held:
    """What keepers say that they have. All are asked at once; who cannot be reached is asked again
    while there is time."""
    chains: dict[KeyRange, tuple[Any, list[Any]]] = {}
    whole: set[Any] = set()
    doubts: dict[Any, RayError] = {}
    waiting = {_ask(keeper, place, cut): keeper for keeper in holders}
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
                    waiting[_ask(keeper, place, cut)] = keeper
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


def _ask(keeper: Any, place: Place, cut: int) -> Any:
    return keeper.images.remote(place.vertex, cut, place.keys)


def _decoded(parts: Sequence[Any]) -> list[Image]:
    """The parts of an image. parts: references of their encoded forms."""
    return [decode(data) for data in ray.get(list(parts), timeout=RESTORE_SECONDS)]
