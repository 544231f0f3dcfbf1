"""What each operator of a flow keeps at the end of each epoch, when nothing disturbs it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa

from raystream.dataflow.instances.base import Instance
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.plan import Plan
from raystream.local.job import LocalJob
from raystream.local.source import Ends, LocalSource
from raystream.schema.types import KeyRange
from raystream.simulation.references import plan_of
from raystream.state.images.chain import FULL
from raystream.state.tables.backend import WHOLE
from raystream.testing.collect import Collect

Rows = dict[tuple[Any, ...], dict[str, Any]]
"""By the values of the key columns, as they are stored, the row."""


class StatesOfRun:
    """The states of an undisturbed run.

    Args:
        boundaries: where epochs end that are cut by arrival.
    """

    def __init__(self, plan: Plan, boundaries: Ends | None = None) -> None:
        self._epochs: dict[int, list[int]] = {}
        self._rows: dict[int, list[Rows]] = {}
        self.keys: dict[int, Any] = {}
        """By vertex an Arrow batch of all keys that ever had a row, in the order of their coming;
        only operators with state are there."""
        whole = {v.id: [KeyRange(0, plan.groups)] for v in plan.vertices}
        vertices = [replace(v, sink=Collect()) if v.kind == "sink" else v for v in plan.vertices]
        once = replace(plan, ranges=whole, vertices=vertices)
        _Remembering(once, self, boundaries).run()

    def note(self, machine: Instance) -> None:
        """An instance, the only one of its vertex, has made a step."""
        vertex, table = machine.vertex.id, machine.table
        if table is None:
            return
        part = next(table.capture(FULL, machine.position).parts(WHOLE))
        names = table.shape.gone.names
        rows = {tuple(row[name] for name in names): row for row in part.rows.to_pylist()}
        self._epochs.setdefault(vertex, []).append(machine.position)
        self._rows.setdefault(vertex, []).append(rows)
        known = self.keys.get(vertex)
        before = set() if known is None else {tuple(k.values()) for k in known.to_pylist()}
        new = [dict(zip(names, key, strict=True)) for key in rows if key not in before]
        if new:
            more = pa.RecordBatch.from_pylist(new, schema=table.shape.gone)
            self.keys[vertex] = more if known is None else pa.concat_batches([known, more])

    def at(self, vertex: int, epoch: int) -> Rows:
        """What a vertex keeps at the end of an epoch. A step may be a run of epochs in which
        nothing changes."""
        number = bisect_right(self._epochs[vertex], epoch)
        return self._rows[vertex][number - 1] if number else {}


class _Remembering(LocalJob):
    """A job that notes each state."""

    def __init__(self, plan: Plan, states: StatesOfRun, boundaries: Ends | None) -> None:
        self._states = states
        super().__init__(plan, boundaries=boundaries)

    def _step(self, each: LocalSource | ReceivingInstance, upto: int = 0) -> None:
        super()._step(each, upto)
        if isinstance(each, ReceivingInstance):
            self._states.note(each)


@cache
def states_of_flow(flow: str) -> StatesOfRun:
    """The states of an undisturbed run of a flow with one instance of everything."""
    return StatesOfRun(plan_of(flow))
