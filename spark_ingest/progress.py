"""How work tells how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Is told, again and again, how many tasks of a step are done."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """`total` may grow while `step` runs; it is 0 while it is not known."""


def silent(step: str, done: int, total: int) -> None:
    """A `Progress` that says nothing."""
