"""Writing the journal: every entry is written before anything that follows from it is done."""

from __future__ import annotations

from dataclasses import replace

from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages.commands import Command

SEATS_FROM = 1_000_000
"""Lesser numbers are for the instances with which a process begins."""


class Journal:
    """The newest entry, and the names that this controller has drawn.

    Args:
        entry: the entry to go on from.
        copies: how many keepers hold the journal.
    """

    def __init__(self, entry: JournalEntry, copies: int) -> None:
        self.entry = entry
        self._copies = copies
        self._drawn = 0
        self._at: tuple[str, ...] = ()  # the keepers that are to have the newest entry

    def write(self, **changes: object) -> list[Command]:
        """Write the next entry. Without changes this only makes sure, before something is done that
        cannot be undone, that no newer controller has begun."""
        entry = replace(self.entry, number=self.entry.number + 1, **changes)  # type: ignore[arg-type]
        before, at = self._at, entry.places(self._copies)
        old = [p.process for p in self.entry.keepers if p in entry.keepers]
        left = tuple(p for p in old if p not in at) if at != before else ()
        self.entry, self._at = entry, at
        return [do.Write(entry, at, left)]

    def amend(self, **changes: object) -> None:
        """Change what the next entry that is written will hold."""
        self.entry = replace(self.entry, **changes)  # type: ignore[arg-type]

    def new_name(self) -> str:
        """A name for a process that no process of the job has had."""
        self._drawn += 1
        return f"{self.entry.incarnation}.{self._drawn}"

    def new_seat(self) -> int:
        """A number for an instance in a process at work that no other one there has had."""
        self._drawn += 1
        return SEATS_FROM * self.entry.incarnation + self._drawn
