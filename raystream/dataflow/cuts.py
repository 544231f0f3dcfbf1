"""Which epochs of an instance are cuts: every n-th, and those that an assignment names beside them.

Sources make cuts, all others find them in what they read. An epoch that was published already can
be named: by a controller that does not know of it yet, or of sources that died and publish it anew
as a cut, for others that had passed it as none. Whoever passed it so has no checkpoint of it, and
has to say that (`Cuts.missed`), or it would be taken for stored where later ones are.
"""

from __future__ import annotations

from collections.abc import Iterable


class Cuts:
    """The cuts of one instance. `ask` and `missed` may be called by any thread, before all else
    that is told of the same moment; the others are for the one that computes.

    begun: the epoch at whose end the instance began.
    """

    def __init__(self, every: int) -> None:
        self.begun = 0
        self._every = every
        self._asked: frozenset[int] = frozenset()
        self._taken: frozenset[int] = frozenset()

    def ask(self, epochs: Iterable[int]) -> None:
        """These are cuts too, besides every n-th; none else."""
        self._asked = frozenset(epochs)

    def due(self, epoch: int) -> bool:
        """Whether a source makes a cut of an epoch."""
        return epoch % self._every == 0 or epoch in self._asked

    def take(self, epoch: int) -> None:
        """An epoch is passed as a cut; before the instance is said to be there."""
        self._taken |= {epoch}

    def settle(self, floor: int) -> None:
        """What was before the floor is not asked for any more."""
        self._taken = frozenset(e for e in self._taken if e >= floor)

    def missed(self, position: int) -> int:
        """The newest epoch up to a position that was asked for and passed as no cut; 0 for none."""
        if not self._asked:
            return 0  # as most often, and asked for all the time
        passed = (e for e in self._asked if self.begun < e <= position)
        return max((e for e in passed if e not in self._taken), default=0)
