"""What a lane knows of its senders: the last sequence of each, to refuse one that leaves one out.

A sender has one request under way and counts up by one. A request whose number is higher than that
was sent before another one that is not recorded yet: if it were taken, that other one would count
as a repeated request later, and be lost. What is repeated is told by the job itself, see
`raystream.dataflow.sources.live`.
"""

from __future__ import annotations

from collections.abc import Mapping

SENDERS = 10_000
"""How many senders of a lane are known: the ones that came last."""


class Sequences:
    """The last sequence of each sender of a lane.

    Args:
        recorded: those that were recorded before.
    """

    def __init__(self, recorded: Mapping[str, int] | None = None) -> None:
        self.recorded = dict(recorded or {})
        """The last one of each sender that is recorded."""
        self._taken = dict(self.recorded)

    def follows(self, sender: str, sequence: int) -> int | None:
        """None if a request may be taken; otherwise the last sequence, which it does not follow."""
        last = self._taken.get(sender)
        return last if last is not None and sequence > last + 1 else None

    def take(self, sender: str, sequence: int) -> None:
        """A request is taken: it will be recorded here, or sent again."""
        _put(self._taken, sender, sequence)

    def record(self, sender: str, sequence: int) -> None:
        """A request is recorded."""
        _put(self.recorded, sender, sequence)


def _put(known: dict[str, int], sender: str, sequence: int) -> None:
    known[sender] = max(sequence, known.pop(sender, -1))
    while len(known) > SENDERS:
        del known[next(iter(known))]
