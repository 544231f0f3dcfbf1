"""What the next checkpoint of an instance builds on, and which of its cuts are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

CHAIN_MIN = 8
SMALL_BYTES = 8 << 20
"""So few deltas, of so little in all, may always follow a full checkpoint: to read them costs
little."""
CHAIN_MAX = 64
"""After so many deltas the next checkpoint is a full one."""


class Span(NamedTuple):
    """Every cut from `since` to `upto` is stored in all its copies; 0 is no cut."""

    since: int
    upto: int


class Chain:
    """The checkpoints that an instance has made and that are stored, one after the other.

    A full one is due when the deltas since the last one, unless they are few and small, have become
    as large as it: so little is written of state that changes little, and a restore reads about
    twice the state, or thrice where each delta is nearly as large as a full one.
    """

    def __init__(self, stored: int) -> None:
        self._stored = Span(stored, stored)
        self._made = 0
        """The cut of the last one; 0 when the next may not build on it."""
        self._deltas = 0
        self._full = self._changed = 0
        """Bytes of the last full checkpoint, and of the deltas on it, as far as they are stored."""
        self._gap = False

    @property
    def base(self) -> int:
        """The cut on which the next checkpoint builds; 0 asks for a full one."""
        return 0 if self._long() else self._made

    def _long(self) -> bool:
        if self._deltas >= CHAIN_MAX:
            return True
        little = self._deltas < CHAIN_MIN and self._changed < SMALL_BYTES
        return self._changed >= self._full and not little

    @property
    def stored(self) -> Span:
        """The newest cuts without a gap that was made. Another thread may ask."""
        return self._stored

    def continues(self, sizes: Sequence[int]) -> None:
        """Those who are to hold the checkpoints have the cut with which the instance began.

        Args:
            sizes: of the images of that cut, in bytes: a full one and the deltas on it.
        """
        self._made = self._stored.upto
        self._deltas = len(sizes) - 1
        self._full, self._changed = sizes[0], sum(sizes[1:])

    def restart(self) -> None:
        """Others hold the checkpoints from now on: the next one is full."""
        self._made = 0

    def made(self, base: int, cut: int) -> None:
        """A checkpoint was made, to be stored in turn.

        If what it builds on was refused while it was made, the next one is full all the same.
        """
        if base:
            self._deltas += 1
            self._made = cut if base == self._made else 0
        else:
            self._deltas = self._changed = 0
            self._made = cut

    def answered(self, base: int, cut: int, nbytes: int, *, held: bool) -> None:
        """All keepers hold the checkpoint at `cut`; or not, so the next one is full.

        Args:
            base: the cut that it was taken against, 0 if it is full; nbytes: its encoded size.
        """
        if held:
            self._stored = Span(cut if self._gap else self._stored.since, cut)
            self._full = self._full if base else nbytes
            self._changed = self._changed + nbytes if base else 0
        else:
            self._made = 0
        self._gap = not held
