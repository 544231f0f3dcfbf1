"""The shapes of operators with several methods, for type checkers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar, overload

from raystream.api.batch import Batch, Rows
from raystream.schema.fields import AnyRecord
from raystream.schema.state import State
from raystream.schema.types import KeyRange, Window

T_contra = TypeVar("T_contra", bound=AnyRecord, contravariant=True)
T = TypeVar("T", bound=AnyRecord)
U_co = TypeVar("U_co", bound=AnyRecord, covariant=True)
U = TypeVar("U", bound=AnyRecord)
K_contra = TypeVar("K_contra", contravariant=True)
S_contra = TypeVar("S_contra", bound=State, contravariant=True)
S = TypeVar("S", bound=State)
D = TypeVar("D")
C_contra = TypeVar("C_contra", bound=AnyRecord, contravariant=True)
R_contra = TypeVar("R_contra", bound=State, contravariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Mapped(Protocol[T_contra, U_co]):
    """A flat map with parameters."""

    def process(self, record: T_contra, /) -> Iterable[U_co]: ...


class Keyed(Protocol[T_contra, S_contra, U_co]):
    """An operator with state and parameters."""

    def process(self, record: T_contra, state: S_contra, /) -> Iterable[U_co]: ...


class Windowed(Protocol[T_contra, K_contra, S_contra, U_co]):
    """An operator over windows: `process` per record and window, `close` when the window ends.

    With session windows it also has `merge(self, into, other)`.
    """

    def process(self, record: T_contra, state: S_contra, /) -> Iterable[U_co] | None: ...
    def close(self, key: K_contra, window: Window, state: S_contra, /) -> Iterable[U_co]: ...


class ToldOne(Protocol[T_contra, K_contra, S_contra, U_co]):
    """An operator over windows that may close more than once: `close` is told one thing of its
    result, such as `early: bool`."""

    def process(self, record: T_contra, state: S_contra, /) -> Iterable[U_co] | None: ...
    def close(
        self, key: K_contra, window: Window, state: S_contra, told: bool, /
    ) -> Iterable[U_co]: ...


class ToldTwo(Protocol[T_contra, K_contra, S_contra, U_co]):
    """As `ToldOne`, of an operator whose `close` is told two things."""

    def process(self, record: T_contra, state: S_contra, /) -> Iterable[U_co] | None: ...
    def close(
        self, key: K_contra, window: Window, state: S_contra, told: bool, too: bool, /
    ) -> Iterable[U_co]: ...


class ToldThree(Protocol[T_contra, K_contra, S_contra, U_co]):
    """As `ToldOne`, of an operator whose `close` is told three things."""

    def process(self, record: T_contra, state: S_contra, /) -> Iterable[U_co] | None: ...
    def close(
        self, key: K_contra, window: Window, state: S_contra, told: bool, two: bool, all: bool, /
    ) -> Iterable[U_co]: ...


AnyWindowed = (
    Windowed[T_contra, K_contra, S_contra, U_co]
    | ToldOne[T_contra, K_contra, S_contra, U_co]
    | ToldTwo[T_contra, K_contra, S_contra, U_co]
    | ToldThree[T_contra, K_contra, S_contra, U_co]
)


class TimedPlain(Protocol[T_contra, K_contra, S_contra, U_co]):
    """An operator with timers: `timer` is called when event time reaches the row's `rs.Timer`."""

    def process(self, record: T_contra, state: S_contra, /) -> Iterable[U_co] | None: ...
    def timer(self, key: K_contra, time: int, state: S_contra, /) -> Iterable[U_co] | None: ...


class TimedTold(Protocol[T_contra, K_contra, S_contra, U_co]):
    """An operator with timers that is told whether it is the `last` epoch of the input."""

    def process(self, record: T_contra, state: S_contra, /) -> Iterable[U_co] | None: ...
    def timer(
        self, key: K_contra, time: int, state: S_contra, last: bool, /
    ) -> Iterable[U_co] | None: ...


Timed = (
    TimedPlain[T_contra, K_contra, S_contra, U_co] | TimedTold[T_contra, K_contra, S_contra, U_co]
)


class ControlledBy(Protocol[T_contra, C_contra, R_contra, U_co]):
    """An operator with a control stream, and without state of its own."""

    def control(self, record: C_contra, row: R_contra, /) -> None: ...
    def process(self, record: T_contra, row: R_contra, /) -> Iterable[U_co]: ...


class KeyedControlledBy(Protocol[T_contra, S_contra, C_contra, R_contra, U_co]):
    """An operator with a control stream and state."""

    def control(self, record: C_contra, row: R_contra, /) -> None: ...
    def process(self, record: T_contra, state: S_contra, row: R_contra, /) -> Iterable[U_co]: ...


class AskedBy(Protocol[T_contra, U_co]):
    """An operator that asks the world, with parameters."""

    def process(self, record: T_contra, /) -> Awaitable[U_co | None]: ...


class AskedPlainly(Protocol[T_contra, U_co]):
    """A function with `recorded=True` that returns one answer at most.

    A function without the mark that returns one record is no operator: so this type asks for the
    mark, which every operator has and no other function.
    """

    __raystream__: Any

    def __call__(self, record: T_contra, /) -> U_co | None: ...


class Recorder(Protocol):
    """What `@rs.operator(recorded=True)` is, before it stands above a function or class."""

    @overload
    def __call__(self, target: Callable[[T], U | None], /) -> AskedPlainly[T, U]: ...
    @overload
    def __call__(self, target: F, /) -> F: ...


Asked = Callable[[T], Awaitable[U | None]] | AskedPlainly[T, U] | AskedBy[T, U]
"""A function that asks the world and has one answer at most."""
AskedMany = (
    Callable[[T], Awaitable[Iterable[U]]]
    | Callable[[T], AsyncIterator[U]]
    | Callable[[list[T]], list[U]]
    | Callable[[list[T]], list[U | None]]
    | Callable[[list[T]], Awaitable[list[U]]]
    | Callable[[list[T]], Awaitable[list[U | None]]]
)
"""A function that asks the world and has several answers, or asks for several records at once."""


class MappedBatch(Protocol[T_contra, U_co]):
    """A batch operator with parameters."""

    def process(self, batch: Batch[T_contra], /) -> Batch[U_co]: ...


class KeyedBatch(Protocol[T_contra, S, U_co]):
    """A batch operator with state and parameters."""

    def process(self, batch: Batch[T_contra], rows: Rows[S], /) -> Batch[U_co]: ...


class Referenced(Protocol[T_contra, D, U_co]):
    """A batch operator over a reference table: `load` reads the part of some key groups, before
    any record comes and again wherever the key groups move; it is not state and not stored."""

    def load(self, keys: KeyRange, /) -> D: ...
    def process(self, batch: Batch[T_contra], data: D, /) -> Batch[U_co]: ...
