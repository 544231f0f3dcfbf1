"""An instance of an operator: its logic takes the records of an epoch in canonical order."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir

from raystream.api.operators import OperatorSpec
from raystream.dataflow.emission import (
    Emission,
    emissions,
    late_emission,
    nothing,
    of_several,
    two_phases,
)
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.logic.base import Logic
from raystream.dataflow.logic.select import logic_of
from raystream.dataflow.order import assemble
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.snapshot import rows_for
from raystream.errors import InternalError
from raystream.schema.blocks import Input, folded
from raystream.schema.types import KeyRange
from raystream.state.counts import CUT_OFF, IN, LATE
from raystream.state.tables.backend import Table


class KeyedInstance(ReceivingInstance):
    """Applies an operator, and closes its windows and rings its timers up to the watermark."""

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        super().__init__(plan, vertex, keys)
        if vertex.spec is None:
            raise InternalError(f"{vertex.name} is no operator")
        self.spec = self._bound(vertex.spec)
        self.logic = self._logic(self.spec, plan)
        self._nothing = [nothing(schema, len(keys)) for schema in vertex.spec.outputs]

    def _logic(self, spec: OperatorSpec, plan: Plan) -> Logic:
        """A new logic of an operator, with its oldest rows on disk if it supports that."""
        logic, memory = logic_of(spec, plan), plan.state_memory
        if memory is None:
            return logic
        from raystream.dataflow.logic.tiered import tiered

        folder = Path(plan.state_folder or gettempdir())
        return tiered(logic, spec, plan.ticks, memory, folder)

    def _bound(self, spec: OperatorSpec) -> OperatorSpec:
        """The operator as this instance calls it."""
        return spec

    @property
    def table(self) -> Table | None:
        """The rows of state; None if the operator keeps none."""
        return self.logic.table

    def open(self) -> None:
        """Prepare for the first epoch: load references and set the alarms of restored rows. At the
        beginning of a job, make room for the rows that are expected."""
        self.logic.open(self.keys)
        rows = 0 if self.position else self.plan.rows.get(self.vertex.id, 0)
        if rows and self.table is not None:
            self.table.make_room(rows * len(self.keys) // self.plan.groups, self.keys)
        super().open()

    def _upgrade(self, vertex: Vertex, number: int) -> None:
        """As of any instance. The new code goes on with the rows as they are stored now.

        Raises:
            StateError: a row cannot be stored, or the user's `upgrade` failed.
        """
        assert vertex.spec is not None
        before, spec = self.table, self._bound(vertex.spec)
        logic = self._logic(spec, self.plan)
        if before is not None and logic.table is not None:
            logic.table.keep_beside(before, number)
            logic.table.fill(rows_for(self, vertex))
        with self.swapping:
            super()._upgrade(vertex, number)
            self.spec, self.logic = spec, logic
            self.logic.open(self.keys)
            self._nothing = [nothing(schema, len(self.keys)) for schema in vertex.spec.outputs]

    def _next_due(self) -> int:
        """The least time at which a window closes or a timer rings."""
        return self.logic.next_due()

    def _releases(self, watermark: int) -> bool:
        """Whether records leave that wait, in an epoch that may have none of its own."""
        return self.spec.waits and self.logic.next_due() <= watermark

    def _apply(self, pieces: dict[int, list[Piece]], header: Header, before: int) -> None:
        spec = self.spec
        given = assemble(self.feeds, pieces, spec.inputs, self.keys, spec.sorted_by)
        if header.epochs > 1 and len(given):
            given.epochs = header.epochs
            epochs = range(header.first, header.epoch + 1)
            after = [header.watermark_after(epoch, self._clock) for epoch in epochs]
            given.watermarks = [max(before, watermark) for watermark in after]
        if given.epochs > 1 and not self.logic.takes_several:
            head = self._epoch_by_epoch(given, header, before)
        else:
            head = self._step_of(given, header.epoch, before, header.watermark, last=header.ended)
        self.outlets.emit(head, header, self.counts)

    def _epoch_by_epoch(self, given: Input, header: Header, before: int) -> list[Emission]:
        """As `_step_of` each of several epochs, the last of which is not that of the input."""
        emitted = []
        for epoch, part, upto in zip(
            range(header.first, header.epoch + 1), given.by_epoch(), given.watermarks, strict=True
        ):
            emitted.append(self._step_of(part, epoch, before, upto, last=False))
            before = upto
        return of_several(emitted)

    def _step_of(
        self, given: Input, epoch: int, before: int, upto: int, *, last: bool
    ) -> list[Emission]:
        """Let the logic process an epoch, or several that it takes as one step.

        Args:
            before, upto: the watermark before and after. last: whether the input ends.

        Returns:
            what was emitted at each port
        """
        spec, logic = self.spec, self.logic
        head, late = [*self._nothing], None
        if len(given) or self._releases(upto):
            output = logic.process(given, epoch, before, upto)
            head, late = emissions(output), output.late
            self.counts.add(IN, folded(given.offsets, len(self.keys)))
        fired = logic.fire(self.keys, epoch, upto, last=last)
        if fired is not None:
            head = two_phases(head, emissions(fired))
            if fired.cut_off is not None:
                self.counts.add(CUT_OFF, fired.cut_off.offsets)
                self.cut_off_keys = fired.cut_off.keys
        if spec.counts_late:
            too_late = [late_emission(late, given, t, s) for t, s in enumerate(spec.inputs)]
            for e in too_late if late is not None else ():
                self.counts.add(LATE, folded(e.offsets, len(self.keys)))
            head += too_late
        return head
