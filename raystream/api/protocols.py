"""The shapes of what people hand to a flow: operators with several methods, sources and sinks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from raystream.api.batch import Batch, Rows
from raystream.schema.state import State
from raystream.schema.types import KeyRange, Split, Window

T_contra = TypeVar("T_contra", bound=tuple[Any, ...], contravariant=True)
T = TypeVar("T", bound=tuple[Any, ...])
U_co = TypeVar("U_co", bound=tuple[Any, ...], covariant=True)
U = TypeVar("U", bound=tuple[Any, ...])
K_contra = TypeVar("K_contra", contravariant=True)
S_contra = TypeVar("S_contra", bound=State, contravariant=True)
S = TypeVar("S", bound=State)
D = TypeVar("D")


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


class Timed(Protocol[T_contra, K_contra, S_contra, U_co]):
    """An operator with timers: `timer` is called when event time reaches the row's `rs.Timer`."""

    def process(self, record: T_contra, state: S_contra, /) -> Iterable[U_co] | None: ...
    def timer(self, key: K_contra, time: int, state: S_contra, /) -> Iterable[U_co] | None: ...


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


class Source(Protocol[U_co]):
    """Where records come from.

    `splits` lists the parts that can be read independently (asked once, when the job is planned).
    `read` yields (next position, batch) from a position on; positions are the source's own
    integers, 0 is the beginning, and reading again from a position yields the same records.
    Optional: `reads`, the path, glob pattern or folder; no sink of the flow may own what is there.
    """

    def splits(self) -> Sequence[Split]: ...
    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U_co]]]: ...


class Sink(Protocol[T_contra]):
    """Where records go.

    `write` is called once per epoch, record type and range that has records; the same (epoch,
    keys) again replaces the first. `commit(epoch)` says that nothing up to `epoch` will come again:
    others may see it. With a durable tier it comes when the cut is saved there; a successor of this
    instance hears it again.
    Optional: `open(context: rs.SinkContext)` before the first write; `prepare(epoch)` at each cut:
    what came up to it must be kept when it returns, where a successor of this instance finds it,
    for that one gets only what came later; `close()` after the last commit; `owns`, a folder where
    no other sink of the flow may write and no source read.
    """

    def write(self, epoch: int, keys: KeyRange, batch: Batch[T_contra], /) -> None: ...
    def commit(self, epoch: int, /) -> None: ...
