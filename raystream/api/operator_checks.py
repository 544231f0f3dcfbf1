"""Refuses operators that could not run, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

from raystream.api.operators import OperatorSpec
from raystream.api.windows.kinds import (
    Global,
    Session,
    Sliding,
    Tumbling,
    WindowKind,
    in_words,
    is_triggered,
)
from raystream.errors import GraphError, Where
from raystream.schema.fields import Field
from raystream.schema.records import RecordSchema, apart
from raystream.schema.state import StateSchema
from raystream.schema.types import NEVER


def check_spec(spec: OperatorSpec) -> None:
    """Refuse what could not run.

    Raises:
        GraphError: the declaration contradicts itself.
    """
    if spec.state is not None and not spec.key:
        raise spec.fail(
            "it keeps state, but has no key",
            hint='State belongs to a key: @rs.operator(key="...").',
        )
    if spec.control is not None:
        _check_control(spec)
    if spec.asking is not None:
        _check_asking(spec)
    if spec.load and (spec.form != "batch" or not spec.key):
        raise spec.fail("an operator with `load` is keyed and takes rs.Batch")
    if spec.form == "batch":
        _check_batch(spec)
    _check_key(spec)
    if spec.order_by is not None:
        if not spec.key:
            raise spec.fail("order_by orders the records of a key, but there is no key")
        _each(spec, spec.order_by, "order_by")
    if spec.window is not None:
        if spec.close is None or spec.state is None:
            raise spec.fail(
                "a windowed operator has `process(record, state)` and `close(key, window, state)`"
            )
        if spec.timer is not None:
            raise spec.fail("a windowed operator has no timers: a window closes by itself")
        if isinstance(spec.window, Session) and spec.merge is None:
            raise spec.fail("a record may join two sessions: add merge(self, into, other)")
        _each(spec, spec.time, "time")
        _check_told(spec, spec.window)
    elif spec.close is not None:
        raise spec.fail("it has `close`, but no window=")
    if spec.timer is not None and spec.time != "time":  # by that name it need not be there
        _each(spec, spec.time, "time")
    if (spec.timer is not None) != (spec.state is not None and spec.state.timer is not None):
        raise spec.fail(
            "timers need both a method `timer(key, time, state)` and one rs.Timer field"
            " in the state",
            hint="In the state `due: rs.Timer = rs.NEVER`, which rings at the time it is set to;"
            " beside `process` a method `timer`, which is called then.",
        )
    _check_storage(spec)
    told = getattr(spec.target, "__dataclass_params__", None)
    if spec.is_class and not (told.frozen if told else not getattr(spec.target, "__dict__", ())):
        raise spec.fail(
            "its parameters must be fields of a frozen dataclass",
            hint="@dataclass(frozen=True), below @rs.operator.",
        )


def _check_asking(spec: OperatorSpec) -> None:
    """Its function is called with records, and all that is known of them is its answers."""
    for what, there in (
        ("windows", spec.window or spec.close),
        ("timers", spec.timer),
        ("reference data: open what it needs when it is called first", spec.load),
        ("compiled=True", spec.compiled),
    ):
        if there:
            raise spec.fail(
                f"an operator that asks the world has no {what}",
                hint="What is made of its answers belongs into an operator after it.",
            )


def _check_control(spec: OperatorSpec) -> None:
    """Its function is called record by record, and nothing else is."""
    for what, there in (
        ("asks the world", spec.asking),
        ("takes batches", spec.form == "batch"),
        ("is compiled", spec.compiled),
        ("has windows", spec.window or spec.close),
        ("has timers", spec.timer),
    ):
        if there:
            raise spec.fail(
                f"an operator that {what} takes no control stream",
                hint="Let an operator before it take the control stream, and put what follows from"
                " the rules into its records.",
            )


def _check_told(spec: OperatorSpec, window: WindowKind) -> None:
    """A result that is not the only one of its window must say so."""
    corrected = isinstance(window, Tumbling | Sliding) and window.lateness > 0
    early = isinstance(window, Tumbling | Global) and window.early > 0
    early = early or (isinstance(window, Global) and window.count > 0)
    for flag, there, why in (
        ("correction", corrected, "lateness= a window closes again when late records come"),
        ("early", early, "every= or count= a window has results before it closes"),
    ):
        if there and flag not in spec.told:
            raise spec.fail(
                f"with {why}: `close` has to say which results these are",
                hint=f"def close(self, key, window, state, {flag}: bool), and put it into the"
                " record.",
            )
        if not there and flag in spec.told:
            raise spec.fail(
                f"`close` takes {flag!r}, but no result of this window is one",
                hint=f"With {why}. Or leave out the parameter.",
            )
    if spec.compiled and is_triggered(window):
        raise spec.fail(
            f"{in_words(window)} are not compiled",
            hint="Leave out compiled=True.",
        )


def _check_batch(spec: OperatorSpec) -> None:
    """Its function is called with batches, and nothing else calls it."""
    if spec.compiled:
        raise spec.fail("a batch function is not compiled: leave out compiled=True")
    if len(spec.inputs) != 1:
        raise spec.fail("a batch operator takes records of one type")
    if len(spec.outputs) != 1:
        raise spec.fail(
            "a batch operator returns records of one type",
            hint="-> rs.Batch[...] of one record class.",
        )
    for what, there in (
        ("windows", spec.window or spec.close),
        ("timers", spec.timer or (spec.state is not None and spec.state.timer)),
    ):
        if there:
            raise spec.fail(
                f"a batch operator has no {what}",
                hint="Use the per-record form, compiled where speed matters.",
            )


def _check_storage(spec: OperatorSpec) -> None:
    if spec.compiled:
        for schema in (*spec.inputs, *spec.outputs):
            for f in schema.fields:
                if f.kind != "fixed" or f.value is not None:
                    times = f.integer and f.value is not None and not f.value.members
                    raise spec.fail(
                        f"compiled operators hold numbers, but {schema.name}.{f}",
                        hint=(
                            "Count time in an int (rs.Int64) that an operator before this one makes"
                            " of it; or leave out compiled=True."
                            if times
                            else "Use the batch form, or leave out compiled=True."
                        ),
                    )
            if not issubclass(schema.cls, tuple):
                raise spec.fail(
                    f"compiled operators hold NamedTuples, but {schema.name} is a dataclass",
                    hint=f"class {schema.name}(typing.NamedTuple), with the same fields.",
                )
    if spec.compiled and spec.rings_by is not None and spec.state is not None:
        _check_timer(spec, spec.state)
    if spec.state is not None and spec.in_structured_rows and not spec.state.structured:
        bad = next(f for f in spec.state.fields if not (f.number or f.kind == "array"))
        raise spec.fail(f"its state must hold numbers, but {spec.state.name}.{bad}")


def _check_timer(spec: OperatorSpec, state: StateSchema) -> None:
    """Compiled code looks at the alarm of a row before it knows whether the row is new."""
    if state.timer is not None and getattr(state.cls(), state.timer) != NEVER:
        raise spec.fail(
            f"{state.name}.{state.timer} is set in a new row, before there was a record",
            hint=f"{state.timer}: rs.Timer = rs.NEVER; set it in `process`.",
        )


def _check_key(spec: OperatorSpec) -> None:
    for name in spec.key:
        kinds = _each(spec, name, "key")
        if len(kinds) > 1:  # rows come back from a checkpoint by the type of one of them
            raise spec.fail(
                f"the key {name!r} is of different types in its inputs: {', '.join(sorted(kinds))}",
                hint="Declare it alike in all of them.",
            )


def _each(spec: OperatorSpec, name: str, role: str) -> set[str]:
    """Check that every input has the field; the kinds found (`int`, `bool`, a class, `text`,
    `bytes`; with `| None` where it may be)."""
    kinds: set[str] = set()
    for schema in spec.inputs:
        f = schema.field(name)
        if f is None:
            other = ' Say which of them: @rs.operator(..., time="...").' if role == "time" else ""
            raise spec.fail(
                f"{role} {name!r} is not a field of {schema.name}",
                hint=f"{schema.name} has {', '.join(schema.names)}.{other}",
            )
        if why := _unfit(f, role, spec):
            raise spec.fail(f"{role} {name!r}: {schema.name}.{f} cannot serve", hint=why)
        kind: str = "bool" if f.dtype == "?" else "int" if f.kind == "fixed" else f.kind
        if f.value is not None and isinstance(f.value.python, type):
            kind = f"{f.value.python.__module__}.{f.value.python.__qualname__}"
        kinds.add(kind + " | None" * f.optional)
    return kinds


def _unfit(f: Field, role: str, spec: OperatorSpec) -> str:
    """What to do about a field that cannot serve as key, order or time; empty if it can."""
    if role != "key":
        fit = f.kind == "fixed" and f.dtype not in ("f4", "f8") and not f.optional
        return "" if fit and (f.number or f.moment) else "An integer field."
    if (why := unfit_key(f)) or not (f.optional and (spec.compiled or spec.form == "batch")):
        return why
    say = "leave out compiled=True" if spec.compiled else "take records one by one"
    return (
        "Only an operator in Python that takes records one by one has keys that may be None:"
        f" {say}, or let an operator before this one leave None out, or put a value that no key has"
        " in its place."
    )


def unfit_key(f: Field) -> str:
    """What to do about a field by whose values nothing can be partitioned; empty if it can be."""
    if (f.kind == "fixed" and f.dtype not in ("f4", "f8")) or f.kind in ("text", "bytes"):
        return ""
    if f.kind == "fixed":
        return "Two floats that look alike may differ: key by an int, such as round(100 * value)."
    if f.kind == "decimal":
        return "Key by an int, such as int(100 * value), or by text."
    return (
        "An int, bool, str, bytes, date, datetime, UUID or Enum field. The parts of a tuple or a"
        ' record are fields of their own, and the key is key=("a", "b").'
    )


def check_inputs(schemas: Sequence[RecordSchema], spec: OperatorSpec, where: Where) -> None:
    """Check that a stream carries what an operator takes, and nothing else.

    Args:
        schemas: the types of the stream's records.
    """
    for schema in schemas:
        if schema not in spec.inputs:
            carried, taken = schema.name, " | ".join(dict.fromkeys(s.name for s in spec.inputs))
            for one in spec.inputs:
                if one.name == carried:
                    carried, taken = apart(schema.cls, one.cls)
                    break
            raise GraphError(
                f"{spec.name} takes {taken}, but this stream carries {carried}",
                where=where,
                hint=f"Pick what it takes: stream[{spec.inputs[0].name}]",
            )
    for schema in spec.inputs:
        if not any(s is schema for s in schemas):
            raise GraphError(
                f"{spec.name} takes {schema.name}, which this stream does not carry",
                where=where,
                hint="Unite streams with |.",
            )
