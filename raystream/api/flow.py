"""Flows: operators wired by streams. Building a flow runs nothing.

A `Stream` is a set of branches; a branch is the records of one type that one node emits. `|` unites
streams, `stream[Type]` picks one type, `through` feeds an operator, `to` feeds a sink.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

from raystream.api.batch import Batch, Rows
from raystream.api.folders import refuse_shared
from raystream.api.operators import OperatorSpec, spec_of
from raystream.api.protocols import (
    Keyed,
    KeyedBatch,
    Mapped,
    MappedBatch,
    Referenced,
    Sink,
    Source,
    Timed,
    Windowed,
)
from raystream.errors import GraphError, Where
from raystream.schema.records import (
    RecordSchema,
    apart,
    caller,
    located,
    record_schema,
    resolve_hints,
)
from raystream.schema.state import State
from raystream.schema.types import MAX_KEY_GROUPS

T_co = TypeVar("T_co", bound=tuple[Any, ...], covariant=True)
U = TypeVar("U", bound=tuple[Any, ...])
K = TypeVar("K")
D = TypeVar("D")
S = TypeVar("S", bound=State)

_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Epochs:
    """How a source cuts its records into epochs; made by `by_time` and `by_arrival`.

    column: what epochs follow from; None by arrival. time: what the watermark follows by arrival.
    """

    column: str | None
    seconds: float | None
    ticks: int = 1
    speed: float | None = None
    disorder: float = 0.0
    origin: int | None = None
    time: str = "time"


def by_time(
    column: str = "time",
    *,
    seconds: float | None = None,
    ticks: int = 1,
    speed: float | None = None,
    disorder: float = 0.0,
    origin: int | None = None,
) -> Epochs:
    """Cut recorded data by event time.

    Args:
        column: an integer field that (nearly) ascends within each split.
        seconds: the length of an epoch in event time; chosen from the pace when not given.
        ticks: units of `column` per time unit of the flow.
        speed: event seconds per real second; None reads as fast as the job goes.
        disorder: seconds of event time by which a record may be behind those before it; the
            watermark stays as far behind.
        origin: a value of `column` in epoch 1, the least first value of all splits when not given.
            Epochs begin at multiples of their length, and what is before the first is in it, too.
    """
    for name, value in (("seconds", seconds), ("speed", speed)):
        if value is not None and not (isinstance(value, Real) and 0 < value < math.inf):
            raise GraphError(
                f"by_time({name}={value!r}): must be above 0 and finite, a number",
                where=caller(2)[0],
            )
    if origin is not None and not isinstance(origin, Integral):
        raise GraphError(
            f"by_time({origin=}): must be a value of {column!r}, which is an integer field",
            where=caller(2)[0],
        )
    if not 0 <= disorder < math.inf or ticks < 1:
        raise GraphError(
            f"by_time({disorder=:g}, {ticks=}): disorder is not negative nor infinite, and there is"
            " at least one tick in a time unit of the flow",
            where=caller(2)[0],
        )
    return Epochs(column, seconds, ticks, speed, disorder, origin)


def by_arrival(column: str = "time", *, seconds: float = 0.05, disorder: float = 0.0) -> Epochs:
    """Cut by the clock: whatever was read in `seconds` is an epoch.

    The watermark follows the greatest value of `column`, an integer field, that was read,
    `disorder` seconds behind. Without such a field there is none before the end of the input.
    """
    if not seconds > 0 or not 0 <= disorder < math.inf:
        raise GraphError(
            "by_arrival: seconds must be above 0, disorder not below 0, nor infinite",
            where=caller(2)[0],
        )
    return Epochs(None, seconds, disorder=disorder, time=column)


class Branch(NamedTuple):
    """The records of one type that one node emits, or those that came too late to it."""

    node: Node
    schema: RecordSchema
    late: bool = False


@dataclass(eq=False)
class Node:
    """A source, operator or sink of a flow."""

    name: str
    where: Where
    inputs: tuple[Branch, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


@dataclass(eq=False, repr=False)
class SourceNode(Node):
    source: Any = None
    epochs: Epochs = field(default_factory=lambda: Epochs(None, 0.05))
    schema: RecordSchema = None  # type: ignore[assignment]


@dataclass(eq=False, repr=False)
class OperatorNode(Node):
    spec: OperatorSpec = None  # type: ignore[assignment]


@dataclass(eq=False, repr=False)
class SinkNode(Node):
    sink: Any = None


class Stream(Generic[T_co]):
    """Records on their way from one or several nodes. of: the operator that emits them, if it is
    one."""

    __slots__ = ("_branches", "_flow", "_of")

    def __init__(self, flow: Flow, branches: tuple[Branch, ...], of: Node | None = None) -> None:
        self._flow = flow
        self._branches = branches
        self._of = of

    @overload
    def through(
        self, op: Callable[[T_co], Iterable[U]], /, *, name: str | None = None
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Callable[[T_co, S], Iterable[U]], /, *, name: str | None = None
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Callable[[Batch[T_co], Rows[S]], Batch[U]], /, *, name: str | None = None
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Callable[[Batch[T_co]], Batch[U]], /, *, name: str | None = None
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Windowed[T_co, K, S, U], /, *, late: Literal[True], name: str | None = None
    ) -> tuple[Stream[U], Stream[T_co]]: ...
    @overload
    def through(self, op: Windowed[T_co, K, S, U], /, *, name: str | None = None) -> Stream[U]: ...
    @overload
    def through(self, op: Timed[T_co, K, S, U], /, *, name: str | None = None) -> Stream[U]: ...
    @overload
    def through(self, op: Referenced[T_co, D, U], /, *, name: str | None = None) -> Stream[U]: ...
    @overload
    def through(self, op: Keyed[T_co, S, U], /, *, name: str | None = None) -> Stream[U]: ...
    @overload
    def through(self, op: KeyedBatch[T_co, S, U], /, *, name: str | None = None) -> Stream[U]: ...
    @overload
    def through(self, op: MappedBatch[T_co, U], /, *, name: str | None = None) -> Stream[U]: ...
    @overload
    def through(self, op: Mapped[T_co, U], /, *, name: str | None = None) -> Stream[U]: ...
    def through(self, op: Any, /, *, late: bool = False, name: str | None = None) -> Any:
        """Feed these records to an operator; the stream of what it emits.

        Args:
            op: a function or instance marked with `@rs.operator`.
            late: also return the records that came after their window had closed.
            name: the operator's name on screens and in options; its own name unless given.

        Raises:
            GraphError: the operator's declaration does not fit, or does not fit this stream.
        """
        where, _ = caller(2)
        with located(where):
            spec = spec_of(op)
        inputs = self._for(spec, where)
        if late and spec.window is None:
            raise GraphError(f"{spec.name} has no window, so no record is late for it", where=where)
        node = OperatorNode(
            self._flow._unique(name or spec.name, named=name is not None, where=where),
            where,
            inputs,
            spec=spec,
        )
        self._flow._add(node)
        out: Stream[Any] = Stream(self._flow, tuple(Branch(node, o) for o in spec.outputs), node)
        if not late:
            return out
        return out, Stream(self._flow, tuple(Branch(node, i, late=True) for i in spec.inputs))

    def _for(self, spec: OperatorSpec, where: Where) -> tuple[Branch, ...]:
        """The branches in the order of the operator's annotation."""
        self._refuse_nothing(where)
        for branch in self._branches:
            if branch.schema not in spec.inputs:
                carried, taken = branch.schema.name, _either(spec.inputs)
                for one in spec.inputs:
                    if one.name == carried:
                        carried, taken = apart(branch.schema.cls, one.cls)
                        break
                raise GraphError(
                    f"{spec.name} takes {taken}, but this stream carries {carried}",
                    where=where,
                    hint=f"Pick what it takes: stream[{spec.inputs[0].name}]",
                )
        for schema in spec.inputs:
            if not any(b.schema is schema for b in self._branches):
                raise GraphError(
                    f"{spec.name} takes {schema.name}, which this stream does not carry",
                    where=where,
                    hint="Unite streams with |.",
                )
        return tuple(sorted(self._branches, key=lambda b: spec.inputs.index(b.schema)))

    def _refuse_nothing(self, where: Where) -> None:
        if not self._branches and self._of is not None:
            raise GraphError(
                f"{self._of.name} emits nothing, so there is nothing to go on with",
                where=where,
                hint=f"Its functions are annotated `-> None` ({self._of.where.file}:"
                f"{self._of.where.line}): say -> Iterator[...], or end the stream there.",
            )

    def _refuse_namesakes(self, where: Where) -> None:
        """A sink tells types apart by name: what came of one would replace what came of another."""
        named: dict[str, RecordSchema] = {}
        for _, schema, _ in self._branches:
            if (other := named.setdefault(schema.name, schema)) is not schema:
                one, two = apart(other.cls, schema.cls)
                raise GraphError(
                    f"a sink could not tell {one} from {two}: types of records are known to it by"
                    " their names",
                    where=where,
                    hint="Give each a sink of its own, or rename one of the classes.",
                )

    def __or__(self, other: Stream[U]) -> Stream[T_co | U]:
        for each in (self, other):
            each._refuse_nothing(caller(2)[0])
        if other._flow is not self._flow:
            raise GraphError("these streams belong to two flows", where=caller(2)[0])
        twice = [b for b in other._branches if b in self._branches]
        if twice:
            raise GraphError(
                f"{twice[0].schema.name} of {twice[0].node.name} is on both sides of |,"
                " so each record would come twice",
                where=caller(2)[0],
            )
        return Stream(self._flow, self._branches + other._branches)

    def __getitem__(self, record: type[U]) -> Stream[U]:
        found = tuple(b for b in self._branches if b.schema.cls is record)
        if not found:
            raise GraphError(
                f"this stream carries no {getattr(record, '__name__', record)}",
                where=caller(2)[0],
                hint=f"It carries {_either(b.schema for b in self._branches)}.",
            )
        return Stream(self._flow, found)

    def to(self, sink: Sink[T_co], /, *, name: str | None = None) -> None:
        """Feed these records to a sink."""
        where, _ = caller(2)
        self._refuse_nothing(where)
        self._refuse_namesakes(where)
        _check_methods(sink, "sink", _SINK, where)
        _check_methods(
            sink, "sink", {n: a for n, a in _SINK_MAY.items() if hasattr(sink, n)}, where
        )
        accept: Callable[[RecordSchema], None] | None = getattr(sink, "_accept", None)
        if accept is not None:  # a sink of raystream's own that does not take all records
            with located(where):
                for branch in self._branches:
                    accept(branch.schema)
        unique = self._flow._unique(
            name or type(sink).__name__.lower(), named=name is not None, where=where
        )
        self._flow._add(SinkNode(unique, where, self._branches, sink=sink))

    def __repr__(self) -> str:
        return f"Stream({_either(b.schema for b in self._branches)})"


class Flow:
    """A graph of sources, operators and sinks.

    Args:
        name: the job's name.
        key_groups: the number of key groups, fixed for the life of a job; the most instances that
            an operator can have.
        time_unit: what one unit of event time is: `s`, `ms`, `us` or `ns`.
    """

    def __init__(
        self, name: str, *, key_groups: int = 256, time_unit: Literal["s", "ms", "us", "ns"] = "s"
    ) -> None:
        where, _ = caller(2)
        if not 1 <= key_groups <= MAX_KEY_GROUPS:
            raise GraphError(f"key_groups={key_groups}: from 1 to {MAX_KEY_GROUPS}", where=where)
        if time_unit not in _UNITS:
            raise GraphError(f"time_unit={time_unit!r}: one of {', '.join(_UNITS)}", where=where)
        self.name = name
        self.key_groups = key_groups
        self.ticks = _UNITS[time_unit]
        self.nodes: list[Node] = []

    def source(
        self, source: Source[U], *, epochs: Epochs | None = None, name: str | None = None
    ) -> Stream[U]:
        """The records of a source.

        Args:
            source: `rs.io.parquet(...)` or an own object with `splits` and `read`.
            epochs: `rs.by_time(...)` for recorded data or `rs.by_arrival(...)` (default).
            name: its name on screens.
        """
        where, scope = caller(2)
        _check_methods(source, "source", _SOURCE, where)
        with located(where):
            schema = _record_of(source, where, scope)
        epochs = epochs or by_arrival()
        if not isinstance(epochs, Epochs):
            raise GraphError(
                f"epochs={epochs!r} does not say how to cut",
                where=where,
                hint="Write rs.by_time(...) or rs.by_arrival(...).",
            )
        _check_time(schema, epochs, where)
        unique = self._unique(
            name or type(source).__name__.lower(), named=name is not None, where=where
        )
        node = SourceNode(unique, where, source=source, epochs=epochs, schema=schema)
        self._add(node)
        return Stream(self, (Branch(node, schema),))

    def run(
        self,
        *,
        cluster: str | None = None,
        instances: Mapping[str, int] | None = None,
        **options: Any,
    ) -> Any:
        """Run the flow to the end of its input and return what it did.

        Args:
            cluster: None runs in this process; `"auto"` or an address runs on Ray.
            instances: how many instances an operator has (1 unless given).
            options: see `raystream.run.run`.
        """
        import importlib

        # The one upward call: running needs every layer, building a flow needs none of them.
        run = importlib.import_module("raystream.run").run
        known = list(inspect.signature(run).parameters)[1:]
        if unknown := [name for name in options if name not in known]:
            alike = difflib.get_close_matches(unknown[0], known, 1) or known
            raise GraphError(
                f"run() has no option {unknown[0]!r}",
                where=caller(2)[0],
                hint=f"{'Is it' if len(alike) == 1 else 'There are'} {', '.join(alike)}"
                f"{'?' if len(alike) == 1 else '.'}",
            )
        return run(self, cluster=cluster, instances=instances, **options)

    def _add(self, node: Node) -> None:
        nodes = [*self.nodes, node]
        refuse_shared(
            [(n, n.source) for n in nodes if isinstance(n, SourceNode)],
            [(n, n.sink) for n in nodes if isinstance(n, SinkNode)],
        )
        self.nodes = nodes

    def _unique(self, name: str, *, named: bool, where: Where) -> str:
        taken = {n.name for n in self.nodes}
        if name not in taken:
            return name
        if named:
            raise GraphError(f"two nodes are named {name!r}", where=where)
        return next(f"{name}-{i}" for i in range(2, len(taken) + 3) if f"{name}-{i}" not in taken)


_SOURCE = {"splits": (), "read": ("split", "position")}
_SINK = {"write": ("epoch", "keys", "batch"), "commit": ("epoch",)}
_USUAL = {
    "source": "Records at hand are one by rs.io.iterable(records, Record), files by rs.io.csv.",
    "sink": "A function is one by rs.io.callable(function), a folder by rs.io.parquet(folder).",
}
_SINK_MAY = {"open": ("context",), "prepare": ("epoch",), "close": ()}
"""Methods of sources and sinks and what they are called with; those that a sink may have."""


def _check_time(schema: RecordSchema, epochs: Epochs, where: Where) -> None:
    """By arrival records may do without `time`, but not without a field that was named."""
    by, name = ("arrival", epochs.time) if epochs.column is None else ("time", epochs.column)
    if schema.has_integer(name) or (by, name) == ("arrival", "time"):
        return
    raise GraphError(
        f"by_{by}({name!r}): {schema.name} has no such integer field",
        where=where,
        hint=f"It has {', '.join(map(str, schema.fields))}.",
    )


def _check_methods(
    thing: object, kind: str, methods: Mapping[str, tuple[str, ...]], where: Where
) -> None:
    """Refuse a source or sink that lacks a method, or could not be called as it will be."""
    if isinstance(thing, type):
        raise GraphError(f"{thing.__name__} is a class: pass an instance of it", where=where)
    name = type(thing).__name__
    for method, arguments in methods.items():
        found = getattr(thing, method, None)
        if not callable(found):
            raise GraphError(
                f"{name} is not a {kind}: it has no `{method}`", where=where, hint=_USUAL[kind]
            )
        try:
            signature = inspect.signature(found)
        except (TypeError, ValueError):
            continue  # not written in Python
        try:
            signature.bind(*arguments)
        except TypeError:
            raise GraphError(
                f"{name}.{method} takes ({', '.join(signature.parameters)}), but a {kind} is called"
                f" with ({', '.join(arguments)})",
                where=where,
                hint=f"Write it as def {method}({', '.join(('self', *arguments))}).",
            ) from None


def _record_of(source: Any, where: Where, scope: Mapping[str, Any]) -> RecordSchema:
    """The record type of a source: its attribute `record`, or the annotation of `read`."""
    record = getattr(source, "record", None)
    if record is not None:
        return record_schema(record, scope)
    import typing

    hint = resolve_hints(source.read, scope).get("return")
    for arg in typing.get_args(hint):
        for inner in typing.get_args(arg):
            if typing.get_origin(inner) is Batch:
                return record_schema(typing.get_args(inner)[0], scope)
    raise GraphError(
        f"{type(source).__name__}.read does not say what it yields",
        where=where,
        hint="Annotate it: -> Iterator[tuple[int, rs.Batch[Line]]], or set `record`.",
    )


def _either(schemas: Iterable[RecordSchema]) -> str:
    return " | ".join(dict.fromkeys(s.name for s in schemas))
