"""An instance of a source. Its shell reads, and hands in the rows of each epoch."""

from __future__ import annotations

from typing import ClassVar

from raystream.dataflow.emission import Emission, nothing
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.sources.epochs import EpochRows
from raystream.errors import InternalError
from raystream.schema.blocks import folded
from raystream.state.counts import AHEAD, IN
from raystream.state.images.image import InputPosition


class SourceInstance(Instance):
    """Makes epochs of the rows that were read, and says which epochs are checkpoints."""

    ends_by_range: ClassVar[bool] = True

    def receive(self, edge: int, piece: Piece) -> bool:
        """A source has no input."""
        raise InternalError(f"{self.vertex.name} is a source and was sent epoch of edge {edge}")

    def ready(self) -> bool:
        """Whether it has not ended, and is not at the checkpoint with which the job is stopped."""
        if self.ended or self.checkpoints.stops(self.position):
            return False
        return not self.switching.told or self._may_pass()

    def step(self, rows: EpochRows | None = None) -> Header:
        """Emit the rows of the next epoch, or a run of epochs without rows."""
        if rows is None:
            raise InternalError(f"{self.vertex.name} is a source and was given no rows")
        epoch = self.position + rows.epochs
        self.watermark = max(self.watermark, rows.watermark)
        length = rows.rows.length
        checkpoint = self.checkpoints.due(epoch, 1 if length else rows.epochs)
        header = Header(
            epoch,
            self.keys,
            rows.watermark,
            checkpoint,
            rows.ended,
            rows.idle,
            rows.epochs,
            rows.lag,
        )
        self.counts.add(IN, folded(rows.offsets, len(self.keys)))
        if rows.holding is not None:
            self.outlets.times.holding = rows.holding
        self.outlets.emit(self._emitted(rows), header, self.counts)
        if checkpoint:
            self.checkpoints.take(epoch)
        self.checkpoints.passed(self.position + 1, epoch - checkpoint)
        self.position = epoch
        self.ended = rows.ended
        return header

    def _emitted(self, rows: EpochRows) -> list[Emission]:
        """What goes out: what was read, and where the flow has a stream of them the rows that were
        set aside."""
        main, aside = Emission(rows.rows, rows.offsets, None), rows.aside
        streamed = self.vertex.sets_aside
        if aside is None:
            schema = self.vertex.ports[0].schema
            return [main, nothing(schema, len(self.keys))] if streamed else [main]
        self.counts.add(IN, aside.offsets)
        self.counts.add(AHEAD, aside.offsets)
        if not streamed:
            return [main]
        main.rank = aside.others
        return [main, Emission(aside.rows, aside.offsets, aside.number)]

    def stand(self, checkpoint: int, at: InputPosition) -> None:
        """As of any instance; but a source that had ended announces that once more: instances of
        other ranges may not have heard of it."""
        super().stand(checkpoint, at)
        self.ended = False
