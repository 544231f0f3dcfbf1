"""Window kinds. Sizes are in seconds; a flow turns them into its own time unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from raystream.errors import GraphError
from raystream.schema.records import caller


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of `seconds` that follow each other without a gap."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of `seconds`, a new one every `every` seconds."""

    seconds: float
    every: float


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that last until a key was silent for `gap` seconds."""

    gap: float


WindowKind = Tumbling | Sliding | Session


def tumbling(*, seconds: float) -> Tumbling:
    """Windows of `seconds` that follow each other without a gap."""
    return Tumbling(_positive("seconds", seconds))


def sliding(*, seconds: float, every: float) -> Sliding:
    """Windows of `seconds`, a new one every `every` seconds (at most `seconds`)."""
    if _positive("every", every) > _positive("seconds", seconds):
        raise GraphError(
            f"sliding(every={every:g}) is longer than the window of {seconds:g} s:"
            " records between windows would be lost",
            where=caller()[0],
        )
    return Sliding(seconds, every)


def session(*, gap: float) -> Session:
    """Windows that last until a key was silent for `gap` seconds.

    A record may join two sessions, so the operator needs `merge(self, into, other)`.
    """
    return Session(_positive("gap", gap))


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise GraphError(f"{name} must be above 0, not {value}", where=caller()[0])
    if math.isinf(value):
        raise GraphError(f"{name} must be finite", where=caller()[0])
    return value
