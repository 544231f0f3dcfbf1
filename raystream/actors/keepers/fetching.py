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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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

from raystream.actors.keepers.gathered import HeldCopy, Planned, Slice, directly, planned
from raystream.controller.protocol.gathering.links import Links, Ways
from raystream.controller.protocol.recovery import Place
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image, decode
from raystream.state.images.image_store import newer_than
from raystream.state.images.partition import in_ranges
from raystream.state.keeping.kept_images import KeptChain, KeptPart
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
TOLD_BYTES = 1 << 20
"""The story tells how a state came from about so many bytes on."""
TRIES = 100
"""How often a restore goes on from another copy, after a damaged file or the death of a keeper."""

Since = Callable[[KeyRange], int]
"""From a range to a checkpoint."""

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
    newer: bool = False
    """Whether the images are only those that are newer than what the caller has."""
    unread: int = 0
    """The bytes of the images that are not newer."""
    nbytes: int = 0
    """The bytes of the images that were gone through."""
    plans: list[Planned] = field(default_factory=list)
    """By what ways they came, where that was planned."""

    def images(self) -> Iterator[Sequence[Image]]:
        """The same as `chains`, counted."""
        for chain in self.chains:
            self.nbytes += sum(image.nbytes for image in chain)
            yield chain

    def told(self, seconds: float) -> str:
        """How they came, in words; empty if that was not planned, or they were few.

        Args:
            seconds: how long it took.
        """
        if not self.plans or self.nbytes < TOLD_BYTES:
            return ""
        keepers = {s.keeper for plan in self.plans for s in plan.slices}
        forms = "/".join(sorted({plan.form for plan in self.plans}))
        predicted = sum(plan.seconds for plan in self.plans)
        return (
            f"{self.nbytes / 1e6:,.1f} MB came from {len(keepers)} keeper{'s' * (len(keepers) > 1)}"
            f" and were installed in {seconds:.2f} s ({forms}; {predicted:.2f} s predicted for the"
            " network)"
        )


class _Found(NamedTuple):
    """The images of a range at one keeper."""

    keeper: Any
    node: str
    chain: KeptChain[Any]


class _Held(NamedTuple):
    """What is known of the images that keepers have of a range."""

    chains: dict[KeyRange, list[_Found]]
    """By range the keepers that have its images, and these; the first to answer first."""
    whole: frozenset[Any]
    """See `Fetched`."""
    doubt: RayError | None
    """Why keepers that did not answer may have more; None if all have answered."""


def fetch(
    holders: Sequence[Any],
    place: Place,
    checkpoint: int,
    after: Since | None = None,
    ways: Ways | None = None,
    node: str = "",
    versions: Sequence[tuple[int, int]] = (),
) -> Fetched | None:
    """The images of a range at a checkpoint, from keepers that have them or parts of them. None: no
    keeper has some part.

    Args:
        after: for a part of the range the checkpoint at which the caller has its rows; then newer
            images are enough, where they build on that checkpoint.
        ways: what it is planned with by what ways they come; None for no plan.
        node: the node of this process.
        versions: see `ImageStore.images`.

    Raises:
        RayError: a keeper died that had some, or one that may have the rest does not answer.
    """
    nodes = {} if ways is None else dict(zip(holders, ways.nodes, strict=True))
    held = _found(holders, place, checkpoint, versions, nodes)
    parts = cover(held.chains, place.keys)
    if parts is None:
        if held.doubt is not None:
            raise held.doubt
        return None
    whole = set(held.whole)
    links = Links() if ways is None else ways.links
    plans: list[Planned] = []

    def plan(copies: Sequence[HeldCopy], part: KeyRange) -> Planned:
        made = planned(copies, part, node, links, {n: keeper for keeper, n in nodes.items()})
        if made.form:
            plans.append(made)
        return made

    chains = [held.chains[keys][0].chain for keys, _ in parts]
    newer: list[Any] = [None]
    if after is not None:
        newer = [
            newer_than(chain, after(part)) for chain, (_, part) in zip(chains, parts, strict=True)
        ]
    if None in newer:
        images = _all(holders, place, checkpoint, held, whole, plan, versions)
        return Fetched(images, whole, plans=plans)
    read, every = (sum(s.size for c in these for s in c or ()) for these in (newer, chains))
    images = _all(holders, place, checkpoint, held, whole, plan, versions, after)
    return Fetched(images, whole, newer=True, unread=every - read, plans=plans)


def _copies(found: Sequence[_Found], part: KeyRange, after: Since | None) -> list[HeldCopy]:
    """What each keeper has to send of a part; those are left out that have nothing to begin with.

    Args:
        after: see `fetch`.
    """
    copies = []
    for keeper, node, chain in found:
        wanted = chain if after is None else newer_than(chain, after(part))
        if wanted is not None:
            copies.append(HeldCopy(keeper, node, [s.data for s in wanted]))
    return copies


def _all(
    holders: Sequence[Any],
    place: Place,
    checkpoint: int,
    held: _Held,
    whole: set[Any],
    plan: Callable[[Sequence[HeldCopy], KeyRange], Planned],
    versions: Sequence[tuple[int, int]],
    after: Since | None = None,
) -> Iterator[tuple[Image, ...]]:
    """The images of a range, tile by tile. A keeper that died, or that has a damaged file, leaves
    `whole`; then the rest is asked for directly."""
    at = place.keys.lo
    died: RayError | None = None
    for turn in range(TRIES):
        parts = cover(held.chains, KeyRange(at, place.keys.hi))
        if parts is None:
            break
        try:
            for keys, part in parts:
                copies = _copies(held.chains[keys], part, after)
                if not copies:  # the next restore begins with a full image
                    raise NotHeldError(f"{place.name} {part} newer than what is on disk")
                slices = directly(copies, part).slices if turn else plan(copies, part).slices
                at_work = slices[0]
                for way, reader in _readers(slices):
                    at_work = way
                    for tile, images in reader:
                        yield images
                        at = tile.keys.hi
            return
        except (_Gone, RayError) as gone:
            why = str(gone).partition("\n")[0]
            log.warning("%s at %d goes on from another copy: %s", place.name, checkpoint, why)
            if at_work.via:
                continue  # a keeper on the way may have died, and not the one that holds it
            whole.discard(at_work.keeper)
            if isinstance(gone, RayError):
                died, holders = gone, [other for other in holders if other is not at_work.keeper]
            held = _found(holders, place, checkpoint, versions)
    if (doubt := held.doubt or died) is not None:
        raise doubt
    raise NotHeldError(f"{place.name} [{at}, {place.keys.hi}) at {checkpoint}")


def _readers(slices: Sequence[Slice]) -> list[tuple[Slice, _TileReader]]:
    """What reads each slice. All have begun: several keepers send at the same time."""
    ahead = AHEAD_BYTES // len(slices)
    made = [(s, _TileReader(s.keeper, tiles_of(s.chain, s.keys), s, ahead)) for s in slices]
    if len(made) > 1:
        for _, reader in made:
            reader.begin()
    return made


class _TileReader:
    """Gets the images of the tiles of a range from one keeper, and asks for some ahead.

    Args:
        ahead: about how many bytes are asked for before they are needed.
    """

    def __init__(self, keeper: Any, tiles: Sequence[Tile], by: Slice, ahead: int) -> None:
        self._keeper, self._tiles, self._wanted = keeper, tiles, by.keys
        self._via, self._ahead = by.via, ahead
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

    def begin(self) -> None:
        """Ask for the first parts, and have those come that are in an object store."""
        self._ask(())
        refs = [ref for ref, _ in self._asked.values()]
        if refs:
            ray.wait(refs, num_returns=len(refs), timeout=0)

    def _read(self, number: int, keys: KeyRange | None = None) -> Any:
        if not self._via:
            return self._keeper.read.remote(number, *(() if keys is None else (keys,)))
        nearest, *others = self._via
        return nearest.pass_on.remote([*others, self._keeper], number, keys)

    def _ask(self, due: Collection[int]) -> None:
        """Ask for these parts, and for those after them while that is not too much."""
        ahead = sum(size for _, size in self._asked.values())
        while self._coming and (self._coming[0].number in due or ahead < self._ahead):
            part = self._coming.popleft()
            ref, size = part.data, part.size
            if not part.keys.within(self._wanted):
                ref = self._read(part.number, part.keys.common(self._wanted))
            elif ref is None or self._via:
                ref = self._read(part.number)
            else:
                size = 0 if self._ahead == AHEAD_BYTES else size
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


def _found(
    holders: Sequence[Any],
    place: Place,
    checkpoint: int,
    versions: Sequence[tuple[int, int]],
    nodes: Mapping[Any, str] | None = None,
) -> _Held:
    """The images that keepers say they have. All keepers are asked at once. A keeper that cannot be
    reached is asked again while there is time."""
    chains: dict[KeyRange, list[_Found]] = {}
    whole: set[Any] = set()
    doubts: dict[Any, RayError] = {}
    waiting = {_ask(keeper, place, checkpoint, versions): keeper for keeper in holders}
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
                    waiting[_ask(keeper, place, checkpoint, versions)] = keeper
                continue
            for keys, chain in found:
                node = (nodes or {}).get(keeper, "")
                chains.setdefault(keys, []).append(_Found(keeper, node, chain))
                if keys == place.keys:
                    whole.add(keeper)
        if cover(chains, place.keys) is not None:
            until = min(until, time.monotonic() + MORE_SECONDS)
    if waiting and not doubts:
        late = GetTimeoutError(f"{len(waiting)} keepers did not answer in {RESTORE_SECONDS:g} s")
        return _Held(chains, frozenset(whole), late)
    return _Held(chains, frozenset(whole), next(iter(doubts.values()), None))


def _ask(keeper: Any, place: Place, checkpoint: int, versions: Sequence[tuple[int, int]]) -> Any:
    return keeper.images.remote(place.vertex, checkpoint, place.keys, versions)
