"""An instance of an operator with a control stream."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from raystream.api.operators import OperatorSpec
from raystream.dataflow.instances.control_row import ControlRow
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.logic.interpreted import in_order
from raystream.dataflow.order import assemble, feeds_of
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Plan, Vertex
from raystream.errors import InternalError
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.images.image import InputPosition


class ControlledInstance(KeyedInstance):
    """Reads all of the control stream, whatever its range is, and applies the records of an epoch
    before the others of that epoch. So the row that it makes of them is the same in every instance,
    and it need not be cut or merged when ranges are.

    The operator's watermark does not follow the control stream, which may be silent for days. Once
    all other input has ended the watermark stays where it is, until the control stream has ended,
    too.
    """

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        super().__init__(plan, vertex, keys)
        self._control_feeds = feeds_of(vertex, to_all=True)
        self._controls = frozenset(e.id for e in vertex.inputs if e.to_all)

    def _bound(self, spec: OperatorSpec) -> OperatorSpec:
        """The operator with a function that is given the row of the control stream."""
        if spec.control is None:
            raise InternalError(f"{spec.name} has no control stream")
        self.row = ControlRow(spec)
        bound: dict[str, Any] = {spec.control.argument: self.row.row}
        return replace(spec, process=partial(spec.process, **bound))

    def _upgrade(self, vertex: Vertex, number: int) -> None:
        """As of any operator; the row of the control stream goes on, too."""
        control = self.control_row()
        super()._upgrade(vertex, number)
        if control:
            self.row.restore(control)

    def takes(self, edge: int) -> KeyRange:
        """All key groups of the control stream, and its own range of the other edges."""
        return KeyRange(0, self.plan.groups) if edge in self._controls else self.keys

    def _timing(self, pieces: dict[int, list[Piece]]) -> dict[int, list[Piece]]:
        return {edge: ps for edge, ps in pieces.items() if edge not in self._controls}

    def _watermark_after(self, epoch: int, pieces: dict[int, list[Piece]]) -> tuple[int, bool]:
        watermark, idle = super()._watermark_after(epoch, self._timing(pieces))
        return (BEFORE_ALL if watermark == NEVER else watermark), idle

    def _apply(self, pieces: dict[int, list[Piece]], header: Header, before: int) -> None:
        if any(piece.rows.length for edge in self._controls for piece in pieces[edge]):
            whole, schemas = KeyRange(0, self.plan.groups), self.row.control.inputs
            given = assemble(self._control_feeds, pieces, schemas, whole, None)
            self.row.take(in_order(given), header.epoch)
        super()._apply(pieces, header, before)

    def control_row(self) -> bytes:
        """The row of the control stream, as it is stored in checkpoints."""
        return self.row.checked()

    def stand(self, checkpoint: int, at: InputPosition) -> None:
        super().stand(checkpoint, at)
        if at.control:
            self.row.restore(at.control)
