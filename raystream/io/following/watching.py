"""Which files are whole, and which were taken already. No clock and no file is looked at here.

What was taken is remembered by name, up to `KEPT` names. Beyond that those that were taken first
are forgotten, and the *floor* rises to the newest time among them: a file that is not remembered
and is not newer than the floor was taken, as far as anybody knows. So nothing is taken twice, and
what is remembered does not grow.

The memory is in the job's record, as the senders of pieces (`raystream.dataflow.sources.live`): a
file is a sender, and the floor is one. The record knows `SENDERS` of them, more than `KEPT`, and
forgets the oldest as well. What it has forgotten is below a floor that it knows, because a floor is
recorded as soon as it has risen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from raystream.io.following.looking import Seen

KEPT = 8_000
"""How many names are remembered."""
FLOOR = "floor"
"""The sender of floors. That of a file has a colon."""


class Taken(NamedTuple):
    """A file of which pieces were taken."""

    sender: str
    sequence: int
    """Twice the number of its last piece, and one more if the file has no others."""
    changed: int

    @property
    def pieces(self) -> int:
        """How many pieces of it were taken."""
        return self.sequence // 2 + 1

    @property
    def whole(self) -> bool:
        """Whether that is all of it."""
        return self.sequence % 2 == 1


def sequence(number: int, *, last: bool) -> int:
    """The sequence of a piece of a file; they count from 0."""
    return 2 * number + last


class Memory:
    """What was taken."""

    def __init__(self, kept: int = KEPT) -> None:
        self.floor = self.said = -1
        self.names: dict[str, Taken] = {}
        self._kept = kept

    def learn(self, sequences: Mapping[str, int]) -> None:
        """Add what is recorded: by sender the last sequence."""
        for sender, last in sequences.items():
            if sender == FLOOR:
                self.floor = self.said = max(self.floor, last)
                continue
            changed, _, name = sender.partition(":")
            known = self.names.get(name)
            if known is None or known.sender != sender or known.sequence < last:
                self.names[name] = Taken(sender, last, int(changed))
        self._forget()

    def wants(self, name: str, found: Seen) -> bool:
        """Whether a file is new, or was not taken to its end."""
        known = self.names.get(name)
        return found.changed > self.floor if known is None else not known.whole

    def unfinished(self) -> list[str]:
        """Files that were not taken to their ends."""
        return [name for name, taken in self.names.items() if not taken.whole]

    def begin(self, name: str, found: Seen) -> tuple[str, int]:
        """Take a file: the sender of its pieces, and how many of them were taken before."""
        known = self.names.get(name)
        if known is not None:
            return known.sender, known.pieces
        return f"{found.changed}:{name}", 0

    def took(self, name: str, sender: str, last: int, found: Seen) -> None:
        """A piece was taken."""
        self.names[name] = Taken(sender, last, found.changed)
        self._forget()

    def risen(self) -> int | None:
        """The floor, if it has risen since it was recorded; it is to be recorded now."""
        if self.floor == self.said:
            return None
        self.said = self.floor
        return self.floor

    def _forget(self) -> None:
        if len(self.names) <= self._kept:
            return
        first = [*self.names.values()][: len(self.names) - self._kept // 2]
        self.floor = max(self.floor, *(taken.changed for taken in first if taken.whole), -1)
        self.names = {
            name: taken
            for name, taken in self.names.items()
            if taken.changed > self.floor or not taken.whole
        }


class Settling:
    """Which files have stayed as they are for a while.

    Args:
        seconds: for how long a file has to.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, tuple[Seen, float]] = {}

    def settled(self, found: Mapping[str, Seen], now: float, clock: int) -> list[str]:
        """The files that are whole, in the order of their times, then of their names.

        Args:
            found: what a look shows of files that are wanted. now: seconds of a clock that only
                rises. clock: nanoseconds of Unix time; what is newer than that waits.
        """
        since = {}
        for name, as_it_is in found.items():
            before = self._since.get(name)
            same = before is not None and before[0] == as_it_is
            since[name] = before if same and before is not None else (as_it_is, now)
        self._since = since
        whole = [
            name
            for name, (as_it_is, first) in since.items()
            if now - first >= self._seconds and as_it_is.changed <= clock
        ]
        return sorted(whole, key=lambda name: (found[name].changed, name))
