"""How a simulated controller has keepers save checkpoints in the durable tier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.recovery import Place
from raystream.simulation.processes.keepers import LINK, SimulatedKeeper
from raystream.simulation.world import NOTICE

if TYPE_CHECKING:
    from raystream.simulation.controller import SimulatedController

SAVING = 0.4
"""How long it takes to store a part of a checkpoint in the durable tier."""


class Saving:
    """Has keepers do what the controller's machine commands."""

    def __init__(self, controller: SimulatedController) -> None:
        self._controller = controller
        self._job, self._world = controller.job, controller.world

    def put(self, command: do.PutChains) -> None:
        """Have a keeper store the images of some ranges."""
        keeper = self._job.keepers[command.process]
        self._have(keeper, self._grab, keeper, command)

    def save(self, command: do.SaveCheckpoint) -> None:
        """Have a keeper write the manifest of a checkpoint."""
        keeper = self._job.keepers[command.process]
        self._have(keeper, self._write, keeper, command)

    def _have(self, keeper: SimulatedKeeper, action: Callable[..., None], *args: Any) -> None:
        """Let a keeper do something. If it is dead, the controller hears that again."""
        if keeper.alive:
            self._world.after(LINK, keeper, action, *args)
        else:
            self._hears(NOTICE, on.Gone(keeper.process, "is dead"))

    def _grab(self, keeper: SimulatedKeeper, command: do.PutChains) -> None:
        """Take what the keeper holds now. It is stored later, even if it is dropped meanwhile."""
        held = {p: self._held(keeper, p, command) for p in command.places}
        self._world.after(SAVING, keeper, self._store, keeper, command, held)

    def _held(self, keeper: SimulatedKeeper, place: Place, command: do.PutChains) -> Any:
        found = keeper.kept.chains(place.vertex, command.checkpoint, place.keys, command.versions)
        chain = dict(found).get(place.keys)
        if chain is None:
            return None
        read = [(s, tuple(keeper.read(part.number) for part in s.data)) for s in chain]
        if any(data is None for _, parts in read for data in parts):
            return None
        return [replace(s, data=parts) for s, parts in read]  # type: ignore[arg-type]

    def _store(self, keeper: SimulatedKeeper, command: do.PutChains, held: Any) -> None:
        tier, durable = self._job.tier, self._job.plan.durable
        assert tier is not None and durable is not None
        self._hears(LINK, tier.put(command, durable.number, held))

    def _write(self, keeper: SimulatedKeeper, command: do.SaveCheckpoint) -> None:
        assert self._job.tier is not None
        event = self._job.tier.save(command, self._job.entry.committed)
        self._world.tell(keeper.name, "saves", command.saved, event.why)
        self._hears(LINK, event)

    def _hears(self, mean: float, event: on.Event) -> None:
        self._world.after(mean, self._controller, self._controller.hear, event)
