"""A simulated durable tier: a store in memory, and what must hold of the cuts that are saved."""

from __future__ import annotations

from collections.abc import Iterable

from raystream.controller import commands as do
from raystream.controller.recovery import Place
from raystream.errors import RaystreamError, StateError
from raystream.io.saves import Encoded, Saves
from raystream.io.store import Data, missing
from raystream.state.images import Stored
from raystream.state.saved import Saved, SavedChain
from raystream.testing.simworld import Wrong


class MemoryStore:
    """Objects in a dict; see `raystream.io.store.Store`."""

    def __init__(self) -> None:
        self.url = "memory://"
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, data: Data) -> None:
        """Store an object."""
        self.objects[name] = bytes(data)

    def claim(self, name: str, data: Data) -> bool:
        """Store an object if there is none of this name; whether this call did it."""
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
        """Nothing is ever half written here."""


class Tier:
    """What keepers do with the store of a job. saved: the newest cut, None before the first."""

    def __init__(self, job: str) -> None:
        self.saves = Saves(MemoryStore(), job, at_once=1)
        self.saved: Saved | None = None

    def put(
        self,
        command: do.PutChains,
        number: int,
        held: dict[Place, list[Stored[tuple[memoryview, ...]]] | None],
    ) -> do.Put:
        """Store what a keeper held when it was asked."""
        chains: list[tuple[int, SavedChain]] = []
        for place, chain in held.items():
            if chain is None:
                return do.Put(command.process, command.cut, why=f"{place.name} is not held")
            images = [Encoded(s.base or 0, s.cut, data) for s in chain for (data,) in [s.data]]
            put = self.saves.put_chain(number, place.operator, place.keys, images)
            chains.append((place.vertex, put))
        return do.Put(command.process, command.cut, tuple(chains))

    def save(self, command: do.SaveCut, committed: int) -> do.CutSaved:
        """Write a manifest: of a committed cut, whole, and not older than the one before.

        Args:
            committed: the newest cut that was.
        """
        saved = command.saved
        if saved.cut > committed:
            raise Wrong(f"{saved} was saved, and {committed} is committed")
        try:
            self.saves.commit(saved)
        except RaystreamError as error:
            return do.CutSaved(command.process, saved.cut, str(error))
        self.saves.drop(saved.number)
        found = self.newest()
        if found is None or _order(found) < _order(saved):
            raise Wrong(f"{saved} was saved, and now there is {found}")
        return do.CutSaved(command.process, saved.cut)

    def newest(self) -> Saved | None:
        """The cut from which a run would go on."""
        try:
            found = self.saves.newest()
        except StateError as error:
            raise Wrong(f"a saved cut is not whole: {error}") from error
        if found.refused:
            raise Wrong(f"a saved cut is not whole: {found.refused}")
        if self.saved is not None and (
            found.saved is None or _order(found.saved) < _order(self.saved)
        ):
            raise Wrong(f"{self.saved} was saved, and now there is {found.saved}")
        self.saved = found.saved
        return found.saved


def _order(saved: Saved) -> tuple[int, int]:
    return saved.number, saved.cut
