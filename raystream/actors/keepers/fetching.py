"""Gets the images of a range from the keepers that may have them.

A restore goes through its range in tiles and has the images of a few of them at a time: parts that
are in an object store are mapped, the others are read by their keeper when their tile is near.
If a keeper dies meanwhile, or a file of it is damaged, the same restore takes the rest of the range
from another copy.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
from raystream.state.images.partition import in_ranges
from raystream.state.keeping.kept_images import KeptPart
from raystream.state.keeping.tiles import Tile, tiles_of
from raystream.state.keys import cover

RESTORE_SECONDS = 60.0
"""How long the images of a restore may take to arrive."""
AGAIN_SECONDS = 0.5
"""How long it takes until a keeper that could not be reached is asked again."""
MORE_SECONDS = 1.0
"""How long to wait for more keepers when the images of every part are found. The instance need not
send its checkpoint again to a keeper that turns out to hold exactly its range."""
AHEAD_BYTES = 64 << 20
"""Up to about so much is read by keepers before it is needed."""
TRIES = 100
"""How often a restore goes on from another copy, after a damaged file or the death of a keeper."""

log = logging.getLogger("raystream.restore")


class NotHeldError(Exception):
    """No keeper has some part any more: the files that had it were damaged."""


class _Gone(Exception):
    """A keeper does not have a part any more that it had."""


@dataclass(slots=True)
class Fetched:
    """The images of a range."""

    chains: Iterable[Sequence[Image]]
    """For each part of the range the images that are needed, the oldest first. They are got while
    this is gone through, once. That may raise `RayError`, if the only keeper of a part died, and
    `NotHeldError`."""
    whole: set[Any] = field(default_factory=set)
    """The keepers that have images of exactly this range, undamaged as far as is known: it is known
    when the images were gone through."""
    nbytes: int = 0
    """The bytes of the images that were gone through."""

    def images(self) -> Iterator[Sequence[Image]]:
        """The same as `chains`, counted."""
        for chain in self.chains:
            self.nbytes += sum(image.nbytes for image in chain)
            yield chain


class _Held(NamedTuple):
    """What is known of the images that keepers have of a range."""

    chains: dict[KeyRange, tuple[Any, list[tuple[KeptPart[Any], ...]]]]
    """By range a keeper that has its images, and their parts."""
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
    if cover(held.chains, place.keys) is None:
        if held.doubt is not None:
            raise held.doubt
        return None
    whole = set(held.whole)
    return Fetched(_all(holders, place, checkpoint, held, whole), whole)


def _all(
    holders: Sequence[Any], place: Place, checkpoint: int, held: _Held, whole: set[Any]
) -> Iterator[tuple[Image, ...]]:
    """The images of a range, tile by tile. A keeper that died, or that has a damaged file, leaves
    `whole`."""
    at = place.keys.lo
    died: RayError | None = None
    for _ in range(TRIES):
        parts = cover(held.chains, KeyRange(at, place.keys.hi))
        if parts is None:
            break
        try:
            for keys, part in parts:
                keeper, chain = held.chains[keys]
                for tile, images in _TileReader(keeper, tiles_of(chain, part), part):
                    yield images
                    at = tile.keys.hi
            return
        except (_Gone, RayError) as gone:
            why = str(gone).partition("\n")[0]
            log.warning("%s at %d goes on from another copy: %s", place.name, checkpoint, why)
            whole.discard(keeper)
            if isinstance(gone, RayError):
                died, holders = gone, [other for other in holders if other is not keeper]
            held = _found(holders, place, checkpoint)
    if (doubt := held.doubt or died) is not None:
        raise doubt
    raise NotHeldError(f"{place.name} [{at}, {place.keys.hi}) at {checkpoint}")


class _TileReader:
    """Gets the images of the tiles of a range from one keeper, and asks for some ahead."""

    def __init__(self, keeper: Any, tiles: Sequence[Tile], wanted: KeyRange) -> None:
        self._keeper, self._tiles, self._wanted = keeper, tiles, wanted
        parts = {p.number: p for tile in tiles for image in tile.images for p in image}
        self._coming = deque(parts.values())
        """The parts that were not asked for yet, in the order in which they are needed."""
        self._asked: dict[int, tuple[Any, int]] = {}
        """By part the reference to it, and how many bytes its keeper reads for it."""
        self._images: dict[int, Image] = {}

    def __iter__(self) -> Iterator[tuple[Tile, tuple[Image, ...]]]:
        for tile in self._tiles:
            parts = [p for image in tile.images for p in image]
            self._ask({p.number for p in parts})
            for part in parts:
                if part.number not in self._images:
                    self._images[part.number] = self._got(part)
            yield tile, tuple(self._cut(image, tile.keys) for image in tile.images)
            for part in parts:
                if part.keys.hi <= tile.keys.hi:
                    del self._images[part.number]

    def _ask(self, due: Collection[int]) -> None:
        """Ask for these parts, and for those after them while that is not too much."""
        ahead = sum(size for _, size in self._asked.values())
        while self._coming and (self._coming[0].number in due or ahead < AHEAD_BYTES):
            part = self._coming.popleft()
            ref, size = part.data, part.size
            if not part.keys.within(self._wanted):
                ref = self._keeper.read.remote(part.number, part.keys.common(self._wanted))
            elif ref is None:
                ref = self._keeper.read.remote(part.number)
            else:
                size = 0
            self._asked[part.number] = ref, size
            ahead += size

    def _got(self, part: KeptPart[Any]) -> Image:
        """A part; it may have been cut to the range.

        Raises:
            _Gone: the keeper does not have it any more.
        """
        data = ray.get(self._asked.pop(part.number)[0], timeout=RESTORE_SECONDS)
        if data is None:
            raise _Gone(f"a keeper has no key groups {part.keys} any more")
        return decode(data)

    def _cut(self, image: Sequence[KeptPart[Any]], keys: KeyRange) -> Image:
        return in_ranges([self._images[p.number] for p in image], [keys])[0]


def _found(holders: Sequence[Any], place: Place, checkpoint: int) -> _Held:
    """The images that keepers say they have. All keepers are asked at once. A keeper that cannot be
    reached is asked again while there is time."""
    chains: dict[KeyRange, tuple[Any, list[tuple[KeptPart[Any], ...]]]] = {}
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
            for keys, parts in found:
                chains.setdefault(keys, (keeper, parts))
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
