"""What the next checkpoint of an instance builds on, and which of its cuts are stored."""

from __future__ import annotations

from typing import NamedTuple

CHAIN_MAX = 8
"""After so many deltas the next checkpoint is a full one."""


class Span(NamedTuple):
    """Every cut from `since` to `upto` is stored in all its copies; 0 is no cut."""

    since: int
    upto: int


class Chain:
    """The checkpoints that an instance has made and that are stored, one after the other.

    base: the cut on which the next checkpoint builds; 0 asks for a full one.
    """

    def __init__(self, stored: int) -> None:
        self._stored = Span(stored, stored)
        self._missed = 0
        self.base = 0
        self._deltas = 0
        self._gap = False

    @property
    def stored(self) -> Span:
        """The newest cuts without a gap. Another thread may ask."""
        span = self._stored
        return Span(max(span.since, self._missed + 1), span.upto) if self._missed else span

    def missed(self, cut: int) -> None:
        """There was a cut, and this instance heard of it too late."""
        self._missed = max(self._missed, cut)

    def restart(self) -> None:
        """Others hold the checkpoints from now on: the next one is full."""
        self.base = 0

    def made(self, base: int, cut: int) -> None:
        """A checkpoint was made, to be stored in turn.

        If what it builds on was refused while it was made, the next one is full all the same.
        """
        self._deltas = self._deltas + 1 if base else 0
        self.base = 0 if self._deltas >= CHAIN_MAX or base != self.base else cut

    def answered(self, cut: int, *, held: bool) -> None:
        """All keepers hold the checkpoint at `cut`; or not, so the next one is full."""
        if held:
            self._stored = Span(cut if self._gap else self._stored.since, cut)
        else:
            self.base = 0
        self._gap = not held
