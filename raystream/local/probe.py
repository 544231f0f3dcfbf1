"""Looks at single calls of operators in a replay: to print them, or to stop a debugger before them.

A probe stands between the logic of an operator and the user's functions. It changes no bit: the
functions are called with the same arguments, in the same order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from raystream.api.batch import Batch
from raystream.api.operators import OperatorSpec
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.plan import Plan
from raystream.errors import ConfigError
from raystream.schema.records import RecordSchema
from raystream.schema.state import FORGOTTEN


@dataclass(kw_only=True)
class Visit:
    """One call of an operator's code."""

    operator: str
    """The name of the operator in the flow."""
    epoch: int
    """The epoch in which the call is made."""
    key: Any
    """The key; None for an operator without a key, and for a batch."""
    step: str
    """`process`, `timer` or `close`."""
    given: Any
    """The record; for `timer` the time, for `close` the window, for a batch a list of records."""
    before: str = ""
    """The row before the call as `repr` shows it; empty without a row."""
    after: str = ""
    """The row after the call, likewise; `forgotten` if the call has removed it."""
    emitted: Sequence[Any] = ()
    """The records that the call emitted; if it raised, those before that."""
    raised: BaseException | None = None
    """What the call raised."""


Around = Callable[[Visit, Callable[[], None]], None]
"""Makes the call that it is given, for example in a debugger."""


class Probe:
    """Looks at the calls of one operator, or of all, and of one key, or of all.

    Args:
        operator: the name of the operator; empty for all.
        key: a key, as `str` or `repr` gives it; empty for all.
        told: called after each of these calls.
        around: makes each of these calls. Unless given, the probe makes them itself.
    """

    def __init__(
        self,
        operator: str = "",
        key: str = "",
        *,
        told: Callable[[Visit], None] | None = None,
        around: Around | None = None,
    ) -> None:
        self.operator = operator
        self.key = key
        self._told = told
        self._around = around
        self._epoch = 0

    def before(self, machine: Instance) -> None:
        """An instance is about to apply its next epoch."""
        self._epoch = machine.position + 1

    def put_into(self, plan: Plan) -> None:
        """Look at the operators of a plan. Compiled ones are interpreted from then on: the bits are
        the same, and Python code can be looked at.

        Raises:
            ConfigError: there is no such operator, or it cannot be looked at.
        """
        found = []
        for vertex in plan.vertices:
            if self._names(vertex.name, vertex.spec):
                vertex.spec = self._into(vertex.name, vertex.spec)
                found.append(vertex.name)
            for i, fused in enumerate(vertex.fused):
                if self._names(fused.name, fused.spec):
                    vertex.fused[i] = replace(fused, spec=self._into(fused.name, fused.spec))
                    found.append(fused.name)
        if not found:
            all_of = Probe()
            specs = [(v.name, v.spec) for v in plan.vertices]
            specs += [(f.name, f.spec) for v in plan.vertices for f in v.fused]
            names = dict.fromkeys(name for name, spec in specs if all_of._names(name, spec))
            raise ConfigError(
                f"there is no operator {self.operator!r}{' with a key' if self.key else ''} to look"
                " at",
                hint=f"There are {', '.join(names)}.",
            )

    def _names(self, name: str, spec: OperatorSpec | None) -> bool:
        """Whether an operator is one that is looked at."""
        if spec is None or spec.waits or spec.asking is not None or (self.key and not spec.key):
            return False
        return self.operator in ("", name, spec.name)

    def _into(self, name: str, spec: OperatorSpec | None) -> OperatorSpec:
        assert spec is not None
        if spec.form == "batch":
            return replace(spec, compiled=False, process=partial(self._batch, name, spec))
        calls: dict[str, Any] = {
            "process": partial(self._call, name, spec, "process", spec.process)
        }
        for step, function in (("timer", spec.timer), ("close", spec.close)):
            if function is not None:
                calls[step] = partial(self._call, name, spec, step, function)
        return replace(spec, compiled=False, **calls)

    def _wants(self, key: Any) -> bool:
        return not self.key or self.key in (str(key), repr(key))

    def _call(
        self,
        name: str,
        spec: OperatorSpec,
        step: str,
        function: Callable[..., Any],
        *args: Any,
        **named: Any,
    ) -> Any:
        key = args[0] if step != "process" else _key_of(spec, args[0])
        if not self._wants(key):
            return function(*args, **named)
        at = 1 if step == "process" else 2
        row = args[at] if spec.state is not None and len(args) > at else None
        visit = Visit(
            operator=name,
            epoch=self._epoch,
            key=key,
            step=step,
            given=args[0] if step == "process" else args[1],
            before="" if row is None else repr(row),
        )
        emitted: list[Any] | None = []
        keep = copy.deepcopy if _may_change(spec) else _as_it_is

        def make() -> None:
            nonlocal emitted
            result = function(*args, **named)
            if result is None:
                emitted = None
                return
            for record in result:
                emitted.append(keep(record))  # type: ignore[union-attr]

        self._make(visit, make, lambda: (emitted or (), _words(row)))
        return emitted

    def _batch(self, name: str, spec: OperatorSpec, batch: Batch[Any], *more: Any) -> Any:
        given = [r for r in batch.records() if self._wants(_key_of(spec, r))]
        if not given:
            return spec.process(batch, *more)
        visit = Visit(operator=name, epoch=self._epoch, key=None, step="process", given=given)
        result: Any = None

        def make() -> None:
            nonlocal result
            result = spec.process(batch, *more)

        self._make(visit, make, lambda: (self._of_key(spec, result), ""))
        return result

    def _of_key(self, spec: OperatorSpec, batch: Any) -> Sequence[Any]:
        """The records of a batch that have the key; all if they lack its fields."""
        records = list(batch.records()) if isinstance(batch, Batch) else []
        if not all(hasattr(r, name) for r in records[:1] for name in spec.key):
            return records
        return [r for r in records if self._wants(_key_of(spec, r))]

    def _make(
        self, visit: Visit, make: Callable[[], None], came: Callable[[], tuple[Sequence[Any], str]]
    ) -> None:
        try:
            if self._around is None:
                make()
            else:
                self._around(visit, make)
        except BaseException as error:
            visit.raised = error
            raise
        finally:
            visit.emitted, visit.after = came()
            if self._told is not None:
                self._told(visit)


def _key_of(spec: OperatorSpec, record: Any) -> Any:
    """The key of a record: a value, or a tuple for a key of several fields; None without a key."""
    values = tuple(getattr(record, name) for name in spec.key)
    return values[0] if len(values) == 1 else values or None


def _words(row: Any) -> str:
    if row is None:
        return ""
    return "forgotten" if row._mark == FORGOTTEN else repr(row)


def _may_change(spec: OperatorSpec) -> bool:
    """Whether an operator may change a value of a record that it has emitted, such as a list."""
    schemas: Iterable[RecordSchema] = spec.outputs
    return any(f.kind == "object" for s in schemas for f in s.fields)


def _as_it_is(record: Any) -> Any:
    return record
