"""Saving the committed checkpoints of a job in a store, and finding them again.

    saves = Saves(open_store(url), "counts")
    number = saves.claim(run)                              once, when a run begins
    chain = saves.put_chain(number, vertex, keys, images)  by a keeper that holds them
    saves.commit(saved)                                    by one process, when all are there
    saves.drop(number)                                     by the same, before it puts the next one

After the loss of everything:

    found = saves.newest()
    saves.images(found.saved, vertex, keys)                for any ranges
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from raystream.durable.inheriting import inherited, nothing, resplit
from raystream.durable.manifest import (
    Saved,
    SavedChain,
    SavedImage,
    absent,
    claim_name,
    decode,
    droppable,
    encode,
    folder_of,
    manifest_name,
    newest_first,
    newest_run,
    overlaps,
    saved_image,
)
from raystream.durable.store import Data, Store
from raystream.errors import OutputError, OvertakenError, StateError
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image, ImageHeader, check_whole
from raystream.state.images.image import decode as decode_image
from raystream.state.images.partition import partition

MANIFEST_BYTES = 256 << 20
"""The size of the largest manifest that is read."""
CLAIMS_MAX = 100
"""How many runs may begin at the same moment, at most."""
KEPT = 2
"""How many whole checkpoints stay in a store, unless a run says more."""
CHECKED_AT_ONCE, SMALL_BYTES = 8, 16 << 20
"""How many chains of images up to this size are checked at the same time: a bucket takes longer to
answer than to send them. Larger ones travel in parts, several at once."""


class EncodedImage(NamedTuple):
    """A checkpoint image in its stored form (`Image.encode`)."""

    base: int
    """The checkpoint of the image that this one is a delta on; 0 of a full image."""
    checkpoint: int
    data: Data
    crc32: int | None = None
    """The checksum of the data, if the caller knows it already."""


class Found(NamedTuple):
    """The newest whole checkpoint, None if there is none; and why newer ones were refused."""

    saved: Saved | None
    refused: tuple[str, ...]


class Saves:
    """The saved checkpoints of one job in a store. Errors of the store: see `Store`.

    Args:
        at_once: how many small chains are checked at the same time; 1 starts no threads.
    """

    def __init__(self, store: Store, job: str, *, at_once: int = CHECKED_AT_ONCE) -> None:
        self.store = store
        self.job = job
        self._at_once = at_once
        self._held: dict[str, Data] = {}

    def __str__(self) -> str:
        return f"{self.store.url}/{folder_of(self.job)}"

    # ------------------------------------------------------------ saving

    def claim(self, run: str) -> int:
        """The number of a new run: no other has it, and it is greater than all before.

        What earlier runs were in the middle of writing is removed, so they cannot finish it.
        """
        number = newest_run(self.job, self._there()) + 1
        for candidate in range(number, number + CLAIMS_MAX):
            if self.store.claim(claim_name(self.job, candidate), run.encode()):
                self.store.sweep(folder_of(self.job))
                return candidate
        raise OutputError(
            f"{self}: no number for run {run}, from {number} on others took {CLAIMS_MAX}.",
            hint="Give each job its own name or store.",
        )

    def is_newest(self, saved: Saved) -> bool:
        """Whether a checkpoint is still the newest of its job, and no later run has begun."""
        there = self._there()
        newest = newest_first(self.job, there)[:1]
        mine = manifest_name(self.job, saved.number, saved.checkpoint)
        return newest == [mine] and newest_run(self.job, there) == saved.number

    def put_edited(self, saved: Saved, edited: Mapping[str, Sequence[Image]]) -> Saved:
        """Save a checkpoint again, as a run of its own, with other images of some operators.

        Args:
            edited: a full image of each range, by operator.

        Raises:
            OvertakenError: another run has begun meanwhile.

        Returns:
            The new checkpoint.
        """
        number = self.claim("edited")
        if number != saved.number + 1:
            raise OvertakenError(f"{self}: another run has begun meanwhile; nothing was saved.")
        chains = dict(saved.chains)
        for vertex, images in edited.items():
            chains[vertex] = tuple(
                self.put_chain(
                    number,
                    vertex,
                    image.header.keys,
                    [EncodedImage(0, image.header.checkpoint, image.encode())],
                )
                for image in images
            )
        again = replace(saved, number=number, chains=chains)
        self.commit(again)
        return again

    def put_chain(
        self, number: int, vertex: str, keys: KeyRange, images: Sequence[EncodedImage]
    ) -> SavedChain:
        """Store the images of a range that are not there yet, each a delta on the one before."""
        named = [saved_image(self.job, number, vertex, keys, *image) for image in images]
        data = {saved.name: image.data for saved, image in zip(named, images, strict=True)}
        there = self.store.sizes(named[0].name.rpartition("/")[0])
        for image in absent(named, there):
            self.store.put(image.name, data[image.name])
        return SavedChain(keys, tuple(named))

    def commit(self, saved: Saved) -> None:
        """Save a checkpoint whose images are all there: from now on it counts.

        Raises:
            OutputError: an image is not there after all.
            OvertakenError: a later run of this job has begun.
        """
        there = self._there()
        self._refuse_replaced(saved, there)
        for image in absent(saved.images, there):
            raise OutputError(
                f"{self.store.url}/{image.name} was stored and is not there.",
                hint="Do all nodes share that place? A checkpoint that was saved before is whole.",
            )
        self.store.put(manifest_name(self.job, saved.number, saved.checkpoint), encode(saved))
        self._refuse_replaced(saved, self._there())  # a put may take as long as it does

    def _refuse_replaced(self, saved: Saved, there: dict[str, int]) -> None:
        if (later := newest_run(self.job, there)) > saved.number:
            raise OvertakenError(
                f"{self}: run {later} has begun, so run {saved.number} is over.",
                hint="A job runs once at a time. Give each job its own name or store.",
            )

    def drop(self, number: int, keep: Collection[str] = (), *, kept: int = KEPT) -> list[str]:
        """Delete, as run `number`, what the newest whole checkpoints do not need.

        Args:
            keep: names of images that `put_chain` returned for a checkpoint that is not committed
                yet.
            kept: how many whole checkpoints stay, at least two.

        Returns:
            The names that were deleted.
        """
        there = self._there()
        refused: list[str] = []
        whole = list(islice(self._whole(there, refused), kept))
        names = droppable(self.job, there, whole, number, keep)
        self.store.delete(names)
        return names

    # ------------------------------------------------------------ going on

    def newest(self, *, checksums: bool = True) -> Found:
        """The newest checkpoint whose manifest and images are there and whole.

        Args:
            checksums: read all images of it; otherwise a damaged one is noticed when it is used.
        """
        refused: list[str] = []
        for saved in self._whole(self._there(), refused):
            try:
                if checksums:
                    self._check(saved)
            except StateError as error:
                refused.append(str(error))
                continue
            return Found(saved, tuple(refused))
        return Found(None, tuple(refused))

    def hold(self, saved: Saved) -> None:
        """Read all images of a checkpoint now, for a reader that comes to them later: a job that
        runs may have deleted them by then.

        Raises:
            StateError: one is gone already.
        """
        self._held = {image.name: self.store.get(image.name) for image in saved.images}

    def kept(self) -> list[Saved]:
        """All whole checkpoints, the newest first. Checksums of images are not verified."""
        return list(self._whole(self._there(), []))

    def manifests(self) -> list[str]:
        """The names of all manifests that are there, the newest first."""
        return newest_first(self.job, self._there())

    def _check(self, saved: Saved) -> None:
        def check(at: tuple[str, SavedChain]) -> None:
            deque(self._at_checkpoint(saved, *at), maxlen=0)

        chains = [(vertex, chain) for vertex, found in saved.chains.items() for chain in found]
        in_turn = chains
        if self._at_once > 1:
            with ThreadPoolExecutor(self._at_once) as pool:
                deque(pool.map(check, [at for at in chains if _small(at[1])]), maxlen=0)
            in_turn = [at for at in chains if not _small(at[1])]
        deque(map(check, in_turn), maxlen=0)

    def images(self, saved: Saved, vertex: str, keys: KeyRange) -> list[list[Image]]:
        """The state of a range at a saved checkpoint: chains of images for parts that follow each
        other and make up the range. The last image of a chain is at the saved checkpoint.

        Raises:
            StateError: an image is gone, damaged, or of something else.
        """
        begins = saved.begins.get(vertex)
        if begins is None:
            return self._stored(saved, vertex, keys)
        if not begins.was:
            return [[nothing(saved, vertex, keys)]]
        if begins.groups is not None:
            whole = self._stored(saved, vertex, KeyRange(0, saved.layout.groups))
            return [[resplit(saved, vertex, whole, keys)]]
        found = self._stored(saved, vertex, keys)
        return [[inherited(saved, vertex, image) for image in chain] for chain in found]

    def ends(self, saved: Saved, vertex: str) -> list[ImageHeader]:
        """The headers of the newest images of a vertex: of a source one for each range, of another
        vertex, whose ranges are all at the same position, that of the smallest image."""
        chains: Sequence[SavedChain] = saved.chains[vertex]
        if vertex not in saved.splits:
            chains = [min(chains, key=lambda chain: chain.images[-1].size)]
        return [self._image(saved, vertex, c.keys, c.images[-1]).header for c in chains]

    def _stored(self, saved: Saved, vertex: str, keys: KeyRange) -> list[list[Image]]:
        return [
            [
                image if part == chain.keys else partition(image, [part])[0]
                for image in self._at_checkpoint(saved, vertex, chain)
            ]
            for chain, part in overlaps(saved, vertex, keys)
        ]

    def _at_checkpoint(self, saved: Saved, vertex: str, chain: SavedChain) -> Iterator[Image]:
        """The images of a chain. An instance that has ended keeps its final state: every later
        checkpoint reuses the image of its end."""
        headers = []
        for at in chain.images:
            image = self._image(saved, vertex, chain.keys, at)
            headers.append(image.header)
            last = at == chain.images[-1]
            if last and at.checkpoint != saved.checkpoint and not image.header.input_position.ended:
                raise StateError(f"{self.store.url}/{at.name} is older than {saved}")
            yield image
        check_whole(headers)

    def _image(self, saved: Saved, vertex: str, keys: KeyRange, at: SavedImage) -> Image:
        place = f"{self.store.url}/{at.name}"
        data = self._held[at.name] if at.name in self._held else self.store.get(at.name)
        name = saved.stored_as(vertex)
        if saved_image(self.job, 0, name, keys, at.base, at.checkpoint, data)[1:] != at[1:]:
            raise StateError(
                f"{place} is damaged: its size or checksum is another than {saved} says.",
                hint="An older checkpoint may be whole.",
            )
        image = decode_image(data)
        header = image.header
        # What had ended before the code was changed has no rows, and is stored as it was then.
        over = header.input_position.ended and not len(image)
        expected = (
            name,
            header.shape if over else saved.layout.shapes[vertex],
            saved.layout.groups,
            keys,
            at.base,
            at.checkpoint,
        )
        if (
            header.operator,
            header.shape,
            header.groups,
            header.keys,
            header.base,
            header.checkpoint,
        ) != expected:
            raise StateError(f"{place} is not what {saved} says: it is the {header}")
        try:
            image.validate()
        except pa.ArrowException as error:
            raise StateError(
                f"{place} holds what no checkpoint holds: {error}",
                hint="Something else than raystream has written it. Look who may write there.",
            ) from None
        return image

    # ------------------------------------------------------------ what is there

    def _there(self) -> dict[str, int]:
        return self.store.sizes(folder_of(self.job))

    def _whole(self, there: dict[str, int], refused: list[str]) -> Iterator[Saved]:
        """The whole checkpoints among what is there, the newest first; adds why others are not."""
        for name in newest_first(self.job, there):
            if there[name] > MANIFEST_BYTES:
                refused.append(f"{name} has {there[name]:,} bytes: no manifest is so large")
                continue
            try:
                saved = decode(self.job, name, self.store.get(name))
            except StateError as error:
                refused.append(str(error))
                continue
            lost = absent(saved.images, there)
            if lost:
                refused.append(
                    f"{name} refers to {len(lost)} images that are not there or have"
                    f" another size, as {lost[0].name}"
                )
            else:
                yield saved


def _small(chain: SavedChain) -> bool:
    return all(image.size <= SMALL_BYTES for image in chain.images)
