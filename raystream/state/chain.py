"""What the next checkpoint of an instance builds on, and which of its cuts are stored."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

IMAGE_BYTES = 1 << 20
"""To read one more image costs a restore about as much as so many bytes."""
SMALL_BYTES = 8 << 20
"""So much may always be read in addition: it costs little."""
CHAIN_MAX = 256
"""After so many deltas the next checkpoint is a full one."""


class Span(NamedTuple):
    """Every cut from `since` to `upto` is stored in all its copies; 0 is no cut."""

    since: int
    upto: int


class Size(NamedTuple):
    """What an image takes when it is stored, and how many rows it has."""

    nbytes: int
    rows: int

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.nbytes + other.nbytes, self.rows + other.rows)


NOTHING = Size(0, 0)


class Chain:
    """The checkpoints that an instance has made and that are stored, one after the other.

    A full one is due when a restore would read more than about twice the state as it is: so little
    is written of state that changes little, or only grows.
    """

    def __init__(self, stored: int) -> None:
        self._stored = Span(stored, stored)
        self._made = 0
        """The cut of the last one; 0 when the next may not build on it."""
        self._deltas = 0
        self._read = 0
        """Bytes of the last full checkpoint and the deltas on it, as far as they are stored."""
        self._largest = NOTHING
        """The one of these with the most rows: it tells best what a row takes."""
        self._gap = False

    def base(self, rows: int) -> int:
        """The cut on which the next checkpoint builds; 0 asks for a full one.

        Args:
            rows: of the state now.
        """
        return 0 if self._long(rows) else self._made

    def _long(self, rows: int) -> bool:
        read = self._read + self._deltas * IMAGE_BYTES
        return self._deltas >= CHAIN_MAX or read >= 2 * rows * self.row_bytes + SMALL_BYTES

    @property
    def row_bytes(self) -> float:
        """What a row takes when it is stored, about, headers included. Another thread may ask."""
        nbytes, rows = self._largest
        return nbytes / rows if rows else 0.0

    @property
    def stored(self) -> Span:
        """The newest cuts without a gap that was made. Another thread may ask."""
        return self._stored

    def continues(self, sizes: Sequence[Size]) -> None:
        """Those who are to hold the checkpoints have the cut with which the instance began.

        Args:
            sizes: of the images of that cut: a full one and the deltas on it.
        """
        self._made = self._stored.upto
        self._deltas = len(sizes) - 1
        for position, size in enumerate(sizes):
            self._count(size, full=not position)

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
            self._deltas = self._read = 0
            self._made = cut

    def answered(self, base: int, cut: int, size: Size, *, held: bool) -> None:
        """All keepers hold the checkpoint at `cut`; or not, so the next one is full.

        Args:
            base: the cut that it was taken against, 0 if it is full.
        """
        if held:
            self._stored = Span(cut if self._gap else self._stored.since, cut)
            self._count(size, full=not base)
        else:
            self._made = 0
        self._gap = not held

    def _count(self, size: Size, *, full: bool) -> None:
        if full:
            self._read, self._largest = size.nbytes, size
        else:
            self._read += size.nbytes
            self._largest = max(self._largest, size, key=attrgetter("rows"))
