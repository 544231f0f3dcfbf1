"""Which epochs of an instance are checkpoints: every n-th, and those that an assignment names.

Sources decide which epochs are checkpoints; all other instances read it in the headers of pieces.
An assignment may name an epoch that was published already: the controller does not know of that
epoch yet, or a source died and its successor publishes the epoch again, now as a checkpoint. An
instance that has passed the epoch by then has no checkpoint of it. It must report that
(`CheckpointEpochs.missed`); otherwise the epoch would count as stored as soon as later ones are.

A step of a source may be a run of empty epochs. Where sources can be at different epochs, a step
ends at the next checkpoint, so all take the same ones. Where they go *together* a run counts as one
epoch, because ten years of daily records have millions of epochs: of the checkpoints that it passes
only those are taken whose number is a multiple of `every` times the length of the run, rounded up
to a power of two. That is one in `every` to twice `every` such steps. What was passed is reported
(`CheckpointEpochs.skipped`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Run = tuple[int, int]
"""The first and the last epoch of a run."""


class CheckpointEpochs:
    """The checkpoints of one instance. Any thread may call `ask` and `missed`, before it tells the
    instance anything else at that moment; the other methods are for the computing thread."""

    def __init__(self, every: int) -> None:
        self.begun = 0
        """The epoch at whose end the instance began."""
        self._every = every
        self._asked: frozenset[int] = frozenset()
        self._taken: frozenset[int] = frozenset()
        self.skipped: tuple[Run, ...] = ()
        """The first and the last epoch of each run with checkpoints that were not taken, but for
        those before the committed one. Any thread may read it."""
        self.newest = 0
        """The newest checkpoint that was taken; 0 for none since the instance began."""
        self.together = False
        """Of a source: whether all sources are at one epoch. There is one instance of a source, or
        somebody has all take the same steps. Any thread may set it: what is skipped is reported."""
        self._stop_at = 0

    def ask(self, epochs: Iterable[int], stop_at: int = 0) -> None:
        """These epochs are checkpoints, in addition to every n-th, and no others are. stop_at: that
        after which a source emits nothing, if it comes to it; 0 for none."""
        self._asked = frozenset(epochs)
        self._stop_at = stop_at

    def stops(self, position: int) -> bool:
        """Whether a source that has come to an epoch emits nothing after it."""
        return position == self._stop_at > 0

    def due(self, epoch: int, epochs: int = 1) -> bool:
        """Whether a source makes the last of these epochs, which are one step, a checkpoint."""
        return epoch % self._spacing(epochs) == 0 or epoch in self._asked

    def stop(self, after: int, upto: int) -> int:
        """The epoch at which a step of a source ends that could go on to `upto`, because no epoch
        before has rows: the first that was asked for, otherwise a checkpoint."""
        asked = [e for e in self._asked if after < e <= upto] if self._asked else []
        if asked:
            return min(asked)
        if not self.together:
            return min(upto, (after // self._every + 1) * self._every)
        spacing = self._spacing(upto - after)
        last = upto // spacing * spacing
        return last if last > after else upto

    def _spacing(self, epochs: int) -> int:
        """The number of epochs between two checkpoints that steps of this length take."""
        return self._every << (epochs - 1).bit_length() if self.together else self._every

    def passed(self, first: int, last: int) -> None:
        """Note that the epochs from `first` to `last` were passed without a checkpoint."""
        every = self._every
        if last // every * every < first:
            return
        before = self.skipped
        if before and (first - 1) // every * every <= before[-1][1]:
            before, first = before[:-1], before[-1][0]
        self.skipped = (*before, (first, last))

    def take(self, epoch: int) -> None:
        """Note that an epoch is a checkpoint. Called before the position reaches the epoch."""
        self._taken |= {epoch}
        self.newest = epoch

    def settle(self, committed: int) -> None:
        """Forget the checkpoints before the committed one: nobody asks for them any more."""
        self._taken = frozenset(e for e in self._taken if e >= committed)
        if self.skipped:
            self.skipped = tuple(run for run in self.skipped if run[1] > committed)

    def missed(self, position: int) -> int:
        """The newest epoch that was asked for as a checkpoint, and that the instance has passed
        without taking one; 0 if there is none.

        Args:
            position: the last epoch that the instance has applied.
        """
        if not self._asked:
            return 0  # as most often, and asked for all the time
        passed = (e for e in self._asked if self.begun < e <= position)
        return max((e for e in passed if e not in self._taken), default=0)


def newest_regular(every: int, reached: int, committed: int, skipped: Sequence[Run]) -> int:
    """The newest n-th epoch after the committed one and up to `reached` that nobody has skipped; at
    most the committed one if there is none.

    Args:
        every: each epoch with a number that this divides is a checkpoint unless it was skipped.
        skipped: see `CheckpointEpochs.skipped`, of all instances.
    """
    checkpoint = reached // every * every
    while checkpoint > committed:
        over = [first for first, last in skipped if first <= checkpoint <= last]
        if not over:
            break
        checkpoint = (min(over) - 1) // every * every
    return checkpoint
