"""A simulated durable tier: a store in memory, and what must hold of checkpoints saved there."""

from __future__ import annotations

from collections.abc import Iterable

from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.recovery import Place
from raystream.durable.manifest import Saved, SavedChain
from raystream.durable.saves import EncodedImage, Saves
from raystream.durable.store import Data, missing
from raystream.errors import RaystreamError, StateError
from raystream.simulation.world import Wrong
from raystream.state.images.image_store import Stored


class MemoryStore:
    """Objects in a dict; see `raystream.durable.store.Store`."""

    def __init__(self) -> None:
        self.url = "memory://"
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, data: Data) -> None:
        """Store an object."""
        self.objects[name] = bytes(data)

    def claim(self, name: str, data: Data) -> bool:
        """Store an object if there is none of this name. Returns whether this call did it."""
        return self.objects.setdefault(name, data := bytes(data)) is data

    def get(self, name: str) -> Data:
        """The content of an object."""
        if name not in self.objects:
            raise missing(self.url, name)
        return self.objects[name]

    def sizes(self, folder: str) -> dict[str, int]:
        """The sizes in bytes of all objects below a folder, by name."""
        return {n: len(d) for n, d in self.objects.items() if n.startswith(f"{folder}/")}

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects."""
        for name in names:
            self.objects.pop(name, None)

    def sweep(self, folder: str) -> None:
        """Nothing to do: no object is ever half written here."""


class Tier:
    """The calls of keepers to the store of a job.

    saved: the newest saved checkpoint, None before the first.
    """

    def __init__(self, job: str) -> None:
        self.saves = Saves(MemoryStore(), job, at_once=1)
        self.saved: Saved | None = None

    def put(
        self,
        command: do.PutChains,
        number: int,
        held: dict[Place, list[Stored[tuple[memoryview, ...]]] | None],
    ) -> on.Put:
        """Store what a keeper held when it was asked."""
        chains: list[tuple[int, SavedChain]] = []
        for place, chain in held.items():
            if chain is None:
                return on.Put(command.process, command.checkpoint, why=f"{place.name} is not held")
            images = [
                EncodedImage(s.base or 0, s.checkpoint, data) for s in chain for (data,) in [s.data]
            ]
            put = self.saves.put_chain(number, place.operator, place.keys, images)
            chains.append((place.vertex, put))
        return on.Put(command.process, command.checkpoint, tuple(chains))

    def save(self, command: do.SaveCheckpoint, committed: int) -> on.CheckpointSaved:
        """Write a manifest: of a committed checkpoint, whole, and not older than the one before.

        Args:
            committed: the newest checkpoint that was.
        """
        saved = command.saved
        if saved.checkpoint > committed:
            raise Wrong(f"{saved} was saved, and {committed} is committed")
        try:
            self.saves.commit(saved)
        except RaystreamError as error:
            return on.CheckpointSaved(command.process, saved.checkpoint, str(error))
        self.saves.drop(saved.number)
        found = self.newest()
        if found is None or _order(found) < _order(saved):
            raise Wrong(f"{saved} was saved, and now there is {found}")
        return on.CheckpointSaved(command.process, saved.checkpoint)

    def newest(self) -> Saved | None:
        """The saved checkpoint from which a run would go on."""
        try:
            found = self.saves.newest()
        except StateError as error:
            raise Wrong(f"a saved checkpoint is not whole: {error}") from error
        if found.refused:
            raise Wrong(f"a saved checkpoint is not whole: {found.refused}")
        if self.saved is not None and (
            found.saved is None or _order(found.saved) < _order(self.saved)
        ):
            raise Wrong(f"{self.saved} was saved, and now there is {found.saved}")
        self.saved = found.saved
        return found.saved


def _order(saved: Saved) -> tuple[int, int]:
    return saved.number, saved.checkpoint
