"""Flows: operators wired by streams. Building a flow runs nothing.

A `Stream` is a set of branches; a branch is the records of one type that one node emits. `|` unites
streams, `stream[Type]` picks one type, `through` feeds an operator, `to` feeds a sink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from raystream.api import runner
from raystream.api.arguments import check_flag, check_name, whole
from raystream.api.batch import Batch, Rows
from raystream.api.connectors import (
    SinkLike,
    SourceLike,
    check_keyed,
    record_of,
    sink_of,
    source_of,
)
from raystream.api.declarations import spec_of
from raystream.api.epochs import (
    UNITS,
    Epochs,
    by_arrival,
    check_time,
    check_unit,
    event_time,
    refuse_by_time,
    with_ahead,
)
from raystream.api.folders import refuse_namesakes, refuse_shared
from raystream.api.nodes import Branch, FlowNode, OperatorNode, SinkNode, SourceNode
from raystream.api.operator_checks import check_inputs
from raystream.api.operators import WAIT_SUFFIX, OperatorSpec, waiting_spec
from raystream.api.protocols import (
    AnyWindowed,
    Asked,
    AskedMany,
    Keyed,
    KeyedBatch,
    Mapped,
    MappedBatch,
    Referenced,
    Timed,
)
from raystream.api.world.steering import apart, branches_of
from raystream.errors import GraphError, Where, placed
from raystream.renamed import with_new_names
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds
from raystream.schema.records import RecordSchema, caller, located
from raystream.schema.state import State
from raystream.schema.types import MAX_KEY_GROUPS

T_co = TypeVar("T_co", bound=AnyRecord, covariant=True)
U = TypeVar("U", bound=AnyRecord)
K = TypeVar("K")
D = TypeVar("D")
S = TypeVar("S", bound=State)


class Stream(Generic[T_co]):
    """What sources and operators emit: see `Flow.source`, `through`, `a | b` and `stream[Type]`."""

    __slots__ = ("_branches", "_flow", "_of")

    def __init__(
        self, flow: Flow, branches: tuple[Branch, ...], of: FlowNode | None = None
    ) -> None:
        self._flow = flow
        self._branches = branches
        self._of = of  # the operator that emits all of it; None if that is not one

    @overload
    def through(
        self, op: Callable[[T_co], Iterable[U]], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Callable[[T_co, S], Iterable[U]], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self,
        op: Callable[[Batch[T_co], Rows[S]], Batch[U]],
        /,
        *,
        wait: bool = ...,
        name: str | None = ...,
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Callable[[Batch[T_co]], Batch[U]], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self,
        op: AnyWindowed[T_co, K, S, U],
        /,
        *,
        late: Literal[True],
        wait: bool = ...,
        name: str | None = ...,
    ) -> tuple[Stream[U], Stream[T_co]]: ...
    @overload
    def through(
        self, op: AnyWindowed[T_co, K, S, U], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Timed[T_co, K, S, U], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Referenced[T_co, D, U], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Keyed[T_co, S, U], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: KeyedBatch[T_co, S, U], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: MappedBatch[T_co, U], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Mapped[T_co, U], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: Asked[T_co, U], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self, op: AskedMany[T_co, U], /, *, wait: bool = ..., name: str | None = ...
    ) -> Stream[U]: ...
    @overload
    def through(
        self,
        op: Timed[T_co, K, S, U],
        /,
        *,
        late: Literal[True],
        wait: Literal[True],
        name: str | None = ...,
    ) -> tuple[Stream[U], Stream[T_co]]: ...
    @overload
    def through(
        self, op: Any, /, *, on_error: Literal["stream"], wait: bool = ..., name: str | None = ...
    ) -> Stream[Any]: ...
    @placed
    def through(
        self,
        op: Any,
        /,
        *,
        late: bool = False,
        wait: bool = False,
        on_error: Literal["end", "stream"] = "end",
        name: str | None = None,
    ) -> Any:
        """Feed these records to an operator; the stream of what it emits.

        Args:
            op: a function or instance marked with `@rs.operator`.
            late: also return the records that came too late: after their window had closed or, with
                `wait`, after the watermark had passed them.
            wait: keep records until the watermark has passed them, so that the operator takes those
                of a key in order of time, whatever the epochs are. Records that come later still
                are late.
            on_error: with `"stream"` a record at which the operator raises does not end the job:
                whatever it has changed or emitted for that record is undone, and the stream has an
                `rs.FailedRecord` instead.
            name: the operator's name on screens and in options; its own name unless given.

        Raises:
            GraphError: the operator's declaration does not fit, or does not fit this stream.
        """
        where, _ = caller(2)
        check_name("through", name)
        check_flag("through", "late", late)
        op, by = apart(op)
        with located(where):
            spec = spec_of(op)
        control = branches_of(by, spec, self._flow, where)
        if not isinstance(on_error, str) or on_error not in ("end", "stream"):
            raise GraphError(f'through({on_error=!r:.80}): it is "end" or "stream"')
        if on_error == "stream":
            spec = spec.failing()
        inputs = self._for(spec, where)
        if (timed := spec.time if spec.window is not None else spec.rings_by) is not None:
            for schema in spec.inputs:
                check_unit(schema, timed, self._flow.ticks, where)
        check_flag("through", "wait", wait)
        if late and spec.window is None and not wait:
            raise GraphError(
                f"{spec.name} has no window, so no record is late for it",
                hint="With wait=True those are late that come after the watermark.",
            )
        unique = self._flow._unique(name, spec.name)
        waiting: FlowNode | None = None
        if wait:
            before = self._flow._unique(None, unique + WAIT_SUFFIX)
            waiting = OperatorNode(before, where, inputs, spec=waiting_spec(spec, where))
            self._flow._add(waiting)
            inputs = tuple(Branch(waiting, schema) for schema in spec.inputs)
        node = OperatorNode(unique, where, inputs, spec=spec, control=control)
        self._flow._add(node)
        out: Stream[Any] = Stream(self._flow, tuple(Branch(node, o) for o in spec.outputs), node)
        if not late:
            return out
        lates = tuple(Branch(waiting or node, i, late=True) for i in spec.inputs)
        return out, Stream(self._flow, lates)

    @placed
    def timed(
        self, field: str = "time", *, disorder: Seconds = 0.0, behind: Seconds | None = None
    ) -> Stream[T_co]:
        """The same records; from here on their event time is a field of theirs.

        The watermark follows the greatest time that was emitted, `disorder` behind. It is for event
        time that an operator computes, say of text, and for records that carry earlier times than
        those that they were made of. Operators before this one see nothing of it.

        Args:
            field: an integer field, or a datetime.
            disorder: by how much a record may be behind those before it.
            behind: the watermark is the one that the stream has without `timed`, less so much: for
                operators that emit records of earlier times, but by no more than this.

        Raises:
            GraphError: the records have no such field, or a length is none.
        """
        self._refuse_nothing()
        rule = event_time(
            [b.schema for b in self._branches],
            field,
            disorder=disorder,
            behind=behind,
            ticks=self._flow.ticks,
            where=caller(2)[0],
        )
        return Stream(self._flow, tuple(b.untimed._replace(timed=rule) for b in self._branches))

    def _for(self, spec: OperatorSpec, where: Where) -> tuple[Branch, ...]:
        """The branches in the order of the operator's annotation."""
        self._refuse_nothing()
        check_inputs([b.schema for b in self._branches], spec, where)
        return tuple(sorted(self._branches, key=lambda b: spec.inputs.index(b.schema)))

    def _refuse_nothing(self) -> None:
        if not self._branches and self._of is not None:
            raise GraphError(
                f"{self._of.name} emits nothing, so there is nothing to go on with",
                hint=f"Its functions are annotated `-> None` ({self._of.where.file}:"
                f"{self._of.where.line}): say -> Iterator[...], or end the stream there.",
            )

    @placed
    def __or__(self, other: Stream[U]) -> Stream[T_co | U]:
        if not isinstance(other, Stream):
            raise GraphError(f"| unites streams, and {other!r:.80} is none")
        for each in (self, other):
            each._refuse_nothing()
        if other._flow is not self._flow:
            raise GraphError("these streams belong to two flows")
        here = {b.untimed for b in self._branches}
        if twice := [b for b in other._branches if b.untimed in here]:
            raise GraphError(
                f"{twice[0].schema.name} of {twice[0].node.name} is on both sides of |,"
                " so each record would come twice"
            )
        return Stream(self._flow, self._branches + other._branches)

    @placed
    def __getitem__(self, record: type[U]) -> Stream[U]:
        found = tuple(b for b in self._branches if b.schema.cls is record)
        if not found:
            raise GraphError(
                f"this stream carries no {getattr(record, '__name__', record)}",
                hint=f"It carries {_either(b.schema for b in self._branches)}.",
            )
        return Stream(self._flow, found)

    if not TYPE_CHECKING:  # type checkers refuse it by themselves

        @placed
        def __iter__(self) -> None:
            raise GraphError(
                "a stream was unpacked or looped over, and it is one stream",
                hint="through(..., late=True) and source(..., ahead=True) return two.",
            )

    @placed
    def to(self, sink: SinkLike[T_co], /, *, name: str | None = None) -> None:
        """Feed these records to a sink."""
        where, _ = caller(2)
        check_name("to", name)
        self._refuse_nothing()
        refuse_namesakes([b.schema for b in self._branches], where)
        adapted = sink_of(sink, where)
        with located(where):
            for branch in self._branches:
                adapted.accept(branch.schema.cls)
                check_keyed(adapted, branch.schema)
        unique = self._flow._unique(name, type(sink).__name__.lower())
        self._flow._add(SinkNode(unique, where, self._branches, sink=adapted))

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

    @placed
    def __init__(
        self, name: str, *, key_groups: int = 256, time_unit: Literal["s", "ms", "us", "ns"] = "s"
    ) -> None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"Flow({name!r:.80}): the name of a job is text")
        key_groups = whole("", "key_groups", key_groups, 1, MAX_KEY_GROUPS)
        if not isinstance(time_unit, str) or time_unit not in UNITS:
            raise GraphError(f"time_unit={time_unit!r}: one of {', '.join(UNITS)}")
        self.name = name
        self.key_groups = key_groups
        self.time_unit = time_unit
        self.ticks = UNITS[time_unit]
        self.nodes: list[FlowNode] = []
        self.code = ""
        """`module:name` by which a command has found it; empty if none did."""

    @overload
    def source(
        self,
        source: SourceLike[U],
        *,
        epochs: Epochs | None = None,
        name: str | None = None,
        ahead: Literal[True],
    ) -> tuple[Stream[U], Stream[U]]: ...
    @overload
    def source(
        self, source: SourceLike[U], *, epochs: Epochs | None = None, name: str | None = None
    ) -> Stream[U]: ...
    @placed
    def source(
        self,
        source: SourceLike[U],
        *,
        epochs: Epochs | None = None,
        name: str | None = None,
        ahead: bool = False,
    ) -> Any:
        """The records of a source.

        Args:
            source: `rs.io.parquet(...)` or an own object with `splits` and `read`.
            epochs: `rs.by_time(...)` for recorded data or `rs.by_arrival(...)` (default).
            name: its name on screens.
            ahead: also return the records whose times are further ahead than `max_ahead=` of the
                epochs says.
        """
        where, scope = caller(2)
        adapted = source_of(source, where).in_unit(self.time_unit)
        with located(where):
            schema = record_of(source, where, scope)
        check_name("source", name)
        epochs = by_arrival() if epochs is None else epochs
        if not isinstance(epochs, Epochs):
            raise GraphError(
                f"epochs={epochs!r} does not say how to cut",
                hint="Write rs.by_time(...) or rs.by_arrival(...).",
            )
        if epochs.column is not None:
            refuse_by_time(adapted, where)
        check_time(schema, epochs, self.ticks, where)
        check_flag("source", "ahead", ahead)
        if ahead or epochs.max_ahead is not None:
            epochs = with_ahead(adapted, epochs, where, streamed=ahead)
        unique = self._unique(name, type(source).__name__.lower())
        node = SourceNode(unique, where, source=adapted, epochs=epochs, schema=schema)
        self._add(node)
        read = (Branch(node, schema),)
        stages = [
            OperatorNode(self._unique(None, spec.name), where, read, spec=spec)
            for spec in adapted.stages(where)
        ]
        for stage in stages:
            self._add(stage)
        branches = tuple(Branch(stage, out) for stage in stages for out in stage.spec.outputs)
        stream: Stream[Any] = Stream(self, branches or read)
        return (stream, Stream(self, (Branch(node, schema, late=True),))) if ahead else stream

    @placed
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
        run = runner.load()  # not imported here: running needs every layer, building a flow none
        options = with_new_names(options, {"cut_every": "checkpoint_every"}, "run")
        runner.check_options(run, options)
        for name in options.keys() & {"on_progress", "on_note"}:
            options[name] = runner.listener(name, options[name])
        return run(self, cluster=cluster, instances=instances, **options)

    def _add(self, node: FlowNode) -> None:
        nodes = [*self.nodes, node]
        refuse_shared(
            [(n, n.source) for n in nodes if isinstance(n, SourceNode)],
            [(n, n.sink) for n in nodes if isinstance(n, SinkNode)],
        )
        self.nodes = nodes

    def _unique(self, given: str | None, usual: str) -> str:
        """The name of a new node: the one that was given, or the usual one, with a number if it is
        taken."""
        taken = {n.name for n in self.nodes}
        if given in taken:
            raise GraphError(f"two nodes are named {given!r}", hint="Give one another name=.")
        numbered = (f"{usual}-{i}" for i in range(2, len(taken) + 3))
        return given or next(name for name in (usual, *numbered) if name not in taken)


def _either(schemas: Iterable[RecordSchema]) -> str:
    return " | ".join(dict.fromkeys(s.name for s in schemas))
