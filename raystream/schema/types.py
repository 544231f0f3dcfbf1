"""Column types: a plain `int` or `float` for the type checker, a width for the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from raystream.errors import GraphError, caller, placed, placed_class

if TYPE_CHECKING:
    from raystream.security.contexts import Certificates

NEVER: int = 2**63 - 1
"""The time of a timer that is not set, and the watermark at the end of all input."""

BEFORE_ALL: int = -(2**63)
"""The watermark before anything is known."""

FAR: int = 1 << 62
"""The greatest distance from 0, either way, of the time of a record in a window: the window's end
has to be a time, too."""

MAX_KEY_GROUPS = 1 << 15


@dataclass(frozen=True, slots=True)
class Width:
    """The NumPy dtype that stores a number."""

    dtype: str
    timer: bool = False


@placed_class
@dataclass(frozen=True, slots=True)
class Array:
    """`size` numbers per row: a list for interpreted code, an array for compiled code."""

    dtype: str
    size: int


@dataclass(frozen=True, slots=True)
class Digits:
    """The digits of a `Decimal`: `precision` in all, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@placed
def decimal(precision: int, scale: int = 0) -> Digits:
    """The digits of a field: `Annotated[Decimal, rs.decimal(12, 2)]`.

    Args:
        precision: how many in all, from 1 to 38.
        scale: how many of them after the point.
    """
    if not (type(precision) is type(scale) is int and 0 <= scale <= precision <= 38 and precision):
        raise GraphError(
            f"decimal({precision!r}, {scale!r}): it has from 1 to 38 digits, and none or up to all"
            " of them after the point",
            where=caller()[0],
            hint="rs.decimal(12, 2) has 12 digits, of them 2 after the point.",
        )
    return Digits(precision, scale)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How files hold a `datetime`, where that is not ISO 8601 with a zone."""

    format: str | None = None
    unit: str | None = None
    zone: str | None = None


@placed
def timestamp(
    format: str | None = None, *, unit: str | None = None, zone: str | None = None
) -> TimeFormat:
    """How files hold a field: `Annotated[datetime, rs.timestamp("%d.%m.%Y %H:%M", zone="UTC")]`.

    Args:
        format: of text, as of `datetime.strptime`; ISO 8601 unless given.
        unit: of numbers since 1970: `s`, `ms`, `us` or `ns`; whole, or with a fraction.
        zone: the time zone of what names none, such as `"Europe/Berlin"`.
    """
    where = caller()[0]
    if unit is not None and (not isinstance(unit, str) or unit not in ("s", "ms", "us", "ns")):
        raise GraphError(f"timestamp({unit=}): one of s, ms, us, ns", where=where)
    if format is not None and not isinstance(format, str):
        raise GraphError(f"timestamp({format!r:.80}): a format is text", where=where)
    try:
        if zone is not None:
            ZoneInfo(zone)
    except (ValueError, OSError, TypeError, KeyError):
        raise GraphError(f"timestamp({zone=}): there is no such time zone", where=where) from None
    return TimeFormat(format, unit, zone)


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

    def holds(self, group: int) -> bool:
        """Whether a key group is in the range. (`in` asks for a bound: a range is a tuple.)"""
        return self.lo <= group < self.hi

    def within(self, other: KeyRange) -> bool:
        """Whether all key groups of the range are in the other one."""
        return other.lo <= self.lo and self.hi <= other.hi

    def overlaps(self, other: KeyRange) -> bool:
        """Whether the two ranges have a key group in common."""
        return max(self.lo, other.lo) < min(self.hi, other.hi)

    def common(self, other: KeyRange) -> KeyRange | None:
        """The key groups that the two ranges have in common, if any."""
        lo, hi = max(self.lo, other.lo), min(self.hi, other.hi)
        return KeyRange(lo, hi) if lo < hi else None


class Split(NamedTuple):
    """A part of a source that is read in order and can be read again from any position."""

    name: str
    begin: int = 0
    """The position at which a job begins that reads it from the beginning of its input. A split
    that is new when a job is resumed is read from position 0."""


class Factory(NamedTuple):
    """Makes the default of a state field that must not be shared between rows."""

    make: Any


@dataclass(frozen=True, slots=True)
class ColumnName:
    """Marks a field of a record whose column in files has another name."""

    name: str


@placed
def field(*, factory: Any = None, name: str | None = None) -> Any:
    """What the type of a field does not say: how its default is made, or the name of its column.

    Args:
        factory: makes the default of a state field, for each row: `rs.field(factory=list)`.
        name: the name of a record field's column in files, where that is no name of Python:
            `Annotated[float, rs.field(name="Trip Distance")]`.

    Raises:
        GraphError: neither was given, or both.
    """
    if (name is None) == (factory is None):
        raise GraphError(
            "rs.field takes factory= for a field of state, or name= for one of a record",
            where=caller()[0],
        )
    if name is None:
        return Factory(factory)
    if not isinstance(name, str) or not name:
        raise GraphError(
            f"rs.field(name={name!r:.80}): the name of a column is a str", where=caller()[0]
        )
    return ColumnName(name)


@placed
def zeros(size: int) -> Any:
    """The default of an `rs.Array` field: `size` zeros."""
    if type(size) is not int or size < 1:
        raise GraphError(f"zeros({size!r:.80}): how many, at least 1", where=caller()[0])
    return Factory(lambda: [0] * size)


class Directory(Protocol):
    """Short texts by key, which all processes of a job see."""

    def put(self, key: str, value: str, /) -> None:
        """Put a value, in place of the one that is there."""

    def get(self, key: str, /) -> str:
        """The value of a key; "" if there is none. It may block."""
        ...


class LocalDirectory:
    """The directory of a job whose sources are in one process."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def put(self, key: str, value: str, /) -> None:
        """See `Directory.put`."""
        self._values[key] = value

    def get(self, key: str, /) -> str:
        """See `Directory.get`."""
        return self._values.get(key, "")


class SourceContext(NamedTuple):
    """What a source is told before its first read in a process."""

    run: str
    """The name of the run."""
    source: str
    """The name of the source."""
    host: str
    """The address at which other processes of the job reach this one."""
    cluster: bool
    """Whether the job has other processes."""
    directory: Directory
    """What the processes of the source tell each other."""
    certificates: Certificates | None = None
    """What a source that listens shows, and asks of those who connect, if the run has TLS."""


class SinkContext(NamedTuple):
    """What a sink is told before its first write."""

    run: str
    """The name of the run."""
    operator: str
    """The name of the sink."""
    keys: KeyRange
    """The key groups whose records this instance of the sink writes."""
    started: float | None
    """The Unix time at which a paced run released the row of event time `origin`; None in an
    unpaced run."""
    origin: float
    """The event time at which the run begins, in the flow's unit."""
    speed: float | None
    """Event seconds per second of a paced run; None in an unpaced one."""
    committed: int = 0
    """The epoch from which this instance goes on, 0 at the beginning. What came up to it was
    prepared and does not come again; what came later does."""
    resumed: str = ""
    """The run that saved the checkpoint from which this run goes on; "" in a run that began at the
    beginning. That run may have had other ranges, and may have written more than came up to the
    checkpoint: the rest is to be discarded."""
    lasting: bool = False
    """Whether the job has a durable tier. If so, what `prepare` keeps must survive a loss of power,
    as the saved checkpoint does."""
    generation: int = 0
    """Rises with every instance of a run that takes this range. An instance that was thought dead
    may work on for a while: of two that write, the output of the greater number counts."""
    number: int = 0
    """The number of the run in the durable tier, 0 without one. A run that was thought dead may
    begin late, after one with a greater number has taken its place."""
    job: str = ""
    """The name of the job."""
    program: str = ""
    """A fingerprint of the flow and of the user's code: it changes when they change."""
    repeatable: bool = True
    """Whether a run that goes on from a checkpoint makes the same epochs after it once more. It
    does not where epochs are cut by arrival, nor where an operator asks the world."""
    begun: int = 0
    """The epoch before the first one of this sink: 0, or in the run in which it was added to a
    resumed job the checkpoint from which that run goes on."""
    mark: str = ""
    """What marks the output of this sink where several write to one place: the first name of the
    sink. It stays when a resumed job calls the sink something else."""
