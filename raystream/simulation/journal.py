"""How a simulated controller writes its journal: to several keepers, some of which may be dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.simulation.processes.keepers import LINK, SimulatedKeeper
from raystream.simulation.world import POLL

if TYPE_CHECKING:
    from raystream.simulation.controller import SimulatedController

WRITE = 3.0
"""How long a keeper may take to write."""


class SimulatedJournal:
    """Writes one entry after the other."""

    def __init__(self, controller: SimulatedController) -> None:
        self._controller = controller
        self._job, self._world = controller.job, controller.world
        self._writing: set[str] | None = None
        """The keepers that have not answered yet; None when nothing is written."""
        self._written = False
        """Whether some keeper has the entry."""
        self._entry: JournalEntry | None = None
        """The entry that is written."""
        self._to: tuple[str, ...] = ()
        """The keepers that are to have it."""
        self._at: tuple[str, ...] = ()
        """The keepers that have the newest entry that was written."""
        self._left: list[SimulatedKeeper] = []
        """The keepers that are to forget it then."""

    @property
    def busy(self) -> bool:
        """Whether an entry is being written."""
        return self._writing is not None

    def write(self, command: do.Write) -> None:
        """Write an entry to all keepers that are to have it. `busy` until that is done."""
        entry, at = command.entry, command.at
        if at != self._at and not self._controller.newest:
            self._controller.depose()
            return
        self._left = [self._job.keepers[p] for p in command.left]
        if entry.committed > self._job.entry.committed:
            self._world.tell(self._controller.name, "commits", entry.committed)
        keepers = [self._job.keepers[p] for p in at]
        self._writing, self._written = {k.process for k in keepers}, False
        self._entry, self._to = entry, at
        for keeper in keepers:
            if keeper.alive:
                self._world.after(LINK, keeper, self._shelve, keeper, entry)
            look = (keeper, entry, self._world.now + WRITE)
            self._world.after(3 * LINK, self._controller, self._look, *look)
        if not keepers:
            self._world.after(POLL, self._controller, self._wrote, "", entry)

    def _look(self, keeper: SimulatedKeeper, entry: JournalEntry, until: float) -> None:
        """Stop waiting for keepers that have died, or do not answer in time."""
        if self._writing and keeper.process in self._writing:
            if keeper.answers or (keeper.alive and self._world.now < until):
                look = (keeper, entry, until)
                self._world.after(3 * LINK, self._controller, self._look, *look)
            elif not keeper.alive:
                self._wrote(keeper.process, entry)
            elif entry is self._entry:
                gone = on.Gone(keeper.process, "it did not write")
                self._world.after(LINK, self._controller, self._controller.hear, gone)
                self._wrote(keeper.process, entry)

    def _shelve(self, keeper: SimulatedKeeper, entry: JournalEntry) -> None:
        kept = keeper.write(entry)
        # Of another controller only a keeper of its own may still take it.
        decides = self._job.controller is self._controller
        if kept and decides and entry.order > self._job.entry.order:  # from now on it is decided
            self._job.check_entry(entry)
        self._world.after(LINK, self._controller, self._shelved, keeper.process, entry, kept)

    def _shelved(self, process: str, entry: JournalEntry, kept: bool) -> None:
        if not kept:
            self._controller.depose()
        elif entry is self._entry:  # otherwise it answers late, and nobody waits for it
            self._written = True
            self._wrote(process, entry)

    def _wrote(self, process: str, entry: JournalEntry) -> None:
        """Note that one keeper has the entry, or is dead. If none has it, it is written again, or a
        newer one."""
        if self._writing is None:
            return
        self._writing.discard(process)
        if self._writing:
            return
        self._writing = None
        for keeper in (k for k in self._left if k.alive and k.asleep):  # it hears that later
            self._world.at(self._world.now, keeper, keeper.leave_journal, entry.order)
        left = [k for k in self._left if k.answers]
        if self._written:
            self._at = self._to
            if all(keeper.leave_journal(entry.order) for keeper in left):
                self._job.acted_on = max(self._job.acted_on, entry.order)
                self._controller.written()
            else:
                self._controller.depose()
        else:
            at = entry.places(self._job.options.copies)
            again = do.Write(entry, at, tuple(k.process for k in left))
            self._controller.rewrite(again)
