"""The `@rs.operator` mark, and an operator as declared.

The decorator returns the object unchanged; its annotations are the schema. They are read once, when
the operator joins a flow (`raystream.api.declarations`), and what could not run is refused
(`raystream.api.operator_checks`). `wait=True` puts another operator in front of one, which keeps
records until the watermark has passed them, and then emits them in order of time.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, Unpack, overload

from raystream.api.arguments import check_flag, check_text, whole
from raystream.api.protocols import F, Recorder
from raystream.api.windows.assigner import Assigner
from raystream.api.windows.kinds import (
    Global,
    Sliding,
    Tumbling,
    WindowKind,
    is_triggered,
)
from raystream.api.world.controls import Control
from raystream.api.world.options import NAMES, Asking, AskingOptions, checked
from raystream.errors import GraphError, OperatorError, Where, placed, unknown_option
from raystream.schema.records import (
    RecordSchema,
    caller,
    record_schema,
)
from raystream.schema.state import State, StateSchema, state_schema
from raystream.schema.types import FAR, NEVER, Int64, field

Form = Literal["record", "batch"]


END_RINGS = 10_000
"""So often the alarm of a row rings at most at the end of all input, unless the user says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the decorator was told."""

    key: tuple[str, ...]
    order_by: str | None
    window: WindowKind | None
    time: str
    compiled: bool
    end_rings: int
    recorded: bool
    asking: Mapping[str, Any]
    """Options of an operator that asks the world, as far as they were given."""
    where: Where
    """The line of the decorator."""
    scope: Mapping[str, Any]
    """The names that can be seen there: annotations may need them."""

    def __getstate__(self) -> list[Any]:
        """All but `scope`, which is all of a module, or of a notebook. Where the mark is unpickled,
        the annotations are understood already."""
        return [{} if f.name == "scope" else getattr(self, f.name) for f in fields(self)]


@overload
def operator(target: F, /) -> F: ...
@overload
def operator(
    *,
    recorded: Literal[True],
    key: str | tuple[str, ...] | None = None,
    **asking: Unpack[AskingOptions],
) -> Recorder: ...
@overload
def operator(
    *,
    key: str | tuple[str, ...] | None = None,
    order_by: str | None = None,
    window: WindowKind | None = None,
    time: str = "time",
    compiled: bool = False,
    end_rings: int = END_RINGS,
    recorded: bool = False,
    **asking: Unpack[AskingOptions],
) -> Callable[[F], F]: ...
@placed
def operator(
    target: Any = None,
    /,
    *,
    key: str | tuple[str, ...] | None = None,
    order_by: str | None = None,
    window: WindowKind | None = None,
    time: str = "time",
    compiled: bool = False,
    end_rings: int = END_RINGS,
    recorded: bool = False,
    **asking: Unpack[AskingOptions],
) -> Any:
    """Mark a function or class as an operator; it is returned unchanged.

    Args:
        target: what `@rs.operator` without parentheses stands above: as with `()`.
        key: the field or fields by which records and state are partitioned.
        order_by: an integer field by which the records of a key are ordered inside an epoch. With
            timers it is that of event time unless given.
        window: `rs.tumbling`, `rs.sliding`, `rs.session` or `rs.global_window`: state is kept per
            key and window.
        time: the field that holds event time, for windows and timers.
        compiled: compile with Numba; fields and state must be numbers.
        end_rings: how often the alarm of a row rings at most at the end of all input, where `timer`
            sets it again and again.
        recorded: it asks the world, and what it answers is recorded before anybody acts on it: see
            the guide. An `async def` always is.
        asking: how it asks: `concurrency`, `timeout`, `retries`, `ordered`, `batch`; see
            `AskingOptions`.
    """
    where, scope = caller(2)
    if unknown := asking.keys() - set(NAMES):
        own = list(inspect.signature(operator).parameters)[1:-1]
        raise unknown_option("operator", min(unknown), [*own, *NAMES])
    names = _names(key, where)
    check_text("operator", "time", time)
    check_flag("operator", "compiled", compiled)
    check_flag("operator", "recorded", recorded)
    if order_by is not None:
        check_text("operator", "order_by", order_by)
    if not isinstance(window, WindowKind | None):
        raise GraphError(
            f"window={window!r} is no window",
            where=where,
            hint="Windows are rs.tumbling(seconds=...), rs.sliding(...), rs.session(gap=...) and"
            " rs.global_window().",
        )
    made = Mark(
        key=names,
        order_by=order_by,
        window=window,
        time=time,
        compiled=compiled,
        end_rings=whole("operator", "end_rings", end_rings, 0, NEVER),
        recorded=recorded,
        asking=checked(asking, where),
        where=where,
        scope=scope,
    )
    return partial(_marked, mark=made) if target is None else _marked(target, mark=made)


def _marked(target: F, mark: Mark) -> F:
    """Put the mark on a function or class, and return it."""
    marked: Any = target
    try:
        if not callable(target):
            raise TypeError  # a module could be marked as well
        marked.__raystream__ = mark
    except (AttributeError, TypeError):  # of Python itself, or no function at all
        raise GraphError(
            f"operator({target!r:.80}): an operator is a function or a class of yours",
            where=mark.where,
            hint="Options are named: @rs.operator(key=...).",
        ) from None
    return target


def _names(key: Any, where: Where) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else () if key is None else key
    if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
        raise GraphError(
            f"key={key!r}: a key is the name of a field, or a tuple of names",
            where=where,
            hint="What is no field yet is made one by an operator before this one.",
        )
    return tuple(names)


class FailedRecord(NamedTuple):
    """A record, a timer or a window at which an operator with `on_error="stream"` has raised."""

    time: Int64
    """The time of the record, 0 if it has none; the time of the timer; the end of the window."""
    operator: str
    """The name of the operator, as it was declared."""
    step: str
    """The method that raised: `process`, `timer` or `close`."""
    key: str | None
    """The key in words; None of an operator without a key."""
    record: str | None
    """The type of the record; None of a timer or a window."""
    data: bytes
    """The record, the time of the timer or the bounds of the window as JSON, in UTF-8."""
    reason: str
    """What was raised, in words."""
    place: str
    """The file and the line of the user's code that raised; empty if none did."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OperatorSpec:
    """An operator as declared: checked and resolved."""

    name: str
    where: Where | None
    """Where it was marked."""
    target: Any
    """What was marked: a function, or an instance of a class."""
    form: Form
    inputs: tuple[RecordSchema, ...]
    outputs: tuple[RecordSchema, ...]
    state: StateSchema | None
    key: tuple[str, ...]
    """The key fields; none of a stateless operator."""
    order_by: str | None
    """The field by which the records of a key are ordered inside an epoch."""
    window: WindowKind | None
    time: str
    """The field that holds event time."""
    compiled: bool
    process: Callable[..., Any]
    close: Callable[..., Any] | None = None
    timer: Callable[..., Any] | None = None
    merge: Callable[..., Any] | None = None
    load: Callable[..., Any] | None = None
    waits: bool = False
    """Whether it is the engine's own, which keeps records for another operator (`wait=True`)."""
    on_error: Literal["end", "stream"] = "end"
    """What happens when its code raises: the job ends, or a `FailedRecord` is emitted."""
    end_rings: int = END_RINGS
    """How often the alarm of a row rings at most at the end of all input."""
    told: tuple[str, ...] = ()
    """What `close` or `timer` is told beside key, window or time, and row, in the order of its
    parameters: whether the result is `early`, whether it is a `correction`, whether it is the
    `last` epoch of the input."""
    asking: Asking | None = None
    """How it asks the world; None of an operator that does not."""
    control: Control | None = None
    """What it does with its control stream; None of an operator without one."""

    @property
    def keyed(self) -> bool:
        return bool(self.key)

    @property
    def alone(self) -> bool:
        """Whether it has instances of its own, and is not part of the one that feeds it."""
        return self.keyed or self.asking is not None or self.control is not None

    @cached_property
    def event_time(self) -> str | None:
        """The field that holds the event time of the records, of all types; None without one."""
        named = (self.time,) if self.order_by is None else (self.time, self.order_by)
        return next((n for n in named if all(s.has_time(n) for s in self.inputs)), None)

    @property
    def rings_by(self) -> str | None:
        """The field by which alarms ring among the records of a key: their event time. None without
        timers, and where the records have no such field: alarms ring after them there."""
        return None if self.timer is None else self.event_time

    @property
    def counts_late(self) -> bool:
        """Whether a record may come too late for it."""
        return self.window is not None or self.waits

    @cached_property
    def sorted_by(self) -> str | None:
        """The field by which the records of a key are ordered inside an epoch."""
        if self.order_by is not None:
            return self.order_by
        early = isinstance(self.window, Tumbling | Global) and self.window.early > 0
        return self.time if early else self.rings_by

    @property
    def in_structured_rows(self) -> bool:
        """Whether its state is in structured rows, which are no Python objects."""
        return self.state is not None and (self.compiled or self.form == "batch")

    @property
    def is_class(self) -> bool:
        return not inspect.isfunction(self.target)

    def fail(self, message: str, hint: str = "") -> GraphError:
        return GraphError(f"{self.name}: {message}", where=self.where, hint=hint)

    def no_later(self, epoch: int) -> OperatorError:
        """What is raised when a timer is set, as it rings, to no later time: it would ring on and
        on, and the epoch never end."""
        assert self.state is not None
        return OperatorError(
            f"{self.name}.timer set {self.state.name}.{self.state.timer} to the time for which it"
            f" had just rung or an earlier one, at epoch {epoch}: it would never stop ringing",
            where=self.where,
            hint="Set it to more than `time`; rs.NEVER unsets it.",
        )

    def assigner(self, ticks: int) -> Assigner:
        """Which of its windows hold a time; of a tumbling or sliding window.

        Args:
            ticks: time units of the flow per second.

        Raises:
            GraphError: see `units`.
        """
        window = self.window
        assert isinstance(window, Tumbling | Sliding)
        months = 0 if isinstance(window, Sliding) else window.months
        size = 0 if months else self.units(window.seconds, ticks)
        return Assigner.of(
            size=size,
            every=self.units(window.every, ticks) if isinstance(window, Sliding) else size,
            offset=self.units(window.offset, ticks, "an offset", least=-FAR),
            months=months,
            ticks=ticks,
            zone=window.zone,
        )

    def failing(self) -> OperatorSpec:
        """The same operator, which emits a record for each failure.

        Raises:
            GraphError: its form cannot.
        """
        if self.form == "batch":
            raise self.fail(
                'on_error="stream" is for operators of single records: of a batch nobody knows'
                " which record made it fail",
                hint="Write `process` for a record, or find such records before they are a batch.",
            )
        if self.compiled:
            raise self.fail(
                'on_error="stream" is for interpreted operators: compiled code undoes nothing',
                hint="Leave out compiled=True.",
            )
        if is_triggered(self.window):
            raise self.fail(
                'on_error="stream" is not for windows with early results, lateness, or a count'
            )
        if self.control is not None and not self.key:
            raise self.fail('on_error="stream" with a control stream is for operators with a key')
        outputs = (*self.outputs, record_schema(FailedRecord))
        return replace(self, outputs=outputs, on_error="stream")

    def units(self, seconds: float, ticks: int, what: str = "a window", least: int = 1) -> int:
        """A length, as that of a window, in time units of the flow, of which a second has `ticks`.

        Raises:
            GraphError: it is not a whole number of them, or so long that ends have no number.
        """
        exact = seconds * ticks
        whole = round(exact)
        if whole < least or not math.isclose(
            exact, whole, rel_tol=1e-12
        ):  # 1.001 * 1000 is below 1001
            raise self.fail(
                f"{what} of {seconds:g} s is not a whole number of the flow's time units",
                hint='Choose a finer one: rs.Flow(..., time_unit="ms").',
            )
        if whole >= FAR:
            raise self.fail(
                f"{what} of {seconds:g} s has more time units of the flow than 2**62",
                hint='Choose a coarser one: rs.Flow(..., time_unit="s").',
            )
        return whole


# ---------------------------------------------------------------- wait=True

WAIT_SUFFIX = ".wait"
"""What the name of such an operator adds to that of the operator that it stands before."""


class Held(State):
    """The records of a key that wait."""

    records: list[tuple[int, int, bytes]] = field(factory=list)
    """Of each its time, the number of its type and its encoded form, in the order in which they
    came."""


def hold(record: Any, held: Held) -> None:
    """Stands where the function of a user would: the engine does it itself."""
    raise NotImplementedError


def waiting_spec(spec: OperatorSpec, where: Where) -> OperatorSpec:
    """The operator that keeps records for another one.

    Raises:
        GraphError: that one has no key, or its records have no event time.
    """
    if not spec.key:
        raise spec.fail(
            "wait=True puts the records of a key in order, and it has no key",
            hint="Say it where an operator with a key takes them.",
        )
    time = spec.event_time
    if time is None:
        raise spec.fail(
            f"wait=True waits for event time, and {spec.inputs[0].name} has no integer field"
            f" {spec.time!r}",
            hint=f"{spec.inputs[0].name} has {', '.join(spec.inputs[0].names)}. Say which of them:"
            ' @rs.operator(..., time="...").',
        )
    return OperatorSpec(
        name=spec.name + WAIT_SUFFIX,
        where=where,
        target=hold,
        form="record",
        inputs=spec.inputs,
        outputs=spec.inputs,
        state=state_schema(Held),
        key=spec.key,
        order_by=spec.order_by,
        window=None,
        time=time,
        compiled=False,
        process=hold,
        waits=True,
    )
