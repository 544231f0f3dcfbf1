"""Column types: a plain `int` or `float` for the type checker, a width for the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

NEVER: int = 2**63 - 1
"""The time of a timer that is not set, and the watermark at the end of all input."""

BEFORE_ALL: int = -(2**63)
"""The watermark before anything is known."""

FAR: int = 1 << 62
"""Times of records in windows are no further off, either way, so that a window's end is a time."""

MAX_KEY_GROUPS = 1 << 15


@dataclass(frozen=True, slots=True)
class Width:
    """The NumPy dtype that stores a number."""

    dtype: str
    timer: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """`size` numbers per row: a list for interpreted code, an array for compiled code."""

    dtype: str
    size: int


Int8 = Annotated[int, Width("i1")]
Int16 = Annotated[int, Width("i2")]
Int32 = Annotated[int, Width("i4")]
Int64 = Annotated[int, Width("i8")]
Float32 = Annotated[float, Width("f4")]
Float64 = Annotated[float, Width("f8")]
Timer = Annotated[int, Width("i8", timer=True)]
"""A field of a state row: the event time at which the operator's `timer` is called."""


class Window(NamedTuple):
    """Event times `start <= t < end`, in the flow's time unit."""

    start: int
    end: int


class KeyRange(NamedTuple):
    """Key groups `lo <= g < hi`."""

    lo: int
    hi: int

    def __len__(self) -> int:
        return self.hi - self.lo

    def __str__(self) -> str:
        return f"[{self.lo}, {self.hi})"


class Split(NamedTuple):
    """A part of a source that is read in order and can be read again from any position."""

    name: str


class Factory(NamedTuple):
    """Makes the default of a state field that must not be shared between rows."""

    make: Any


def field(*, factory: Any) -> Any:
    """A state field whose default is made anew for each row: `rs.field(factory=list)`."""
    return Factory(factory)


def zeros(size: int) -> Any:
    """The default of an `rs.Array` field: `size` zeros."""
    return Factory(lambda: [0] * size)


class SinkContext(NamedTuple):
    """What a sink is told before its first write.

    `started` is the Unix time at which a paced run released the row of event time `origin` (in the
    flow's time unit), `speed` event seconds per second; `started` and `speed` are None in an
    unpaced run.
    `committed` is the epoch from which this instance goes on: 0 at the beginning, else what came up
    to it was prepared and does not come again, and what came later will.
    `resumed` is the run that saved the cut from which this run goes on; "" in a run that began at
    the beginning. That run may have had other ranges and may have written more than came up to the
    cut, which has to be discarded.
    `lasting` says whether the job has a durable tier: what `prepare` keeps has to outlive the power
    then, as the saved cut does.
    `generation` rises with every instance of a run that takes this range. One that was thought dead
    may work on for a while: of what two of them write, that with the greater number counts.
    `number` is that of the run in the durable tier, 0 without one: a run that was thought dead may
    begin late, after one with a greater number, which has taken its place.
    """

    run: str
    operator: str
    keys: KeyRange
    started: float | None
    origin: float
    speed: float | None
    committed: int = 0
    resumed: str = ""
    lasting: bool = False
    generation: int = 0
    number: int = 0
